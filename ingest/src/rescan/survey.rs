//! Asks the endpoints of a chain for a period: transfers to and from the wallets, and balances.

use std::collections::{BTreeMap, BTreeSet};

use schemas::record::{Block, Observation};
use schemas::{Address, Amount, BlockHash, Stablecoin, UnixSeconds};

use super::{Place, RescanError, ask, numbered, prove, scan, serving, shown};
use crate::ChainConfig;
use crate::machine::{Ask, Flow, Outcome, Point, Proof, Rules};
use crate::rpc::Endpoint;

/// The balances of all wallets of a chain together, by coin.
pub type Wealth = BTreeMap<Stablecoin, Amount>;

/// The answers of the endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// For each requested time, the first block at it or later; without one, the height after the last block.
    pub blocks: Vec<i64>,
    /// Number of endpoints that answered for the whole period.
    pub endpoints: usize,
    /// Endpoints that failed, with the cause, for a block or a receipt.
    pub left_out: Vec<String>,
    /// Transfers to wallets in any endpoint's logs, except those that the log lacks and receipts deny.
    pub received: Vec<(i64, BlockHash, Observation)>,
    /// Transfers from wallets, with their heights.
    pub sent: Vec<(i64, Observation)>,
    /// The balances at each of the times; or the reason why they are unknown.
    pub wealth: Result<Vec<Wealth>, String>,
}

impl Survey {
    /// Asks every endpoint for the blocks from the first time to the last one. `last` is a published block after them,
    /// which an endpoint must have; `known` are the transfers on the log. `progress` is called with the numbers of
    /// blocks fetched so far and in total.
    ///
    /// # Errors
    /// [`RescanError::NoEndpoint`], [`RescanError::Ingest`].
    pub async fn find(
        chain: &ChainConfig,
        last: Block,
        times: &[UnixSeconds],
        known: impl IntoIterator<Item = (i64, BlockHash, Observation)>,
        mut progress: impl FnMut(i64, i64),
    ) -> Result<Self, RescanError> {
        let rules = chain.rules();
        let (useful, mut left_out, finalized) = serving(chain, &rules, last).await?;
        let blocks =
            first_of(&useful, async |endpoint| blocks_of(endpoint, last, times).await).await;
        let blocks = blocks.map_err(|why| no_endpoint(&left_out, &why))?;
        let (from, to) = match blocks.as_slice() {
            [first, .., end] => (*first, end - 1),
            [] | [_] => (0, -1),
        };
        let count = i64::try_from(2 * useful.len()).unwrap_or(i64::MAX);
        let all = (to - from + 1).max(0).saturating_mul(count);
        let (mut received, mut sent, mut asked) = (BTreeMap::new(), BTreeMap::new(), 0);
        let mut complete = Vec::new();
        for endpoint in useful {
            let mut next = |blocks: i64| {
                asked += blocks;
                progress(asked, all);
            };
            let found = both(&endpoint, &rules, chain.range_max, (from, to), &mut next).await;
            match found {
                Ok([came, went]) => {
                    received.extend(came);
                    sent.extend(went);
                    complete.push(endpoint);
                }
                Err(cause) => left_out.push(format!("{}: {cause}", endpoint.name())),
            }
        }
        if complete.is_empty() {
            return Err(RescanError::NoEndpoint(left_out.join("; ")));
        }
        let known: BTreeSet<Place> = numbered(known).into_keys().collect();
        let needed = chain.endpoints.len().min(2);
        let mut asked = Asked { endpoints: &complete, rules: &rules, last, finalized };
        let received = asked.undenied(received, &known, needed, &mut left_out).await;
        let sent = asked.moved(sent).await;
        let wealth =
            first_of(&complete, async |endpoint| wealth_by(endpoint, chain, &blocks).await).await;
        Ok(Self { blocks, endpoints: complete.len(), left_out, received, sent, wealth })
    }
}

fn no_endpoint(left_out: &[String], why: &str) -> RescanError {
    let all: Vec<&str> = left_out.iter().map(String::as_str).chain([why]).collect();
    RescanError::NoEndpoint(all.join("; "))
}

/// The result of the first endpoint that has one, else the causes.
async fn first_of<T>(
    endpoints: &[Endpoint],
    ask: impl AsyncFn(&Endpoint) -> Result<T, String>,
) -> Result<T, String> {
    let mut causes = Vec::new();
    for endpoint in endpoints {
        match ask(endpoint).await {
            Ok(found) => return Ok(found),
            Err(cause) => causes.push(format!("{}: {cause}", endpoint.name())),
        }
    }
    Err(causes.join("; "))
}

