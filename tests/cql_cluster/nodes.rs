//! Three nodes on this machine.

use std::collections::BTreeSet;
use std::ops::Range;

use schemas::UnixMicros;
use tempfile::TempDir;
use testkit::eventually;
use testkit::process::given_path;
use testkit::tables::{Dump, cql};
use xtask::{Server, cassandra};

use crate::load::Acknowledged;

const NODES: u8 = 3;

pub(crate) struct Nodes {
    pub(crate) servers: Vec<Server>,
    dir: TempDir,
}

impl Nodes {
    pub(crate) fn start() -> Self {
        let lib = given_path("TIDEMARK_TEST_CASSANDRA_LIB");
        let dir = tempfile::tempdir().unwrap();
        let servers = cassandra::start_cluster(&lib, dir.path(), NODES).expect("three nodes");
        Self { servers, dir }
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(Server::address).collect()
    }

    /// Waits until each node sees all others as up.
    pub(crate) async fn all_reach_all(&self, keyspace: &str) {
        for node in self.addresses() {
            let what = format!("{node} to reach the others");
            let reaches = || async { cql::reaches_all(&node, keyspace).await.then_some(()) };
            eventually(&what, reaches).await;
        }
    }

    /// Waits until no node keeps a hint: a write for a node that was down.
    pub(crate) async fn hints_are_delivered(&self) {
        let hints = || {
            let nodes = std::fs::read_dir(self.dir.path()).unwrap().flatten();
            let files = nodes.flat_map(|node| std::fs::read_dir(node.path().join("data/hints")));
            let mut files = files.flatten().flatten();
            files.any(|file| file.path().extension().is_some_and(|end| end == "hints"))
        };
        eventually("the hints to be delivered", || async { (!hints()).then_some(()) }).await;
    }

    /// Rows of one node's replica, while the other nodes are suspended.
    pub(crate) async fn own_rows(&self, number: usize, keyspace: &str) -> Dump {
        let others = || {
            let servers = self.servers.iter().enumerate();
            servers.filter(move |(other, _)| *other != number).map(|(_, server)| server)
        };
        others().for_each(|server| server.pause().unwrap());
        let node = self.servers[number].address();
        let what = format!("{node} to answer alone");
        let rows = eventually(&what, || cql::dump_of_one(&node, keyspace)).await;
        others().for_each(|server| server.resume().unwrap());
        self.all_reach_all(keyspace).await;
        rows
    }
}

/// Lists of ended orders and transfers: their rows are keys without a write time, written at the end.
const WITHOUT_TIMES: [&str; 2] = ["orders_ended", "transfers_ended"];

/// The rows that a node lacks: those written within `excepted`, and the others. Rows without a write time were written
/// with the newest version of their order or transfer.
pub(crate) fn missing(
    own: &Dump,
    all: &Dump,
    written: &Acknowledged,
    excepted: &Range<UnixMicros>,
) -> [Vec<String>; 2] {
    let created = excepted.start.seconds().0..=excepted.end.seconds().0;
    let newest = written.iter().filter(|(_, version)| excepted.contains(version));
    let ended_then: Vec<_> = newest.map(|(row, _)| row.key()).collect();
    let (mut within, mut outside) = (Vec::new(), Vec::new());
    for (table, rows) in all {
        let own: BTreeSet<_> = own[table].iter().collect();
        for row in rows.iter().filter(|row| !own.contains(row)) {
            let is_of_then = if WITHOUT_TIMES.contains(&table.as_str()) {
                ended_then.iter().any(|key| row.contains(key))
            } else {
                numbers(row).any(|number| {
                    excepted.contains(&UnixMicros(number)) || created.contains(&number)
                })
            };
            let list = if is_of_then { &mut within } else { &mut outside };
            list.push(format!("{table}: {row}"));
        }
    }
    [within, outside]
}

/// The large numbers of a row: its write times, and in lists its creation time.
fn numbers(row: &str) -> impl Iterator<Item = i64> {
    let parts = row.split("BigInt(").skip(1);
    parts.filter_map(|part| part.split(')').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use schemas::{OrderId, TransferId};
    use uuid::Uuid;

    use super::*;
    use crate::load::Row;

    #[test]
    fn what_ended_at_the_kill_is_known_by_its_order() {
        let id = |number| OrderId(Uuid::from_u128(number));
        let row = |number| format!("[Some(BigInt(90)), Some({})]", Row::Order(id(number)).key());
        let dump = |rows: &[String]| Dump::from([("orders_ended".to_owned(), rows.to_vec())]);
        let all = dump(&[row(1), row(2), row(3)]);
        let written = Acknowledged::from([
            (Row::Order(id(1)), UnixMicros(100_000_000)),
            (Row::Order(id(2)), UnixMicros(95_000_000)),
            (Row::Transfer(TransferId(3)), UnixMicros(100_000_000)),
        ]);
        let before_the_kill = UnixMicros(99_000_000)..UnixMicros(101_000_000);
        let [forgotten, missed] = missing(&dump(&[]), &all, &written, &before_the_kill);
        assert_eq!(forgotten, [format!("orders_ended: {}", row(1))]);
        assert_eq!(missed, [2, 3].map(|number| format!("orders_ended: {}", row(number))));
        let none = missing(&all, &all, &written, &before_the_kill);
        assert_eq!(none, [Vec::<String>::new(), Vec::new()]);
    }
}
