//! One run: what happens, from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, U256};
use devnet::{Reorg, TransferCall};
use runtime::{ManualClock, Readiness};
use schemas::record::Deposit;
use schemas::{Stablecoin, StablecoinContract, UnixMicros};
use testkit::Dice;
use testkit::faults::{Behaviour, Fault, Verdict, invented};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::chain::{CHAIN_ID, COUNTERFEIT, Chain, DEPTH, PAYER, REORG_MAX, TOKEN};
use super::faults::{fault, omission, range};
use super::shop::{BLOCKCHAIN, Shop, contract, text, units, wallet, wallets};
use crate::endpoints::{Endpoints, Pauses};
use crate::runner::Runner;
use crate::sabotage::Defect;
use crate::{ChainConfig, EndpointConfig, Error, Policy, RpcUrl, Tag};

/// What happens in a run before all faults end.
const EVENTS: usize = 60;
/// How long an ingest may be busy with one request, or pause.
const TURN: Duration = Duration::from_millis(250);
/// How long the end may take: it costs only when red.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take where it is to be red.
const PATIENCE_IF_PLANTED: Duration = Duration::from_secs(6);
/// Requests in a row that have the one fault of a run with a planted defect.
const LASTING: u32 = 1000;

/// What a run came to.
pub(super) struct Outcome {
    pub(super) result: Result<(), String>,
    pub(super) counts: BTreeMap<&'static str, usize>,
}

