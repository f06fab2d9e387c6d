//! schemathesis calls every operation of the OpenAPI document with valid and invalid inputs.

use std::process::{Command, Stdio};

use devnet::Devnet;
use serde_json::Value;
use testkit::harness::{
    ADMIN_SECRET, Chain, MERCHANT_SECRET, Tidemark, WALLET, WEBHOOK, eventually, evm_node,
    transfer_usdt,
};
use testkit::process::given;
use testkit::repository::root;

/// Number of tested operations: all but the endless event stream and the document itself.
const OPERATIONS: usize = 30;
/// Number of operations that can only be refused: no alert is open here to resolve. The rows of
/// `api/tests/http/operators.rs` resolve one.
const REFUSED: usize = 1;

/// Transfers that pay nothing, after their verdict.
async fn stray(devnet: &Devnet, tidemark: &Tidemark) -> [Value; 2] {
    let chain = devnet.chain();
    for value in [1_234_567, 2_345_678] {
        transfer_usdt(&chain, WALLET, value);
    }
    chain.mine(60).unwrap();
    let client = tidemark.client();
    eventually("the transfers to be unknown", || async {
        let path = format!("/wallets/{WALLET}/transfers?status=no_matched_deposit");
        let list = client.admin(&path).await.ok()?;
        <[Value; 2]>::try_from(list.as_array()?.clone()).ok()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_the_document_says() {
    let devnet = evm_node(1, 60, 60).await;
    let chains = [Chain::of("eth", &devnet, WALLET, "")];
    let dir = tempfile::tempdir().unwrap();
    let short = "[matching]\nmatch_window = \"1s\"\n";
    let tidemark = Tidemark::start(dir.path(), &chains, WEBHOOK, short).await;
    let [transfer, to_attach] = stray(&devnet, &tidemark).await;
    let hooks = root().join("tests/clients/schemathesis");
    let url = format!("http://{}", tidemark.address());
    let mut run = Command::new(given("TIDEMARK_TEST_SCHEMATHESIS"));
    run.arg("--config-file")
        .arg(hooks.join("schemathesis.toml"))
        .args(["run", &format!("{url}/api/v1/openapi.json"), "--continue-on-failure"])
        // The same cases in every run; twenty of an operation beside the bounds of each value.
        .args(["--seed", "1", "--max-examples", "20", "--generation-database", "none"])
        .env("PYTHONPATH", &hooks)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("TIDEMARK_URL", &url)
        .env("TIDEMARK_MERCHANT_SECRET", MERCHANT_SECRET)
        .env("TIDEMARK_ADMIN_SECRET", ADMIN_SECRET)
        .env("TIDEMARK_TRANSFER", transfer["id"].to_string())
        .env("TIDEMARK_TRANSFER_TO_ATTACH", to_attach["id"].to_string())
        .env("TIDEMARK_TRANSACTION", transfer["txn_hash"].as_str().unwrap())
        .env("TIDEMARK_WALLET", WALLET)
        .env("TIDEMARK_DONE", dir.path().join("done"))
        .current_dir(dir.path())
        .stdin(Stdio::null());
    let output = tokio::task::block_in_place(|| run.output()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let tested = format!("Tested: {OPERATIONS}");
    let done = std::fs::read_to_string(dir.path().join("done")).unwrap();
    assert!(text.lines().any(|line| line.trim() == tested), "{done}\n{text}");
    // Each operation must have succeeded at least once, or only refusals were compared.
    assert_eq!(
        done.lines().count(),
        OPERATIONS - REFUSED,
        "only these were carried out:\n{done}\n{text}"
    );
    assert!(tidemark.stop().await.success());
}
