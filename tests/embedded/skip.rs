//! `tidemark dead-letters skip`: a record that no version can read ends a stage until it is moved.

use std::path::Path;
use std::sync::Arc;

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, Offset, TopicPartition};
use runtime::SystemClock;
use schemas::record::{AuditEntry, DeadLetter};
use schemas::{AuditAction, Headers, Partition, Topic};
use testkit::harness::{LAYOUT, Process, Tidemark, WEBHOOK, exits};

/// The wire format with a schema id that no version has, and content that no schema decodes.
const GARBAGE: [u8; 9] = [0, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff];

const fn first(topic: Topic) -> TopicPartition {
    TopicPartition { topic, partition: Partition(0) }
}

fn open(dir: &Path) -> EmbeddedLog {
    EmbeddedLog::open(&dir.join("data"), LAYOUT, Arc::new(SystemClock)).unwrap()
}

/// Writes a value to the first partition of a topic; returns its position.
async fn write(dir: &Path, topic: Topic, value: &[u8]) -> String {
    let (log, to) = (open(dir), first(topic));
    let offset = log.bounds(to).unwrap().end;
    let record = NewRecord {
        to,
        key: b"x".to_vec(),
        value: Some(value.to_vec()),
        headers: Headers::default(),
    };
    log.produce(vec![record]).await.unwrap();
    format!("{to}@{offset}")
}

/// Skips a record with a command that must exit with this code; returns its output.
#[track_caller]
fn skip(dir: &Path, arguments: &[&str], code: i32) -> String {
    exits(dir, &[&["dead-letters", "skip"], arguments].concat(), code)
}

/// Log of a process that ends by itself.
async fn ended(dir: &Path) -> String {
    let file = dir.join("tidemark.toml").display().to_string();
    Process::start("ends", dir, &["run", "--config", &file], &[]).refused().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_continues_behind_a_skipped_record() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(Tidemark::start(dir, &[], WEBHOOK, "").await.stop().await.success());
    let topics = [Topic::WebhooksDispatch, Topic::OrdersCommands];
    for topic in topics {
        let place = write(dir, topic, &GARBAGE).await;
        let said = ended(dir).await;
        let command = format!("`tidemark dead-letters skip {place}`");
        assert!(said.contains(&command), "{said}");

        let printed = skip(dir, &[&place], 0);
        assert!(printed.starts_with(&format!("{place} is in dead-letters")), "{printed}");
        let again = skip(dir, &[&place], 1);
        assert!(again.contains("is past"), "{again}");
        assert!(Tidemark::start(dir, &[], WEBHOOK, "").await.stop().await.success());
    }
    let log = open(dir);
    let letters = log.read(first(Topic::DeadLetters), Offset(0), 9).unwrap();
    let entries = log.read(first(Topic::Audit), Offset(0), 9).unwrap();
    assert_eq!((letters.len(), entries.len()), (2, 2));
    for ((letter, entry), topic) in letters.iter().zip(&entries).zip(topics) {
        let letter: DeadLetter = letter.read().unwrap();
        assert_eq!((letter.topic.as_str(), &letter.value[..]), (topic.name(), &GARBAGE[..]));
        assert!(letter.reason.starts_with("skipped by an operator: schema id "), "{letter:?}");
        let entry: AuditEntry = entry.read().unwrap();
        let place = format!("{topic}/0@{}", letter.offset);
        assert_eq!((entry.action, entry.subject), (AuditAction::SkipRecord, Some(place)));
        assert_eq!(entry.operator, "command line");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_reads_past_a_skipped_record() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(Tidemark::start(dir, &[], WEBHOOK, "").await.stop().await.success());
    let place = write(dir, Topic::WebhooksDispatch, &GARBAGE).await;
    skip(dir, &[&place], 0);
    let reconcile = ["reconcile", "--against", "topics,webhooks"];
    let printed = exits(dir, &reconcile, 1);
    let unknown = format!("NOT KNOWN: {place}: no version can read this record");
    assert!(printed.contains(&unknown), "{printed}");
    let progress = write(dir, Topic::Chains, b"garbage").await;
    let printed = exits(dir, &reconcile, 1);
    assert!(printed.contains(&format!("NOT KNOWN: {progress}: ")), "{printed}");
    // A delivery of a newer version is not passed over, because that version can read it.
    let mut newer = schemas::encode(&schemas::record::example::delivery()).unwrap();
    newer[1] ^= 1;
    let place = write(dir, Topic::WebhooksDispatch, &newer).await;
    let refused = exits(dir, &reconcile, 1);
    assert!(refused.contains(&format!("cannot read {place}")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_can_read_is_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(Tidemark::start(dir, &[], WEBHOOK, "").await.stop().await.success());
    let command = schemas::encode(&schemas::record::example::order_command()).unwrap();
    let mut newer = command.clone();
    newer[1] ^= 1;
    let payment = write(dir, Topic::TransfersRaw, &GARBAGE).await;
    let cases = [
        (command, "this version can read the record: start the stage"),
        (newer, "a newer version wrote it: start that version"),
        (b"garbage".to_vec(), "the stage moves it to dead-letters by itself"),
    ];
    for (value, part) in cases {
        let place = write(dir, Topic::OrdersCommands, &value).await;
        let said = skip(dir, &[&place], 1);
        assert!(said.contains(part), "{said}");
    }
    let said = skip(dir, &[&payment], 1);
    assert!(said.contains("may be a payment") && said.contains("--yes"), "{said}");
    skip(dir, &[&payment, "--yes"], 0);

    // The stage has not read the records before this one yet.
    let place = write(dir, Topic::OrdersCommands, &GARBAGE).await;
    let said = skip(dir, &[&place], 1);
    assert!(said.contains("start the stage, which ends at the record that stops it"), "{said}");
    let place = write(dir, Topic::Orders, &GARBAGE).await;
    let said = skip(dir, &[&place], 1);
    assert!(said.contains("others read orders too"), "{said}");
    for (place, code, part) in [
        ("orders.commands/0@99", 1, "there is no record at orders.commands/0@99"),
        ("orders.commands/7@0", 1, "has no partition orders.commands/7"),
        ("orders.commands", 64, "TOPIC/PARTITION@OFFSET"),
        ("nothing/0@0", 64, "no such topic"),
    ] {
        let said = skip(dir, &[place], code);
        assert!(said.contains(part), "{said}");
    }
}
