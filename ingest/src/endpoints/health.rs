//! Choice of the endpoint of a chain to ask. Pure: the present time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::machine::Refusal;

/// Failures in a row that put an endpoint aside if one may be chance; other faults put it aside at once.
const STRIKES_MAX: u32 = 2;
/// Polls in a row in which an endpoint is behind before it is put aside, if another is up.
const BEHIND_POLLS_MAX: u32 = 3;
/// Maximum number of remembered changes of the scanning endpoint; older ones are dropped.
const SCANS_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The endpoint refused, and may have asked for a pause.
    Refused(Refusal, Option<Duration>),
    Contradiction,
    /// It does not have what was scanned already.
    Behind,
    /// Its head has not advanced for long, and another endpoint has a later block.
    Frozen,
    /// It is on another fork than the endpoint that it is compared with.
    Forked,
    /// It serves another chain, or other contracts than configured.
    Wrong,
}

impl Fault {
    /// The value of the metric label `class`.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Refused(refusal, _) => refusal.class(),
            Self::Contradiction => "contradiction",
            Self::Behind | Self::Frozen => "behind",
            Self::Forked => "forked",
            Self::Wrong => "wrong",
        }
    }
}

/// Pauses before an endpoint is asked again, and other time limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses {
    /// Pause after a first failure; it doubles with each further one.
    pub(crate) first: Duration,
    pub(crate) max: Duration,
    /// Pause after a fault that an operator must repair.
    pub(crate) repair: Duration,
    /// Maximum pause if no other endpoint is up, unless the endpoint asked for a longer one. Also the minimum time
    /// aside after a fork.
    pub(crate) sole_max: Duration,
    /// Time of refusals after which an endpoint that is put aside counts as gone, so that another may confirm alone.
    pub(crate) alone: Duration,
    /// Time without an advance of its head after which an endpoint that is put aside counts as gone.
    pub(crate) stuck: Duration,
    /// Time without an advance of the scanning endpoint's head after which the others are asked for theirs.
    pub(crate) frozen: Duration,
    /// Downtime after which an endpoint's chain is checked again.
    pub(crate) recheck: Duration,
    /// Time without progress after which an alarm is raised.
    pub(crate) stalled: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            first: Duration::from_millis(500),
            max: seconds(60),
            repair: seconds(300),
            sole_max: seconds(30),
            alone: seconds(30),
            stuck: seconds(300),
            frozen: seconds(60),
            recheck: seconds(60),
            stalled: seconds(300),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    weight: u64,
    /// Failures since its last usable answer.
    strikes: u32,
    /// Polls in a row in which it was behind.
    behind: u32,
    delay: Duration,
    /// Earliest time of the next request.
    free_at: Option<Instant>,
    /// Time until which others are asked instead.
    aside_until: Option<Instant>,
    /// Time it was first put aside since its last usable answer or the last check of its chain.
    down_since: Option<Instant>,
    is_checked: bool,
    /// Start of its current run of refusals. Serving another chain counts as one, being behind does not.
    refuses_since: Option<Instant>,
    /// First and last refusal of a second check since it last served one.
    unchecked: Option<(Instant, Instant)>,
    /// Its head, and the time of its last advance.
    head: Option<(i64, Instant)>,
    /// Time its head was last found frozen.
    frozen_at: Option<Instant>,
}

/// Returns `true` if a state has lasted for `bound`.
fn lasts(since: Option<Instant>, bound: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) >= bound)
}

/// The endpoints of a chain, by position in the configuration. A position out of range panics.
#[derive(Debug)]
pub(crate) struct Health {
    states: Vec<State>,
    pauses: Pauses,
    /// Recent scanners in order, each with the last height that it scanned.
    scans: VecDeque<(i64, usize)>,
}

impl Health {
    pub(crate) fn new(weights: impl IntoIterator<Item = u64>, pauses: Pauses) -> Self {
        let state = |weight| State { weight, delay: pauses.first, ..State::default() };
        let states = weights.into_iter().map(state).collect();
        Self { states, pauses, scans: VecDeque::new() }
    }

    pub(crate) fn pauses(&self) -> Pauses {
        self.pauses
    }

    fn is_up(state: &State, now: Instant) -> bool {
        state.aside_until.is_none_or(|until| until <= now)
    }

    /// Returns `true` if an endpoint is not put aside.
    pub(crate) fn serves(&self, index: usize, now: Instant) -> bool {
        Self::is_up(&self.states[index], now)
    }

