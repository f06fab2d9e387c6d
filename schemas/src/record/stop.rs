//! What an operator stops.

use serde::{Deserialize, Serialize};

use crate::{Address, Stablecoin};

/// What an emergency stop covers on a chain: what fits all that is named. With nothing named that is everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StopScope {
    #[serde(rename = "token")]
    pub stablecoin: Option<Stablecoin>,
    /// A wallet or a contract.
    pub address: Option<Address>,
}

impl StopScope {
    /// Whether it covers a payment of this contract of the coin to this wallet.
    #[must_use]
    pub fn covers(&self, wallet: Address, stablecoin: Stablecoin, contract: Address) -> bool {
        self.stablecoin.is_none_or(|of| of == stablecoin)
            && self.address.is_none_or(|of| of == wallet || of == contract)
    }
}
