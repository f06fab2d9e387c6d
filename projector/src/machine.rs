//! Change of the tables by a record, and the positions of the tables. Pure.

pub(super) mod call_size;

use std::time::Duration;

use log::{Assigned, Offset, TopicPartition, Unreadable};
use schemas::record::Record;
use schemas::{Cleanup, Topic, decode};
use store::{Change, Position};

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

/// Maximum lead of the time of a record's version over its append time. CQL servers refuse write times more than three
/// days ahead, and a row with a future write time ignores all updates until that time.
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

/// Position in the format of the tables.
pub(super) fn position(of: TopicPartition, next: Offset) -> Position {
    Position { topic: of.topic, partition: of.partition, next: next.0 }
}

/// Leaves out the positions that the tables are past. A process that was frozen, or that follows the log beside a
/// projector, would take them back, and the tables would seem to lack rows.
pub(super) fn forward(positions: Vec<Position>, known: &[Position]) -> Vec<Position> {
    let is_past = |position: &Position, known: &Position| {
        (known.topic, known.partition) == (position.topic, position.partition)
            && known.next > position.next
    };
    let is_kept = |position: &Position| !known.iter().any(|known| is_past(position, known));
    positions.into_iter().filter(is_kept).collect()
}

/// Describes rows that the tables lack and that would never be written: those of the first partition in which the
/// group is past the position of the tables, if there is one.
pub(super) fn lacking(assigned: &[Assigned], positions: &[Position]) -> Option<String> {
    assigned.iter().find_map(|Assigned { partition: of, committed }| {
        let is_of = |at: &&Position| (at.topic, at.partition) == (of.topic, of.partition);
        let next = positions.iter().find(is_of).map_or(0, |at| at.next);
        let read = committed.as_ref().map_or(0, |committed| committed.offset.0);
        (read > next).then(|| {
            format!(
                "the tables lack rows: {of} was read up to {read}, and they have it up to {next}, so they are older than \
                 the log, or new beside it; stop this process and run `tidemark tables rebuild`"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use log::Committed;
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
        // A version older than the append time is accepted.
        assert!(matches!(plan(-90 * day), Ok(Some(_))));
    }

    #[test]
    fn tables_that_are_behind_the_group_lack_rows() {
        let of = TopicPartition { topic: Topic::Orders, partition: Partition(1) };
        let assigned = |read: Option<i64>| {
            let committed =
                read.map(|read| Committed { offset: Offset(read), metadata: String::new() });
            [Assigned { partition: of, committed }]
        };
        let there = [position(of, Offset(7))];
        for (read, positions, is_lacking) in [
            (None, &[][..], false),
            (Some(0), &[], false),
            (Some(1), &[], true),
            (Some(7), &there, false),
            (Some(3), &there, false),
            (Some(8), &there, true),
        ] {
            let problem = lacking(&assigned(read), positions);
            assert_eq!(problem.is_some(), is_lacking, "{read:?} {positions:?}: {problem:?}");
        }
        let problem = lacking(&assigned(Some(8)), &there).unwrap();
        assert!(problem.contains("orders/1 was read up to 8, and they have it up to 7"));
        let other = TopicPartition { topic: Topic::Deposits, ..of };
        assert!(lacking(&assigned(Some(7)), &[position(other, Offset(9))]).is_some());
    }
}
