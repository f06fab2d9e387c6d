//! Printed lines; the log itself is read in `tests/`.

use log::TopicPartition;
use schemas::record::example;
use schemas::{Headers, UnixMicros};

use super::*;

fn record(value: Option<Vec<u8>>) -> Record {
    let from = TopicPartition { topic: Topic::Alerts, partition: Partition(0) };
    let headers: Headers =
        [("traceparent", b"1".as_slice()), ("odd", &[255])].into_iter().collect();
    let appended_at = UnixMicros(1_000_000);
    Record { from, offset: Offset(3), appended_at, key: b"eth".to_vec(), value, headers }
}

fn printed(record: &Record) -> Value {
    serde_json::from_str(&line(record, value(record))).unwrap()
}

#[test]
fn a_record_is_one_line_with_its_place() {
    let record = record(Some(schemas::encode(&example::alert()).unwrap()));
    let printed = printed(&record);
    assert_eq!(printed["topic"], "alerts");
    assert_eq!((&printed["partition"], &printed["offset"]), (&json!(0), &json!(3)));
    assert_eq!(printed["time"], "1970-01-01T00:00:01.000000Z");
    assert_eq!(printed["key"], "eth");
    assert_eq!(printed["headers"], json!({ "traceparent": "1", "odd": "ff" }));
    assert_eq!(printed["value"]["transfer_id"], 7);
    let text = text(&record, value(&record));
    assert!(text.starts_with("1970-01-01T00:00:01.000000Z alerts/0@3 eth {"), "{text}");
    assert!(!text.contains('\n'));
}

#[test]
fn tombstones_and_garbage_are_shown_as_what_they_are() {
    assert_eq!(printed(&record(None))["value"], Value::Null);
    let garbage = printed(&record(Some(vec![1, 2])));
    assert_eq!(garbage["error"], "not in the Confluent wire format");
    assert_eq!(garbage["bytes"], "0102");
    assert_eq!(garbage.get("value"), None);
}

#[test]
fn topics_are_known_by_name() {
    assert_eq!(topic("transfers.raw"), Ok(Topic::TransfersRaw));
    assert!(topic("transfer").unwrap_err().contains("there are transfers.raw, orders.commands"));
}
