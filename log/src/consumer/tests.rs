//! The loop on a worker with scripted results.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use metrics_exporter_prometheus::PrometheusBuilder;
use schemas::Partition;

use super::*;

const A: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
const B: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(1) };

/// Calls of the worker and the handler, in order.
type Calls = Arc<Mutex<Vec<String>>>;

fn note(calls: &Calls, call: impl Into<String>) {
    calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.into());
}

struct Scripted {
    calls: Calls,
    events: VecDeque<Result<Event, Error>>,
    commits: VecDeque<StepError>,
}

impl Worker for Scripted {
    fn poll(&mut self, _timeout: Duration) -> Result<Event, Error> {
        self.events.pop_front().unwrap_or(Ok(Event::Idle))
    }

    fn write_ahead(&mut self, _records: &mut Vec<NewRecord>) {}

    fn commit(&mut self, step: Step) -> Result<(), StepError> {
        let offsets = step.offsets.iter().map(|(of, at)| format!("{of}@{}", at.offset));
        note(&self.calls, format!("commit {}", offsets.collect::<Vec<_>>().join(" ")));
        self.commits.pop_front().map_or(Ok(()), Err)
    }

    fn restore(
        &mut self,
        _changelog: TopicPartition,
        apply: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        apply(record(A, 0));
        Ok(())
    }

    fn pause(&mut self, partition: TopicPartition) {
        note(&self.calls, format!("pause {partition}"));
    }

    fn resume(&mut self, partition: TopicPartition) {
        note(&self.calls, format!("resume {partition}"));
    }
}

struct Noting {
    calls: Calls,
    plans: VecDeque<Plan>,
    drained_after: usize,
}

impl Handler for Noting {
    const GROUP: &'static str = "g";
    type Error = StepError;

    fn topics(&self) -> Vec<Topic> {
        vec![Topic::Orders]
    }

    fn assigned(
        &mut self,
        assigned: Vec<Assigned>,
        member: &mut Member<'_>,
    ) -> Result<(), StepError> {
        let restored = member.restore(A, || 0, |count, _| *count += 1).unwrap();
        note(&self.calls, format!("assigned {}, restored {restored:?}", assigned.len()));
        Ok(())
    }

    fn revoked(&mut self, lost: &[TopicPartition]) -> Result<(), StepError> {
        let names: Vec<_> = lost.iter().map(ToString::to_string).collect();
        note(&self.calls, format!("revoked {}", names.join(" ")));
        Ok(())
    }

    fn step(
        &mut self,
        records: &[Arc<Record>],
        _member: &mut Member<'_>,
    ) -> Result<Plan, StepError> {
        if let Some(plan) = self.plans.pop_front() {
            return Ok(plan);
        }
        let mut step = Step::default();
        records.iter().for_each(|record| step.take(record));
        Ok(if records.is_empty() { Plan::Nothing } else { Plan::Commit(step) })
    }

    fn committed(&mut self) {
        note(&self.calls, "committed");
    }

    fn aborted(&mut self) -> Result<(), StepError> {
        note(&self.calls, "aborted");
        Ok(())
    }

    fn is_drained(&mut self) -> bool {
        note(&self.calls, "drained?");
        self.drained_after = self.drained_after.saturating_sub(1);
        self.drained_after == 0
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Fatal(error.to_string().into())
    }
}

fn record(from: TopicPartition, offset: i64) -> Record {
    Record::of(from, offset)
}

fn assigned() -> Event {
    let one = |partition| Assigned { partition, committed: None };
    Event::Assigned(vec![one(A), one(B)])
}

fn records() -> Event {
    Event::Records(vec![record(A, 3).into(), record(A, 4).into(), record(B, 7).into()])
}

/// Runs one turn for each event. Each turn takes the next of `plans`, if one is left; the worker's
/// first commits fail with `commits`. Returns the calls, and the result of the last turn.
fn turns(
    events: Vec<Result<Event, Error>>,
    plans: Vec<Plan>,
    commits: Vec<StepError>,
) -> (Vec<String>, Result<(), StepError>) {
    let (calls, count) = (Calls::default(), events.len());
    let worker = Scripted { calls: calls.clone(), events: events.into(), commits: commits.into() };
    let handler = Noting { calls: calls.clone(), plans: plans.into(), drained_after: 1 };
    let mut consumer = Consumer::new(Box::new(worker), handler, CancellationToken::new());
    let ended = (0..count).try_for_each(|_| consumer.turn());
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    (calls, ended)
}

