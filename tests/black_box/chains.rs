//! All eight chains at once, through one process: each pays an order by its default policy, despite a reorganisation, a
//! kill of the process and the loss of its first endpoint.

use std::net::Ipv4Addr;

use alloy_primitives::{B256, U256};
use devnet::{Devnet, Reorg};
use schemas::Blockchain;
use serde_json::{Value, json};
use testkit::harness::{
    Anvil, Chain, Client, Line, Merchant, Tidemark, eventually, tron_address, tron_chain, units,
    usdt_of,
};

const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
/// Each chain with its default lag: the number of blocks required above a scanned block.
const CHAINS: [(Blockchain, u64); 8] = [
    (Blockchain::Eth, 0),
    (Blockchain::Polygon, 1),
    (Blockchain::Base, 1),
    (Blockchain::Arb, 8),
    (Blockchain::Op, 1),
    (Blockchain::Linea, 2),
    (Blockchain::Avaxc, 1),
    (Blockchain::Tron, 0),
];
/// Lag of `safe` behind the head, in blocks; `finalized` lags twice as far.
const EPOCH_SLOTS: u64 = 16;
/// Seconds between two blocks: an epoch of them lasts at least as long as one of Ethereum's (384 s).
const BLOCK_SECONDS: u64 = 25;
/// More than every default policy requires.
const CONFIRMATIONS: u64 = 80;

enum Node {
    Evm(Anvil),
    Tron(Devnet),
}

impl Node {
    async fn start(blockchain: Blockchain) -> Self {
        if blockchain != Blockchain::Tron {
            return Self::Evm(Anvil::pose_as(blockchain, EPOCH_SLOTS).await);
        }
        let chain = tron_chain(40);
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Self::Tron(Devnet::serve_tron(chain, address).await.unwrap())
    }

    fn url(&self) -> &str {
        match self {
            Self::Evm(anvil) => anvil.url(),
            Self::Tron(devnet) => devnet.url(),
        }
    }

    /// Mines enough blocks, at the interval that gives tags their real age.
    async fn confirm(&self) {
        match self {
            Self::Evm(anvil) => anvil.mine_apart(CONFIRMATIONS, BLOCK_SECONDS).await,
            Self::Tron(_) => self.mine(CONFIRMATIONS).await,
        }
    }

    async fn mine(&self, count: u64) {
        match self {
            Self::Evm(anvil) => anvil.mine(count).await,
            Self::Tron(devnet) => drop(devnet.chain().mine(count).unwrap()),
        }
    }

    /// Puts a payment into the pool; returns its hash.
    async fn pay(&self, units: u128) -> String {
        match self {
            Self::Evm(anvil) => anvil.transfer(&[(WALLET, units)]).await,
            Self::Tron(devnet) => {
                let (chain, usdt) = (devnet.chain(), usdt_of(Blockchain::Tron));
                let wallet = WALLET.parse().unwrap();
                let token = (*usdt.address.bytes()).into();
                let pay = || chain.transfer(token, [0x22; 20].into(), wallet, U256::from(units));
                // A transfer of the same amount fails first, and its log stays, as on some Tron nodes.
                chain.fail_transaction(pay().unwrap());
                pay().unwrap().to_string()
            }
        }
    }

    /// Replaces the last blocks: the payment moves from the first to the second.
    async fn reorg(&self, depth: u64, tx: &str) {
        match self {
            Self::Evm(anvil) => {
                let raw = anvil.call("eth_getRawTransactionByHash", json!([tx])).await;
                anvil.call("anvil_reorg", json!([depth, [[raw, 1]]])).await;
                anvil.mine(1).await;
            }
            Self::Tron(devnet) => {
                let tx: B256 = tx.parse().unwrap();
                devnet.chain().reorg(depth, Reorg::Move { tx, to_offset: 1 }).unwrap();
            }
        }
    }
}

/// A chain of the shop, and the payment on it.
struct NodeState {
    blockchain: Blockchain,
    lag: u64,
    wallet: &'static str,
    node: Node,
    /// Proxy of the first endpoint.
    line: Line,
    order: String,
    tx: String,
    /// The transfer when it was first seen.
    seen: Value,
}

impl NodeState {
    async fn start(blockchain: Blockchain, lag: u64) -> Self {
        let node = Node::start(blockchain).await;
        let line = Line::to(node.url()).await;
        let wallet =
            if blockchain == Blockchain::Tron { tron_address(WALLET).leak() } else { WALLET };
        let (order, tx, seen) = (String::new(), String::new(), Value::Null);
        Self { blockchain, lag, wallet, node, line, order, tx, seen }
    }

