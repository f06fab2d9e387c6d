//! Tests of the embedded log alone: its lock, its file, its recovery. Features that every log has
//! are checked by the conformance suite in `tests/`.

use std::time::Instant;

use super::fault::StorageError;
use super::*;
use crate::{Committed, Event, Step, StepError};
use runtime::{ManualClock, SystemClock};
use schemas::{Headers, Partition, UnixMicros};

/// Deadline of a wait: longer than a few records take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };
const OF: TopicPartition = TopicPartition { topic: Topic::Orders, partition: Partition(0) };

fn open(dir: &Path) -> Result<EmbeddedLog, Error> {
    EmbeddedLog::open(dir, LAYOUT, Arc::new(SystemClock))
}

fn create() -> (tempfile::TempDir, EmbeddedLog) {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path()).unwrap();
    (dir, log)
}

fn spec(group: &'static str) -> WorkerSpec {
    WorkerSpec { group, member: "a".into(), topics: vec![OF.topic], batch_max: 10 }
}

fn values(log: &EmbeddedLog) -> Vec<Vec<u8>> {
    let records = log.read(OF, Offset(0), 9).unwrap();
    records.iter().map(|record| record.value.clone().unwrap()).collect()
}

fn assert_fatal(error: &Error, text: &str) {
    let is_it = matches!(error, Error::Fatal(cause) if cause.to_string().contains(text));
    assert!(is_it, "{error}, not {text}");
}

fn record(value: Vec<u8>) -> NewRecord {
    NewRecord { to: OF, key: b"key".to_vec(), value: Some(value), headers: Headers::default() }
}

fn append(log: &EmbeddedLog, records: Vec<NewRecord>) -> Result<(), Error> {
    let work = Work::Append { records, offsets: vec![], author: Author::Producer };
    Ok(log.handle.shared.queue.submit_blocking(work)?)
}

#[test]
fn one_process_has_the_folder() {
    let (dir, log) = create();
    assert_fatal(&open(dir.path()).unwrap_err(), "is in use by another process");
    // A worker keeps the log open, too.
    let worker = log.worker(spec("g")).unwrap();
    drop(log);
    open(dir.path()).unwrap_err();
    drop(worker);
    open(dir.path()).unwrap();
}

#[test]
fn another_layout_is_refused_and_the_key_named() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap();
    for (layout, key) in [
        (Layout { lanes: 2, ..LAYOUT }, "lanes = 1"),
        (Layout { orders: 3, ..LAYOUT }, "order_partitions = 4"),
        (Layout { webhooks: 3, ..LAYOUT }, "webhook_partitions = 2"),
    ] {
        let error = EmbeddedLog::open(dir.path(), layout, Arc::new(SystemClock)).unwrap_err();
        assert_fatal(&error, key);
    }
    open(dir.path()).unwrap();
}

/// An imported log keeps the name of its installation, and its records keep their append times.
#[test]
fn an_installation_is_continued() {
    let (dir, log) = create();
    let mut old = record(vec![1]);
    old.headers.push(schemas::HEADER_APPENDED_AT, b"77");
    append(&log, vec![old, record(vec![2])]).unwrap();
    log.close();
    let at = Committed { offset: Offset(1), metadata: "step".to_owned() };
    let as_copy = ("kafka/abc/shop.", Incarnation(5));
    backup::continue_installation(dir.path(), as_copy, &[("g", OF, at.clone())]).unwrap();
    let identity = backup::Identity::read(dir.path()).unwrap().unwrap();
    let found = (identity.installation.as_str(), identity.incarnation);
    assert_eq!(found, as_copy);
    let found = ReadOnlyLog::open(dir.path()).unwrap().committed("g", &[OF]).unwrap();
    assert_eq!(found, [(OF, Some(at))]);
    let log = open(dir.path()).unwrap();
    assert_eq!((log.installation().unwrap().as_str(), log.incarnation()), as_copy);
    let times: Vec<_> =
        log.read(OF, Offset(0), 9).unwrap().iter().map(|record| record.appended_at).collect();
    assert!(times[0] == UnixMicros(77) && times[1] > UnixMicros(77), "{times:?}");
}

#[test]
fn another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap();
    let connection = Connection::open(dir.path().join("log.sqlite")).unwrap();
    connection.execute("UPDATE meta SET value = 9 WHERE key = 'format'", []).unwrap();
    assert_fatal(&open(dir.path()).unwrap_err(), "has log format 9");
}