    /// The endpoint for a step, and how long to wait before it is asked. When all are aside, it is the one
    /// that is free first.
    pub(crate) fn first(&self, now: Instant) -> (usize, Duration) {
        let states = || self.states.iter().enumerate();
        let up = states().filter(|(_, state)| Self::is_up(state, now));
        // Of equal ones, `max_by_key` takes the last.
        let best = up.rev().max_by_key(|(_, state)| state.weight);
        let free = || states().min_by_key(|(_, state)| state.free_at);
        let Some((index, state)) = best.or_else(free) else { return (0, Duration::ZERO) };
        let wait = state.free_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        (index, wait)
    }

    /// The endpoint for a second answer about blocks from a height on: the best of those that are up and did not scan
    /// them. If none is up: `first` itself if all others are gone, else `None`. A mere pause of the others must not let
    /// an omission through; an endpoint that is behind or on another fork is not gone.
    pub(crate) fn second(&self, first: usize, from: i64, now: Instant) -> Option<usize> {
        let scanner = self.scanner(from).unwrap_or(first);
        let others = || self.states.iter().enumerate().rev().filter(|(index, _)| *index != scanner);
        let answering = others().filter(|(_, state)| Self::is_up(state, now));
        let best = answering.max_by_key(|(_, state)| state.weight);
        if let Some((index, _)) = best {
            return Some(index);
        }
        others().all(|(_, state)| self.is_gone(state, now)).then_some(first)
    }

    /// Returns `true` if an endpoint counts as gone: it is put aside, and for long it refused everything, or refused
    /// every second check, or its head did not advance. An endpoint whose head advances is never gone for being behind.
    fn is_gone(&self, state: &State, now: Instant) -> bool {
        let refuses = lasts(state.refuses_since, self.pauses.alone, now);
        let is_stuck = lasts(state.head.map(|(_, at)| at), self.pauses.stuck, now);
        !Self::is_up(state, now) && (refuses || self.is_unchecked(state, now) || is_stuck)
    }

    fn is_unchecked(&self, state: &State, now: Instant) -> bool {
        lasts(state.unchecked.map(|(since, _)| since), self.pauses.alone, now)
    }

    /// Takes note of an endpoint's answer to a second check. Returns `true` if it has refused every one for long.
    pub(crate) fn note_check(
        &mut self,
        index: usize,
        refusal: Option<Refusal>,
        now: Instant,
    ) -> bool {
        let stuck = self.pauses.stuck;
        let state = &mut self.states[index];
        match refusal {
            None | Some(Refusal::Behind) => state.unchecked = None,
            // Retried with a shorter range.
            Some(Refusal::Size { .. }) => return false,
            Some(
                Refusal::Rate
                | Refusal::Timeout
                | Refusal::Transient
                | Refusal::Pruned
                | Refusal::Fatal,
            ) => {
                // An old refusal does not count: while an endpoint scans, it gets no second checks.
                let begun = state.unchecked.filter(|(_, last)| !lasts(Some(*last), stuck, now));
                state.unchecked = Some((begun.map_or(now, |(since, _)| since), now));
            }
        }
        self.is_unchecked(&self.states[index], now)
    }

    /// Takes note of the head that an endpoint shows.
    pub(crate) fn head(&mut self, index: usize, number: i64, now: Instant) {
        let state = &mut self.states[index];
        if state.head.is_none_or(|(head, _)| number > head) {
            state.head = Some((number, now));
        }
    }

    /// Returns `true` if an endpoint that shows this head has shown no later one for long; then not again for as long.
    pub(crate) fn is_frozen(&mut self, index: usize, number: i64, now: Instant) -> bool {
        let state = &mut self.states[index];
        let known = state.head.filter(|(head, _)| number <= *head);
        let Some((_, advanced_at)) = known else { return false };
        let since = state.frozen_at.map_or(advanced_at, |at| at.max(advanced_at));
        let is_frozen = lasts(Some(since), self.pauses.frozen, now);
        if is_frozen {
            state.frozen_at = Some(now);
        }
        is_frozen
    }

    /// Returns `true` if an endpoint may have scanned a block, while `first` scans.
    pub(crate) fn may_have_scanned(&self, index: usize, first: usize, number: i64) -> bool {
        self.scanner(number).unwrap_or(first) == index
    }

