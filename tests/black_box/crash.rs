//! The process is killed at random moments while orders are created and paid. In the end nothing is
//! lost, nothing is doubled, no id has changed.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use devnet::Devnet;
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::harness::{
    Chain, Client, MERCHANT_SECRET, Merchant, Tidemark, eventually, now, signature_holds,
};

const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
const USDT: &str = "0xdAC17F958D2ee523a2206206994597C13D831ec7";
const KILLS: u32 = 50;
/// Longest life of one process, in milliseconds.
const LIFE_MAX_MS: u64 = 900;
const PATIENCE: Duration = Duration::from_secs(60);

/// Small numbers from a seed: the moments of a failed run can be had again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What the shop knows of one of its orders.
#[derive(Default)]
struct Order {
    id: Option<String>,
    deposit: Option<Value>,
    tx: Option<String>,
}

/// What was seen once must never change.
#[derive(Default)]
struct Facts {
    deposit_of_order: HashMap<String, (Value, Value)>,
    transfer_of_tx: HashMap<String, Value>,
}

struct Shop {
    chain: devnet::Chain,
    merchant: Merchant,
    orders: Vec<Order>,
    facts: Facts,
}

impl Shop {
    /// One round of a shop's life: a new order, deposits looked up, payments sent, a block mined. Any
    /// request may break off because the process is killed; then it is tried again in another round.
    async fn round(&mut self, client: &Client) {
        if self.orders.last().is_none_or(|order| order.id.is_some()) {
            self.orders.push(Order::default());
        }
        let reference = format!("crash-{}", self.orders.len());
        if let Some(order) = self.orders.last_mut().filter(|order| order.id.is_none()) {
            order.id = create(client, &reference, self.merchant.url()).await;
        }
        for order in self.orders.iter_mut().filter(|order| order.tx.is_none()) {
            let Some(id) = order.id.clone() else { continue };
            let Some(deposit) = deposit(client, &id).await else { continue };
            self.facts.see_deposit(&id, &deposit);
            let value = units(deposit["value"].as_str().unwrap());
            let (token, to) = (USDT.parse().unwrap(), WALLET.parse().unwrap());
            let from = [0x22; 20].into();
            let tx = self.chain.transfer(token, from, to, alloy_primitives::U256::from(value));
            order.tx = Some(tx.unwrap().to_string());
            order.deposit = Some(deposit);
        }
        let time = u64::try_from(now()).unwrap().max(self.chain.head().timestamp);
        self.chain.set_next_timestamp(time + 1).unwrap();
        self.chain.mine(1).unwrap();
        self.look_at_transfers(client).await;
    }

    async fn look_at_transfers(&mut self, client: &Client) {
        let path = format!("/wallets/{WALLET}/transfers?limit=200");
        if let Ok(list) = client.admin(&path).await {
            for transfer in list.as_array().unwrap() {
                self.facts.see_transfer(transfer);
            }
        }
    }
}

impl Facts {
    fn see_deposit(&mut self, order: &str, deposit: &Value) {
        let seen = (deposit["id"].clone(), deposit["value"].clone());
        let first = self.deposit_of_order.entry(order.to_owned()).or_insert_with(|| seen.clone());
        assert_eq!(*first, seen, "the deposit of {order} changed");
    }

    fn see_transfer(&mut self, transfer: &Value) {
        let tx = transfer["txn_hash"].as_str().unwrap().to_owned();
        let first = self.transfer_of_tx.entry(tx).or_insert_with(|| transfer["id"].clone());
        assert_eq!(*first, transfer["id"], "the id of a transfer changed");
    }
}

/// Creates with an idempotency key, so that trying again after a broken answer is safe.
async fn create(client: &Client, reference: &str, webhook: &str) -> Option<String> {
    let body = json!({
        "order_id": reference, "amount": "10.00", "webhook_url": webhook,
        "blockchain": "eth", "stablecoin": "USDT",
    });
    let headers = [("Idempotency-Key", reference)];
    let (status, text) = client.service("/orders", &body, &headers).await.ok()?;
    assert_eq!(status, StatusCode::CREATED, "{text}");
    let order: Value = serde_json::from_str(&text).unwrap();
    Some(order["order_id"].as_str().unwrap().to_owned())
}

