//! The filter of `eth_getLogs`: blocks, contracts, topics.

use std::collections::HashSet;

use alloy_primitives::{Address, B256, BlockHash};
use serde_json::Value;

use crate::block::{Block, Log};
use crate::chain::Ledger;
use crate::fault::LogLimits;
use crate::param::{BlockTag, RpcError, parse_address, parse_hash};

/// Most addresses, and most topics in one position.
const CHOICES_MAX: usize = 1_000;
/// Topic positions that a log can have.
const POSITIONS_MAX: usize = 4;

/// Blocks to search.
#[derive(Debug, PartialEq, Eq)]
enum Range {
    Hash(BlockHash),
    Span { from: BlockTag, to: BlockTag },
}

/// A parsed filter. An empty set allows everything.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    range: Range,
    addresses: HashSet<Address>,
    topics: Vec<HashSet<B256>>,
}

impl Filter {
    pub(crate) fn parse(value: &Value) -> Result<Self, RpcError> {
        if !value.is_object() {
            return Err(RpcError::invalid_params("the filter is not an object"));
        }
        let member = |name| value.get(name).filter(|member: &&Value| !member.is_null());
        Ok(Self {
            range: parse_range(member("blockHash"), member("fromBlock"), member("toBlock"))?,
            addresses: parse_choices(member("address"), parse_address)?,
            topics: parse_topics(member("topics"))?,
        })
    }

    /// All matching logs except those within the lag; a range over the limit is an error.
    pub(crate) fn select<'a>(
        &self,
        ledger: &'a Ledger,
        limits: LogLimits,
    ) -> Result<Vec<Log<'a>>, RpcError> {
        let (from, to) = self.bounds(ledger)?;
        check_span(from, to, limits.range_blocks_max)?;
        let Some(seen) = ledger.head().id.number.checked_sub(limits.lag_blocks) else {
            return Ok(Vec::new());
        };
        let blocks = (from..=to.min(seen)).filter_map(|number| ledger.block(number));
        Ok(blocks.flat_map(Block::logs).filter(|log| self.is_match(log)).collect())
    }

    /// First and last block number, both on the chain.
    fn bounds(&self, ledger: &Ledger) -> Result<(u64, u64), RpcError> {
        match &self.range {
            Range::Hash(hash) => {
                let block = ledger.block_by_hash(*hash);
                let number = block.map(|block| block.id.number);
                number.map(|n| (n, n)).ok_or_else(|| RpcError::new(-32000, "unknown block"))
            }
            Range::Span { from, to } => {
                let (from, to) = (from.number(ledger), to.number(ledger));
                if from.max(to) > ledger.head().id.number {
                    let message = "block range extends beyond current head block";
                    return Err(RpcError::invalid_params(message));
                }
                if from > to {
                    return Err(RpcError::invalid_params("invalid block range params"));
                }
                Ok((from, to))
            }
        }
    }

    fn is_match(&self, log: &Log<'_>) -> bool {
        let topics = log.call.topics();
        (self.addresses.is_empty() || self.addresses.contains(&log.call.token))
            && self.topics.len() <= topics.len()
            && self.topics.iter().zip(&topics).all(|(set, t)| set.is_empty() || set.contains(t))
    }
}

fn check_span(from: u64, to: u64, blocks_max: Option<u64>) -> Result<(), RpcError> {
    let Some(blocks_max) = blocks_max else { return Ok(()) };
    if to - from < blocks_max {
        return Ok(());
    }
    let last = from.saturating_add(blocks_max.saturating_sub(1));
    let message = format!(
        "query returned more than 10000 results. \
         Try with this block range [{from:#x}, {last:#x}]."
    );
    Err(RpcError::new(-32005, message))
}

fn parse_range(
    hash: Option<&Value>,
    from: Option<&Value>,
    to: Option<&Value>,
) -> Result<Range, RpcError> {
    let Some(hash) = hash else {
        let tag = |value: Option<&Value>| value.map_or(Ok(BlockTag::Latest), BlockTag::parse);
        return Ok(Range::Span { from: tag(from)?, to: tag(to)? });
    };
    if from.or(to).is_some() {
        let message =
            "cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other";
        return Err(RpcError::invalid_params(message));
    }
    parse_hash(hash).map(Range::Hash)
}

/// One value or a list of values; a null in the list allows everything, as in geth.
fn parse_choices<T: Eq + std::hash::Hash>(
    value: Option<&Value>,
    parse: impl Fn(&Value) -> Result<T, RpcError>,
) -> Result<HashSet<T>, RpcError> {
    let Some(value) = value else { return Ok(HashSet::new()) };
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    if values.len() > CHOICES_MAX {
        let message = format!("exceed max addresses or topics: {CHOICES_MAX}");
        return Err(RpcError::invalid_params(message));
    }
    let is_any = values.iter().any(Value::is_null);
    if is_any { Ok(HashSet::new()) } else { values.iter().map(parse).collect() }
}

