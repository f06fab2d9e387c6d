//! Starts the parts of the process and stops them in order, under one deadline.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Any error that ends a part.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Stop phase of a part. Earlier phases have ended, or timed out, before later ones are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Takes requests and follows chains: stops first.
    Intake,
    /// Turns input into results.
    Process,
    /// Delivers the results: tables and webhooks.
    Deliver,
    /// Serves what the others need until they have stopped.
    Support,
}

const PHASES: [Phase; 4] = [Phase::Intake, Phase::Process, Phase::Deliver, Phase::Support];

/// Errors that end a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part failed; the others were stopped in order.
    #[error("{part} failed: {cause}")]
    Failed { part: String, cause: BoxError },
    /// The parts of a phase that did not stop in time.
    #[error("{0} did not stop in time")]
    Stuck(String),
}

/// The running parts of a process.
#[derive(Debug)]
pub struct Tasks {
    tokens: [CancellationToken; 4],
    sets: [JoinSet<(String, Result<(), BoxError>)>; 4],
    names: [Vec<String>; 4],
    deadline: Duration,
}

impl Tasks {
    /// Makes an empty set of parts, which together get `deadline` to stop.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self {
            tokens: std::array::from_fn(|_| CancellationToken::new()),
            sets: std::array::from_fn(|_| JoinSet::new()),
            names: Default::default(),
            deadline,
        }
    }

    /// Starts an asynchronous part. It returns soon after its token is cancelled; an earlier return,
    /// or an error, stops the process.
    pub fn future<F, R>(&mut self, phase: Phase, name: impl Into<String>, part: F)
    where
        F: FnOnce(CancellationToken) -> R,
        R: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let name = name.into();
        let work = part(self.tokens[phase as usize].clone());
        self.names[phase as usize].push(name.clone());
        self.sets[phase as usize].spawn(async move { (name, work.await) });
    }

    /// Starts a part on a thread of its own, for work that blocks.
    ///
    /// # Errors
    /// The system's error if it cannot create a thread.
    pub fn thread<F>(
        &mut self,
        phase: Phase,
        name: impl Into<String>,
        part: F,
    ) -> std::io::Result<()>
    where
        F: FnOnce(CancellationToken) -> Result<(), BoxError> + Send + 'static,
    {
        let name = name.into();
        let token = self.tokens[phase as usize].clone();
        let (done, ended) = tokio::sync::oneshot::channel();
        std::thread::Builder::new().name(name.clone()).spawn(move || {
            // The receiver is gone only when nobody waits any more.
            drop(done.send(part(token)));
        })?;
        self.names[phase as usize].push(name.clone());
        self.sets[phase as usize].spawn(async move {
            let result = ended.await.unwrap_or_else(|_| Err("panicked".into()));
            (name, result)
        });
        Ok(())
    }

    /// Runs until `stop` completes or a part ends, then stops all parts, phase by phase.
    ///
    /// # Errors
    /// [`Error::Failed`] with the first part that failed or ended early, [`Error::Stuck`] with the
    /// parts that did not stop; of several errors the first.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let [intake, process, deliver, support] = &mut self.sets;
        let early = tokio::select! {
            () = stop => None,
            Some(ended) = intake.join_next() => Some(ended),
            Some(ended) = process.join_next() => Some(ended),
            Some(ended) = deliver.join_next() => Some(ended),
            Some(ended) = support.join_next() => Some(ended),
        };
        let mut first = early.map(|ended| {
            let (part, problem) = self.ended(ended);
            problem.unwrap_or_else(|| Error::Failed { part, cause: "ended early".into() })
        });
        let deadline = tokio::time::Instant::now() + self.deadline;
        for phase in PHASES {
            self.tokens[phase as usize].cancel();
            // Each phase gets half of the remaining time: a part that hangs must leave time for later
            // phases.
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let share = tokio::time::Instant::now() + left / 2;
            loop {
                let next = self.sets[phase as usize].join_next();
                let problem = match tokio::time::timeout_at(share, next).await {
                    Ok(Some(ended)) => self.ended(ended).1,
                    Ok(None) => break,
                    Err(_) => Some(Error::Stuck(self.names[phase as usize].join(", "))),
                };
                let is_stuck = matches!(problem, Some(Error::Stuck(_)));
                first = first.or(problem);
                if is_stuck {
                    break;
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Removes a part that ended. Returns its name and its error.
    fn ended(
        &mut self,
        ended: Result<(String, Result<(), BoxError>), tokio::task::JoinError>,
    ) -> (String, Option<Error>) {
        match ended {
            Ok((part, result)) => {
                self.names.iter_mut().for_each(|names| names.retain(|name| *name != part));
                let problem = result.err().map(|cause| Error::Failed { part: part.clone(), cause });
                (part, problem)
            }
            Err(join) => {
                let part = "a part".to_owned();
                (part.clone(), Some(Error::Failed { part, cause: Box::new(join) }))
            }
        }
    }
}

/// Blocks the calling thread for `time`, or until `stop` is cancelled.
pub fn wait(stop: &CancellationToken, time: Duration) {
    /// Maximum delay until a stop is noticed.
    const STEP: Duration = Duration::from_millis(20);
    let started = std::time::Instant::now();
    while !stop.is_cancelled() {
        let Some(left) = time.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) else {
            return;
        };
        std::thread::park_timeout(left.min(STEP));
    }
}

/// Delays between attempts: each is twice the one before, up to a maximum.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Makes delays that begin with `first` and never exceed `max`.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// Returns the time to wait now.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.max);
        delay
    }

    /// Returns to the first delay, after an attempt that succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[tokio::test]
    async fn phases_stop_in_order() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Tasks::new(Duration::from_secs(5));
        for phase in [Phase::Deliver, Phase::Intake, Phase::Support, Phase::Process] {
            let order = order.clone();
            tasks.future(phase, format!("{phase:?}"), move |stop| async move {
                stop.cancelled().await;
                order.lock().unwrap().push(phase);
                Ok(())
            });
        }
        tasks.run(async {}).await.unwrap();
        assert_eq!(*order.lock().unwrap(), PHASES);
    }

    #[tokio::test]
    async fn a_failing_part_stops_the_others_and_is_named() {
        let mut tasks = Tasks::new(Duration::from_secs(5));
        tasks.future(Phase::Deliver, "waits", |stop| async move {
            stop.cancelled().await;
            Ok(())
        });
        tasks.thread(Phase::Process, "breaks", |_| Err("disk full".into())).unwrap();
        let error = tasks.run(std::future::pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "breaks failed: disk full");
    }

    #[tokio::test]
    async fn a_part_that_ends_early_is_named() {
        let mut tasks = Tasks::new(Duration::from_secs(5));
        tasks.future(Phase::Process, "gives up", |_| std::future::ready(Ok(())));
        let error = tasks.run(std::future::pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "gives up failed: ended early");
        assert!(matches!(error, Error::Failed { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_part_leaves_time_for_later_phases() {
        let mut tasks = Tasks::new(Duration::from_secs(20));
        tasks.future(Phase::Intake, "hangs", |_| std::future::pending());
        tasks.future(Phase::Intake, "stops", |_| std::future::ready(Ok(())));
        let drained = Arc::new(Mutex::new(false));
        let done = drained.clone();
        tasks.future(Phase::Deliver, "drains", |stop| async move {
            stop.cancelled().await;
            // No condition: the clock is paused, so this wait takes no real time.
            tokio::time::timeout(Duration::from_secs(2), std::future::pending::<()>()).await.ok();
            *done.lock().unwrap() = true;
            Ok(())
        });
        let error = tasks.run(std::future::pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "stops failed: ended early");
        assert!(*drained.lock().unwrap(), "a later phase had time to finish");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_part_is_named_after_the_deadline() {
        let mut tasks = Tasks::new(Duration::from_secs(5));
        tasks.future(Phase::Process, "hangs", |_| std::future::pending());
        let error = tasks.run(async {}).await.unwrap_err();
        assert_eq!(error.to_string(), "hangs did not stop in time");
        assert!(matches!(error, Error::Stuck(_)));
    }
}
