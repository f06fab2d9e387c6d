//! Which change of the tables a record is. Pure.

pub(super) mod call_size;

use log::Unreadable;
use schemas::record::Record;
use schemas::{Cleanup, Topic, decode};
use store::Change;

/// The topics that tables are made of.
pub(super) const TOPICS: [Topic; 9] = [
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

/// The change that a record is; none for the tombstone of a compacted topic, since rows stay.
///
/// # Errors
/// Why it makes no row.
pub(super) fn plan_change(
    topic: Topic,
    value: Option<&[u8]>,
) -> Result<Option<Change>, Unreadable> {
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
        | Topic::WebhooksDispatch
        | Topic::WebhooksRetry(_)
        | Topic::WebhooksDefer(_)
        | Topic::WebhooksChangelog
        | Topic::WebhooksDead
        | Topic::Alerts
        | Topic::DeadLetters => Err(garbage("no table is made of this topic")),
    };
    change.map(Some)
}

fn read<R: Record>(value: &[u8], change: impl Fn(R) -> Change) -> Result<Change, Unreadable> {
    Ok(change(decode(value)?))
}

#[cfg(test)]
mod tests {
    use schemas::encode;
    use schemas::record::example;

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
            let change = plan_change(topic, Some(&value.unwrap())).unwrap();
            assert_eq!(change, Some(expected), "{topic}");
        }
        let value = encode(&example::transfer()).unwrap();
        for topic in &TOPICS[2..7] {
            let change = plan_change(*topic, Some(&value)).unwrap();
            assert_eq!(change, Some(Change::Transfer(example::transfer())), "{topic}");
        }
    }

    #[test]
    fn what_is_no_record_of_the_topic_is_poison() {
        for topic in TOPICS {
            assert!(plan_change(topic, Some(b"\x00garbage")).is_err(), "{topic}");
            let other = encode(&example::alert()).unwrap();
            assert!(
                matches!(plan_change(topic, Some(&other)), Err(Unreadable::Garbage(_))),
                "{topic}"
            );
        }
        assert!(matches!(plan_change(Topic::Orders, None), Err(Unreadable::Garbage(_))));
        assert_eq!(plan_change(Topic::Chains, None).unwrap(), None);
        let alert = encode(&example::alert()).unwrap();
        assert!(matches!(plan_change(Topic::Alerts, Some(&alert)), Err(Unreadable::Garbage(_))));
    }
}
