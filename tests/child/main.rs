//! The process that tests kill: it writes to the back end in its arguments, or runs a processor on it.

mod processor;

use std::path::PathBuf;

use processor::Role;
use testkit::log_suite::on_kafka::CRASH_LAYOUT;
use testkit::log_suite::{append_until_killed, append_until_refused, embedded, on_kafka};
use testkit::observed::Bug;
use testkit::store_suite::write_until_killed;
use testkit::tables::{BackEnd, CQL, EMBEDDED};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tables = |back_end: BackEnd, dir: &str| (back_end.open)(PathBuf::from(dir));
    match arguments[..] {
        ["log", "embedded", dir] => append_until_killed(&*embedded::open(dir.as_ref())),
        ["full log", dir] => {
            let dir = PathBuf::from(dir);
            let append = move || append_until_refused(&*embedded::open(&dir));
            tokio::task::spawn_blocking(append).await.unwrap();
        }
        ["log", "kafka", prefix] => append_until_killed(&*on_kafka::open(prefix)),
        ["tables", "embedded", dir, round] => {
            write_until_killed(tables(EMBEDDED, dir).await, round.parse().unwrap()).await;
        }
        ["tables", "cql", dir, round] => {
            write_until_killed(tables(CQL, dir).await, round.parse().unwrap()).await;
        }
        ["processor", brokers, prefix, member, bug, hours, session_seconds] => {
            let bug = Bug::parse(bug);
            let (hours, session_seconds) =
                (hours.parse().unwrap(), session_seconds.parse().unwrap());
            let role = Role { brokers, prefix, member, bug, hours, session_seconds };
            tokio::task::block_in_place(|| processor::run(&role, CRASH_LAYOUT));
        }
        _ => panic!("{arguments:?}"),
    }
}
