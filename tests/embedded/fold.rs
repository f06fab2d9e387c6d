//! Tests of the fold (`oracle/src/fold.rs`) on the embedded log: it accepts a correct run and finds every flaw.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::embedded::EmbeddedLog;
use log::{Log, StageContext};
use oracle::fold::{FlawKind, Reading, committed, explain};
use oracle::load::Shop;
use oracle::verdict::{Seldom, counts, flaws_are_found, judge};
use processor::{run_matching, run_orders};
use runtime::{Clock, SystemClock};
use testkit::log_suite::on_kafka::CRASH_LAYOUT as LAYOUT;
use testkit::observed::{Bug, Progress, observed};
use testkit::{DEADLINE, MovedClock, wait_until};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Time without activity after which every timer has been checked.
const QUIET: Duration = Duration::from_millis(500);

/// Both machines as threads.
struct Processor {
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

type Machine = fn(&StageContext) -> Result<(), processor::Error>;

impl Processor {
    fn start(log: &Arc<dyn Log>, clock: &Arc<dyn Clock>) -> Self {
        let (stop, runtime) = (CancellationToken::new(), Runtime::new().unwrap());
        let context = StageContext {
            log: log.clone(),
            clock: clock.clone(),
            member: "a".to_owned(),
            handle: runtime.handle().clone(),
            stop: stop.clone(),
        };
        let spawn = |machine: Machine| {
            let context = context.clone();
            std::thread::spawn(move || {
                // A worker that died is restarted, as by a supervisor.
                while machine(&context).is_err() {}
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
pub(super) struct Run {
    pub(super) dir: tempfile::TempDir,
    pub(super) log: EmbeddedLog,
    shop: Shop,
    progress: Arc<Progress>,
    moved: Arc<MovedClock>,
}

impl Run {
    pub(super) fn new(rounds: usize, bug: Bug, dies_at: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
        let plain: Arc<dyn Log> = Arc::new(log.clone());
        let progress =
            Arc::new(Progress { passages: AtomicU32::new(dies_at), ..Progress::default() });
        let moved = Arc::new(MovedClock::default());
        let shop = Shop::open(plain, 7);
        let mut run = Self { dir, log, shop, progress, moved };
        run.trade(rounds, bug);
        run
    }

    /// Lets the shop trade, until every window has ended.
    pub(super) fn trade(&mut self, rounds: usize, bug: Bug) {
        let Self { log, shop, progress, moved, .. } = self;
        let clock: Arc<dyn Clock> = moved.clone();
        let observed = observed(Arc::new(log.clone()), progress.clone(), bug);
        let mut processor = Processor::start(&observed, &clock);
        for _ in 0..rounds {
            shop.trade();
        }
        shop.pass_all_windows();
        // Long enough that ended orders are forgotten.
        moved.0.fetch_add(10 * 24 * 3600 * 1_000_000, Ordering::SeqCst);
        loop {
            wait_until_taken(log, progress);
            shop.ask_about_ended();
            shop.pass_all_windows();
            wait_until_taken(log, progress);
            processor.stop();
            // A timer that became due meanwhile needs another round.
            if is_all_taken(log, progress) {
                break;
            }
            processor = Processor::start(&observed, &clock);
        }
    }
}

fn is_all_taken(log: &EmbeddedLog, progress: &Progress) -> bool {
    let positions = progress.positions.lock().unwrap().clone();
    Reading::of(log).unwrap().is_taken(&positions)
}

fn wait_until_taken(log: &EmbeddedLog, progress: &Progress) {
    let mut quiet_since = Instant::now();
    wait_until("the processor has taken everything", || {
        if !is_all_taken(log, progress) {
            quiet_since = Instant::now();
        }
        quiet_since.elapsed() >= QUIET
    });
}

#[test]
fn a_good_run_is_explained() {
    let run = Run::new(60, Bug::None, 0);
    let begun = Instant::now();
    let reading = Reading::of(&run.log).unwrap();
    let committed = committed(&run.log, DEADLINE).unwrap();
    let explanation = judge(&run.shop, &reading, &committed);
    let seldom = Seldom::of(&reading);
    println!(
        "{} transfers, {} inputs, {} outputs explained in {:?}: {:?}, {seldom:?}",
        run.shop.transfers(),
        explanation.inputs(),
        explanation.causes.len(),
        begun.elapsed(),
        counts(&reading)
    );
    let Seldom { own_money, unavailable: _, revived, late, attached } = seldom;
    assert!(own_money > 0 && revived > 0 && late > 0 && attached > 0, "{seldom:?}");
    flaws_are_found(&reading, &committed);
}

#[test]
fn offsets_before_outputs_lose_them() {
    let run = Run::new(12, Bug::OffsetsFirst, 3);
    let reading = Reading::of(&run.log).unwrap();
    let flaw = explain(&reading, &committed(&run.log, DEADLINE).unwrap()).unwrap_err();
    // Lost state changes the outputs of later inputs, which may be found first.
    assert!(matches!(flaw.kind, FlawKind::Lost | FlawKind::Changed), "{flaw}");
    println!("{flaw:.400}");
}

#[test]
fn offsets_after_outputs_double_them() {
    let run = Run::new(12, Bug::OffsetsLast, 3);
    let reading = Reading::of(&run.log).unwrap();
    let flaw = explain(&reading, &committed(&run.log, DEADLINE).unwrap()).unwrap_err();
    assert_eq!(flaw.kind, FlawKind::Doubled, "{flaw}");
    println!("{flaw:.400}");
}
