//! Development chains, in time with the system clock.

use std::net::Ipv4Addr;

use alloy_primitives::{TxHash, U256};
use devnet::Devnet;
use schemas::{Address, AddressFamily, Blockchain};

use super::{Client, USDT, eventually, now, units, usdt, usdt_of};
use crate::Pace;

const BLOCK_SECONDS: u64 = 3;
/// Account that pays.
const PAYER: [u8; 20] = [0x22; 20];

/// A node of a chain with USDT and one block per second, the first one `age` seconds ago.
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

/// Queues a transfer of USDT to an address, in the smallest units.
pub fn transfer_usdt(node: &devnet::Chain, to: &str, units: u128) -> TxHash {
    let (token, to) = (USDT.parse().expect("an address"), to.parse().expect("an address"));
    node.transfer(token, PAYER.into(), to, U256::from(units)).expect("room for the transaction")
}

/// Mines a block at the present time, or a second after the last one.
pub fn mine_now(node: &devnet::Chain) {
    let time = now().unsigned_abs().max(node.head().timestamp + 1);
    node.mine_at(time).expect("room for the block");
}

/// Mines a block now and then, until `check` finds something.
pub async fn mining_until<T>(
    what: &str,
    node: &devnet::Chain,
    check: impl AsyncFn() -> Option<T>,
) -> T {
    let pace = Pace::default();
    eventually(what, || async {
        if pace.is_due() {
            mine_now(node);
        }
        check().await
    })
    .await
}

/// Queues the payment of an order.
pub async fn pay_order(client: &Client, node: &devnet::Chain, order: &str) -> TxHash {
    let deposit = client.deposit(order).await;
    let wallet = deposit["wallet_address"].as_str().expect("a wallet");
    transfer_usdt(node, wallet, units(&deposit["value"]))
}

/// Mines until an order has a status.
pub async fn mine_until_order_is(status: &str, client: &Client, node: &devnet::Chain, order: &str) {
    mining_until(&format!("order {order} to be {status}"), node, async || {
        (client.shown(order).await?["status"] == status).then_some(())
    })
    .await;
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
