//! One run of the rehearsal, with events drawn from a seed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use devnet::{Reorg, TransferCall};
use runtime::Readiness;
use schemas::Amount;
use testkit::Dice;
use testkit::faults::{Behaviour, Fault};

use super::chain::{Chain, DEPTH, REORG_MAX};
use super::customer::{exact, forged, pay, stranger};
use super::faults::{LONG, fault, omission, range, renumber};
use super::run::{self, Run, pauses};
use super::shop::Shop;
use crate::sabotage::Defect;
use crate::simulation::wallet;
use crate::{ChainConfig, Policy, Tag, Tier};

/// Number of events in a run before all faults end.
const EVENTS: usize = 60;
/// Maximum time until ingest's next request, busy or paused; reached only in red runs.
const TURN: Duration = Duration::from_secs(60);
/// Maximum duration of the last phase; reached only in red runs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum duration of the last phase if a planted defect must make the run red.
const PATIENCE_IF_PLANTED: Duration = Duration::from_secs(6);
/// Time in seconds within which a block is checked, without faults.
const CHECK_SECONDS: u64 = 12;
/// Blocks by which one endpoint of two extends a fork that the chain left: more than confirm a
/// block.
const GROWTH: usize = 8;

pub(super) struct Outcome {
    pub(super) result: Result<(), String>,
    pub(super) counts: BTreeMap<&'static str, usize>,
}

struct Play {
    dice: Dice,
    defect: Defect,
    chain: Chain,
    shop: Shop,
    config: ChainConfig,
    readiness: Readiness,
    run: Option<Run>,
    /// Number of blocks by which the abandoned fork will still grow; `None` unless the liar alone
    /// stays on it.
    growth: Option<usize>,
    /// Payments that customers will send, each with its time.
    due: Vec<(u64, Vec<TransferCall>)>,
    /// Index of the endpoint that lies, of two.
    liar: usize,
    counts: BTreeMap<&'static str, usize>,
}

fn config(dice: &mut Dice, chain: &Chain) -> ChainConfig {
    let mut config = run::config(chain);
    if let Some(second) = config.endpoints.get_mut(1) {
        second.weight += dice.below(2) as u64;
    }
    config.policy = match dice.below(5) {
        0 => Policy::flat(None, Some(Tag::Finalized)),
        1 => Policy::flat(None, Some(Tag::Safe)),
        2 => Policy::flat(Some(DEPTH), None),
        // Dust can be checked before a reorganisation; payments are not yet confirmed then.
        _ => {
            let dust = Tier { below: Amount::parse("1").ok(), depth: Some(1), tag: None };
            Policy { tiers: vec![dust, Tier { below: None, depth: Some(DEPTH), tag: None }] }
        }
    };
    config.range_max = 1 + dice.below(30) as i64;
    config.lag = dice.below(2) as i64;
    config
}

