//! Runs jobs from both ends of a queue, then those that must be alone, and prints their output.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use xtask::Guard;

use super::count::Counts;
use super::job::{Job, LIMIT};
use crate::fetch::Variables;
use crate::services::Folder;
use crate::shell::{print, say};

/// Maximum number of panics that a failure quotes.
const PANICS_MAX: usize = 5;
/// Maximum number of lines of each panic.
const PANIC_LINES: usize = 4;
/// Maximum number of characters of each line.
const PANIC_WIDTH: usize = 300;

/// End of a process.
#[derive(Debug)]
struct End {
    status: ExitStatus,
    /// `true` if it was killed because it ran for too long.
    is_late: bool,
}

#[derive(Debug)]
pub(super) struct Outcome {
    name: String,
    end: End,
    /// Last line that it printed.
    last: String,
    /// Beginnings of its panics.
    panics: Vec<String>,
    /// `true` if it printed a closing line with counts.
    has_result: bool,
    pub(super) counts: Counts,
    pub(super) took: Duration,
}

impl Outcome {
    /// Reads the counts. Tests without a result count as failed; a failed process counts as one failed test at least.
    fn new(name: String, tests: usize, end: End, text: &str, took: Duration) -> Self {
        let result = Counts::parse(text);
        let mut counts = result.unwrap_or_default();
        counts.failed += tests.saturating_sub(counts.total());
        if !end.status.success() && counts.failed == 0 {
            counts.failed = 1;
        }
        let last = text.trim_end().lines().last().unwrap_or_default().to_owned();
        Self { name, end, last, panics: panics(text), has_result: result.is_some(), counts, took }
    }

    /// Failure of the job, with the beginnings of its panics; `None` if it passed.
    pub(super) fn complaint(&self) -> Option<String> {
        let Counts { failed, skipped, .. } = self.counts;
        match (failed, skipped) {
            (0, 0) => None,
            _ if self.end.is_late => {
                let seconds = self.took.as_secs();
                Some(format!("FAILED {}: killed after {seconds} s, at: {}", self.name, self.last))
            }
            _ if !self.has_result => {
                Some(format!("FAILED {}: {} without a result", self.name, self.end.status))
            }
            _ => {
                let name = &self.name;
                let panics = self.panics.iter().map(|panic| format!("\n  {panic}"));
                let panics: String = panics.collect();
                Some(format!("FAILED {name}: {failed} failed, {skipped} skipped{panics}"))
            }
        }
    }
}

/// The first lines of the first panics, each cut to a maximum width.
fn panics(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_panic = |line: &&str| line.starts_with("thread '") && line.contains(" panicked at ");
    let begins = (0..lines.len()).filter(|at| is_panic(&lines[*at]));
    let cut = |line: &&str| line.chars().take(PANIC_WIDTH).collect::<String>();
    begins
        .take(PANICS_MAX)
        .map(|at| lines[at..].iter().take(PANIC_LINES).map(cut).collect::<Vec<_>>().join(" | "))
        .collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {:.1} s", self.name, self.counts, self.took.as_secs_f32())
    }
}

/// Runs all jobs: one thread takes them from the front, another from the back, and those that must be alone run last,
/// beside `idle`.
///
/// # Errors
/// If a job cannot be started.
pub(super) fn run(
    jobs: Vec<Job<'_>>,
    variables: &Variables,
    folder: &Folder,
    idle: impl FnOnce() + Send,
) -> Result<Vec<Outcome>> {
    let (alone, jobs): (VecDeque<_>, VecDeque<_>) = jobs.into_iter().partition(Job::is_alone);
    let queue =
        Queue { jobs: Mutex::new(jobs), ended: Mutex::default(), variables, folder: folder.path() };
    std::thread::scope(|threads| {
        let front = threads.spawn(|| queue.work("front", VecDeque::pop_front));
        queue.work("back", VecDeque::pop_back)?;
        front.join().map_err(|_| anyhow!("a thread of tests panicked"))?
    })?;
    *lock(&queue.jobs) = alone;
    std::thread::scope(|threads| {
        threads.spawn(idle);
        queue.work("front", VecDeque::pop_front)
    })?;
    Ok(queue.ended.into_inner().unwrap_or_else(PoisonError::into_inner))
}

struct Queue<'a> {
    jobs: Mutex<VecDeque<Job<'a>>>,
    ended: Mutex<Vec<Outcome>>,
    variables: &'a Variables,
    folder: &'a Path,
}

