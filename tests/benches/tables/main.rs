//! The tables on both back ends: what the projector writes a second, beside what the same server takes of plain rows, and
//! how long reads take while nothing else happens and while the projector is at full rate. A Cassandra node of its own
//! (heap 1 GiB), the load and the readers share the cores of this machine.
//!
//! The words `embedded` and `cql` choose back ends, none are both. `--orders N` and `--transfers N` say how much goes
//! through; `TIDEMARK_BENCH_PERCENT` shortens the rest. `scale` lets a million orders and two million transfers of one wallet
//! go through within one run, and checks the lists at the end; `rebuild` makes tables again.

mod ceiling;
mod check;
mod feed;
mod lists;
mod rebuild;
mod rows;
mod scale;
mod shop;
mod short;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use store::Store;
use store::cql::{CqlStore, migrate};
use store::embedded::EmbeddedStore;
use tempfile::TempDir;
use testkit::measure::percent;
use testkit::tables::cql;
use xtask::{Server, cassandra};

use shop::Volume;

/// Tables to measure.
struct Tables {
    name: &'static str,
    store: Arc<dyn Store>,
    /// The same, if they are in CQL, and their server.
    cql: Option<(CqlStore, Server)>,
    dir: TempDir,
}

impl Tables {
    fn embedded() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Arc::new(EmbeddedStore::open(dir.path()).expect("tables"));
        Self { name: "embedded", store, cql: None, dir }
    }

    /// On a node that lets whole tables be compared, or on one like those of a shop.
    async fn cql(is_compared: bool) -> Self {
        let start = if is_compared { cassandra::start_scanned } else { cassandra::start };
        let dir = tempfile::tempdir().expect("a folder");
        let lib = std::env::var_os("TIDEMARK_TEST_CASSANDRA_LIB").map(PathBuf::from);
        let lib = lib.expect("no jars of Cassandra: measure by `cargo xtask bench tables`");
        let node = start(&lib, dir.path()).expect("a node");
        let config = cql::config(vec![node.address()], "bench".to_owned());
        migrate(&config).await.expect("a schema");
        let store = CqlStore::open(&config).await.expect("tables");
        Self { name: "CQL", store: Arc::new(store.clone()), cql: Some((store, node)), dir }
    }

    /// Requests to servers so far; none without servers.
    fn requests(&self) -> Option<u64> {
        self.cql.as_ref().map(|(store, _)| store.requests())
    }

    /// Of each table, how often the server warned of deletions that a read stepped over, and the most of them.
    fn tombstone_warnings(&self) -> String {
        let Some((_, node)) = &self.cql else { return "no server".to_owned() };
        let log = std::fs::read_to_string(node.output()).unwrap_or_default();
        let mut tables: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for line in log.lines().filter(|line| line.contains("tombstone")) {
            let after =
                |text: &str| line.split_once(text).and_then(|(_, rest)| rest.split(' ').next());
            let table = tables.entry(after(" FROM ").unwrap_or("?")).or_default();
            let most = after(" live rows and ").and_then(|number| number.parse().ok());
            *table = (table.0 + 1, table.1.max(most.unwrap_or_default()));
        }
        let text = |(table, (count, most)): (&&str, &(usize, usize))| {
            format!("{count} warnings of {table}, up to {most}")
        };
        if tables.is_empty() {
            "none".into()
        } else {
            tables.iter().map(text).collect::<Vec<_>>().join("; ")
        }
    }
}

/// The number after an argument.
fn number(arguments: &[String], name: &str) -> Option<usize> {
    let position = arguments.iter().position(|argument| argument == name)?;
    let number = arguments.get(position + 1).and_then(|text| text.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{name} needs a number")))
}

/// The mean number of programs that were ready to run in the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_scale = is_named("scale");
    let orders = if is_scale { 1_000_000 } else { 40_000 * percent() / 100 };
    let orders = number(&arguments, "--orders").unwrap_or(orders);
    let transfers = if is_scale { 2 * orders } else { orders * 8 / 10 };
    let volume = Volume {
        orders,
        transfers: number(&arguments, "--transfers").unwrap_or(transfers),
        pending: 38_000.min(orders / 4),
    };
    println!(
        "tables: the projector, its tables and what feeds it on the same cores; load {}",
        load()
    );
    for name in ["embedded", "cql"] {
        if is_named(name) || !(is_named("embedded") || is_named("cql")) {
            let tables = if name == "cql" {
                Tables::cql(is_named("rebuild")).await
            } else {
                Tables::embedded()
            };
            match (is_named("rebuild"), is_scale) {
                (true, _) => rebuild::run(&tables, volume).await,
                (false, true) => scale::run(&tables, volume).await,
                (false, false) => short::run(&tables, volume).await,
            }
            println!("    load at the end {}", load());
        }
    }
}
