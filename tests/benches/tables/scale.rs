//! A million orders go through `pending` within one run, while readers ask each list once a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::Store;
use testkit::Dice;
use testkit::measure::{rate, resident_bytes};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::feed::{Progress, project};
use crate::lists::{List, Times};
use crate::shop::{Shop, Volume};
use crate::short::{idle, print_rate, print_times, with_times};
use crate::{Tables, check};

/// Interval at which each list is read.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which one of the deep pages is read, each in its turn.
const DEEP_EVERY: Duration = Duration::from_secs(5);
const REPORT_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn run(tables: &Tables, volume: Volume) {
    println!(
        "  {}, scale: {} orders, {} transfers of one wallet, about {} orders pending at any moment",
        tables.name, volume.orders, volume.transfers, volume.pending
    );
    let (progress, stop) = (Progress::begin(), CancellationToken::new());
    let mut readers = JoinSet::new();
    let lists = List::all();
    let count = u32::try_from(lists.len()).expect("few");
    for (number, list) in (0..).zip(lists) {
        let (store, progress, stop) = (tables.store.clone(), progress.clone(), stop.clone());
        let shift = ASK_EVERY * number / count;
        readers.spawn(ask(store, list, shift, progress, stop));
    }
    let deep = tokio::spawn(ask_deep(tables.store.clone(), stop.clone()));
    let reports = tokio::spawn(report(progress.clone(), stop.clone()));
    let before = tables.requests();
    let shop = Shop::new(volume);
    let shop = project(tables.store.clone(), shop, volume.orders, progress.clone()).await;
    stop.cancel();
    reports.await.expect("reports");
    print_rate("projector and readers", tables, &progress, before, None);
    let mut lists = readers.join_all().await;
    lists.sort_by_key(|(number, _, _)| *number);
    for (_, list, times) in lists {
        print_times("beside", &list, &times, "   (aim 200 at p99)");
    }
    for (list, times) in deep.await.expect("a reader") {
        print_times("beside", &list, &times, "");
    }
    println!("    tombstones in the server's log (aim none): {}", tables.tombstone_warnings());
    check::run(&*tables.store, &shop.truth).await;
    idle(tables, volume.orders).await;
    println!("    tombstones in the log with what followed: {}", tables.tombstone_warnings());
}

/// Asks for a list once a second, and says which of them it was: the one that began after `shift`.
async fn ask(
    store: Arc<dyn Store>,
    list: List,
    shift: Duration,
    progress: Arc<Progress>,
    stop: CancellationToken,
) -> (Duration, List, Times) {
    let (mut times, mut dice) = (Times::default(), Dice(9));
    let mut clock = tokio::time::interval_at((Instant::now() + shift).into(), ASK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(clock.tick()).await.is_some() {
        let orders = progress.orders();
        if orders > 0 {
            times.measure(&list, &*store, dice.below(orders)).await;
        }
    }
    (shift, list, times)
}

/// The deepest page that each list has by then.
async fn ask_deep(store: Arc<dyn Store>, stop: CancellationToken) -> Vec<(List, Times)> {
    let mut all: Vec<(List, Times)> = Vec::new();
    let mut clock = tokio::time::interval(DEEP_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.is_cancelled() {
        for list in List::deep_of_growing(&*store).await {
            if stop.run_until_cancelled(clock.tick()).await.is_none() {
                break;
            }
            let known = all.iter().position(|(one, _)| one.name == list.name);
            let position = known.unwrap_or(all.len());
            if known.is_none() {
                all.push(with_times(list.clone()));
            }
            all[position].1.measure(&list, &*store, 0).await;
        }
        stop.run_until_cancelled(clock.tick()).await;
    }
    all
}

/// Prints what was done in each minute.
async fn report(progress: Arc<Progress>, stop: CancellationToken) {
    let mut clock = tokio::time::interval(REPORT_EVERY);
    clock.tick().await;
    let (mut rows, mut since) = (0, Instant::now());
    while stop.run_until_cancelled(clock.tick()).await.is_some() {
        let more = usize::try_from(progress.rows() - rows).expect("small");
        println!(
            "    {} orders, {} rows a second, {} MiB resident, load {}",
            progress.orders(),
            rate(more, since.elapsed()),
            resident_bytes(std::process::id()) >> 20,
            crate::load()
        );
        (rows, since) = (progress.rows(), Instant::now());
    }
}
