//! SIGHUP: a reload of the configuration under load.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use schemas::{Secret, sign_service};
use serde_json::json;
use testkit::Pace;
use testkit::harness::{
    ADMIN_SECRET, Chain, MERCHANT_SECRET, Tidemark, WALLET, WEBHOOK, eventually, evm_node, now,
    transfer_usdt, units,
};

const ADDED: &str = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";
const OTHER_SECRET: &str = "other-admin-9pT4hD6sJ3mZ";
const REFUSED: &str = "SIGHUP: the configuration is not valid, and nothing changes";

fn change(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from));
    std::fs::write(file, text.replace(from, to)).unwrap();
}

/// Creates orders, each over a new connection, until the end; counts them.
async fn create_until(end: Arc<AtomicBool>, base: String) -> usize {
    let mut created = 0;
    while !end.load(Ordering::Relaxed) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let reference = format!("R-{created}");
        let body = json!({ "order_id": reference, "amount": "10.00", "webhook_url": WEBHOOK });
        let body = body.to_string();
        let time = schemas::UnixSeconds(now());
        let signature = sign_service(&Secret::new(MERCHANT_SECRET), time, body.as_bytes());
        let request = http.post(format!("{base}/api/v1/service/orders"));
        let request = request.header("Service-Signature", signature).body(body);
        let answer = request.send().await.expect("no connection is refused or cut");
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
        created += 1;
    }
    created
}

async fn admin_status(base: &str, secret: &str, path: &str) -> (u16, String) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = http.get(format!("{base}/api/v1/admin{path}"));
    let answer = request.header("Service-Admin-Authorization", secret).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_refuses_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let devnet = evm_node(1, 600, 60).await;
    let chain = Chain::of("eth", &devnet, WALLET, "confirmations = 3\n");
    let tidemark = Tidemark::start(dir.path(), &[chain], WEBHOOK, "").await;
    let (client, node) = (tidemark.client(), devnet.chain());
    let file = dir.path().join("tidemark.toml");
    let base = format!("http://{}", tidemark.address());
    let open = client.order("A-1", "10.00", "eth", WEBHOOK).await;
    let value = units(&client.deposit(&open).await["value"]);
    let end = Arc::new(AtomicBool::new(false));
    let creates = tokio::spawn(create_until(end.clone(), base.clone()));

    change(&file, "[merchant]", "[merchants]");
    tidemark.signal("HUP");
    eventually("the refusal of the configuration", || async {
        tidemark.log().contains(REFUSED).then_some(())
    })
    .await;
    assert!(tidemark.log().contains("merchants: unknown section"), "{}", tidemark.log());
    // Ingest refuses to start if a wallet that it watches is missing from the configuration, so the reload refuses
    // that, too.
    change(&file, "[merchants]", "[merchant]");
    change(&file, WALLET, ADDED);
    tidemark.signal("HUP");
    let vanished = format!("wallet {WALLET}");
    eventually("the refusal of another wallet", || async {
        tidemark.log().contains(&vanished).then_some(())
    })
    .await;
    change(&file, ADDED, WALLET);

    change(&file, ADMIN_SECRET, OTHER_SECRET);
    let wallet = format!(
        "[[wallets]]\nblockchain = \"eth\"\naddress = \"{ADDED}\"\nenabled_coins = [\"USDT\"]\n"
    );
    change(&file, "[[wallets]]", &format!("{wallet}[[wallets]]"));
    tidemark.signal("HUP");
    eventually("the other secret", || async {
        let (status, wallets) = admin_status(&base, OTHER_SECRET, "/wallets").await;
        (status == 200 && wallets.contains(ADDED)).then_some(())
    })
    .await;
    assert_eq!(admin_status(&base, ADMIN_SECRET, "/wallets").await.0, 401);

    // The deposit that was open before the reload is paid.
    transfer_usdt(&node, WALLET, value);
    let pace = Pace::default();
    eventually("the order to be paid", || async {
        if pace.is_due() {
            node.mine(1).unwrap();
        }
        (client.shown(&open).await?["status"] == "paid").then_some(())
    })
    .await;
    end.store(true, Ordering::Relaxed);
    assert!(creates.await.unwrap() > 0);
    assert!(tidemark.stop().await.success());
}
