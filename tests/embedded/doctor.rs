//! `tidemark doctor`, against development chains with faults.

use std::net::Ipv4Addr;
use std::path::Path;

use alloy_primitives::U256;
use devnet::{Devnet, Fault, NativeFault, Token};
use schemas::Blockchain;
use serde_json::Value;
use testkit::harness::{
    USDT, WALLET, errand, exits, now, transfer_usdt, tron_address, tron_chain, usdt, usdt_of,
};

/// A chain of a hundred blocks, the last one just now; its tags are as old as Ethereum's.
async fn node(chain_id: u64, has_usdt: bool) -> Devnet {
    node_with(chain_id, Vec::from_iter(has_usdt.then(usdt))).await
}

async fn node_with(chain_id: u64, tokens: Vec<Token>) -> Devnet {
    let has_usdt = !tokens.is_empty();
    let config = devnet::Config {
        chain_id,
        genesis_timestamp: now().unsigned_abs() - 1200,
        block_interval_secs: 12,
        finalized_depth: 64,
        safe_depth: 32,
        tokens,
        ..devnet::Config::default()
    };
    let devnet = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let chain = devnet.chain();
    chain.mine(99).unwrap();
    if has_usdt {
        transfer_usdt(&chain, WALLET, 12_500_000);
    }
    chain.mine(1).unwrap();
    devnet
}

/// Sections for a wallet on Ethereum, with these endpoints.
fn sections(rpc: &str, more: &str) -> String {
    format!(
        "[[wallets]]\nblockchain = \"eth\"\naddress = \"{WALLET}\"\nenabled_coins = \
         [\"USDT\"]\n[chains.eth]\nrpc = {rpc}\nrequest_timeout = \"2s\"\n\
         tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]\n{more}"
    )
}

fn configure(dir: &Path, sections: &str) {
    let config = format!("[data]\ndir = {:?}\n{sections}", dir.join("data"));
    std::fs::write(dir.join("tidemark.toml"), config).unwrap();
}