fn parse_topics(value: Option<&Value>) -> Result<Vec<HashSet<B256>>, RpcError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let positions = value
        .as_array()
        .filter(|positions| positions.len() <= POSITIONS_MAX)
        .ok_or_else(|| RpcError::invalid_params("topics are not a list of at most 4"))?;
    positions.iter().map(|position| parse_choices(Some(position), parse_hash)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Config;
    use crate::block::tests::call;
    use crate::block::{TRANSFER_TOPIC, hex_of};

    /// Blocks 1 to 3 with two logs each: token 0xa1 from 1 to `number`, token 0xb1 from 2 to 9.
    fn ledger() -> Ledger {
        let config = Config { finalized_depth: 2, safe_depth: 1, ..Config::default() };
        let mut ledger = Ledger::new(config).unwrap();
        for number in 1..=3 {
            ledger.queue(vec![call(0xa1, 1, number), call(0xb1, 2, 9)]).unwrap();
            ledger.mine(1).unwrap();
        }
        ledger
    }

    fn word(byte: u8) -> String {
        hex_of(Address::repeat_byte(byte).into_word())
    }

    /// The (block, log index) pairs that a filter finds, or its error code.
    fn select(filter: &Value, limits: LogLimits) -> Result<Vec<(u64, usize)>, i64> {
        let ledger = ledger();
        let logs = Filter::parse(filter).and_then(|filter| {
            let logs = filter.select(&ledger, limits)?;
            Ok(logs.iter().map(|log| (log.block.number, log.log_index)).collect())
        });
        logs.map_err(|error: RpcError| error.code)
    }

    #[track_caller]
    fn check(mut filter: Value, expected: &[(u64, usize)]) {
        filter["fromBlock"] = json!("earliest");
        assert_eq!(select(&filter, LogLimits::default()), Ok(expected.to_vec()), "{filter}");
    }

    #[test]
    fn addresses_and_topics_narrow_the_logs() {
        let [a, b] = [0xa1, 0xb1].map(|byte| hex_of(Address::repeat_byte(byte)));
        let sig = hex_of(TRANSFER_TOPIC);
        let all = [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)];
        check(json!({}), &all);
        check(json!({ "address": null, "topics": [] }), &all);
        check(json!({ "address": [a, b], "topics": [sig] }), &all);
        check(json!({ "address": a }), &[(1, 0), (2, 0), (3, 0)]);
        check(json!({ "address": [a], "topics": [null, null, word(2)] }), &[(2, 0)]);
        check(json!({ "topics": [sig, null, [word(1), word(3)]] }), &[(1, 0), (3, 0)]);
        check(json!({ "topics": [sig, word(2), word(9)] }), &[(1, 1), (2, 1), (3, 1)]);
        check(json!({ "topics": [[], [], [word(1)]] }), &[(1, 0)]);
        check(json!({ "topics": [word(7)] }), &[]);
        check(json!({ "topics": [null, null, null, null] }), &[]);
    }

    #[test]
    fn ranges_take_numbers_tags_and_a_hash() {
        let ledger = ledger();
        let none = LogLimits::default();
        let span = |from: &str, to: &str| {
            select(&json!({ "fromBlock": from, "toBlock": to, "topics": [null, word(2)] }), none)
        };
        assert_eq!(span("0x1", "0x2"), Ok(vec![(1, 1), (2, 1)]));
        assert_eq!(span("safe", "latest"), Ok(vec![(2, 1), (3, 1)]));
        assert_eq!(span("earliest", "finalized"), Ok(vec![(1, 1)]));
        assert_eq!(span("0x3", "pending"), Ok(vec![(3, 1)]));
        assert_eq!(span("0x3", "0x4"), Err(-32602));
        assert_eq!(span("0x4", "0x5"), Err(-32602));
        assert_eq!(span("0x3", "0x2"), Err(-32602));
        assert_eq!(span("3", "latest"), Err(-32602));
        assert_eq!(select(&json!({}), none), Ok(vec![(3, 0), (3, 1)]));
        let hash = hex_of(ledger.block(2).unwrap().id.hash);
        assert_eq!(select(&json!({ "blockHash": hash }), none), Ok(vec![(2, 0), (2, 1)]));
        let both = json!({ "blockHash": hash, "toBlock": "latest" });
        assert_eq!(select(&both, none), Err(-32602));
        let unknown = json!({ "blockHash": hex_of(B256::repeat_byte(1)) });
        assert_eq!(select(&unknown, none), Err(-32000));
    }

    #[test]
    fn malformed_filters_are_refused() {
        let many = vec![hex_of(Address::ZERO); CHOICES_MAX + 1];
        let nulls = [Value::Null, Value::Null, Value::Null, Value::Null, Value::Null];
        for filter in [
            json!("0x1"),
            json!({ "address": "0x12" }),
            json!({ "address": many }),
            json!({ "topics": word(1) }),
            json!({ "topics": nulls }),
            json!({ "topics": [["0x12"]] }),
            json!({ "fromBlock": "newest" }),
            json!({ "fromBlock": 1 }),
        ] {
            assert_eq!(select(&filter, LogLimits::default()), Err(-32602), "{filter}");
        }
    }

    #[test]
    fn a_limit_refuses_and_a_lag_hides() {
        let filter = json!({ "fromBlock": "0x1", "toBlock": "0x3", "topics": [null, word(2)] });
        let limit = |max| LogLimits { range_blocks_max: Some(max), ..LogLimits::default() };
        assert_eq!(select(&filter, limit(2)), Err(-32005));
        assert!(select(&filter, limit(3)).is_ok());
        let lag = |blocks| LogLimits { lag_blocks: blocks, ..LogLimits::default() };
        assert_eq!(select(&filter, lag(1)), Ok(vec![(1, 1), (2, 1)]));
        assert_eq!(select(&filter, lag(9)), Ok(Vec::new()));
    }
}
