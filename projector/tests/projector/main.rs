//! The projector on the embedded log and tables: from records to rows.

#![expect(clippy::unwrap_used, reason = "this file is tests from end to end")]

mod rebuild;
mod shop;
mod verify;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use schemas::record::{self, Order, example};
use schemas::{OrderId, OrderStatus, Topic, TransferStatus};
use store::embedded::EmbeddedStore;
use store::{Change, DepositFilter, OrderFilter, Store, TransferFilter};

use crate::shop::{ALL, Mood, Noted, Shop, history, order, wrap};

#[test]
fn records_become_rows() {
    let shop = Shop::new();
    let projector = shop.project();
    shop.produce(history());
    let count = |list: &OrderFilter| {
        shop.runtime.block_on(shop.store.orders(list.clone(), ALL)).unwrap().len()
    };
    let paid = OrderFilter { status: Some(OrderStatus::Paid), ..OrderFilter::default() };
    shop.until("all orders are there", || count(&OrderFilter::default()) == 41);
    shop.until("half of them are paid", || count(&paid) == 20);
    let wallet = example::transfer().observation.to_address;
    let filter = TransferFilter { status: Some(TransferStatus::Matched), ..Default::default() };
    let transfers = || shop.runtime.block_on(shop.store.transfers(wallet, filter, ALL)).unwrap();
    shop.until("all transfers are matched", || transfers().len() == 40);
    shop.until("the attempt is counted", || shop.order().unwrap().webhook_retry_count == 1);
    let deposits =
        || shop.runtime.block_on(shop.store.deposits(DepositFilter::default(), ALL)).unwrap();
    shop.until("closed deposits are gone", || deposits().len() == 20);
    let scanned = Some(example::chain_progress().updated_at.seconds());
    shop.until("the chain is there", || deposits()[0].last_scanned_at == scanned);
    projector.stop().unwrap();
    assert_eq!(shop.letters(), []);
}

#[test]
fn unreadable_record_becomes_a_dead_letter() {
    let shop = Shop::new();
    let mut garbage = wrap(Topic::Orders, 1, &example::order());
    garbage.value = Some(b"garbage".to_vec());
    let mut empty = wrap(Topic::Deposits, 1, &example::deposit());
    empty.value = None;
    let good = wrap(Topic::Orders, 1, &example::order());
    shop.produce(vec![garbage, empty, good]);
    let projector = shop.project();
    shop.until("the order behind it is there", || shop.order().is_some());
    shop.until("both letters are there", || shop.letters().len() == 2);
    projector.stop().unwrap();
    let mut letters: Vec<record::DeadLetter> = shop
        .letters()
        .iter()
        .map(|letter| schemas::decode(letter.value.as_deref().unwrap()).unwrap())
        .collect();
    letters.sort_by(|a, b| a.topic.cmp(&b.topic));
    assert_eq!(letters[0].topic, "deposits");
    assert_eq!(letters[0].reason, "the record has no value");
    assert_eq!((letters[1].topic.as_str(), letters[1].partition, letters[1].offset), {
        ("orders", 1, 0)
    });
    assert_eq!(letters[1].value, b"garbage");
    assert_eq!(letters[1].group, tidemark_projector::GROUP);
    // Their offsets were committed with them: a restart does not write them again.
    let next = Order { order_id: OrderId(uuid::Uuid::from_u128(9)), ..example::order() };
    shop.produce(vec![wrap(Topic::Orders, 1, &next)]);
    let projector = shop.project();
    let found = || shop.runtime.block_on(shop.store.order(next.order_id)).unwrap();
    shop.until("the next order is there", || found().is_some());
    projector.stop().unwrap();
    assert_eq!(shop.letters().len(), 2);
}

/// Without a stop the missing row would stay unnoticed.
#[test]
fn a_record_of_a_newer_version_stops_it() {
    let shop = Shop::new();
    let mut newer = wrap(Topic::Orders, 1, &example::order());
    newer.value.as_mut().unwrap()[4] ^= 0xff; // the last byte of the schema's id
    shop.produce(vec![newer, wrap(Topic::Orders, 1, &example::order())]);
    let ends = [shop.project().thread.join().unwrap(), shop.rebuild(&shop.store).map(drop)];
    for end in ends {
        let Err(tidemark_projector::Error::Newer(newer)) = end else { panic!("{end:?}") };
        assert_eq!(newer.at, "orders/1@0");
    }
    assert_eq!((shop.letters().len(), shop.order()), (0, None));
}

