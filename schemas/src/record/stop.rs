//! Emergency stops by operators.

use serde::{Deserialize, Serialize};

use crate::{Address, Blockchain, Stablecoin};

/// Scope of an emergency stop: payments that match all given fields. Stops on all chains and on one
/// are distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StopScope {
    /// The chain to stop; `None` for all chains.
    pub blockchain: Option<Blockchain>,
    #[serde(rename = "token")]
    pub stablecoin: Option<Stablecoin>,
    /// A wallet or a contract.
    pub address: Option<Address>,
}

impl StopScope {
    /// The coin and the address, in words; `None` if the scope has neither.
    #[must_use]
    pub fn subject(&self) -> Option<String> {
        match (self.stablecoin, self.address) {
            (None, None) => None,
            (Some(coin), None) => Some(coin.to_string()),
            (None, Some(address)) => Some(address.to_string()),
            (Some(coin), Some(address)) => Some(format!("{coin} at {address}")),
        }
    }

    /// `true` if it covers a payment of this contract of the coin to this wallet.
    #[must_use]
    pub fn covers(&self, wallet: Address, stablecoin: Stablecoin, contract: Address) -> bool {
        self.stablecoin.is_none_or(|of| of == stablecoin)
            && self.address.is_none_or(|of| of == wallet || of == contract)
    }
}
