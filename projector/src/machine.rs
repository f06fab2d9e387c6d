//! Change of the tables by a record. Pure.

pub(super) mod call_size;
pub(super) mod position;

use std::time::Duration;

use log::Unreadable;
use schemas::record::Record;
use schemas::{Cleanup, Topic, decode};
use store::Change;

/// Source topics of the tables.
pub const TOPICS: [Topic; 9] = [
    Topic::Orders,
    Topic::Deposits,
    Topic::TransfersDetected,
    Topic::TransfersConfirmed,
    Topic::TransfersMatched,
    Topic::TransfersUnknown,
    Topic::TransfersFailed,
    Topic::WebhooksAttempts,
    Topic::Chains,
];

/// Maximum lead of a record's version clock over its append time. CQL servers refuse write times more than three days
/// ahead, and a row with a future write time ignores all updates until that time.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Change by a record; none for the tombstone of a compacted topic, since rows stay.
pub(super) fn plan_change(record: &log::Record) -> Result<Option<Change>, Unreadable> {
    let change = read_change(record.from.topic, record.value.as_deref())?;
    let bound = record.appended_at.0.saturating_add(AHEAD_MAX.as_micros() as i64);
    match &change {
        Some(change) if change.written_at().0 > bound => Err(Unreadable::Garbage(format!(
            "its version clock {} is more than a day after the log got it, {}: the clock of the host that made it is \
             wrong, and its row keeps what it has. Correct that clock",
            change.written_at().to_rfc3339(),
            record.appended_at.to_rfc3339(),
        ))),
        Some(_) | None => Ok(change),
    }
}

fn read_change(topic: Topic, value: Option<&[u8]>) -> Result<Option<Change>, Unreadable> {
    let garbage = |reason: &str| Unreadable::Garbage(reason.to_owned());
    let Some(value) = value else {
        let compacted = topic.spec().cleanup == Cleanup::Compact;
        return if compacted { Ok(None) } else { Err(garbage("the record has no value")) };
    };
    let change = match topic {
        Topic::Orders => read(value, Change::Order),
        Topic::Deposits => read(value, Change::Deposit),
        Topic::TransfersDetected
        | Topic::TransfersConfirmed
        | Topic::TransfersMatched
        | Topic::TransfersUnknown
        | Topic::TransfersFailed => read(value, Change::Transfer),
        Topic::WebhooksAttempts => read(value, Change::Attempt),
        Topic::Chains => read(value, Change::Chain),
        Topic::TransfersRaw
        | Topic::OrdersCommands
        | Topic::DepositsCommands
        | Topic::MatchingChangelog
        | Topic::OrdersChangelog
        | Topic::MatchingSteps
        | Topic::OrdersSteps
        | Topic::WebhooksDispatch
        | Topic::WebhooksRetry(_)
        | Topic::WebhooksDefer(_)
        | Topic::WebhooksChangelog
        | Topic::WebhooksDead
        | Topic::Alerts
        | Topic::Audit
        | Topic::DeadLetters => Err(garbage("no table is made of this topic")),
    };
    change.map(Some)
}

fn read<R: Record>(value: &[u8], change: impl Fn(R) -> Change) -> Result<Change, Unreadable> {
    Ok(change(decode(value)?))
}

#[cfg(test)]
mod tests {
    use log::{Offset, TopicPartition};
    use schemas::record::{Order, example};
    use schemas::{Headers, Partition, encode};

    use super::*;

    #[test]
    fn each_topic_makes_rows_of_its_table() {
        for (topic, value, expected) in [
            (Topic::Orders, encode(&example::order()), Change::Order(example::order())),
            (Topic::Deposits, encode(&example::deposit()), Change::Deposit(example::deposit())),
            (
                Topic::WebhooksAttempts,
                encode(&example::attempt()),
                Change::Attempt(example::attempt()),
            ),
            (Topic::Chains, encode(&example::chain_progress()), {
                Change::Chain(example::chain_progress())
            }),
        ] {
            let change = read_change(topic, Some(&value.unwrap())).unwrap();
            assert_eq!(change, Some(expected), "{topic}");
        }
        let value = encode(&example::transfer()).unwrap();
        let is_of_transfers = |topic: &&Topic| topic.name().starts_with("transfers.");
        let transfers: Vec<_> = TOPICS.iter().filter(is_of_transfers).collect();
        assert_eq!(transfers.len(), 5);
        for topic in transfers {
            let change = read_change(*topic, Some(&value)).unwrap();
            assert_eq!(change, Some(Change::Transfer(example::transfer())), "{topic}");
        }
    }

    #[test]
    fn what_is_no_record_of_the_topic_is_poison() {
        for topic in TOPICS {
            assert!(read_change(topic, Some(b"\x00garbage")).is_err(), "{topic}");
            let other = encode(&example::alert()).unwrap();
            assert!(
                matches!(read_change(topic, Some(&other)), Err(Unreadable::Garbage(_))),
                "{topic}"
            );
        }
        assert!(matches!(read_change(Topic::Orders, None), Err(Unreadable::Garbage(_))));
        assert_eq!(read_change(Topic::Chains, None).unwrap(), None);
        let alert = encode(&example::alert()).unwrap();
        assert!(matches!(read_change(Topic::Alerts, Some(&alert)), Err(Unreadable::Garbage(_))));
    }

    #[test]
    fn a_version_of_a_wrong_clock_makes_no_row() {
        let appended_at = example::order().updated_at;
        let day = AHEAD_MAX.as_micros() as i64;
        let plan = |ahead: i64| {
            let updated_at = schemas::UnixMicros(appended_at.0 + ahead);
            let order = Order { updated_at, ..example::order() };
            plan_change(&log::Record {
                from: TopicPartition { topic: Topic::Orders, partition: Partition(0) },
                offset: Offset(7),
                appended_at,
                key: Vec::new(),
                value: Some(encode(&order).unwrap()),
                headers: Headers::default(),
            })
        };
        assert!(matches!(plan(day), Ok(Some(Change::Order(_)))));
        let refused = plan(day + 1);
        assert!(
            matches!(&refused, Err(Unreadable::Garbage(why)) if why.contains("clock")),
            "{refused:?}"
        );
        // A version clock behind the append time is accepted.
        assert!(matches!(plan(-90 * day), Ok(Some(_))));
    }
}
