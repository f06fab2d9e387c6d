//! Replay of dead letters (decision 81): by `tidemark dead-letters replay` and by the operators' console alike.

use std::sync::Arc;

use log::{Log, NewRecord, Offset, Record, TopicPartition};
use schemas::record::{
    AuditEntry, Author, DeadLetter, Delivery, DepositCommand, KEPT_SECONDS, OrderCommand,
};
use schemas::{AuditAction, Headers, Partition, SchemaName, Topic, UnixMicros};
use serde_json::Value;

use crate::audit::{self, Asker};

/// Partition of the dead letters.
pub const LETTERS: TopicPartition =
    TopicPartition { topic: Topic::DeadLetters, partition: Partition(0) };
/// Option of `tidemark dead-letters replay` that trusts a letter whose record has expired.
pub const WITHOUT_ORIGINAL: &str = "--without-original";
/// Maximum age of a record to put back, in microseconds. An older delivery could follow newer events of its order that
/// the webhooks stage has forgotten. An older command could restart an ended order that the processor has forgotten.
const AGE_MAX_MICROS: i64 = KEPT_SECONDS * 1_000_000;
const OLD_EVENT: &str = "the event is more than 7 days old: resend it with the Admin API, which sends the present status";
const OLD_COMMAND: &str = "the command is more than 7 days old: what it asks about may have ended and been forgotten, and \
                           would begin once more; ask for it anew, by the API";
const RESEND: &str = "an event is not sent on a letter's word: resend it with the Admin API";
const ASK_ANEW: &str = "what an operator asks for is not believed on a letter's word: ask for it anew, by the Admin API";
const PROCESSORS: &str =
    "what only the processor writes is not believed on a letter's word: it asks again by itself";

/// Replay of a letter: its record and the audit entry. Every stage may write letters, so a letter alone is not trusted.
#[derive(Debug)]
pub struct Draft {
    record: NewRecord,
    /// Offset of the original record.
    offset: Offset,
    content: Value,
    audit: NewRecord,
    /// Alternative to a replay if the original record has expired. Set for deliveries and for all commands but those of
    /// clients: these letters are then refused.
    instead: Option<&'static str>,
}

impl Draft {
    /// Builds the record of a letter, to be appended to its partition again. The topic's readers
    /// must tolerate duplicates.
    ///
    /// # Errors
    /// Reason why it cannot be put back.
    pub fn of(letter: DeadLetter, by: &Asker, now: UnixMicros) -> Result<Self, String> {
        let topic = input(&letter.topic)?;
        let (schema, value) = (topic.spec().schema, &letter.value);
        let is_old = |at: UnixMicros| now.0.saturating_sub(at.0) > AGE_MAX_MICROS;
        let entry = AuditEntry {
            subject: Some(place(&letter)),
            ..by.entry(AuditAction::ReplayDeadLetter, now)
        };
        let (at, entry, instead, too_old) = if schema == SchemaName::Delivery {
            let Delivery { order_id, transfer_id, emitted_at, .. } = decode(value)?;
            let entry = AuditEntry { order_id, transfer_id, ..entry };
            (emitted_at, entry, Some(RESEND), OLD_EVENT)
        } else if schema == SchemaName::OrderCommand {
            let command: OrderCommand = decode(value)?;
            let OrderCommand { order_id, command_id, issued_at, .. } = command;
            let entry = AuditEntry { order_id: Some(order_id), command_id, ..entry };
            (issued_at, entry, distrust(command.body.author()), OLD_COMMAND)
        } else {
            let command: DepositCommand = decode(value)?;
            let entry = AuditEntry { order_id: Some(command.order_id), ..entry };
            (command.issued_at, entry, distrust(command.body.author()), OLD_COMMAND)
        };
        if is_old(at) {
            return Err(too_old.into());
        }
        let say = |error: schemas::CodecError| error.to_string();
        let content = schemas::decode_json(schema, value).map_err(say)?;
        let audit = audit::record(&entry).map_err(say)?;
        let to = TopicPartition { topic, partition: Partition(letter.partition.cast_unsigned()) };
        let (key, value, headers) = (letter.key, Some(letter.value), Headers::default());
        let record = NewRecord { to, key, value, headers };
        Ok(Self { record, offset: Offset(letter.offset), content, audit, instead })
    }

    /// The record, decoded.
    #[must_use]
    pub const fn content(&self) -> &Value {
        &self.content
    }

    /// The entry on `audit`, to be durable first, and the record.
    #[must_use]
    pub fn records(self) -> [NewRecord; 2] {
        [self.audit, self.record]
    }

