//! Admission of requests, so that no host delays another.
//!
//! Each host has a queue in which its jobs wait; the limit of its requests under way grows with its answers.
//! A host whose last request was answered soon may use all free requests up to that limit. All others, new, slow and
//! failing, share half of the requests. A job is given back, to be deferred, if it waits long for such a host, if its
//! queue is full, or if the breaker is open. Manual jobs, which an operator asked for, go first, and pass an open
//! breaker one at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use schemas::{AttemptOutcome, UnixMicros};

use super::breaker::Breaker;
use super::schedule::Reason;

const HOUR_MICROS: i64 = 3600 * 1_000_000;
/// Time after which an answer is slow, and a job that waits for a slow host is given back, in microseconds. It is well
/// below the default time-out of an attempt.
const LONG_MICROS: i64 = 1_000_000;
/// Interval of the search for jobs that have waited too long.
const SEARCHED_EVERY_MICROS: i64 = 100_000;
/// Maximum number of waiting jobs. When a job is queued, the number that wait for its host must not exceed the room
/// left for all hosts.
const WAITING_MAX: usize = 8192;
/// Maximum number of manual jobs of a host that go first. Further ones wait by age like automatic jobs, so that a
/// resend of a day's events does not delay the host's other events.
const MANUAL_MAX: usize = 16;
/// Maximum number of remembered hosts; beyond it, idle ones are forgotten.
const HOSTS_MAX: usize = 20_000;

/// Permit for a request under way; given back with [`Hosts::ended`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    host: Arc<str>,
    since: UnixMicros,
}

/// Position of a job in its queue: up to [`MANUAL_MAX`] manual jobs first, then by the age of the event, so that
/// deferred jobs are not overtaken for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Priority {
    is_automatic: bool,
    emitted_at: UnixMicros,
    arrival: u64,
}

#[derive(Debug)]
struct Host<T> {
    /// `true` if its last request was answered within [`LONG_MICROS`].
    is_quick: bool,
    /// Time of its last quick answer.
    quick_at: Option<UnixMicros>,
    /// Time of its last answer.
    answered_at: Option<UnixMicros>,
    running: usize,
    /// Maximum number under way: 1 at first, one more for each answer while all of it is used or jobs wait, halved by
    /// each failure, at least 1.
    limit: usize,
    breaker: Breaker,
    /// Waiting jobs, each with the start of its wait. While the breaker is open, at most one job waits: a probe or a
    /// manual job.
    waiting: BTreeMap<Priority, (UnixMicros, T)>,
    /// Sequence number of its last start.
    turn: u64,
}

impl<T> Host<T> {
    fn new(turn: u64) -> Self {
        Self {
            is_quick: false,
            quick_at: None,
            answered_at: None,
            running: 0,
            limit: 1,
            breaker: Breaker::default(),
            waiting: BTreeMap::new(),
            turn,
        }
    }

