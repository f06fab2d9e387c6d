//! A wallet of the merchant (spec 2.6).

use crate::{Address, Blockchain, Stablecoin};

/// Recipient of payments: an address on one chain. An address on several chains is several wallets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wallet {
    pub blockchain: Blockchain,
    pub address: Address,
    pub stablecoins: Vec<Stablecoin>,
    /// Still watched and listed, and no longer offered.
    pub retired: bool,
}
