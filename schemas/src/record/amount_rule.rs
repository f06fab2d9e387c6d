//! Amounts that a deposit may have.

use serde::{Deserialize, Serialize};

use crate::{Amount, Draws, binary};

/// The order's own amount, or a little more: by digits below one cent, then by cents too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmountRule {
    /// `true` if the order's own amount is tried first; otherwise it is tried only if no raise
    /// below a cent is allowed.
    pub exact_first: bool,
    /// Maximum number of digits after the point in a raised amount.
    pub digits: i32,
    /// Maximum by which an amount is raised.
    pub limit: Amount,
    /// Numbers that decide the digits below one cent.
    #[serde(with = "binary")]
    pub draws: Draws,
}

impl AmountRule {
    /// Allows only the order's own amount.
    pub const EXACT: Self =
        Self { exact_first: true, digits: 2, limit: Amount::ZERO, draws: Draws([0; 32]) };
}
