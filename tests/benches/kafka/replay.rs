//! The processor's rate, and that of `tidemark replay` of its inputs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use schemas::Layout;
use serde_json::Value;
use testkit::harness::executable;
use testkit::measure::rate;

use crate::broker;
use crate::worker::Process;
use crate::workload::{CHAINS, Form, LAYOUT, beginning, fill, opening, payments};

const PREFIX: &str = "replayed.";

/// Measures matching of this number of transfers, then a replay.
pub(crate) async fn run(transfers: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let lib = broker::folder("TIDEMARK_TEST_KAFKA_LIB");
    let kafka = xtask::kafka::start(&lib, &dir.path().join("kafka"), "").expect("a broker");
    let log = broker::create(&kafka.address(), PREFIX);
    let form = Form::Ours;
    let (mut inputs, mut nanos) = (0, 0);
    let mut process = |count: u64| {
        let report = Process::matching(&kafka.address(), PREFIX, 1, count).report();
        inputs += report.inputs;
        nanos += report.nanos;
    };
    process(fill(&log, beginning()).await);
    process(fill(&log, (0..transfers).map(|number| opening(number, form))).await);
    process(fill(&log, payments(0..transfers, 1, false, form)).await);
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
    let output = BufReader::new(process.stdout.take().expect("its output"));
    let (mut totals, mut memory) = (String::new(), String::new());
    for line in output.lines() {
        totals = line.expect("text");
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        memory = line.map_or(memory, |line| line.trim().to_owned());
    }
    process.wait().expect("it ends");
    let elapsed = begun.elapsed();
    let totals: Value = serde_json::from_str(&totals).expect("JSON");
    assert_eq!(totals["equal"], true, "{totals}");
    let count = usize::try_from(totals["inputs"].as_u64().expect("a number")).expect("small");
    let replayed = rate(count, elapsed);
    let share = replayed * 100 / processed.max(1);
    println!("  replay              {replayed:>8} inputs a second, {share} % of it (aim 80)");
    println!("  memory of the replay at most {memory}; {totals}");
}