/// An ingest that runs.
struct Run {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

struct Play {
    dice: Dice,
    defect: Defect,
    /// The one fault of a run with a planted defect, for the sake of brevity.
    only: Option<Fault>,
    chain: Chain,
    shop: Shop,
    config: ChainConfig,
    readiness: Readiness,
    run: Option<Run>,
    /// Whether there is a log that was removed.
    has_removed: bool,
    /// Payments that customers will send, and when.
    due: Vec<(u64, Vec<TransferCall>)>,
    /// Which of two endpoints lies.
    liar: usize,
    counts: BTreeMap<&'static str, usize>,
}

fn pauses() -> Pauses {
    let millis = Duration::from_millis;
    Pauses {
        first: millis(1),
        max: millis(20),
        repair: millis(20),
        sole_max: millis(10),
        recheck: millis(5),
        // Of two endpoints both answer again, however long it takes.
        alone: Duration::from_secs(3600),
        stuck: Duration::from_secs(3600),
        stalled: Duration::from_secs(3600),
    }
}

fn config(dice: &mut Dice, chain: &Chain) -> ChainConfig {
    let endpoint =
        |proxy: &testkit::faults::Proxy| EndpointConfig::new(RpcUrl::parse(proxy.url()).unwrap());
    let mut endpoints: Vec<_> = chain.proxies.iter().map(endpoint).collect();
    if let Some(second) = endpoints.get_mut(1) {
        second.weight += dice.below(2) as u64;
    }
    let policy = match dice.below(4) {
        0 => Policy::flat(None, Some(Tag::Finalized)),
        1 => Policy::flat(None, Some(Tag::Safe)),
        _ => Policy::flat(Some(DEPTH), None),
    };
    let stablecoin = Stablecoin::Usdt;
    let usdt =
        StablecoinContract { blockchain: BLOCKCHAIN, stablecoin, address: contract(), decimals: 6 };
    ChainConfig {
        blockchain: BLOCKCHAIN,
        chain_id: CHAIN_ID,
        endpoints,
        request_timeout: Duration::from_millis(400),
        contracts: vec![usdt],
        stablecoins: [stablecoin].into(),
        wallets: wallets(),
        own: wallets(),
        policy,
        start_block: None,
        poll_interval: Duration::from_millis(2),
        range_max: 1 + dice.below(30) as i64,
        reorg_window: 16,
        alone: schemas::Amount::ZERO,
        lag: dice.below(2) as i64,
        match_window: Duration::from_secs(20),
    }
}

/// Plays a seed.
pub(super) async fn play(seed: u64, defect: Defect) -> Outcome {
    let mut dice = Dice(seed);
    let only = match defect {
        Defect::AnyChain => Some(Fault::Foreign),
        Defect::Removed => Some(Fault::Removed),
        Defect::None | Defect::OneCheck => None,
    };
    let endpoints = if dice.below(5) < 2 || only.is_some() { 1 } else { 2 };
    let chain = Chain::start(seed, endpoints).await;
    let clock = Arc::new(ManualClock::new(UnixMicros(chain.now.cast_signed() * 1_000_000)));
    let shop = Shop::open(clock);
    let (config, liar) = (config(&mut dice, &chain), dice.below(2));
    let mut play = Play {
        dice,
        defect,
        only,
        chain,
        shop,
        config,
        readiness: Readiness::default(),
        run: None,
        has_removed: false,
        due: Vec::new(),
        liar,
        counts: BTreeMap::new(),
    };
    let result = play.run().await;
    Outcome { result, counts: play.counts }
}

impl Play {
    async fn run(&mut self) -> Result<(), String> {
        self.start();
        self.begin().await?;
        for _ in 0..EVENTS {
            self.act().await?;
        }
        self.end().await
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn start(&mut self) {
        let (chain, stop) = (Arc::new(self.config.clone()), CancellationToken::new());
        let mut endpoints = Endpoints::new(chain.clone(), pauses()).unwrap();
        endpoints.sabotage = self.defect;
        let (readiness, log) = (self.readiness.clone(), Arc::new(self.shop.log.clone()));
        let (clock, until) = (self.shop.clock.clone(), stop.clone());
        let runner = Runner::new(chain, endpoints, readiness, log, clock, until);
        self.run = Some(Run { stop, task: tokio::spawn(runner.run()) });
    }

    /// An orderly stop, or none: the process is gone between two instructions.
    async fn start_again(&mut self) -> Result<(), String> {
        let Some(Run { stop, task }) = self.run.take() else { return Ok(()) };
        if self.dice.below(2) == 0 {
            stop.cancel();
            self.chain.gate.let_through(1);
            let ended = task.await.map_err(|error| error.to_string())?;
            ended.map_err(|error| format!("ingest ended: {error}"))?;
        } else {
            task.abort();
            drop(task.await);
        }
        self.count("started again");
        self.start();
        Ok(())
    }

    /// Requests pass, until the next one waits or ingest pauses.
    async fn go(&mut self, requests: usize) -> Result<(), String> {
        self.chain.gate.let_through(requests);
        let waits = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            while !self.chain.gate.is_waiting() {
                ticks.tick().await;
            }
        };
        drop(tokio::time::timeout(TURN, waits).await);
        if self.run.as_ref().is_some_and(|run| run.task.is_finished())
            && let Some(run) = self.run.take()
        {
            return Err(format!("ingest ended: {:?}", run.task.await));
        }
        // One of another chain is waited for; what only an operator ends must not happen.
        let alarms = self.readiness.alarms();
        match alarms.iter().find(|alarm| alarm.contains("reorganised below")) {
            Some(alarm) => Err(format!("halted: {alarm}")),
            None => Ok(()),
        }
    }

    /// The shop opens when payments are seen.
    async fn begin(&mut self) -> Result<(), String> {
        for _ in 0..400 {
            if self.shop.is_ready().await {
                return Ok(());
            }
            self.mine(2);
            self.go(8).await?;
        }
        Err("the chain is not followed".to_owned())
    }

    /// Moves the clock of the stages to the chain's time.
    fn set_clock(&mut self) {
        use runtime::Clock;
        let ahead = self.chain.now.cast_signed() * 1_000_000 - self.shop.clock.now().0;
        self.shop.clock.advance(Duration::from_micros(u64::try_from(ahead).unwrap_or(0)));
    }

    fn mine(&mut self, seconds: u64) {
        let now = self.chain.now + seconds;
        let (ready, due) =
            std::mem::take(&mut self.due).into_iter().partition(|(at, _)| *at <= now);
        self.due = due;
        for (_, calls) in ready {
            let sent = self.chain.send(calls).to_string();
            if self.chain.proxies.len() > 1 && self.dice.below(4) == 0 {
                self.chain.proxies[self.liar].behaviour().omits.insert(sent);
                self.count("omitted");
            }
        }
        self.chain.mine(seconds);
        self.set_clock();
    }

