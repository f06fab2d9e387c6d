//! The checker itself, on a log that needs no broker: it explains a good run, and finds every flaw.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::embedded::EmbeddedLog;
use log::{Log, Offset, TopicPartition};
use oracle::fold::{FlawKind, Reading, committed, explain};
use processor::{run_matching, run_orders};
use runtime::{Clock, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::LAYOUT;
use crate::clock::MovedClock;
use crate::load::Shop;
use crate::verdict::{counts, flaws_are_found, judge};
use crate::watched::{BETWEEN_ANSWERS, Bug, News, Witness, watched};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long nothing may have happened before all timers were looked at.
const CALM: Duration = Duration::from_millis(500);

/// Remembers how far the groups are, and lets a worker die between two halves of a step.
#[derive(Default)]
struct Notes {
    positions: Mutex<BTreeMap<TopicPartition, Offset>>,
    /// How often the point may still be passed.
    lives: AtomicU32,
}

impl Witness for Notes {
    fn tell(&self, news: &News) {
        if let News::Taken(_, at) | News::Assigned(_, at) = news {
            self.positions.lock().unwrap().extend(at);
        }
    }

    fn reached(&self, _group: &str, point: &str) -> bool {
        assert_eq!(point, BETWEEN_ANSWERS);
        let one_less = |lives: u32| lives.checked_sub(1);
        self.lives.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) != Ok(1)
    }
}

/// Both machines as threads.
struct Processor {
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

type Machine =
    fn(&Arc<dyn Log>, &Arc<dyn Clock>, &str, &CancellationToken) -> Result<(), processor::Error>;

impl Processor {
    fn start(log: &Arc<dyn Log>, clock: &Arc<dyn Clock>) -> Self {
        let stop = CancellationToken::new();
        let spawn = |machine: Machine| {
            let (log, clock, stop) = (log.clone(), clock.clone(), stop.clone());
            std::thread::spawn(move || {
                // A worker that died is started again, as a supervisor would.
                while machine(&log, &clock, "a", &stop).is_err() {}
            })
        };
        let threads = vec![spawn(run_matching), spawn(run_orders)];
        Self { stop, threads }
    }

    fn stop(self) {
        self.stop.cancel();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A shop on an embedded log, from the first order until every window has ended.
struct Run {
    _dir: tempfile::TempDir,
    log: EmbeddedLog,
    shop: Shop,
}

impl Run {
    fn new(rounds: usize, bug: Bug, lives: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
        let plain: Arc<dyn Log> = Arc::new(log.clone());
        let notes = Arc::new(Notes { lives: AtomicU32::new(lives), ..Notes::default() });
        let moved = Arc::new(MovedClock::default());
        let clock: Arc<dyn Clock> = moved.clone();
        let watched = watched(plain.clone(), notes.clone(), bug);
        let mut processor = Processor::start(&watched, &clock);
        let mut shop = Shop::open(plain, 7);
        for _ in 0..rounds {
            shop.trade();
        }
        shop.pass_all_windows();
        moved.0.store(10 * 3600 * 1_000_000, Ordering::SeqCst);
        loop {
            wait_until_taken(&log, &notes);
            shop.pass_all_windows();
            wait_until_taken(&log, &notes);
            processor.stop();
            // A timer that was due at the last moment needs another day.
            if is_all_taken(&log, &notes) {
                break;
            }
            processor = Processor::start(&watched, &clock);
        }
        Self { _dir: dir, log, shop }
    }
}

fn is_all_taken(log: &EmbeddedLog, notes: &Notes) -> bool {
    let positions = notes.positions.lock().unwrap().clone();
    Reading::of(log).unwrap().is_taken(&positions)
}

fn wait_until_taken(log: &EmbeddedLog, notes: &Notes) {
    let begun = Instant::now();
    let mut calm = Instant::now();
    while calm.elapsed() < CALM {
        if !is_all_taken(log, notes) {
            calm = Instant::now();
        }
        assert!(begun.elapsed() < PATIENCE, "the processor does not go on");
    }
}

#[test]
fn a_good_run_is_explained_and_flaws_are_found() {
    let run = Run::new(60, Bug::None, 0);
    let begun = Instant::now();
    let reading = Reading::of(&run.log).unwrap();
    let committed = committed(&run.log, PATIENCE).unwrap();
    let explanation = judge(&run.shop, &reading, &committed);
    println!(
        "{} transfers, {} inputs, {} outputs explained in {:?}: {:?}",
        run.shop.transfers(),
        explanation.inputs(),
        explanation.outputs,
        begun.elapsed(),
        counts(&reading)
    );
    flaws_are_found(&reading, &committed);
}

#[test]
fn offsets_committed_before_the_outputs_lose_them() {
    let run = Run::new(12, Bug::OffsetsFirst, 3);
    let reading = Reading::of(&run.log).unwrap();
    let flaw = explain(&reading, &committed(&run.log, PATIENCE).unwrap()).unwrap_err();
    assert_eq!(flaw.kind, FlawKind::Lost, "{flaw}");
    println!("{flaw:.400}");
}

#[test]
fn offsets_committed_after_the_outputs_double_them() {
    let run = Run::new(12, Bug::OffsetsLast, 3);
    let reading = Reading::of(&run.log).unwrap();
    let flaw = explain(&reading, &committed(&run.log, PATIENCE).unwrap()).unwrap_err();
    assert_eq!(flaw.kind, FlawKind::Doubled, "{flaw}");
    println!("{flaw:.400}");
}
