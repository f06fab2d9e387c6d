//! A chain that makes no progress although its endpoints are asked: no block is skipped, so an
//! operator must be notified.

use std::time::Duration;

use runtime::readiness::Alarm;
use schemas::{AlertKind, UnixMicros};

use super::Runner;
use super::alerts::CHECKS;
use crate::machine::{Cursor, Decision, Next, Note, Role};
use crate::rpc::Failure;

/// Failed attempts since the last progress, and the alarm that reports them.
#[derive(Debug, Default)]
pub(super) struct Stall {
    since: Option<UnixMicros>,
    /// Time of the last progress on the log; `None` once this process has made progress.
    published: Option<UnixMicros>,
    cause: String,
    /// With its text, while it is raised.
    alarm: Option<(String, Alarm)>,
}

impl Stall {
    /// A state without failed attempts, with the time of the last progress on the log.
    pub(super) fn since(published: Option<UnixMicros>) -> Self {
        Self { published, ..Self::default() }
    }

    /// Takes note of a failed attempt, with its cause where that is known. The time counts from the last progress on
    /// the log; once this process has made progress, from the first failure after it.
    fn failed(&mut self, now: UnixMicros, cause: Option<String>) {
        let since = self.since.or(self.published).unwrap_or(now);
        // A time of the future, where the clock was set back, would put the alarm off.
        self.since = Some(since.min(now));
        if let Some(cause) = cause {
            self.cause = cause;
        }
    }

    /// Returns `true` if failures have lasted for `bound` and no alarm was raised.
    fn is_due(&self, now: UnixMicros, bound: Duration) -> bool {
        let lasted = self.since.map(|since| now.0.saturating_sub(since.0).max(0).unsigned_abs());
        self.alarm.is_none() && lasted.is_some_and(|lasted| Duration::from_micros(lasted) >= bound)
    }

    /// Takes note of progress. Returns `true` if that ended an alarm.
    fn clear(&mut self) -> bool {
        (self.since, self.published) = (None, None);
        self.alarm.take().is_some()
    }

    /// Returns the reported text.
    fn text(&self) -> Option<&str> {
        self.alarm.as_ref().map(|(text, _)| text.as_str())
    }
}

/// Result of a question.
pub(super) struct Attempt<'a> {
    pub(super) index: usize,
    pub(super) role: Role,
    pub(super) decision: &'a Decision,
    pub(super) failure: Option<&'a Failure>,
}

impl Runner {
    /// Raises an alarm when scans or checks have failed for too long, and ends it when they succeed.
    pub(super) fn watch_progress(&mut self, attempt: &Attempt<'_>, cursor: &Cursor) {
        let now = self.clock.now();
        let cause = self.cause(attempt);
        let Decision { publish, next, .. } = attempt.decision;
        // A failed attempt may still publish a head, to report a gap.
        let has_progress = !publish.is_empty() || *next == Next::AtTip;
        let is_scanned = attempt.failure.is_none() && has_progress;
        let mut is_checked = attempt.role != Role::First && cause.is_none();
        let mut is_over = false;
        if is_scanned {
            is_over |= self.scan.clear();
        } else if attempt.role == Role::First && cause.is_some() {
            self.scan.failed(now, cause.clone());
        }
        if cursor.failed_checks() == 0 {
            let had_alarm = self.check.clear();
            (is_over, is_checked) = (is_over || had_alarm, is_checked || had_alarm);
        } else {
            is_checked = false;
            self.check.failed(now, cause);
        }
        let name = self.chain.blockchain.as_str();
        if is_over {
            tracing::info!(blockchain = name, "{name} makes progress again");
        }
        self.raise_due(now);
        self.end_alerts(cursor, is_scanned, is_checked);
    }

    /// Takes note that no step could begin, as an endpoint did not show which chain it serves.
    pub(super) fn not_begun(&mut self, index: usize, failure: &Failure) {
        let now = self.clock.now();
        self.scan.failed(now, Some(self.words_of(index, failure)));
        self.raise_due(now);
        self.show(None, self.stalled());
    }

    fn words_of(&self, index: usize, failure: &Failure) -> String {
        format!("{}: {failure}", self.endpoints.name(index))
    }

