//! `tidemark backup` beside a running process, and `tidemark restore`: events since the backup are lost, and no id
//! assigned since is assigned again.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use devnet::{Chain as Node, Devnet};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::harness::{
    ADMIN_SECRET, Chain, Client, Merchant, Tidemark, WALLET, evm_node, exits, mine_now,
    transfer_usdt, units,
};

const MORE: &str = "[matching]\nmatch_window = \"10s\"\n";

pub(crate) struct Shop {
    pub(crate) dir: tempfile::TempDir,
    devnet: Devnet,
    merchant: Merchant,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (devnet, merchant) = (evm_node(1, 600, 60).await, Merchant::start().await);
        Self { dir, devnet, merchant }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn node(&self) -> Node {
        self.devnet.chain()
    }

    pub(crate) async fn start(&self) -> Tidemark {
        let keys = "confirmations = 2\nreorg_window = 8\n";
        let chains = [Chain::of("eth", &self.devnet, WALLET, keys)];
        Tidemark::start(self.dir.path(), &chains, self.merchant.url(), MORE).await
    }

    /// Runs a command on its folder, which must exit with this code; returns its output.
    pub(crate) fn exits(&self, arguments: &[&str], code: i32) -> String {
        exits(self.dir.path(), arguments, code)
    }

    pub(crate) async fn order(&self, client: &Client, reference: &str) -> (String, Value) {
        let id = client.order(reference, "10.00", "eth", self.merchant.url()).await;
        let deposit = client.deposit(&id).await;
        (id, deposit)
    }

    /// Sends this many units, and mines past the match window of the payment.
    fn pay(&self, units: u128) -> String {
        let node = self.node();
        let hash = transfer_usdt(&node, WALLET, units);
        for _ in 0..16 {
            mine_now(&node);
        }
        hash.to_string()
    }
}

/// Makes the data folder that of another user, as a service's is for root. Only root may: for others it remains theirs.
pub(crate) fn give_away(data: &Path) {
    drop(chown(data, Some(1), None));
}

/// Checks that a file in the data folder has the folder's owner.
pub(crate) fn assert_owned(data: &Path, file: &str) {
    let owner = |path: &Path| fs::metadata(path).unwrap().uid();
    assert_eq!(owner(&data.join(file)), owner(data), "{file}");
}

async fn attach(client: &Client, transfer: &Value, order: &str) -> (StatusCode, String) {
    let path = format!("/api/v1/admin/transfers/{transfer}/attach");
    let body = json!({ "order_id": order, "accept_less": true }).to_string();
    let headers = [("Service-Admin-Authorization", ADMIN_SECRET)];
    client.send(Method::POST, &path, &headers, Some(body)).await.unwrap()
}

/// Backs up beside a running process, whose later orders and payments the restore loses.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_gives_no_name_a_second_time() {
    let shop = Shop::open().await;
    let tidemark = shop.start().await;
    let client = tidemark.client();
    let (kept, deposit) = shop.order(&client, "A-1").await;
    shop.pay(units(&deposit["value"]));
    client.order_with_status(&kept, "paid").await;
    let backup = shop.path("backup");
    let backup = backup.to_str().unwrap();
    shop.exits(&["backup", backup], 0);
    shop.exits(&["backup", backup], 64);

    // The restore loses all events from here to the kill.
    let (lost, deposit) = shop.order(&client, "B-1").await;
    let deposits_before = deposit["id"].as_i64().unwrap();
    let paid = shop.pay(units(&deposit["value"]));
    client.order_with_status(&lost, "paid").await;
    let stray = shop.pay(77_000_000);
    let paid_before = client.transfer_with_status(WALLET, &paid, "matched").await["id"].clone();
    let stray_before =
        client.transfer_with_status(WALLET, &stray, "no_matched_deposit").await["id"].clone();
    shop.merchant.awaited("transfer_id", &stray_before).await;
    let busy = shop.exits(&["restore", backup], 1);
    assert!(busy.contains("is in use by another process"), "{busy}");
    tidemark.kill();

    let data = shop.path("data");
    give_away(&data);
    let restored = shop.exits(&["restore", backup], 0);
    assert!(restored.contains("restored from the backup of "), "{restored}");
    for file in ["log.sqlite", "tables.sqlite", "log.lock"] {
        assert_owned(&data, file);
    }
    let tidemark = shop.start().await;
    let client = tidemark.client();
    // The chain is scanned again: the same payments, whose orders are lost.
    let stray_now = client.transfer_with_status(WALLET, &stray, "no_matched_deposit").await;
    assert_eq!(stray_now["id"], stray_before);
    let paid_now = client.transfer_with_status(WALLET, &paid, "no_matched_deposit").await;
    assert_eq!(paid_now["id"], paid_before);
    let later = shop.pay(99_000_000);
    let later = client.transfer_with_status(WALLET, &later, "no_matched_deposit").await;
    assert!(later["id"] != stray_before && later["id"] != paid_before, "{later}");
    shop.merchant.awaited("transfer_id", &later["id"]).await;
    let (first, deposit) = shop.order(&client, "C-1").await;
    assert!(deposit["id"].as_i64().unwrap() > deposits_before, "{deposit}");
    let (second, _) = shop.order(&client, "D-1").await;

    // A transfer that had paid a lost order pays one other order at most.
    let (status, body) = attach(&client, &paid_now["id"], &first).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (status, body) = attach(&client, &paid_now["id"], &second).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    client.order_with_status(&kept, "paid").await;
    assert!(tidemark.stop().await.success());

    let alerts = shop.exits(&["tail", "alerts", "--until-end"], 0);
    assert!(alerts.contains("\"restored\""), "{alerts}");
    assert_one_name_each(&shop.merchant);
}

