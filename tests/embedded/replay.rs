//! `tidemark replay` over the log of a trading shop: outputs are reproduced, and each damage is the only difference.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, Offset, Record, TopicPartition};
use runtime::SystemClock;
use schemas::record::{Order, ProcessorStep, Transfer};
use schemas::{Layout, OrderStatus, Topic};
use serde_json::Value;
use testkit::harness;
use testkit::log_suite::on_kafka::CRASH_LAYOUT as LAYOUT;
use testkit::observed::Bug;
use testkit::process::signal;
use tokio::runtime::Runtime;

use super::fold::Run;

/// Output of a replay, and its exit code.
struct Replayed {
    code: Option<i32>,
    lines: Vec<Value>,
    messages: String,
}

impl Replayed {
    fn totals(&self) -> &Value {
        self.lines.last().unwrap_or_else(|| panic!("it printed nothing: {}", self.messages))
    }

    fn count(&self, of: &str) -> i64 {
        self.totals()[of].as_i64().unwrap_or_else(|| panic!("no {of}: {}", self.messages))
    }

    /// Checks that the replay found no difference; returns the number of inputs.
    #[track_caller]
    fn equal(&self) -> i64 {
        assert_eq!(self.code, Some(0), "{:?} {}", self.lines.first(), self.messages);
        assert_eq!((self.lines.len(), &self.totals()["equal"]), (1, &Value::Bool(true)));
        assert!(self.count("same") >= self.count("inputs") / 4, "{}", self.totals());
        self.count("inputs")
    }

    /// The only difference.
    #[track_caller]
    fn single(&self) -> &Value {
        assert_eq!(self.code, Some(2), "{}", self.messages);
        assert_eq!(self.lines.len(), 2, "{:#?}", self.lines.iter().take(5).collect::<Vec<_>>());
        &self.lines[0]
    }
}

/// The command on the log in a folder.
fn command(data: &Path, arguments: &[&str]) -> Command {
    let Layout { lanes, orders, webhooks } = LAYOUT;
    let text = format!(
        "[data]\ndir = {data:?}\n[log]\nlanes = {lanes}\norder_partitions = {orders}\n\
         webhook_partitions = {webhooks}\n"
    );
    std::fs::write(data.join("tidemark.toml"), text).unwrap();
    harness::command(data, &[&["replay", "--json"], arguments].concat())
}

fn replay(data: &Path, arguments: &[&str]) -> Replayed {
    let output = command(data, arguments).output().unwrap();
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Replayed {
        code: output.status.code(),
        lines: lines.map(|line| serde_json::from_slice(line).unwrap()).collect(),
        messages: String::from_utf8(output.stderr).unwrap(),
    }
}

fn all(log: &EmbeddedLog, of: TopicPartition) -> Vec<Arc<Record>> {
    log.read(of, Offset(0), 1_000_000).unwrap()
}

/// The partition of a topic that has most records.
fn largest(log: &EmbeddedLog, topic: Topic) -> TopicPartition {
    let partitions = topic.all_partitions(&LAYOUT);
    let partitions = partitions.map(|partition| TopicPartition { topic, partition });
    partitions.max_by_key(|of| all(log, *of).len()).unwrap()
}

/// A modified copy of a log.
fn copy(
    log: &EmbeddedLog,
    change: impl Fn(TopicPartition, &mut Vec<Arc<Record>>),
) -> tempfile::TempDir {
    let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let copy = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
    for topic in Topic::ALL {
        for partition in topic.all_partitions(&LAYOUT) {
            let of = TopicPartition { topic, partition };
            let mut records = all(log, of);
            change(of, &mut records);
            let new = |record: &Arc<Record>| {
                let Record { key, value, headers, .. } = (**record).clone();
                NewRecord { to: of, key, value, headers }
            };
            runtime.block_on(copy.produce(records.iter().map(new).collect())).unwrap();
        }
    }
    copy.close();
    dir
}

#[test]
fn a_replay_repeats_history_from_any_state() {
    let mut run = Run::new(25, Bug::None, 0);
    let data = run.dir.path().to_owned();
    let state = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let whole = replay(&data, &[]).equal();

    let steps = all(&run.log, largest(&run.log, Topic::MatchingSteps));
    let middle = steps[steps.len() / 2].appended_at.to_rfc3339();
    let first = replay(&data, &["--until", &middle, "--save-state", &state("one")]).equal();
    let second = replay(&data, &["--state", &state("one"), "--save-state", &state("two")]).equal();
    assert!(first > 0 && second > 0, "{first} {second}");
    assert_eq!(first + second, whole);
    assert_eq!(replay(&data, &["--state", &state("two")]).totals()["inputs"], 0);
    assert!(replay(&data, &["--chain", "eth"]).equal() < whole);

    let refused = replay(&data, &["--state", &state("one"), "--save-state", &state("two")]);
    assert_eq!(refused.code, Some(64), "{}", refused.messages);
    assert!(refused.messages.contains("has a state: save to another folder"));

    let now = replay(&data, &["--now", "--save-state", &state("now")]);
    assert_eq!(now.code, Some(0), "{}", now.messages);
    run.trade(10, Bug::None);
    let from_now = replay(&data, &["--state", &state("now")]).equal();
    let same = ["--state", &state("two"), "--save-state", &state("two")];
    assert_eq!(replay(&data, &same).equal(), from_now);
    assert_eq!(replay(&data, &[]).equal(), whole + from_now);

    let elsewhere = copy(&run.log, |_, _| {});
    let refused = replay(elsewhere.path(), &["--state", &state("two")]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.messages.contains("it is of the installation"), "{}", refused.messages);
}

