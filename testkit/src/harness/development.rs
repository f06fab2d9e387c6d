//! Development chains whose times are near the clock's.

use std::net::Ipv4Addr;

use devnet::Devnet;
use schemas::{Address, AddressFamily, Blockchain};

use super::{now, usdt, usdt_of};

const BLOCK_SECONDS: u64 = 3;

/// A node of a chain with USDT and a block a second, the first of them this many seconds ago.
pub async fn evm_node(chain_id: u64, age: u64, height: u64) -> Devnet {
    let config = devnet::Config {
        chain_id,
        genesis_timestamp: now().unsigned_abs() - age,
        block_interval_secs: 1,
        tokens: vec![usdt()],
        ..devnet::Config::default()
    };
    let devnet = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.expect("a port");
    devnet.chain().mine(height).expect("room for the blocks");
    devnet
}

/// A chain with Tron's id and USDT, and a block every three seconds up to now. [`Devnet::serve_tron`] serves it.
pub fn tron_chain(height: u64) -> devnet::Chain {
    let usdt = usdt_of(Blockchain::Tron);
    let config = devnet::Config {
        chain_id: Blockchain::Tron.chain_id(),
        genesis_timestamp: now().unsigned_abs() - BLOCK_SECONDS * height,
        block_interval_secs: BLOCK_SECONDS,
        tokens: vec![devnet::Token {
            address: (*usdt.address.bytes()).into(),
            decimals: usdt.decimals,
            symbol: "USDT".into(),
        }],
        ..devnet::Config::default()
    };
    let chain = devnet::Chain::new(config).expect("a valid configuration");
    chain.mine(height).expect("room for the blocks");
    chain
}

/// The account of Tron that has the key of an EVM account, written as Tron writes it.
pub fn tron_address(evm: &str) -> String {
    let evm: Address = evm.parse().expect("an EVM address");
    Address::new(AddressFamily::Tron, *evm.bytes()).to_string()
}
