//! Jobs: tests that run together, their needs, and their load on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Scope;
use super::build::Binary;
use crate::need::Need;

/// Maximum duration of a job. The longest takes some minutes on a busy machine: a job that reaches the limit hangs.
pub(super) const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Prefix of the tests of every back end; those of the tables in CQL have `cql` in their names.
const STORE: &str = "tests::back_ends::conformance::";
/// Variable with the number of tests of a binary that run at once.
const THREADS: &str = "RUST_TEST_THREADS";
/// Minimum number of tests that run at once in each of [`MANY_AT_ONCE`].
const THREADS_MIN: usize = 6;
/// Prefix of the binaries of the package `tests`.
const TESTS: &str = "tests/";
/// Rank of the crates' own binaries that take minutes ([`LONG`]): after the longest parts.
const LONG_RANK: usize = 3;

/// Load on the machine. The first two run side by side, so that one computes while the other waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    /// Mostly waits: for time-outs, restarts and other processes.
    Waiting,
    /// Mostly computes.
    Computing,
    /// Measures how long callers wait. It runs after all other jobs, whose load would change the result.
    Alone,
}

/// Tests of one binary of `tests/` with the same needs: the binary, a pattern in the names of the tests, their needs
/// and their load. A test belongs to the first part that fits.
type Part = (&'static str, &'static str, &'static [Need], Load);

/// Parts of each load, the longest first. A test of `tests/` in none of them gets every need.
const PARTS: [Part; 31] = {
    use Load::{Alone, Computing, Waiting};
    use Need::{Anvil, Browser, Clients, Jars, Promtool, Python, Schemathesis, Servers};
    [
        ("tidy", "", &[], Computing),
        ("machine_properties", "", &[], Computing),
        ("back_ends", "conformance::", &[Servers], Computing),
        ("black_box", "distributed::", &[Anvil, Jars, Python, Servers], Waiting),
        ("page", "anvil", &[Anvil, Browser], Waiting),
        ("page", "", &[Browser], Waiting),
        ("outage", "", &[Anvil, Jars, Python], Waiting),
        ("kafka_crash", "outage::", &[Jars, Servers], Waiting),
        ("black_box", "halts::", &[Servers], Waiting),
        ("black_box", "rights::", &[Anvil, Jars, Servers], Waiting),
        ("log_kafka", "", &[Jars, Servers], Waiting),
        ("kafka_crash", "broker::", &[Jars], Waiting),
        ("black_box", "webhook_crash::distributed", &[Servers], Waiting),
        ("kafka_crash", "webhooks::", &[Jars], Waiting),
        ("back_ends", "cql_tables::", &[Servers], Waiting),
        ("back_ends", "repair::", &[Servers], Waiting),
        ("back_ends", "rebuild::", &[Servers], Waiting),
        ("kafka_crash", "kill::", &[Servers], Computing),
        ("black_box", "webhook_crash::embedded", &[Python], Computing),
        ("black_box", "chains::", &[Anvil], Computing),
        ("black_box", "crash::", &[Python], Computing),
        ("black_box", "consumers::", &[Clients, Jars, Servers], Computing),
        ("black_box", "scenario::embedded", &[Anvil, Python], Computing),
        ("black_box", "guide::", &[Python], Waiting),
        ("black_box", "schemathesis::", &[Schemathesis], Computing),
        ("black_box", "signature::", &[Python], Computing),
        ("black_box", "snippets::", &[Clients, Jars, Python], Computing),
        ("embedded", "tail::", &[Python], Computing),
        ("embedded", "monitoring::rules_fire", &[Promtool], Computing),
        ("embedded", "", &[], Computing),
        ("cql_cluster", "", &[Jars], Alone),
    ]
};

/// Binary and modules of the tests that run a second time, on the tables in CQL: those that read lists. Reads of rows
/// by id are covered on each back end by `testkit`'s suite of the store.
const ON_CQL: (&str, [&str; 5]) =
    ("api/http", ["admin::", "changes::", "forgotten::", "lists::", "operators::"]);
const ON_CQL_NEEDS: [Need; 2] = [Need::Jars, Need::Servers];
/// Variable set for the tests of [`ON_CQL`].
const TABLES: (&str, &str) = ("TIDEMARK_TEST_TABLES", "cql");

/// Binaries with tests that mostly wait, independently of each other: each runs [`THREADS_MIN`] of them at once also on
/// a machine with fewer processors.
const MANY_AT_ONCE: [&str; 5] =
    ["tests/embedded", "ingest/follow", "ingest/lib", "log/lib", "api/http"];

/// Binaries of crates that take minutes.
const LONG: [&str; 2] = ["ingest/lib", "api/http"];

/// Tests of one binary that one process runs.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) binary: &'a Binary,
    /// Pattern that distinguishes it from the binary's other jobs.
    pub(super) pattern: &'static str,
    pub(super) tests: Vec<String>,
    pub(super) needs: &'static [Need],
    /// Variable set for it beside those of all jobs.
    pub(super) variable: Option<(&'static str, String)>,
    load: Load,
    /// Position among the jobs of its load: a smaller one begins first.
    rank: usize,
}

impl Job<'_> {
    /// `true` if no other job may run meanwhile.
    pub(super) fn is_alone(&self) -> bool {
        self.load == Load::Alone
    }
}

