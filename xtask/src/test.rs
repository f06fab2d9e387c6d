//! `cargo xtask test`: builds everything once, then runs the tests; one that is skipped is a failure.

mod build;
mod count;
mod job;
mod nodes;
mod queue;

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, anyhow};

use crate::check;
use crate::fetch::{self, Variables};
use crate::need::Need;
use crate::services::{CQL, Folder, Running};
use crate::shell::{self, print};
use crate::tools::{self, Kit};

pub(crate) use build::release;
pub(crate) use nodes::Nodes;

use build::Built;
use count::Counts;

/// Number of random cases for each property in a fast run.
const FAST_CASES: &str = "500";
/// The seed of random cases: each run has the same ones. `cargo xtask soak SEED` draws others.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// Selection of tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// The checks, and every test.
    All,
    /// Tests that need no server, no network and no other language, with fewer random cases.
    Fast,
    /// Tests whose full name contains this. The full name begins with the crate and the binary.
    Matching(&'a str),
    /// Conformance suite of stores, on CQL servers that run already.
    Cql(&'a Nodes),
}

/// Runs the tests. The last line on standard output has the counts.
///
/// # Returns
/// `true` if all passed, none was skipped and at least one ran.
pub(crate) fn run(scope: Scope<'_>) -> Result<bool> {
    let started = Instant::now();
    let (built, mut variables) = prepare(scope)?;
    let preparation = started.elapsed();
    let jobs = job::plan(&built.binaries, scope)?;
    let mut needs: BTreeSet<Need> = jobs.iter().flat_map(|job| job.needs.iter().copied()).collect();
    if needs.contains(&Need::Servers) {
        needs.insert(Need::Jars);
    }
    if let Scope::Matching(_) = scope
        && !needs.is_empty()
    {
        tools::check(Kit::Services)?;
        variables = fetch::fetch(&needs)?;
    }
    let folder = Folder::create()?;
    if let Scope::Cql(nodes) = scope {
        needs.clear();
        variables.push((CQL, nodes.to_string()));
        // Each test makes tables, and several nodes need seconds to agree about such changes.
        variables.push(("RUST_TEST_THREADS", "1".to_owned()));
    }
    let running =
        needs.contains(&Need::Servers).then(|| Running::start(&variables, &folder)).transpose()?;
    variables.extend(running.iter().flat_map(Running::variables));
    variables.push(("TIDEMARK_TEST_EXECUTABLE", built.executable.display().to_string()));
    let examples = built.executable.with_file_name("examples");
    variables.push(("TIDEMARK_TEST_EXAMPLES", examples.display().to_string()));
    variables.push((SEED.0, SEED.1.to_owned()));
    if scope == Scope::Fast {
        variables.push(("TIDEMARK_TEST_CASES", FAST_CASES.to_owned()));
    }
    let mut lints = Ok(());
    let mut outcomes = queue::run(jobs, &variables, &folder, || {
        if scope == Scope::All {
            lints = check::lints(shell::idle_cargo);
        }
    })?;
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    print(&format!("\nchecks, downloads and build: {:.1} s", preparation.as_secs_f32()));
    outcomes.iter().for_each(|outcome| print(&outcome.to_string()));
    let counts: Counts = outcomes.iter().map(|outcome| outcome.counts).sum();
    for line in outcomes.iter().filter_map(queue::Outcome::complaint) {
        print(&line);
    }
    print(&counts.to_string());
    lints?;
    Ok(counts.is_success())
}

/// Builds the tests. For [`Scope::All`], also runs the quick checks, and meanwhile fetches the needs of all tests;
/// clippy and docs run later, beside the last tests.
fn prepare(scope: Scope<'_>) -> Result<(Built, Variables)> {
    if let Scope::Cql(nodes) = scope {
        nodes.reach()?;
    }
    if scope != Scope::All {
        tools::check(Kit::Build)?;
        return Ok((build::all()?, Variables::new()));
    }
    tools::check(Kit::Services)?;
    std::thread::scope(|threads| {
        let fetching = threads.spawn(|| {
            fetch::fetch(&Need::ALL.into()).inspect_err(|error| shell::say(&format!("{error:#}")))
        });
        check::format()?;
        check::dependencies()?;
        let built = build::all()?;
        let fetched = fetching.join().map_err(|_| anyhow!("the downloads panicked"))??;
        Ok((built, fetched))
    })
}
