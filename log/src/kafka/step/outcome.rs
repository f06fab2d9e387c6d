//! Reasons why a step was not committed, and their meaning for its owner and for its producer.

use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::Cause;

/// Duration of a commit after which the producer is replaced: the library may have sent the request
/// twice, and the second one must not reach the next transaction (KIP-890).
const SLOW_COMMIT: Duration = Duration::from_secs(1);

/// A step that is not known to be committed.
#[derive(Debug)]
pub(crate) struct StepFailure {
    pub(crate) outcome: Outcome,
    /// `true` if the producer can make another step, once this one is aborted.
    pub(crate) producer_usable: bool,
    pub(crate) cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing was committed.
    Aborted,
    /// Nothing was committed: the group does not accept the member any more.
    MembershipLost,
    /// Another producer has the transactional id, or the broker timed this one's transaction out.
    /// Nothing was committed, unless a commit had been requested: then the outcome is unknown.
    ProducerFenced,
    /// Nothing was committed, and this step never can be: a record is too large.
    Rejected,
    /// A commit was requested, and its response is unknown.
    Unknown,
}

impl Outcome {
    /// The value of the metric's label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Aborted | Self::MembershipLost | Self::Rejected => "aborted",
            Self::ProducerFenced => "fenced",
            Self::Unknown => "unknown",
        }
    }
}

/// Properties of an error, from the client library.
#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    fatal: bool,
    requires_abort: bool,
    retriable: bool,
}

impl Flags {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others say nothing of a transaction")]
    fn of(error: &KafkaError) -> Self {
        match error {
            KafkaError::Transaction(error) => Self {
                fatal: error.is_fatal(),
                requires_abort: error.txn_requires_abort(),
                retriable: error.is_retriable(),
            },
            // The binding's own wait before a commit timed out; the library was not called yet.
            KafkaError::Flush(_) => Self { retriable: true, ..Self::default() },
            _ => Self::default(),
        }
    }

    /// `true` if the same call is to be retried.
    const fn is_retriable(self) -> bool {
        self.retriable && !self.fatal && !self.requires_abort
    }

    const fn outcome(self) -> (Outcome, bool) {
        match self {
            Self { fatal: true, .. } => (Outcome::ProducerFenced, false),
            Self { requires_abort: true, .. } => (Outcome::Aborted, true),
            // The state of the transaction is unknown: the next producer's start aborts it.
            Self { fatal: false, requires_abort: false, .. } => (Outcome::Aborted, false),
        }
    }
}

/// `true` if a failed call of a transaction is to be retried.
pub(crate) fn is_retriable(error: &KafkaError) -> bool {
    Flags::of(error).is_retriable()
}

impl StepFailure {
    pub(crate) fn aborted(cause: impl Into<Cause>) -> Self {
        Self { outcome: Outcome::Aborted, producer_usable: true, cause: cause.into() }
    }

    pub(crate) fn rejected(cause: impl Into<Cause>) -> Self {
        Self { outcome: Outcome::Rejected, ..Self::aborted(cause) }
    }

    /// Failure of a step that only a new producer can abort.
    pub(crate) fn stuck(cause: impl Into<Cause>) -> Self {
        Self { producer_usable: false, ..Self::aborted(cause) }
    }

    /// Failure of a call of the transaction that is not retried.
    pub(crate) fn of_call(error: &KafkaError, cause: Cause) -> Self {
        let (outcome, producer_usable) = Flags::of(error).outcome();
        let is_lost = outcome == Outcome::Aborted && producer_usable && loses_membership(error);
        let outcome = if is_lost { Outcome::MembershipLost } else { outcome };
        Self { outcome, producer_usable, cause }
    }

    /// Adjusts the failure once a commit may have been requested: the commit may have happened,
    /// even where the library demands an abort (as it does for any unknown response).
    pub(crate) fn once_asked_to_commit(self) -> Self {
        match self.outcome {
            Outcome::ProducerFenced => self,
            Outcome::Aborted | Outcome::MembershipLost | Outcome::Rejected | Outcome::Unknown => {
                Self { outcome: Outcome::Unknown, producer_usable: false, ..self }
            }
        }
    }
}

