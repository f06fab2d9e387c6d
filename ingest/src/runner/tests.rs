//! An endpoint whose answers cannot be used for long, with no other one beside it.

use std::net::Ipv4Addr;

use alloy_primitives::U256;
use devnet::Devnet;
use log::embedded::EmbeddedLog;
use runtime::SystemClock;
use schemas::record::ChainBody;
use schemas::{AlertKind, AlertState, Layout, Topic};
use testkit::MovedClock;
use testkit::faults::{Fault, NodeState, Proxy, invented};
use testkit::harness::eventually;

use super::*;
use crate::machine::Policy;
use crate::rehearsal::chain::{PAYER, TOKEN};
use crate::rehearsal::run::Run;
use crate::sabotage::Defect;
use crate::simulation::{self, records, wallet};

const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
/// An alert comes at the first failed attempt.
const PAUSES: Pauses = Pauses { stalled: Duration::ZERO, ..simulation::PAUSES };

struct World {
    devnet: Devnet,
    node_state: Arc<NodeState>,
    proxy: Proxy,
    log: EmbeddedLog,
    _dir: tempfile::TempDir,
    chain: ChainConfig,
    pauses: Pauses,
    readiness: Readiness,
    run: Option<Run>,
}

impl World {
    async fn start() -> Self {
        Self::with(PAUSES).await
    }

    /// A chain of 20 blocks, scanned.
    async fn with(pauses: Pauses) -> Self {
        let token = devnet::Token { address: TOKEN, decimals: 6, symbol: "USDC".into() };
        let (block_interval_secs, tokens) = (12, vec![token]);
        let config = devnet::Config { block_interval_secs, tokens, ..devnet::Config::default() };
        let devnet = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        devnet.chain().mine(20).unwrap();
        let node_state = Arc::new(NodeState::of(devnet.url()));
        let proxy = Proxy::start(node_state.clone(), None).await;
        let chain = ChainConfig {
            chain_id: 31_337,
            endpoints: vec![simulation::endpoint(proxy.url())],
            poll_interval: Duration::from_millis(2),
            ..simulation::chain(Policy::flat(Some(3), None))
        };
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
        let (readiness, run) = (Readiness::default(), None);
        let mut world =
            Self { devnet, node_state, proxy, log, _dir: dir, chain, pauses, readiness, run };
        world.run(Duration::ZERO).await;
        world.shows("scanned", 20).await;
        world
    }

    /// Ends the previous run, and begins one whose clock is ahead.
    async fn run(&mut self, ahead: Duration) {
        if let Some(run) = self.run.take() {
            run.stop().await.unwrap();
        }
        self.readiness = Readiness::default();
        let ahead = i64::try_from(ahead.as_micros()).unwrap();
        let log = (&self.log, Arc::new(MovedClock(ahead.into())));
        let run = Run::start(&self.chain, self.pauses, Defect::None, log, &self.readiness);
        self.run = Some(run);
    }

    /// Waits until the only endpoint has refused this number of requests of the present run.
    async fn refused(&self, count: i64) {
        eventually("refusals", || async {
            let shown = self.readiness.details();
            let errors = shown.first()?["endpoints"][0]["errors"].as_object()?.clone();
            (errors.values().filter_map(serde_json::Value::as_i64).sum::<i64>() >= count)
                .then_some(())
        })
        .await;
    }

    /// Makes the endpoint serve a log of an orphaned block at this height.
    fn keep_removed(&self, number: u64) {
        let wallet: alloy_primitives::Address = (*wallet(0).bytes()).into();
        let parties = [TOKEN, PAYER, wallet].map(|address| address.to_string());
        let parties = [&*parties[0], &*parties[1], &*parties[2]];
        let gone = format!("0x{:064x}", 0xdead);
        self.node_state.set_removed(Some(invented((number, &gone), &gone, parties, 7)));
        self.proxy.behaviour().fault = Some((Fault::Removed, u32::MAX));
    }

    fn pay(&self) {
        let to = (*wallet(0).bytes()).into();
        self.devnet.chain().transfer(TOKEN, PAYER, to, U256::from(5)).unwrap();
        self.devnet.chain().mine(1).unwrap();
    }

    async fn shows(&self, what: &str, number: i64) {
        eventually(&format!("{what} up to {number}"), || async {
            let shown = self.readiness.details();
            (shown.first()?[what].as_i64()? >= number).then_some(())
        })
        .await;
    }

    async fn alarm(&self) -> String {
        eventually("an alarm", || async { self.readiness.alarms().first().cloned() }).await
    }