impl<'a> Queue<'a> {
    fn work(&self, side: &str, next: fn(&mut VecDeque<Job<'a>>) -> Option<Job<'a>>) -> Result<()> {
        // The braces release the lock before the job runs.
        while let Some(job) = { next(&mut lock(&self.jobs)) } {
            let name = format!("{} {}", job.binary.name, job.pattern.trim_end_matches("::"));
            let (name, tests) = (name.trim_end().to_owned(), job.tests.len());
            say(&format!("running {name}: {tests} tests"));
            let started = Instant::now();
            let (end, text) =
                self.process(&job, side).with_context(|| format!("cannot run {name}"))?;
            let outcome = Outcome::new(name, tests, end, &text, started.elapsed());
            let mut ended = lock(&self.ended);
            print(&format!("\n{}\n{outcome}", text.trim()));
            ended.push(outcome);
        }
        Ok(())
    }

    /// Runs a job to its end, in the folder of its package, as cargo would.
    fn process(&self, job: &Job<'_>, side: &str) -> Result<(End, String)> {
        let (path, temporary) = (self.folder.join(side), self.folder.join("tmp"));
        std::fs::create_dir_all(&temporary)?;
        let file = File::create(&path)?;
        let mut command = Command::new(&job.binary.program);
        command
            .arg("--exact")
            .args(&job.tests)
            .current_dir(&job.binary.folder)
            .env("CARGO_MANIFEST_DIR", &job.binary.folder)
            .env("TMPDIR", temporary)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(job.variable.clone())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let end = run_limited(&mut command, LIMIT)?;
        Ok((end, String::from_utf8_lossy(&std::fs::read(&path)?).into_owned()))
    }
}

/// Runs a program, and kills it with everything that it started when it does not end in time.
fn run_limited(command: &mut Command, limit: Duration) -> Result<End> {
    let mut child = command.process_group(0).spawn()?;
    let guard = Guard::of_group(child.id())?;
    let (ended, has_ended) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let is_late = has_ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if is_late {
            guard.kill();
        }
        is_late
    });
    let status = child.wait()?;
    drop(ended);
    let is_late = watch.join().map_err(|_| anyhow!("a watch panicked"))?;
    Ok(End { status, is_late })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn outcome(script: &str, tests: usize) -> Outcome {
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let end = End { status: output.status, is_late: false };
        Outcome::new("tests/some".into(), tests, end, &text, Duration::ZERO)
    }

    #[test]
    fn a_binary_that_hangs_is_killed_with_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "(sleep 60; echo alive) & wait"]);
        let (mut output, writer) = std::io::pipe().unwrap();
        let end = run_limited(command.stdout(writer), Duration::from_millis(200)).unwrap();
        // EOF comes once all writers are closed.
        drop(command);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!((end.is_late, text.as_str()), (true, ""));

        let text = "running 2 tests\ntest a ... ok\ntest b has been running for over 60 seconds\n";
        let outcome = Outcome::new("tests/some".into(), 2, end, text, Duration::from_secs(1200));
        assert_eq!(outcome.counts, Counts { passed: 0, failed: 2, skipped: 0 });
        let complaint = "FAILED tests/some: killed after 1200 s, at: test b has been running for over \
                         60 seconds";
        assert_eq!(outcome.complaint().unwrap(), complaint);
    }

    #[test]
    fn a_binary_that_ends_is_not_late() {
        let end = run_limited(Command::new("sh").args(["-c", "exit 3"]), LIMIT).unwrap();
        assert_eq!((end.is_late, end.status.code()), (false, Some(3)));
    }

    #[test]
    fn aborted_binary_fails_with_all_its_tests() {
        let aborted = outcome("echo 'running 3 tests'; kill -ABRT $$", 3);
        assert_eq!(aborted.counts, Counts { passed: 0, failed: 3, skipped: 0 });
        let complaint = aborted.complaint().unwrap();
        assert!(complaint.contains("tests/some: signal: 6"), "{complaint}");
    }

    #[test]
    fn a_failure_repeats_its_panics() {
        let text = "thread 'a' (3) panicked at src/a.rs:1:2:\nleft: 1\nright: 2\n\nnext\n\
                    test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured";
        let failed = outcome(&format!("echo \"{text}\"; exit 101"), 2);
        assert_eq!(
            failed.complaint().unwrap(),
            "FAILED tests/some: 1 failed, 0 skipped\n  \
             thread 'a' (3) panicked at src/a.rs:1:2: | left: 1 | right: 2 | "
        );
    }

    #[test]
    fn tests_that_did_not_run_are_failures() {
        let closing = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured'";
        assert_eq!(outcome(closing, 2).complaint(), None);
        assert_eq!(outcome(closing, 3).counts, Counts { passed: 2, failed: 1, skipped: 0 });
        let odd = outcome(&format!("{closing}; exit 4"), 2);
        assert_eq!(odd.counts, Counts { passed: 2, failed: 1, skipped: 0 });
        assert!(odd.complaint().is_some());
    }
}
