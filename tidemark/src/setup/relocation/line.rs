//! A record of the log, or a row of the tables, as a line of JSON.

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use log::{Offset, Record, TopicPartition};
use schemas::{HEADER_APPENDED_AT, Headers, UnixMicros};
use serde::{Deserialize, Serialize};
use store::Change;

/// A record. Bytes are base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    offset: i64,
    /// Append time, in microseconds.
    at: i64,
    key: String,
    /// `None` for a tombstone.
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

impl Line {
    pub(super) fn of(record: &Record) -> Self {
        let headers = record.headers.iter().filter(|(name, _)| *name != HEADER_APPENDED_AT);
        Self {
            offset: record.offset.0,
            at: record.appended_at.0,
            key: STANDARD.encode(&record.key),
            value: record.value.as_ref().map(|value| STANDARD.encode(value)),
            headers: headers
                .map(|(name, value)| (name.to_owned(), STANDARD.encode(value)))
                .collect(),
        }
    }

    /// Returns the record, which is of this partition.
    pub(super) fn record(&self, from: TopicPartition) -> anyhow::Result<Record> {
        let mut headers = Headers::default();
        for (name, value) in &self.headers {
            headers.push(name, &STANDARD.decode(value)?);
        }
        let value = self.value.as_ref().map(|value| STANDARD.decode(value)).transpose()?;
        let (offset, appended_at) = (Offset(self.offset), UnixMicros(self.at));
        Ok(Record { from, offset, appended_at, key: STANDARD.decode(&self.key)?, value, headers })
    }
}

/// Adds the append time of a record as a header.
pub(super) fn put_time(headers: &mut Headers, at: UnixMicros) {
    headers.push(HEADER_APPENDED_AT, at.0.to_string().as_bytes());
}

/// A row: the record that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    table: String,
    record: String,
}

impl Row {
    /// Encodes a row. An error means that the row does not fit its schema, which is a defect of this program.
    pub(super) fn of(change: &Change) -> anyhow::Result<Self> {
        let record = match change {
            Change::Order(row) => schemas::encode(row),
            Change::Deposit(row) => schemas::encode(row),
            Change::Transfer(row) => schemas::encode(row),
            Change::Attempt(row) => schemas::encode(row),
            Change::Chain(row) => schemas::encode(row),
        };
        Ok(Self { table: change.table().to_owned(), record: STANDARD.encode(record?) })
    }

    pub(super) fn change(&self) -> anyhow::Result<Change> {
        let record = STANDARD.decode(&self.record)?;
        let change = match self.table.as_str() {
            "orders" => schemas::decode(&record).map(Change::Order),
            "deposits" => schemas::decode(&record).map(Change::Deposit),
            "transfers" => schemas::decode(&record).map(Change::Transfer),
            "attempts" => schemas::decode(&record).map(Change::Attempt),
            "chains" => schemas::decode(&record).map(Change::Chain),
            other => bail!("there is no table {other}"),
        };
        change.with_context(|| format!("a row of {}", self.table))
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::example;
    use schemas::{Partition, Topic};

    use super::*;

    #[test]
    fn a_record_reads_back_without_its_old_time() {
        let headers = [("next", b"a/1".as_slice()), (HEADER_APPENDED_AT, b"5".as_slice())];
        let record = Record {
            from: TopicPartition { topic: Topic::Orders, partition: Partition(1) },
            offset: Offset(7),
            appended_at: UnixMicros(5),
            key: vec![0, 255],
            value: None,
            headers: headers.into_iter().collect(),
        };
        let text = serde_json::to_string(&Line::of(&record)).unwrap();
        let line: Line = serde_json::from_str(&text).unwrap();
        let headers = [("next", b"a/1".as_slice())].into_iter().collect();
        assert_eq!(line.record(record.from).unwrap(), Record { headers, ..record });
    }

    #[test]
    fn rows_read_back() {
        for change in [
            Change::Order(example::order()),
            Change::Deposit(example::deposit()),
            Change::Transfer(example::transfer()),
            Change::Attempt(example::attempt()),
            Change::Chain(example::chain_progress()),
        ] {
            assert_eq!(Row::of(&change).unwrap().change().unwrap(), change);
        }
        let row = Row { table: "others".to_owned(), record: String::new() };
        assert!(row.change().is_err());
    }
}
