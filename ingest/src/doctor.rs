//! Manual examination of a chain's endpoints against the configuration.
//!
//! It sends an endpoint some dozens of requests, and changes nothing.

mod depth;
mod native;

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::Clock;
use schemas::record::Block;
use schemas::{Amount, Stablecoin, StablecoinContract, TxHash, Wallet};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::config::tag_age_min;
use crate::endpoints::clients;
use crate::machine::{Ask, Header, Point, Tag};
use crate::rpc::{Endpoint, Failure, Listed};
use crate::{ChainConfig, Error};

/// Number of requests by which latency is measured.
const SAMPLES: usize = 5;
/// Median latency in milliseconds above which the doctor warns: the chain would lag.
const LATENCY_MILLIS_MAX: u128 = 2000;
/// Maximum age of the newest block of a live chain.
const HEAD_AGE_SECONDS_MAX: i64 = 120;
/// Maximum skew of synchronized clocks.
const SKEW_SECONDS_MAX: i64 = 10;
/// Largest range that is tried, in blocks.
const RANGE_TRIED_MAX: i64 = 100_000;
/// Number of blocks, from a height down, in which a transaction is searched for.
const TRANSACTION_BLOCKS: i64 = 16;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Fine,
    /// The endpoint can be used, but something needs an operator's attention.
    Warning,
    /// The endpoint cannot be used.
    Failure,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Name of the check, for programs.
    pub check: &'static str,
    pub level: Level,
    /// For people: the result, and the remedy if it is bad.
    pub text: String,
    /// For programs: the same as values, null if there is none.
    pub value: Value,
}

/// Findings of all checks of one endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Examination {
    /// Scheme, host and port: no part of it is a key.
    pub endpoint: String,
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Returns `true` if the chain can be followed through this endpoint.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.findings.iter().all(|finding| finding.level < Level::Failure)
    }
}

/// Examines all endpoints of a chain side by side. `wallets` are those whose balances are shown.
///
/// # Errors
/// [`Error::Client`].
pub async fn examine(
    chain: &ChainConfig,
    wallets: &[Wallet],
    clock: Arc<dyn Clock>,
) -> Result<Vec<Examination>, Error> {
    let mut tasks = JoinSet::new();
    for (position, endpoint) in clients(chain)?.into_iter().enumerate() {
        let wallets = wallets.iter().filter(|wallet| wallet.blockchain == chain.blockchain);
        let doctor = Doctor {
            chain: chain.clone(),
            wallets: wallets.cloned().collect(),
            endpoint,
            clock: clock.clone(),
            findings: Vec::new(),
        };
        tasks.spawn(async move { (position, doctor.examine().await) });
    }
    let all: BTreeMap<usize, Examination> = tasks.join_all().await.into_iter().collect();
    Ok(all.into_values().collect())
}

struct Doctor {
    chain: ChainConfig,
    wallets: Vec<Wallet>,
    endpoint: Endpoint,
    clock: Arc<dyn Clock>,
    findings: Vec<Finding>,
}

impl Doctor {
    fn note(&mut self, check: &'static str, level: Level, text: impl Into<String>, value: Value) {
        self.findings.push(Finding { check, level, text: text.into(), value });
    }

    async fn examine(mut self) -> Examination {
        if self.chain_id().await {
            self.latency().await;
            if let Some(head) = self.blocks().await {
                self.clocks(head).await;
                self.contracts().await;
                self.range(head.number).await;
                self.depth(head).await;
                self.receipts(head.number).await;
                self.native().await;
                self.wallets().await;
                self.balances().await;
            }
        }
        let endpoint = self.endpoint.name().to_owned();
        Examination { endpoint, findings: self.findings }
    }

    async fn chain_id(&mut self) -> bool {
        let (name, expected) = (self.chain.blockchain, self.chain.chain_id);
        let (level, text, value) = match self.endpoint.fetch_chain_id().await {
            Ok(found) if found == expected => (Level::Fine, found.to_string(), json!(found)),
            Ok(found) => (
                Level::Failure,
                format!(
                    "{found} where {expected} is expected: the URL is of another chain, or chains.{name}.chain_id is \
                     wrong"
                ),
                json!(found),
            ),
            Err(failure) => (
                Level::Failure,
                format!("no answer ({failure}): check the URL, the key and the plan"),
                Value::Null,
            ),
        };
        self.note("chain_id", level, text, value);
        level == Level::Fine
    }

    async fn latency(&mut self) {
        let mut millis = Vec::new();
        for _ in 0..SAMPLES {
            match self.endpoint.latency().await {
                Ok(took) => millis.push(took.as_millis()),
                Err(failure) => {
                    return self.note("latency", Level::Warning, failure.to_string(), Value::Null);
                }
            }
        }
        millis.sort_unstable();
        let median = millis.get(millis.len() / 2).copied().unwrap_or_default();
        let is_slow = median > LATENCY_MILLIS_MAX;
        let level = if is_slow { Level::Warning } else { Level::Fine };
        let text = format!("{median} ms, median of {SAMPLES} answers");
        self.note("latency", level, text, json!({ "millis": u64::try_from(median).ok() }));
    }

