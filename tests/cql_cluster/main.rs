//! Three Cassandra nodes with three copies of each row: one hangs, another is killed and restarted.

mod figures;
mod load;
mod nodes;

use std::time::{Duration, Instant};

use figures::Figures;
use load::Load;
use nodes::Nodes;
use runtime::clock::{Clock as _, SystemClock};
use schemas::UnixMicros;
use store::config::CqlConfig;
use store::cql::{CqlStore, migrate};
use testkit::tables::{BackEnd, CQL_REUSED, cql};
use testkit::{eventually, store_suite};

/// Duration of a measurement while a node is down, longer than driver and servers take to avoid it.
const AWAY: Duration = Duration::from_secs(22);
/// Time in which only the projector writes.
const UNREAD: Duration = Duration::from_secs(8);
/// Warm-up before the first measurement, until lists are full.
const WARM: Duration = Duration::from_secs(10);
/// Timeout of a read (`READ_TIMEOUT` in `store/src/cql/statement.rs`). Driver and servers avoid a hanging
/// node only after several times as long, so a caller with an earlier reply has not waited for it. The exact times
/// depend on the machine; they are only printed.
const NODE_WAITED_FOR: Duration = Duration::from_secs(2);
/// Time before a kill whose writes the killed node may lack, in microseconds: when it restarts, it replays its commit
/// log up to the last mark, made every 100 ms. Later writes are on the two other nodes, without a hint.
const FORGOTTEN_MICROS: i64 = 2_000_000;

#[test]
fn one_node_hangs_and_one_is_killed() {
    let begun = Instant::now();
    let mut nodes = Nodes::start();
    println!("three nodes listen after {:.1?}", begun.elapsed());
    cql::use_nodes(nodes.addresses());
    let config = cql::config(nodes.addresses(), "tidemark".into());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        // On new nodes a schema change may time out before they agree.
        let made = || async { migrate(&config).await.ok() };
        eventually("the tables to be made", made).await;
        nodes.all_reach_all(&config.keyspace).await;
    });
    println!("each reaches each after {:.1?}", begun.elapsed());
    store_suite::run_on_copies(BackEnd { cases: 1, ..CQL_REUSED });
    println!("the store suite passed after {:.1?}", begun.elapsed());
    runtime.block_on(away(&mut nodes, &config));
    println!("all was done after {:.1?}", begun.elapsed());
}

async fn away(nodes: &mut Nodes, config: &CqlConfig) {
    let open = async || CqlStore::open(config).await.unwrap();
    let api = open().await;
    let load = Load::start(open().await, api.clone());
    measure("with all nodes", &load, WARM).await;
    hang(nodes, config, &load).await;
    let killed_at = kill(nodes, &load).await;
    come_back(nodes, config, load, &api, killed_at).await;
}

/// Measures the load for this length of time.
async fn measure(what: &'static str, load: &Load, length: Duration) -> Figures {
    let from = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    while from.elapsed() < length {
        ticks.tick().await;
    }
    let figures = Figures::of(what, &load.samples(), from, Instant::now());
    println!("{figures}");
    figures
}

/// Checks that no caller waited for the lost node, and writes continued.
fn assert_endured(figures: &Figures) {
    assert!(figures.progress.iter().all(|rows| *rows > 0), "{:?}", figures.progress);
    assert!(figures.are_within(NODE_WAITED_FOR), "callers waited for the node: {figures}");
}

async fn hang(nodes: &Nodes, config: &CqlConfig, load: &Load) {
    nodes.servers[1].pause().unwrap();
    let hung = measure("one node hangs", load, AWAY).await;
    nodes.servers[1].resume().unwrap();
    nodes.all_reach_all(&config.keyspace).await;
    measure("it answers again", load, AWAY / 4).await;
    assert_endured(&hung);
}

/// Kills one node under load; returns the time of the kill.
async fn kill(nodes: &mut Nodes, load: &Load) -> UnixMicros {
    nodes.servers[2].kill();
    let killed_at = SystemClock.now();
    assert_endured(&measure("one node is killed", load, AWAY).await);
    killed_at
}

/// Restarts the killed node. Reads are stopped before, so that hints restore the missed writes, not read repair.
async fn come_back(
    nodes: &mut Nodes,
    config: &CqlConfig,
    load: Load,
    api: &CqlStore,
    killed_at: UnixMicros,
) {
    load.stop_api();
    measure("only the projector writes", &load, UNREAD).await;
    tokio::task::block_in_place(|| nodes.servers[2].restart()).unwrap();
    nodes.all_reach_all(&config.keyspace).await;
    let (acknowledged, failures) = load.stop().await;
    assert!(failures.is_empty(), "{} calls failed: {failures:#?}", failures.len());
    let returned = Instant::now();
    nodes.hints_are_delivered().await;
    println!("no hint is left {:.1?} after the last write", returned.elapsed());
    let own = nodes.own_rows(2, &config.keyspace).await;

    assert_eq!(load::lost(api, &acknowledged).await, []);
    println!("{} rows were acknowledged, and are there in that version", acknowledged.len());
    let all = cql::dump(&nodes.addresses(), &config.keyspace).await;
    let before = UnixMicros(killed_at.0 - FORGOTTEN_MICROS)..killed_at;
    let [forgotten, missed] = nodes::missing(&own, &all, &acknowledged, &before);
    println!(
        "of {} rows in all tables the node that was away has all but {} from the moment before it was killed",
        all.values().map(Vec::len).sum::<usize>(),
        forgotten.len(),
    );
    assert_eq!(missed, [""; 0], "the node that was away missed rows");
}
