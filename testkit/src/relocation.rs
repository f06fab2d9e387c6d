//! Relocation of an installation: a shop with orders that are paid before, during and after it, and the checks of
//! these orders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use devnet::{Chain as Node, Devnet};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::eventually;
use crate::harness::{
    ADMIN_SECRET, Chain, Client, Receiver, Reply, evm_node, mine_now, transfer_usdt, units,
};

const CHAINS: [&str; 2] = ["eth", "polygon"];
const WALLETS: [&str; 2] =
    ["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"];
/// Maximum number of concurrent requests.
const CALLS: usize = 16;
/// Maximum number of orders created before both chains get another block.
const CREATED: usize = 100;
/// Number of webhooks that wait for a retry during the relocation.
pub const WAITING: usize = 3;

/// Further configuration: orders outlive the test on any machine, a transfer without an order ends as unknown after
/// 10 s of chain time, and each chain has a second wallet.
pub const SETTINGS: &str = r#"
[orders]
ttl = "20h"
[matching]
match_window = "10s"
[[wallets]]
blockchain = "eth"
address = "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB"
enabled_coins = ["USDT"]
[[wallets]]
blockchain = "polygon"
address = "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb"
enabled_coins = ["USDT"]
"#;

/// An order and its open deposit.
#[derive(Debug, Clone)]
pub struct Order {
    reference: String,
    chain: usize,
    pub id: String,
    deposit: Value,
}

/// A shop on two chains: its nodes, its orders, and the receiver of its webhooks.
pub struct Shop {
    devnets: [Devnet; 2],
    receiver: Receiver,
    /// `true` while it refuses webhooks.
    is_away: Arc<AtomicBool>,
    pub orders: Vec<Order>,
}

impl Shop {
    pub async fn open() -> Self {
        let is_away = Arc::new(AtomicBool::new(false));
        let refuses = is_away.clone();
        let script = move |_: &str, _| match refuses.load(Ordering::SeqCst) {
            true => Reply::Status(503),
            false => Reply::Status(200),
        };
        let receiver = Receiver::start(script).await;
        let devnets = [evm_node(1, 60, 60).await, evm_node(137, 60, 60).await];
        Self { devnets, receiver, is_away, orders: Vec::new() }
    }

    pub fn chains(&self) -> Vec<Chain> {
        let keys = "confirmations = 3\n";
        let chain = |n: usize| Chain::of(CHAINS[n], &self.devnets[n], WALLETS[n], keys);
        (0..CHAINS.len()).map(chain).collect()
    }

    /// Webhook URL of the shop.
    pub fn url(&self) -> String {
        self.receiver.url(1)
    }

    fn node(&self, chain: usize) -> Node {
        self.devnets[chain].chain()
    }

    /// Mines this many blocks on each chain, at the present time.
    pub fn mine(&self, blocks: usize) {
        for chain in 0..CHAINS.len() {
            let node = self.node(chain);
            for _ in 0..blocks {
                mine_now(&node);
            }
        }
    }

    /// Creates `count` orders and pays the first `paid` of them. Webhooks about the first [`WAITING`] orders are
    /// refused. Returns a transfer that pays nothing.
    pub async fn begin(&mut self, client: &Client, count: usize, paid: usize) -> Value {
        self.create(client, count).await;
        let (waiting, acknowledged) = self.orders[..paid].split_at(WAITING);
        self.pay(acknowledged);
        self.mine(4);
        self.are_paid(client, acknowledged).await;
        self.are_announced(acknowledged).await;
        self.is_away.store(true, Ordering::SeqCst);
        self.pay(waiting);
        self.mine(4);
        self.are_paid(client, waiting).await;
        self.are_refused(waiting).await;
        self.stray(client).await
    }

    /// Waits for all webhooks of ended processes, and acknowledges webhooks from now on.
    pub async fn returns(&self) {
        self.receiver.drained().await;
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// Creates orders up to this number of them, each with a key.
    pub async fn create(&mut self, client: &Client, count: usize) {
        while self.orders.len() < count {
            self.mine(1);
            let to = count.min(self.orders.len() + CREATED);
            let wanted: Vec<usize> = (self.orders.len()..to).collect();
            let url = self.url();
            let made = each(wanted, |number| {
                let (client, url) = (client.clone(), url.clone());
                async move { create(&client, number, &url).await }
            });
            self.orders.extend(made.await);
        }
    }

    /// Pays orders, each in one transaction, and mines one block.
    pub fn pay(&self, orders: &[Order]) {
        for order in orders {
            self.transfer(order.chain, &order.deposit, units(&order.deposit["value"]));
        }
        self.mine(1);
    }

    fn transfer(&self, chain: usize, deposit: &Value, units: u128) -> String {
        let to = deposit["wallet_address"].as_str().expect("a wallet");
        transfer_usdt(&self.node(chain), to, units).to_string()
    }

    /// Sends a payment without an order; returns its transfer.
    async fn stray(&self, client: &Client) -> Value {
        let deposit = &self.orders[0].deposit;
        let hash = self.transfer(0, deposit, 7_777_777);
        self.mine(16);
        let wallet = deposit["wallet_address"].as_str().expect("a wallet");
        client.transfer_with_status(wallet, &hash, "no_matched_deposit").await
    }

    /// Attaches a transfer to two orders, and checks that only the first attempt succeeds.
    pub async fn attach(&self, client: &Client, transfer: &Value, orders: &[Order; 2]) {
        let mut answers = Vec::new();
        for order in orders {
            let path = format!("/api/v1/admin/transfers/{}/attach", transfer["id"]);
            let body = json!({ "order_id": order.id, "accept_less": true }).to_string();
            let headers = [("Service-Admin-Authorization", ADMIN_SECRET)];
            let answer = client.send(Method::POST, &path, &headers, Some(body)).await;
            answers.push(answer.expect("an answer"));
        }
        let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [StatusCode::OK, StatusCode::CONFLICT], "{answers:?}");
    }

