//! A deposit after a change.

use serde::{Deserialize, Serialize};

use crate::{
    Address, Amount, Blockchain, CloseReason, DepositId, DepositState, OrderId, Stablecoin,
    UnixMicros, UnixSeconds,
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
    /// Transfers in blocks up to this time count.
    pub expires_at: UnixSeconds,
}