/// Checks that webhooks with the same ID are about the same event.
fn assert_one_name_each(merchant: &Merchant) {
    let mut named = HashMap::new();
    for webhook in merchant.received() {
        let mut event = webhook.event.clone();
        event.as_object_mut().unwrap().remove("timestamp");
        let first = named.entry(webhook.id.clone()).or_insert_with(|| event.clone());
        assert_eq!(*first, event, "{} names two events", webhook.id);
    }
}

/// Saves both files of the data folder, while no process runs.
fn save(shop: &Shop, name: &str) {
    fs::create_dir(shop.path(name)).unwrap();
    for file in ["log.sqlite", "tables.sqlite"] {
        fs::copy(shop.path("data").join(file), shop.path(name).join(file)).unwrap();
    }
}

fn put(shop: &Shop, file: &str, from: &str) {
    for beside in ["-wal", "-shm"].map(|end| format!("{file}{end}")) {
        // The file is usually missing.
        drop(fs::remove_file(shop.path("data").join(beside)));
    }
    fs::copy(shop.path(from).join(file), shop.path("data").join(file)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_do_not_belong_together_are_refused() {
    let shop = Shop::open().await;
    let tidemark = shop.start().await;
    shop.order(&tidemark.client(), "A-1").await;
    assert!(tidemark.stop().await.success());
    save(&shop, "old");
    let tidemark = shop.start().await;
    shop.order(&tidemark.client(), "B-1").await;
    assert!(tidemark.stop().await.success());
    save(&shop, "new");

    put(&shop, "log.sqlite", "old");
    let text = shop.exits(&["run"], 1);
    assert!(text.contains("the log is older than the tables"), "{text}");
    assert!(text.contains("`tidemark restore`"), "{text}");
    // A rebuild is refused, too: it would keep the rows that are newer than the log.
    shop.exits(&["tables", "rebuild"], 1);

    put(&shop, "log.sqlite", "new");
    put(&shop, "tables.sqlite", "old");
    let text = shop.exits(&["run"], 1);
    assert!(text.contains("the tables lack rows"), "{text}");
    assert!(text.contains("run `tidemark tables rebuild`"), "{text}");
    fs::remove_file(shop.path("data").join("tables.sqlite")).unwrap();
    let text = shop.exits(&["run"], 1);
    assert!(text.contains("the tables lack rows"), "{text}");
    shop.exits(&["tables", "rebuild"], 0);
    let tidemark = shop.start().await;
    let orders = tidemark.client().admin("/orders").await.unwrap();
    assert_eq!(orders.as_array().unwrap().len(), 2, "{orders}");
    assert!(tidemark.stop().await.success());

    let other = Shop::open().await;
    assert!(other.start().await.stop().await.success());
    fs::copy(other.path("data/tables.sqlite"), shop.path("data/tables.sqlite")).unwrap();
    let text = shop.exits(&["run"], 1);
    assert!(text.contains("the tables are those of another installation"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_backup_of_this_shop_is_refused() {
    let shop = Shop::open().await;
    assert!(shop.start().await.stop().await.success());
    let other = Shop::open().await;
    assert!(other.start().await.stop().await.success());
    let foreign = other.path("backup");
    other.exits(&["backup", foreign.to_str().unwrap()], 0);
    let refused = shop.exits(&["restore", foreign.to_str().unwrap()], 1);
    assert!(refused.contains("has another installation"), "{refused}");

    let data = shop.path("data");
    let refused = shop.exits(&["restore", data.to_str().unwrap()], 1);
    assert!(refused.contains("is no backup"), "{refused}");

    let own = shop.path("own");
    shop.exits(&["backup", own.to_str().unwrap()], 0);
    let tables = own.join("tables.sqlite");
    let mut bytes = fs::read(&tables).unwrap();
    bytes[4096..8192].fill(0xff);
    fs::write(&tables, bytes).unwrap();
    shop.exits(&["restore", own.to_str().unwrap()], 1);
    // No file of the damaged backup was installed.
    assert!(shop.start().await.stop().await.success());
    fs::create_dir(shop.path("data/restore.part")).unwrap();
    assert!(shop.exits(&["run"], 1).contains("run `tidemark restore` again"));
    // A restore that fails after it leaves the refusal, because the old files may be aside.
    let kept = shop.path("kept");
    shop.exits(&["backup", kept.to_str().unwrap()], 0);
    let in_the_way = shop.path("data/restore.part/log.sqlite");
    fs::create_dir(&in_the_way).unwrap();
    shop.exits(&["restore", kept.to_str().unwrap()], 1);
    assert!(in_the_way.exists());
    fs::remove_dir(in_the_way).unwrap();
    fs::remove_dir(shop.path("data/restore.part")).unwrap();
    assert!(shop.start().await.stop().await.success());
}
