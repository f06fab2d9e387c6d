//! `tidemark tables rebuild`: deleted tables are rebuilt from the log, row for row.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use devnet::Devnet;
use serde_json::Value;
use testkit::harness::{Chain, Client, Tidemark, eventually, executable, now, usdt};

const WEBHOOK: &str = "http://127.0.0.1:9/hooks";
const LISTS: [&str; 2] = ["/orders", "/deposits"];

async fn start(dir: &Path, devnet: &Devnet) -> Tidemark {
    let chain = Chain {
        blockchain: "eth",
        rpc: devnet.url().to_owned(),
        wallet: "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        more: String::new(),
    };
    Tidemark::start(dir, &[chain], WEBHOOK, "").await
}

async fn rows(client: &Client) -> Vec<Value> {
    let mut rows = Vec::new();
    for list in LISTS {
        rows.push(client.admin(list).await.unwrap());
    }
    rows
}

/// Runs `tidemark tables` with these arguments.
fn tables(dir: &Path, arguments: &[&str]) -> Output {
    let config = dir.join("tidemark.toml");
    let mut command = Command::new(executable());
    command.arg("tables").args(arguments).arg("--config").arg(config).output().unwrap()
}

fn rebuild(dir: &Path, more: &[&str]) -> Output {
    tables(dir, &[&["rebuild"], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_tables_are_rebuilt_row_for_row() {
    let dir = tempfile::tempdir().unwrap();
    let genesis_timestamp = now().unsigned_abs();
    let tokens = vec![usdt()];
    let config =
        devnet::Config { chain_id: 1, genesis_timestamp, tokens, ..devnet::Config::default() };
    let devnet = Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let tidemark = start(dir.path(), &devnet).await;
    let client = tidemark.client();
    for (reference, amount) in [("A-1", "10.00"), ("B-1", "10.00"), ("C-1", "30.00")] {
        client.create(reference, amount, "eth", WEBHOOK).await;
    }
    let before = eventually("a row of each order and deposit", || async {
        let rows = rows(&client).await;
        rows.iter().all(|list| list.as_array().unwrap().len() == 3).then_some(rows)
    })
    .await;
    assert!(tidemark.stop().await.success());

    let file = dir.path().join("data/tables.sqlite");
    // Replacing old tables, and without any.
    for is_first in [true, false] {
        let printed = rebuild(dir.path(), &[]);
        assert_eq!(printed.status.code(), Some(0), "{printed:?}");
        let printed = String::from_utf8(printed.stdout).unwrap();
        let lines: Vec<_> = printed.lines().collect();
        assert!(lines[0].starts_with("made ") && lines[0].contains(" rows from "), "{printed}");
        assert!(lines[1].contains("kept what the log no longer has: 0 orders"), "{printed}");
        assert!(file.exists(), "{}", file.display());
        if is_first {
            std::fs::remove_file(&file).unwrap();
        }
    }
    let verify = || tables(dir.path(), &["verify"]);
    let verified = verify();
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    rusqlite::Connection::open(&file).unwrap().execute("DELETE FROM orders", []).unwrap();
    let verified = verify();
    assert_eq!(verified.status.code(), Some(2), "{verified:?}");
    let printed = String::from_utf8(verified.stdout).unwrap();
    assert_eq!(printed.lines().count(), 3, "{printed}");
    for line in printed.lines() {
        let cure = "stop every process, and run `tidemark tables rebuild`";
        let is_missing = line.starts_with("orders ") && line.contains(" missing (orders/");
        assert!(is_missing && line.ends_with(cure), "{line}");
    }
    assert_eq!(rebuild(dir.path(), &[]).status.code(), Some(0));
    assert_eq!(verify().status.code(), Some(0));
    let misused = rebuild(dir.path(), &["--into", "other"]);
    assert_eq!(misused.status.code(), Some(64), "{misused:?}");

    let tidemark = start(dir.path(), &devnet).await;
    assert_eq!(rows(&tidemark.client()).await, before);
}
