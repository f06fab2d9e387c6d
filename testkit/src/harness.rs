//! Shared parts of the black-box tests: the executable as one process or several, a real EVM node, a merchant's
//! receiver, a signing client.

mod anvil;
mod client;
mod cluster;
mod command;
mod development;
mod line;
mod merchant;
mod process;
mod receiver;
mod tidemark;

pub use anvil::{Anvil, BUYER, USDT, usdt, usdt_of};
pub use client::{Client, now, payable, units};
pub use cluster::{Cluster, Installation, Member};
pub use command::{command, errand, exits, received};
pub use development::{
    evm_node, mine_now, mine_until_order_is, mining_until, pay_order, transfer_usdt, tron_address,
    tron_chain,
};
pub use line::Line;
pub use merchant::{Merchant, Received};
pub use process::{Process, executable};
pub use receiver::{Call, Receiver, Reply, parse_webhook};
pub use tidemark::{Chain, Tidemark};

pub use crate::eventually;
use schemas::Layout;

/// The default layout of the configuration.
pub const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };
/// A wallet of the shop.
pub const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
/// Webhook URL without a receiver.
pub const WEBHOOK: &str = "http://127.0.0.1:9/hooks";
/// `[merchant] secret` of every test.
pub const MERCHANT_SECRET: &str = "test-merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5";
/// `[admin] secret` of every test.
pub const ADMIN_SECRET: &str = "test-admin-5vN8xK2qL7wR";

/// A port that is free now.
pub fn free_port() -> u16 {
    xtask::free_port().expect("a free port")
}
