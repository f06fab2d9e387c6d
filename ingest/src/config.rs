//! `[chains.*]`: followed chains, their endpoints, contracts and confirmation policies.

mod contract;
mod endpoint;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use runtime::config::{Reader, Source};
use schemas::{Address, Amount, Blockchain, Stablecoin, StablecoinContract, Wallet};

#[cfg(test)]
pub(crate) use self::endpoint::ApiKey;
pub use self::endpoint::{EndpointConfig, NativeConfig, RpcUrl};
use crate::machine::{Policy, Rules, Tag, Tier, Watch};

/// Default `range_max`, in blocks of one `eth_getLogs`. If an endpoint refuses it, the range shrinks.
const RANGE_MAX: u64 = 2000;
/// Maximum time, and maximum polls, between heads of an idle chain: a head with every poll would fill the disk.
const IDLE_HEAD_INTERVAL: Duration = Duration::from_secs(30);
const IDLE_POLLS_MAX: u32 = 15;
/// Maximum time, and maximum polls, before a failed second check is tried again.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(30);
const CHECK_WAIT_POLLS_MAX: u32 = 16;
/// Maximum `lag`: eight seconds of Arbitrum's blocks.
const LAG_MAX: u64 = 32;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Amount from which payments on chains with slow finality wait for finality.
const LARGE: &str = "10000";
/// Below this amount one endpoint is enough while no other answers.
const ALONE: &str = "100";
/// Largest accepted depth, in blocks.
const DEPTH_MAX: u64 = 100_000;

/// `[chains]`.
#[derive(Debug, Clone)]
pub struct Config {
    /// The chains that have a section, in the order of [`Blockchain::ALL`].
    pub chains: Vec<ChainConfig>,
}

/// One section of `[chains]`, with the shop's wallets on that chain. A chain without wallets is followed too.
#[derive(Debug, Clone)]
pub struct ChainConfig {
    pub blockchain: Blockchain,
    /// Required result of `eth_chainId`; differs from the chain's own only on development chains.
    pub chain_id: u64,
    /// At least one.
    pub endpoints: Vec<EndpointConfig>,
    pub request_timeout: Duration,
    /// Contracts offered for payment of orders.
    pub contracts: Vec<StablecoinContract>,
    /// Contracts no longer offered, but watched for earlier deposits.
    pub retired: Vec<StablecoinContract>,
    /// Known contracts beside `contracts` and `retired`: watched, so that transfers in them are reported.
    pub unlisted: Vec<StablecoinContract>,
    /// Coins that its wallets take; their contracts are checked at each endpoint.
    pub stablecoins: BTreeSet<Stablecoin>,
    /// Wallets that payments may arrive at.
    pub wallets: Vec<Address>,
    /// Every configured wallet of this address family, on any chain: one key owns an address on all of them.
    pub own: Vec<Address>,
    pub policy: Policy,
    /// First block to scan on the first start; `None`: the one after the endpoint's head less `lag`.
    pub start_block: Option<i64>,
    /// Wait between polls once everything is scanned.
    pub poll_interval: Duration,
    /// Maximum blocks of one `eth_getLogs`.
    pub range_max: i64,
    /// Blocks that a reorganisation may replace; a deeper one halts the chain.
    pub reorg_window: i64,
    /// Amounts below this are confirmed by one endpoint while no other answers; zero for none.
    pub alone: Amount,
    /// Blocks to stay behind the endpoint's head, for nodes whose logs trail their headers.
    pub lag: i64,
    /// Maximum wait of a confirmed transfer for its deposit, in chain time.
    pub match_window: Duration,
}

/// Values for absent keys.
struct Defaults {
    policy: Policy,
    poll_interval: Duration,
    reorg_window: u64,
    lag: u64,
}

