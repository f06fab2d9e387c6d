//! Which change of the tables a record is, and which of many changes need writing. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use schemas::record::Record;
use schemas::{
    Blockchain, Cleanup, CodecError, DepositId, OrderId, Topic, TransferId, UnixMicros, decode,
};

use crate::Change;

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

/// The names of the tables, as metrics have them.
pub(super) const fn table(change: &Change) -> &'static str {
    match change {
        Change::Order(_) => "orders",
        Change::Deposit(_) => "deposits",
        Change::Transfer(_) => "transfers",
        Change::Attempt(_) => "attempts",
        Change::Chain(_) => "chains",
    }
}

/// Why a record makes no row, now or ever.
#[derive(Debug, thiserror::Error)]
pub(super) enum Poison {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("the record has no value")]
    Empty,
    #[error("no table is made of this topic")]
    Topic,
}

/// The change that a record is; none for the tombstone of a compacted topic, since rows stay.
pub(super) fn plan_change(topic: Topic, value: Option<&[u8]>) -> Result<Option<Change>, Poison> {
    let Some(value) = value else {
        let compacted = topic.spec().cleanup == Cleanup::Compact;
        return if compacted { Ok(None) } else { Err(Poison::Empty) };
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
        _ => Err(Poison::Topic),
    };
    change.map(Some)
}

fn read<R: Record>(value: &[u8], change: impl Fn(R) -> Change) -> Result<Change, Poison> {
    Ok(change(decode(value)?))
}

/// What makes two changes changes of one row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RowKey {
    Order(OrderId),
    Deposit(DepositId),
    Transfer(TransferId),
    Attempt(String, i32, bool),
    Chain(Blockchain),
}

/// The row of a change and its version clock. Attempts have no versions: the first is the only one.
fn row(change: &Change) -> (RowKey, UnixMicros) {
    match change {
        Change::Order(order) => (RowKey::Order(order.order_id), order.updated_at),
        Change::Deposit(deposit) => (RowKey::Deposit(deposit.deposit_id), deposit.updated_at),
        Change::Transfer(transfer) => (RowKey::Transfer(transfer.transfer_id), transfer.updated_at),
        Change::Attempt(attempt) => {
            let key = RowKey::Attempt(attempt.event_id.clone(), attempt.attempt, attempt.manual);
            (key, UnixMicros(0))
        }
        Change::Chain(chain) => (RowKey::Chain(chain.blockchain), chain.updated_at),
    }
}

/// Of the changes of each row, the newest. The tables end as if all had been applied.
pub(super) fn coalesce(changes: &[Change]) -> Vec<Change> {
    let mut newest: Vec<&Change> = Vec::with_capacity(changes.len());
    let mut places: HashMap<RowKey, (usize, UnixMicros)> = HashMap::with_capacity(changes.len());
    for change in changes {
        let (key, version) = row(change);
        match places.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert((newest.len(), version));
                newest.push(change);
            }
            Entry::Occupied(mut entry) => {
                let (place, best) = *entry.get();
                if version > best
                    && let Some(kept) = newest.get_mut(place)
                {
                    *kept = change;
                    entry.insert((place, version));
                }
            }
        }
    }
    newest.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::test_runner::{Config, TestRunner};
    use schemas::encode;
    use schemas::record::example;

    use super::*;
    use crate::sample;

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
            assert!(matches!(plan_change(topic, Some(&other)), Err(Poison::Codec(_))), "{topic}");
        }
        assert!(matches!(plan_change(Topic::Orders, None), Err(Poison::Empty)));
        assert_eq!(plan_change(Topic::Chains, None).unwrap(), None);
        let alert = encode(&example::alert()).unwrap();
        assert!(matches!(plan_change(Topic::Alerts, Some(&alert)), Err(Poison::Topic)));
    }

    /// A table as every back end keeps it, written down once more.
    fn tables(changes: &[Change]) -> BTreeMap<String, Change> {
        let mut rows: BTreeMap<String, Change> = BTreeMap::new();
        for change in changes {
            let (key, version) = row(change);
            let kept = rows.entry(format!("{key:?}")).or_insert_with(|| change.clone());
            if version > row(kept).1 {
                *kept = change.clone();
            }
        }
        rows
    }

    #[test]
    fn coalesced_changes_make_the_same_tables_with_one_change_for_each_row() {
        let config = Config { failure_persistence: None, ..Config::default() };
        let result = TestRunner::new(config).run(&sample::changes(), |changes| {
            let coalesced = coalesce(&changes);
            let all = tables(&changes);
            assert_eq!(tables(&coalesced), all);
            assert_eq!(coalesced.len(), all.len());
            Ok(())
        });
        result.unwrap();
    }
}
