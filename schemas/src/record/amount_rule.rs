//! Which amounts a deposit may have.

use serde::{Deserialize, Serialize};

use crate::{Amount, Draws, binary};

/// The order's own amount, or a little more: by digits below one cent, then by cents too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmountRule {
    /// Whether the order's own amount is tried first. Else it is only where the rule leaves no other.
    pub exact_first: bool,
    /// How many digits after the point a raised amount has at most.
    pub digits: i32,
    /// By how much at most an amount is raised.
    pub limit: Amount,
    /// Decide the digits below one cent.
    #[serde(with = "binary")]
    pub draws: Draws,
}

impl AmountRule {
    /// The order's own amount, or none.
    pub const EXACT: Self =
        Self { exact_first: true, digits: 2, limit: Amount::ZERO, draws: Draws([0; 32]) };
}