    /// Takes note of a failure. Returns `true` if that put the endpoint aside.
    pub(crate) fn failed(&mut self, index: usize, fault: Fault, now: Instant) -> bool {
        let pauses = self.pauses;
        let is_unchecked = self.is_unchecked(&self.states[index], now);
        let other_is_up = (0..self.states.len()).any(|i| i != index && self.serves(i, now));
        let state = &mut self.states[index];
        let was_up = Self::is_up(state, now);
        let is_behind = matches!(fault, Fault::Behind | Fault::Refused(Refusal::Behind, _));
        let refuses = matches!(fault, Fault::Wrong | Fault::Refused(..)) && !is_behind;
        state.refuses_since = state.refuses_since.or(Some(now)).filter(|_| refuses);
        let pause = match fault {
            Fault::Behind | Fault::Refused(Refusal::Behind, _) => {
                state.behind += 1;
                if !other_is_up || state.behind < BEHIND_POLLS_MAX {
                    return false;
                }
                state.delay
            }
            Fault::Wrong | Fault::Refused(Refusal::Fatal | Refusal::Pruned, _) => pauses.repair,
            Fault::Forked => state.delay.max(pauses.sole_max),
            Fault::Refused(_, asked) => state.delay.max(asked.unwrap_or_default()),
            Fault::Contradiction | Fault::Frozen => state.delay,
        };
        let asked = if let Fault::Refused(_, Some(asked)) = fault { asked } else { Duration::ZERO };
        state.strikes += 1;
        state.free_at = Some(now + pause.min(pauses.sole_max).max(asked));
        state.delay = state.delay.saturating_mul(2).min(pauses.max);
        let is_chance = matches!(
            fault,
            Fault::Contradiction
                | Fault::Refused(
                    Refusal::Timeout | Refusal::Transient | Refusal::Size { .. },
                    None
                )
        );
        if is_chance && !is_unchecked && state.strikes < STRIKES_MAX {
            return false;
        }
        state.aside_until = Some(now + pause);
        state.down_since = state.down_since.or(Some(now));
        was_up
    }

    /// Takes note of a usable answer. Returns `true` if the endpoint was down before.
    pub(crate) fn served(&mut self, index: usize) -> bool {
        let first = self.pauses.first;
        let state = &mut self.states[index];
        let was_down = state.down_since.is_some() || state.aside_until.is_some();
        (state.strikes, state.behind) = (0, 0);
        // Kept while second checks fail: with a reset the endpoint would scan and be put aside by turns.
        if state.unchecked.is_none() {
            state.delay = first;
        }
        state.refuses_since = None;
        (state.free_at, state.aside_until, state.down_since) = (None, None, None);
        was_down
    }

    /// Takes note of how far an endpoint scanned.
    pub(crate) fn scanned(&mut self, index: usize, number: i64) {
        while self.scans.back().is_some_and(|(to, by)| *to >= number || *by == index) {
            self.scans.pop_back();
        }
        self.scans.push_back((number, index));
        if self.scans.len() > SCANS_MAX {
            self.scans.pop_front();
        }
    }

    /// Takes note of a rewind to this block: scanners of the blocks above it are forgotten. The
    /// scanner of the blocks up to it is kept, whichever endpoint showed the reorganisation.
    pub(crate) fn rewound(&mut self, number: i64) {
        let kept = self.scans.iter().position(|(to, _)| *to >= number).map_or(0, |at| at + 1);
        self.scans.truncate(kept);
        if let Some((to, _)) = self.scans.back_mut() {
            *to = number;
        }
    }

    /// Returns the endpoint that scanned the last block; `None` after a start.
    pub(crate) fn last_scanner(&self) -> Option<usize> {
        self.scans.back().map(|(_, by)| *by)
    }

    /// Returns the endpoint that scanned a block; `None` if that is not known.
    pub(crate) fn scanner(&self, number: i64) -> Option<usize> {
        self.scans.iter().find(|(to, _)| *to >= number).map(|(_, by)| *by)
    }

    /// The endpoint to ask after `second`: `first`, unless that is `second` itself. Then the best of the others that
    /// are not gone, or `first` again if all are.
    pub(crate) fn witness(&self, second: usize, first: usize, now: Instant) -> usize {
        if second != first {
            return first;
        }
        let others = self.states.iter().enumerate().rev().filter(|(index, _)| *index != second);
        let here = others.filter(|(_, state)| !self.is_gone(state, now));
        let best = here.max_by_key(|(_, state)| (Self::is_up(state, now), state.weight));
        best.map_or(first, |(index, _)| index)
    }

    /// Returns `true` if an endpoint's chain must be checked before it is asked: it never was, or it was down so long
    /// that the provider may have put another node behind its URL.
    pub(crate) fn must_check(&self, index: usize, now: Instant) -> bool {
        let state = &self.states[index];
        let down = state.down_since.map(|since| now.saturating_duration_since(since));
        !state.is_checked || down.is_some_and(|down| down > self.pauses.recheck)
    }

    /// Returns `true` if the chain of an endpoint was never checked.
    pub(crate) fn is_new(&self, index: usize) -> bool {
        !self.states[index].is_checked
    }

    pub(crate) fn checked(&mut self, index: usize) {
        let state = &mut self.states[index];
        (state.is_checked, state.down_since) = (true, None);
    }
}

#[cfg(test)]
mod tests;