/// Defaults by chain: the chain's own finality where it is quick, a depth on Linea and Avalanche, otherwise depth or
/// `safe` for everyday amounts and finality for large ones. Windows cover the deepest reorganisations seen and the time
/// to finality; polls come about once a block, but not more often than every two seconds. The lag is about two seconds
/// of blocks, for nodes whose logs trail their headers: with it the first scan finds a payment, not only the second
/// check. Chains with longer block times have no lag.
fn defaults(blockchain: Blockchain) -> Defaults {
    let small = |depth, tag| Tier { below: Amount::parse(LARGE).ok(), depth, tag };
    let large = Tier { below: None, depth: None, tag: Some(Tag::Finalized) };
    let tiers = |first| Policy { tiers: vec![first, large] };
    let (policy, poll_millis, reorg_window, lag) = match blockchain {
        Blockchain::Eth => (tiers(small(Some(12), None)), 12_000, 128, 0),
        // Finality by milestones has been wrong before: hence a depth as well.
        Blockchain::Polygon => (Policy::flat(Some(32), Some(Tag::Finalized)), 2000, 512, 1),
        Blockchain::Base | Blockchain::Op => (tiers(small(None, Some(Tag::Safe))), 2000, 2048, 1),
        Blockchain::Arb => (tiers(small(None, Some(Tag::Safe))), 2000, 8192, 8),
        // Proven on Ethereum only after hours.
        Blockchain::Linea => (Policy::flat(Some(60), None), 2000, 4096, 2),
        Blockchain::Avaxc => (Policy::flat(Some(2), None), 2000, 64, 1),
        Blockchain::Tron => (Policy::flat(None, Some(Tag::Finalized)), 3000, 64, 0),
    };
    Defaults { policy, poll_interval: Duration::from_millis(poll_millis), reorg_window, lag }
}

/// Returns the maximum age of a tag on an ordinary day, in seconds behind the newest block.
pub(crate) fn normal_age(blockchain: Blockchain, tag: Tag) -> i64 {
    const MINUTE: i64 = 60;
    match (blockchain, tag) {
        (Blockchain::Eth, Tag::Safe) => 8 * MINUTE,
        // Two epochs, and part of a third.
        (Blockchain::Eth, Tag::Finalized) => 19 * MINUTE,
        // Batches reach Ethereum every few minutes, and are final with their block there.
        (Blockchain::Base | Blockchain::Op | Blockchain::Arb, Tag::Safe) => 10 * MINUTE,
        (Blockchain::Base | Blockchain::Op | Blockchain::Arb, Tag::Finalized) => 30 * MINUTE,
        // Proven on Ethereum after hours.
        (Blockchain::Linea, _) => 8 * 60 * MINUTE,
        (Blockchain::Polygon | Blockchain::Avaxc | Blockchain::Tron, _) => MINUTE,
    }
}

/// Returns the minimum age of a tag, in seconds behind the newest block: a younger tag of an
/// endpoint is rejected. 0 on other networks than the public one, and where none is known.
pub(crate) fn tag_age_min(blockchain: Blockchain, chain_id: u64, tag: Tag) -> i64 {
    /// Seconds of an Ethereum epoch: 32 slots of 12 s.
    const EPOCH: i64 = 384;
    if chain_id != blockchain.chain_id() {
        return 0;
    }
    match (blockchain, tag) {
        (Blockchain::Eth | Blockchain::Arb, Tag::Safe) => EPOCH,
        (Blockchain::Eth | Blockchain::Base | Blockchain::Op | Blockchain::Arb, Tag::Finalized)
        | (Blockchain::Linea, _) => 2 * EPOCH,
        // The batch of a safe block is in a later block of Ethereum: at least one slot.
        (Blockchain::Base | Blockchain::Op, Tag::Safe) => 12,
        // Solidified by blocks of 19 of the 27 producers, one every 3 s: 18 further blocks.
        (Blockchain::Tron, _) => 54,
        (Blockchain::Polygon | Blockchain::Avaxc, _) => 0,
    }
}

impl Config {
    /// The commented defaults of the sections.
    pub const DEFAULTS: &str = include_str!("config/default.toml");

    /// Reads the section. Every chain with a wallet needs a section of its own, and a contract for each stablecoin that
    /// its wallets take; problems are noted in `source`.
    #[must_use]
    pub fn read(source: &mut Source, wallets: &[Wallet], match_window: Duration) -> Self {
        let mut section = source.section("chains");
        let (mut chains, mut known) = (Vec::new(), HashSet::new());
        for name in section.keys() {
            let inner = section.section(&name);
            match name.parse::<Blockchain>() {
                Ok(blockchain) => {
                    known.insert(blockchain);
                    chains.extend(ChainConfig::read(blockchain, inner, wallets, match_window));
                }
                Err(error) => section.problem(&name, &error.to_string()),
            }
        }
        for blockchain in Blockchain::ALL {
            let has_wallet = wallets.iter().any(|wallet| wallet.blockchain == *blockchain);
            if has_wallet && !known.contains(blockchain) {
                section.problem(blockchain.as_str(), "is missing: a wallet is on this chain");
            }
        }
        section.finish();
        chains.sort_by_key(|chain| chain.blockchain.index());
        Self { chains }
    }

