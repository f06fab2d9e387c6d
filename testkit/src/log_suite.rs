//! Conformance suite of logs, for every back end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a check fails by panicking")]

mod append;
mod cleanup;
pub mod embedded;
mod group;
mod kill;
mod member;
pub mod on_kafka;

pub use embedded::Embedded;
pub use kill::{
    a_failed_disk_ends_the_log_and_loses_nothing, acknowledged_appends_survive_sigkill,
    append_until_killed, append_until_refused,
};
pub use on_kafka::OnKafka;

use std::sync::Arc;
use std::time::Duration;

use log::{Error, Log, NewRecord, Offset, Record, TopicPartition, Worker, WorkerSpec};
use schemas::{Layout, Partition, Topic};

/// Layout of the logs under test.
pub const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };
/// Timeout of one poll in the checks.
const POLL: Duration = Duration::from_millis(20);

/// Storage of a back end, with operations specific to it.
pub trait Fixture: Sync {
    /// Opens the log. It may be called again once the last log is dropped, and then opens the same storage.
    fn open(&self) -> Arc<dyn Log>;

    /// Name of another installation on the same back end.
    fn stranger(&self) -> String;

    /// Sets the time after which silent members lose their partitions, for logs that are opened afterwards.
    fn set_session_timeout(&self, timeout: Duration);

    /// Makes the next step, or call of `produce`, fail transiently.
    fn fail_next_commit(&self);

    /// Moves the clock of the log forward. On Kafka, a day or more makes records old, and less has no effect.
    fn advance(&self, by: Duration);

    /// Deletes expired records and compacts. Blocks until done. It may append records of the key [`FILLER`] to
    /// compacted topics: Kafka never compacts the last segment.
    fn maintain(&self);
}

/// Key of the records that [`Fixture::maintain`] may add.
pub const FILLER: &[u8] = b"filler";

pub(crate) type Check = fn(&dyn Fixture);

/// Every check, by name.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("records keep their order", append::records_keep_their_order),
    ("append times never decrease", append::append_times_never_decrease),
    ("what was produced survives a restart", append::what_was_produced_survives_a_restart),
    ("an installation keeps its name", append::an_installation_keeps_its_name),
    ("bounds and reads agree", append::bounds_and_reads_agree),
    ("readers see whole steps", append::readers_see_whole_steps),
    ("a failed step leaves nothing", append::a_failed_step_leaves_nothing),
    ("a failed produce can be tried again", append::a_failed_produce_can_be_tried_again),
    ("a fenced writer cannot commit", append::a_fenced_writer_cannot_commit),
    ("concurrent producers keep their order", append::concurrent_producers_keep_their_order),
    ("a large record comes back", append::a_large_record_comes_back),
    ("a tail sees only what is new", append::a_tail_sees_only_what_is_new),
    ("an unknown partition is refused", append::an_unknown_partition_is_refused),
    ("the first read starts at the beginning", member::the_first_read_starts_at_the_beginning),
    ("a group resumes where it committed", member::a_group_resumes_where_it_committed),
    ("a step is outputs and offsets", member::a_step_is_outputs_and_offsets),
    ("an aborted step is read again", member::an_aborted_step_is_read_again),
    ("what is written ahead is part of a step", member::what_is_written_ahead_is_part_of_a_step),
    ("a paused partition stays paused", member::a_paused_partition_stays_paused),
    ("pausing loses nothing", member::pausing_loses_nothing),
    ("a busy partition starves none", member::a_busy_partition_starves_none),
    ("an idle poll wakes for a record", member::an_idle_poll_wakes_for_a_record),
    ("metadata has a bound", member::metadata_has_a_bound),
    ("an empty step is nothing", member::an_empty_step_is_nothing),
    ("members share partitions alike", group::members_share_partitions_alike),
    ("partitions move without a gap", group::partitions_move_without_a_gap),
    ("kept partitions give no events", group::kept_partitions_give_no_events),
    ("a successor waits for the last one", group::a_successor_waits_for_the_last_one),
    ("a silent member is fenced", group::a_silent_member_is_fenced),
    ("waiting is not silence", group::waiting_is_not_silence),
    ("a name has one member", group::a_name_has_one_member),
    ("a lost partition cannot be committed", group::a_lost_partition_cannot_be_committed),
    ("groups do not disturb each other", group::groups_do_not_disturb_each_other),
    ("a crowd reads everything once", group::a_crowd_reads_everything_once),
    ("compaction keeps the last of each key", cleanup::compaction_keeps_the_last_of_each_key),
    ("a restore reads one moment", cleanup::a_restore_reads_one_moment),
    ("expired records go", cleanup::expired_records_go),
    ("an emptied partition keeps counting", cleanup::an_emptied_partition_keeps_counting),
];

/// Runs every check on separate storage, some at a time.
pub fn run<F: Fixture>(fixture: impl Fn() -> F + Sync, at_a_time: usize) {
    crate::run_checks(CHECKS, at_a_time, |check| check(&fixture()));
}

const fn at(topic: Topic, partition: u32) -> TopicPartition {
    TopicPartition { topic, partition: Partition(partition) }
}

fn record(to: TopicPartition, value: impl Into<String>) -> NewRecord {
    NewRecord {
        to,
        key: b"key".to_vec(),
        value: Some(value.into().into_bytes()),
        headers: [("traceparent", b"1".as_slice())].into_iter().collect(),
    }
}

fn text(record: &Record) -> String {
    String::from_utf8(record.value.clone().unwrap()).unwrap()
}

fn texts(records: &[Arc<Record>]) -> Vec<String> {
    records.iter().map(|r| text(r)).collect()
}

fn produce(log: &Arc<dyn Log>, records: Vec<NewRecord>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(log.produce(records))
}

/// Appends the numbers as texts.
fn produce_numbers(log: &Arc<dyn Log>, to: TopicPartition, numbers: std::ops::Range<u32>) {
    produce(log, numbers.map(|n| record(to, n.to_string())).collect()).unwrap();
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

/// Reads a partition from an offset to its end, by small pages.
fn read_from(log: &Arc<dyn Log>, of: TopicPartition, mut from: Offset) -> Vec<Arc<Record>> {
    let mut all: Vec<Arc<Record>> = Vec::new();
    loop {
        let page = log.read(of, from, 7).unwrap();
        let Some(last) = page.last() else { return all };
        assert!(page.len() <= 7);
        from = last.offset.next();
        all.extend(page);
    }
}

fn read_all(log: &Arc<dyn Log>, of: TopicPartition) -> Vec<Arc<Record>> {
    read_from(log, of, Offset(0))
}

fn worker(log: &Arc<dyn Log>, member: &str, topics: &[Topic]) -> Box<dyn Worker> {
    log.worker(WorkerSpec {
        group: "checks",
        member: member.to_owned(),
        topics: topics.to_vec(),
        batch_max: 10,
    })
    .unwrap()
}
