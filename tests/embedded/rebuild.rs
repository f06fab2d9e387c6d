//! `tidemark tables rebuild`: deleted tables are rebuilt from the log, row for row.

use std::net::Ipv4Addr;
use std::path::Path;

use devnet::Devnet;
use serde_json::Value;
use testkit::harness::{
    Chain, Client, Tidemark, WALLET, WEBHOOK, errand, eventually, exits, now, usdt,
};

use crate::backup::{assert_owned, give_away};

const LISTS: [&str; 2] = ["/orders", "/deposits"];

async fn start(dir: &Path, devnet: &Devnet) -> Tidemark {
    let chain = Chain::at("eth", devnet.url(), WALLET, "");
    Tidemark::start(dir, &[chain], WEBHOOK, "").await
}

async fn rows(client: &Client) -> Vec<Value> {
    let mut rows = Vec::new();
    for list in LISTS {
        rows.push(client.admin(list).await.unwrap());
    }
    rows
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

    let data = dir.path().join("data");
    give_away(&data);
    let file = data.join("tables.sqlite");
    // First replaces the old tables, then starts without tables.
    for is_first in [true, false] {
        let printed = exits(dir.path(), &["tables", "rebuild"], 0);
        let lines: Vec<_> = printed.lines().collect();
        assert!(lines[0].starts_with("made ") && lines[0].contains(" rows from "), "{printed}");
        assert!(lines[1].contains("kept what the log no longer has: 0 orders"), "{printed}");
        assert_owned(&data, "tables.sqlite");
        if is_first {
            std::fs::remove_file(&file).unwrap();
        }
    }
    exits(dir.path(), &["tables", "verify"], 0);
    rusqlite::Connection::open(&file).unwrap().execute("DELETE FROM orders", []).unwrap();
    let verified = errand(dir.path(), &["tables", "verify"]);
    assert_eq!(verified.status.code(), Some(2), "{verified:?}");
    let printed = String::from_utf8(verified.stdout).unwrap();
    assert_eq!(printed.lines().count(), 3, "{printed}");
    for line in printed.lines() {
        let cure = "stop every process, and run `tidemark tables rebuild`";
        let is_missing = line.starts_with("orders ") && line.contains(" missing (orders/");
        assert!(is_missing && line.ends_with(cure), "{line}");
    }
    exits(dir.path(), &["tables", "rebuild"], 0);
    exits(dir.path(), &["tables", "verify"], 0);
    exits(dir.path(), &["tables", "rebuild", "--into", "other"], 64);

    let tidemark = start(dir.path(), &devnet).await;
    assert_eq!(rows(&tidemark.client()).await, before);
}
