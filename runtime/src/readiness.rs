//! Readiness of a process, shown at `/ready`, in the log, and as `tidemark_runtime_ready`.
//!
//! Every part of a process that may have to wait has a [`Part`] in the process's [`Readiness`]. The
//! workers and tails of a stage get theirs by `log::WatchedLog`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The end of a wait longer than this is logged, although its reason was not. Shorter ones are usual
/// at every start.
const LASTED: Duration = Duration::from_secs(3);

crate::metrics! {
    /// 1 while the process is ready, 0 while it waits; `/ready` lists what for.
    Gauge READY = "tidemark_runtime_ready" [];
}

/// All parts of a process. Clones are the same registry.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Parts>>);

#[derive(Debug)]
struct Parts {
    /// Time the process began to wait; `None` once it was ready.
    starting: Option<Instant>,
    last_number: u64,
    /// In the order in which they were added.
    all: BTreeMap<u64, State>,
    alarms: BTreeMap<u64, String>,
    details: BTreeMap<u64, Value>,
}

#[derive(Debug)]
struct State {
    name: String,
    /// None: it is ready.
    waits_for: Option<String>,
    /// Time since which it is ready, or waits.
    since: Instant,
    /// `true` if its wait was logged.
    is_logged: bool,
}

impl Default for Parts {
    fn default() -> Self {
        let (all, alarms, details) = Default::default();
        Self { starting: Some(Instant::now()), last_number: 0, all, alarms, details }
    }
}

impl Readiness {
    /// Adds a part that waits. It counts until the [`Part`] is dropped.
    #[must_use]
    pub fn part(&self, name: impl Into<String>, waits_for: impl Into<String>) -> Part {
        let mut parts = self.parts();
        let number = parts.next_number();
        let waits_for = Some(waits_for.into());
        let state = State { name: name.into(), waits_for, since: Instant::now(), is_logged: false };
        parts.all.insert(number, state);
        parts.measure();
        Part { readiness: self.clone(), number }
    }

    /// Raises an alarm for operators, which does not affect readiness, until the [`Alarm`] is
    /// dropped.
    #[must_use]
    pub fn alarm(&self, text: impl Into<String>) -> Alarm {
        let mut parts = self.parts();
        let number = parts.next_number();
        parts.alarms.insert(number, text.into());
        Alarm { readiness: self.clone(), number }
    }

    /// Returns the alarms that need a person, one line each.
    #[must_use]
    pub fn alarms(&self) -> Vec<String> {
        self.parts().alarms.values().cloned().collect()
    }

    /// Adds details of a part, shown on request. None are shown before [`Detail::set`].
    #[must_use]
    pub fn detail(&self) -> Detail {
        Detail { readiness: self.clone(), number: self.parts().next_number() }
    }

    /// Returns the details of all parts, in the order in which they were added.
    #[must_use]
    pub fn details(&self) -> Vec<Value> {
        self.parts().details.values().cloned().collect()
    }

    /// Returns one line for each part that is not ready; empty if the process is ready.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        let line = |state: &State| {
            state.waits_for.as_ref().map(|reason| format!("{}: {reason}", state.name))
        };
        self.parts().all.values().filter_map(line).collect()
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Sets the gauge. Returns the time since the start if everything is ready for the first time.
    fn measure(&mut self) -> Option<Duration> {
        let is_ready = self.all.values().all(|state| state.waits_for.is_none());
        metrics::gauge!(READY).set(f64::from(u8::from(is_ready)));
        if is_ready { self.starting.take().map(|since| since.elapsed()) } else { None }
    }
}

/// Logs that the process is ready for the first time.
fn log_ready(ready_after: Option<Duration>) {
    if let Some(after) = ready_after {
        tracing::info!("ready after {:.1} s", after.as_secs_f64());
    }
}

/// A dependency that a process may wait for.
#[derive(Debug)]
pub struct Part {
    readiness: Readiness,
    number: u64,
}

impl Part {
    /// Sets the part as not ready. A new reason is logged.
    pub fn waiting(&self, reason: impl Into<String>) {
        let reason = reason.into();
        if let Some(Change { name, .. }) = self.set(Some(reason.clone()), true) {
            tracing::warn!(reason, "{name} is waiting");
        }
    }

