//! Every store passes the same cases: `embedded::` without a server, `cql::` on one. Another back end is
//! one more line here.

#![expect(clippy::expect_used, reason = "this file is tests from end to end")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use schemas::TransferId;
use store::Store;
use store::embedded::EmbeddedStore;
use testkit::keyspace;
use testkit::store_suite::{self as suite, BackEnd, Opening, Tables};
use tokio::runtime::Runtime;

const EMBEDDED: BackEnd = BackEnd {
    name: "embedded",
    cases: 40,
    open: |dir| -> Opening { Box::pin(async move { embedded(dir) }) },
    renew: |_, _| {},
    remove: |_| {},
};
const BACK_ENDS: &[BackEnd] = &[EMBEDDED, keyspace::CQL];

fn embedded(dir: PathBuf) -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::open(&dir).expect("the tables open"))
}

fn on(back_end: BackEnd, case: impl AsyncFn(&Tables)) {
    on_with_runtime(back_end, |tables, runtime| runtime.block_on(case(tables)));
}

fn on_with_runtime(back_end: BackEnd, case: impl Fn(&Tables, &Runtime)) {
    let runtime = Runtime::new().expect("a runtime starts");
    case(&Tables::new(back_end), &runtime);
}

/// The cases, as tests of one back end.
macro_rules! conformance {
    ($module:ident, $back_end:expr) => {
        mod $module {
            use super::*;

            #[test]
            fn lists_are_those_of_the_reference() {
                on_with_runtime($back_end, suite::lists_are_those_of_the_reference);
            }

            #[test]
            fn the_order_of_changes_does_not_matter() {
                on_with_runtime($back_end, suite::the_order_of_changes_does_not_matter);
            }

            #[test]
            fn rows_read_back_exactly() {
                on($back_end, suite::rows_read_back_exactly);
            }

            #[test]
            fn each_filter_gives_its_rows() {
                on($back_end, suite::each_filter_gives_its_rows);
            }

            #[test]
            fn lists_go_by_time_across_statuses_and_days() {
                on($back_end, suite::lists_go_by_time_across_statuses_and_days);
            }

            #[test]
            fn newer_versions_win_in_any_order() {
                on($back_end, suite::newer_versions_win_in_any_order);
            }

            #[test]
            fn attempts_are_counted_once() {
                on($back_end, suite::attempts_are_counted_once);
            }

            #[test]
            fn deposits_show_the_last_scan_of_their_chain() {
                on($back_end, suite::deposits_show_the_last_scan_of_their_chain);
            }

            #[test]
            fn rows_survive_a_restart() {
                on($back_end, suite::rows_survive_a_restart);
            }

            #[test]
            fn concurrent_calls_all_count() {
                on($back_end, suite::concurrent_calls_all_count);
            }

            #[test]
            fn acknowledged_rows_survive_sigkill() {
                on($back_end, kill_while_writing);
            }
        }
    };
}

conformance!(embedded, EMBEDDED);
conformance!(cql, keyspace::CQL);

/// How often a process is killed.
const KILLS: usize = 6;
/// Before this many rows are told durable, it lives.
const DURABLE_MIN: usize = 40;
const CHILD: &str = "store_conformance::child_writes_until_killed";
const CHILD_TABLES: &str = "tables=";

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already; there is nothing more to do about it then.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What a killed process was told to be durable is there: SIGKILL leaves it no time for anything.
async fn kill_while_writing(tables: &Tables) {
    let mut durable = Vec::new();
    for round in 0..KILLS {
        let name = tables.back_end().name;
        let place = format!("{CHILD_TABLES}{name}:{round}:{}", tables.dir().display());
        let program = std::env::current_exe().expect("this program has a path");
        let mut child = Killed(
            Command::new(program)
                .args(["--exact", CHILD, "--nocapture", &place])
                .stdout(Stdio::piped())
                .spawn()
                .expect("the child starts"),
        );
        let lines = BufReader::new(child.0.stdout.take().expect("its output is ours")).lines();
        let before = durable.len();
        for line in lines {
            let line = line.expect("its output is text");
            if let Some((_, id)) = line.split_once("durable ") {
                durable.push(TransferId(id.parse().expect("an id")));
            }
            if durable.len() == before + DURABLE_MIN + round * 7 {
                child.0.kill().expect("it was alive");
            }
        }
        assert!(durable.len() >= before + DURABLE_MIN, "it ended by itself");
        drop(child);
        let store = tables.open().await;
        for id in &durable {
            let row = store.transfer(*id).await.expect("the tables can be read");
            assert!(row.is_some(), "{id} was durable in round {round} and is gone");
        }
    }
}

/// Not a test by itself: the process that [`kill_while_writing`] starts and kills.
/// Without the argument that names the tables it does nothing.
#[test]
fn child_writes_until_killed() {
    let place = std::env::args().find_map(|arg| arg.strip_prefix(CHILD_TABLES).map(str::to_owned));
    let Some(place) = place else { return };
    let mut parts = place.splitn(3, ':');
    let mut part = || parts.next().expect("name, round and folder");
    let name = part();
    let back_end = BACK_ENDS.iter().find(|one| one.name == name).expect("a back end");
    let round = part().parse().expect("a number");
    let dir = PathBuf::from(part());
    Runtime::new().expect("a runtime starts").block_on(async {
        suite::write_until_killed((back_end.open)(dir).await, round).await;
    });
}
