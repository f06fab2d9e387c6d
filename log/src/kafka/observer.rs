//! The points that a step passes. Measurements hang on them, and tests that kill a process there.

/// Where a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepPoint {
    /// Nothing of the step exists.
    BeforeBegin,
    /// The producer has begun a transaction; the broker knows nothing of it.
    AfterBegin,
    /// Before records are handed over: a long step does so in parts.
    BeforeSend,
    /// They are handed over; some may be on the broker.
    AfterSend,
    /// Before the offsets are sent.
    BeforeOffsets,
    /// The broker has the offsets, pending.
    AfterOffsets,
    /// Before the last records are waited for.
    BeforeDrain,
    /// The broker has all records.
    AfterDrain,
    /// Before the broker is told to commit.
    BeforeCommit,
    /// The step is committed.
    AfterCommit,
    /// Before the broker is told to abort.
    BeforeAbort,
    /// The step is aborted.
    AfterAbort,
}

/// Is told of every point that a step passes, on the thread of the step.
pub trait StepObserver: Send + Sync {
    /// The step is at `point`.
    fn reached(&self, point: StepPoint);
}

/// A part of a step, as it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Begin,
    Send,
    Offsets,
    Drain,
    Commit,
    Abort,
}

impl Phase {
    /// The value of the metric's label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Send => "send",
            Self::Offsets => "offsets",
            Self::Drain => "drain",
            Self::Commit => "commit",
            Self::Abort => "abort",
        }
    }

    /// The points before and after it.
    pub(super) const fn points(self) -> (StepPoint, StepPoint) {
        match self {
            Self::Begin => (StepPoint::BeforeBegin, StepPoint::AfterBegin),
            Self::Send => (StepPoint::BeforeSend, StepPoint::AfterSend),
            Self::Offsets => (StepPoint::BeforeOffsets, StepPoint::AfterOffsets),
            Self::Drain => (StepPoint::BeforeDrain, StepPoint::AfterDrain),
            Self::Commit => (StepPoint::BeforeCommit, StepPoint::AfterCommit),
            Self::Abort => (StepPoint::BeforeAbort, StepPoint::AfterAbort),
        }
    }
}