    /// Waits until these orders are paid.
    pub async fn are_paid(&self, client: &Client, orders: &[Order]) {
        each(orders.to_vec(), |order| {
            let client = client.clone();
            async move { client.order_with_status(&order.id, "paid").await }
        })
        .await;
    }

    /// Waits until webhooks about all these orders were acknowledged.
    pub async fn are_announced(&self, orders: &[Order]) {
        let wanted: BTreeSet<&str> = orders.iter().map(|order| order.id.as_str()).collect();
        eventually("the webhooks", || async {
            let calls = self.receiver.calls();
            let acknowledged = calls.iter().filter(|call| call.reply == Reply::Status(200));
            let of: BTreeSet<&str> =
                acknowledged.filter_map(|call| call.event_id.split('.').next()).collect();
            wanted.is_subset(&of).then_some(())
        })
        .await;
    }

    /// Waits until two attempts were made for each of these orders.
    async fn are_refused(&self, orders: &[Order]) {
        eventually("refused webhooks", || async {
            let calls = self.receiver.calls();
            let count = |order: &Order| {
                calls.iter().filter(|call| call.event_id.starts_with(&order.id)).count()
            };
            orders.iter().all(|order| count(order) >= 2).then_some(())
        })
        .await;
    }

    /// Waits for all webhooks of ended processes.
    pub async fn drained(&self) {
        self.receiver.drained().await;
    }

    /// Creates each order again by its key, and checks that its id is the same.
    pub async fn are_known(&self, client: &Client) {
        let (url, orders) = (self.url(), self.orders.clone());
        each(orders.into_iter().enumerate().collect(), |(number, order)| {
            let (client, url) = (client.clone(), url.clone());
            async move {
                let again = create_order(&client, number, &url).await;
                assert_eq!(again, order.id, "{}", order.reference);
            }
        })
        .await;
    }

    /// Checks that an open deposit is unchanged.
    pub async fn is_open(&self, client: &Client, order: &Order) {
        assert_eq!(client.deposit(&order.id).await["id"], order.deposit["id"]);
        assert_eq!(client.deposit(&order.id).await["value"], order.deposit["value"]);
    }

    /// Checks that deposit ids are unique.
    pub fn assert_names(&self) {
        let ids: BTreeSet<String> =
            self.orders.iter().map(|order| order.deposit["id"].to_string()).collect();
        assert_eq!(ids.len(), self.orders.len());
    }

    /// Checks that each of these orders was announced as paid once. The first `repeatable` may be announced again: the
    /// new owner of a partition resends webhooks in flight.
    pub fn assert_webhooks(&self, orders: &[Order], repeatable: usize) {
        let calls = self.receiver.calls();
        let may_repeat = |id: &str| orders[..repeatable].iter().any(|order| order.id == id);
        let mut attempts = BTreeSet::new();
        let mut acknowledged: BTreeMap<&str, usize> = BTreeMap::new();
        for call in &calls {
            let (of, _) = call.event_id.split_once('.').expect("an order and a version");
            let is_new = attempts.insert((&call.event_id, call.attempt));
            assert!(is_new || may_repeat(of), "{call:?} came twice");
            if call.reply == Reply::Status(200) && is_new {
                *acknowledged.entry(of).or_default() += 1;
            }
        }
        for order in orders {
            let count = acknowledged.get(order.id.as_str());
            assert_eq!(count, Some(&1), "{}: {:?}", order.reference, order.id);
        }
    }
}

/// Checks that each attempt is logged once, in `tidemark tail webhooks.attempts`.
pub fn assert_attempts(lines: &str) {
    let mut attempts = BTreeSet::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        let attempt = &record["value"];
        let of = attempt["event_id"].as_str().expect("an event").to_owned();
        let number = attempt["attempt"].as_i64().expect("a number");
        assert!(attempts.insert((of, number)), "{line} is there twice");
    }
    assert!(!attempts.is_empty());
}

async fn create_order(client: &Client, number: usize, url: &str) -> String {
    let amount = format!("{}.{:02}", 10 + number / 100, number % 100);
    let chain = CHAINS[number % CHAINS.len()];
    client.keyed_order(&format!("A-{number}"), &amount, chain, url).await
}

async fn create(client: &Client, number: usize, url: &str) -> Order {
    let id = create_order(client, number, url).await;
    let deposit = client.deposit(&id).await;
    Order { reference: format!("A-{number}"), chain: number % CHAINS.len(), id, deposit }
}

/// Runs `work` for each item, some at a time; returns the results in order.
async fn each<T, R, F>(all: Vec<T>, mut work: impl FnMut(T) -> F) -> Vec<R>
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let (mut results, mut tasks) = (BTreeMap::new(), JoinSet::new());
    let mut all = all.into_iter().enumerate();
    loop {
        while tasks.len() < CALLS
            && let Some((number, one)) = all.next()
        {
            let one = work(one);
            tasks.spawn(async move { (number, one.await) });
        }
        let Some(done) = tasks.join_next().await else { break };
        let (number, result) = done.expect("no panic");
        results.insert(number, result);
    }
    results.into_values().collect()
}
