//! Customers pay on the checkout page, and operators work on the console, in a real Chromium: scripts are the users, on
//! development chains and anvil.

mod console;
mod states;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::harness::{
    Anvil, Chain, MERCHANT_SECRET, Merchant, Tidemark, USDT, eventually, evm_node,
};
use testkit::process::given;
use tokio::sync::Mutex;

/// A wallet of the shop.
const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
/// Not a real network's: the page marks it as a test network.
const CHAIN_ID: u64 = 31_337;

/// Variable with a folder for pictures of every state; without it none are taken.
const PICTURES: &str = "TIDEMARK_TEST_PICTURES";

/// One browser at a time: two could exceed their timeouts.
static BROWSER: Mutex<()> = Mutex::const_new(());

/// Runs a script of this folder. Its pictures are in its folder below [`PICTURES`].
async fn play(script: &str, variables: &[(&str, &str)]) {
    let modules = ["TIDEMARK_TEST_PLAYWRIGHT", "TIDEMARK_TEST_AXE"].map(given);
    let mut command = Command::new("node");
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("page").join(script))
        .env("NODE_PATH", std::env::join_paths(modules).unwrap())
        .env("SECRET", MERCHANT_SECRET)
        .envs(variables.iter().copied());
    if let Some(root) = std::env::var_os(PICTURES) {
        let pictures = Path::new(&root).join(script).with_extension("");
        std::fs::create_dir_all(&pictures).unwrap();
        command.env("PICTURES", pictures);
    }
    let _browser = BROWSER.lock().await;
    let status = tokio::task::block_in_place(|| command.status()).expect("node runs");
    assert!(status.success(), "{script}: somebody could not do it, or saw something else");
}

/// The section of a chain at this node.
fn chain(blockchain: &'static str, rpc: &str, chain_id: u64) -> Chain {
    let more = format!(
        "chain_id = {chain_id}\nconfirmations = 4\n\
         tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]\n"
    );
    Chain::at(blockchain, rpc, WALLET, &more)
}

/// Runs a script against a new Tidemark whose first chain it may mine; returns the receiver of its webhooks.
async fn shop(script: &str, chains: &[Chain], more_variables: &[(&str, &str)]) -> Merchant {
    let dir = tempfile::tempdir().unwrap();
    let merchant = Merchant::start().await;
    let more = "[orders]\nttl = \"20m\"\n[matching]\nmatch_window = \"30s\"\n";
    let back = format!("{}/{{merchant_order_id}}?{{status}}", merchant.url());
    let back = [("TIDEMARK__MERCHANT__RETURN_URL", back)];
    let tidemark = Tidemark::start_with(dir.path(), chains, merchant.url(), more, &back).await;
    let base = format!("http://{}", tidemark.address());
    let variables = [("BASE", &*base), ("CHAIN", &chains[0].rpc), ("WEBHOOK", merchant.url())];
    play(script, &[&variables, more_variables].concat()).await;
    // The page may show a payment before its webhook arrives.
    eventually("the webhooks of what was paid", || async {
        let paid = tidemark.client().admin("/orders?status=paid&limit=200").await.ok()?;
        let is_announced =
            |order: &Value| !merchant.with("order_id", &order["order_id"]).is_empty();
        paid.as_array()?.iter().all(is_announced).then_some(())
    })
    .await;
    assert!(tidemark.stop().await.success());
    merchant
}

#[tokio::test(flavor = "multi_thread")]
async fn customers_pay_on_the_page() {
    // The script mines it, a block a second.
    let devnet = evm_node(CHAIN_ID, 60, 60).await;
    let chains = [chain("eth", devnet.url(), CHAIN_ID)];
    // Another shop, which admits one request a second.
    let (dir, merchant) = (tempfile::tempdir().unwrap(), Merchant::start().await);
    let limit = [("TIDEMARK__SERVER__CUSTOMER_REQUESTS_PER_SECOND", "1".to_owned())];
    let mut busy = Tidemark::spawn(dir.path(), &chains, merchant.url(), "", &limit);
    busy.healthy().await;
    let address = format!("http://{}", busy.address());
    shop("checkout.cjs", &chains, &[("BUSY", &address)]).await;
    assert!(busy.stop().await.success());
    devnet.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_pays_on_anvil() {
    let anvil = Anvil::start_test(CHAIN_ID).await;
    let merchant = shop("anvil.cjs", &[chain("eth", anvil.url(), CHAIN_ID)], &[]).await;
    assert_eq!(merchant.with("status", &json!("paid")).len(), 1, "{:?}", merchant.received());
}

#[tokio::test(flavor = "multi_thread")]
async fn customers_pay_by_keyboard() {
    let (eth, polygon) = (evm_node(CHAIN_ID, 60, 60).await, evm_node(CHAIN_ID + 1, 60, 60).await);
    let second = chain("polygon", polygon.url(), CHAIN_ID + 1);
    shop("keyboard.cjs", &[chain("eth", eth.url(), CHAIN_ID), second], &[]).await;
    eth.shutdown().await;
    polygon.shutdown().await;
}