#[test]
fn append_times_do_not_go_back_when_the_clock_does() {
    let dir = tempfile::tempdir().unwrap();
    for now in [5000, 4000, 6000] {
        let clock = Arc::new(ManualClock::new(UnixMicros(now)));
        let log = EmbeddedLog::open(dir.path(), LAYOUT, clock).unwrap();
        append(&log, vec![record(vec![])]).unwrap();
    }
    let records = open(dir.path()).unwrap().read(OF, Offset(0), 9).unwrap();
    let times: Vec<i64> = records.iter().map(|record| record.appended_at.0).collect();
    assert_eq!(times, [5000, 5000, 6000]);
}

#[test]
fn closed_log_has_written_what_was_queued() {
    let (dir, log) = create();
    let mut tail = log.tail(&[Topic::Orders]).unwrap();
    let mut writer = log.writer("w").unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            loop {
                if let Err(error) = tail.poll(Duration::from_secs(60)) {
                    return error;
                }
            }
        });
        let appends = scope.spawn(|| (0..).find(|_| append(&log, vec![record(vec![])]).is_err()));
        let begun = Instant::now();
        while log.bounds(OF).unwrap().end < Offset(3) && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        log.close();
        let acknowledged = appends.join().unwrap().unwrap();
        assert!(acknowledged >= 3, "only {acknowledged} were written in {PATIENCE:?}");
        assert_eq!(log.bounds(OF).unwrap().end, Offset(acknowledged));
        assert!(
            matches!(waits.join().unwrap(), Error::Fatal(text) if text.to_string() == "it is closed")
        );
    });
    assert!(matches!(log.read(OF, Offset(0), 1), Err(Error::Fatal(_))));
    assert!(matches!(writer.commit(vec![record(vec![])]), Err(StepError::Fatal(_))));
    log.close();
    // The folder is free although handles are still there, and the WAL is empty.
    let wal = std::fs::metadata(dir.path().join("log.sqlite-wal")).map_or(0, |wal| wal.len());
    assert_eq!(wal, 0);
    let again = open(dir.path()).unwrap();
    assert_eq!(again.bounds(OF).unwrap().end, log.bounds(OF).unwrap().end);
}

/// A committer without its thread, on a disk that has room for `room` more pages.
struct FullDisk {
    shared: Arc<Shared>,
    committer: Committer,
}

impl FullDisk {
    fn with(room: u32, dir: &Path) -> Self {
        let (shared, connection) = Shared::open(dir, LAYOUT, Arc::new(SystemClock)).unwrap();
        let pages = |count: u32| -> u32 {
            let pragma = format!("PRAGMA max_page_count = {count}");
            connection.query_row(&pragma, [], |row| row.get(0)).unwrap()
        };
        let used = pages(1);
        pages(used + room);
        let committer = Committer::new(shared.clone(), connection, dir).unwrap();
        Self { shared, committer }
    }

    /// Commits requests as one group.
    fn commit(&mut self, group: Vec<Vec<NewRecord>>) -> Vec<Result<(), StepError>> {
        let (shared, count) = (self.shared.clone(), group.len());
        std::thread::scope(|scope| {
            let submit = |records| {
                let work = Work::Append { records, offsets: vec![], author: Author::Producer };
                let shared = shared.clone();
                scope.spawn(move || shared.queue.submit_blocking(work))
            };
            let waiting: Vec<_> = group.into_iter().map(submit).collect();
            let mut batch = Vec::new();
            while batch.len() < count {
                batch.extend(shared.queue.take(1_000_000, None).unwrap().0);
            }
            self.committer.commit(batch);
            waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect()
        })
    }
}

#[test]
fn log_continues_after_a_full_disk() {
    let (dir, log) = create();
    append(&log, vec![record(b"before".to_vec())]).unwrap();
    drop(log);
    let mut disk = FullDisk::with(20, dir.path());
    let outcome = disk.commit(vec![vec![record(vec![7; 1000]), record(vec![7; 1_000_000])]]);
    assert!(
        matches!(&outcome[..], [Err(StepError::Aborted(cause))] if is_full(cause)),
        "{outcome:?}"
    );
    assert_eq!(disk.shared.view.extent(OF).unwrap().bounds.end, Offset(1));
    disk.commit(vec![vec![record(b"small".to_vec())]]).remove(0).unwrap();
    assert_eq!(disk.shared.view.extent(OF).unwrap().bounds.end, Offset(2));
    drop(disk);
    assert_eq!(values(&open(dir.path()).unwrap()), [b"before".to_vec(), b"small".to_vec()]);
}

