//! Damages of the two embedded files: each is found by a command that names the cure, and is gone after it.

use rusqlite::Connection;

use super::backup::Shop;

/// Changes a data file by SQL.
fn by_hand(shop: &Shop, file: &str, sql: &str) {
    Connection::open(shop.path("data").join(file)).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_table_is_made_again() {
    let shop = Shop::open().await;
    let tidemark = shop.start().await;
    let (order, _) = shop.order(&tidemark.client(), "A-1").await;
    assert!(tidemark.stop().await.success());
    shop.exits(&["tables", "verify"], 0);
    by_hand(&shop, "tables.sqlite", "DROP TABLE orders; DROP TABLE chains");
    let cure = "tables.sqlite lacks chains, orders, which somebody dropped: stop every process, and run \
                `tidemark tables rebuild`";
    for arguments in [&["tables", "verify"][..], &["status"], &["run"]] {
        let said = shop.exits(arguments, 1);
        assert!(said.contains(cure), "{arguments:?}: {said}");
    }
    let printed = shop.exits(&["tables", "rebuild"], 0);
    assert!(printed.contains("created table orders, which the old tables lacked"), "{printed}");
    shop.exits(&["tables", "verify"], 0);
    let tidemark = shop.start().await;
    tidemark.client().order_with_status(&order, "pending").await;
    assert!(tidemark.stop().await.success());
}

/// The embedded log has no tool that changes positions of groups, so the test changes them by SQL.
#[tokio::test(flavor = "multi_thread")]
async fn positions_changed_by_hand_are_refused() {
    let shop = Shop::open().await;
    let tidemark = shop.start().await;
    let (order, _) = shop.order(&tidemark.client(), "A-1").await;
    let backup = shop.path("backup");
    let backup = backup.to_str().unwrap();
    shop.exits(&["backup", backup], 0);
    assert!(tidemark.stop().await.success());
    for (sql, words) in [
        (
            "UPDATE offsets SET next_offset = 0 WHERE grp = 'processor.orders'",
            "is damaged: its checksum does not match; restore the file from a backup",
        ),
        (
            "DELETE FROM offsets WHERE grp = 'processor.orders'",
            "Somebody has deleted it: what the state has taken would be taken again",
        ),
    ] {
        by_hand(&shop, "log.sqlite", sql);
        let said = shop.exits(&["run"], 1);
        assert!(said.contains(words) && said.contains("`tidemark restore`"), "{said}");
        shop.exits(&["restore", backup], 0);
        let tidemark = shop.start().await;
        tidemark.client().order_with_status(&order, "pending").await;
        assert!(tidemark.stop().await.success());
    }
}