    fn chain(&self) -> Chain {
        let bridged = matches!(self.blockchain, Blockchain::Base | Blockchain::Linea);
        let rpc = format!("{},{}", self.line.url(), self.node.url());
        let keys = if bridged { "bridged = [\"USDT\"]" } else { "" };
        Chain::at(self.blockchain.as_str(), &rpc, self.wallet, keys)
    }

    async fn order_and_pay(&mut self, client: &Client, merchant: &Merchant) {
        let name = self.blockchain.as_str();
        self.order = client.order(&format!("on-{name}"), "10.00", name, merchant.url()).await;
        let deposit = client.deposit(&self.order).await;
        self.tx = self.node.pay(units(&deposit["value"])).await;
        self.node.mine(self.mined()).await;
    }

    /// Number of blocks to mine so that the lowest, with the payment, is scanned and not confirmed.
    fn mined(&self) -> u64 {
        (self.lag + 1).max(2)
    }

    async fn is_seen(&mut self, client: &Client) {
        let status = "waiting_for_confirmation";
        self.seen = client.transfer_with_status(self.wallet, &self.tx, status).await;
    }

    /// Waits until the payment is in another block; its id must be the same.
    async fn is_moved(&self, client: &Client) {
        let name = self.blockchain.as_str();
        let moved = eventually(&format!("the payment on {name} to move"), || async {
            let path = format!("/wallets/{}/transfers?limit=200", self.wallet);
            let list = client.admin(&path).await.ok()?;
            let mut rows = list.as_array()?.iter();
            let moved = rows.find(|row| row["txn_hash"] == self.tx.as_str())?.clone();
            (moved["block_number"] != self.seen["block_number"]).then_some(moved)
        })
        .await;
        assert_eq!((&moved["id"], &moved["blockchain"]), (&self.seen["id"], &json!(name)));
    }

    async fn is_paid(&self, client: &Client, merchant: &Merchant) {
        client.order_with_status(&self.order, "paid").await;
        let received = merchant.awaited("order_id", &json!(self.order)).await;
        assert!(received[0].is_signed());
        assert_eq!((received.len(), &received[0].event["status"]), (1, &json!("paid")));
        let paid = client.transfer_with_status(self.wallet, &self.tx, "matched").await;
        assert_eq!(paid["id"], self.seen["id"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_chains_survive_reorg_kill_and_dead_endpoint() {
    let mut node_states = Vec::new();
    for (blockchain, lag) in CHAINS {
        node_states.push(NodeState::start(blockchain, lag).await);
    }
    let (merchant, dir) = (Merchant::start().await, tempfile::tempdir().unwrap());
    let chains: Vec<_> = node_states.iter().map(NodeState::chain).collect();
    let tidemark = Tidemark::start(dir.path(), &chains, merchant.url(), "").await;
    let client = tidemark.client();
    for node_state in &mut node_states {
        node_state.order_and_pay(&client, &merchant).await;
    }
    for node_state in &mut node_states {
        node_state.is_seen(&client).await;
        node_state.node.reorg(node_state.mined(), &node_state.tx).await;
    }
    for node_state in &node_states {
        node_state.is_moved(&client).await;
    }
    let used: Vec<_> = node_states.iter().map(|node_state| node_state.line.used()).collect();
    tidemark.kill();
    let mut tidemark = Tidemark::spawn(dir.path(), &chains, merchant.url(), "", &[]);
    tidemark.healthy().await;
    let client = tidemark.client();
    for (node_state, used) in node_states.iter_mut().zip(used) {
        let name = node_state.blockchain.as_str();
        eventually(&format!("the first endpoint of {name} to be asked again"), || async {
            (node_state.line.used() > used).then_some(())
        })
        .await;
        node_state.line.cut().await;
        node_state.node.confirm().await;
    }
    for node_state in &node_states {
        node_state.is_paid(&client, &merchant).await;
    }
    let (tron, wallet) = (&node_states[7].node, node_states[7].wallet);
    let list = client.admin(&format!("/wallets/{wallet}/transfers")).await.unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(1), "what failed is no transfer: {list}");
    let Node::Tron(devnet) = tron else { panic!() };
    assert!(devnet.chain().request_count("gettransactioninfobyblocknum") > 0);
    assert!(tidemark.stop().await.success());
    assert_eq!(merchant.received().len(), node_states.len(), "nothing but these orders");
}