#[test]
fn a_log_that_cannot_write_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = FullDisk::with(20, dir.path());
    let readiness = Readiness::default();
    disk.shared.readiness.set(readiness.clone()).unwrap();
    for _ in 0..2 {
        disk.commit(vec![vec![record(vec![7; 1_000_000])]]).remove(0).unwrap_err();
        let [line] = readiness.waiting_for().try_into().unwrap();
        assert!(line.starts_with("log: it cannot write: ") && line.contains("full"), "{line}");
    }
    disk.commit(vec![vec![record(b"small".to_vec())]]).remove(0).unwrap();
    assert!(readiness.waiting_for().is_empty());
}

#[test]
fn a_request_that_cannot_be_written_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = FullDisk::with(20, dir.path());
    let small = |text: &str| vec![record(text.into()), record(text.into())];
    let huge = vec![record(vec![7; 1_000_000])];
    let outcomes = disk.commit(vec![small("a"), huge, small("b")]);
    assert!(
        matches!(&outcomes[..], [Ok(()), Err(StepError::Aborted(cause)), Ok(())] if is_full(cause)),
        "{outcomes:?}"
    );
    drop(disk);
    let mut values = values(&open(dir.path()).unwrap());
    values.sort();
    assert_eq!(values, [b"a", b"a", b"b", b"b"]);
}

#[test]
fn a_record_has_a_limit_of_bytes() {
    let (_dir, log) = create();
    let max = committer::RECORD_BYTES_MAX - b"key".len();
    let refused = append(&log, vec![record(vec![0; max + 1])]).unwrap_err();
    assert!(refused.to_string().contains("is too large"), "{refused}");
    append(&log, vec![record(vec![0; max])]).unwrap();
    assert_eq!(log.read(OF, Offset(0), 2).unwrap().len(), 1);
}

/// Changes one row of the closed file as a bad disk would.
fn damage(dir: &Path, sql: &str) {
    let connection = Connection::open(dir.join("log.sqlite")).unwrap();
    assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}");
}

#[test]
fn a_changed_record_is_fatal_and_named() {
    let (dir, log) = create();
    append(&log, vec![record(b"one".to_vec()), record(b"two".to_vec())]).unwrap();
    append(&log, vec![record(b"three".to_vec())]).unwrap();
    drop(log);
    damage(
        dir.path(),
        "UPDATE records SET batch = cast(replace(cast(batch AS TEXT), 'three', 'thrEe') AS BLOB) \
         WHERE instr(batch, 'three') > 0",
    );
    let log = open(dir.path()).unwrap();
    assert_eq!(log.read(OF, Offset(0), 2).unwrap().len(), 2);
    let mut worker = log.worker(spec("g")).unwrap();
    worker.poll(Duration::from_secs(60)).unwrap();
    for error in [
        log.read(OF, Offset(0), 9).unwrap_err(),
        log.read(OF, Offset(2), 9).unwrap_err(),
        worker.poll(Duration::from_secs(60)).unwrap_err(),
        worker.restore(OF, &mut |_| {}).unwrap_err(),
    ] {
        assert_fatal(&error, "the batch of orders/0 at offset 2 is damaged");
    }
}

#[test]
fn a_changed_position_is_refused() {
    for (sql, expected) in [
        ("UPDATE offsets SET next_offset = 7", "the position of g in orders/0 is damaged"),
        (
            "UPDATE partitions SET next_offset = 7 WHERE topic = 'orders' AND partition = 0",
            "the row of the partition orders/0 is damaged",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path()).unwrap();
        append(&log, vec![record(vec![])]).unwrap();
        let committed = Committed { offset: Offset(1), metadata: String::new() };
        let work = Work::Append {
            records: vec![],
            offsets: vec![(OF, committed)],
            author: Author::Group("g"),
        };
        log.handle.shared.queue.submit_blocking(work).unwrap();
        drop(log);
        damage(dir.path(), sql);
        assert_fatal(&open(dir.path()).unwrap_err(), expected);
    }
}

#[test]
fn memory_and_file_give_the_same_records() {
    let (dir, log) = create();
    for n in 0..50_u8 {
        let headers: Headers = [("n", [n].as_slice())].into_iter().collect();
        let records = (0..n % 4).map(|_| NewRecord { headers: headers.clone(), ..record(vec![n]) });
        append(&log, records.collect()).unwrap();
    }
    let pages = |log: &EmbeddedLog| -> Vec<Records> {
        (0..80).map(|from| log.read(OF, Offset(from), 3).unwrap()).collect()
    };
    let live = pages(&log);
    drop(log);
    assert_eq!(pages(&open(dir.path()).unwrap()), live);
}

