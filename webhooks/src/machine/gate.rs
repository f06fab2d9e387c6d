//! Which jobs may start: a limit of concurrent requests in all, and one for each host.
//!
//! A host that has as many as it may waits apart from the others: some of its jobs in memory, for a
//! moment, which is what a quick receiver needs in a burst; all else is deferred, so that a slow
//! receiver pays alone and no offset is kept for long. How many may wait follows from what the host
//! does: each answer allows one more, and half of them when some have waited in vain.

use std::collections::{HashMap, VecDeque};

use schemas::UnixMicros;

/// How long a job waits for its host before it is deferred: well below one attempt's time-out.
const WAIT_MAX_MICROS: i64 = 1_000_000;
/// How many jobs wait for one host at most: half of what one partition may have open.
const WAITING_MAX: usize = 1024;

/// What becomes of a job that asks to start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission<T> {
    /// It has a permit: give it back with [`Gate::release`].
    Start(T),
    /// The gate keeps it until [`Gate::next_ready`] or [`Gate::overdue`] gives it out.
    Wait,
    /// Its host is busy, and enough others wait for it.
    Deferred(T),
}

#[derive(Debug)]
struct Host<T> {
    running: usize,
    /// How many jobs may wait for it.
    patience: usize,
    waiting: VecDeque<(UnixMicros, T)>,
}

/// Permits and the jobs that wait for one.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    running_max: usize,
    host_running_max: usize,
    running: usize,
    /// Hosts with a job; others are forgotten.
    hosts: HashMap<String, Host<T>>,
}

impl<T> Gate<T> {
    pub(crate) fn new(running_max: usize, host_running_max: usize) -> Self {
        Self { running_max, host_running_max, running: 0, hosts: HashMap::new() }
    }

    /// Whether any job may start.
    pub(crate) fn has_room(&self) -> bool {
        self.running < self.running_max
    }

    /// Permits in use.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// A job for `host` asks to start.
    pub(crate) fn admit(&mut self, host: &str, job: T, now: UnixMicros) -> Admission<T> {
        let has_room = self.has_room();
        let entry = self.hosts.entry(host.to_owned()).or_insert_with(|| Host {
            running: 0,
            patience: WAITING_MAX,
            waiting: VecDeque::new(),
        });
        // Who came earlier goes first.
        if has_room && entry.waiting.is_empty() && entry.running < self.host_running_max {
            entry.running += 1;
            self.running += 1;
            return Admission::Start(job);
        }
        if entry.waiting.len() < entry.patience {
            entry.waiting.push_back((now, job));
            return Admission::Wait;
        }
        Admission::Deferred(job)
    }

    /// Gives a permit back.
    pub(crate) fn release(&mut self, host: &str) {
        self.running = self.running.saturating_sub(1);
        let Some(entry) = self.hosts.get_mut(host) else { return };
        entry.running = entry.running.saturating_sub(1);
        entry.patience = entry.patience.saturating_add(1).min(WAITING_MAX);
        if entry.running == 0 && entry.waiting.is_empty() {
            self.hosts.remove(host);
        }
    }

    /// A job that waited and may start now, with its permit.
    pub(crate) fn next_ready(&mut self) -> Option<T> {
        if !self.has_room() {
            return None;
        }
        let host_running_max = self.host_running_max;
        let entry = self
            .hosts
            .values_mut()
            .filter(|host| host.running < host_running_max)
            .filter(|host| !host.waiting.is_empty())
            .min_by_key(|host| host.waiting.front().map(|(since, _)| *since))?;
        let (_, job) = entry.waiting.pop_front()?;
        entry.running += 1;
        self.running += 1;
        Some(job)
    }

    /// The jobs that have waited too long: to be deferred.
    pub(crate) fn overdue(&mut self, now: UnixMicros) -> Vec<T> {
        let mut jobs = Vec::new();
        let latest = now.0.saturating_sub(WAIT_MAX_MICROS);
        for host in self.hosts.values_mut() {
            let given = jobs.len();
            while host.waiting.front().is_some_and(|(since, _)| since.0 <= latest) {
                jobs.extend(host.waiting.pop_front().map(|(_, job)| job));
            }
            if jobs.len() > given {
                // Never none: a host that is quick again shows it by what it takes.
                host.patience = (host.patience / 2).max(self.host_running_max);
            }
        }
        self.forget_idle();
        jobs
    }

    /// Forgets waiting jobs that are not wanted any more.
    pub(crate) fn retain_waiting(&mut self, keep: impl Fn(&T) -> bool) {
        for host in self.hosts.values_mut() {
            host.waiting.retain(|(_, job)| keep(job));
        }
        self.forget_idle();
    }

