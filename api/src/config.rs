//! What the api needs to know. It has no section of its own: the executable hands it the shop.

mod shop;

use std::net::SocketAddr;

use schemas::{Secret, StablecoinContract, Wallet};

pub use shop::{Matching, Merchant, Orders, Shop};

/// Configuration of the api.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the listener that [`serve`](crate::serve) is given should be bound.
    pub listen: SocketAddr,
    /// Whose orders these are.
    pub merchant: Merchant,
    /// Value of `Service-Admin-Authorization` (spec 5.2).
    pub admin_secret: Secret,
    /// Wallets that take payments, in the order they are listed (spec 2.6).
    pub wallets: Vec<Wallet>,
    /// How long orders wait.
    pub orders: Orders,
    /// How deposits reserve their amounts.
    pub matching: Matching,
    /// The contracts of the configured chains: which stablecoin exists where, with how many digits.
    pub contracts: Vec<StablecoinContract>,
    /// Stands before the names of topics, and so of their schemas' subjects.
    pub topic_prefix: String,
    /// What the health check tells (spec 4.2).
    pub version: &'static str,
}