pub(super) async fn play(seed: u64, defect: Defect) -> Outcome {
    let mut dice = Dice(seed);
    let endpoints = if dice.below(5) < 2 { 1 } else { 2 };
    let chain = Chain::start(seed, endpoints).await;
    let shop = Shop::open(chain.now);
    let (config, liar) = (config(&mut dice, &chain), dice.below(2));
    let mut play = Play {
        dice,
        defect,
        chain,
        shop,
        config,
        readiness: Readiness::default(),
        run: None,
        growth: None,
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
        let log = (&self.shop.log, self.shop.clock.clone());
        let run = Run::start(&self.config, pauses(), self.defect, log, &self.readiness);
        self.run = Some(run);
    }

    /// Stops or kills ingest, and starts it again.
    async fn start_again(&mut self) -> Result<(), String> {
        let Some(run) = self.run.take() else { return Ok(()) };
        if self.dice.below(2) == 0 {
            self.chain.gate.let_through(1);
            run.stop().await?;
        } else {
            run.kill().await;
        }
        self.count("started again");
        self.start();
        Ok(())
    }

    /// Lets requests pass, until the next one waits at the gate.
    async fn go(&mut self, requests: usize) -> Result<(), String> {
        self.chain.gate.let_through(requests);
        let (started, mut ticks) =
            (Instant::now(), tokio::time::interval(Duration::from_millis(1)));
        loop {
            ticks.tick().await;
            self.check_run().await?;
            if self.chain.gate.is_waiting() {
                return Ok(());
            }
            if started.elapsed() > TURN {
                return Err(format!("ingest asks nothing: {:?}", self.readiness.details()));
            }
        }
    }

    /// Fails if ingest has ended, or has halted at a deep reorganisation.
    async fn check_run(&mut self) -> Result<(), String> {
        if self.run.as_ref().is_some_and(Run::has_ended)
            && let Some(run) = self.run.take()
        {
            return run.ended().await.and(Err("ingest ended".to_owned()));
        }
        // A deep reorganisation halts the chain until an operator acts, so it must not happen here.
        // An alarm about an endpoint of another chain ends by itself.
        let alarms = self.readiness.alarms();
        match alarms.iter().find(|alarm| alarm.contains("reorganised below")) {
            Some(alarm) => Err(format!("halted: {alarm}")),
            None => Ok(()),
        }
    }

    /// Mines until payments are seen and the shop is ready.
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

    fn mine(&mut self, seconds: u64) {
        let now = self.chain.now + seconds;
        let (ready, due) =
            std::mem::take(&mut self.due).into_iter().partition(|(at, _)| *at <= now);
        self.due = due;
        let ready: Vec<_> = ready;
        if !ready.is_empty() {
            // A first transfer moves the logs of the payments to later places in the block.
            self.chain.send(vec![stranger()]);
        }
        for (_, calls) in ready {
            let sent = self.chain.send(calls).to_string();
            if self.chain.proxies.len() > 1 && self.dice.below(4) == 0 {
                self.omit(sent);
            }
        }
        self.chain.mine(seconds);
        if let Some(left) = self.growth.filter(|left| *left > 0) {
            let stale = self.chain.stale().unwrap();
            stale.mine_at(self.chain.now).unwrap();
            self.growth = Some(left - 1);
        }
        self.shop.set_clock(self.chain.now);
    }

    /// Makes the liar omit a transaction from its logs: from all answers, or only from those by
    /// range or by block hash.
    fn omit(&mut self, transaction: String) {
        let form = self.dice.below(4);
        let mut behaviour = self.chain.proxies[self.liar].behaviour();
        let omitted = match form {
            0 => &mut behaviour.ranges_omit,
            1 => &mut behaviour.hashes_omit,
            _ => &mut behaviour.omits,
        };
        omitted.insert(transaction);
        drop(behaviour);
        self.count(if form < 2 { "omitted in one form" } else { "omitted" });
    }

    async fn act(&mut self) -> Result<(), String> {
        match self.dice.below(24) {
            0..=6 => {
                for _ in 0..=self.dice.below(2) {
                    let seconds = 1 + self.dice.below(3) as u64;
                    self.mine(seconds);
                }
            }
            7 => self.reorg().await,
            8 => self.fork().await?,
            9..=11 => self.order().await?,
            12 => {
                let seconds = 1 + self.dice.below(5) as u64;
                self.chain.pass(seconds);
                self.shop.set_clock(self.chain.now);
            }
            13 => self.start_again().await?,
            14..=17 => self.misbehave(),
            18 => self.trail(),
            19 => self.lie(),
            20 => self.heal(),
            21..=23 => self.deviate(),
            _ => {}
        }
        let requests = 1 + self.dice.below(14);
        self.go(requests).await
    }

    async fn order(&mut self) -> Result<(), String> {
        for _ in 0..=self.dice.below(2) {
            let wallet = wallet(u8::try_from(self.dice.below(3)).unwrap());
            let ttl = 30 + self.dice.below(60) as i64;
            let id = self.shop.order(wallet, ttl).await;
            let deposit = self.shop.opened(id).await?;
            let payments = pay(&mut self.dice, self.chain.now, &deposit);
            self.due.extend(payments);
        }
        Ok(())
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
        self.shop.set_clock(self.chain.now);
        self.growth = self.growth.filter(|_| !leaves_stale);
        self.count("reorganised");
    }

    /// Reorganises the chain, while the liar stays on the old fork, which grows and has a payment
    /// that the chain lost. If the other endpoint stayed too, that fork would be confirmed.
    async fn fork(&mut self) -> Result<(), String> {
        let open = self.shop.open_deposits();
        if self.chain.proxies.len() == 1 || open.is_empty() {
            self.reorg().await;
            return Ok(());
        }
        (0..2).for_each(|index| self.heal_one(index));
        let sent = self.chain.send(vec![exact(&open[self.dice.below(open.len())])]);
        self.mine(2);
        let paid_in = self.chain.head().number.cast_signed();
        // One block more: with a `lag` of 1 ingest does not scan the newest one.
        self.mine(2);
        // Waits until the payment is checked: with the dust tier a block only has to be old enough.
        for _ in 0..CHECK_SECONDS {
            self.go(10).await?;
            if self.checked() >= paid_in {
                break;
            }
            self.chain.pass(1);
            self.shop.set_clock(self.chain.now);
        }
        self.chain.reorg(2, Reorg::Drop(sent), true).await;
        self.shop.set_clock(self.chain.now);
        self.growth = Some(GROWTH);
        // Enough requests to confirm the whole fork.
        let requests = 60 + u32::try_from(self.dice.below(LONG)).unwrap();
        self.chain.proxies[self.liar].behaviour().fault = Some((Fault::Stale, requests));
        for _ in 0..DEPTH {
            self.mine(2);
            self.go(12).await?;
        }
        self.count("fork grown");
        Ok(())
    }

    /// The height up to which two endpoints were asked.
    fn checked(&self) -> i64 {
        let details = self.readiness.details();
        details.first().and_then(|detail| detail["checked"].as_i64()).unwrap_or(-1)
    }

    /// Changes or restores an endpoint's numbering of logs, takes the receipts of the last
    /// transactions from all endpoints, or makes the liar's tags too young.
    fn deviate(&mut self) {
        let is_alone = self.chain.proxies.len() == 1;
        match self.dice.below(6) {
            0..=2 => {
                let index = self.endpoint();
                let mut behaviour = self.chain.proxies[index].behaviour();
                renumber(&mut self.dice, &mut behaviour);
                drop(behaviour);
                self.count("renumbered");
            }
            3 if !is_alone => {
                self.chain.proxies[self.liar].behaviour().tags_are_young = true;
                self.count("young tags");
            }
            _ => self.lose_receipts(),
        }
    }

    /// Takes the receipts of the last transactions from all endpoints; of two, the liar omits their
    /// logs too.
    fn lose_receipts(&mut self) {
        let last: Vec<_> = self.chain.sent.iter().rev().take(3).map(ToString::to_string).collect();
        for proxy in &self.chain.proxies {
            proxy.behaviour().lacks_receipts = last.iter().cloned().collect();
        }
        if self.chain.proxies.len() > 1 {
            self.chain.proxies[self.liar].behaviour().omits.extend(last);
        }
        self.count("no receipts");
    }

    fn endpoint(&mut self) -> usize {
        self.dice.below(self.chain.proxies.len())
    }

    fn misbehave(&mut self) {
        let index = self.endpoint();
        if matches!(self.chain.proxies[index].behaviour().fault, Some((Fault::Removed, _))) {
            return;
        }
        let is_alone = self.chain.proxies.len() == 1;
        let is_liar = !is_alone && index == self.liar;
        let fault = if is_liar && self.dice.below(5) == 0 {
            omission(&mut self.dice)
        } else {
            fault(&mut self.dice)
        };
        let fault = match fault {
            // Of two endpoints only the liar may omit logs.
            (Fault::Mixed | Fault::Stale, requests) if !is_alone && !is_liar => {
                let is_grown = self.growth.is_some();
                (if is_grown { Fault::Behind(2) } else { Fault::Stale }, requests)
            }
            other => other,
        };
        if fault.0 == Fault::Removed {
            // The forged payment is in a new block, which ingest has not scanned.
            self.mine(1);
            let removed = self.forged();
            self.chain.node_state.set_removed(removed);
        }
        self.count("faults");
        let range = (self.dice.below(3) == 0).then(|| range(&mut self.dice));
        let mut behaviour = self.chain.proxies[index].behaviour();
        behaviour.fault = Some(fault);
        behaviour.range_max = range;
    }

    /// Delays the logs of new blocks. Of two endpoints only the liar does so: logs that both omit
    /// would be lost.
    fn trail(&mut self) {
        let index = if self.chain.proxies.len() > 1 { self.liar } else { 0 };
        let seconds = self.dice.below(6) as i64;
        let mut behaviour = self.chain.proxies[index].behaviour();
        behaviour.trail_seconds = seconds;
        behaviour.trail_is_partial = self.dice.below(2) == 0;
    }

    /// Log of a payment that an order waits for, and that is in no block.
    fn forged(&mut self) -> Option<serde_json::Value> {
        let open = self.shop.open_deposits();
        let deposit = (!open.is_empty()).then(|| &open[self.dice.below(open.len())])?;
        Some(forged(self.chain.head(), deposit, self.dice.below(0xffff)))
    }

    /// Makes one of two endpoints invent a payment, with or without a receipt.
    fn lie(&mut self) {
        if self.chain.proxies.len() == 1 {
            return;
        }
        let has_receipt = self.dice.below(3) == 0;
        // The forged payment is in a new block, which ingest has not scanned.
        self.mine(1);
        if let Some(log) = self.forged() {
            let mut behaviour = self.chain.proxies[self.liar].behaviour();
            behaviour.invents = vec![(log, has_receipt)];
            drop(behaviour);
            self.count("invented");
        }
    }

    /// Ends the faults of an endpoint, except its omissions, which are permanent.
    fn heal(&mut self) {
        let index = self.endpoint();
        self.heal_one(index);
    }

    fn heal_one(&mut self, index: usize) {
        let mut behaviour = self.chain.proxies[index].behaviour();
        let Behaviour { omits, ranges_omit, hashes_omit, .. } = std::mem::take(&mut *behaviour);
        *behaviour = Behaviour { omits, ranges_omit, hashes_omit, ..Behaviour::default() };
    }

    /// Ends all faults, and advances time until every order has ended.
    async fn end(&mut self) -> Result<(), String> {
        for index in 0..self.chain.proxies.len() {
            self.heal_one(index);
        }
        for seconds in std::iter::repeat_n(2, 10).chain([300]).chain(std::iter::repeat_n(2, 12)) {
            self.mine(seconds);
            self.go(8).await?;
        }
        let started = tokio::time::Instant::now();
        loop {
            let verdict = self.shop.verdict(self.chain.url()).await;
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
        // Four more blocks, for records that would still follow.
        for _ in 0..4 {
            self.mine(2);
            self.go(10).await?;
        }
        let verdict = self.shop.verdict(self.chain.url()).await;
        let books = self.shop.books().await;
        self.counts.insert("payments", verdict.payments.len());
        for status in ["paid", "expired"] {
            let with = books.orders.iter().filter(|order| order.status == status);
            self.counts.insert(status, with.count());
        }
        if let Some(run) = self.run.take() {
            self.chain.gate.let_through(1000);
            run.stop().await?;
        }
        if verdict.problems.is_empty() { Ok(()) } else { Err(format!("{:?}", verdict.problems)) }
    }
}
