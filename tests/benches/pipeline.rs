//! The embedded pipeline in one process: transfers a second from the raw topic to visible rows.

use std::sync::Arc;
use std::time::Instant;

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, StageContext};
use runtime::{Clock, ManualClock};
use schemas::{Layout, TransferStatus};
use store::embedded::EmbeddedStore;
use store::{DepositFilter, Page, Store, TransferFilter};
use testkit::measure::{TIME, create, head, rate, raw, request, transfer, wallet, watch};
use tokio_util::sync::CancellationToken;

const TRANSFERS: usize = 50_000;
/// Transfers in a block.
const BLOCK: usize = 500;
const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };

/// Waits until a list shows `count` rows, by asking for a row at `count - 1`.
async fn until_listed(store: &dyn Store, what: &str, count: usize) {
    let last = Page { limit: 1, offset: u32::try_from(count - 1).unwrap() };
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let rows = match what {
            "deposits" => store.deposits(DepositFilter::default(), last).await.unwrap().len(),
            _ => {
                let status = Some(TransferStatus::Matched);
                let filter = TransferFilter { status, ..TransferFilter::default() };
                store.transfers(wallet(), filter, last).await.unwrap().len()
            }
        };
        if rows > 0 {
            return;
        }
    }
}

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    // The clock does not move, so no order is ended by its timer.
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(TIME.micros()));
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(dir.path(), LAYOUT, clock.clone()).unwrap());
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
    let stop = CancellationToken::new();
    let mut threads = Vec::new();
    let context = StageContext {
        log: log.clone(),
        clock: clock.clone(),
        member: "bench".to_owned(),
        handle: tokio::runtime::Handle::current(),
        stop: stop.clone(),
    };
    for run in [processor::run_orders, processor::run_matching] {
        let context = context.clone();
        threads.push(std::thread::spawn(move || run(&context).unwrap()));
    }
    {
        let store = store.clone();
        threads.push(std::thread::spawn(move || {
            projector::run(store, None, projector::Level::DEBUG, &context).unwrap()
        }));
    }

    log.produce(vec![raw(&watch(0), &LAYOUT), raw(&head(0), &LAYOUT)]).await.unwrap();
    let started = Instant::now();
    for chunk in (0..TRANSFERS).collect::<Vec<_>>().chunks(2000) {
        let create = |number: &usize| create(*number, TIME.micros(), Some(request()), &LAYOUT);
        log.produce(chunk.iter().map(create).collect()).await.unwrap();
    }
    until_listed(&*store, "deposits", TRANSFERS).await;
    let opened = started.elapsed();

    let started = Instant::now();
    let numbers: Vec<usize> = (0..TRANSFERS).collect();
    for (height, chunk) in numbers.chunks(BLOCK).enumerate() {
        let mut records: Vec<NewRecord> =
            chunk.iter().map(|number| raw(&transfer(*number, height + 1), &LAYOUT)).collect();
        records.push(raw(&head(height + 1), &LAYOUT));
        log.produce(records).await.unwrap();
    }
    until_listed(&*store, "transfers", TRANSFERS).await;
    let time = started.elapsed();
    stop.cancel();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("embedded pipeline, one process, every stage but HTTP and webhooks");
    println!(
        "  creates a second, command to open deposit row {}   ({TRANSFERS} orders)",
        rate(TRANSFERS, opened)
    );
    println!(
        "  transfers a second, raw topic to matched row  {}   (aim 20000; {TRANSFERS} transfers)",
        rate(TRANSFERS, time)
    );
}