#[test]
fn each_planted_difference_is_found_alone() {
    let run = Run::new(12, Bug::None, 0);
    let (orders, matched) =
        (largest(&run.log, Topic::Orders), largest(&run.log, Topic::TransfersMatched));
    for of in [orders, matched] {
        let records = all(&run.log, of);
        let at = records.len() / 2;
        let place = format!("{of}@{at}");

        let lacking = copy(&run.log, |here, all| {
            if here == of {
                all.remove(at);
            }
        });
        let replayed = replay(lacking.path(), &[]);
        let missing = replayed.single();
        assert_eq!(
            (&missing["kind"], &missing["place"]),
            (&"missing".into(), &of.to_string().into())
        );
        assert!(missing["input"].is_string() && missing["record"].is_object(), "{missing}");

        let doubled = copy(&run.log, |here, all| {
            if here == of {
                all.insert(at, all[at].clone());
            }
        });
        let replayed = replay(doubled.path(), &[]);
        let extra = replayed.single();
        assert_eq!(extra["kind"], "extra");
        let either = [place.clone(), format!("{of}@{}", at + 1)];
        assert!(either.iter().any(|place| extra["place"] == **place), "{extra}");

        let altered = copy(&run.log, |here, all| {
            if here == of {
                all[at] = Arc::new(other(&all[at]));
            }
        });
        let replayed = replay(altered.path(), &[]);
        let different = replayed.single();
        assert_eq!((&different["kind"], &different["place"]), (&"different".into(), &place.into()));
        let fields = different["fields"].as_array().unwrap();
        assert_eq!(fields.len(), 1, "{different}");
        assert_ne!(fields[0]["emitted"], fields[0]["replayed"]);
    }
    let steps = largest(&run.log, Topic::MatchingSteps);
    // Later steps take later blocks, which shows that the blocks of the removed step were left out.
    let takes_blocks = |record: &Arc<Record>| {
        let step: ProcessorStep = record.read().unwrap();
        step.inputs.iter().any(|run| run.topic == Topic::TransfersRaw.name())
    };
    let untaken = copy(&run.log, |here, all| {
        if here == steps {
            let middle = all.len() / 2;
            let at = all[middle..].iter().position(takes_blocks).unwrap();
            all.remove(middle + at);
        }
    });
    let replayed = replay(untaken.path(), &[]);
    assert_eq!(replayed.code, Some(2), "{}", replayed.messages);
    let left = replayed.lines.iter().find(|line| line["kind"] == "not_taken").unwrap();
    let place = left["place"].as_str().unwrap();
    let inputs = [Topic::TransfersRaw, Topic::DepositsCommands];
    let inputs = inputs.map(|topic| format!("{topic}/{}@", steps.partition));
    assert!(inputs.iter().any(|input| place.starts_with(input)), "{place}");
}

/// The log deletes progress of a lane that newer progress supersedes.
#[test]
fn superseded_records_are_not_missing() {
    let run = Run::new(12, Bug::None, 0);
    let of = largest(&run.log, Topic::Chains);
    let whole = replay(run.dir.path(), &[]).equal();
    let before = all(&run.log, of).len();
    run.log.maintain().unwrap();
    let after = all(&run.log, of).len();
    assert!(after < before, "{after} of {before} are kept");
    assert_eq!(replay(run.dir.path(), &[]).equal(), whole);
}

/// The record with another value of one field.
fn other(record: &Record) -> Record {
    let value = match record.from.topic {
        Topic::Orders => {
            let mut order: Order = record.read().unwrap();
            order.status = match order.status {
                OrderStatus::Paid => OrderStatus::Cancelled,
                _ => OrderStatus::Paid,
            };
            schemas::encode(&order)
        }
        _ => {
            let mut transfer: Transfer = record.read().unwrap();
            transfer.created_at = transfer.created_at.plus(1);
            schemas::encode(&transfer)
        }
    };
    Record { value: Some(value.unwrap()), ..record.clone() }
}

/// The output fills the pipe, so that the replay is interrupted in the middle.
#[test]
fn an_interrupted_replay_is_repeated() {
    let run = Run::new(12, Bug::None, 0);
    let lost = copy(&run.log, |of, all| {
        if [Topic::Orders, Topic::Deposits].contains(&of.topic) {
            all.clear();
        }
    });
    let state = lost.path().join("state");
    let saved = ["--save-state", state.to_str().unwrap()];
    let mut command = command(lost.path(), &saved);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("missing"));
    signal(process.id(), "INT");
    let read = lines.count();
    let ended = process.wait_with_output().unwrap();
    let messages = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{messages}");
    assert!(messages.contains("interrupted"), "{messages}");
    assert!(!state.join("state").exists());
    let whole = replay(lost.path(), &saved);
    assert_eq!(whole.code, Some(2), "{}", whole.messages);
    assert!(whole.lines.len() > read && whole.count("extra") == 0, "{}", whole.totals());
    assert!(state.join("state").exists());
}
