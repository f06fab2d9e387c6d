//! The measurements, in their order, and how they are printed.

use std::time::Duration;

use log::kafka::KafkaLog;
use schemas::Topic;
use schemas::record::Transfer;
use store::config::CqlConfig;
use store::cql::CqlStore;
use store::embedded::EmbeddedStore;
use testkit::measure::{percent, rate};
use testkit::process::given_path;

use crate::broker;
use crate::live::{self, Latency, Trickle};
use crate::metered::{Report, Written};
use crate::peer::{Peer, PeerReport, Sizes};
use crate::tables;
use crate::worker::Process;
use crate::workload::{BLOCK, CHAINS, Form, beginning, copy, fill, opening, payments};

const OURS: &str = "ours.";
const CEILING: &str = "ceiling.";
const PEER: &str = "peer.";
/// Bytes with the deposit number in a transfer of the peer: a part of the transaction's hash.
const PEER_NUMBER: std::ops::Range<usize> = 50..58;

/// Size of the measurement. A fraction of it is a smoke test.
#[derive(Debug, Clone, Copy)]
struct Size {
    deposits: usize,
    /// Transfers of each run.
    transfers: usize,
    live_ticks: usize,
    /// Rows of each store.
    rows: usize,
}

impl Size {
    fn read() -> Self {
        let of = |all: usize| all * percent() / 100;
        Self {
            deposits: of(1_000_000),
            transfers: of(300_000),
            live_ticks: of(2000),
            rows: of(80_000),
        }
    }
}

/// Deposits paid and heights used so far.
#[derive(Debug, Clone, Copy)]
struct Used {
    deposits: usize,
    height: usize,
}

impl Used {
    const NOTHING: Self = Self { deposits: 0, height: 1 };

    /// Takes the next transfers: the numbers of their deposits, and the height of their first block.
    fn run(&mut self, transfers: usize) -> (std::ops::Range<usize>, usize) {
        let (first, height) = (self.deposits, self.height);
        self.deposits += transfers;
        self.height += transfers / (BLOCK * CHAINS.len()) + 1;
        (first..self.deposits, height)
    }

    fn trickle(&mut self, ticks: usize, form: Form) -> Trickle {
        let trickle = Trickle { first: self.deposits, height: self.height, ticks, form };
        self.deposits += trickle.transfers();
        self.height += trickle.heights();
        trickle
    }
}

/// Reports of matching with one and with two workers.
struct Matching {
    /// Each transfer waits for its head.
    live: [Report; 2],
    /// Each transfer is confirmed when it is seen.
    catching_up: [Report; 2],
}

struct Stage {
    brokers: String,
    size: Size,
    dir: tempfile::TempDir,
}

/// Measures everything and prints it.
pub(crate) async fn run() {
    let dir = tempfile::tempdir().expect("a folder");
    let lib = given_path("TIDEMARK_TEST_KAFKA_LIB");
    let kafka = xtask::kafka::start(&lib, &dir.path().join("kafka"), "").expect("a broker");
    let stage = Stage { brokers: kafka.address(), size: Size::read(), dir };
    println!(
        "kafka: one broker, the workers and what feeds them on the same cores; {} of 8 lanes in use",
        CHAINS.len()
    );
    let ours = broker::create(&stage.brokers, OURS);
    let matching = stage.matching(&ours).await;
    stage.ceiling(&matching).await;
    stage.peer(&matching).await;
    stage.tables(&ours).await;
}

impl Stage {
    async fn matching(&self, log: &KafkaLog) -> Matching {
        let Size { deposits, transfers, live_ticks, .. } = self.size;
        let form = Form::Ours;
        let inputs = fill(log, beginning()).await;
        Process::matching(&self.brokers, OURS, 1, inputs).report();
        let inputs = fill(log, (0..deposits).map(|number| opening(number, form))).await;
        let opened = Process::matching(&self.brokers, OURS, 1, inputs).report();
        print("deposits opened, 1 worker", &opened);

        let mut used = Used::NOTHING;
        let (numbers, height) = used.run(transfers);
        let inputs = fill(log, payments(numbers, height, false, form)).await;
        let one = Process::matching(&self.brokers, OURS, 1, inputs).report();
        restored("matching", one.restored, one.restore_nanos, one.restored_resident_bytes);
        print("matching, 1 worker", &one);
        phases(&one);
        written(&one);

        let process = Process::matching(&self.brokers, OURS, 1, 0);
        let latency = live::measure(log, used.trickle(live_ticks, form), our_number).await;
        let report = process.stop();
        live("matching, no commit interval", latency);
        step_phases(&report);

        let (numbers, height) = used.run(transfers);
        let inputs = fill(log, payments(numbers, height, false, form)).await;
        let two = Process::matching(&self.brokers, OURS, 2, inputs).report();
        print("matching, 2 workers", &two);
        phases(&two);

        let mut catching_up = Vec::new();
        for workers in [1, 2] {
            let (numbers, height) = used.run(transfers / 2);
            let inputs = fill(log, payments(numbers, height, true, form)).await;
            let report = Process::matching(&self.brokers, OURS, workers, inputs).report();
            print(&format!("catching up, {workers} workers"), &report);
            phases(&report);
            catching_up.push(report);
        }
        let catching_up = catching_up.try_into().unwrap_or_else(|_| panic!("two reports"));
        Matching { live: [one, two], catching_up }
    }