    fn may_start(&self) -> bool {
        self.running < self.limit && !self.waiting.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    /// Number of jobs that go first, up to [`MANUAL_MAX`].
    fn manual(&self) -> usize {
        let first = self.waiting.keys().take(MANUAL_MAX);
        first.take_while(|priority| !priority.is_automatic).count()
    }

    /// `true` if it is not quick, and has not been for [`LONG_MICROS`]: one slow answer among many changes nothing.
    fn is_slow(&self, now: UnixMicros) -> bool {
        !self.is_quick && self.quick_at.is_none_or(|at| is_long(at, now))
    }

    /// `true` if the breaker lets a job through. An open one lets one at a time through: a manual job or a due probe.
    fn admits(&self, is_manual: bool, now: UnixMicros) -> bool {
        let may_probe = is_manual || self.breaker.may_probe(now);
        !self.breaker.is_open() || may_probe && self.is_idle()
    }

    fn ended(
        &mut self,
        outcome: Option<AttemptOutcome>,
        was_quick: bool,
        limit_max: usize,
        now: UnixMicros,
    ) {
        use AttemptOutcome as Outcome;
        let is_wanted = self.running >= self.limit || !self.waiting.is_empty();
        self.running = self.running.saturating_sub(1);
        match outcome {
            Some(Outcome::Delivered | Outcome::Status | Outcome::Protocol) => {
                self.breaker.answered();
                self.answered_at = Some(now);
                self.is_quick = was_quick;
                if was_quick {
                    self.quick_at = Some(now);
                }
                if is_wanted {
                    self.limit = (self.limit + 1).min(limit_max);
                }
            }
            Some(Outcome::Timeout | Outcome::Connect) => {
                self.breaker.failed(now);
                self.is_quick = false;
                self.limit = (self.limit / 2).max(1);
            }
            // No request was made, or it was cancelled: no evidence about the host.
            Some(
                Outcome::Forbidden | Outcome::Superseded | Outcome::CircuitOpen | Outcome::Local,
            )
            | None => {}
        }
    }

    /// Removes and returns the jobs whose start of wait `is_out` selects.
    fn take(&mut self, is_out: impl Fn(UnixMicros) -> bool) -> Vec<(T, Reason)> {
        let reason = if self.breaker.is_open() { Reason::Down } else { Reason::Busy };
        let out = self.waiting.extract_if(.., |_, (since, _)| is_out(*since));
        out.map(|(_, (_, job))| (job, reason)).collect()
    }
}

/// Requests to the quick hosts, or to all others.
#[derive(Debug, Default)]
struct Share {
    /// Requests under way.
    running: usize,
    /// Hosts that may start a job, the one with the earliest last start first.
    ready: BTreeSet<(u64, Arc<str>)>,
}

/// All hosts, and what they share.
#[derive(Debug)]
pub(crate) struct Hosts<T> {
    running_max: usize,
    limit_max: usize,
    hosts: HashMap<Arc<str>, Host<T>>,
    /// Shares of the other hosts and of the quick ones, indexed by `is_quick`.
    shares: [Share; 2],
    waiting: usize,
    searched_at: UnixMicros,
    /// Numbers arrivals and starts.
    count: u64,
}

impl<T> Hosts<T> {
    /// Limits the requests under way, in all (`running_max`) and to one host (`limit_max`).
    pub(crate) fn new(running_max: usize, limit_max: usize) -> Self {
        Self {
            running_max,
            limit_max,
            hosts: HashMap::new(),
            shares: <[Share; 2]>::default(),
            waiting: 0,
            searched_at: UnixMicros(0),
            count: 0,
        }
    }

    /// `true` if jobs may be offered.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting < WAITING_MAX
    }

    /// Number of jobs that may still wait.
    fn room(&self) -> usize {
        WAITING_MAX.saturating_sub(self.waiting)
    }

    /// `true` if the host is quick and has room for a deferred job.
    pub(crate) fn wants(&self, host: &str) -> bool {
        let has_room = |host: &Host<T>| host.waiting.len() < self.room() / 2;
        self.hosts.get(host).is_some_and(|host| host.is_quick && has_room(host))
    }

    /// `true` if other hosts have answered in the last hour, and no answer of this one is remembered.
    pub(crate) fn is_unreachable(&self, host: &str, now: UnixMicros) -> bool {
        let is_late = |at: UnixMicros| now.0.saturating_sub(at.0) < HOUR_MICROS;
        let has_answered = self.hosts.get(host).is_some_and(|host| host.answered_at.is_some());
        !has_answered && self.hosts.values().filter_map(|host| host.answered_at).any(is_late)
    }