#[test]
fn the_wal_stays_bounded() {
    let (dir, log) = create();
    let mut tail = log.tail(&[Topic::Orders]).unwrap();
    for n in 0..120 {
        append(&log, vec![record(vec![n; 1024 * 1024])]).unwrap();
        tail.poll(Duration::ZERO).unwrap();
    }
    let wal = std::fs::metadata(dir.path().join("log.sqlite-wal")).unwrap().len();
    assert!(wal < 100 * 1024 * 1024, "the WAL has {wal} bytes");
}

#[test]
fn maintenance_counts_what_it_forgets() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(UnixMicros(0)));
    let log = EmbeddedLog::open(dir.path(), LAYOUT, clock.clone()).unwrap();
    let chains = TopicPartition { topic: Topic::Chains, partition: Partition(3) };
    let progress = NewRecord { to: chains, ..record(vec![]) };
    append(&log, vec![record(vec![]), progress.clone(), progress.clone(), progress]).unwrap();
    clock.advance(Duration::from_secs(92 * 24 * 3600));
    append(&log, vec![record(vec![])]).unwrap();
    assert_eq!(log.maintain().unwrap(), Maintained { expired: 1, compacted: 2 });
    assert_eq!(log.maintain().unwrap(), Maintained::default());
}

/// The clock may jump, or a stage may be down for longer than the retention.
#[test]
fn what_a_group_has_not_read_does_not_expire() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(UnixMicros(0)));
    let log = EmbeddedLog::open(dir.path(), LAYOUT, clock.clone()).unwrap();
    append(&log, vec![record(vec![1]), record(vec![2]), record(vec![3])]).unwrap();
    append(&log, vec![record(vec![4]), record(vec![5])]).unwrap();
    let mut workers = ["first", "second"].map(|group| log.worker(spec(group)).unwrap());
    let mut commit = |number: usize, offset| {
        let worker = &mut workers[number];
        while !matches!(worker.poll(Duration::ZERO).unwrap(), Event::Idle) {}
        let committed = Committed { offset: Offset(offset), metadata: String::new() };
        worker.commit(Step { records: vec![], offsets: vec![(OF, committed)] }).unwrap();
    };
    clock.advance(Duration::from_secs(400 * 24 * 3600));
    let start = || {
        log.maintain().unwrap();
        log.bounds(OF).unwrap().start
    };
    commit(0, 5);
    commit(1, 0);
    assert_eq!(start(), Offset(0));
    commit(1, 2);
    assert_eq!(start(), Offset(0), "a batch goes as a whole");
    commit(1, 4);
    assert_eq!(start(), Offset(3));
    assert_eq!(log.read(OF, Offset(0), 10).unwrap().len(), 2);
    commit(1, 5);
    assert_eq!(start(), Offset(5));
}

#[test]
fn read_only_log_shows_what_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    assert_fatal(&ReadOnlyLog::open(dir.path()).unwrap_err(), "there is no log at");
    let log = open(dir.path()).unwrap();
    append(&log, vec![record(b"one".to_vec()), record(b"two".to_vec())]).unwrap();
    let other = ReadOnlyLog::open(dir.path()).unwrap();
    let values = |other: &ReadOnlyLog, from| -> Vec<_> {
        let page = other.read(OF, Offset(from), 10).unwrap();
        page.iter().map(|record| record.value.clone().unwrap()).collect()
    };
    assert_eq!(values(&other, 0), [b"one", b"two"]);
    append(&log, vec![record(b"new".to_vec())]).unwrap();
    assert_eq!(values(&other, 1), [b"two", b"new"]);
    assert_eq!(other.bounds(OF).unwrap(), log.bounds(OF).unwrap());
    assert_eq!(other.read(OF, Offset(3), 10).unwrap(), []);
    let nowhere = TopicPartition { partition: Partition(9), ..OF };
    assert!(matches!(other.bounds(nowhere), Err(Error::Fatal(_))));
    drop(other);
    log.close();
    let late = ReadOnlyLog::open(dir.path()).unwrap();
    assert_eq!(values(&late, 0), [b"one", b"two", b"new"]);
}

fn is_full(cause: &crate::Cause) -> bool {
    let error = cause.get_ref().and_then(|error| error.downcast_ref::<StorageError>());
    let code = |error: &rusqlite::Error| error.sqlite_error_code();
    matches!(error, Some(StorageError::Sqlite(error)) if code(error) == Some(rusqlite::ErrorCode::DiskFull))
}
