//! The points that a step passes: for measurements, and for tests that kill a process there.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepPoint {
    BeforeBegin,
    /// The broker knows nothing of the transaction yet.
    AfterBegin,
    /// A long step sends its records in parts.
    BeforeSend,
    /// Some of the records may be on the broker.
    AfterSend,
    BeforeOffsets,
    /// The broker has the offsets, pending.
    AfterOffsets,
    BeforeDrain,
    /// The broker has all records.
    AfterDrain,
    BeforeCommit,
    AfterCommit,
    BeforeAbort,
    AfterAbort,
}

/// Called at every point that a step passes, on the thread of the step.
pub trait StepObserver: Send + Sync {
    fn reached(&self, point: StepPoint);
}

/// A part of a step, as it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Begin,
    Send,
    Offsets,
    Drain,
    Commit,
    Abort,
}

impl Phase {
    /// The value of the metric's label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Send => "send",
            Self::Offsets => "offsets",
            Self::Drain => "drain",
            Self::Commit => "commit",
            Self::Abort => "abort",
        }
    }

    pub(crate) const fn points(self) -> (StepPoint, StepPoint) {
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
