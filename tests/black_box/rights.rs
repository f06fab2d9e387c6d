//! A broker with ACLs: each stage has its own user, with the rights that `docs/consume/contract.md` lists for it.

use std::process::Stdio;
use std::sync::Arc;

use log::config::{KafkaConfig, KafkaSecurity, SecurityProtocol};
use log::kafka::KafkaLog;
use log::{Log, NewRecord, TopicPartition};
use schemas::{Headers, Partition, Secret, Topic};
use serde_json::json;
use testkit::harness::{
    Anvil, Chain, Client, Installation, LAYOUT, Member, Merchant, eventually, free_port,
};
use testkit::process::{given, given_path};
use testkit::repository;
use xtask::kafka;

use crate::java::java;

const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
const PASSWORD: &str = "correct-horse";
const STAGES: [&str; 5] = ["ingest", "processor", "projector", "api", "webhooks"];

/// Clients without a user have all rights: brokers, and the operator who creates topics and grants rights.
fn properties(port: u16) -> String {
    let users = STAGES.map(|stage| format!(" user_{stage}=\"{PASSWORD}\"")).concat();
    format!(
        "listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},\
         SASL_PLAINTEXT://127.0.0.1:{port}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SASL_PLAINTEXT://127.0.0.1:{port}\n\
         sasl.enabled.mechanisms=PLAIN\n\
         listener.name.sasl_plaintext.plain.sasl.jaas.config=\
         org.apache.kafka.common.security.plain.PlainLoginModule required{users};\n\
         authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
         super.users=User:ANONYMOUS\n"
    )
}

/// The table of rights in the document, as input lines of `Rights.java`.
fn documented(prefix: &str) -> Vec<String> {
    let text = repository::read("docs/consume/contract.md");
    let (_, table) = text.split_once("<!-- access: begin -->\n").unwrap();
    let (table, _) = table.split_once("<!-- access: end -->").unwrap();
    let mut lines = Vec::new();
    for row in table.lines().skip(2) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [user, rights @ ..] = &cells[..] else { panic!("{row}") };
        let kinds = [
            ("READ", "TOPIC"),
            ("WRITE", "TOPIC"),
            ("READ", "GROUP"),
            ("WRITE", "TRANSACTIONAL_ID"),
        ];
        assert_eq!(rights.len(), kinds.len(), "{row}");
        for ((operation, kind), cell) in kinds.into_iter().zip(rights) {
            for name in cell.split('`').skip(1).step_by(2) {
                let (pattern, name) = match (kind, name.strip_suffix('*')) {
                    ("TOPIC", None) => ("LITERAL", name),
                    (_, of_many) => ("PREFIXED", of_many.unwrap_or(name)),
                };
                lines.push(format!("{user}\t{operation}\t{kind}\t{pattern}\t{prefix}{name}"));
            }
        }
        // Each process compares all topics with its configuration before it starts.
        for operation in ["DESCRIBE", "DESCRIBE_CONFIGS"] {
            lines.push(format!("{user}\t{operation}\tTOPIC\tPREFIXED\t{prefix}"));
        }
    }
    lines
}