    fn forget_idle(&mut self) {
        self.hosts.retain(|_, host| host.running > 0 || !host.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const NOW: UnixMicros = UnixMicros(10_000_000);

    const LATER: UnixMicros = UnixMicros(NOW.0 + WAIT_MAX_MICROS);

    #[test]
    fn a_busy_host_waits_then_is_deferred_and_others_start() {
        let mut gate = Gate::new(10, 1);
        assert_eq!(gate.admit("slow", 0, NOW), Admission::Start(0));
        for job in 1..=WAITING_MAX {
            assert_eq!(gate.admit("slow", job, NOW), Admission::Wait);
        }
        assert_eq!(gate.admit("slow", 9999, NOW), Admission::Deferred(9999));
        assert_eq!(gate.admit("quick", 10, NOW), Admission::Start(10));
        assert_eq!(gate.next_ready(), None);
        gate.release("slow");
        assert_eq!(gate.next_ready(), Some(1));
        assert_eq!(gate.next_ready(), None);
        assert_eq!(gate.overdue(UnixMicros(LATER.0 - 1)), [0; 0]);
        assert_eq!(gate.overdue(LATER), (2..=WAITING_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn fewer_may_wait_for_a_host_that_lets_them_wait_in_vain() {
        let mut gate = Gate::new(10, 4);
        (0..4).for_each(|job| assert_eq!(gate.admit("a", job, NOW), Admission::Start(job)));
        let waiting = |gate: &mut Gate<usize>| {
            (0..).take_while(|job| gate.admit("a", *job, NOW) == Admission::Wait).count()
        };
        let counts: Vec<_> =
            (0..10).map(|_| (waiting(&mut gate), gate.overdue(LATER).len()).0).collect();
        assert_eq!(counts, [1024, 512, 256, 128, 64, 32, 16, 8, 4, 4]);
        gate.release("a");
        assert_eq!(gate.admit("a", 0, NOW), Admission::Start(0));
        assert_eq!(waiting(&mut gate), 5, "an answer allows one more");
    }

    #[test]
    fn a_released_permit_goes_to_the_first_job() {
        let mut gate = Gate::new(10, 1);
        assert_eq!(gate.admit("a", 1, NOW), Admission::Start(1));
        assert_eq!(gate.admit("a", 2, NOW), Admission::Wait);
        gate.release("a");
        assert_eq!(gate.admit("a", 3, NOW), Admission::Wait);
        assert_eq!(gate.next_ready(), Some(2));
    }

    #[test]
    fn unwanted_jobs_are_forgotten() {
        let mut gate = Gate::new(1, 1);
        assert_eq!(gate.admit("a", 1, NOW), Admission::Start(1));
        assert_eq!(gate.admit("a", 2, NOW), Admission::Wait);
        assert_eq!(gate.admit("a", 3, NOW), Admission::Wait);
        gate.retain_waiting(|job| *job != 2);
        gate.release("a");
        assert_eq!(gate.next_ready(), Some(3));
        gate.release("a");
        assert!(gate.hosts.is_empty());
    }

    proptest! {
        /// No limit is ever passed, and no job is lost or given out twice.
        #[test]
        fn limits_hold_and_jobs_are_conserved(moves in vec((0_u8..4, 0_usize..4), 1..400)) {
            const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
            let mut gate = Gate::new(5, 2);
            let mut running: Vec<usize> = Vec::new();
            let (mut given, mut ended) = (0_usize, 0_usize);
            for (count, (kind, host)) in moves.into_iter().enumerate() {
                let now = UnixMicros(i64::try_from(count).unwrap() * 100_000);
                match kind {
                    0 | 1 => {
                        given += 1;
                        match gate.admit(HOSTS[host], host, now) {
                            Admission::Start(job) => running.push(job),
                            Admission::Deferred(_) => ended += 1,
                            Admission::Wait => {}
                        }
                    }
                    2 => {
                        if let Some(at) = running.iter().position(|job| *job == host) {
                            running.swap_remove(at);
                            gate.release(HOSTS[host]);
                            ended += 1;
                        }
                        running.extend(std::iter::from_fn(|| gate.next_ready()));
                    }
                    _ => ended += gate.overdue(now).len(),
                }
                prop_assert!(running.len() <= 5);
                prop_assert_eq!(running.len(), gate.running());
                for host in 0..4 {
                    prop_assert!(running.iter().filter(|job| **job == host).count() <= 2);
                }
                let waiting: usize = gate.hosts.values().map(|h| h.waiting.len()).sum();
                prop_assert_eq!(given, ended + running.len() + waiting);
            }
        }
    }
}
