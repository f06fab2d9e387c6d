//! The projector alone, reads alone, and both together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::Dice;
use testkit::measure::{percent, rate};

use crate::feed::{Progress, project};
use crate::lists::{List, Times};
use crate::shop::{Shop, Volume};
use crate::{Tables, ceiling};

/// Rows of each ceiling, and of what is not counted before it: Java compiles what it runs often.
const CEILING_ROWS: usize = 200_000;
const WARM_UP_ROWS: usize = 100_000;
/// Numbers of concurrent requests: as many as the store has when it writes, and more.
const AT_ONCE: [usize; 2] = [64, 256];
/// Number of reads of each list: of its first page, and of its deepest one.
const ASKED: usize = 200;
const ASKED_DEEP: usize = 20;
/// Requests that a list of 20 may take.
const REQUESTS_AIM: u64 = 35;

pub(crate) async fn run(tables: &Tables, volume: Volume) {
    let ceiling = ceilings(tables).await;
    let shop = Shop::new(volume);
    println!(
        "  {}: {} orders, {} transfers, about {} orders pending at any moment; then as many again",
        tables.name, volume.orders, volume.transfers, volume.pending
    );
    let progress = Progress::begin();
    let before = tables.requests();
    let shop = project(tables.store.clone(), shop, volume.orders, progress.clone()).await;
    print_rate("projector alone", tables, &progress, before, Some(ceiling));
    idle(tables, volume.orders).await;
    let _shop = beside(tables, shop, 2 * volume.orders).await;
}

/// Prints the ceilings, and returns the highest.
async fn ceilings(tables: &Tables) -> u64 {
    let rows = CEILING_ROWS * percent() / 100;
    let Some((_, node)) = &tables.cql else {
        let ceiling = ceiling::sqlite(tables.dir.path(), rows);
        println!("  ceiling: {ceiling} plain rows a second into SQLite, 4096 in a transaction");
        return ceiling;
    };
    ceiling::cassandra(&node.address(), "warm", WARM_UP_ROWS * percent() / 100, 64).await;
    let mut highest = 0;
    for at_once in AT_ONCE {
        let name = format!("ceiling_{at_once}");
        let ceiling = ceiling::cassandra(&node.address(), &name, rows, at_once).await;
        println!("  ceiling: {ceiling} plain inserts a second into Cassandra, {at_once} under way");
        highest = highest.max(ceiling);
    }
    highest
}

/// Prints what the projector did.
pub(crate) fn print_rate(
    what: &str,
    tables: &Tables,
    progress: &Progress,
    requests: Option<u64>,
    ceiling: Option<u64>,
) {
    let (rows, records, time) = (progress.rows(), progress.records(), progress.time());
    let count = |number: u64| usize::try_from(number).expect("small");
    let hundredths = |part: u64| part * 100 / rows.max(1);
    let rate_of_rows = rate(count(rows), time);
    let mut more = String::new();
    if let (Some(before), Some(after)) = (requests, tables.requests()) {
        let each = hundredths(after - before);
        more += &format!(", {}.{:02} requests a row", each / 100, each % 100);
    }
    if let Some(ceiling) = ceiling {
        more += &format!(", {} % of the ceiling", rate_of_rows * 100 / ceiling.max(1));
    }
    println!(
        "  {what}: {rate_of_rows} rows a second of {} records a second{more}   (aim 12000 on CQL; {rows} rows)",
        rate(count(records), time)
    );
}

/// Every list, one after the other, while nothing else happens.
pub(crate) async fn idle(tables: &Tables, orders: usize) {
    let deep = List::deep(&*tables.store).await;
    let mut dice = Dice(7);
    let asked = List::all().into_iter().map(|list| (list, ASKED));
    for (list, count) in asked.chain(deep.into_iter().map(|list| (list, ASKED_DEEP))) {
        let mut times = Times::default();
        let before = tables.requests();
        for _ in 0..count {
            times.measure(&list, &*tables.store, dice.below(orders)).await;
        }
        let requests = tables.requests().zip(before).map(|(after, before)| {
            let aim = if list.offset > 0 {
                String::new()
            } else if list.name == "status" {
                " (aim 1)".to_owned()
            } else {
                format!(" (aim {REQUESTS_AIM})")
            };
            let tenths = (after - before) * 10 / count as u64;
            format!("; {}.{} requests{aim}", tenths / 10, tenths % 10)
        });
        print_times("idle", &list, &times, &requests.unwrap_or_default());
    }
}

pub(crate) fn print_times(when: &str, list: &List, times: &Times, more: &str) {
    println!("    {when:<6} {:<44} {}{more}", list.name, times.text());
}

/// The projector at full rate, and one reader that asks for one list after the other.
async fn beside(tables: &Tables, shop: Shop, orders: usize) -> Shop {
    let (progress, ended) = (Progress::begin(), Arc::new(AtomicBool::new(false)));
    let (store, followed, is_over) = (tables.store.clone(), progress.clone(), ended.clone());
    let known = shop.orders();
    let deep = List::deep_of_growing(&*tables.store).await;
    let reader = tokio::spawn(async move {
        let mut lists: Vec<_> = List::all().into_iter().chain(deep).map(with_times).collect();
        let (mut dice, mut turn) = (Dice(8), 0_usize);
        while !is_over.load(Ordering::Relaxed) {
            for (list, times) in &mut lists {
                // Deep pages are rare.
                if list.offset == 0 || turn.is_multiple_of(8) {
                    let number = dice.below(known.max(followed.orders()));
                    times.measure(list, &*store, number).await;
                }
            }
            turn += 1;
        }
        lists
    });
    let before = tables.requests();
    let shop = project(tables.store.clone(), shop, orders, progress.clone()).await;
    ended.store(true, Ordering::Relaxed);
    let lists = reader.await.expect("a reader");
    print_rate("projector beside a reader", tables, &progress, before, None);
    for (list, times) in lists {
        print_times("beside", &list, &times, "");
    }
    shop
}

pub(crate) fn with_times(list: List) -> (List, Times) {
    (list, Times::default())
}
