//! Restores the history of a chain from the log.
//!
//! Each lane is read backwards in pages until a head at or below the floor, the height above which a rewind and a
//! second check need the whole history. Earlier records are of blocks at or below that head, or of transfers retracted
//! before it, so none is needed. Garbage is skipped: the processor does not apply it either.

use log::{self, Log, Offset, Records, TopicPartition};
use schemas::record::{ChainBody, ChainRecord};
use schemas::{HEADER_EARLIER, Partition, Topic};

use crate::machine::History;
use crate::{ChainConfig, Error, RestoreError};

const PAGE: i64 = 1000;

/// Returns the published history of the chain; `None` if nothing was published. Blocks the thread.
///
/// # Errors
/// [`Error::Log`], transient or not; [`Error::Restore`] for records of a newer version, or not of ingest's form.
pub(crate) fn restore(log: &dyn Log, chain: &ChainConfig) -> Result<Option<History>, Error> {
    restore_by(PAGE, log, chain, i64::MAX)
}

/// As [`restore_down_to`], with the height above which the log has every transfer that was
/// published; -1 if the log begins with the chain's first record.
pub(crate) fn restore_with_reach(
    log: &dyn Log,
    chain: &ChainConfig,
    height: i64,
) -> Result<Option<(History, i64)>, Error> {
    let mut reach = -1;
    for lane in log.layout().lanes_of(chain.blockchain) {
        let of = TopicPartition { topic: Topic::TransfersRaw, partition: lane };
        if has_expired(log, of)? {
            let history = restore_lane((PAGE, height), log, chain, lane)?;
            reach = reach.max(history.map_or(i64::MAX, |history| history.lowest()));
        }
    }
    Ok(restore_by(PAGE, log, chain, height)?.map(|history| (history, reach)))
}

/// Returns `true` if older records of the partition have expired.
fn has_expired(log: &dyn Log, of: TopicPartition) -> Result<bool, log::Error> {
    let start = log.bounds(of)?.start;
    if start > Offset(0) {
        return Ok(true);
    }
    let first = log.read(of, start, 1)?;
    Ok(first.first().is_some_and(|record| record.header(HEADER_EARLIER).is_some()))
}

/// As [`restore`], with all records of blocks from this height on.
pub(crate) fn restore_down_to(
    log: &dyn Log,
    chain: &ChainConfig,
    height: i64,
) -> Result<Option<History>, Error> {
    restore_by(PAGE, log, chain, height)
}

/// As [`restore_down_to`], with pages of another size.
pub(crate) fn restore_by(
    page: i64,
    log: &dyn Log,
    chain: &ChainConfig,
    height: i64,
) -> Result<Option<History>, Error> {
    let mut whole: Option<History> = None;
    for (position, lane) in log.layout().lanes_of(chain.blockchain).enumerate() {
        let history = restore_lane((page, height), log, chain, lane)?;
        match (&mut whole, history) {
            (Some(whole), Some(history)) => {
                if !whole.absorb(history) {
                    return Err(broken(chain, lane, None, RestoreError::Heads));
                }
            }
            (None, history) if position == 0 => whole = history,
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => {
                return Err(broken(chain, lane, None, RestoreError::EmptyLane));
            }
        }
    }
    Ok(whole)
}

fn restore_lane(
    (page, height): (i64, i64),
    log: &dyn Log,
    chain: &ChainConfig,
    lane: Partition,
) -> Result<Option<History>, Error> {
    let of = TopicPartition { topic: Topic::TransfersRaw, partition: lane };
    let bounds = log.bounds(of)?;
    let mut end = bounds.end;
    let mut floor = None;
    // Pages from the newest to the oldest, each in the order of the log.
    let mut pages: Vec<Vec<ChainRecord>> = Vec::new();
    while end > bounds.start {
        let start = Offset(end.0.saturating_sub(page)).max(bounds.start);
        let records = read_page(log, chain, of, start, end)?;
        if floor.is_none() {
            floor = records.iter().rev().find_map(|record| floor_of(record, chain.reorg_window));
            floor = floor.map(|floor| floor.min(height));
        }
        let is_low = |record: &ChainRecord| {
            matches!(record.body, ChainBody::Head(_))
                && floor.is_some_and(|floor| record.block.number <= floor)
        };
        let reached = records.iter().any(is_low);
        pages.push(records);
        end = start;
        if reached {
            break;
        }
    }
    Ok(pages.into_iter().rev().flatten().fold(None, |history, r| History::fold(history, &r)))
}

/// The floor, if the record is a head.
fn floor_of(record: &ChainRecord, window: i64) -> Option<i64> {
    History::fold(None, record).map(|history| history.reach(window))
}

fn read_page(
    log: &dyn Log,
    chain: &ChainConfig,
    of: TopicPartition,
    start: Offset,
    end: Offset,
) -> Result<Vec<ChainRecord>, Error> {
    let mut page = Vec::new();
    for record in read_between(log, of, start, end)? {
        page.extend(decode(chain, &record)?);
    }
    Ok(page)
}

/// All records from one offset up to another. A single read may return only the first of them, as records may be long.
pub(crate) fn read_between(
    log: &dyn Log,
    of: TopicPartition,
    start: Offset,
    end: Offset,
) -> Result<Records, log::Error> {
    let (mut all, mut from) = (Records::new(), start);
    while from < end {
        let count = usize::try_from(end.0.saturating_sub(from.0)).unwrap_or(usize::MAX);
        let records = log.read(of, from, count)?;
        let Some(last) = records.last() else { break };
        from = last.offset.next();
        all.extend(records.into_iter().filter(|record| record.offset < end));
    }
    Ok(all)
}