    /// Sets the part as not ready, and updates the reason without logging.
    pub fn progress(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()), false);
    }

    /// Sets the part as ready. Logged if the wait was logged, or took longer than `LASTED`.
    pub fn ready(&self) {
        let change = self.set(None, false);
        if let Some(Change { name, is_due: true, .. }) = &change {
            tracing::info!("{name} is ready");
        }
        log_ready(change.and_then(|change| change.ready_after));
    }

    /// Sets the state of the part; none if that changes nothing.
    fn set(&self, waits_for: Option<String>, is_logged: bool) -> Option<Change> {
        let mut parts = self.readiness.parts();
        let state = parts.all.get_mut(&self.number)?;
        if state.waits_for == waits_for {
            return None;
        }
        let is_due = state.is_logged || state.since.elapsed() > LASTED;
        if state.waits_for.is_some() != waits_for.is_some() {
            (state.since, state.is_logged) = (Instant::now(), false);
        }
        state.is_logged |= is_logged;
        state.waits_for = waits_for;
        let name = state.name.clone();
        let ready_after = parts.measure();
        Some(Change { name, is_due, ready_after })
    }
}

/// Change of a part, as it is logged.
struct Change {
    name: String,
    /// `true` if the end of its wait gets logged.
    is_due: bool,
    /// Time since the start, if the whole process is ready for the first time.
    ready_after: Option<Duration>,
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut parts = self.readiness.parts();
        parts.all.remove(&self.number);
        let ready_after = parts.measure();
        drop(parts);
        log_ready(ready_after);
    }
}

/// An alarm for operators, raised until this is dropped.
#[derive(Debug)]
pub struct Alarm {
    readiness: Readiness,
    number: u64,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.readiness.parts().alarms.remove(&self.number);
    }
}

/// Details of one part, shown until this is dropped.
#[derive(Debug)]
pub struct Detail {
    readiness: Readiness,
    number: u64,
}

impl Detail {
    /// Replaces the details.
    pub fn set(&self, value: Value) {
        self.readiness.parts().details.insert(self.number, value);
    }
}

impl Drop for Detail {
    fn drop(&mut self) {
        self.readiness.parts().details.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_nothing_waits() {
        let readiness = Readiness::default();
        let log = readiness.part("log", "the broker does not answer");
        let tables = readiness.part("tables", "opening them");
        assert_eq!(
            readiness.waiting_for(),
            ["log: the broker does not answer", "tables: opening them"]
        );
        log.ready();
        tables.waiting("the schema is missing");
        assert_eq!(readiness.waiting_for(), ["tables: the schema is missing"]);
        drop(tables);
        assert!(readiness.waiting_for().is_empty());
        log.waiting("the broker does not answer");
        assert_eq!(readiness.waiting_for(), ["log: the broker does not answer"]);
    }

    /// Short waits at the start get no lines of their own, only one for the process.
    #[test]
    fn only_waits_that_lasted_are_logged() {
        let readiness = Readiness::default();
        let starting = readiness.part("stages", "starting");
        let (log, tables) =
            (readiness.part("log", "opening it"), readiness.part("tables", "opening them"));
        let change = |part: &Part, reason: Option<&str>, is_logged| {
            let change = part.set(reason.map(str::to_owned), is_logged).unwrap();
            (change.is_due, change.ready_after.is_some())
        };
        tables.waiting("the schema is missing");
        assert_eq!(change(&log, None, false), (false, false));
        assert_eq!(change(&tables, None, false), (true, false), "its wait was logged");
        drop(starting);
        assert!(readiness.parts().starting.is_none(), "everything was ready");
        log.progress("asking");
        assert_eq!(change(&log, None, false), (false, false), "the process was ready before");
        log.waiting("the broker does not answer");
        assert_eq!(change(&log, None, false), (true, false));
        log.progress("asking");
        readiness.parts().all.get_mut(&log.number).unwrap().since -= LASTED + LASTED;
        assert_eq!(change(&log, None, false), (true, false), "it lasted");
    }

    #[test]
    fn an_alarm_does_not_make_it_wait() {
        let readiness = Readiness::default();
        let alarm = readiness.alarm("eth is halted");
        assert_eq!(
            (readiness.alarms(), readiness.waiting_for()),
            (vec!["eth is halted".into()], vec![])
        );
        drop(alarm);
        assert!(readiness.alarms().is_empty());
    }

    #[test]
    fn a_detail_is_shown_while_its_part_is_there() {
        let readiness = Readiness::default();
        let (a, b) = (readiness.detail(), readiness.detail());
        assert!(readiness.details().is_empty());
        b.set(1.into());
        a.set(2.into());
        b.set(3.into());
        assert_eq!(readiness.details(), [2, 3]);
        drop(a);
        assert_eq!(readiness.details(), [3]);
    }
}
