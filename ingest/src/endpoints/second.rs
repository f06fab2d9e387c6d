//! Second answers: choice of the endpoint, and of the next one if it refuses for long.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Endpoints;
use crate::machine::{Answer, Ask, Role};
use crate::rpc::Failure;

impl Endpoints {
    /// Asks the endpoint of a second answer, or the witness. `None` while every possible one is put aside, or fails
    /// the check of its chain.
    ///
    /// An endpoint that has refused every second check for long is put aside at once, and the next one is asked.
    /// Otherwise it would be chosen for each: its pauses may be shorter than the time between two checks.
    pub(super) async fn ask_another(
        &mut self,
        ask: &Ask,
    ) -> Option<(usize, Result<Answer, Failure>)> {
        let mut refused = BTreeSet::new();
        loop {
            let index = self.another(ask, &refused).await?;
            let result = self.ask(index, ask).await;
            if ask.logs.is_empty() {
                return Some((index, result));
            }
            let refusal = result.as_ref().err().map(|failure| failure.refusal);
            let is_unchecked = self.health.note_check(index, refusal, Instant::now());
            match result {
                Err(failure)
                    if is_unchecked && !self.is_alone(index, ask) && refused.insert(index) =>
                {
                    self.refused(index, &failure);
                }
                result => return Some((index, result)),
            }
        }
    }

    /// An endpoint that did not refuse; if none is left, the scanner, or for a witness the second endpoint itself.
    async fn another(&mut self, ask: &Ask, refused: &BTreeSet<usize>) -> Option<usize> {
        let second = self.second.unwrap_or(self.first);
        if ask.role == Role::Witness {
            let is_left = second != self.first && refused.contains(&self.first);
            return if is_left { Some(second) } else { self.witness().await };
        }
        let index = self.second(ask).await?;
        let scanner = || ask.about.and_then(|from| self.health.scanner(from));
        let left = if refused.contains(&index) { scanner() } else { None };
        let Some(left) = left else { return Some(index) };
        self.second = Some(left);
        self.check(left).await.then_some(left)
    }

    /// Returns `true` if an answer is that of one endpoint alone.
    pub(super) fn is_alone(&self, index: usize, ask: &Ask) -> bool {
        let may_have_scanned = |from| self.health.may_have_scanned(index, self.first, from);
        match ask.role {
            Role::First => false,
            Role::Second => ask.about.is_some_and(may_have_scanned),
            // The second endpoint is its own witness if no other one answers.
            Role::Witness => self.second == Some(index),
        }
    }

    /// The endpoint of a second answer: the same for all questions about a range. `None` while the others pause.
    pub(super) async fn second(&mut self, ask: &Ask) -> Option<usize> {
        if ask.about.is_some() {
            // The second endpoint of the previous range may have scanned this one.
            self.second = None;
        }
        let from = ask.about.unwrap_or(i64::MAX);
        loop {
            let now = Instant::now();
            let chosen = self.second.filter(|index| self.health.serves(*index, now));
            let index = chosen.or_else(|| self.health.second(self.first, from, now))?;
            // The loop ends: an endpoint is put aside at its second failed check at the latest.
            if index == self.first || self.check(index).await {
                self.second = Some(index);
                return Some(index);
            }
        }
    }

    /// The endpoint that is asked after the one of the second answer. `None` if it refuses the check of its chain, or
    /// is of another chain.
    pub(super) async fn witness(&mut self) -> Option<usize> {
        let second = self.second.unwrap_or(self.first);
        let index = self.health.witness(second, self.first, Instant::now());
        self.check(index).await.then_some(index)
    }
}
