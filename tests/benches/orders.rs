//! Years of a shop on the embedded log in minutes: orders are created, paid and forgotten, and memory, changelog and restart
//! stay as they are. `TIDEMARK_BENCH_PERCENT` gives fewer orders.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, Offset, StageContext, Tail, TopicPartition};
use runtime::{Clock, ManualClock};
use schemas::record::{Block, ChainBody, ChainRecord, PaymentRequest};
use schemas::{Layout, Topic};
use testkit::measure::{
    TIME, create, head, percent, rate, raw, request, resident_bytes, transfer, watch,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

const ORDERS: usize = 10_000_000;
/// Orders of one day of the shop.
const DAY_ORDERS: usize = 5_000;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Days between deletions of expired records: the log does so hourly, but not by this clock.
const MAINTAINED_DAYS: usize = 20;
const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };

struct Shop {
    log: EmbeddedLog,
    clock: Arc<ManualClock>,
    runtime: Handle,
    day: usize,
    orders: usize,
}

/// Both machines of the processor.
struct Processor {
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Processor {
    fn stop(self) {
        self.stop.cancel();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Shop {
    fn processor(&self) -> Processor {
        let context = StageContext {
            log: Arc::new(self.log.clone()),
            clock: self.clock.clone(),
            member: "bench".to_owned(),
            handle: self.runtime.clone(),
            stop: CancellationToken::new(),
        };
        let machines = [processor::run_orders, processor::run_matching];
        let threads = machines.map(|run| (run, context.clone()));
        let threads =
            threads.map(|(run, context)| std::thread::spawn(move || run(&context).unwrap()));
        Processor { stop: context.stop, threads: threads.into() }
    }

    fn produce(&self, records: Vec<NewRecord>) {
        self.runtime.block_on(self.log.produce(records)).unwrap();
    }

    /// A record of the chain, in a block of this day.
    fn raw(&self, mut record: ChainRecord) -> NewRecord {
        let timestamp = self.clock.now().seconds();
        record.block = Block { timestamp, ..record.block };
        record.observed_at = self.clock.now();
        if let ChainBody::Head(head) = &mut record.body {
            head.confirmed.iter_mut().for_each(|tier| tier.timestamp = Some(timestamp));
        }
        raw(&record, &LAYOUT)
    }

    fn create(&self, number: usize, payment: Option<PaymentRequest>) -> NewRecord {
        create(number, self.clock.now(), payment, &LAYOUT)
    }

    /// A day: its orders are created and paid, then it is the next one.
    fn trade(&mut self, matched: &mut dyn Tail) {
        let numbers = self.orders..self.orders + DAY_ORDERS;
        self.produce(numbers.clone().map(|n| self.create(n, Some(request()))).collect());
        let mut block: Vec<_> =
            numbers.map(|number| self.raw(transfer(number, self.day))).collect();
        block.push(self.raw(head(self.day)));
        self.produce(block);
        wait_for(matched, DAY_ORDERS);
        self.orders += DAY_ORDERS;
        self.day += 1;
        self.clock.advance(DAY);
        if self.day.is_multiple_of(MAINTAINED_DAYS) {
            self.log.maintain().unwrap();
        }
    }

    /// Number of entries in the changelog of orders, and the bytes of their values.
    fn changelog(&self) -> (usize, usize) {
        let (mut entries, mut bytes) = (0, 0);
        for partition in Topic::OrdersChangelog.all_partitions(&LAYOUT) {
            let of = TopicPartition { topic: Topic::OrdersChangelog, partition };
            let mut next = Offset(0);
            loop {
                let page = self.log.read(of, next, 10_000).unwrap();
                let Some(last) = page.last() else { break };
                next = last.offset.next();
                entries += page.len();
                let length = |record: &Arc<log::Record>| record.value.as_ref().map_or(0, Vec::len);
                bytes += page.iter().map(length).sum::<usize>();
            }
        }
        (entries, bytes)
    }
}

fn wait_for(tail: &mut dyn Tail, count: usize) {
    let mut seen = 0;
    while seen < count {
        seen += tail.poll(Duration::from_millis(20)).unwrap().len();
    }
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(TIME.micros()));
    let log = EmbeddedLog::open(dir.path(), LAYOUT, clock.clone()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut shop = Shop { log, clock, runtime: runtime.handle().clone(), day: 1, orders: 0 };
    let tenth = ORDERS * percent() / 100 / 10;
    let mut processor = shop.processor();
    let mut matched = shop.log.tail(&[Topic::TransfersMatched]).unwrap();
    shop.produce(vec![shop.raw(watch(0)), shop.raw(head(0))]);
    println!(
        "orders that ended are forgotten: {DAY_ORDERS} a day, each paid, known for about 9 days"
    );
    for part in 1..=10 {
        let (before, started) = (shop.orders, Instant::now());
        while shop.orders < part * tenth {
            shop.trade(&mut *matched);
        }
        let rate = rate(shop.orders - before, started.elapsed());
        let resident = resident_bytes(std::process::id()) / 1024 / 1024;
        processor.stop();
        shop.log.maintain().unwrap();
        let (entries, bytes) = shop.changelog();
        // An order that nobody pays: its first record shows that the state is there again.
        let mut first_record = shop.log.tail(&[Topic::Orders]).unwrap();
        shop.produce(vec![shop.create(usize::MAX - part, None)]);
        let started = Instant::now();
        processor = shop.processor();
        wait_for(&mut *first_record, 1);
        println!(
            "  {:>9} orders, {rate} a second: {resident} MiB resident; changelog {entries} orders, {} KiB, \
             restored in {} ms",
            shop.orders,
            bytes / 1024,
            started.elapsed().as_millis()
        );
    }
    processor.stop();
}
