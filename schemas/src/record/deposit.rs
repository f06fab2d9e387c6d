//! A deposit after a change, and the amounts that it may have.

use serde::{Deserialize, Serialize};

use crate::{
    Address, Amount, Blockchain, CloseReason, DepositId, DepositState, Draws, OrderId, Stablecoin,
    UnixMicros, UnixSeconds, binary,
};

/// A record of `deposits`: the whole deposit after each change (spec 2.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deposit {
    pub deposit_id: DepositId,
    /// Version clock: strictly increasing per deposit.
    pub updated_at: UnixMicros,
    pub order_id: OrderId,
    pub slot: i32,
    pub state: DepositState,
    pub close_reason: Option<CloseReason>,
    pub blockchain: Blockchain,
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    /// The contracts whose transfers pay it.
    #[serde(default)]
    pub contracts: Vec<Address>,
    pub user_address: Option<Address>,
    pub wallet_address: Address,
    /// Exact amount that the customer pays.
    pub value: Amount,
    pub value_text: String,
    /// Time when its customer chose it, by the clock of the api.
    pub started_at: UnixSeconds,
    /// Transfers in blocks after this time do not pay it, unless it accepts late ones.
    pub expires_at: UnixSeconds,
}

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
