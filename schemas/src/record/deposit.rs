//! A deposit after a change.

use serde::{Deserialize, Serialize};

use super::plain_record;
use crate::{
    Address, Amount, Blockchain, CloseReason, DepositId, DepositState, OrderId, Stablecoin,
    UnixMicros, UnixSeconds,
};

/// A record of `deposits`: the whole deposit after each change (spec 2.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deposit {
    /// Its id.
    pub deposit_id: DepositId,
    /// Version clock: strictly increasing per deposit.
    pub updated_at: UnixMicros,
    /// The order it is for.
    pub order_id: OrderId,
    /// Position among the order's deposits.
    pub slot: i32,
    /// Open or closed.
    pub state: DepositState,
    /// Why it closed.
    pub close_reason: Option<CloseReason>,
    /// Chain.
    pub blockchain: Blockchain,
    /// Coin.
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    /// The only sender that counts, if restricted.
    pub user_address: Option<Address>,
    /// Receiving wallet.
    pub wallet_address: Address,
    /// What the customer pays, exactly.
    pub value: Amount,
    /// The same as text.
    pub value_text: String,
    /// Transfers in blocks from here on count.
    pub started_at: UnixSeconds,
    /// Transfers in blocks up to here count.
    pub expires_at: UnixSeconds,
}
plain_record!(Deposit);
