//! Depths to which an endpoint serves blocks with their logs, and the state.

use schemas::record::Block;
use serde_json::{Value, json};

use super::{Doctor, Level};
use crate::machine::Point;

/// Depths to try, in blocks, beside the reorganisation window, the first block to scan, and the
/// whole chain.
const DISTANCES: [i64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Lowest block that is requested: the genesis block has no logs.
const FIRST: i64 = 1;

/// Lowest block that is served, and the next one tried, with the reason why it is not served.
type Reach = (i64, Option<(i64, String)>);

impl Doctor {
    pub(super) async fn depth(&mut self, head: Block) {
        let numbers = self.numbers(head.number);
        let reach = self.logs_reach(head, &numbers).await;
        let needed = head.number.saturating_sub(self.chain.reorg_window).max(FIRST);
        let name = self.chain.blockchain;
        let (level, advice) = match (self.chain.start_block, reach.0) {
            (_, reach) if reach > needed => (
                Level::Warning,
                format!(
                    ": a reorganisation as deep as chains.{name}.reorg_window could not be followed"
                ),
            ),
            (Some(start), reach) if reach > start.max(FIRST) => (
                Level::Warning,
                format!(": chains.{name}.start_block = {start} could not be scanned by it"),
            ),
            _ => (Level::Fine, String::new()),
        };
        self.note_reach("logs_depth", level, head, reach, &advice);
        match self.state_reach(head, &numbers).await {
            Ok(reach) => self.note_reach("state_depth", Level::Fine, head, reach, ""),
            Err(cause) => {
                let text = format!("not served, and nothing needs it ({cause})");
                self.note("state_depth", Level::Fine, text, Value::Null);
            }
        }
    }

    /// The heights to try, from the highest down.
    fn numbers(&self, head: i64) -> Vec<i64> {
        let distances = DISTANCES.into_iter().chain([self.chain.reorg_window, head - FIRST]);
        let numbers = distances.map(|distance| head.saturating_sub(distance));
        let numbers = numbers.chain(self.chain.start_block).filter(|n| (FIRST..head).contains(n));
        let mut numbers: Vec<i64> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.reverse();
        numbers
    }

    async fn logs_reach(&self, head: Block, numbers: &[i64]) -> Reach {
        let mut lowest = head.number;
        for number in numbers {
            if let Some(cause) = self.no_logs(*number).await {
                return (lowest, Some((*number, cause)));
            }
            lowest = *number;
        }
        (lowest, None)
    }

    /// Returns why the logs of a block are not served; `None` if they are. The block's `logsBloom`
    /// does not count: in headers of Avalanche it is of other blocks.
    async fn no_logs(&self, number: i64) -> Option<String> {
        let probed = match self.endpoint.block(Point::Number(number)).await {
            Err(failure) => return Some(failure.to_string()),
            Ok(None) => return Some("no such block".to_owned()),
            Ok(Some(probed)) => probed,
        };
        match self.endpoint.count_logs(probed.block).await {
            Err(failure) => return Some(failure.to_string()),
            Ok(count) if count > 0 => return None,
            Ok(_) => {}
        }
        match self.endpoint.has_logs(&probed).await {
            Ok(false) => None,
            Ok(true) => Some("its logs are left out without a word".to_owned()),
            Err(failure) => Some(format!("neither logs nor receipts: {failure}")),
        }
    }

    /// Returns how far back balances can be requested, or the cause if they cannot be at all.
    async fn state_reach(&self, head: Block, numbers: &[i64]) -> Result<Reach, String> {
        let of = self.chain.wallets.first().copied();
        let of = of.or(self.chain.contracts.first().map(|contract| contract.address));
        let of = of.ok_or("no wallet and no contract to ask about")?;
        let mut lowest = None;
        for number in std::iter::once(&head.number).chain(numbers) {
            let cause = match self.endpoint.has_state(of, *number).await {
                Err(failure) => failure.to_string(),
                Ok(false) => "no answer".to_owned(),
                Ok(true) => {
                    lowest = Some(*number);
                    continue;
                }
            };
            let lowest = lowest.ok_or_else(|| cause.clone())?;
            return Ok((lowest, Some((*number, cause))));
        }
        Ok((lowest.unwrap_or(head.number), None))
    }

    fn note_reach(
        &mut self,
        check: &'static str,
        level: Level,
        head: Block,
        (lowest, refused): Reach,
        advice: &str,
    ) {
        let deep = head.number - lowest;
        let beyond = match &refused {
            Some((number, cause)) => format!(", and not to block {number} ({cause})"),
            None => String::new(),
        };
        let text = format!("back to block {lowest}, {deep} deep{beyond}{advice}");
        let refused = refused.map_or(Value::Null, |(number, _)| json!(number));
        self.note(check, level, text, json!({ "served": lowest, "refused": refused }));
    }
}
