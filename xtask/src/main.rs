//! The only list of commands of this project: `cargo xtask <command>`.

mod bench;
mod check;
mod services;
mod shell;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "cargo xtask <command>

  test [FILTER]   fetch what the tests need, run the checks, then every test; fails if one is skipped
  check           format, clippy and docs with warnings denied, the tidy test
  services [run]  fetch what the tests need and say where it is; `run` starts Kafka and Cassandra too,
                  until the end of standard input
  bench [NAME]    measure: machine, pipeline, api, process, kafka (default: all)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test"] => test::run(None),
        ["test", filter] => test::run(Some(filter)),
        ["check"] => check::run(),
        ["services"] => services::show(false),
        ["services", "run"] => services::show(true),
        ["bench"] => bench::run(None),
        ["bench", name] => bench::run(Some(name)),
        _ => {
            shell::say(USAGE);
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shell::say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
