//! First log lines of a process, and the location of its files: in another folder a process starts without orders.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::harness::{Client, eventually, executable};
use testkit::process::Killed;

const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

/// Starts a process with the configuration of `folder` in `here`; returns it and its log file.
fn run(folder: &Path, here: &Path, port: u16) -> (Killed, std::path::PathBuf) {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[telemetry]\nlisten = \"\"\n[admin]\nsecret_file = \"admin-secret\"\n\
         [merchant]\nsecret_file = \"merchant-secret\"\n[webhooks]\nallow_private_addresses = true\n[[wallets]]\nblockchain = \"eth\"\naddress = \"{WALLET}\"\n\
         enabled_coins = [\"USDT\"]\n[chains.eth]\nrpc = \"http://127.0.0.1:9\"\n"
    );
    std::fs::write(folder.join("tidemark.toml"), config).unwrap();
    std::fs::write(folder.join("admin-secret"), testkit::harness::ADMIN_SECRET).unwrap();
    std::fs::write(folder.join("merchant-secret"), testkit::harness::MERCHANT_SECRET).unwrap();
    let output = here.join("output");
    let child = Command::new(executable())
        .args(["run", "--config"])
        .arg(folder.join("tidemark.toml"))
        .current_dir(here)
        .stderr(std::fs::File::create(&output).unwrap())
        .spawn();
    (Killed(child.unwrap()), output)
}

/// Waits for a line.
async fn said(output: &Path, what: &str) -> String {
    eventually(what, || async {
        let text = std::fs::read_to_string(output).unwrap();
        text.contains(what).then_some(text)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_says_whose_orders_it_continues() {
    let (folder, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = folder.path().canonicalize().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let client = Client::new(&format!("http://127.0.0.1:{port}"));
    let data = folder.join("data");

    let (mut process, output) = run(&folder, here.path(), port);
    let text = said(&output, "ready after ").await;
    let config = folder.join("tidemark.toml");
    for line in [
        format!("the configuration is {}: relative paths count from its folder", config.display()),
        format!("data in {}: new, there are no orders", data.display()),
        format!("the api accepts requests address=127.0.0.1:{port}"),
    ] {
        assert!(text.contains(&line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains(" is ready"), "short waits are no lines:\n{text}");
    assert!(!here.path().join("data").exists());

    let body =
        json!({ "order_id": "A-1", "amount": "10.00", "webhook_url": "http://127.0.0.1:9/" });
    let (status, text) = client.service("/orders", &body, &[]).await.unwrap();
    assert_eq!(status, 201, "{text}");
    let order: Value = serde_json::from_str(&text).unwrap();
    let id = order["order_id"].as_str().unwrap();
    let text = said(&output, "order created").await;
    let line = text.lines().find(|line| line.contains("order created")).unwrap();
    for part in ["INFO tidemark::orders: ", &format!("order.id={id}"), "amount=10.00"] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }
    let stopped = Command::new("kill").arg(process.0.id().to_string()).status().unwrap();
    assert!(stopped.success() && process.0.wait().unwrap().success());

    let (_process, output) = run(&folder, here.path(), port);
    let continues = format!("data in {}: continues with 1 open orders", data.display());
    said(&output, &continues).await;
    // Read and logged in the first run.
    let text = said(&output, "ready after ").await;
    assert!(!text.contains("order created"), "{text}");
}