#[test]
fn a_batch_is_one_step() {
    let (calls, ended) = turns(vec![Ok(assigned()), Ok(records())], vec![], vec![]);
    ended.unwrap();
    assert_eq!(
        calls,
        ["assigned 2, restored Some(1)", "commit orders/0@5 orders/1@8", "committed"]
    );
}

#[test]
fn aborted_step_is_undone_fenced_one_gives_up_all() {
    let events = vec![Ok(assigned()), Ok(records()), Ok(records()), Ok(records())];
    let commits = vec![
        StepError::Aborted("disk full".into()),
        StepError::Fenced("another member".into()),
        StepError::Fatal("unknown".into()),
    ];
    let (calls, ended) = turns(events, vec![], commits);
    assert!(matches!(ended, Err(StepError::Fatal(_))), "{ended:?}");
    let commit = "commit orders/0@5 orders/1@8";
    let expected = [commit, "aborted", commit, "revoked orders/0 orders/1", commit];
    assert_eq!(calls[1..], expected);
}

#[test]
fn partitions_of_a_fenced_step_are_not_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    ::metrics::with_local_recorder(&recorder, || {
        let fenced = StepError::Fenced("another member".into());
        turns(vec![Ok(assigned()), Ok(records())], vec![], vec![fenced]).1.unwrap();
    });
    let text = recorder.handle().render();
    let values = text.lines().filter(|line| line.starts_with("tidemark_log_assigned_partitions{"));
    let values: Vec<_> = values.filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(values, ["0", "0"], "{text}");
}

/// A step that was aborted is made again, with its dead letters.
#[test]
fn a_dead_letter_is_counted_once_it_is_committed() {
    let recorder = PrometheusBuilder::new().build_recorder();
    ::metrics::with_local_recorder(&recorder, || {
        let plan = || {
            let letter = crate::dead_letter(&record(A, 3), "g", "bad").unwrap();
            Plan::Commit(Step { records: vec![letter], offsets: Vec::new() })
        };
        let events = vec![Ok(assigned()), Ok(records()), Ok(records())];
        let plans = vec![Plan::Nothing, plan(), plan()];
        turns(events, plans, vec![StepError::Aborted("disk full".into())]).1.unwrap();
    });
    let text = recorder.handle().render();
    let line = r#"tidemark_log_dead_letters_total{topic="orders"} 1"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}

#[test]
fn lost_name_ends_the_loop_unavailable_log_does_not() {
    let away = || Err(Error::Transient("down".into()));
    let (calls, ended) = turns(vec![away(), Ok(records())], vec![], vec![]);
    ended.unwrap();
    assert_eq!(calls.len(), 2);
    let (_, ended) = turns(vec![Err(Error::Fenced("taken".into()))], vec![], vec![]);
    assert!(ended.is_err());
}

#[test]
fn partitions_are_paused_until_the_step_can_be_made() {
    let late = Assigned { partition: B, committed: None };
    let first = Assigned { partition: A, committed: None };
    let events = vec![
        Ok(Event::Assigned(vec![first])),
        Ok(Event::Assigned(vec![late])),
        Ok(Event::Idle),
        Ok(Event::Revoked(vec![A])),
    ];
    let plans = vec![Plan::Retry, Plan::Unfinished, Plan::Retry, Plan::Commit(Step::default())];
    let (calls, ended) = turns(events, plans, vec![]);
    ended.unwrap();
    let calls: Vec<_> = calls.iter().filter(|call| !call.starts_with("assigned")).collect();
    let expected = [
        "pause orders/0",
        "pause orders/0",
        "pause orders/1",
        "pause orders/0",
        "pause orders/1",
        "pause orders/0",
        "pause orders/1",
        "revoked orders/0",
        "commit ",
        "committed",
        "resume orders/1",
    ];
    assert_eq!(calls, expected);
}

#[test]
fn end_waits_for_the_handler_and_revokes_all() {
    let calls = Calls::default();
    let events = VecDeque::from([Ok(assigned()), Ok(records())]);
    let worker = Scripted { calls: calls.clone(), events, commits: VecDeque::new() };
    let handler = Noting { calls: calls.clone(), plans: VecDeque::new(), drained_after: 3 };
    let stop = CancellationToken::new();
    stop.cancel();
    Consumer::new(Box::new(worker), handler, stop).run().unwrap();
    let calls = calls.lock().unwrap().clone();
    let expected = ["drained?", "assigned 2, restored None", "drained?"];
    assert_eq!(calls[..3], expected);
    assert_eq!(
        calls[3..],
        ["commit orders/0@5 orders/1@8", "committed", "drained?", "revoked orders/0 orders/1"]
    );
}
