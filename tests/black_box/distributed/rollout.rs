//! A configuration that reaches one process before another: customers are offered watched wallets only, whatever the
//! order.

use std::collections::BTreeSet;

use testkit::harness::{Anvil, Client, Installation, Member, Merchant, eventually, units};

use super::{WALLET, chain};

const SECOND: &str = "0x2234567812345678123456781234567812345678";
const THIRD: &str = "0x3234567812345678123456781234567812345678";
/// Number of orders, each with a random wallet: enough that one would have the new wallet if it were offered.
const ORDERS: usize = 20;

/// The processes of a shop, each of which may have another configuration.
struct Shop {
    ingest: Member,
    api: Member,
    others: Vec<Member>,
    client: Client,
    webhook: String,
    orders: usize,
}

impl Shop {
    async fn start(installation: &Installation, webhook: &str) -> Self {
        let member = |stage: &str| installation.start(&format!("{stage}-1"), stage);
        let others = ["processor", "projector"].map(member).into();
        let (ingest, api) = (member("ingest"), member("api"));
        let client = Client::new(&installation.api()).on_servers();
        let mut shop = Self { ingest, api, others, client, webhook: webhook.into(), orders: 0 };
        for member in [&mut shop.ingest, &mut shop.api].into_iter().chain(&mut shop.others) {
            member.ready().await;
        }
        shop.client.offers(&["eth"]).await;
        shop
    }

    /// Creates an order; returns its id, wallet and amount.
    async fn order(&mut self) -> (String, String, u128) {
        self.orders += 1;
        let reference = format!("R-{}", self.orders);
        let id = self.client.keyed_order(&reference, "7.00", "eth", &self.webhook).await;
        let deposit = self.client.deposit(&id).await;
        let wallet = deposit["wallet_address"].as_str().unwrap().to_owned();
        (id, wallet, units(&deposit["value"]))
    }

    async fn wallets(&mut self) -> BTreeSet<String> {
        let mut wallets = BTreeSet::new();
        for _ in 0..ORDERS {
            wallets.insert(self.order().await.1);
        }
        wallets
    }

    /// Creates orders until one is to be paid to this wallet, and pays it.
    async fn sells_at(&mut self, wallet: &'static str, anvil: &Anvil) {
        let (id, units) = loop {
            let (id, at, units) = self.order().await;
            if at == wallet {
                break (id, units);
            }
        };
        anvil.transfer(&[(wallet, units)]).await;
        anvil.mine(4).await;
        self.client.order_with_status(&id, "paid").await;
    }
}

/// Replaces a process by one with another configuration.
async fn update(old: Member, name: &str, installation: &Installation) -> Member {
    let stage = name.split('-').next().unwrap();
    let start = || installation.start(name, stage);
    let stop = async || assert!(old.process.stop().await.success());
    // A new api process needs the port of the old one.
    let mut new = if stage == "api" {
        stop().await;
        start()
    } else {
        let new = start();
        stop().await;
        new
    };
    new.ready().await;
    new
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_is_added_to_one_process_after_another() {
    let (anvil, merchant) = (Anvil::start().await, Merchant::start().await);
    let dir = tempfile::tempdir().unwrap();
    let one = Installation::new(dir.path(), &[chain("eth", anvil.url())], merchant.url(), "");
    one.provide();
    let two = one.with_wallet("eth", SECOND);
    let three = two.with_wallet("eth", THIRD);
    let mut shop = Shop::start(&one, merchant.url()).await;

    // The api reads the new configuration first: the new wallet is not watched, so not offered.
    shop.api = update(shop.api, "api-2", &two).await;
    shop.client.offers(&["eth"]).await;
    assert_eq!(shop.wallets().await, BTreeSet::from([WALLET.to_owned()]));
    shop.ingest = update(shop.ingest, "ingest-2", &two).await;
    shop.sells_at(SECOND, &anvil).await;

    // Ingest reads the next one first: the new wallet is watched, and not offered.
    shop.ingest = update(shop.ingest, "ingest-3", &three).await;
    let before = [WALLET, SECOND].map(str::to_owned);
    assert_eq!(shop.wallets().await, BTreeSet::from(before));
    shop.api = update(shop.api, "api-3", &three).await;
    shop.client.offers(&["eth"]).await;
    shop.sells_at(THIRD, &anvil).await;

    // Rollback: customers may still pay to the removed wallet.
    let old = std::mem::replace(&mut shop.ingest, two.start("ingest-4", "ingest"));
    assert!(old.process.stop().await.success());
    let refused = eventually("ingest to refuse", || {
        let ended = shop.ingest.process.ended();
        async move { ended }
    })
    .await;
    assert_eq!(refused.code(), Some(1));
    let log = shop.ingest.process.log();
    assert!(log.contains(&THIRD.to_lowercase()) || log.contains(THIRD), "{log}");
    assert!(log.contains("`retired = true`"), "{log}");
}
