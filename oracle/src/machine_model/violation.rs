//! Findings of the checks.

use std::fmt::{Arguments, Debug};

use processor::machine::Broken;

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Its number in `docs/internals/invariants.md`.
    pub invariant: u8,
    pub text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.text)
    }
}

/// A broken invariant that the machine itself found.
impl From<Broken> for Violation {
    fn from(broken: Broken) -> Self {
        Self { invariant: broken.invariant, text: format!("found by the machine: {}", broken.what) }
    }
}

/// Returns a [`Violation`] with the text if the condition does not hold.
macro_rules! holds {
    ($invariant:literal, $condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(Violation { invariant: $invariant, text: format!($($text)+) });
        }
    };
}
pub(super) use holds;

/// Returns a [`Violation`] if the two values differ.
pub(super) fn same<T: PartialEq + Debug + ?Sized>(
    invariant: u8,
    what: Arguments<'_>,
    left: &T,
    right: &T,
) -> Result<(), Violation> {
    if left == right {
        return Ok(());
    }
    Err(Violation { invariant, text: format!("{what} differs:\n{left:?}\n{right:?}") })
}
