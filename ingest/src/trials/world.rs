//! The shop, its chain and the endpoints of a trial.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use runtime::Readiness;
use schemas::record::{Alert, ChainBody, ChainRecord, Deposit, Head, Record};
use schemas::{AlertKind, AlertState, Amount, OrderId, Topic};
use testkit::faults::{Behaviour, Fault};

use crate::ChainConfig;
use crate::endpoints::Pauses;
use crate::rehearsal::chain::Chain;
use crate::rehearsal::customer::exact;
use crate::rehearsal::run::{Run, config, pauses};
use crate::rehearsal::shop::Shop;
use crate::sabotage::Defect;
use crate::simulation::{records, wallet};

/// Time between two steps of a trial.
const STEP: Duration = Duration::from_millis(20);
/// Time between two checks of a condition.
const TICK: Duration = Duration::from_millis(1);
/// Maximum wait for a condition; reached only in red runs.
const PATIENCE: Duration = Duration::from_secs(30);
const BLOCK_SECONDS: u64 = 2;
/// Lifetime of an order: longer than a trial runs before it lets orders expire.
const TTL_SECONDS: i64 = 20_000;
/// Time of refusals after which an endpoint counts as gone.
const ALONE: Duration = Duration::from_millis(100);

pub(super) struct World {
    pub(super) chain: Chain,
    pub(super) shop: Shop,
    pub(super) config: ChainConfig,
    pub(super) pauses: Pauses,
    readiness: Readiness,
    run: Option<Run>,
}

impl World {
    /// A chain with a number of endpoints, which is not followed yet.
    pub(super) async fn new(seed: u64, endpoints: usize) -> Self {
        let chain = Chain::start(seed, endpoints).await;
        chain.gate.let_through(usize::MAX >> 4);
        let (shop, mut config) = (Shop::open(chain.now), config(&chain));
        config.alone = Amount::parse("100").unwrap();
        // Deeper than any fork here.
        config.reorg_window = 64;
        let pauses = Pauses { alone: ALONE, ..pauses() };
        Self { chain, shop, config, pauses, readiness: Readiness::default(), run: None }
    }

    /// As [`World::new`], with a chain that is followed, and a shop that takes payments.
    pub(super) async fn open(seed: u64, endpoints: usize) -> Self {
        let mut world = Self::new(seed, endpoints).await;
        world.opens().await;
        world
    }

    pub(super) fn follow(&mut self) {
        let log = (&self.shop.log, self.shop.clock.clone());
        let run = Run::start(&self.config, self.pauses, Defect::None, log, &self.readiness);
        self.run = Some(run);
    }

    pub(super) async fn stop_following(&mut self) {
        if let Some(run) = self.run.take() {
            run.kill().await;
        }
    }

    /// Follows the chain, and mines blocks until payments are seen.
    pub(super) async fn opens(&mut self) {
        self.follow();
        let started = Instant::now();
        while !self.shop.is_ready().await {
            assert!(started.elapsed() < PATIENCE, "the chain is not followed");
            self.step().await;
        }
    }

    pub(super) fn behaviour(&self, endpoint: usize) -> impl std::ops::DerefMut<Target = Behaviour> {
        self.chain.proxies[endpoint].behaviour()
    }

    /// Gives an endpoint a fault that lasts until it is healed.
    pub(super) fn fault(&self, endpoint: usize, fault: Fault) {
        self.behaviour(endpoint).fault = Some((fault, u32::MAX));
    }

    /// Ends the faults of an endpoint.
    pub(super) fn heal(&self, endpoint: usize) {
        *self.behaviour(endpoint) = Behaviour::default();
    }

    /// Number of requests to all endpoints so far.
    pub(super) fn requests(&self) -> usize {
        self.chain.proxies.iter().map(testkit::faults::Proxy::requests).sum()
    }

    /// A new order, whose deposit is open.
    pub(super) async fn order(&mut self, position: u8, amount: u128) -> Deposit {
        let id = self.shop.order_of(wallet(position), amount, TTL_SECONDS).await;
        self.shop.opened(id).await.unwrap()
    }

    /// Queues the payment of a deposit for the next block. Returns its transaction.
    pub(super) fn pay(&mut self, deposit: &Deposit) -> String {
        self.chain.send(vec![exact(deposit)]).to_string()
    }

    pub(super) fn mine(&mut self) {
        self.chain.mine(BLOCK_SECONDS);
        self.shop.set_clock(self.chain.now);
    }

    /// Advances time without a block.
    pub(super) fn pass(&mut self, seconds: u64) {
        self.chain.pass(seconds);
        self.shop.set_clock(self.chain.now);
    }

    /// Mines a block, and gives ingest the time to follow it.
    pub(super) async fn step(&mut self) {
        self.mine();
        self.settle().await;
    }

    /// Gives ingest the time between two blocks.
    pub(super) async fn settle(&mut self) {
        if self.run.as_ref().is_some_and(Run::has_ended)
            && let Some(run) = self.run.take()
        {
            panic!("ingest ended: {:?}", run.ended().await);
        }
        tokio::time::interval_at(tokio::time::Instant::now() + STEP, STEP).tick().await;
    }

