//! Measured processes, separate so that their time and memory can be measured: this program, started again with a role.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use log::kafka::KafkaLog;
use log::{
    Committed, Event, Log, NewRecord, Offset, Record, StageContext, Step, TopicPartition, Worker,
    WorkerSpec,
};
use runtime::SystemClock;
use schemas::{KeyKind, Topic};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::broker;
use crate::metered::{Report, Tally, Written, metered};
use crate::workload;

const POLL: Duration = Duration::from_millis(50);
/// Maximum number of records in a step, as in the processor.
const BATCH_MAX: usize = 4096;
/// Sampled records of each topic that copying workers write repeatedly.
const SAMPLES: usize = 2000;

/// A process that runs until it has read its inputs, or with `0` until it is stopped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Workers of the processor's matching.
    pub(crate) fn matching(brokers: &str, prefix: &str, workers: usize, inputs: u64) -> Self {
        Self::start(&["matching", brokers, prefix, &workers.to_string(), &inputs.to_string()])
    }

    /// Workers without logic. They write as many records per input as `like` has, sampled from the log with the prefix
    /// `source`.
    pub(crate) fn copying(
        brokers: &str,
        prefix: &str,
        workers: usize,
        inputs: u64,
        source: &str,
        like: &Report,
    ) -> Self {
        let like = serde_json::to_string(like).expect("JSON");
        let (workers, inputs) = (workers.to_string(), inputs.to_string());
        Self::start(&["copying", brokers, prefix, &workers, &inputs, source, &like])
    }

    fn start(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().expect("this program starts again"))
    }

    /// Waits until it has read its inputs.
    pub(crate) fn report(mut self) -> Report {
        let mut text = String::new();
        let output = self.0.stdout.as_mut().expect("its output");
        output.read_to_string(&mut text).expect("readable");
        serde_json::from_str(&text).expect("its report")
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(mut self) -> Report {
        drop(self.0.stdin.take());
        self.report()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Plays a role, if the arguments of this program name one.
pub(crate) fn play(arguments: &[&str]) -> bool {
    let (role, more) = match arguments {
        ["matching", more @ ..] => (Role::Matching, more),
        ["copying", more @ ..] => (Role::Copying, more),
        _ => return false,
    };
    let [brokers, prefix, workers, inputs, more @ ..] = more else { return false };
    let workers: usize = workers.parse().expect("a number of workers");
    let inputs: u64 = inputs.parse().expect("a number of inputs");
    let tally = if inputs == 0 { Tally::endless() } else { Tally::new(inputs) };
    let kafka = broker::open(brokers, prefix).with_observer(tally.clone());
    let log = metered(kafka, tally.clone());
    let samples = match (role, more) {
        (Role::Copying, [source, like]) => samples(&broker::open(brokers, source), like),
        _ => Vec::new(),
    };
    let threads: Vec<_> = (0..workers)
        .map(|number| {
            let (log, stop) = (log.clone(), tally.done().clone());
            let (member, samples) = (format!("bench-{number}"), samples.clone());
            std::thread::spawn(move || match role {
                Role::Matching => match_all(log, member, stop),
                Role::Copying => copy_all(&*log, member, samples, &stop),
            })
        })
        .collect();
    if inputs == 0 {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        tally.done().cancel();
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a worker ends well"));
    println!("{}", serde_json::to_string(&tally.report()).expect("JSON"));
    true
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Matching,
    Copying,
}

fn match_all(log: Arc<dyn Log>, member: String, stop: CancellationToken) {
    let (clock, runtime) = (Arc::new(SystemClock), Runtime::new().expect("a runtime"));
    let context = StageContext { log, clock, member, handle: runtime.handle().clone(), stop };
    processor::run_matching(&context).expect("matching");
}

/// Records written to a topic for each input: their average number, and samples of them.
#[derive(Debug, Clone)]
struct Sample {
    each: Ratio,
    records: Vec<NewRecord>,
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Ratio {
    records: u64,
    inputs: u64,
    rest: u64,
}

impl Ratio {
    /// Number of records due for one more input.
    fn take(&mut self) -> u64 {
        self.rest += self.records;
        let due = self.rest / self.inputs.max(1);
        self.rest -= due * self.inputs.max(1);
        due
    }
}

fn samples(source: &KafkaLog, like: &str) -> Vec<Sample> {
    let like: Report = serde_json::from_str(like).expect("a report");
    let of = |topic: &Topic| {
        let Written { records, .. } = like.written.get(topic.name())?;
        let each = Ratio { records: *records, inputs: like.inputs, rest: 0 };
        Some(Sample { each, records: workload::sample(source, *topic, SAMPLES), next: 0 })
    };
    Topic::ALL.iter().filter_map(of).collect()
}

/// Reads and writes in atomic steps, and nothing else.
fn copy_all(log: &dyn Log, member: String, mut samples: Vec<Sample>, stop: &CancellationToken) {
    let topics = vec![Topic::TransfersRaw, Topic::DepositsCommands];
    let spec = WorkerSpec { group: "bench.copy", member, topics, batch_max: BATCH_MAX };
    let mut worker: Box<dyn Worker> = log.worker(spec).expect("a worker");
    while !stop.is_cancelled() {
        let Event::Records(inputs) = worker.poll(POLL).expect("polled") else { continue };
        let mut records = Vec::new();
        let mut offsets: BTreeMap<TopicPartition, Offset> = BTreeMap::new();
        for input in inputs {
            samples.iter_mut().for_each(|sample| write(sample, &input, &mut records));
            offsets.insert(input.from, input.offset.next());
        }
        let committed = |offset| Committed { offset, metadata: String::new() };
        let offsets = offsets.into_iter().map(|(from, at)| (from, committed(at))).collect();
        worker.commit(Step { records, offsets }).expect("committed");
    }
}

fn write(sample: &mut Sample, input: &Record, records: &mut Vec<NewRecord>) {
    for _ in 0..sample.each.take() {
        sample.next = (sample.next + 1) % sample.records.len();
        let mut record = sample.records[sample.next].clone();
        if record.to.topic.spec().key == KeyKind::Lane {
            record.to.partition = input.from.partition;
        }
        records.push(record);
    }
}