/// End of a step, as far as its producer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepEnd {
    /// The commit took this long.
    Committed(Duration),
    Aborted,
    /// The step may be open or committed.
    Uncertain,
}

impl StepEnd {
    /// `true` if the producer can make another step. Not after a connection was disturbed: a
    /// request of this step that was sent twice must not reach the next one.
    pub(crate) fn leaves_usable(self, was_disturbed: bool) -> bool {
        let is_final = match self {
            Self::Committed(took) => took <= SLOW_COMMIT,
            Self::Aborted => true,
            Self::Uncertain => false,
        };
        is_final && !was_disturbed
    }
}

/// `true` if the group refused the step because the worker is not a member of it, or not any more.
fn loses_membership(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(Code::FencedInstanceId | Code::UnknownMemberId | Code::IllegalGeneration)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_flags_has_its_outcome() {
        let cases = [
            // fatal, abort, retriable
            ((false, false, false), (Outcome::Aborted, false), false),
            ((false, false, true), (Outcome::Aborted, false), true),
            ((false, true, false), (Outcome::Aborted, true), false),
            ((false, true, true), (Outcome::Aborted, true), false),
            ((true, false, false), (Outcome::ProducerFenced, false), false),
            ((true, false, true), (Outcome::ProducerFenced, false), false),
            ((true, true, false), (Outcome::ProducerFenced, false), false),
            ((true, true, true), (Outcome::ProducerFenced, false), false),
        ];
        for ((fatal, requires_abort, retriable), outcome, is_retriable) in cases {
            let flags = Flags { fatal, requires_abort, retriable };
            assert_eq!((flags.outcome(), flags.is_retriable()), (outcome, is_retriable));
        }
    }

    #[test]
    fn a_producer_that_may_disturb_a_step_is_replaced() {
        let slow = SLOW_COMMIT + Duration::from_micros(1);
        let cases = [
            (StepEnd::Committed(Duration::ZERO), true),
            (StepEnd::Committed(SLOW_COMMIT), true),
            (StepEnd::Committed(slow), false),
            (StepEnd::Aborted, true),
            (StepEnd::Uncertain, false),
        ];
        for (end, is_usable) in cases {
            assert_eq!(end.leaves_usable(false), is_usable, "{end:?}");
            assert!(!end.leaves_usable(true), "{end:?}");
        }
    }

    #[test]
    fn of_binding_errors_only_flush_is_retried() {
        let timed_out = Code::OperationTimedOut;
        assert!(is_retriable(&KafkaError::Flush(timed_out)));
        assert!(!is_retriable(&KafkaError::MessageProduction(timed_out)));
        assert!(!is_retriable(&KafkaError::Canceled));
    }

    #[test]
    fn only_three_codes_are_about_the_membership() {
        let of = |code| loses_membership(&KafkaError::ConsumerCommit(code));
        for code in [Code::FencedInstanceId, Code::UnknownMemberId, Code::IllegalGeneration] {
            assert!(of(code), "{code}");
        }
        assert!(!of(Code::RebalanceInProgress) && !of(Code::InvalidProducerEpoch));
        assert!(!loses_membership(&KafkaError::Canceled));
    }

    #[test]
    fn once_asked_to_commit_only_fenced_is_known() {
        let lost = StepFailure { outcome: Outcome::MembershipLost, ..StepFailure::aborted("why") };
        for failure in [StepFailure::aborted("why"), lost, StepFailure::stuck("why")] {
            let failure = failure.once_asked_to_commit();
            assert_eq!((failure.outcome, failure.producer_usable), (Outcome::Unknown, false));
        }
        let fenced = StepFailure { outcome: Outcome::ProducerFenced, ..StepFailure::stuck("why") };
        assert_eq!(fenced.once_asked_to_commit().outcome, Outcome::ProducerFenced);
    }
}