/// The record; `None` if no version can read it.
fn decode(chain: &ChainConfig, record: &log::Record) -> Result<Option<ChainRecord>, Error> {
    let cause = match record.unless_garbage::<ChainRecord>() {
        Ok(Some(decoded)) if decoded.blockchain != chain.blockchain => {
            RestoreError::OtherChain(decoded.blockchain)
        }
        Ok(decoded) => return Ok(decoded),
        Err(newer) => RestoreError::Newer(newer.cause),
    };
    Err(broken(chain, record.from.partition, Some(record.offset), cause))
}

fn broken(
    chain: &ChainConfig,
    lane: Partition,
    offset: Option<Offset>,
    cause: RestoreError,
) -> Error {
    let of = TopicPartition { topic: Topic::TransfersRaw, partition: lane };
    let position = offset.map_or_else(|| of.to_string(), |offset| format!("{of}/{offset}"));
    Error::Restore { blockchain: chain.blockchain, position, cause }
}

#[cfg(test)]
mod tests {
    use schemas::record::Block;
    use schemas::{Blockchain, Headers};

    use super::*;
    use crate::machine::{Cursor, Next, Policy};
    use crate::simulation::{MemoryLog, Node, Payment, chain};

    /// A log with some followed blocks of a chain, and the cursor's history.
    fn followed() -> (ChainConfig, MemoryLog, History) {
        let chain = chain(Policy::flat(Some(3), None));
        let (mut node, mut memory) = (Node::new(12), MemoryLog::new());
        let mut cursor = Cursor::new(chain.rules(), None, chain.watched());
        for height in 0..40 {
            loop {
                let answer = node.answer(&cursor.ask()).unwrap();
                let decision = cursor.answer(answer, node.clock());
                memory.publish(&chain, &decision.publish);
                if decision.next == Next::AtTip {
                    break;
                }
            }
            if height % 9 == 8 {
                node.reorg(4, &[]);
            }
            let wallet = u8::try_from(height % 3).unwrap();
            node.mine(&[vec![Payment { wallet, value: 5 }]]);
        }
        let history = cursor.history().unwrap().clone();
        (chain, memory, history)
    }

    #[test]
    fn only_the_end_of_the_log_is_read() {
        let (chain, mut memory, known) = followed();
        // Records that lie far enough back may have expired.
        memory.expire(40);
        let mut history = restore_by(5, &memory, &chain, i64::MAX).unwrap().unwrap();
        history.prune(chain.reorg_window);
        assert_eq!(history, known);
    }

    #[test]
    fn what_no_version_can_read_is_skipped() {
        let (chain, mut memory, known) = followed();
        for lane in memory.lanes() {
            memory.spoil(lane);
            let (key, headers) = (Vec::new(), Headers::default());
            memory.commit(vec![log::NewRecord { to: lane, key, value: None, headers }]);
        }
        for page in [1, 2, 3, 7, 50, 1000] {
            let mut history = restore_by(page, &memory, &chain, i64::MAX).unwrap().unwrap();
            history.prune(chain.reorg_window);
            assert_eq!(history, known, "pages of {page}");
        }
        // The reads of a rewind and of a rescan.
        let low = known.lowest();
        let rewound = restore_down_to(&memory, &chain, low).unwrap().unwrap();
        let (rescanned, _) = restore_with_reach(&memory, &chain, low).unwrap().unwrap();
        assert_eq!((rewound.head(), rescanned.head()), (known.head(), known.head()));
    }

    #[test]
    fn what_ingest_did_not_write_stops_it() {
        let (chain, mut memory, known) = followed();
        let lanes = memory.lanes();
        let cause = |memory: &MemoryLog| match restore(memory, &chain).unwrap_err() {
            Error::Restore { cause, .. } => cause,
            other => panic!("{other}"),
        };
        // A head of another chain, and one that the other lane does not have.
        let last = known.last();
        let block = Block { number: last.number + 1, ..last };
        let head = |blockchain| {
            let body = ChainBody::Head(known.head().clone());
            let record = chain.record(known.epoch(), known.observed_at(), block, body);
            ChainRecord { blockchain, ..record }
        };
        let with = |record: ChainRecord| {
            let mut memory = memory.clone();
            memory.put(lanes[1], schemas::encode(&record).unwrap());
            cause(&memory)
        };
        let other = with(head(Blockchain::Polygon));
        assert!(matches!(other, RestoreError::OtherChain(Blockchain::Polygon)), "{other}");
        // A schema id that this version does not know may be a newer one's, whatever the content.
        let mut newer = schemas::encode(&head(chain.blockchain)).unwrap();
        newer[1] ^= 1;
        for unknown in [newer, vec![0, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff]] {
            let mut ahead = memory.clone();
            ahead.put(lanes[1], unknown);
            assert!(matches!(cause(&ahead), RestoreError::Newer(_)));
        }
        assert!(matches!(with(head(chain.blockchain)), RestoreError::Heads));
        memory.clear(lanes[1]);
        assert!(matches!(cause(&memory), RestoreError::EmptyLane));
        let (_, mut memory, _) = followed();
        memory.clear(lanes[0]);
        assert!(matches!(cause(&memory), RestoreError::EmptyLane));
    }
}