    /// The ceiling: the same inputs, and the same number and sizes of records, without logic.
    async fn ceiling(&self, matching: &Matching) {
        let [one, two] = &matching.live;
        let log = broker::create(&self.brokers, CEILING);
        let mut used = Used::NOTHING;
        for (workers, ours) in [(1, one), (2, two)] {
            let (numbers, height) = used.run(self.size.transfers);
            let inputs = fill(&log, payments(numbers, height, false, Form::Ours)).await;
            let process = Process::copying(&self.brokers, CEILING, workers, inputs, OURS, one);
            let copied = process.report();
            print(&format!("ceiling: copying, {workers} workers"), &copied);
            phases(&copied);
            let share = rate_of(ours) * 100 / rate_of(&copied).max(1);
            println!("    matching reaches {share} % of it   (aim 60)");
        }
    }

    async fn peer(&self, matching: &Matching) {
        let [one, two] = &matching.live;
        let Size { deposits, transfers, live_ticks, .. } = self.size;
        let log = broker::create(&self.brokers, PEER);
        let raw_bytes = usize::try_from(one.input_bytes / one.inputs.max(1)).expect("small");
        let form = Form::Peer { raw_bytes };
        let sizes = Sizes {
            transfer: size_of(one, Topic::TransfersDetected),
            command: size_of(one, Topic::OrdersCommands),
            entry: size_of(one, Topic::MatchingChangelog),
        };
        let peer = Peer::compile(self.dir.path(), &self.brokers, PEER, sizes);
        fill(&log, (0..deposits).map(|number| opening(number, form))).await;
        print_peer("peer: deposits opened, 1 thread", &peer.drain(1, 100));

        let mut used = Used::NOTHING;
        for (threads, ours) in [(1, one), (2, two)] {
            let (numbers, height) = used.run(transfers);
            fill(&log, payments(numbers, height, false, form)).await;
            let report = peer.drain(threads, 100);
            restored("peer", report.restored, report.restore_nanos, report.restored_resident_bytes);
            print_peer(&format!("peer: Kafka Streams, {threads} threads"), &report);
            compare(ours, &report);
        }
        for (threads, ours) in (1..).zip(&matching.catching_up) {
            let (numbers, height) = used.run(transfers / 2);
            fill(&log, payments(numbers, height, true, form)).await;
            let report = peer.drain(threads, 100);
            print_peer(&format!("peer: catching up, {threads} threads"), &report);
            compare(ours, &report);
        }
        for commit_ms in [100, 20] {
            let mut process = peer.live(1, commit_ms);
            process.report();
            let latency = live::measure(&log, used.trickle(live_ticks, form), peer_number).await;
            process.stop();
            live(&format!("peer, commit interval {commit_ms} ms"), latency);
        }
    }

    /// Deposits and transfers, each a separate row, into both stores.
    async fn tables(&self, ours: &KafkaLog) {
        let tables = self.dir.path().join("tables");
        let store = EmbeddedStore::open(&tables).expect("tables");
        let report = self.project(ours, "sqlite.", std::sync::Arc::new(store)).await;
        print("projector on SQLite", &report);
        let lib = given_path("TIDEMARK_TEST_CASSANDRA_LIB");
        let node = xtask::cassandra::start(&lib, &self.dir.path().join("cassandra"));
        let node = node.expect("a node");
        let config = CqlConfig {
            nodes: vec![node.address()],
            keyspace: "bench".to_owned(),
            replication: 1,
            datacenter: None,
            username: None,
            password: None,
            ca_file: None,
        };
        store::cql::migrate(&config).await.expect("a schema");
        let store = CqlStore::open(&config).await.expect("tables");
        let report = self.project(ours, "cql.", std::sync::Arc::new(store)).await;
        print("projector on CQL", &report);
    }

