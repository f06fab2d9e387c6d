//! First log lines of a process, and the location of its files: in another folder a process starts without orders.

use std::path::Path;
use std::process::Command;

use testkit::harness::{
    ADMIN_SECRET, Client, MERCHANT_SECRET, WALLET, eventually, executable, free_port,
};
use testkit::process::{Killed, signal};

/// Starts a process with the configuration of `folder` in `here`; returns it and its log file.
fn run(folder: &Path, here: &Path, port: u16) -> (Killed, std::path::PathBuf) {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[telemetry]\nlisten = \"\"\n[admin]\nsecret_file = \"admin-secret\"\n\
         [merchant]\nsecret_file = \"merchant-secret\"\n[webhooks]\nallow_private_addresses = true\n[[wallets]]\nblockchain = \"eth\"\naddress = \"{WALLET}\"\n\
         enabled_coins = [\"USDT\"]\n[chains.eth]\nrpc = \"http://127.0.0.1:9\"\n"
    );
    std::fs::write(folder.join("tidemark.toml"), config).unwrap();
    std::fs::write(folder.join("admin-secret"), ADMIN_SECRET).unwrap();
    std::fs::write(folder.join("merchant-secret"), MERCHANT_SECRET).unwrap();
    let output = here.join("output");
    let child = Command::new(executable())
        .args(["run", "--config"])
        .arg(folder.join("tidemark.toml"))
        .current_dir(here)
        .stderr(std::fs::File::create(&output).unwrap())
        .spawn();
    (Killed(child.unwrap()), output)
}

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
    let port = free_port();
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

    let id = client.unpriced_order("A-1", "10.00", "http://127.0.0.1:9/").await;
    let text = said(&output, "order created").await;
    let line = text.lines().find(|line| line.contains("order created")).unwrap();
    for part in ["INFO tidemark::orders: ", &format!("order.id={id}"), "amount=10.00"] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }
    signal(process.0.id(), "TERM");
    assert!(process.0.wait().unwrap().success());

    let (_process, output) = run(&folder, here.path(), port);
    let continues = format!("data in {}: continues with 1 open orders", data.display());
    said(&output, &continues).await;
    // The first run has read and logged the order.
    let text = said(&output, "ready after ").await;
    assert!(!text.contains("order created"), "{text}");
}
