//! Tables that are made again from the log.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use log::{Log, TopicPartition};
use schemas::record::example;
use schemas::{Partition, Topic};
use store::embedded::EmbeddedStore;
use store::{Change, LayeredStore, Position, Store};

use crate::shop::{Mood, Noted, Noting, Shop, change, history, wrap};

#[test]
fn tables_made_again_from_the_log_are_the_same() {
    let shop = Shop::new();
    let watched = Noted::new(Mood::Works);
    let projector = shop.project_noted(&watched);
    for part in history().chunks(10) {
        shop.produce(part.to_vec());
    }
    let mut garbage = wrap(Topic::Orders, 1, &example::order());
    garbage.value = Some(b"garbage".to_vec());
    shop.produce(vec![garbage]);
    shop.until("everything is read", || shop.letters().len() == 1);
    let again = EmbeddedStore::open(&shop.dir.path().join("again")).unwrap();
    let rebuild = || shop.rebuild(&again).unwrap();
    rebuild();
    let made = shop.rows(&again);
    shop.until("the projector is done", || shop.rows(&shop.store) == made);
    rebuild();
    assert_eq!(shop.rows(&again), made, "and once more");
    projector.stop().unwrap();
}

/// An older version could restore what a later one deleted: on CQL, once its tombstone is dropped.
#[test]
fn rebuild_writes_only_the_newest_of_each_row() {
    let shop = Shop::new();
    shop.produce([history(), history()].concat());
    let noted = Noted::new(Mood::Works);
    let made = LayeredStore::new(Arc::new(shop.store.clone()), Noting(noted.clone()));
    let rebuilt = shop.rebuild(&made).unwrap();
    let written = noted.applied.lock().unwrap().clone();
    let history: Vec<Change> = history().iter().map(change).collect();
    let mut newest = store::coalesce(history);
    // The attempt is twice on the log. Attempts have no versions, so both records are written.
    newest.push(Change::Attempt(example::attempt()));
    let sorted = |changes: Vec<Change>| {
        let mut texts: Vec<_> = changes.iter().map(|change| format!("{change:?}")).collect();
        texts.sort();
        texts
    };
    assert_eq!(rebuilt.rows, written.len() as u64);
    assert_eq!(sorted(written), sorted(newest));
}

/// Pruned rows do not come back. Rows that were not final at the time of the pruning do.
#[test]
fn a_rebuild_leaves_out_what_was_pruned() {
    let shop = Shop::new();
    shop.produce(history());
    let newest = store::coalesce(history().iter().map(change).collect());
    let mut times: Vec<_> = newest.iter().map(|change| change.written_at().seconds()).collect();
    times.sort();
    let pruned = times[times.len() / 2].plus(1);
    let (removed, left): (Vec<_>, Vec<_>) =
        newest.into_iter().partition(|change| change.was_final_before(pruned));
    assert!(!removed.is_empty() && !left.is_empty());
    shop.runtime.block_on(shop.store.set_pruned_before(pruned)).unwrap();
    shop.rebuild(&shop.store).unwrap();
    let expected = EmbeddedStore::open(&shop.dir.path().join("expected")).unwrap();
    shop.runtime.block_on(expected.apply(left)).unwrap();
    assert_eq!(shop.rows(&shop.store), shop.rows(&expected));
}

