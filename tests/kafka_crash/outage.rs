//! The server of the tables is down while records flow.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::{Log, StageContext, TopicPartition};
use runtime::SystemClock;
use schemas::record::example;
use schemas::{Stage, Topic};
use store::cql::{CqlStore, migrate};
use store::{Change, Error, Store};
use testkit::DEADLINE;
use testkit::log_suite::on_kafka::brokers;
use testkit::observed::{Bug, Progress, observed};
use testkit::process::given_path;
use testkit::tables::{Dump, assert_same, cql};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use xtask::{Server, cassandra};

use crate::scenario::Scenario;

/// Rounds of the load in the outage, at least 20 s.
const ROUNDS_AWAY: u32 = 80;
/// Minimum length of a round.
const TRADE_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum time of a call during the outage.
const CALL_MAX: Duration = Duration::from_secs(60);

/// Two projectors as threads.
struct Projectors {
    progress: Arc<Progress>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<Result<(), projector::Error>>>,
}

impl Projectors {
    fn start(scenario: &Scenario, store: &Arc<dyn Store>, runtime: &Runtime) -> Self {
        let (progress, stop) = (Arc::new(Progress::default()), CancellationToken::new());
        let spawn = |member: &str| {
            let log = observed(scenario.installation.log.clone(), progress.clone(), Bug::None);
            let (store, handle) = (store.clone(), runtime.handle().clone());
            let (clock, member, stop) = (Arc::new(SystemClock), member.to_owned(), stop.clone());
            let context = StageContext { log, clock, member, handle, stop };
            std::thread::spawn(move || {
                projector::run(store, None, projector::Level::DEBUG, &context)
            })
        };
        let threads = vec![spawn("a"), spawn("b")];
        Self { progress, stop, threads }
    }

    /// Number of records that they have committed.
    fn taken(&self) -> i64 {
        self.progress.positions.lock().unwrap().values().map(|offset| offset.0).sum()
    }

    fn are_up_to(&self, log: &dyn Log) -> bool {
        let positions = self.progress.positions.lock().unwrap().clone();
        let layout = log.layout();
        let partitions = |topic: Topic| {
            topic.all_partitions(&layout).map(move |partition| TopicPartition { topic, partition })
        };
        Topic::read_by(Stage::Projector).flat_map(partitions).all(|of| {
            let next = positions.get(&of).copied().unwrap_or_default();
            matches!(log.read(of, next, 1), Ok(records) if records.is_empty())
        })
    }

    fn stop(self) {
        self.stop.cancel();
        for thread in self.threads {
            thread.join().unwrap().unwrap();
        }
    }
}

fn tables(server: &Server, keyspace: &str, runtime: &Runtime) -> Arc<dyn Store> {
    let config = cql::config(vec![server.address()], keyspace.to_owned());
    let store = runtime.block_on(async {
        migrate(&config).await.unwrap();
        CqlStore::open(&config).await.unwrap()
    });
    Arc::new(store)
}

/// Checks that calls fail within [`CALL_MAX`] while the server does not respond, and may be repeated.
async fn assert_away(server: &Server, store: &dyn Store) {
    for _ in 0..2 {
        let begun = Instant::now();
        let written = store.apply(vec![Change::Transfer(example::transfer())]).await;
        assert!(matches!(written, Err(Error::Transient(_))), "it is not durable: {written:?}");
        let read = store.transfer(example::transfer().transfer_id).await;
        assert!(matches!(read, Err(Error::Transient(_))), "{read:?}");
        assert!(begun.elapsed() < CALL_MAX, "it took {:?}", begun.elapsed());
    }
    let opened = CqlStore::open(&cql::config(vec![server.address()], "kept".to_owned())).await;
    assert!(matches!(opened, Err(Error::Transient(_))), "{opened:?}");
}

/// Removes stale list entries, which a reader would delete: those of a transfer that failed and returned, and those of
/// an ended order that was paid, if its paying version was not written, only a later one. Rebuilt tables never had
/// them.
fn without_stale_entries(kept: &mut Dump, made: &Dump) {
    for table in ["list_partitions", "transfers_ended", "orders_ended"] {
        let made: BTreeSet<_> = made[table].iter().collect();
        let is_stale = |row: &String| {
            // A directory may list what has no entry any more.
            let paid = row.replace("cancelled", "paid").replace("expired", "paid");
            let was_paid = paid != *row && (table == "list_partitions" || made.contains(&paid));
            !made.contains(row) && (row.contains("failed_to_confirm") || was_paid)
        };
        kept.get_mut(table).expect("a table of lists").retain(|row| !is_stale(row));
    }
}

#[test]
fn tables_are_complete_after_an_outage() {
    let lib = given_path("TIDEMARK_TEST_CASSANDRA_LIB");
    let dir = tempfile::tempdir().unwrap();
    // Durable, as it is the only node.
    let mut server = cassandra::start_durable(&lib, dir.path()).unwrap();
    let runtime = Runtime::new().unwrap();
    let store = tables(&server, "kept", &runtime);
    let mut scenario = Scenario::new(&brokers());
    let projectors = Projectors::start(&scenario, &store, &runtime);
    scenario.installation.trade_until(&mut scenario.shop, "rows", |_| projectors.taken() > 300);

    server.kill();
    runtime.block_on(assert_away(&server, &*store));
    let begun = Instant::now();
    // Steps that were written just before the kill are still committed.
    let mut taken = -1;
    while taken != projectors.taken() {
        assert!(begun.elapsed() < DEADLINE, "it is still committed");
        taken = projectors.taken();
        scenario.installation.trade_slowly(&mut scenario.shop, ROUNDS_AWAY / 4, TRADE_INTERVAL);
    }
    scenario.installation.trade_slowly(&mut scenario.shop, ROUNDS_AWAY / 4 * 3, TRADE_INTERVAL);
    assert_eq!(projectors.taken(), taken, "nothing is committed whose rows are not written");
    assert!(!projectors.are_up_to(&*scenario.installation.log), "there was work for them");
    server.restart().unwrap();

    // Does not wait until all windows have ended, so that some deposits are still open.
    scenario.installation.trade(&mut scenario.shop, 10);
    scenario.installation.stop(scenario.a);
    scenario.installation.stop(scenario.b);
    let log = scenario.installation.log.clone();
    scenario.installation.wait_until("the projectors", |p| projectors.are_up_to(&*p.log));
    projectors.stop();
    let scratch = tables(&server, "scratch", &runtime);
    let keep_on = &mut |_| ControlFlow::Continue(());
    let made = projector::rebuild(&*log, &*scratch, runtime.handle(), keep_on).unwrap();
    assert!(made.is_some());
    let [mut kept, scratch] = ["kept", "scratch"]
        .map(|keyspace| runtime.block_on(cql::dump(&[server.address()], keyspace)));
    without_stale_entries(&mut kept, &scratch);
    for (table, rows) in [("orders", 300), ("transfers", 100), ("deposits_open", 10)] {
        assert!(kept[table].len() > rows, "{table} has {} rows", kept[table].len());
    }
    assert_same(&scratch, &kept, "after the server was away");
}
