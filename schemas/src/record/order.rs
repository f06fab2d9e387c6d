//! An order after a change.

use serde::{Deserialize, Serialize};

use crate::{
    Address, Amount, Blockchain, CommandId, DepositId, DepositState, OrderCause, OrderId,
    OrderStatus, Stablecoin, TransferId, UnixMicros, UnixSeconds,
};

/// Seconds for which an ended order is kept beyond its late window: tables, lanes and chains may be
/// behind by that much.
pub const KEPT_SECONDS: i64 = 7 * 24 * 3600;

/// A record of `orders`: the whole order after each change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub order_id: OrderId,
    /// Rises by one with each record, from `CreateOrder::first_version` or 1.
    pub version: i64,
    /// Version clock: strictly increasing per order, the write time of its rows.
    pub updated_at: UnixMicros,
    pub cause: OrderCause,
    /// The api's command that this record answers, if any.
    pub command_id: Option<CommandId>,
    pub status: OrderStatus,
    /// `true` if this change moved the status: then a webhook is due (spec 6.1).
    pub status_changed: bool,
    pub merchant_order_id: String,
    pub amount: Amount,
    /// The amount as the merchant wrote it, for display.
    pub amount_text: String,
    pub webhook_url: String,
    /// Only transfers from this sender count, if set.
    pub expecting_wallet_address: Option<Address>,
    pub blockchain: Option<Blockchain>,
    pub stablecoin: Option<Stablecoin>,
    pub created_at: UnixSeconds,
    /// Transfers in blocks after this time do not pay it, unless their deposit accepts late ones.
    pub expires_at: UnixSeconds,
    /// The transfer that paid it; none if it is unpaid, or an operator marked it paid.
    pub paid_by: Option<TransferId>,
    /// Amount that this transfer brought.
    pub paid_value: Option<Amount>,
    /// Transfers that fit, seen and not yet settled.
    #[serde(default)]
    pub candidates: Vec<TransferId>,
    /// Its deposits, in the order of their requests.
    #[serde(default)]
    pub deposits: Vec<OrderDeposit>,
}

/// State of a deposit in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderDeposit {
    /// Its number among the order's requests, from 0.
    pub slot: i32,
    pub blockchain: Blockchain,
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    /// The coin's contract that the customer is shown.
    pub contract: Address,
    /// Digits after the point that the contract counts in.
    pub decimals: u8,
    pub state: DepositState,
    pub deposit_id: Option<DepositId>,
    /// The requested or reserved wallet.
    pub wallet_address: Address,
    /// Amount that the customer pays, once open.
    pub value: Option<Amount>,
    pub started_at: UnixSeconds,
}