    /// The contracts offered for payment, of all followed chains. The api shows the first contract of a coin.
    pub fn contracts(&self) -> Vec<StablecoinContract> {
        self.chains.iter().flat_map(|chain| chain.contracts.iter().copied()).collect()
    }
}

impl ChainConfig {
    fn read(
        blockchain: Blockchain,
        mut section: Reader,
        wallets: &[Wallet],
        match_window: Duration,
    ) -> Option<Self> {
        let family = blockchain.address_family();
        let all = wallets;
        let own = wallets.iter().map(|wallet| wallet.address);
        let own = own.filter(|address| address.family() == family).collect();
        let wallets: Vec<_> =
            wallets.iter().filter(|wallet| wallet.blockchain == blockchain).collect();
        let defaults = defaults(blockchain);
        let endpoints = endpoint::read(blockchain, &mut section);
        let (contracts, retired) = contract::read(blockchain, &mut section, &wallets);
        contract::check_wallets(&section, &[&*contracts, &*retired].concat(), all);
        let policy = read_policy(blockchain, &mut section).unwrap_or(defaults.policy);
        let mut whole = |key, bounds, default| {
            let value = section.optional_integer(key, bounds).unwrap_or(default);
            i64::try_from(value).unwrap_or(i64::MAX)
        };
        let range_max = whole("range_max", 1..=1_000_000, RANGE_MAX);
        let reorg_window = whole("reorg_window", 1..=1_000_000, defaults.reorg_window);
        let lag = whole("lag", 0..=LAG_MAX, defaults.lag);
        let alone = section.optional_text("alone").unwrap_or_else(|| ALONE.to_owned());
        let alone =
            Amount::parse(&alone).map_err(|error| section.problem("alone", &error.to_string()));
        let start_block = section
            .optional_integer("start_block", 0..=u64::from(u32::MAX))
            .and_then(|number| i64::try_from(number).ok());
        let chain_id = section.optional_integer("chain_id", 1..=u64::MAX);
        let chain_id = chain_id.unwrap_or_else(|| blockchain.chain_id());
        let mut duration = |key, default| {
            let value = section.optional_duration(key).unwrap_or(default);
            if value.is_zero() {
                section.problem(key, "must be longer than zero");
            }
            value
        };
        let poll_interval = duration("poll_interval", defaults.poll_interval);
        let request_timeout = duration("request_timeout", REQUEST_TIMEOUT);
        section.finish();
        if endpoints.is_empty() {
            return None;
        }
        Some(Self {
            blockchain,
            chain_id,
            endpoints,
            request_timeout,
            unlisted: contract::unlisted(blockchain, chain_id, &[&*contracts, &*retired].concat()),
            contracts,
            retired,
            stablecoins: wallets.iter().flat_map(|wallet| wallet.stablecoins.clone()).collect(),
            wallets: wallets.iter().map(|wallet| wallet.address).collect(),
            own,
            policy,
            start_block,
            poll_interval,
            range_max,
            reorg_window,
            alone: alone.unwrap_or_default(),
            lag,
            match_window,
        })
    }

    /// The contracts of the coins that its wallets take.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &StablecoinContract> {
        let all = self.contracts.iter().chain(&self.retired);
        all.filter(|contract| self.stablecoins.contains(&contract.stablecoin))
    }

    /// The contracts whose events are read.
    pub fn read_contracts(&self) -> impl Iterator<Item = &StablecoinContract> {
        self.contracts.iter().chain(&self.retired).chain(&self.unlisted)
    }

    /// Number of whole poll intervals in a duration.
    fn polls_in(&self, time: Duration) -> u32 {
        let polls = time.as_millis() / self.poll_interval.as_millis().max(1);
        u32::try_from(polls).unwrap_or(u32::MAX)
    }

    /// Contracts and wallets whose events are read.
    pub(crate) fn watch(&self) -> Watch {
        let contracts = self.read_contracts().copied().collect();
        Watch::new(self.blockchain, contracts, &self.wallets, &self.own)
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules {
            blockchain: self.blockchain,
            watch: self.watch(),
            policy: self.policy.clone(),
            reorg_window: self.reorg_window,
            lag: self.lag,
            range_max: self.range_max,
            start_block: self.start_block,
            // EVM nodes drop the logs of failed transactions; java-tron keeps some of them.
            needs_receipts: self.blockchain == Blockchain::Tron,
            has_second: self.endpoints.len() > 1,
            alone_below: self.alone,
            idle_polls: self.polls_in(IDLE_HEAD_INTERVAL).min(IDLE_POLLS_MAX),
            check_wait_polls: self.polls_in(CHECK_WAIT_MAX).clamp(1, CHECK_WAIT_POLLS_MAX),
            match_window_seconds: i64::try_from(self.match_window.as_secs()).unwrap_or(i64::MAX),
            lost: None,
        }
    }
}