    pub(crate) fn running(&self) -> usize {
        self.shares.iter().map(|share| share.running).sum()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Hosts that get no requests but probes and manual jobs. Goes through all hosts.
    pub(crate) fn breakers_open(&self) -> usize {
        self.hosts.values().filter(|host| host.breaker.is_open()).count()
    }

    /// Time of the oldest waiting event. Goes through all waiting jobs.
    pub(crate) fn oldest(&self) -> Option<UnixMicros> {
        let waiting = self.hosts.values().flat_map(|host| host.waiting.keys());
        waiting.map(|priority| priority.emitted_at).min()
    }

    /// Queues a job. If too many jobs of its host wait, the last of its queue is given back. If the host's breaker does
    /// not let this job through, this job is given back.
    pub(crate) fn offer(
        &mut self,
        host: &str,
        emitted_at: UnixMicros,
        is_manual: bool,
        job: T,
        now: UnixMicros,
    ) -> Option<(T, Reason)> {
        let (name, arrival, room) = (self.remembered(host), self.next_number(), self.room());
        self.change(&name, |host| {
            if !host.admits(is_manual, now) {
                return Some((job, Reason::Down));
            }
            let is_first = is_manual && host.manual() < MANUAL_MAX;
            let priority = Priority { is_automatic: !is_first, emitted_at, arrival };
            host.waiting.insert(priority, (now, job));
            if host.waiting.len() <= room {
                return None;
            }
            let (_, (_, newest)) = host.waiting.pop_last()?;
            Some((newest, Reason::Busy))
        })?
    }

    /// Takes the next job that may start, with its permit.
    pub(crate) fn next(&mut self, now: UnixMicros) -> Option<(T, Permit)> {
        let (name, turn) = (self.next_host()?, self.next_number());
        let job = self.change(&name, |host| {
            host.turn = turn;
            let (_, (_, job)) = host.waiting.pop_first()?;
            host.running += 1;
            Some(job)
        })??;
        Some((job, Permit { host: name, since: now }))
    }

    fn next_host(&self) -> Option<Arc<str>> {
        if self.running() >= self.running_max {
            return None;
        }
        let [others, quick] = &self.shares;
        let may_others_start = others.running < (self.running_max / 2).max(1);
        let first = others.ready.first().filter(|_| may_others_start);
        first.into_iter().chain(quick.ready.first()).min().map(|(_, name)| name.clone())
    }

    /// Ends a request; without an outcome it was not made, or was cancelled. If the host's breaker is open, its waiting
    /// jobs are given back.
    pub(crate) fn ended(
        &mut self,
        permit: Permit,
        outcome: Option<AttemptOutcome>,
        now: UnixMicros,
    ) -> Vec<(T, Reason)> {
        let Permit { host, since } = permit;
        let limit_max = self.limit_max;
        let given_back = self.change(&host, |host| {
            host.ended(outcome, !is_long(since, now), limit_max, now);
            if host.breaker.is_open() { host.take(|_| true) } else { Vec::new() }
        });
        given_back.unwrap_or_default()
    }

    /// Returns the jobs that have waited too long, at most every [`SEARCHED_EVERY_MICROS`]. Jobs of a host that is
    /// quick, or was within [`LONG_MICROS`], stay.
    pub(crate) fn overdue(&mut self, now: UnixMicros) -> Vec<(T, Reason)> {
        // A search later than now was made before the clock was set back.
        let since = now.0.saturating_sub(self.searched_at.0);
        if (0..SEARCHED_EVERY_MICROS).contains(&since) {
            return Vec::new();
        }
        self.searched_at = now;
        let others = self.hosts.iter().filter(|(_, host)| host.is_slow(now) && !host.is_idle());
        let names: Vec<_> = others.map(|(name, _)| name.clone()).collect();
        let is_late = |since| is_long(since, now);
        let late = names.iter().filter_map(|name| self.change(name, |host| host.take(is_late)));
        late.flatten().collect()
    }

    /// Returns the host's key in the map; adds the host if it is new.
    fn remembered(&mut self, name: &str) -> Arc<str> {
        if let Some((known, _)) = self.hosts.get_key_value(name) {
            return known.clone();
        }
        if self.hosts.len() >= HOSTS_MAX {
            self.hosts.retain(|_, host| !host.is_idle());
        }
        let name: Arc<str> = name.into();
        self.hosts.insert(name.clone(), Host::new(self.count));
        name
    }

    fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Changes a host, and updates the counters derived from it.
    fn change<R>(&mut self, name: &Arc<str>, change: impl FnOnce(&mut Host<T>) -> R) -> Option<R> {
        let host = self.hosts.get_mut(name)?;
        let share = &mut self.shares[usize::from(host.is_quick)];
        share.running -= host.running;
        share.ready.remove(&(host.turn, name.clone()));
        self.waiting -= host.waiting.len();
        let result = change(host);
        self.waiting += host.waiting.len();
        let share = &mut self.shares[usize::from(host.is_quick)];
        share.running += host.running;
        if host.may_start() {
            share.ready.insert((host.turn, name.clone()));
        }
        Some(result)
    }
}

/// `true` if `since` is at least [`LONG_MICROS`] ago, or in the future because the clock was set back.
fn is_long(since: UnixMicros, now: UnixMicros) -> bool {
    !(0..LONG_MICROS).contains(&now.0.saturating_sub(since.0))
}

#[cfg(test)]
mod tests;
