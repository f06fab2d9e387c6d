//! Every test, with what it needs; a test that is skipped is a failure.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::check;
use crate::services::{self, Running};
use crate::shell::{self, cargo};

/// What the test runners said in their closing lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    /// Adds a closing line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let Some(Ok(count)) = words.next().map(str::parse::<u64>) else { continue };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// Runs the checks and then all tests, or with a filter those whose names contain it.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let fetched = services::fetch()?;
    if filter.is_none() {
        check::lints()?;
    }
    let running = Running::start(&fetched)?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if let Some(filter) = filter {
        command.arg(filter);
    }
    command.envs(fetched).envs(running.variables()).stdout(Stdio::piped());
    shell::say("$ cargo test --workspace --no-fail-fast");
    let mut child = command.spawn().context("cannot run cargo test")?;
    let mut counts = Counts::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        counts.add(&line);
        print(&line);
    }
    let status = child.wait()?;
    print(&format!(
        "{} passed, {} failed, {} skipped",
        counts.passed, counts.failed, counts.ignored
    ));
    ensure!(status.success(), "cargo test ended with {status}");
    ensure!(counts.failed == 0, "{} tests failed", counts.failed);
    ensure!(counts.ignored == 0, "{} tests were skipped: none may be", counts.ignored);
    ensure!(counts.passed > 0, "no test ran");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a command line tool")]
fn print(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s");
        counts
            .add("test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 7 filtered out");
        counts.add("test some::test ... ok");
        assert_eq!(counts, Counts { passed: 5, failed: 5, ignored: 1 });
    }
}