    /// Finding about a served tag: a warning if it is younger than the chain can make it.
    fn served_tag(&self, head: Block, block: Block, tag: Tag) -> (Level, String) {
        let behind = head.number.saturating_sub(block.number);
        let text = format!("block {}, {behind} behind the newest", block.number);
        let age = head.timestamp.0.saturating_sub(block.timestamp.0);
        let least = tag_age_min(self.chain.blockchain, self.chain.chain_id, tag);
        if age >= least {
            return (Level::Fine, text);
        }
        let young = format!("{age} s old, and the chain makes none in less than {least} s");
        (Level::Warning, format!("{text}: {young}; it is not believed"))
    }

    /// The newest block, and the tags.
    async fn blocks(&mut self) -> Option<Block> {
        let head = match self.endpoint.block(Point::Latest).await {
            Ok(Some(Listed { block, .. })) => block,
            absent => {
                let cause = absent.err().map(|failure| failure.to_string());
                let cause = cause.unwrap_or_else(|| "there is no newest block".to_owned());
                self.note("head", Level::Failure, cause, Value::Null);
                return None;
            }
        };
        for (tag, point) in [(Tag::Safe, Point::Safe), (Tag::Finalized, Point::Finalized)] {
            let name = tag.name();
            let is_needed = self.chain.policy.uses(tag);
            // Fetched as by a poll: on Tron from the native interface, if there is one.
            let asked = Ask { blocks: vec![point], ..Ask::default() };
            let answer = self.endpoint.fetch(&asked).await;
            let found = answer.map(|answer| answer.blocks.into_iter().next().flatten());
            let (level, text, value) = match found {
                Ok(Some(Header { block, .. })) => {
                    let (level, text) = self.served_tag(head, block, tag);
                    (level, text, json!(block.number))
                }
                absent => {
                    let cause = absent.err().map(|failure| format!(" ({failure})"));
                    let (level, what) = if is_needed {
                        (Level::Failure, "`confirmations` waits for it: nothing would be confirmed")
                    } else {
                        (Level::Fine, "nothing waits for it")
                    };
                    let text = format!("not served{}, and {what}", cause.unwrap_or_default());
                    (level, text, Value::Null)
                }
            };
            self.note(name, level, text, value);
        }
        Some(head)
    }

    async fn clocks(&mut self, head: Block) {
        let now = self.clock.now().seconds().0;
        let age = now.saturating_sub(head.timestamp.0);
        let value = json!({ "number": head.number, "age_seconds": age });
        let (level, advice) = match age {
            age if age > HEAD_AGE_SECONDS_MAX => {
                (Level::Warning, ": the endpoint is behind, or the chain makes no blocks")
            }
            age if age < -SKEW_SECONDS_MAX => {
                (Level::Warning, ": this machine's clock is slow, or the chain's is fast")
            }
            _ => (Level::Fine, ""),
        };
        self.note("head", level, format!("block {}, {age} s old{advice}", head.number), value);
        let Some(date) = self.endpoint.date().await else {
            return self.note("clock", Level::Fine, "the answer has no date", Value::Null);
        };
        let ahead = date.0.saturating_sub(self.clock.now().seconds().0);
        let is_wrong = ahead.abs() > SKEW_SECONDS_MAX;
        let (level, advice) = if is_wrong {
            (Level::Warning, ": set this machine's clock, or distrust the endpoint's")
        } else {
            (Level::Fine, "")
        };
        let text = format!("{ahead} s ahead of this machine's{advice}");
        self.note("clock", level, text, json!({ "ahead_seconds": ahead }));
    }

    async fn contracts(&mut self) {
        let taken: Vec<_> = self.chain.taken().copied().collect();
        for StablecoinContract { stablecoin: coin, address, decimals, .. } in taken {
            let (level, text, shown) = match self.endpoint.fetch_contract(address).await {
                Ok(shown) => {
                    let symbol = shown.symbol.clone().unwrap_or_else(|| "none".to_owned());
                    let values = json!({ "decimals": shown.decimals, "symbol": symbol });
                    let (level, text) = match shown.unlike(decimals) {
                        None => (Level::Fine, format!(": decimals {decimals}, symbol {symbol}")),
                        Some(found) => {
                            let name = self.chain.blockchain;
                            let text = format!(
                                " {found} where decimals() = {decimals} is configured: correct \
                                 chains.{name}.tokens, or replace the endpoint"
                            );
                            (Level::Failure, text)
                        }
                    };
                    (level, text, values)
                }
                Err(failure) => {
                    (Level::Failure, format!(" cannot be read: {failure}"), Value::Null)
                }
            };
            let value =
                json!({ "coin": coin.as_str(), "contract": address.to_string(), "shown": shown });
            self.note("contract", level, format!("{coin} at {address}{text}"), value);
        }
    }

