//! The server of the tables is away for a minute, while records flow.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::{Log, Offset, StageContext, TopicPartition};
use runtime::SystemClock;
use schemas::Topic;
use store::Store;
use store::config::CqlConfig;
use store::cql::{CqlStore, migrate};
use testkit::dump::{Dump, assert_same, dump};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use xtask::{Server, cassandra};

use crate::shared_broker;
use crate::town::Town;
use crate::watched::{Bug, News, Witness, watched};

/// How long the server is away.
const AWAY: Duration = Duration::from_secs(60);
/// How often the shop trades meanwhile.
const PAUSE: Duration = Duration::from_millis(250);
/// What the processor writes and the projector reads.
const TOPICS: [Topic; 7] = [
    Topic::Orders,
    Topic::Deposits,
    Topic::TransfersDetected,
    Topic::TransfersConfirmed,
    Topic::TransfersMatched,
    Topic::TransfersUnknown,
    Topic::TransfersFailed,
];

/// How far the projectors are.
#[derive(Default)]
struct Notes {
    positions: Mutex<BTreeMap<TopicPartition, Offset>>,
}

impl Witness for Notes {
    fn tell(&self, news: &News) {
        if let News::Assigned(_, at) | News::Taken(_, at) = news {
            self.positions.lock().unwrap().extend(at);
        }
    }

    fn reached(&self, _group: &str, _point: &str) -> bool {
        true
    }
}

/// Two projectors as threads.
struct Projectors {
    notes: Arc<Notes>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<Result<(), projector::Error>>>,
}

impl Projectors {
    fn start(town: &Town, store: &Arc<dyn Store>, runtime: &Runtime) -> Self {
        let (notes, stop) = (Arc::new(Notes::default()), CancellationToken::new());
        let spawn = |member: &str| {
            let log = watched(town.place.log.clone(), notes.clone(), Bug::None);
            let (store, handle) = (store.clone(), runtime.handle().clone());
            let (clock, member, stop) = (Arc::new(SystemClock), member.to_owned(), stop.clone());
            let context = StageContext { log, clock, member, handle, stop };
            std::thread::spawn(move || projector::run(store, &context))
        };
        let threads = vec![spawn("a"), spawn("b")];
        Self { notes, stop, threads }
    }

    /// How many records they have taken.
    fn taken(&self) -> i64 {
        self.notes.positions.lock().unwrap().values().map(|offset| offset.0).sum()
    }

    fn are_up_to(&self, log: &dyn Log) -> bool {
        let positions = self.notes.positions.lock().unwrap().clone();
        let layout = log.layout();
        let all = TOPICS.iter().flat_map(|topic| {
            topic
                .all_partitions(&layout)
                .map(|partition| TopicPartition { topic: *topic, partition })
        });
        all.into_iter().all(|of| {
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
    let config = CqlConfig {
        nodes: vec![server.address()],
        keyspace: keyspace.to_owned(),
        replication: 1,
        datacenter: None,
        username: None,
        password: None,
        ca_file: None,
    };
    let store = runtime.block_on(async {
        migrate(&config).await.unwrap();
        CqlStore::open(&config).await.unwrap()
    });
    Arc::new(store)
}

#[test]
fn tables_are_right_after_their_server_was_away_for_a_minute() {
    let lib = std::env::var_os("TIDEMARK_TEST_CASSANDRA_LIB")
        .map(PathBuf::from)
        .expect("TIDEMARK_TEST_CASSANDRA_LIB is not set: run the tests by `cargo xtask test`");
    let dir = tempfile::tempdir().unwrap();
    // Alone, it must not forget what it acknowledged.
    let mut server = cassandra::start_durable(&lib, dir.path()).unwrap();
    let runtime = Runtime::new().unwrap();
    let store = tables(&server, "kept", &runtime);
    let mut town = Town::new(&shared_broker());
    let projectors = Projectors::start(&town, &store, &runtime);
    town.place.wait(&mut town.shop, "rows", |_| projectors.taken() > 300);

    server.kill();
    let begun = Instant::now();
    // What was written at the last moment is still committed.
    town.place.pass(&mut town.shop, AWAY / 4, PAUSE);
    let taken = projectors.taken();
    town.place.pass(&mut town.shop, AWAY.saturating_sub(begun.elapsed()), PAUSE);
    assert_eq!(projectors.taken(), taken, "nothing is taken whose rows nobody wrote");
    assert!(!projectors.are_up_to(&*town.place.log), "there was work for them");
    server.restart().unwrap();

    // Not until all windows have ended: some deposits are to be open.
    town.place.trade(&mut town.shop, 10);
    town.place.stop(town.a);
    town.place.stop(town.b);
    let log = town.place.log.clone();
    town.place.wait_in_silence("the projectors", |p| projectors.are_up_to(&*p.log));
    projectors.stop();
    let scratch = tables(&server, "scratch", &runtime);
    projector::rebuild(&*log, &*scratch, runtime.handle()).unwrap();
    let [kept, scratch] = ["kept", "scratch"]
        .map(|keyspace| -> Dump { runtime.block_on(dump(&server.address(), keyspace)) });
    for (table, rows) in [("orders", 300), ("transfers", 100), ("deposits_open", 10)] {
        assert!(kept[table].len() > rows, "{table} has {} rows", kept[table].len());
    }
    assert_same(&scratch, &kept, "after the server was away");
}