impl Scope<'_> {
    /// `true` if a test with this full name and these needs runs.
    fn runs(self, name: &str, needs: &[Need]) -> bool {
        match self {
            Self::All => true,
            Self::Fast => needs.is_empty(),
            Self::Matching(filter) => name.contains(filter),
            Self::Cql(_) => name.starts_with(STORE) && name.contains("cql"),
        }
    }

    /// `true` if a test of [`ON_CQL`] runs a second time. With a filter only if the filter contains `cql`, so that no
    /// other filter starts the servers for these tests.
    fn runs_on_cql(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Matching(filter) => {
                filter.contains("cql") && format!("cql::{name}").contains(filter)
            }
            Self::Fast | Self::Cql(_) => false,
        }
    }
}

/// All jobs with a test to run, in an order to take them from both ends: the waiting ones from the front,
/// the computing ones from the back.
///
/// # Errors
/// If [`PARTS`], [`ON_CQL`] or [`MANY_AT_ONCE`] name tests that are not there, or no test fits a filter.
pub(super) fn plan<'a>(binaries: &'a [Binary], scope: Scope<'_>) -> Result<Vec<Job<'a>>> {
    let mut jobs: BTreeMap<(&str, usize), Job<'a>> = BTreeMap::new();
    let mut seen = [false; PARTS.len()];
    let mut seen_on_cql = BTreeSet::new();
    for binary in binaries {
        for test in binary.tests()? {
            let place = place(&binary.name, &test);
            if let Some(seen) = seen.get_mut(place) {
                *seen = true;
            }
            let (pattern, needs, load) = match PARTS.get(place) {
                Some(&(_, pattern, needs, load)) => (pattern, needs, load),
                None if binary.name.starts_with(TESTS) => ("", &Need::ALL[..], Load::Waiting),
                None => ("", &[][..], Load::Computing),
            };
            let name = full_name(&binary.name, &test);
            if let Some(module) = module_on_cql(&binary.name, &test) {
                seen_on_cql.insert(module);
                if scope.runs_on_cql(&name) {
                    let job = Job {
                        binary,
                        pattern: "on CQL",
                        tests: Vec::new(),
                        needs: &ON_CQL_NEEDS,
                        variable: Some((TABLES.0, TABLES.1.to_owned())),
                        load: Load::Computing,
                        rank: 0,
                    };
                    let jobs = jobs.entry((&binary.name, PARTS.len() + 1)).or_insert(job);
                    jobs.tests.push(test.clone());
                }
            }
            if scope.runs(&name, needs) {
                let (tests, is_many) = (Vec::new(), MANY_AT_ONCE.contains(&&*binary.name));
                let variable = is_many.then(threads).flatten();
                let rank = if LONG.contains(&&*binary.name) { LONG_RANK } else { place };
                let job = Job { binary, pattern, tests, needs, variable, load, rank };
                jobs.entry((&binary.name, place)).or_insert(job).tests.push(test);
            }
        }
    }
    ensure!(
        seen_on_cql.len() == ON_CQL.1.len(),
        "xtask/src/test/job.rs names modules of {} that have no test: there are {seen_on_cql:?}",
        ON_CQL.0,
    );
    let gone = MANY_AT_ONCE.iter().find(|name| binaries.iter().all(|binary| binary.name != **name));
    ensure!(gone.is_none(), "xtask/src/test/job.rs names {gone:?}, which has no tests");
    let stale = PARTS.iter().zip(seen).find(|(_, seen)| !seen);
    ensure!(
        stale.is_none(),
        "the parts of xtask/src/test/job.rs name tests that are not there: {} in {}",
        stale.map_or("", |((_, pattern, ..), _)| pattern),
        stale.map_or("", |((binary, ..), _)| binary),
    );
    if let Scope::Matching(filter) = scope {
        ensure!(!jobs.is_empty(), "there is no test whose name contains {filter}");
    }
    let mut jobs: Vec<_> = jobs.into_values().collect();
    jobs.sort_by_key(|job| match job.load {
        Load::Waiting | Load::Alone => (job.load, job.rank),
        Load::Computing => (job.load, usize::MAX - job.rank),
    });
    Ok(jobs)
}

/// Variable for more tests at once; `None` if a developer has set it, or processors suffice.
fn threads() -> Option<(&'static str, String)> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let is_set = std::env::var_os(THREADS).is_some();
    (!is_set && processors < THREADS_MIN).then(|| (THREADS, THREADS_MIN.to_string()))
}

/// The name that a filter is compared with: that of the test, after its binary's (`black_box::crash::…`).
fn full_name(binary: &str, test: &str) -> String {
    format!("{}::{test}", binary.replace('/', "::"))
}

/// The module of [`ON_CQL`] that a test is in.
fn module_on_cql(binary: &str, test: &str) -> Option<&'static str> {
    let (of, modules) = ON_CQL;
    let is_in = |module: &&&str| binary == of && test.starts_with(**module);
    modules.iter().find(is_in).copied()
}

/// The index of the first part that fits; `PARTS.len()` if none does.
fn place(binary: &str, test: &str) -> usize {
    let binary = binary.strip_prefix(TESTS);
    let fits = |(of, pattern, ..): &Part| binary == Some(of) && test.contains(pattern);
    PARTS.iter().position(fits).unwrap_or(PARTS.len())
}
