//! The processor's rate, and that of `tidemark replay` of its inputs.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use log::kafka::KafkaLog;
use log::{NewRecord, Offset, TopicPartition};
use schemas::record::{OrderCommand, OrderCommandBody};
use schemas::{Layout, Topic};
use serde_json::Value;
use testkit::harness::executable;
use testkit::measure::{rate, resident_bytes_until_end};
use testkit::process::given_path;

use crate::broker;
use crate::worker::Process;
use crate::workload::{
    BLOCK, CHAINS, LAYOUT, answer, beginning, fill, later_opening, later_payments,
};

const PREFIX: &str = "replayed.";
/// Number of rounds. Deposits are opened and paid in one round, and forgotten by the machine two rounds later.
const ROUNDS: usize = 10;
/// Chain time of a round, in seconds: longer than a closed deposit keeps its amount.
const ROUND_SECONDS: i64 = 100_000;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// The answers of orders to the settles since the last call.
fn settled(log: &KafkaLog, read: &mut BTreeMap<TopicPartition, Offset>) -> Vec<NewRecord> {
    let mut answers = Vec::new();
    for partition in Topic::OrdersCommands.all_partitions(&LAYOUT) {
        let of = TopicPartition { topic: Topic::OrdersCommands, partition };
        let next = read.entry(of).or_insert(Offset(0));
        let end = log.stable_end(of).expect("an end");
        loop {
            let page = log.fetch_before(of, *next..end).expect("readable");
            let Some(last) = page.last() else { break };
            *next = last.offset.next();
            for record in &page {
                let command: OrderCommand = record.read().expect("a command");
                if let OrderCommandBody::Settle(settle) = &command.body {
                    answers.push(answer(&command, settle));
                }
            }
        }
    }
    answers
}

/// Measures matching of this number of transfers, then a replay.
pub(crate) async fn run(transfers: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let lib = given_path("TIDEMARK_TEST_KAFKA_LIB");
    let kafka = xtask::kafka::start(&lib, &dir.path().join("kafka"), "").expect("a broker");
    let log = broker::create(&kafka.address(), PREFIX);
    let (mut inputs, mut nanos, mut restored_bytes) = (0, 0, 0);
    let mut process = |count: u64| {
        let report = Process::matching(&kafka.address(), PREFIX, 1, count).report();
        inputs += report.inputs;
        nanos += report.nanos;
        restored_bytes = report.restored_resident_bytes;
    };
    process(fill(&log, beginning()).await);
    let (size, mut height, mut read) = (transfers.div_ceil(ROUNDS), 1, BTreeMap::new());
    for round in 0..ROUNDS {
        let numbers = round * size..((round + 1) * size).min(transfers);
        let seconds = ROUND_SECONDS * round as i64;
        let openings = numbers.clone().map(|number| later_opening(number, seconds));
        process(fill(&log, openings).await);
        process(fill(&log, later_payments(numbers.clone(), height, seconds)).await);
        let answers: Vec<_> = settled(&log, &mut read);
        process(fill(&log, answers.into_iter()).await);
        height += numbers.len().div_ceil(BLOCK * CHAINS.len());
    }
    let processed = rate(usize::try_from(inputs).expect("small"), Duration::from_nanos(nanos));
    println!("replay of {transfers} transfers and their deposits, {inputs} inputs");
    println!("  matching, 1 worker  {processed:>8} inputs a second");

    let Layout { lanes, orders, webhooks } = LAYOUT;
    let (file, brokers, folder) = (dir.path().join("tidemark.toml"), kafka.address(), dir.path());
    let text = format!(
        "[data]\ndir = {folder:?}\n[log]\nbackend = \"kafka\"\nbrokers = \"{brokers}\"\nprefix = \"{PREFIX}\"\n\
         replication = 1\nlanes = {lanes}\norder_partitions = {orders}\nwebhook_partitions = {webhooks}\n"
    );
    std::fs::write(&file, text).expect("a configuration");
    let mut command = Command::new(executable());
    command.args(["replay", "--json", "--config"]).arg(&file);
    command.args(CHAINS.iter().flat_map(|chain| ["--chain", chain.as_str()]));
    let begun = Instant::now();
    let mut process = command.stdout(Stdio::piped()).spawn().expect("the replay starts");
    let output = process.stdout.take().expect("its output");
    let reading = std::thread::spawn(move || std::io::read_to_string(output));
    let (mut memory, mut ticks) = (Vec::new(), tokio::time::interval(SAMPLE_INTERVAL));
    while process.try_wait().expect("its state").is_none() {
        memory.extend(resident_bytes_until_end(process.id()).map(|bytes| bytes / 1024 / 1024));
        ticks.tick().await;
    }
    let elapsed = begun.elapsed();
    let output = reading.join().expect("read").expect("text");
    let totals = output.lines().last().expect("totals");
    let totals: Value = serde_json::from_str(totals).expect("JSON");
    assert_eq!(totals["equal"], true, "{totals}");
    let count = usize::try_from(totals["inputs"].as_u64().expect("a number")).expect("small");
    let replayed = rate(count, elapsed);
    let share = replayed * 100 / processed.max(1);
    println!("  replay              {replayed:>8} inputs a second, {share} % of it (aim 80)");
    println!("  {totals}");
    let quarters = memory.chunks(memory.len().div_ceil(4).max(1));
    let most: Vec<_> = quarters.filter_map(|quarter| quarter.iter().max()).collect();
    println!(
        "  memory of the replay at most {most:?} MiB, by quarter of its time; matching restored to {} MiB",
        restored_bytes / 1024 / 1024
    );
}
