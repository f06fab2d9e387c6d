//! Starting point of a chain whose records on `transfers.raw` are gone, or older than those on
//! `chains`: they expired during downtime, were deleted, or come from an older copy.
//!
//! Lanes keep their state of the chain's transfers, and ignore every record of an older epoch than theirs. So the chain
//! resumes in the next epoch, at a block up to which all lanes have read.

use log::{Log, Offset, TopicPartition};
use schemas::record::ChainProgress;
use schemas::{Blockchain, Epoch, FORGET_SECONDS, Partition, Topic};

use crate::machine::{History, Lost};

const PAGE: usize = 1000;

/// Returns the state to resume from instead of the history, if `chains` is ahead of it. Blocks the thread.
pub(crate) fn find(
    log: &dyn Log,
    blockchain: Blockchain,
    scanned: Option<&ChainProgress>,
    history: Option<&History>,
) -> Result<Option<Lost>, log::Error> {
    let newest = scanned.map(|progress| (progress.epoch, progress.head.number));
    let is_whole = |history: &History| Some((history.epoch(), history.last().number)) >= newest;
    if history.is_some_and(is_whole) {
        return Ok(None);
    }
    let known = newest_of_each(log, blockchain)?;
    Ok(beginning(&known, history.map_or(Epoch(0), History::epoch)))
}

/// The state to resume from: at the finalized height, or at the height of a lane that has read less. A lane more than a
/// day behind does not count: lanes may have forgotten transfers of that age, and would take them for new ones.
fn beginning(known: &[ChainProgress], epoch: Epoch) -> Option<Lost> {
    let time = known.iter().map(|progress| progress.head.timestamp).max()?;
    let is_near = |progress: &&ChainProgress| progress.head.timestamp.plus(FORGET_SECONDS) >= time;
    let finalized = known.iter().map(|progress| progress.finalized).max()?;
    let lanes = known.iter().filter(|progress| progress.lane.is_some()).filter(is_near);
    Some(Lost {
        epoch: known.iter().map(|progress| progress.epoch).fold(epoch, Epoch::max),
        number: lanes.map(|progress| progress.head.number).fold(finalized, i64::min),
        observed_at: known.iter().map(|progress| progress.updated_at).max()?,
    })
}

/// The newest progress of ingest and of each lane.
fn newest_of_each(log: &dyn Log, blockchain: Blockchain) -> Result<Vec<ChainProgress>, log::Error> {
    let of = TopicPartition { topic: Topic::Chains, partition: Partition(blockchain.index()) };
    let bounds = log.bounds(of)?;
    let mut newest = std::collections::BTreeMap::new();
    let mut from: Offset = bounds.start;
    while from < bounds.end {
        let records = log.read(of, from, PAGE)?;
        let Some(last) = records.last() else { break };
        from = last.offset.next();
        for record in &records {
            let progress = record.unless_garbage::<ChainProgress>()?;
            newest.extend(progress.map(|progress| (progress.lane, progress)));
        }
    }
    Ok(newest.into_values().collect())
}

#[cfg(test)]
mod tests {
    use schemas::record::{Block, example};
    use schemas::{UnixMicros, UnixSeconds};

    use super::*;
    use crate::simulation::MemoryLog;

    fn progress(lane: Option<i32>, epoch: i64, number: i64, seconds: i64) -> ChainProgress {
        let timestamp = UnixSeconds(seconds);
        ChainProgress {
            lane,
            epoch: Epoch(epoch),
            head: Block { number, timestamp, ..example::chain_head().block },
            finalized: number - 20,
            updated_at: UnixMicros(seconds),
            ..example::chain_progress()
        }
    }

    /// An epoch that is not above all others is ignored by every lane.
    #[test]
    fn an_older_epoch_is_not_believed_under_a_newer_one() {
        let of = TopicPartition { topic: Topic::Chains, partition: Partition(0) };
        let scanned = progress(None, 3, 1000, 100_000);
        let mut newer = schemas::encode(&scanned).unwrap();
        let mut memory = MemoryLog::new();
        memory.put(of, newer.clone());
        memory.spoil(of);
        let find = |memory: &MemoryLog| find(memory, Blockchain::Eth, Some(&scanned), None);
        assert_eq!(find(&memory).unwrap().map(|lost| lost.epoch), Some(Epoch(3)));
        newer[1] ^= 1;
        memory.put(of, newer);
        let refused = find(&memory).err().map_or_else(String::new, |error| error.to_string());
        assert!(refused.contains("Start the newer version"), "{refused}");
    }

    #[test]
    fn a_lost_chain_begins_where_every_lane_has_been() {
        let ingest = progress(None, 3, 1000, 100_000);
        let known =
            [ingest.clone(), progress(Some(0), 3, 990, 99_880), progress(Some(1), 2, 975, 99_700)];
        let lost = |known: &[ChainProgress]| {
            beginning(known, Epoch(0)).map(|lost| (lost.epoch.0, lost.number))
        };
        assert_eq!(lost(&known), Some((3, 975)));
        assert_eq!(lost(&known[..2]), Some((3, 980)));
        // A copy of `chains` that is older than the lanes' own records.
        assert_eq!(
            lost(&[progress(None, 1, 500, 50_000), progress(Some(0), 3, 990, 99_880)]),
            Some((3, 970))
        );
        // A lane this old may have forgotten the transfers that it would read again.
        assert_eq!(
            lost(&[ingest, progress(Some(1), 3, 100, 100_000 - FORGET_SECONDS - 1)]),
            Some((3, 980))
        );
        assert_eq!(lost(&[]), None);
    }
}
