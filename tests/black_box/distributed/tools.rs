//! Kafka's own tools, as an operator runs them.

use std::process::Command;

use testkit::harness::Installation;

const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const RECORDS: &str = "org.apache.kafka.tools.DeleteRecordsCommand";

fn variable(name: &str) -> String {
    std::env::var_os(name)
        .and_then(|value| value.into_string().ok())
        .unwrap_or_else(|| panic!("{name} is not set: run the tests by `cargo xtask test`"))
}

/// Runs a tool and returns its output; `None` while the group is active.
fn run(class: &str, arguments: &[&str]) -> Option<String> {
    let mut tool = Command::new("java");
    tool.args(["-cp", &format!("{}/*", variable("TIDEMARK_TEST_KAFKA_LIB")), class]);
    tool.args(["--bootstrap-server", &variable("TIDEMARK_TEST_KAFKA")]).args(arguments);
    let output = tool.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let is_active = said.contains("inactive") || said.contains("GROUP_SUBSCRIBED_TO_TOPIC");
    assert!(output.status.success() || is_active, "{said}");
    (!is_active).then_some(said)
}

/// `kafka-consumer-groups.sh` with these arguments; none while the group is active.
pub(super) fn consumer_groups(arguments: &[&str]) -> Option<()> {
    run(GROUPS, arguments).map(drop)
}

/// Deletes the records that a partition has now.
pub(super) fn delete_records(installation: &Installation, topic: &str, partition: u32) {
    let topic = format!("{}{topic}", installation.prefix());
    let text = format!(
        "{{\"partitions\":[{{\"topic\":\"{topic}\",\"partition\":{partition},\"offset\":-1}}],\"version\":1}}"
    );
    let file = installation.file().with_file_name("records.json");
    std::fs::write(&file, text).unwrap();
    run(RECORDS, &["--offset-json-file", file.to_str().unwrap()]).unwrap();
}
