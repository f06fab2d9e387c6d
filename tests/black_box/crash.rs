//! The process is killed at random moments while orders are created and paid. No order or payment is lost or
//! duplicated, and no id changes.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use devnet::Devnet;
use serde_json::{Value, json};
use testkit::Dice;
use testkit::harness::{
    Chain, Client, Merchant, Tidemark, mine_now, now, payable, transfer_usdt, units, usdt,
};

const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
const KILLS: u32 = 25;
/// Maximum number of kills, for a slow machine that needs more until [`is_enough`] holds.
const KILLS_MAX: u32 = 200;
/// Longest life of one process, in milliseconds.
const LIFE_MAX_MS: usize = 900;

/// The shop's knowledge of one of its orders.
#[derive(Default)]
struct Order {
    id: Option<String>,
    deposit: Option<Value>,
    tx: Option<String>,
}

/// Facts that must never change once observed.
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
    /// Number of interrupted requests.
    broken: usize,
}

impl Shop {
    /// One round of a shop's life: a new order, deposits queried, payments sent, a block mined. A kill may interrupt
    /// any request, which is then retried in another round.
    async fn round(&mut self, client: &Client) -> reqwest::Result<()> {
        if self.orders.last().is_none_or(|order| order.id.is_some()) {
            self.orders.push(Order::default());
        }
        let reference = format!("crash-{}", self.orders.len());
        if let Some(order) = self.orders.last_mut().filter(|order| order.id.is_none()) {
            let body = payable(&reference, "10.00", "eth", self.merchant.url());
            let created = client.try_order(&body).await?;
            order.id = Some(created.expect("the service is available"));
        }
        for order in self.orders.iter_mut().filter(|order| order.tx.is_none()) {
            let Some(id) = order.id.clone() else { continue };
            let Some(deposit) = deposit(client, &id).await? else { continue };
            self.facts.see_deposit(&id, &deposit);
            let value = units(&deposit["value"]);
            order.tx = Some(transfer_usdt(&self.chain, WALLET, value).to_string());
            order.deposit = Some(deposit);
        }
        mine_now(&self.chain);
        let list = client.admin(&format!("/wallets/{WALLET}/transfers?limit=200")).await?;
        list.as_array().unwrap().iter().for_each(|transfer| self.facts.see_transfer(transfer));
        Ok(())
    }

    fn paid(&self) -> usize {
        self.orders.iter().filter(|order| order.tx.is_some()).count()
    }
}

/// Calls `round` repeatedly, and `kill` after this time. Returns the number of rounds that the kill interrupted.
pub(crate) async fn live(
    life: Duration,
    kill: impl FnOnce(),
    mut round: impl AsyncFnMut() -> reqwest::Result<()>,
) -> usize {
    let is_over = AtomicBool::new(false);
    let end = async {
        // No condition: the moment of the kill is random.
        drop(tokio::time::timeout(life, std::future::pending::<()>()).await);
        kill();
        is_over.store(true, Ordering::SeqCst);
    };
    let rounds = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        let mut broken = 0;
        // No deadline: the kill ends it.
        while !is_over.load(Ordering::SeqCst) {
            ticks.tick().await;
            broken += usize::from(
                round().await.is_err_and(|error| !error.is_connect() && !error.is_status()),
            );
        }
        broken
    };
    tokio::join!(end, rounds).1
}

/// `true` if kills interrupted enough work.
fn is_enough(paid: usize, broken: usize) -> bool {
    paid >= 20 && broken >= 10
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

async fn deposit(client: &Client, order: &str) -> reqwest::Result<Option<Value>> {
    let list = client.admin(&format!("/deposits?order_id={order}")).await?;
    Ok(list.as_array().unwrap().first().cloned())
}

fn spawn(dir: &Path, chain: &Chain, merchant: &Merchant) -> Tidemark {
    Tidemark::spawn(dir, std::slice::from_ref(chain), merchant.url(), "", &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_nothing() {
    let seed = u64::try_from(now()).unwrap();
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let config = devnet::Config {
        chain_id: 1,
        genesis_timestamp: u64::try_from(now()).unwrap(),
        block_interval_secs: 1,
        finalized_depth: 20,
        safe_depth: 10,
        tokens: vec![usdt()],
        seed,
    };
    let devnet = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let chain = Chain::at("eth", devnet.url(), WALLET, "confirmations = 3");
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut shop = Shop {
        chain: devnet.chain(),
        merchant: merchant.clone(),
        orders: Vec::new(),
        facts: Facts::default(),
        broken: 0,
    };
    for kill in 0..KILLS_MAX {
        if kill >= KILLS && is_enough(shop.paid(), shop.broken) {
            break;
        }
        let mut tidemark = spawn(dir.path(), &chain, &merchant);
        let client = tidemark.client();
        // Every other process may be killed while it restores.
        if kill % 2 == 0 {
            tidemark.healthy().await;
            client.offers(&["eth"]).await;
        }
        let life = Duration::from_millis(dice.below(LIFE_MAX_MS) as u64);
        let broken = live(life, || tidemark.kill(), async || shop.round(&client).await).await;
        shop.broken += broken;
    }
    let (paid, broken) = (shop.paid(), shop.broken);
    assert!(is_enough(paid, broken), "{paid} payments, {broken} broken requests");

    let mut tidemark = spawn(dir.path(), &chain, &merchant);
    tidemark.healthy().await;
    let client = tidemark.client();
    let undisturbed = shop.orders.len();
    while shop.orders.len() < undisturbed + 10 || shop.paid() < shop.orders.len() {
        shop.round(&client).await.unwrap();
    }
    shop.chain.mine(5).unwrap();
    check_transfers(&mut shop, &client).await;
    assert!(tidemark.stop().await.success());
    check_webhooks(&shop, undisturbed);
}

/// Each order has one event, resent only after a kill.
fn check_webhooks(shop: &Shop, undisturbed: usize) {
    for (number, order) in shop.orders.iter().enumerate() {
        let received = shop.merchant.with("order_id", &json!(order.id));
        for webhook in &received {
            assert_eq!((&webhook.id, &webhook.event["status"]), (&received[0].id, &json!("paid")));
            assert!(webhook.is_signed());
        }
        assert!(received.len() == 1 || number < undisturbed, "{received:?}");
    }
    let events: HashSet<_> = shop.merchant.received().into_iter().map(|w| w.id).collect();
    assert_eq!(events.len(), shop.orders.len(), "nothing but these orders");
}

async fn check_transfers(shop: &mut Shop, client: &Client) {
    for order in &shop.orders {
        let id = order.id.as_ref().unwrap();
        client.order_with_status(id, "paid").await;
        shop.merchant.awaited("order_id", &json!(id)).await;
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
    println!("{} orders, {} webhooks", shop.orders.len(), shop.merchant.received().len());
}