#[test]
fn interrupted_rebuild_ends_and_the_next_completes() {
    let shop = Shop::new();
    shop.produce(history());
    let interrupted = |calls_max: u32| {
        let mut calls = 0;
        let report = &mut |_| {
            calls += 1;
            if calls < calls_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let handle = shop.runtime.handle();
        tidemark_projector::rebuild(&shop.log, &shop.store, handle, report).unwrap()
    };
    for calls in 1..6 {
        assert_eq!(interrupted(calls), None);
    }
    shop.rebuild(&shop.store).unwrap();
    let made = shop.rows(&shop.store);
    let again = EmbeddedStore::open(&shop.dir.path().join("again")).unwrap();
    let mut last = tidemark_projector::Progress::default();
    let report = &mut |progress| {
        last = progress;
        ControlFlow::Continue(())
    };
    tidemark_projector::rebuild(&shop.log, &again, shop.runtime.handle(), report).unwrap();
    assert_eq!(shop.rows(&again), made);
    assert_eq!(last.read, last.of, "the progress ends where it said that it would");
}

/// New tables that were made from a part of the log and follow the rest; `meanwhile` is called between the two.
fn followed(shop: &Shop, meanwhile: impl FnOnce(&EmbeddedStore)) -> EmbeddedStore {
    let (first, rest) = (&history()[..100], &history()[100..]);
    shop.produce(first.to_vec());
    let new = EmbeddedStore::open(&shop.dir.path().join("new")).unwrap();
    let rebuilt = shop.rebuild(&new).unwrap();
    shop.produce(rest.to_vec());
    meanwhile(&new);
    let report = &mut |at: tidemark_projector::Followed| {
        if at.has_everything { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let handle = shop.runtime.handle();
    tidemark_projector::follow(&shop.log, &new, handle, rebuilt.ends, report).unwrap();
    new
}

/// New tables follow the log until all processes use them.
#[test]
fn tables_that_follow_the_log_miss_nothing() {
    let shop = Shop::new();
    let new = followed(&shop, |_| {});
    let all = EmbeddedStore::open(&shop.dir.path().join("all")).unwrap();
    shop.rebuild(&all).unwrap();
    assert_eq!(shop.rows(&new), shop.rows(&all));
}

/// A concurrent projector has read further: its positions stay.
#[test]
fn a_rebuild_takes_no_position_back() {
    let shop = Shop::new();
    let (first, rest) = (&history()[..100], &history()[100..]);
    shop.produce(first.to_vec());
    let tables = EmbeddedStore::open(&shop.dir.path().join("again")).unwrap();
    shop.rebuild(&tables).unwrap();
    let of = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
    let (handle, end) = (shop.runtime.handle(), || shop.log.bounds(of).unwrap().end);
    let before = end();
    let mut is_done = false;
    let beside = &mut |_| {
        if !std::mem::replace(&mut is_done, true) {
            shop.produce(rest.to_vec());
            let read = Position { topic: of.topic, partition: of.partition, next: end().0 };
            handle.block_on(tables.set_positions(&[read])).unwrap();
        }
        ControlFlow::Continue(())
    };
    tidemark_projector::rebuild(&shop.log, &tables, handle, beside).unwrap();
    let positions = handle.block_on(tables.positions()).unwrap();
    let found = positions.iter().find(|at| (at.topic, at.partition) == (of.topic, of.partition));
    assert!(before < end());
    assert_eq!(found.map(|at| at.next), Some(end().0));
}

/// Processes that use the new tables already have read further: their positions stay.
#[test]
fn tables_that_follow_take_no_position_back() {
    let shop = Shop::new();
    let of = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
    let further = || {
        let next = shop.log.bounds(of).unwrap().end.0 + 1;
        Position { topic: of.topic, partition: of.partition, next }
    };
    let handle = shop.runtime.handle();
    let new = followed(&shop, |new| handle.block_on(new.set_positions(&[further()])).unwrap());
    let positions = handle.block_on(new.positions()).unwrap();
    assert!(positions.contains(&further()), "{positions:?}");
}

/// A long rebuild does not start again because the tables were unavailable for a moment.
#[test]
fn a_rebuild_waits_for_tables_that_are_away() {
    let shop = Shop::new();
    shop.produce(history());
    let noted = Noted::new(Mood::Unavailable);
    let made = EmbeddedStore::open(&shop.dir.path().join("made")).unwrap();
    let away = LayeredStore::new(Arc::new(made.clone()), Noting(noted.clone()));
    std::thread::scope(|scope| {
        let rebuild = scope.spawn(|| shop.rebuild(&away));
        shop.until("it is refused", || noted.refused.load(Ordering::SeqCst) > 0);
        *noted.mood.lock().unwrap() = Mood::Works;
        assert_eq!(rebuild.join().unwrap().unwrap().records, history().len() as u64);
    });
    let projector = shop.project();
    let rows = shop.rows(&made);
    shop.until("the projector is done", || shop.rows(&shop.store) == rows);
    projector.stop().unwrap();
    *noted.mood.lock().unwrap() = Mood::Broken;
    shop.rebuild(&away).unwrap_err();
}
