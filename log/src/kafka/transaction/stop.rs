//! Why a step did not come to its end, and what that means.

use crate::kafka::fault::Lost;

/// Why a step is not known to have happened.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::kafka) enum Failure {
    /// Nothing was written.
    Aborted(String),
    /// Nothing was written, and the group says why: the membership is lost.
    Lost(Lost, String),
    /// Nothing was written: another producer has the name, or the broker gave this one up.
    Fenced(String),
    /// Nothing was written, and nothing of it ever can be: a record is too large.
    Refused(String),
    /// It may have been written.
    Unknown(String),
}

/// Where a step stopped.
pub(super) enum Stop {
    Abort(String, Option<Lost>),
    Fenced(String),
    /// Nothing was committed, and this producer is of no more use.
    Broken(String),
    /// Nothing of it can ever be written.
    Refused(String),
    Unknown(String),
}

impl Stop {
    pub(super) fn cause(&self) -> &str {
        match self {
            Self::Abort(cause, _)
            | Self::Fenced(cause)
            | Self::Broken(cause)
            | Self::Refused(cause)
            | Self::Unknown(cause) => cause,
        }
    }

    /// What it means where the broker may have been told to commit: it may have done so, also where the
    /// library would abort now (it says so of any answer that it does not know).
    pub(super) fn once_asked_to_commit(self) -> Self {
        match self {
            Self::Abort(cause, _) | Self::Broken(cause) => Self::Unknown(cause),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_asked_to_commit_only_being_fenced_is_certain() {
        let cause = || "why".to_owned();
        let unknown = [
            Stop::Abort(cause(), None),
            Stop::Abort(cause(), Some(Lost::Evicted)),
            Stop::Broken(cause()),
            Stop::Unknown(cause()),
        ];
        for stop in unknown {
            assert!(matches!(stop.once_asked_to_commit(), Stop::Unknown(_)));
        }
        assert!(matches!(Stop::Fenced(cause()).once_asked_to_commit(), Stop::Fenced(_)));
    }
}