#[test]
fn a_restart_continues_where_the_last_run_stopped() {
    let shop = Shop::new();
    shop.produce((0..5).map(|n| wrap(Topic::Orders, 0, &order(n, 1, OrderStatus::Paid))).collect());
    let first = Noted::new(Mood::Works);
    let projector = shop.project_noted(&first);
    shop.until("five orders are written", || first.applied() == 5);
    projector.stop().unwrap();
    shop.produce(vec![wrap(Topic::Orders, 0, &order(5, 1, OrderStatus::Paid))]);
    let second = Noted::new(Mood::Works);
    let projector = shop.project_noted(&second);
    shop.until("the sixth is written", || second.applied() > 0);
    projector.stop().unwrap();
    let expected = [Change::Order(order(5, 1, OrderStatus::Paid))];
    assert_eq!(*second.applied.lock().unwrap(), expected);
}

#[test]
fn without_tables_nothing_is_committed() {
    let shop = Shop::new();
    shop.produce(vec![wrap(Topic::Orders, 0, &example::order())]);
    let away = Noted::new(Mood::Unavailable);
    let projector = shop.project_noted(&away);
    shop.until("it was tried three times", || away.refused.load(Ordering::SeqCst) >= 3);
    let begun = Instant::now();
    projector.stop().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(120), "stop took {:?}", begun.elapsed());
    let projector = shop.project();
    shop.until("another run writes the order", || shop.order().is_some());
    projector.stop().unwrap();
}

#[test]
fn when_the_tables_come_back_nothing_is_missing() {
    let shop = Shop::new();
    shop.produce(vec![wrap(Topic::Orders, 0, &example::order())]);
    let store = Noted::new(Mood::Unavailable);
    let projector = shop.project_noted(&store);
    shop.until("it was refused", || store.refused.load(Ordering::SeqCst) > 0);
    shop.produce(history());
    *store.mood.lock().unwrap() = Mood::Works;
    let count = || shop.runtime.block_on(shop.store.orders(OrderFilter::default(), ALL)).unwrap();
    shop.until("all orders are there", || count().len() == 41);
    projector.stop().unwrap();
}

/// The tables are reset to an earlier flush, as by a power cut: the rows that were only applied since then are written
/// again.
#[test]
fn rows_that_a_power_cut_takes_back_are_written_again() {
    let mut shop = Shop::new();
    let noted = Noted::new(Mood::Works);
    let projector = shop.project_noted(&noted);
    let rest = {
        let mut first = history();
        let rest = first.split_off(100);
        shop.produce(first);
        rest
    };
    shop.until("the first are flushed", || noted.flushed.load(Ordering::SeqCst) > 0);
    projector.stop().unwrap();
    let cut = shop.dir.path().join("cut");
    std::fs::create_dir(&cut).unwrap();
    for file in ["tables.sqlite", "tables.sqlite-wal"] {
        std::fs::copy(shop.dir.path().join("tables").join(file), cut.join(file)).unwrap();
    }

    noted.is_disk_away.store(true, Ordering::SeqCst);
    let projector = shop.project_noted(&noted);
    shop.produce(rest);
    shop.until("a flush of the rest was refused", || noted.refused.load(Ordering::SeqCst) > 0);
    let again = EmbeddedStore::open(&shop.dir.path().join("again")).unwrap();
    shop.rebuild(&again).unwrap();
    let made = shop.rows(&again);
    shop.until("all rows are there", || shop.rows(&shop.store) == made);
    projector.stop().unwrap();

    shop.store = EmbeddedStore::open(&cut).unwrap();
    assert_ne!(shop.rows(&shop.store), made);
    let projector = shop.project();
    shop.until("all rows are there again", || shop.rows(&shop.store) == made);
    projector.stop().unwrap();
}

#[test]
fn tables_that_broke_stop_the_projector() {
    let shop = Shop::new();
    shop.produce(vec![wrap(Topic::Orders, 0, &example::order())]);
    let projector = shop.project_noted(&Noted::new(Mood::Broken));
    let error = projector.thread.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the tables failed, a retry would too: gone");
}