    async fn act(&mut self) -> Result<(), String> {
        match self.dice.below(24) {
            0..=6 => {
                for _ in 0..=self.dice.below(2) {
                    let seconds = 1 + self.dice.below(3) as u64;
                    self.mine(seconds);
                }
            }
            7 | 8 => self.reorg().await,
            9..=11 => self.order().await,
            12 => {
                let seconds = 1 + self.dice.below(5) as u64;
                self.chain.pass(seconds);
                self.set_clock();
            }
            13 => self.start_again().await?,
            14..=17 => self.misbehave(),
            18 => self.trail(),
            19 => self.lie(),
            20 => self.heal(),
            _ => {}
        }
        let requests = 1 + self.dice.below(14);
        self.go(requests).await
    }

    async fn order(&mut self) {
        for _ in 0..=self.dice.below(2) {
            let wallet = wallet(u8::try_from(self.dice.below(3)).unwrap());
            let ttl = 30 + self.dice.below(60) as i64;
            let id = self.shop.order(wallet, ttl).await;
            let opened = async {
                while !self.shop.opened.contains_key(&id) {
                    for deposit in self.shop.new_deposits() {
                        let payments = pay(&mut self.dice, self.chain.now, &deposit);
                        self.due.extend(payments);
                    }
                    tokio::task::yield_now().await;
                }
            };
            drop(tokio::time::timeout(Duration::from_secs(1), opened).await);
        }
    }

    async fn reorg(&mut self) {
        let depth = 1 + self.dice.below(REORG_MAX) as u64;
        let recent = self.chain.sent.len().saturating_sub(4);
        let recent = &self.chain.sent[recent..];
        let transaction = (!recent.is_empty()).then(|| recent[self.dice.below(recent.len())]);
        let reorg = match (self.dice.below(4), transaction) {
            (0, Some(tx)) => Reorg::Drop(tx),
            (1 | 2, Some(tx)) => {
                Reorg::Move { tx, to_offset: self.dice.below(depth as usize + 1) as u64 }
            }
            _ => Reorg::Keep,
        };
        let leaves_stale = self.dice.below(2) == 0;
        self.chain.reorg(depth, reorg, leaves_stale).await;
        self.set_clock();
        self.count("reorganised");
    }

    fn endpoint(&mut self) -> usize {
        self.dice.below(self.chain.proxies.len())
    }

    fn misbehave(&mut self) {
        let index = self.endpoint();
        let is_alone = self.chain.proxies.len() == 1;
        let is_liar = !is_alone && index == self.liar;
        let fault = if is_liar && self.dice.below(5) == 0 {
            omission(&mut self.dice)
        } else {
            fault(&mut self.dice)
        };
        let fault = match fault {
            // At most one of two leaves out a log.
            (Fault::Mixed, requests) if !is_alone && !is_liar => (Fault::Stale, requests),
            other => other,
        };
        let fault = self.only.map_or(fault, |only| (only, LASTING));
        if self.only.is_none() || !self.has_removed {
            let removed = self.forged();
            self.has_removed = removed.is_some();
            self.chain.scene.set_removed(removed);
        }
        let range = (self.dice.below(3) == 0).then(|| range(&mut self.dice));
        let mut behaviour = self.chain.proxies[index].behaviour();
        behaviour.fault = Some(fault);
        behaviour.range_max = range;
    }

    /// The logs of new blocks come later than the blocks. Of two endpoints one alone does so: what both leave out when
    /// they are asked is lost.
    fn trail(&mut self) {
        let index = if self.chain.proxies.len() > 1 { self.liar } else { 0 };
        let seconds = self.dice.below(6) as i64;
        let mut behaviour = self.chain.proxies[index].behaviour();
        behaviour.trail_seconds = seconds;
        behaviour.trail_is_partial = self.dice.below(2) == 0;
    }

    /// A payment that no block has, of what an order waits for.
    fn forged(&mut self) -> Option<serde_json::Value> {
        let open = self.shop.open_deposits();
        let deposit = (!open.is_empty()).then(|| &open[self.dice.below(open.len())])?;
        let (head, to) = (self.chain.head(), text(&deposit.wallet_address));
        let transaction = format!("0x{:064x}", 0xf0_0000 + self.dice.below(0xffff));
        let parties = [&TOKEN.to_string(), &PAYER.to_string(), to.as_str()];
        let hash = head.hash.to_string();
        Some(invented((head.number, &hash), &transaction, parties, units(deposit.value)))
    }

