//! The two state machines: pure, synchronous, without clock or configuration.
//!
//! Each takes a record of the log and returns effects; time is in the record. A machine journals its changes since the
//! last commit: they become changelog entries or, if the step is aborted, are undone.

use std::fmt::Debug;

use schemas::record::Record;
use schemas::{Blockchain, CodecError, OrderId, Stablecoin, UnixSeconds, UnknownReason};

use matching::Share;

/// Reason with which the settle of a forgotten order is refused. No other settle is refused with it, so the lane can
/// distinguish this case: the transfer may have paid that order before.
const FORGOTTEN: UnknownReason = UnknownReason::NoDeposit;

/// Ends a function with [`Broken`] if the rule `$number` of `docs/internals/invariants.md` does not hold.
macro_rules! invariant {
    ($number:expr, $holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::machine::Broken::new($number, format!($($what)+)));
        }
    };
}

pub mod matching;
pub mod orders;
mod table;

/// A rule of `docs/internals/invariants.md` does not hold: this program is wrong, or its state is damaged. Rules are
/// checked where money moves, in release builds too. Nothing of the step may be committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invariant {invariant} is broken: {what}")]
pub struct Broken {
    /// Number of the rule in `docs/internals/invariants.md`.
    pub invariant: u8,
    /// Description of the contradiction.
    pub what: String,
}

impl Broken {
    fn new(invariant: u8, what: String) -> Self {
        Self { invariant, what }
    }
}

/// Reason why an entry of the changelog cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The key is not of this machine, or its entry is one that the machine never writes under it.
    #[error("{0:?} is no key of this changelog, or has the entry of another key")]
    Key(String),
    /// The value cannot be decoded.
    #[error("entry {0:?}: {1}")]
    Value(String, CodecError),
    /// The entry contradicts earlier ones.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// A state machine over one partition of the log. The runner commits its effects, its changes and the input position in
/// one step; if the log aborts the step, the runner undoes the changes.
pub trait Machine: Clone + Debug {
    /// Type of its inputs.
    type Input: Clone + Debug;
    /// Type of its effects, which are published.
    type Effect: Clone + Debug + PartialEq;
    /// A row of its state in the changelog.
    type Entry: Record + Clone + Debug + PartialEq;

    /// Applies one input and appends its effects to `effects`.
    ///
    /// # Errors
    /// [`Broken`]: the state is unusable, and nothing of the step may be committed.
    fn decide(
        &mut self,
        input: &Self::Input,
        effects: &mut Vec<Self::Effect>,
    ) -> Result<(), Broken>;

    /// Changes of the step for the changelog: key, and the entry or none if it was removed.
    fn changes(&self) -> Vec<(String, Option<Self::Entry>)>;

    /// Takes the step as committed: it can no longer be undone.
    fn commit(&mut self);

    /// Undoes the step: the state is as before it.
    ///
    /// # Errors
    /// [`Broken`]: the state is unusable.
    fn undo(&mut self) -> Result<(), Broken>;

    /// Restores a changelog entry.
    ///
    /// # Errors
    /// [`RestoreError`]: the state is unusable.
    fn restore(&mut self, key: &str, entry: Option<&Self::Entry>) -> Result<(), RestoreError>;

    /// The whole state as changelog entries, in a fixed order: two states are equal exactly when their snapshots are.
    fn snapshot(&self) -> Vec<(String, Self::Entry)>;

    /// Share of amounts in use for each coin on its chain. A metric, not a part of the state.
    fn shares(&self) -> Vec<(Blockchain, Stablecoin, Share)> {
        Vec::new()
    }

    /// Number of emergency stops in force on its chain, if it has one.
    fn stops(&self) -> Option<(Blockchain, usize)> {
        None
    }

    /// Number of rows it holds.
    fn rows(&self) -> usize;

    /// Orders that need a `tick` on the log, at most `max`: first one that is to be forgotten, if any, as its tick also
    /// forgets others; then those with a timer due before `now`, earliest first.
    fn due(&self, _now: UnixSeconds, _max: usize) -> Vec<OrderId> {
        Vec::new()
    }

    /// Returns the order if the input is its tick.
    fn ticked(_input: &Self::Input) -> Option<OrderId> {
        None
    }
}