    /// Stops the run once its alarms are over. Expects `alerts_due` raised alerts, then a resolved one. Returns the
    /// number of published transfers.
    async fn end(self, alerts_due: usize) -> usize {
        eventually("no alarm", || async { self.readiness.alarms().is_empty().then_some(()) }).await;
        assert_eq!(self.readiness.details()[0]["halted"], serde_json::Value::Null);
        self.run.unwrap().stop().await.unwrap();
        let alerts: Vec<Alert> = records(&self.log, Topic::Alerts);
        let published: Vec<ChainRecord> = records(&self.log, Topic::TransfersRaw);
        let mut due = vec![AlertState::Raised; alerts_due];
        due.push(AlertState::Resolved);
        let states: Vec<_> = alerts.iter().map(|alert| alert.state).collect();
        assert_eq!(states, due, "{alerts:?}");
        assert!(alerts.iter().all(|alert| alert.kind == AlertKind::ChainHalted), "{alerts:?}");
        published.iter().filter(|record| matches!(record.body, ChainBody::Transfer(_))).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn removed_log_stops_the_scan_with_an_alarm() {
    let world = World::start().await;
    world.keep_removed(21);
    world.pay();
    let alarm = world.alarm().await;
    let url = world.proxy.url();
    for part in ["nothing of eth was scanned", "a log is marked removed", url] {
        assert!(alarm.contains(part), "{alarm}");
    }
    world.pay();
    eventually("it to be shown as halted", || async {
        let shown = world.readiness.details();
        (shown[0]["halted"].as_str()?.contains("removed") && shown[0]["scanned"] == 20)
            .then_some(())
    })
    .await;
    world.proxy.behaviour().fault = None;
    world.shows("scanned", 22).await;
    assert_eq!(world.end(1).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn removed_log_in_a_second_check_confirms_nothing() {
    let world = World::start().await;
    world.pay();
    world.shows("scanned", 21).await;
    world.keep_removed(21);
    // It serves no receipts of whole blocks, so it is asked for logs again.
    world.proxy.behaviour().lacks_receipts = [format!("0x{:064x}", 0xdead)].into();
    world.devnet.chain().mine(5).unwrap();
    let alarm = world.alarm().await;
    assert!(alarm.contains("nothing of eth was confirmed"), "{alarm}");
    world.shows("scanned", 26).await;
    assert_eq!(world.readiness.details()[0]["confirmed"], 20);
    world.proxy.behaviour().fault = None;
    world.shows("confirmed", 24).await;
    assert_eq!(world.end(1).await, 1);
}

/// The alarm comes even if only the check of the endpoint's chain, which is first after an outage, is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn sole_endpoint_that_refuses_all_is_an_alarm() {
    let stalled = Duration::from_millis(300);
    let world = World::with(Pauses { recheck: Duration::ZERO, stalled, ..PAUSES }).await;
    world.proxy.behaviour().fault = Some((Fault::Unavailable, u32::MAX));
    let alarm = world.alarm().await;
    assert!(alarm.contains("nothing of eth was scanned"), "{alarm}");
    world.pay();
    world.proxy.behaviour().fault = None;
    world.shows("scanned", 21).await;
    assert_eq!(world.end(1).await, 1);
}

/// The five minutes are those since the last head on the log, however often ingest is restarted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restart_does_not_put_the_alarm_off() {
    let stalled = Duration::from_secs(300);
    let mut world = World::with(Pauses { stalled, ..PAUSES }).await;
    world.proxy.behaviour().fault = Some((Fault::Unavailable, u32::MAX));
    for minutes in [1, 2, 4] {
        world.run(Duration::from_secs(60 * minutes)).await;
        world.shows("scanned", 20).await;
        world.refused(3).await;
        let alarms = world.readiness.alarms();
        assert!(alarms.is_empty(), "after {minutes} minutes: {alarms:?}");
    }
    world.run(stalled).await;
    let alarm = world.alarm().await;
    assert!(alarm.contains("nothing of eth was scanned for 5 minutes"), "{alarm}");
    world.proxy.behaviour().fault = None;
    world.pay();
    world.shows("scanned", 21).await;
    assert_eq!(world.end(1).await, 1);
}

/// One process raises the alert and ends; another one sees the end of the stall.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_stall_is_resolved_by_another_process() {
    let mut world = World::start().await;
    world.proxy.behaviour().fault = Some((Fault::Unavailable, u32::MAX));
    let alarm = world.alarm().await;
    assert!(alarm.contains("nothing of eth was scanned"), "{alarm}");
    world.run(Duration::from_secs(60)).await;
    world.refused(3).await;
    let raised: Vec<Alert> = records(&world.log, Topic::Alerts);
    assert!(raised.iter().all(|alert| alert.state == AlertState::Raised), "{raised:?}");
    world.proxy.behaviour().fault = None;
    world.pay();
    world.shows("scanned", 21).await;
    world.run(Duration::from_secs(120)).await;
    world.pay();
    world.shows("scanned", 22).await;
    assert_eq!(world.end(1).await, 2);
}

/// A provider may put a node of another chain behind its name for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_sole_endpoint_of_another_chain_is_waited_for() {
    let world = World::start().await;
    let other = devnet::Config { chain_id: 99, seed: 99, ..devnet::Config::default() };
    let other = Devnet::start(other, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    other.chain().mine(60).unwrap();
    world.node_state.set_foreign(other.url().to_owned());
    world.proxy.behaviour().fault = Some((Fault::Foreign, u32::MAX));
    let wrong = || world.readiness.details()[0]["endpoints"][0]["wrong"].clone();
    eventually("it to be known", || async {
        wrong().as_str()?.contains("serves chain id 99, not 31337").then_some(())
    })
    .await;
    world.pay();
    world.proxy.behaviour().fault = None;
    world.shows("scanned", 21).await;
    eventually("it to be used", || async { wrong().is_null().then_some(()) }).await;
    // One alert that nothing is scanned, and one with the cause.
    assert_eq!(world.end(2).await, 1);
}