fn read_policy(blockchain: Blockchain, section: &mut Reader) -> Option<Policy> {
    let value = section.value("confirmations")?;
    let wrong = |section: &Reader| {
        let what = "must be a depth from 1 to 100000, \"finalized\", \"safe\", or \
                    { depth, tag, tiers }";
        section.problem("confirmations", what);
    };
    if let Some(depth) = value.as_integer() {
        let depth = Some(depth).filter(|depth| (1..=DEPTH_MAX.cast_signed()).contains(depth));
        if depth.is_none() {
            wrong(section);
        }
        return depth.map(|depth| Policy::flat(Some(depth), None));
    }
    if let Some(text) = value.as_str() {
        let tag = parse_tag(blockchain, text, section, "confirmations");
        return tag.map(|tag| Policy::flat(None, Some(tag)));
    }
    let Some(table) = value.as_table() else {
        wrong(section);
        return None;
    };
    let mut reader = section.nested("confirmations", table.clone());
    let tiers = reader.value("tiers");
    let last = read_tier(blockchain, &mut reader);
    let mut policy = Policy { tiers: Vec::new() };
    for (position, item) in tiers.iter().flat_map(|tiers| tiers.as_array()).flatten().enumerate() {
        let Some(table) = item.as_table() else {
            reader.problem("tiers", "must be a list of { below, depth, tag }");
            continue;
        };
        let mut tier = reader.nested(&format!("tiers[{position}]"), table.clone());
        let below = tier.parsed::<Amount>("below");
        if policy.tiers.last().is_some_and(|before| below <= before.below) {
            tier.problem("below", "must be greater than in the tier before");
        }
        let read = read_tier(blockchain, &mut tier);
        policy.tiers.extend(read.map(|read| Tier { below, ..read }));
        tier.finish();
    }
    if tiers.is_some_and(|tiers| !tiers.is_array()) {
        reader.problem("tiers", "must be a list of { below, depth, tag }");
    }
    reader.finish();
    policy.tiers.push(last?);
    Some(policy)
}

fn read_tier(blockchain: Blockchain, reader: &mut Reader) -> Option<Tier> {
    let depth = reader.optional_integer("depth", 1..=DEPTH_MAX);
    let name = reader.optional_text("tag");
    let tag = name.as_ref().and_then(|name| parse_tag(blockchain, name, reader, "tag"));
    if depth.is_none() && name.is_none() {
        reader.problem("depth", "is missing: give depth, tag, or both");
    }
    let depth = depth.and_then(|depth| i64::try_from(depth).ok());
    (depth.is_some() || tag.is_some()).then_some(Tier { below: None, depth, tag })
}

/// Returns `true` if a chain's nodes serve `safe`. Tron's refuse it, Polygon's mostly have no such block, and Linea
/// does not promise one.
fn has_safe(blockchain: Blockchain) -> bool {
    match blockchain {
        Blockchain::Eth
        | Blockchain::Base
        | Blockchain::Arb
        | Blockchain::Op
        | Blockchain::Avaxc => true,
        Blockchain::Tron | Blockchain::Polygon | Blockchain::Linea => false,
    }
}

fn parse_tag(blockchain: Blockchain, name: &str, reader: &Reader, key: &str) -> Option<Tag> {
    match name {
        "finalized" => Some(Tag::Finalized),
        "safe" if !has_safe(blockchain) => {
            let what = format!("\"safe\" is not served on {blockchain}; use \"finalized\"");
            reader.problem(key, &what);
            None
        }
        "safe" => Some(Tag::Safe),
        _ => {
            reader.problem(key, "must be \"finalized\" or \"safe\"");
            None
        }
    }
}

#[cfg(test)]
mod tests;
