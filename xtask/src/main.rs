//! The only list of commands of this project: `cargo xtask <command>`.

mod bench;
mod check;
mod fetch;
mod need;
mod release;
mod services;
mod shell;
mod soak;
mod test;
mod tools;

use std::process::ExitCode;

use test::{Nodes, Scope};

const USAGE: &str = "cargo xtask <command>

  test            fetch what the tests need, run the checks, then every test; fails if one is skipped
  test --fast     tests that need no server, network or other language: no JDK, Maven, Node.js, Python
  test FILTER     tests whose names contain FILTER, with what they need
  test cql --nodes HOST:PORT,...
                  what every store must do, on CQL servers that run already, such as ScyllaDB; it makes
                  keyspaces of its own there and drops them, with a copy on each of up to three given nodes
  soak SEED       random cases of this seed, of the next one, and so on until one fails
  check           format, clippy and docs with warnings denied, deny.toml, the tidy test
  advisories      known defects of dependencies, by the advisory database of today
  services [run]  fetch what the tests need and say where it is; `run` starts Kafka and Cassandra too,
                  until the end of standard input
  bench [NAME [ARGUMENT...]]
                  measure: machine, pipeline, webhooks, api, process, reconcile, kafka (default: all);
                  the arguments are the measurement's own
  release VERSION [--tested]
                  docs/internals/releasing.md: check, test, freeze the schemas, commit, tag, pack; no push
  pack            build and pack the tag at HEAD for this machine's kind";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test"] => test::run(Scope::All),
        ["test", "--fast"] => test::run(Scope::Fast),
        ["test", filter] if !filter.starts_with('-') => test::run(Scope::Matching(filter)),
        ["test", "cql", "--nodes", nodes] => {
            Nodes::parse(nodes).and_then(|nodes| test::run(Scope::Cql(&nodes)))
        }
        ["soak", seed] => soak::run(seed).map(|()| true),
        ["check"] => check::run().map(|()| true),
        ["advisories"] => check::advisories().map(|()| true),
        ["services"] => services::show(false).map(|()| true),
        ["services", "run"] => services::show(true).map(|()| true),
        ["bench"] => bench::run(None, &[]).map(|()| true),
        ["bench", name, arguments @ ..] => bench::run(Some(name), arguments).map(|()| true),
        ["release", version] => release::run(version, false).map(|()| true),
        ["release", version, "--tested"] => release::run(version, true).map(|()| true),
        ["pack"] => release::pack().map(|()| true),
        _ => {
            shell::say(USAGE);
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            shell::say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
