//! `tidemark export` and `tidemark import` between embedded installations, into another layout: payments before, during
//! and after the move.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::harness::{Tidemark, errand, eventually, exits, now};
use testkit::relocation::{SETTINGS, Shop, assert_attempts};

/// Number of orders of each kind: paid before the move, seen before it, paid during it, and after it.
const PART: usize = 12;

async fn start(shop: &Shop, dir: &Path, layout: &str) -> Tidemark {
    let more = format!("{SETTINGS}[log]\n{layout}");
    Tidemark::start(dir, &shop.chains(), &shop.url(), &more).await
}

fn folder(dir: &Path, name: &str) -> (PathBuf, String) {
    let path = dir.join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_moves_to_another_layout_and_back() {
    let mut shop = Shop::open().await;
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [old, new, back] = dirs.each_ref().map(|dir| dir.path());
    let few = "lanes = 1\norder_partitions = 4\nwebhook_partitions = 2\n";
    let many = "lanes = 3\norder_partitions = 7\nwebhook_partitions = 5\n";

    let tidemark = start(&shop, old, few).await;
    let client = tidemark.client();
    let stray = shop.begin(&client, 4 * PART + 3, PART).await;
    let orders = shop.orders.clone();
    let (before, rest) = orders.split_at(PART);
    let (seen, rest) = rest.split_at(PART);
    let (during, rest) = rest.split_at(PART);
    let (after, spare) = rest.split_at(PART);
    shop.pay(seen);
    let busy = exits(old, &["export", &folder(old, "busy").1], 1);
    assert!(busy.contains("is in use by another process"), "{busy}");
    assert!(tidemark.stop().await.success());
    shop.returns().await;
    shop.pay(during);

    let (_, to) = folder(old, "moved");
    let printed = exits(old, &["export", &to], 0);
    assert!(printed.contains("do not start this installation again"), "{printed}");
    assert!(exits(old, &["export", &to], 64).contains("is there already"));
    configure(old, new, Some((few, many)));
    arrive(new, &to);
    let tidemark = start(&shop, new, many).await;
    let client = tidemark.client();
    shop.mine(4);
    shop.are_paid(&client, seen).await;
    shop.are_paid(&client, during).await;
    shop.are_announced(before).await;
    shop.are_known(&client).await;
    shop.is_open(&client, &spare[0]).await;
    shop.attach(&client, &stray, &[spare[0].clone(), spare[1].clone()]).await;
    shop.create(&client, 4 * PART + 6).await;
    shop.assert_names();
    assert!(tidemark.stop().await.success());
    exits(new, &["tables", "verify"], 0);

    // And back to one lane.
    let (_, to) = folder(new, "moved");
    exits(new, &["export", &to], 0);
    configure(new, back, Some((many, few)));
    arrive(back, &to);
    let tidemark = start(&shop, back, few).await;
    let client = tidemark.client();
    shop.pay(after);
    shop.mine(4);
    shop.are_paid(&client, &shop.orders[..4 * PART]).await;
    shop.are_announced(&shop.orders[..4 * PART]).await;
    shop.are_known(&client).await;
    shop.create(&client, 4 * PART + 9).await;
    shop.assert_names();
    // The count includes the attached transfer.
    agrees(&shop, back, 4 * PART as u64 + 1).await;
    assert!(tidemark.stop().await.success());
    exits(back, &["tables", "verify"], 0);
    shop.drained().await;
    shop.assert_webhooks(&shop.orders[..4 * PART], 0);
    assert_attempts(&exits(back, &["tail", "webhooks.attempts", "--until-end"], 0));
    assert!(!old.join("busy").exists() && !old.join("busy.part").exists());
}

/// Writes the configuration of one folder for another one and another layout.
fn configure(from: &Path, to: &Path, layouts: Option<(&str, &str)>) {
    let text = fs::read_to_string(from.join("tidemark.toml")).unwrap();
    let data = |dir: &Path| dir.join("data").display().to_string();
    let mut text = text.replace(&data(from), &data(to));
    if let Some((old, new)) = layouts {
        assert!(text.contains(old), "{text}");
        text = text.replace(old, new);
    }
    fs::write(to.join("tidemark.toml"), text).unwrap();
}

/// Imports an export; a second import must be refused.
fn arrive(dir: &Path, from: &str) {
    exits(dir, &["import", from], 0);
    let again = exits(dir, &["import", from], 1);
    assert!(again.contains("is there already"), "{again}");
}

/// Mines until a full reconciliation agrees, with this number of matched payments.
async fn agrees(shop: &Shop, dir: &Path, matched: u64) {
    let (from, to) = ((now() - 7200).to_string(), (now() + 7200).to_string());
    let arguments = ["reconcile", "--from", &from, "--to", &to, "--json"];
    eventually("the reconciliation", || async {
        shop.mine(2);
        let output = errand(dir, &arguments);
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        let lines = report["statement"].as_array()?.iter();
        let count: Option<u64> = lines.map(|line| line["matched"]["count"].as_u64()).sum();
        (output.status.success() && count == Some(matched)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_whole_move_is_refused() {
    let shop = Shop::open().await;
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [old, new] = dirs.each_ref().map(|dir| dir.path());
    assert!(start(&shop, old, "").await.stop().await.success());
    let (moved, to) = folder(old, "moved");
    exits(old, &["export", &to], 0);

    // The target is not empty.
    let there = exits(old, &["import", &to], 1);
    assert!(there.contains("log.sqlite is there already"), "{there}");
    configure(old, new, None);
    let rows = moved.join("tables.jsonl");
    let whole = fs::read(&rows).unwrap();
    fs::write(&rows, &whole[1..]).unwrap();
    let damaged = exits(new, &["import", &to], 1);
    assert!(damaged.contains("is damaged"), "{damaged}");
    assert!(!new.join("data").exists(), "nothing is made");
    fs::write(&rows, whole).unwrap();
    let manifest = moved.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"format\":1", "\"format\":2")).unwrap();
    let other = exits(new, &["import", &to], 1);
    assert!(other.contains("import it with that version"), "{other}");
    fs::write(&manifest, text).unwrap();

    // SQLite would read it into the new log.
    let left = new.join("data/log.sqlite-wal");
    fs::create_dir_all(new.join("data")).unwrap();
    fs::write(&left, "of the log that was moved away").unwrap();
    let there = exits(new, &["import", &to], 1);
    assert!(there.contains("log.sqlite-wal is there already"), "{there}");
    fs::remove_file(left).unwrap();

    // Interrupted import.
    fs::create_dir_all(new.join("data/import.part")).unwrap();
    let half = exits(new, &["run"], 1);
    assert!(half.contains("run `tidemark import` again"), "{half}");
    let half = exits(new, &["export", &folder(new, "half").1], 1);
    assert!(half.contains("run `tidemark import` again"), "{half}");
    exits(new, &["import", &to], 0);
    assert!(!new.join("data/import.part").exists());
    let tidemark = start(&shop, new, "").await;
    assert!(tidemark.stop().await.success());
}