async fn deposit(client: &Client, order: &str) -> Option<Value> {
    let list = client.admin(&format!("/deposits?order_id={order}")).await.ok()?;
    list.as_array().unwrap().first().cloned()
}

/// Base units of a value with six decimals.
fn units(value: &str) -> u128 {
    let (whole, fraction) = value.split_once('.').unwrap();
    format!("{whole}{fraction:0<6}").parse().unwrap()
}

async fn start(dir: &Path, chain: &Chain, merchant: &Merchant) -> Tidemark {
    // Enough room above 10.00 for every order at once.
    let more = "[matching]\nnudge_limit = \"50.00\"\n";
    Tidemark::start(dir, std::slice::from_ref(chain), merchant.url(), more).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_lose_nothing_and_double_nothing() {
    let seed = u64::try_from(now()).unwrap();
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let config = devnet::Config {
        chain_id: 1,
        genesis_timestamp: u64::try_from(now()).unwrap(),
        block_interval_secs: 1,
        finalized_depth: 20,
        safe_depth: 10,
        tokens: vec![devnet::Token {
            address: USDT.parse().unwrap(),
            decimals: 6,
            symbol: "USDT".into(),
        }],
        seed,
    };
    let devnet = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let chain = Chain {
        blockchain: "eth",
        rpc: devnet.url().to_owned(),
        wallet: WALLET,
        more: "confirmations = 3".into(),
    };
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut shop = Shop {
        chain: devnet.chain(),
        merchant: merchant.clone(),
        orders: Vec::new(),
        facts: Facts::default(),
    };
    for _ in 0..KILLS {
        let tidemark = start(dir.path(), &chain, &merchant).await;
        let client = tidemark.client();
        let life = Duration::from_millis(dice.roll(LIFE_MAX_MS));
        let rounds = async {
            loop {
                shop.round(&client).await;
            }
        };
        drop(tokio::time::timeout(life, rounds).await);
        tidemark.kill();
    }

    let tidemark = start(dir.path(), &chain, &merchant).await;
    let client = tidemark.client();
    while shop.orders.iter().any(|order| order.tx.is_none()) || shop.orders.len() < 20 {
        shop.round(&client).await;
    }
    shop.chain.mine(5).unwrap();
    check_the_end(&mut shop, &client).await;
    assert!(tidemark.stop().await.success());
}

async fn check_the_end(shop: &mut Shop, client: &Client) {
    for order in &shop.orders {
        let id = order.id.as_ref().unwrap();
        client.order_with_status(id, "paid").await;
        let told = eventually("its webhook", PATIENCE, || async {
            let told = shop.merchant.with("order_id", &json!(id));
            (!told.is_empty()).then_some(told)
        })
        .await;
        for webhook in &told {
            assert_eq!(webhook.event["status"], "paid");
        }
        assert!(signature_holds(MERCHANT_SECRET, &told[0].signature, &told[0].body));
    }
    let mut transfers = Vec::new();
    loop {
        let offset = transfers.len();
        let path = format!("/wallets/{WALLET}/transfers?limit=200&offset={offset}");
        let page = client.admin(&path).await.unwrap();
        let page = page.as_array().unwrap();
        if page.is_empty() {
            break;
        }
        transfers.extend(page.iter().cloned());
    }
    assert_eq!(transfers.len(), shop.orders.len(), "each payment is one transfer");
    let mut fulfillments: Vec<i64> = Vec::new();
    for transfer in &transfers {
        assert_eq!(transfer["status"], "matched", "{transfer}");
        shop.facts.see_transfer(transfer);
        fulfillments.push(transfer["fulfillment_id"].as_i64().unwrap());
    }
    fulfillments.sort_unstable();
    fulfillments.dedup();
    assert_eq!(fulfillments.len(), transfers.len(), "each payment fulfils one order");
    let unknown = shop.merchant.with("event_type", &json!("unknown_transfer"));
    assert!(unknown.is_empty(), "{unknown:?}");
    println!("{} orders, {} webhooks", shop.orders.len(), shop.merchant.received().len());
}