fn grant(brokers: &str, rights: &[String]) {
    let source = repository::root().join("tests/clients/java/Rights.java");
    let mut command = java(&source, &format!("{}/*", given("TIDEMARK_TEST_KAFKA_LIB")));
    command.arg(brokers).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, rights.join("\n").as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let (printed, failure) = (output.stdout.as_slice(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(printed).trim(), rights.len().to_string(), "{failure}");
}

/// A process of a stage, as the stage's user.
fn start(installation: &Installation, brokers: &str, stage: &str) -> Member {
    let variables = [
        ("TIDEMARK__LOG__BROKERS", brokers),
        ("TIDEMARK__LOG__SECURITY_PROTOCOL", "sasl_plaintext"),
        ("TIDEMARK__LOG__SASL_MECHANISM", "PLAIN"),
        ("TIDEMARK__LOG__SASL_USERNAME", stage),
        ("TIDEMARK__LOG__SASL_PASSWORD", PASSWORD),
    ];
    let variables = variables.map(|(name, value)| (name, value.to_owned()));
    installation.clone().with_variables(&variables).start(&format!("{stage}-1"), stage)
}

fn config(brokers: &str, prefix: &str, user: Option<&str>) -> KafkaConfig {
    let security = user.map(|user| KafkaSecurity {
        protocol: SecurityProtocol::SaslPlaintext,
        mechanism: Some("PLAIN".to_owned()),
        username: Some(user.to_owned()),
        password: Some(Secret::new(PASSWORD)),
        ..KafkaSecurity::default()
    });
    KafkaConfig {
        prefix: prefix.to_owned(),
        security: security.unwrap_or_default(),
        ..testkit::log_suite::on_kafka::config(brokers)
    }
}

async fn append(log: &Arc<dyn Log>, topic: Topic, value: &[u8]) -> Result<(), log::Error> {
    let to = TopicPartition { topic, partition: Partition(0) };
    let (key, value) = (b"key".to_vec(), Some(value.to_vec()));
    log.produce(vec![NewRecord { to, key, value, headers: Headers::default() }]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_run_with_the_rights_that_are_documented() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let lib = given_path("TIDEMARK_TEST_KAFKA_LIB");
    let started = kafka::start_formatted(&lib, &dir.path().join("kafka"), &properties(port), &[]);
    let broker = started.unwrap();
    let (open, guarded) = (broker.address(), format!("127.0.0.1:{port}"));
    let (anvil, merchant) = (Anvil::start().await, Merchant::start().await);
    let chain = Chain::at("eth", anvil.url(), WALLET, "confirmations = 3");
    let cql = given("TIDEMARK_TEST_CQL");
    let installation = Installation::on((&open, &cql), dir.path(), &[chain], merchant.url(), "");
    installation.provide();
    let prefix = installation.prefix();
    grant(&open, &documented(&prefix));
    let mut members = STAGES.map(|stage| start(&installation, &guarded, stage));
    for member in &mut members {
        member.ready().await;
    }
    let client = Client::new(&installation.api()).on_servers();
    client.offers(&["eth"]).await;

    // Each stage that reads an unreadable record moves it to the dead letters.
    let all: Arc<dyn Log> =
        Arc::new(KafkaLog::open(&config(&open, &prefix, None), LAYOUT).unwrap());
    for topic in [Topic::OrdersCommands, Topic::Orders, Topic::WebhooksDispatch] {
        append(&all, topic, &[1]).await.unwrap();
    }
    let id = client.order("right", "1.00", "eth", merchant.url()).await;
    client.deposit(&id).await;
    anvil.transfer(&[(WALLET, 1_000_000)]).await;
    anvil.mine(4).await;
    client.order_with_status(&id, "paid").await;
    merchant.awaited("order_id", &json!(id)).await;
    // No receiver listens at this port: the webhook is retried.
    let lost = client.order("lost", "2.00", "eth", "http://127.0.0.1:1/").await;
    let path = format!("/orders/{lost}/mark-paid");
    eventually("the order to be marked", || async {
        client.admin_post(&path).await.0.is_success().then_some(())
    })
    .await;
    eventually("a second attempt", || async {
        let attempts = client.admin(&format!("/orders/{lost}/webhooks")).await.ok()?;
        attempts.as_array()?.iter().any(|of| of["attempt"] == 2).then_some(())
    })
    .await;
    let letters = TopicPartition { topic: Topic::DeadLetters, partition: Partition(0) };
    eventually("a dead letter of each reader", || async {
        (all.bounds(letters).ok()?.end.0 >= 4).then_some(())
    })
    .await;

    let api: Arc<dyn Log> =
        Arc::new(KafkaLog::open(&config(&guarded, &prefix, Some("api")), LAYOUT).unwrap());
    let error = append(&api, Topic::TransfersRaw, &[1]).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("authorization"), "{error}");
    for member in members {
        let log = member.process.log();
        assert!(!log.to_lowercase().contains("authorization"), "{log}");
        assert!(member.process.stop().await.success());
    }
}
