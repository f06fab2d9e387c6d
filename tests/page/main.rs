//! Customers pay on the checkout page, in a real Chromium: `checkout.cjs` is the customer, the chain is ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use devnet::Devnet;
use testkit::harness::{Chain, MERCHANT_SECRET, Merchant, Tidemark, evm_node};

/// A wallet of the shop.
const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
/// No real network's: its coins are worth nothing, and the page says so.
const CHAIN_ID: u64 = 31_337;

fn folder(variable: &str) -> PathBuf {
    let missing = || panic!("{variable} is not set: run the tests by `cargo xtask test`");
    std::env::var_os(variable).map_or_else(missing, PathBuf::from)
}

/// A chain of one block a second, which the customer mines.
async fn chain() -> Devnet {
    evm_node(CHAIN_ID, 60, 60).await
}

#[tokio::test(flavor = "multi_thread")]
async fn customers_pay_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let (devnet, merchant) = (chain().await, Merchant::start().await);
    let chain = Chain {
        blockchain: "eth",
        rpc: devnet.url().to_owned(),
        wallet: WALLET,
        more: format!("chain_id = {CHAIN_ID}\nconfirmations = 4\n"),
    };
    let more = "[orders]\nttl = \"20m\"\n[matching]\nmatch_window = \"30s\"\n";
    let tidemark = Tidemark::start(dir.path(), &[chain], merchant.url(), more).await;
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checkout-page");
    std::fs::create_dir_all(&pictures).unwrap();
    let modules = [folder("TIDEMARK_TEST_PLAYWRIGHT"), folder("TIDEMARK_TEST_AXE")];
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("page/checkout.cjs");
    let status = Command::new("node")
        .arg(script)
        .env("NODE_PATH", std::env::join_paths(modules).unwrap())
        .env("BASE", format!("http://{}", tidemark.address()))
        .env("CHAIN", devnet.url())
        .env("SECRET", MERCHANT_SECRET)
        .env("WEBHOOK", merchant.url())
        .env("PICTURES", &pictures)
        .status()
        .expect("node runs");
    assert!(status.success(), "the customer could not pay, or saw something else");
    assert!(tidemark.stop().await.success());
    devnet.shutdown().await;
}
