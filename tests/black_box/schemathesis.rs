//! schemathesis calls every operation of the OpenAPI document with what its schemas allow, and with what they do not.

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::harness::{ADMIN_SECRET, Chain, MERCHANT_SECRET, Tidemark, USDT, evm_node};

const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_the_document_says() {
    let devnet = evm_node(1, 60, 60).await;
    let more = format!("tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]\n");
    let chains = [Chain { blockchain: "eth", rpc: devnet.url().to_owned(), wallet: WALLET, more }];
    let dir = tempfile::tempdir().unwrap();
    let tidemark = Tidemark::start(dir.path(), &chains, "http://127.0.0.1:9/hooks", "").await;
    let program = std::env::var_os("TIDEMARK_TEST_SCHEMATHESIS")
        .expect("TIDEMARK_TEST_SCHEMATHESIS is not set: run the tests by `cargo xtask test`");
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/schemathesis");
    let url = format!("http://{}", tidemark.address());
    let mut run = Command::new(program);
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
        .current_dir(dir.path())
        .stdin(Stdio::null());
    let output = tokio::task::block_in_place(|| run.output()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // All but the events, which never end.
    assert!(text.lines().any(|line| line.trim() == "Tested: 26"), "{text}");
    assert!(tidemark.stop().await.success());
}