    async fn project(
        &self,
        ours: &KafkaLog,
        prefix: &str,
        store: std::sync::Arc<dyn store::Store>,
    ) -> Report {
        let log = broker::create(&self.brokers, prefix);
        let half = self.size.rows / 2;
        let mut rows = copy(ours, &log, Topic::Deposits, half).await;
        rows += copy(ours, &log, Topic::TransfersDetected, half).await;
        tables::project(log, store, rows).await
    }
}

fn our_number(value: &[u8]) -> usize {
    let transfer: Transfer = schemas::decode(value).expect("a transfer");
    number(&transfer.observation.tx_hash.0[..8])
}

fn peer_number(value: &[u8]) -> usize {
    number(&value[PEER_NUMBER])
}

fn number(bytes: &[u8]) -> usize {
    let bytes = bytes.try_into().expect("eight bytes");
    usize::try_from(u64::from_be_bytes(bytes)).expect("small")
}

fn rate_of(report: &Report) -> u64 {
    per_second(report.inputs, report.nanos)
}

fn per_second(count: u64, nanos: u64) -> u64 {
    rate(usize::try_from(count).unwrap_or(usize::MAX), Duration::from_nanos(nanos))
}

/// Mean size of the records of a topic, in bytes.
fn size_of(report: &Report, topic: Topic) -> u64 {
    let written = report.written.get(topic.name()).cloned().unwrap_or_default();
    (written.bytes + written.header_bytes) / written.records.max(1)
}

/// A quotient as text, with two decimals.
fn hundredths(count: u64, of: u64) -> String {
    let all = count * 100 / of.max(1);
    format!("{}.{:02}", all / 100, all % 100)
}

fn print(what: &str, report: &Report) {
    let Report { inputs, nanos, cpu_nanos, steps, .. } = report;
    println!(
        "  {what:<32} {:>8} inputs a second, {} us of CPU each, {} records and {} bytes written \
         for each, {} inputs a step",
        per_second(*inputs, *nanos),
        hundredths(cpu_nanos / 1000, *inputs),
        hundredths(report.records(), *inputs),
        report.bytes() / inputs.max(&1),
        inputs / steps.max(&1),
    );
}

fn print_peer(what: &str, report: &PeerReport) {
    println!(
        "  {what:<32} {:>8} inputs a second, {} us of CPU each",
        per_second(report.inputs, report.nanos),
        hundredths(report.cpu_nanos / 1000, report.inputs),
    );
}

fn compare(ours: &Report, peer: &PeerReport) {
    let speed = hundredths(rate_of(ours), per_second(peer.inputs, peer.nanos));
    let cpu = |nanos: u64, inputs: u64| nanos / inputs.max(1);
    let share = hundredths(cpu(ours.cpu_nanos, ours.inputs), cpu(peer.cpu_nanos, peer.inputs));
    println!(
        "    matching: {speed} times its inputs a second (aim 3), {share} of its CPU (aim 0.25)"
    );
}

fn restored(program: &str, entries: u64, nanos: u64, resident: u64) {
    println!(
        "  {program} restored {entries} entries in {} s, then {} MiB resident   (aim 10 s)",
        hundredths(nanos, 1_000_000_000),
        resident / 1024 / 1024,
    );
}

fn live(what: &str, latency: Latency) {
    let Latency { p50, p99, max, transfers } = latency;
    println!(
        "  live, {what}: p50 {} ms, p99 {} ms, max {} ms from produce to read   ({transfers} \
         transfers, 1000 a second)",
        p50.as_millis(),
        p99.as_millis(),
        max.as_millis()
    );
}

fn phases(report: &Report) {
    let micros = |nanos: &u64| hundredths(nanos / 1000, report.inputs);
    let all: Vec<_> =
        report.phases.iter().map(|(phase, time)| format!("{phase} {}", micros(time))).collect();
    println!("    us of an input, by part of the loop: {}", all.join(", "));
}

fn step_phases(report: &Report) {
    let millis = |nanos: &u64| hundredths(nanos / 1_000_000, report.steps);
    let parts = report.phases.iter().filter(|(phase, _)| *phase != "poll");
    let all: Vec<_> = parts.map(|(phase, time)| format!("{phase} {}", millis(time))).collect();
    println!(
        "    {} steps of {} inputs; ms of a step, by part: {}",
        report.steps,
        report.inputs / report.steps.max(1),
        all.join(", ")
    );
}

fn written(report: &Report) {
    for (topic, Written { records, bytes, header_bytes }) in &report.written {
        println!(
            "    {topic}: {} for each input, {} bytes and {} of headers",
            hundredths(*records, report.inputs),
            bytes / records.max(&1),
            header_bytes / records.max(&1),
        );
    }
}