/// Runs `tidemark doctor` with this configuration; it must exit with this code. Returns its output.
#[track_caller]
fn doctor(dir: &Path, sections: &str, code: i32) -> String {
    configure(dir, sections);
    exits(dir, &["doctor"], code)
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn good_endpoint_is_described_without_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let devnet = node(1, true).await;
    let url = format!("{:?}", format!("{}v3/0123456789abcdef", with_slash(devnet.url())));
    let text = doctor(dir.path(), &sections(&url, "reorg_window = 50\n"), 0);
    has(
        &text,
        &[
            "eth: can be followed; no second endpoint",
            "ok       chain_id     1",
            "ok       latency",
            "ok       finalized    block",
            "s old",
            "decimals 6, symbol USDT",
            "eth_getLogs over 101 blocks is served: the whole chain",
            "ok       logs_depth   back to block 1, 99 deep",
            "ok       receipts     of a transaction served, of a block served",
            &format!("ok       wallet       {WALLET} has no code"),
            &format!("{WALLET} has 12.50 USDT"),
            "ok       log",
        ],
    );
    assert!(!text.contains("0123456789abcdef"), "{text}");
    assert!(!dir.path().join("data").exists(), "it changes nothing");

    devnet.chain().limit_range(Some(30));
    configure(dir.path(), &sections(&url, ""));
    let output = errand(dir.path(), &["doctor", "--json"]);
    assert!(output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let endpoint = &json["chains"][0]["endpoints"][0];
    let of = |check: &str| {
        let findings = endpoint["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).unwrap()
    };
    assert_eq!((&json["success"], &endpoint["usable"]), (&true.into(), &true.into()));
    assert_eq!(of("range")["level"], "warning");
    assert_eq!(of("logs_depth")["level"], "ok", "the chain is shorter than its window");
    assert!(of("range")["value"]["served"].as_i64().unwrap() <= 30, "{json}");
    assert_eq!(of("balance")["value"]["amount"], "12.50");
    assert_eq!(
        (&of("balance")["value"]["wallet"], &of("balance")["value"]["coin"]),
        (&WALLET.into(), &"USDT".into())
    );
    assert_eq!(of("contract")["value"]["contract"], USDT);
    assert_eq!(of("chain_id")["value"], 1);
}

fn with_slash(url: &str) -> String {
    format!("{}/", url.trim_end_matches('/'))
}

/// Any contract is detected, not only known tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_with_code_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let token = "0x1111111111111111111111111111111111111111";
    let unknown = Token { address: token.parse().unwrap(), ..usdt() };
    let devnet = node_with(1, vec![usdt(), unknown]).await;
    let sections = format!(
        "[[wallets]]\nblockchain = \"eth\"\naddress = \"{token}\"\nenabled_coins = [\"USDT\"]\n[chains.eth]\n\
         rpc = {:?}\n",
        devnet.url()
    );
    let text = doctor(dir.path(), &sections, 0);
    has(
        &text,
        &[&format!("warning  wallet       {token} has code: only right for a contract wallet")],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_that_cannot_be_followed_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (good, other, bare) = (node(1, true).await, node(5, true).await, node(1, false).await);
    let down = node(1, true).await;
    down.chain().fail_next(u32::MAX, Fault::HttpStatus(503));
    for (devnet, found) in [
        (&other, "5 where 1 is expected: the URL is of another chain"),
        (&bare, "has no code where decimals() = 6 is configured"),
        (&down, "no answer (transient: HTTP status 503"),
    ] {
        let text = doctor(dir.path(), &sections(&format!("{:?}", devnet.url()), ""), 1);
        has(&text, &["eth: CANNOT BE FOLLOWED", "FAILURE", found]);
        let both = format!("[{:?}, {:?}]", devnet.url(), good.url());
        // One endpoint suffices.
        let text = doctor(dir.path(), &sections(&both, ""), 0);
        has(&text, &["eth: can be followed, by 1 of 2 endpoints", found]);
    }
    let text = doctor(dir.path(), &sections("\"nowhere\"", "range_max = 0\n"), 64);
    has(&text, &["chains.eth.rpc: ", "chains.eth.range_max: "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_tron_the_native_interface_is_checked_too() {
    let (dir, chain) = (tempfile::tempdir().unwrap(), tron_chain(30));
    let usdt = usdt_of(Blockchain::Tron);
    let (token, to) = ((*usdt.address.bytes()).into(), WALLET.parse().unwrap());
    chain.transfer(token, [0x22; 20].into(), to, U256::from(12_500_000)).unwrap();
    chain.mine(30).unwrap();
    let devnet = Devnet::serve_tron(chain, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let wallet = tron_address(WALLET);
    let sections = |native: &str| {
        format!(
            "[[wallets]]\nblockchain = \"tron\"\naddress = \"{wallet}\"\nenabled_coins = [\"USDT\"]\n[chains.tron]\n\
             rpc = [{{ url = {:?}{native} }}]\nrequest_timeout = \"2s\"\n",
            devnet.url()
        )
    };
    let text = doctor(dir.path(), &sections(""), 0);
    let solidified = devnet.chain().solidified();
    has(
        &text,
        &[&format!("ok       native       solidified block {solidified}, outcomes are served")],
    );
    let text = doctor(dir.path(), &sections(", native = \"\""), 0);
    has(&text, &["warning  native       there is none: receipts of JSON-RPC prove final payments"]);
    devnet.chain().break_native(Some(NativeFault::FirstOutcomes(0)));
    let text = doctor(dir.path(), &sections(""), 1);
    has(&text, &["FAILURE  native       no answer (", "no payment would be confirmed"]);
    // A configured native API must work: it is queried for finality besides the JSON-RPC tag.
    let dead = NativeFault::Body { status: 200, text: devnet::tron::LITE_NODE };
    devnet.chain().break_native(Some(dead));
    let text = doctor(dir.path(), &sections(""), 0);
    has(&text, &["ok       finalized    block ", "warning  native       there is none"]);
    let given = format!(", native = {:?}", devnet.url().trim_end_matches("jsonrpc"));
    let text = doctor(dir.path(), &sections(&given), 1);
    has(&text, &["FAILURE  finalized    not served (fatal: ", "FAILURE  native       no answer ("]);
}
