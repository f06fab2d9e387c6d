//! Admission of requests, so that no receiver delays another.
//!
//! Each host has a queue in which its jobs wait; its number of requests under way grows with its
//! answers. Queues that answer quickly may use all requests there are. Unknown, slow and failing
//! queues share a part of them, so that most requests are left for the others, however many such
//! queues there are. A job that cannot start soon is given back, to be deferred. Jobs that an
//! operator asked for go first, even to a receiver that gets no other requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use schemas::{AttemptOutcome, UnixMicros};

use super::breaker::Breaker;
use super::schedule::Reason;

const HOUR_MICROS: i64 = 3600 * 1_000_000;
/// An answer that takes longer is slow, and a job that waits longer is given back: well below one attempt's time-out.
const LONG_MICROS: i64 = 1_000_000;
/// Maximum number of waiting jobs; half of them for hosts that are not good.
const WAITING_MAX: usize = 8192;
/// Maximum number of remembered queues; beyond it, idle ones that started nothing lately are
/// forgotten.
const QUEUES_MAX: usize = 20_000;
/// Limits of a queue's manual jobs with priority: under way beyond its window, and waiting. Further
/// manual jobs, as when a whole day is sent again, are treated like automatic ones.
const MANUAL_RUNNING_MAX: usize = 8;
const MANUAL_WAITING_MAX: usize = 16;

/// Result of a request, as far as its queue is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With an answer of any kind.
    Answered,
    /// Without an answer: it occupied a slot that others could have used.
    Failed,
    /// Not made, which says nothing about the receiver.
    Unsent,
}

impl From<AttemptOutcome> for Ending {
    fn from(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Delivered | AttemptOutcome::Status | AttemptOutcome::Protocol => {
                Self::Answered
            }
            AttemptOutcome::Timeout | AttemptOutcome::Connect => Self::Failed,
            AttemptOutcome::Forbidden
            | AttemptOutcome::Superseded
            | AttemptOutcome::CircuitOpen
            | AttemptOutcome::Local => Self::Unsent,
        }
    }
}

/// Permit for a request under way; given back with [`Queues::ended`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    queue: Arc<str>,
    number: u64,
}

/// A job that cannot start soon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spilled<T> {
    pub(crate) job: T,
    pub(crate) reason: Reason,
}

/// Position of a job in its queue: manual jobs first, then by the age of the event, so that
/// deferred jobs are not overtaken for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Priority {
    is_automatic: bool,
    emitted_at: UnixMicros,
    arrival: u64,
}

/// Trust in a queue, which decides its share of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    /// Its last request was answered soon, and none under way takes long.
    Good,
    /// Nothing is known of it, or it is slow.
    Unproven,
    /// Its last request got no answer.
    Failing,
}

impl Health {
    const ALL: [Self; 3] = [Self::Good, Self::Unproven, Self::Failing];

    /// Maximum number of jobs that may wait for a queue.
    const fn waiting_max(self) -> usize {
        match self {
            Self::Good => WAITING_MAX / 2,
            Self::Unproven => WAITING_MAX / 8,
            Self::Failing => 16,
        }
    }
}

#[derive(Debug)]
struct Queue<T> {
    /// Health after its last request.
    last: Health,
    running: usize,
    /// Number of those under way that take long.
    slow: usize,
    /// Maximum number under way: 1 at first, one more for each answer while all of it is used,
    /// halved by each failure; after the first failure, one more per full window of answers.
    window: usize,
    has_failed: bool,
    has_answered: bool,
    answered: usize,
    breaker: Breaker,
    /// One job was let into the queue to see whether its receiver answers again.
    is_probing: bool,
    waiting: BTreeMap<Priority, T>,
    /// Number of its last start.
    turn: u64,
}

impl<T> Queue<T> {
    fn new(turn: u64) -> Self {
        Self {
            last: Health::Unproven,
            running: 0,
            slow: 0,
            window: 1,
            has_failed: false,
            has_answered: false,
            answered: 0,
            breaker: Breaker::default(),
            is_probing: false,
            waiting: BTreeMap::new(),
            turn,
        }
    }

    fn health(&self) -> Health {
        if self.last == Health::Good && self.slow > 0 { Health::Unproven } else { self.last }
    }