    /// Returns the draft if the log has the same record at the letter's offset or, with `may_miss`,
    /// if that record has expired. Blocks.
    ///
    /// # Errors
    /// The log cannot be read. The inner error is the reason why the letter is not trusted.
    pub fn compared(
        self,
        log: &dyn Log,
        may_miss: bool,
    ) -> Result<Result<Self, String>, log::Error> {
        let NewRecord { to, key, value, .. } = &self.record;
        if !to.topic.all_partitions(&log.layout()).any(|partition| partition == to.partition) {
            return Ok(Err("this installation has no such partition".into()));
        }
        let found = record_at(log, *to, self.offset)?;
        Ok(match (found, self.instead) {
            (Some(found), _) if found.key == *key && found.value == *value => Ok(self),
            (Some(_), _) => {
                Err("the record there is another one: who wrote the letter made it up, \
                                 or it is of another copy of the log"
                    .into())
            }
            (None, Some(instead)) => Err(format!("its record has expired there; {instead}")),
            (None, None) if may_miss => Ok(self),
            (None, None) => {
                Err("its record has expired there: read what the letter says, and use \
                                 --without-original for this one if you know that it was published"
                    .into())
            }
        })
    }
}

/// The letter of a number, if the log has one that this version can read. Blocks.
pub(crate) fn letter_at(log: &dyn Log, number: i64) -> Result<Option<DeadLetter>, log::Error> {
    let found = record_at(log, LETTERS, Offset(number))?;
    Ok(found.and_then(|record| schemas::decode(record.value.as_deref()?).ok()))
}

/// Record at an offset; none if the log does not have it. An offset from a letter or a URL may be any number.
fn record_at(
    log: &dyn Log,
    of: TopicPartition,
    offset: Offset,
) -> Result<Option<Arc<Record>>, log::Error> {
    let bounds = log.bounds(of)?;
    if !(bounds.start..bounds.end).contains(&offset) {
        return Ok(None);
    }
    Ok(log.read(of, offset, 1)?.into_iter().find(|record| record.offset == offset))
}

/// `topic/partition@offset` of the letter's record, as its stage's error prints it.
#[must_use]
pub fn place(letter: &DeadLetter) -> String {
    let DeadLetter { topic, partition, offset, .. } = letter;
    format!("{topic}/{partition}@{offset}")
}

/// The topic of a letter that can be put back.
fn input(name: &str) -> Result<Topic, String> {
    let topic = Topic::named(name).ok_or("this version has no such topic")?;
    if topic == Topic::TransfersRaw {
        // Ingest takes its position from the end of this topic: an old record there would seem to be a reorganisation.
        return Err(
            "a chain's records are not put back: `tidemark rescan` publishes what is missing"
                .into(),
        );
    }
    let is_input = matches!(
        topic,
        Topic::OrdersCommands
            | Topic::DepositsCommands
            | Topic::WebhooksDispatch
            | Topic::WebhooksRetry(_)
            | Topic::WebhooksDefer(_)
    );
    if !is_input {
        return Err(
            "others read this topic too: `tidemark tables rebuild` makes the tables again".into()
        );
    }
    Ok(topic)
}

/// Reason why a letter with a command is not trusted; `None` for a shop's or customer's command.
fn distrust(author: Author) -> Option<&'static str> {
    match author {
        Author::Client => None,
        Author::Operator => Some(ASK_ANEW),
        Author::Machine | Author::Timer => Some(PROCESSORS),
    }
}

fn decode<R: schemas::record::Record>(value: &[u8]) -> Result<R, String> {
    schemas::decode(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);

    #[test]
    fn old_letters_are_not_put_back() {
        let delivery =
            |at| schemas::encode(&Delivery { emitted_at: at, ..example::delivery() }).unwrap();
        let order = |at| {
            schemas::encode(&OrderCommand { issued_at: at, ..example::order_command() }).unwrap()
        };
        let deposit = |at| {
            let command = DepositCommand { issued_at: at, ..example::deposit_command() };
            schemas::encode(&command).unwrap()
        };
        let cases: [(_, &dyn Fn(UnixMicros) -> Vec<u8>, _); 3] = [
            (Topic::WebhooksDispatch, &delivery, "resend it with the Admin API"),
            (Topic::OrdersCommands, &order, "ask for it anew"),
            (Topic::DepositsCommands, &deposit, "ask for it anew"),
        ];
        for (topic, value, text) in cases {
            let refused = |age: i64| {
                let (topic, value) = (topic.name().to_owned(), value(UnixMicros(NOW.0 - age)));
                let letter = DeadLetter { topic, value, ..example::dead_letter() };
                Draft::of(letter, &Asker::command_line(), NOW).err()
            };
            assert_eq!(refused(AGE_MAX_MICROS), None, "{topic}");
            let refused = refused(AGE_MAX_MICROS + 1).unwrap();
            assert!(refused.contains(text), "{topic}: {refused}");
        }
    }
}