    /// One of two endpoints invents a payment, with or without a receipt.
    fn lie(&mut self) {
        if self.chain.proxies.len() == 1 {
            return;
        }
        let has_receipt = self.dice.below(3) == 0;
        if let Some(log) = self.forged() {
            let mut behaviour = self.chain.proxies[self.liar].behaviour();
            // Two logs in one place would give it away.
            behaviour.invents = vec![(log, has_receipt)];
            drop(behaviour);
            self.count("invented");
        }
    }

    /// An endpoint has no faults any more, but for what it leaves out for ever.
    fn heal(&mut self) {
        let index = self.endpoint();
        self.heal_one(index);
    }

    fn heal_one(&mut self, index: usize) {
        let mut behaviour = self.chain.proxies[index].behaviour();
        let omits = std::mem::take(&mut behaviour.omits);
        *behaviour = Behaviour { omits, ..Behaviour::default() };
    }

    /// Faults end, and time passes until every order has ended.
    async fn end(&mut self) -> Result<(), String> {
        for index in 0..self.chain.proxies.len() {
            self.heal_one(index);
        }
        for seconds in std::iter::repeat_n(2, 10).chain([300]).chain(std::iter::repeat_n(2, 12)) {
            self.mine(seconds);
            self.go(8).await?;
        }
        let (url, token) = (self.chain.url().to_owned(), TOKEN.to_string().to_lowercase());
        let wallets: Vec<_> = wallets().iter().map(text).collect();
        let started = tokio::time::Instant::now();
        loop {
            let verdict = Verdict::of(&url, &token, &wallets, &self.shop.books().await).await;
            if verdict.problems.is_empty() {
                break;
            }
            let patience = if self.defect == Defect::None { PATIENCE } else { PATIENCE_IF_PLANTED };
            if started.elapsed() > patience {
                return Err(format!("{:?}", verdict.problems));
            }
            self.mine(2);
            self.go(30).await?;
        }
        // What would come late has come when the next blocks are through.
        for _ in 0..4 {
            self.mine(2);
            self.go(10).await?;
        }
        let books = self.shop.books().await;
        let verdict = Verdict::of(&url, &token, &wallets, &books).await;
        self.counts.insert("payments", verdict.payments.len());
        for status in ["paid", "expired"] {
            let with = books.orders.iter().filter(|order| order.status == status);
            self.counts.insert(status, with.count());
        }
        if let Some(run) = self.run.take() {
            run.stop.cancel();
            self.chain.gate.let_through(1000);
            drop(run.task.await);
        }
        if verdict.problems.is_empty() { Ok(()) } else { Err(format!("{:?}", verdict.problems)) }
    }
}

/// What the customer of a deposit does.
fn pay(dice: &mut Dice, now: u64, deposit: &Deposit) -> Vec<(u64, Vec<TransferCall>)> {
    let to = Address::from(*deposit.wallet_address.bytes());
    let exact = U256::from(units(deposit.value));
    let call = |value| TransferCall { token: TOKEN, from: PAYER, to, value };
    let left = u64::try_from(deposit.expires_at.0).unwrap().saturating_sub(now);
    let mut payments = match dice.below(10) {
        0 => vec![(now + left + 2, vec![call(exact)])],
        1 => vec![(now + left.saturating_sub(dice.below(6) as u64), vec![call(exact)])],
        2 => vec![(now, vec![call(exact - U256::from(1))])],
        3 => vec![(now, vec![call(exact)]), (now + 4, vec![call(exact)])],
        // Twice in one transaction.
        4 => vec![(now, vec![call(exact); 2])],
        5 => vec![],
        _ => vec![(now + dice.below(12) as u64, vec![call(exact)])],
    };
    if dice.below(3) == 0 {
        let stranger = Address::repeat_byte(0x99);
        for (_, calls) in &mut payments {
            calls.push(TransferCall { to: stranger, ..call(exact) });
            calls.push(TransferCall { token: COUNTERFEIT, ..call(exact) });
            calls.push(call(U256::ZERO));
            calls.push(call(U256::from(1 + dice.below(5))));
        }
    }
    payments
}