    fn may_start(&self) -> bool {
        match self.waiting.first_key_value() {
            None => false,
            Some((Priority { is_automatic: false, .. }, _)) => {
                self.running < self.window + MANUAL_RUNNING_MAX
            }
            Some(_) if self.breaker.is_open() => self.is_probing && self.running == 0,
            Some(_) => self.running < self.window,
        }
    }

    fn has_room_for_manual(&self) -> bool {
        self.waiting.keys().take_while(|priority| !priority.is_automatic).count()
            < MANUAL_WAITING_MAX
    }

    /// `true` if `priority`, which is waiting, or a job behind it has to be given back.
    fn is_full(&mut self, priority: Priority, now: UnixMicros) -> bool {
        if priority.is_automatic && self.breaker.is_open() {
            let is_probe =
                self.breaker.may_probe(now) && self.running == 0 && self.waiting.len() == 1;
            self.is_probing |= is_probe;
            return !is_probe;
        }
        self.waiting.len() > self.health().waiting_max()
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    fn ended(&mut self, ending: Ending, was_quick: bool, window_max: usize, now: UnixMicros) {
        let is_wanted = self.running >= self.window || !self.waiting.is_empty();
        self.running = self.running.saturating_sub(1);
        self.slow = self.slow.saturating_sub(usize::from(!was_quick));
        self.is_probing = false;
        match ending {
            Ending::Answered => {
                self.breaker.answered();
                self.has_answered = true;
                self.last = if was_quick { Health::Good } else { Health::Unproven };
                self.answered += 1;
                if is_wanted && (!self.has_failed || self.answered >= self.window) {
                    self.answered = 0;
                    self.window = (self.window + 1).min(window_max);
                }
            }
            Ending::Failed => {
                self.breaker.failed(now);
                self.last = Health::Failing;
                self.has_failed = true;
                self.answered = 0;
                self.window = (self.window / 2).max(1);
            }
            Ending::Unsent => {}
        }
    }
}

#[derive(Debug)]
struct Arrival {
    since: UnixMicros,
    queue: Arc<str>,
    priority: Priority,
}

/// Totals of all queues with one health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Load {
    running: usize,
    waiting: usize,
}

/// All queues, and what they share.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    running_max: usize,
    window_max: usize,
    queues: HashMap<Arc<str>, Queue<T>>,
    loads: [Load; 3],
    /// The queues of each health that may start something, those first that did so longest ago.
    ready: [BTreeSet<(u64, Arc<str>)>; 3],
    /// All that waits, in the order in which it came.
    arrivals: BTreeMap<u64, Arrival>,
    /// The requests under way that are not known to take long, in the order of their start.
    young: BTreeMap<u64, (UnixMicros, Arc<str>)>,
    breakers_open: usize,
    /// Time of the last answer of any queue.
    answered_at: Option<UnixMicros>,
    /// Numbers arrivals and starts.
    count: u64,
}

impl<T> Queues<T> {
    /// With a limit of the requests under way, in all and of one queue.
    pub(crate) fn new(running_max: usize, window_max: usize) -> Self {
        Self {
            running_max,
            window_max,
            queues: HashMap::new(),
            loads: [Load::default(); 3],
            ready: [const { BTreeSet::new() }; 3],
            arrivals: BTreeMap::new(),
            young: BTreeMap::new(),
            breakers_open: 0,
            answered_at: None,
            count: 0,
        }
    }

    /// `true` if jobs may be offered.
    pub(crate) fn has_room(&self) -> bool {
        self.arrivals.len() < WAITING_MAX
    }

    /// Number of jobs that wait for hosts that are not good.
    fn doubtful(&self) -> usize {
        let [_, unproven, failing] = self.loads.map(|load| load.waiting);
        unproven + failing
    }

    /// `true` if the queue has room for a deferred job and its receiver answers.
    pub(crate) fn wants(&self, queue: &str) -> bool {
        self.arrivals.len() < WAITING_MAX / 2
            && self.queues.get(queue).is_some_and(|queue| {
                queue.health() == Health::Good
                    && queue.waiting.len() < Health::Good.waiting_max() / 2
            })
    }