/// First block at or after each time; the height after `last` if there is no such block.
async fn blocks_of(
    endpoint: &Endpoint,
    last: Block,
    times: &[UnixSeconds],
) -> Result<Vec<i64>, String> {
    let mut blocks = Vec::with_capacity(times.len());
    for time in times {
        let (mut low, mut high) = (0, last.number + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let asked = Ask { blocks: vec![Point::Number(middle)], ..Ask::default() };
            let answer = ask(endpoint, &asked).await.map_err(|failure| failure.to_string())?;
            let header = answer.blocks.into_iter().flatten().next();
            let header = header.ok_or_else(|| format!("does not have block {middle}"))?;
            if header.block.timestamp < *time { low = middle + 1 } else { high = middle }
        }
        blocks.push(low);
    }
    Ok(blocks)
}

/// The transfers to the wallets, and from them.
async fn both(
    endpoint: &Endpoint,
    rules: &Rules,
    range_max: i64,
    (from, to): (i64, i64),
    progress: &mut impl FnMut(i64),
) -> Result<[BTreeMap<Place, Observation>; 2], String> {
    let came = scan(endpoint, rules, range_max, (Flow::Received, from, to), progress).await?;
    let went = scan(endpoint, rules, range_max, (Flow::Sent, from, to), progress).await?;
    Ok([came, went].map(|logs| shown(&rules.watch, &logs)))
}

/// The endpoints that are asked for receipts, and the rules for these.
struct Asked<'a> {
    endpoints: &'a [Endpoint],
    rules: &'a Rules,
    last: Block,
    finalized: i64,
}

impl Asked<'_> {
    /// Drops transfers that are not on the log if receipts of `needed` endpoints deny them and none proves them.
    async fn undenied(
        &mut self,
        shown: BTreeMap<Place, Observation>,
        known: &BTreeSet<Place>,
        needed: usize,
        left_out: &mut Vec<String>,
    ) -> Vec<(i64, BlockHash, Observation)> {
        let mut kept = Vec::with_capacity(shown.len());
        for (place, seen) in shown {
            let (number, hash, _) = place;
            if !known.contains(&place) {
                let asked = (self.last, self.finalized, &mut *left_out);
                let tally = prove(self.endpoints, self.rules, (number, hash), &seen, asked).await;
                if tally.denials >= needed && tally.proofs == 0 {
                    continue;
                }
            }
            kept.push((number, hash, seen));
        }
        kept
    }

    /// Drops transfers of failed transactions, whose logs some Tron nodes keep.
    async fn moved(&self, shown: BTreeMap<Place, Observation>) -> Vec<(i64, Observation)> {
        let mut kept = Vec::with_capacity(shown.len());
        for ((number, block_hash, _), seen) in shown {
            let (transaction, is_final) = (seen.tx_hash, number <= self.finalized);
            let asked = Outcome { transaction, number, block_hash, is_final };
            if !(self.rules.needs_receipts && self.failed(asked).await) {
                kept.push((number, seen));
            }
        }
        kept
    }

    async fn failed(&self, outcome: Outcome) -> bool {
        let asked = Ask { receipts: vec![outcome], ..Ask::default() };
        for endpoint in self.endpoints {
            let answer = ask(endpoint, &asked).await.ok();
            let receipt = answer.and_then(|answer| answer.receipts.into_iter().next());
            if receipt.as_ref().and_then(Proof::receipt).is_some_and(|receipt| !receipt.succeeded) {
                return true;
            }
        }
        false
    }
}

/// The balances before each of these blocks.
async fn wealth_by(
    endpoint: &Endpoint,
    chain: &ChainConfig,
    blocks: &[i64],
) -> Result<Vec<Wealth>, String> {
    let all = || {
        chain
            .read_contracts()
            .flat_map(|contract| chain.wallets.iter().map(move |wallet| (contract, *wallet)))
    };
    let pairs: Vec<(Address, Address)> =
        all().map(|(contract, wallet)| (contract.address, wallet)).collect();
    let mut found = Vec::with_capacity(blocks.len());
    for block in blocks {
        let coins = chain.read_contracts().map(|contract| contract.stablecoin);
        let mut wealth: Wealth = coins.map(|coin| (coin, Amount::ZERO)).collect();
        // Balances before the first block are zero.
        if let Some(number) = block.checked_sub(1).filter(|number| *number >= 0) {
            let units = endpoint.balances_at(&pairs, number).await;
            let units = units.map_err(|failure| failure.to_string())?;
            for ((contract, _), units) in all().zip(units) {
                // A contract not yet deployed returns nothing.
                let units = units.unwrap_or_default();
                let value = Amount::from_units(units, contract.decimals);
                let sum = wealth.entry(contract.stablecoin).or_default();
                let added = value.and_then(|value| sum.checked_add(value));
                *sum = added
                    .ok_or_else(|| format!("a balance of {} is too large", contract.address))?;
            }
        }
        found.push(wealth);
    }
    Ok(found)
}
