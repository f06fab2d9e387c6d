//! Health of each chain: from its progress in the tables, from the alerts about halts, and, where
//! this process follows it, from its follower.

use std::collections::BTreeSet;

use schemas::record::{Alert, StopScope};
use schemas::{Blockchain, Epoch, UnixSeconds};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::ChainRow;

/// Health of one chain. `None` means not known to this process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChainHealth {
    blockchain: Blockchain,
    /// Number of the last scanned block.
    scanned: Option<i64>,
    /// Age of that block, in seconds.
    lag_seconds: Option<i64>,
    /// Number of blocks by which the endpoint's head is ahead of that block.
    lag_blocks: Option<i64>,
    checked: Option<i64>,
    confirmed: Option<i64>,
    finalized: Option<i64>,
    epoch: Option<Epoch>,
    /// Reason for its halt; `None` if it is not halted.
    halted: Option<String>,
    /// Stops in force on it.
    stopped: Vec<StopScope>,
    /// `None` where another process follows the chain.
    endpoints: Option<Value>,
}

/// Data that a follower reports.
#[derive(Debug, Deserialize)]
struct Shown {
    blockchain: Blockchain,
    scanned: Option<i64>,
    timestamp: Option<UnixSeconds>,
    lag_blocks: Option<i64>,
    checked: Option<i64>,
    confirmed: Option<i64>,
    finalized: Option<i64>,
    epoch: Option<Epoch>,
    halted: Option<String>,
    endpoints: Value,
}

/// Chains with any known state, in the order of the interface.
pub(crate) fn of(
    rows: &[ChainRow],
    details: &[Value],
    halts: &[&Alert],
    now: UnixSeconds,
) -> Vec<ChainHealth> {
    let shown = details.iter().filter_map(|detail| Shown::deserialize(detail).ok());
    let shown: Vec<Shown> = shown.collect();
    let one = |blockchain: &Blockchain| {
        let row = rows.iter().find(|row| row.blockchain == *blockchain && row.lane.is_none());
        let shown = shown.iter().find(|shown| shown.blockchain == *blockchain);
        let halt = halts.iter().find(|alert| alert.blockchain == Some(*blockchain));
        if row.is_none() && shown.is_none() && halt.is_none() {
            return None;
        }
        let time = shown.and_then(|shown| shown.timestamp);
        let time = time.or(row.map(|row| row.head.timestamp));
        Some(ChainHealth {
            blockchain: *blockchain,
            scanned: shown.and_then(|shown| shown.scanned).or(row.map(|row| row.head.number)),
            lag_seconds: time.map(|time| now.0.saturating_sub(time.0).max(0)),
            lag_blocks: shown.and_then(|shown| shown.lag_blocks),
            checked: shown.and_then(|shown| shown.checked),
            confirmed: shown.and_then(|shown| shown.confirmed).or(row.map(|row| row.confirmed)),
            finalized: shown.and_then(|shown| shown.finalized).or(row.map(|row| row.finalized)),
            epoch: shown.and_then(|shown| shown.epoch).or(row.map(|row| row.epoch)),
            // The follower's own state is newer than the alerts.
            halted: match shown {
                Some(shown) => shown.halted.clone(),
                None => halt.map(|alert| alert.message.clone()),
            },
            stopped: rows
                .iter()
                .filter(|row| row.blockchain == *blockchain)
                .flat_map(|row| row.stopped.iter().copied())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            endpoints: shown.map(|shown| shown.endpoints.clone()),
        })
    };
    Blockchain::ALL.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use schemas::AlertKind;
    use schemas::record::example;
    use serde_json::json;

    use super::*;

    fn halt(row: &ChainRow) -> Alert {
        let (kind, chain) = (AlertKind::ChainHalted, Some(row.blockchain));
        Alert::raise(kind, chain, &"", "why".to_owned(), row.updated_at)
    }

    /// Without a follower the alert alone decides: rows of the tables, newer or older, do not end a halt.
    #[test]
    fn a_halt_lasts_while_its_alert_is_open() {
        let row = example::chain_progress();
        let now = row.head.timestamp.plus(7);
        let halted = |rows: &[ChainRow], halts: &[&Alert]| {
            let all = of(rows, &[], halts, now);
            all.first().map(|chain| (chain.lag_seconds, chain.halted.is_some()))
        };
        let (rows, halt) = (std::slice::from_ref(&row), halt(&row));
        assert_eq!(halted(rows, &[]), Some((Some(7), false)));
        assert_eq!(halted(rows, &[&halt]), Some((Some(7), true)));
        // A chain that was never scanned.
        assert_eq!(halted(&[], &[&halt]), Some((None, true)));
        assert_eq!(halted(&[], &[]), None);
        let lane = ChainRow { lane: Some(0), ..row };
        assert_eq!(halted(&[lane], &[]), None);
    }

    #[test]
    fn what_the_follower_shows_is_newer_than_the_tables() {
        let row = example::chain_progress();
        let later = row.head.timestamp.plus(30);
        let shown = json!({
            "blockchain": row.blockchain, "scanned": row.head.number + 2, "timestamp": later, "lag_blocks": 1,
            "checked": 5, "confirmed": null, "finalized": null, "epoch": null, "halted": null,
            "endpoints": [{ "endpoint": "https://rpc.test" }],
        });
        let halt = halt(&row);
        let rows = std::slice::from_ref(&row);
        let all = of(rows, &[json!(7), shown], &[&halt], later.plus(3));
        let [chain] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(
            (chain.scanned, chain.lag_seconds, chain.lag_blocks, chain.checked),
            (Some(row.head.number + 2), Some(3), Some(1), Some(5))
        );
        assert_eq!((chain.finalized, chain.halted.as_ref()), (Some(row.finalized), None));
        assert!(chain.endpoints.is_some());
    }
}