    /// `true` if other receivers have answered in the last hour, and this one never has.
    pub(crate) fn is_unreachable(&self, queue: &str, now: UnixMicros) -> bool {
        let is_late = |at: UnixMicros| now.0.saturating_sub(at.0) < HOUR_MICROS;
        let has_answered = self.queues.get(queue).is_some_and(|queue| queue.has_answered);
        self.answered_at.is_some_and(is_late) && !has_answered
    }

    /// Requests under way.
    pub(crate) fn running(&self) -> usize {
        self.loads.iter().map(|load| load.running).sum()
    }

    /// Jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.arrivals.len()
    }

    /// Queues that get no requests but probes.
    pub(crate) const fn breakers_open(&self) -> usize {
        self.breakers_open
    }

    /// The oldest event that waits. Goes through all queues.
    pub(crate) fn oldest(&self) -> Option<UnixMicros> {
        let first = |queue: &Queue<T>| {
            // Behind the few that are manual.
            let manual = queue.waiting.keys().take_while(|priority| !priority.is_automatic).count();
            queue.waiting.keys().take(manual + 1).map(|priority| priority.emitted_at).min()
        };
        self.queues.values().filter_map(first).min()
    }

    /// A job waits for its turn from now on. If too many wait, or nothing is sent to its receiver at the time, one of
    /// its queue is given back, that about the newest event.
    pub(crate) fn offer(
        &mut self,
        queue: &str,
        emitted_at: UnixMicros,
        is_manual: bool,
        job: T,
        now: UnixMicros,
    ) -> Option<Spilled<T>> {
        let queue = self.remembered(queue);
        let arrival = self.next_number();
        let is_manual = is_manual && self.doubtful() < WAITING_MAX / 4;
        let is_full = self.change(&queue, |queue| {
            let is_automatic = !(is_manual && queue.has_room_for_manual());
            let priority = Priority { is_automatic, emitted_at, arrival };
            queue.waiting.insert(priority, job);
            (priority, queue.is_full(priority, now))
        });
        let (priority, is_full) = is_full?;
        self.arrivals.insert(arrival, Arrival { since: now, queue: queue.clone(), priority });
        let queue = self.queues.get(&queue)?;
        // Those that have many waiting make room for one of which nothing waits.
        let is_alone = queue.running == 0 && queue.waiting.len() == 1;
        let doubtful_max = if is_alone { WAITING_MAX / 4 * 3 } else { WAITING_MAX / 2 };
        let is_too_much =
            is_full || queue.health() != Health::Good && self.doubtful() > doubtful_max;
        let (newest, _) = queue.waiting.last_key_value().filter(|_| is_too_much)?;
        if newest.is_automatic { self.withdraw(newest.arrival) } else { None }
    }

    /// A job that starts now.
    pub(crate) fn next(&mut self, now: UnixMicros) -> Option<(T, Permit)> {
        let open = Health::ALL.into_iter().filter(|health| self.may_start(*health));
        let ready = open.filter_map(|health| self.ready[health as usize].first());
        let (_, queue) = ready.min()?.clone();
        let number = self.next_number();
        let (priority, job) = self.change(&queue, |queue| {
            queue.turn = number;
            let first = queue.waiting.pop_first()?;
            queue.running += 1;
            Some(first)
        })??;
        self.arrivals.remove(&priority.arrival);
        self.young.insert(number, (now, queue.clone()));
        Some((job, Permit { queue, number }))
    }

    /// A request has ended.
    pub(crate) fn ended(&mut self, permit: &Permit, ending: Ending, now: UnixMicros) {
        let was_quick = self.young.remove(&permit.number).is_some();
        let window_max = self.window_max;
        if ending == Ending::Answered {
            self.answered_at = Some(now);
        }
        self.change(&permit.queue, |queue| queue.ended(ending, was_quick, window_max, now));
    }

    /// Returns the jobs that have waited too long. Manual jobs stay, and those of a good queue,
    /// whose receiver answers as fast as it can.
    pub(crate) fn overdue(&mut self, now: UnixMicros) -> Vec<Spilled<T>> {
        let latest = UnixMicros(now.0.saturating_sub(LONG_MICROS));
        // What is of a later time than now was before the clock went back.
        let is_old = |at: UnixMicros| at <= latest || at > now;
        while let Some(old) = self.young.first_entry().filter(|old| is_old(old.get().0)) {
            let (_, queue) = old.remove();
            self.change(&queue, |queue| queue.slow += 1);
        }
        let is_late = |(_, arrival): &(&u64, &Arrival)| is_old(arrival.since);
        let late: Vec<u64> = self.arrivals.iter().take_while(is_late).map(|(n, _)| *n).collect();
        late.into_iter().filter_map(|number| self.give_up(number, now)).collect()
    }

    fn give_up(&mut self, number: u64, now: UnixMicros) -> Option<Spilled<T>> {
        let Arrival { queue, priority, .. } = self.arrivals.get(&number)?;
        let (name, priority, queue) = (queue.clone(), *priority, self.queues.get(queue)?);
        // With little room left it has to go all the same: others could not even be offered.
        let has_room = self.arrivals.len() < WAITING_MAX / 2;
        let is_kept = has_room && queue.health() == Health::Good;
        let spilled = self.withdraw(number)?;
        if priority.is_automatic && !is_kept {
            return Some(spilled);
        }
        self.offer(&name, priority.emitted_at, !priority.is_automatic, spilled.job, now)
    }

    /// Forgets waiting jobs that are not wanted any more.
    pub(crate) fn retain_waiting(&mut self, keep: impl Fn(&T) -> bool) {
        let is_unwanted = |(_, arrival): &(&u64, &Arrival)| {
            let queue = self.queues.get(&arrival.queue);
            let job = queue.and_then(|queue| queue.waiting.get(&arrival.priority));
            job.is_some_and(|job| !keep(job))
        };
        let unwanted: Vec<u64> =
            self.arrivals.iter().filter(is_unwanted).map(|(n, _)| *n).collect();
        for number in unwanted {
            self.withdraw(number);
        }
    }

    fn withdraw(&mut self, number: u64) -> Option<Spilled<T>> {
        let Arrival { queue, priority, .. } = self.arrivals.remove(&number)?;
        self.change(&queue, |queue| {
            let job = queue.waiting.remove(&priority)?;
            let reason = if queue.breaker.is_open() { Reason::Down } else { Reason::Busy };
            Some(Spilled { job, reason })
        })?
    }

    /// `true` if queues of `health` may have one more request under way.
    fn may_start(&self, health: Health) -> bool {
        let percent = |part: usize| (self.running_max * part / 100).max(1);
        let [_, unproven, failing] = self.loads.map(|load| load.running);
        let is_within = match health {
            Health::Good => true,
            Health::Unproven => unproven + failing < percent(30),
            Health::Failing => unproven + failing < percent(30) && failing < percent(15),
        };
        is_within && self.running() < self.running_max
    }

    /// The queue of that name, also if it is new.
    fn remembered(&mut self, name: &str) -> Arc<str> {
        if let Some((known, _)) = self.queues.get_key_value(name) {
            return known.clone();
        }
        if self.queues.len() >= QUEUES_MAX {
            let recent = self.count.saturating_sub(QUEUES_MAX as u64 / 2);
            self.queues.retain(|_, queue| queue.turn > recent || !queue.is_idle());
            let is_open = |queue: &&Queue<T>| queue.breaker.is_open();
            self.breakers_open = self.queues.values().filter(is_open).count();
        }
        let name: Arc<str> = name.into();
        self.queues.insert(name.clone(), Queue::new(self.count));
        name
    }

    fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Changes a queue, and all that is counted of it.
    fn change<R>(&mut self, name: &Arc<str>, change: impl FnOnce(&mut Queue<T>) -> R) -> Option<R> {
        let queue = self.queues.get_mut(name)?;
        let (health, entry) = (queue.health() as usize, (queue.turn, name.clone()));
        self.loads[health].running -= queue.running;
        self.loads[health].waiting -= queue.waiting.len();
        self.ready[health].remove(&entry);
        self.breakers_open -= usize::from(queue.breaker.is_open());
        let result = change(queue);
        self.breakers_open += usize::from(queue.breaker.is_open());
        let health = queue.health() as usize;
        self.loads[health].running += queue.running;
        self.loads[health].waiting += queue.waiting.len();
        if queue.may_start() {
            self.ready[health].insert((queue.turn, entry.1));
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests;
