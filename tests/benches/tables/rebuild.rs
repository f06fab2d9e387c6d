//! Tables that are made again from a log that has what a shop's topics carry: in use, with readers who know what they must
//! get, and out of nothing; both are compared with the live ones row by row, write times included.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, Offset};
use runtime::SystemClock;
use schemas::OrderStatus;
use schemas::record::Order;
use store::cql::{CqlStore, migrate};
use store::embedded::EmbeddedStore;
use store::{OrderFilter, Page, Store};
use testkit::measure::rate;
use testkit::tables::cql;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::shop::{LAYOUT, Shop, Volume};
use crate::{Tables, load};

/// Records of one write to the log.
const BATCH: usize = 10_000;
/// Interval at which readers query while tables are rebuilt.
const ASK_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn run(tables: &Tables, volume: Volume) {
    let dir = tempfile::tempdir().expect("a folder");
    let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).expect("a log");
    let records = write_log(&log, volume).await;
    println!(
        "  {}, rebuild: {} orders, {} transfers, {records} records on the embedded log; load {}",
        tables.name,
        volume.orders,
        volume.transfers,
        load()
    );
    let begun = Instant::now();
    let rows = live(&log, tables.store.clone()).await;
    print("live, in the order of the log", rows, records, begun);

    let (stop, expected) = (CancellationToken::new(), answers(&*tables.store).await);
    let readers = tokio::spawn(read(tables.store.clone(), expected, stop.clone()));
    let begun = Instant::now();
    let rows = rebuild(&log, tables.store.clone()).await;
    print("made again in use", rows, records, begun);
    stop.cancel();
    let (asked, wrong) = readers.await.expect("a reader");
    println!("    {wrong} of {asked} answers were wrong meanwhile");

    let begun = Instant::now();
    let different = match &tables.cql {
        Some((_, node)) => {
            let config = cql::config(vec![node.address()], "again".to_owned());
            migrate(&config).await.expect("a schema");
            let again = Arc::new(CqlStore::open(&config).await.expect("tables"));
            let rows = rebuild(&log, again).await;
            print("made again out of nothing", rows, records, begun);
            cql::differences(&node.address(), ["bench", "again"]).await
        }
        None => {
            let again = tempfile::tempdir().expect("a folder");
            let store = Arc::new(EmbeddedStore::open(again.path()).expect("tables"));
            let rows = rebuild(&log, store).await;
            print("made again out of nothing", rows, records, begun);
            compare_files([tables.dir.path(), again.path()])
        }
    };
    println!("    {different} rows or pages are not the same, byte for byte");
}

fn print(what: &str, rows: u64, records: usize, begun: Instant) {
    let time = begun.elapsed();
    let rows = usize::try_from(rows).expect("small");
    println!(
        "    {what}: {rows} rows in {:.1} s: {} rows a second, {} records a second",
        time.as_secs_f64(),
        rate(rows, time),
        rate(records, time)
    );
}

/// Writes all that happens until there are as many orders; the number of records.
async fn write_log(log: &EmbeddedLog, volume: Volume) -> usize {
    let (mut shop, mut records, mut count) = (Shop::in_the_past(volume), Vec::new(), 0_usize);
    while shop.orders() < volume.orders {
        shop.advance(&mut records);
        if records.len() >= BATCH || shop.orders() == volume.orders {
            let written = records.drain(..).map(|record| {
                count += 1;
                // Compaction keeps the last record of each key, and the shop's have none.
                let key = count.to_string().into_bytes();
                let (value, headers) = (record.value.clone(), record.headers.clone());
                NewRecord { to: record.from, key, value, headers }
            });
            log.produce(written.collect()).await.expect("it is written");
        }
    }
    count
}

/// Applies the log with the projector, without its group; returns the number of rows.
async fn live(log: &EmbeddedLog, store: Arc<dyn Store>) -> u64 {
    let (log, handle) = (log.clone(), Handle::current());
    let work = move || {
        let partitions = projector::TOPICS.into_iter().flat_map(|topic| {
            let of = topic.all_partitions(&LAYOUT);
            of.map(move |partition| log::TopicPartition { topic, partition })
        });
        let from = partitions.map(|of| (of, Offset(0))).collect();
        let mut rows = 0;
        let report = &mut |at: projector::Followed| {
            rows = at.rows;
            if at.has_everything { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        projector::follow(&log, &*store, &handle, from, report).expect("it is applied");
        rows
    };
    tokio::task::spawn_blocking(work).await.expect("it ends")
}

async fn rebuild(log: &EmbeddedLog, store: Arc<dyn Store>) -> u64 {
    let (log, handle) = (log.clone(), Handle::current());
    let work = move || {
        let report = &mut |_| ControlFlow::Continue(());
        projector::rebuild(&log, &*store, &handle, report).expect("it is made").expect("it ends")
    };
    tokio::task::spawn_blocking(work).await.expect("it ends").rows
}

/// The first page of the orders of each status.
async fn answers(store: &dyn Store) -> Vec<Vec<Order>> {
    let mut answers = Vec::new();
    for status in std::iter::once(None).chain(OrderStatus::ALL.iter().copied().map(Some)) {
        let filter = OrderFilter { status, ..OrderFilter::default() };
        let page = store.orders(filter, Page { limit: 20, offset: 0 }).await.expect("a page");
        answers.push(page.into_iter().map(|row| row.order).collect());
    }
    answers
}

/// Queries until stopped; returns the number of queries and of unexpected answers.
async fn read(
    store: Arc<dyn Store>,
    expected: Vec<Vec<Order>>,
    stop: CancellationToken,
) -> (usize, usize) {
    let (mut asked, mut wrong) = (0, 0);
    let mut clock = tokio::time::interval(ASK_EVERY);
    while stop.run_until_cancelled(clock.tick()).await.is_some() {
        let found = answers(&*store).await;
        asked += expected.len();
        wrong += found.iter().zip(&expected).filter(|(found, expected)| found != expected).count();
    }
    (asked, wrong)
}

/// The rows of which the files have different ones.
fn compare_files(dirs: [&Path; 2]) -> usize {
    let open = |dir: &Path| {
        rusqlite::Connection::open(dir.join("tables.sqlite")).expect("a file of tables")
    };
    let files = dirs.map(open);
    let mut different = 0;
    for table in ["orders", "deposits", "transfers", "attempts", "chains"] {
        let query = format!("SELECT * FROM {table} ORDER BY 1, 2, 3");
        let mut statements = files.each_ref().map(|file| file.prepare(&query).expect("a query"));
        let columns = statements[0].column_count();
        let mut rows = statements.each_mut().map(|statement| statement.query([]).expect("rows"));
        loop {
            let pair = rows.each_mut().map(|rows| {
                let row = rows.next().expect("a row")?;
                let value = |column| row.get::<_, rusqlite::types::Value>(column).expect("a value");
                Some((0..columns).map(value).collect::<Vec<_>>())
            });
            match pair {
                [None, None] => break,
                [one, other] => different += usize::from(one != other),
            }
        }
    }
    different
}
