//! The executable is killed while it waits for a response of an endpoint, for each kind of request: its state is in the
//! log, and the request is repeated. The result is compared with the chain.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, U256};
use devnet::{Chain as Node, Reorg};
use serde_json::Value;
use testkit::DEADLINE;
use testkit::faults::{Booked, Claim, Kind, NodeState, Ordered, Proxy, Verdict};
use testkit::harness::{
    Chain, Client, Tidemark, USDT, WALLET, WEBHOOK, eventually, evm_node, now, units,
};

const TTL_SECONDS: i64 = 600;
/// All kinds, in an order in which each occurs: a search follows a reorganisation, and receipts are requested where an
/// endpoint contradicts itself.
const KINDS: [Kind; 6] =
    [Kind::Tip, Kind::Scan, Kind::Check, Kind::Verify, Kind::Search, Kind::Receipts];

struct Shop {
    node: Node,
    node_state: Arc<NodeState>,
    proxies: [Proxy; 2],
    client: Client,
    orders: Vec<Ordered>,
}

impl Shop {
    /// Mines a block at the present time, but at least a second after the last one.
    fn mine(&self) {
        let time = now().unsigned_abs().max(self.node.head().timestamp + 1);
        self.mine_at(time);
    }

    fn mine_at(&self, time: u64) {
        let block = self.node.mine_at(time).unwrap();
        self.node_state.set_now(block.timestamp.cast_signed());
        self.node_state.mined(block.number, &block.hash.to_string());
    }

    /// Creates an order; returns the amount to pay.
    async fn order(&mut self, reference: &str) -> U256 {
        let created = self.client.create(reference, "10.00", "eth", WEBHOOK).await;
        let id = created["order_id"].as_str().unwrap().to_owned();
        let deposit = self.client.deposit(&id).await;
        let units = units(&deposit["value"]);
        self.orders.push(Ordered {
            id,
            status: "pending".to_owned(),
            to: WALLET.to_lowercase(),
            units,
            expires_at: created["created_at"].as_i64().unwrap() + TTL_SECONDS,
        });
        U256::from(units)
    }

    /// Pays in a block that every endpoint serves; returns the transaction.
    fn pay(&self, value: U256) -> String {
        let (token, to) = (USDT.parse().unwrap(), WALLET.parse().unwrap());
        let transaction = self.node.transfer(token, Address::repeat_byte(0x22), to, value).unwrap();
        self.mine();
        transaction.to_string()
    }

    /// Waits until a request of this kind is held without a response.
    async fn held(&self, kind: Kind) {
        let [first, second] = &self.proxies;
        let (first, second) = (first.hold(kind), second.hold(kind));
        let mine = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            loop {
                ticks.tick().await;
                self.mine();
            }
        };
        let held = async {
            tokio::select! {
                held = first => held.unwrap(),
                held = second => held.unwrap(),
                () = mine => {}
            }
        };
        let held = tokio::time::timeout(DEADLINE, held).await;
        held.unwrap_or_else(|_| panic!("nothing of the kind {kind:?} is asked"));
    }

    async fn booked(&self) -> Booked {
        let path = format!("/wallets/{WALLET}/transfers?limit=200");
        let transfers = self.client.admin(&path).await.unwrap();
        let claim = |transfer: &Value| Claim {
            tx: transfer["txn_hash"].as_str().unwrap().to_owned(),
            to: transfer["to_address"].as_str().unwrap().to_lowercase(),
            units: units(&transfer["value"]),
            is_confirmed: transfer["blockchain_confirmed"] == true,
            has_left: transfer["status"] == "failed_to_confirm"
                || !transfer["orphaned_at"].is_null(),
            order: transfer["order_id"].as_str().map(str::to_owned),
        };
        let claims = transfers.as_array().unwrap().iter().map(claim).collect();
        let mut orders = self.orders.clone();
        for order in &mut orders {
            let shown = self.client.shown(&order.id).await.unwrap();
            order.status = shown["status"].as_str().unwrap().to_owned();
        }
        Booked { claims, orders }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_any_question_loses_nothing() {
    let devnet = evm_node(1, 60, 20).await;
    let node_state = Arc::new(NodeState::of(devnet.url()));
    let proxies = [
        Proxy::start(node_state.clone(), None).await,
        Proxy::start(node_state.clone(), None).await,
    ];
    let rpc = proxies.each_ref().map(Proxy::url).join(",");
    let chain = Chain::at("eth", &rpc, WALLET, "confirmations = 4\n");
    let dir = tempfile::tempdir().unwrap();
    let more = format!("[orders]\nttl = \"{TTL_SECONDS}s\"\n");
    let start = || Tidemark::start(dir.path(), std::slice::from_ref(&chain), WEBHOOK, &more);
    let mut tidemark = start().await;
    let client = tidemark.client();
    let node = devnet.chain();
    let mut shop = Shop { node, node_state, proxies, client, orders: Vec::new() };

    for kind in KINDS {
        let value = shop.order(&format!("{kind:?}")).await;
        let transaction = shop.pay(value);
        match kind {
            Kind::Search => {
                shop.client
                    .transfer_with_status(WALLET, &transaction, "waiting_for_confirmation")
                    .await;
                shop.node.reorg(2, Reorg::Keep).unwrap();
            }
            Kind::Receipts => {
                for proxy in &shop.proxies {
                    proxy.behaviour().hashes_omit.insert(transaction.clone());
                }
            }
            _ => {}
        }
        shop.held(kind).await;
        tidemark.kill();
        tidemark = start().await;
        shop.client = tidemark.client();
    }
    shop.order("unpaid").await;
    let later = now() + TTL_SECONDS + 60;
    shop.mine_at(later.unsigned_abs());

    let (token, wallets) = (USDT.to_lowercase(), [WALLET.to_lowercase()]);
    eventually("the books to be those of the chain", || async {
        shop.mine();
        let verdict = Verdict::of(devnet.url(), &token, &wallets, &shop.booked().await).await;
        let is_over = verdict.problems.is_empty() && verdict.payments.len() == KINDS.len();
        is_over.then_some(())
    })
    .await;
    assert!(tidemark.stop().await.success());
}
