//! The points that a step passes: for measurements, and for tests that kill a process there.

/// A point in a step on Kafka, which is one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepPoint {
    BeforeBegin,
    /// The broker knows nothing of the transaction yet.
    AfterBegin,
    /// Passed once for each part in which a long step sends its records, as is `AfterSend`.
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
    /// Called at a point of the step, which continues on return.
    fn reached(&self, point: StepPoint);
}

/// A part of a step: the label of its metric, and the points before and after it.
pub(crate) struct Phase(pub(crate) &'static str, pub(crate) StepPoint, pub(crate) StepPoint);

impl Phase {
    pub(crate) const BEGIN: Self = Self("begin", StepPoint::BeforeBegin, StepPoint::AfterBegin);
    pub(crate) const SEND: Self = Self("send", StepPoint::BeforeSend, StepPoint::AfterSend);
    pub(crate) const OFFSETS: Self =
        Self("offsets", StepPoint::BeforeOffsets, StepPoint::AfterOffsets);
    pub(crate) const DRAIN: Self = Self("drain", StepPoint::BeforeDrain, StepPoint::AfterDrain);
    pub(crate) const COMMIT: Self = Self("commit", StepPoint::BeforeCommit, StepPoint::AfterCommit);
    pub(crate) const ABORT: Self = Self("abort", StepPoint::BeforeAbort, StepPoint::AfterAbort);
}