    /// Finds the largest range that is served: tries smaller ones if the configured one is refused,
    /// otherwise greater ones.
    async fn range(&mut self, head: i64) {
        let (longest, wanted) = (head.saturating_add(1), self.chain.range_max);
        let mut blocks = wanted.min(longest);
        let mut refused: Option<(i64, Failure)> = None;
        while let Err(failure) = self.endpoint.scan(head - blocks + 1, head).await {
            let smaller = failure.smaller_range(blocks);
            refused = Some((blocks, failure));
            match smaller {
                Some(smaller) => blocks = smaller,
                None => {
                    let cause = refused.map(|(_, failure)| failure.to_string()).unwrap_or_default();
                    let text = format!("eth_getLogs over {blocks} blocks is refused ({cause})");
                    return self.note("range", Level::Failure, text, Value::Null);
                }
            }
        }
        while refused.is_none() && blocks < longest && blocks < RANGE_TRIED_MAX {
            let more = blocks.saturating_mul(10).min(longest).min(RANGE_TRIED_MAX);
            match self.endpoint.scan(head - more + 1, head).await {
                Ok(()) => blocks = more,
                Err(failure) => refused = Some((more, failure)),
            }
        }
        let mut text = format!("eth_getLogs over {blocks} blocks is served");
        if let Some((more, failure)) = &refused {
            text = format!("{text}, over {more} refused ({failure})");
        } else if blocks == longest {
            text = format!("{text}: the whole chain");
        }
        let is_small = blocks < wanted.min(longest);
        if is_small {
            let name = self.chain.blockchain;
            text = format!("{text}: set chains.{name}.range_max = {blocks} to spare it requests");
        }
        let level = if is_small { Level::Warning } else { Level::Fine };
        let refused = refused.map(|(blocks, _)| blocks);
        self.note("range", level, text, json!({ "served": blocks, "refused": refused }));
    }

    /// A transaction in one of the blocks up to a height, and its block.
    async fn newest_transaction(&self, height: i64) -> Option<(Block, TxHash)> {
        for number in (0..=height).rev().take(TRANSACTION_BLOCKS as usize) {
            let probed = self.endpoint.block(Point::Number(number)).await;
            if let Ok(Some(Listed { block, transactions })) = probed
                && let Some(transaction) = transactions.first()
            {
                return Some((block, *transaction));
            }
        }
        None
    }

    async fn receipts(&mut self, head: i64) {
        let Some((block, transaction)) = self.newest_transaction(head).await else {
            let text = format!(
                "not tried: no transaction was found in the newest {TRANSACTION_BLOCKS} blocks"
            );
            return self.note("receipts", Level::Fine, text, Value::Null);
        };
        let (single, whole) = self.endpoint.has_receipts(block, transaction).await;
        let word = |served: &Result<bool, Failure>| match served {
            Ok(true) => "served".to_owned(),
            Ok(false) => "missing".to_owned(),
            Err(failure) => format!("refused ({failure})"),
        };
        let text = format!("of a transaction {}, of a block {}", word(&single), word(&whole));
        let (single, whole) = (single == Ok(true), whole == Ok(true));
        let (level, advice) = match (single, whole) {
            (true, true) => (Level::Fine, ""),
            (true, false) => (Level::Warning, ": a block with very many logs would stop the chain"),
            (false, _) if self.chain.rules().needs_receipts => {
                (Level::Failure, ": no payment would be believed")
            }
            (false, _) => (Level::Warning, ": endpoints that disagree could not be judged"),
        };
        let value = json!({ "transaction": single, "block": whole });
        self.note("receipts", level, format!("{text}{advice}"), value);
    }

    async fn wallets(&mut self) {
        for address in self.wallets.clone().into_iter().map(|wallet| wallet.address) {
            let found = self.endpoint.is_contract(address).await;
            let value =
                json!({ "wallet": address.to_string(), "has_code": found.as_ref().ok().copied() });
            let (level, text) = match found {
                Ok(false) => (Level::Fine, format!("{address} has no code")),
                Ok(true) => (
                    Level::Warning,
                    format!(
                        "{address} has code: only right for a contract wallet; a token's contract keeps what is sent to it"
                    ),
                ),
                Err(failure) => {
                    (Level::Warning, format!("{address}: code is not known ({failure})"))
                }
            };
            self.note("wallet", level, text, value);
        }
    }

    async fn balances(&mut self) {
        for wallet in self.wallets.clone() {
            let takes = |coin: &Stablecoin| wallet.stablecoins.contains(coin);
            let contracts = self.chain.contracts.clone();
            for contract in contracts.into_iter().filter(|c| takes(&c.stablecoin)) {
                let (coin, address) = (contract.stablecoin, wallet.address);
                let found = self.endpoint.balance(contract.address, address).await;
                let found = found.map(|units| Amount::from_units(units?, contract.decimals));
                let (level, text) = match &found {
                    Ok(Some(amount)) => (Level::Fine, format!("{address} has {amount} {coin}")),
                    Ok(None) => {
                        (Level::Warning, format!("{address}: {coin} is not known (no amount)"))
                    }
                    Err(failure) => {
                        (Level::Warning, format!("{address}: {coin} is not known ({failure})"))
                    }
                };
                let amount = found.ok().flatten().map(|amount| amount.to_string());
                let value = json!({ "wallet": address.to_string(), "coin": coin.as_str(), "amount": amount });
                self.note("balance", level, text, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