    /// Mines blocks until all of these orders are paid.
    pub(super) async fn paid(&mut self, deposits: &[&Deposit]) {
        let started = Instant::now();
        loop {
            let waiting = self.unpaid(deposits).await;
            if waiting.is_empty() {
                return;
            }
            let (count, of) = (waiting.len(), deposits.len());
            assert!(started.elapsed() < PATIENCE, "{count} of {of} not paid; {}", self.shown());
            self.step().await;
        }
    }

    /// Waits, without a block, until an order is paid.
    pub(super) async fn paid_in_time(&mut self, deposit: &Deposit) {
        let started = Instant::now();
        while !self.unpaid(&[deposit]).await.is_empty() {
            assert!(started.elapsed() < PATIENCE, "not paid; {}", self.shown());
            self.pass(1);
            self.settle().await;
        }
    }

    /// Orders of these deposits that are not paid.
    async fn unpaid(&mut self, deposits: &[&Deposit]) -> Vec<OrderId> {
        let paid = self.paid_orders().await;
        let ids = deposits.iter().map(|deposit| deposit.order_id);
        ids.filter(|id| !paid.contains(&id.to_string())).collect()
    }

    async fn paid_orders(&mut self) -> BTreeSet<String> {
        let orders = self.shop.books().await.orders;
        orders.into_iter().filter(|order| order.status == "paid").map(|order| order.id).collect()
    }

    pub(super) async fn assert_unpaid(&mut self, deposit: &Deposit) {
        let books = self.shop.books().await;
        let id = deposit.order_id.to_string();
        let order = books.orders.iter().find(|order| order.id == id).unwrap();
        let payer = books.claims.iter().find(|claim| claim.order.as_ref() == Some(&id));
        assert_eq!(order.status, "pending", "{order:?} by {payer:?}; {}", self.shown());
    }

    /// Takes steps until the endpoints had a number of further requests.
    pub(super) async fn asked(&mut self, requests: usize, mut step: impl FnMut(&mut Self)) {
        let (started, before) = (Instant::now(), self.requests());
        while self.requests() < before + requests {
            assert!(started.elapsed() < PATIENCE, "too little is asked; {}", self.shown());
            step(self);
            self.settle().await;
        }
    }

    /// Checks that a further order is paid, and that the tables come to agree with the chain.
    pub(super) async fn ends_well(&mut self) {
        let last = self.order(2, 7).await;
        self.pay(&last);
        self.paid(&[&last]).await;
        self.pass(TTL_SECONDS.unsigned_abs());
        let started = Instant::now();
        loop {
            let problems = self.shop.verdict(self.chain.url()).await.problems;
            if problems.is_empty() {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{problems:?}; {}", self.shown());
            // A retracted transfer fails once its old height is final.
            (0..8).for_each(|_| self.mine());
            self.settle().await;
        }
        self.stop_following().await;
    }

    /// Returns the details and alarms of the chain, as shown to people.
    pub(super) fn shown(&self) -> String {
        let details: Vec<_> = self.readiness.details().iter().map(ToString::to_string).collect();
        format!("{details:?} {:?}", self.readiness.alarms())
    }

    pub(super) fn records<T: Record>(&self, topic: Topic) -> Vec<T> {
        records(&self.shop.log, topic)
    }

    /// Returns the number of raised alerts of a kind.
    pub(super) fn alerts(&self, kind: AlertKind) -> usize {
        self.count_alerts(kind, AlertState::Raised)
    }

    /// Returns the number of resolved alerts of a kind.
    pub(super) fn ended(&self, kind: AlertKind) -> usize {
        self.count_alerts(kind, AlertState::Resolved)
    }

    fn count_alerts(&self, kind: AlertKind, state: AlertState) -> usize {
        let alerts = self.records::<Alert>(Topic::Alerts);
        alerts.iter().filter(|alert| (alert.kind, alert.state) == (kind, state)).count()
    }

    /// The last head, with its height.
    pub(super) fn head(&self) -> (i64, Head) {
        let records = self.records::<ChainRecord>(Topic::TransfersRaw);
        let head = records.into_iter().rev().find_map(|record| match record.body {
            ChainBody::Head(head) => Some((record.block.number, head)),
            _ => None,
        });
        head.unwrap()
    }

    /// Waits, without a block, until a condition holds.
    pub(super) async fn until_still(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let (started, mut ticks) = (Instant::now(), tokio::time::interval(TICK));
        while !is_so(self) {
            assert!(started.elapsed() < PATIENCE, "not in time: {what}; {}", self.shown());
            ticks.tick().await;
        }
    }

    /// Mines blocks until a condition holds.
    pub(super) async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !is_so(self) {
            assert!(started.elapsed() < PATIENCE, "not in time: {what}; {}", self.shown());
            self.step().await;
        }
    }
}

/// One transaction, in the form of a proxy's lists.
pub(super) fn only(transaction: &str) -> std::collections::HashSet<String> {
    [transaction.to_owned()].into()
}