    /// Raises alarms that are due, and shows the halt if one is raised.
    fn raise_due(&mut self, now: UnixMicros) {
        let (name, bound) = (self.chain.blockchain.as_str(), self.endpoints.stalled());
        let mut lasting = Vec::new();
        let stalls = [("scanned", "", &mut self.scan), ("confirmed", CHECKS, &mut self.check)];
        for (what, subject, stall) in stalls {
            let is_new = stall.is_due(now, bound);
            if is_new {
                let text = words(name, what, bound, &stall.cause);
                tracing::error!(blockchain = name, reason = text, "chain makes no progress");
                let alarm = self.readiness.alarm(format!("{name} is halted: {text}"));
                stall.alarm = Some((text, alarm));
            }
            lasting.extend(stall.text().map(|text| (is_new, subject, text.to_owned())));
        }
        for (is_new, subject, text) in lasting {
            // Raises the alert again if an operator resolved it while the stall lasts.
            if is_new || !self.is_raised(AlertKind::ChainHalted, subject) {
                self.note_alert(AlertKind::ChainHalted, subject, text);
            }
        }
        self.show_halt(self.stalled());
    }

    /// Returns the reported reason for the lack of progress, if any.
    pub(super) fn stalled(&self) -> Option<&str> {
        self.scan.text().or(self.check.text())
    }

    /// Returns the cause of a failed attempt; `None` if it succeeded.
    fn cause(&self, attempt: &Attempt<'_>) -> Option<String> {
        let Attempt { index, decision, failure, .. } = attempt;
        let cause = match (failure, &decision.next, Note::check(&decision.notes)) {
            (Some(failure), ..) => return Some(self.words_of(*index, failure)),
            (None, _, Some((_, block))) => {
                format!("its answer about the blocks up to {} cannot be used", block.number)
            }
            (None, Next::Retry(reason), None) => (*reason).to_owned(),
            (None, Next::Behind, None) => {
                "is behind what was scanned, or behind start_block".to_owned()
            }
            (None, Next::Ask | Next::AtTip | Next::Halt(_), None) => return None,
        };
        Some(format!("{}: {cause}", self.endpoints.name(*index)))
    }
}

fn words(name: &str, what: &str, bound: Duration, cause: &str) -> String {
    let minutes = bound.as_secs() / 60;
    format!(
        "nothing of {name} was {what} for {minutes} minutes ({cause}). No block is skipped: the same question is asked \
         until the answer can be used, and orders do not expire meanwhile. `tidemark doctor` examines the endpoints; \
         replace one, or add another one to chains.{name}.rpc, and reload or restart. The chain continues by itself if \
         one recovers"
    )
}

#[cfg(test)]
mod tests {
    use runtime::Readiness;

    use super::*;

    const BOUND: Duration = Duration::from_secs(300);

    #[test]
    fn only_what_lasts_is_an_alarm_and_once() {
        let mut stall = Stall::default();
        let at = |seconds: i64| UnixMicros(1_000_000 * seconds);
        assert!(!stall.is_due(at(900), BOUND));
        stall.failed(at(0), None);
        stall.failed(at(299), None);
        assert!(!stall.is_due(at(299), BOUND));
        assert!(!stall.clear());
        stall.failed(at(299), None);
        assert!(
            !stall.is_due(at(300), BOUND),
            "the time counts from the first failure after progress"
        );
        stall.failed(at(600), None);
        assert!(stall.is_due(at(600), BOUND));
        stall.alarm = Some(("eth".into(), Readiness::default().alarm("eth")));
        assert!(!stall.is_due(at(900), BOUND));
        assert!(stall.clear());
        assert_eq!(stall.text(), None);
    }

    #[test]
    fn clock_set_back_does_not_put_the_alarm_off() {
        let mut stall = Stall::default();
        let at = |seconds: i64| UnixMicros(1_000_000 * seconds);
        stall.failed(at(86_400), None);
        stall.failed(at(0), None);
        assert!(!stall.is_due(at(299), BOUND) && stall.is_due(at(300), BOUND));
    }

    #[test]
    fn a_new_process_counts_from_what_is_on_the_log() {
        let at = |seconds: i64| UnixMicros(1_000_000 * seconds);
        let mut stall = Stall::since(Some(at(0)));
        assert!(!stall.is_due(at(900), BOUND), "nothing has failed yet");
        stall.failed(at(299), None);
        assert!(!stall.is_due(at(299), BOUND));
        assert!(stall.is_due(at(300), BOUND));
        stall.clear();
        stall.failed(at(500), None);
        assert!(!stall.is_due(at(799), BOUND), "there was progress in between");
        assert!(stall.is_due(at(800), BOUND));
    }
}
