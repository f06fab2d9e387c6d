//! Kafka's own tools, as an operator runs them.

use std::process::Command;

use testkit::harness::Installation;
use testkit::process::given;

const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const RECORDS: &str = "org.apache.kafka.tools.DeleteRecordsCommand";

/// Runs a tool and returns its output; `None` while the group is active.
fn run(class: &str, arguments: &[&str]) -> Option<String> {
    let mut tool = Command::new("java");
    tool.args(["-cp", &format!("{}/*", given("TIDEMARK_TEST_KAFKA_LIB")), class]);
    tool.args(["--bootstrap-server", &given("TIDEMARK_TEST_KAFKA")]).args(arguments);
    let output = tool.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let is_active = said.contains("inactive") || said.contains("GROUP_SUBSCRIBED_TO_TOPIC");
    assert!(output.status.success() || is_active, "{said}");
    (!is_active).then_some(said)
}

/// `kafka-consumer-groups.sh` with these arguments; `None` while the group is active.
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
