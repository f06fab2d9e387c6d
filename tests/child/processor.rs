//! A processor on Kafka: reports its workers' events on standard output, and takes commands on standard input.

use std::io::{BufRead, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

use log::kafka::{KafkaLog, StepObserver, StepPoint};
use log::{Log, StageContext};
use processor::{run_matching, run_orders};
use runtime::Clock;
use schemas::Layout;
use testkit::MovedClock;
use testkit::log_suite::on_kafka;
use testkit::observed::{Bug, Observer, Report, What, observed};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const MATCHING: &str = "processor.matching";
const ORDERS: &str = "processor.orders";

/// Arguments of the process.
pub(crate) struct Role<'a> {
    pub(crate) brokers: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) member: &'a str,
    pub(crate) bug: Bug,
    /// Hours by which its clock is ahead.
    pub(crate) hours: i64,
    pub(crate) session_seconds: u64,
}

/// Holds a worker at a point of its step.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Group, point, and the number of passages left.
    requested: Option<(String, String, u32)>,
    is_held: bool,
    is_open: bool,
}

impl Gate {
    fn execute(&self, command: &str) {
        let mut state = self.state.lock().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["hold", group, point, count] => {
                let count = count.parse().unwrap();
                state.requested = Some((group.to_owned(), point.to_owned(), count));
            }
            ["release"] => state.is_held = false,
            _ => panic!("no such command: {command}"),
        }
        self.changed.notify_all();
    }

    /// Holds nothing from now on.
    fn open(&self) {
        let mut state = self.state.lock().unwrap();
        (state.requested, state.is_held, state.is_open) = (None, false, true);
        self.changed.notify_all();
    }
}

impl Observer for Gate {
    fn report(&self, report: &Report) {
        let mut out = std::io::stdout().lock();
        // The reading test may have ended.
        drop(writeln!(out, "\n{}", report.line()).and_then(|()| out.flush()));
    }

    fn reached(&self, group: &str, point: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        let State { requested: Some((wanted_group, wanted_point, count)), is_open: false, .. } =
            &mut *state
        else {
            return true;
        };
        if (&**wanted_group, &**wanted_point) != (group, point) {
            return true;
        }
        *count -= 1;
        if *count > 0 {
            return true;
        }
        (state.requested, state.is_held) = (None, true);
        self.report(&Report::new(What::Held, group, point));
        drop(self.changed.wait_while(state, |state| state.is_held).unwrap());
        true
    }
}

/// The points of one machine's steps.
struct Points {
    gate: Arc<Gate>,
    group: &'static str,
}

impl StepObserver for Points {
    fn reached(&self, point: StepPoint) {
        self.gate.reached(self.group, &format!("{point:?}"));
    }
}

/// Runs both machines until the end of the input, or until one of them fails.
pub(crate) fn run(role: &Role<'_>, layout: Layout) {
    let telemetry = runtime::telemetry::Config {
        listen: None,
        // The load has forks that come too late, so their alerts are expected.
        filter: "info,processor::alert=off".to_owned(),
        json: false,
        otlp: None,
    };
    runtime::telemetry::init_log(&telemetry).unwrap();
    let gate = Arc::new(Gate::default());
    let stop = CancellationToken::new();
    let (reader_gate, reader_stop) = (gate.clone(), stop.clone());
    std::thread::spawn(move || {
        for command in std::io::stdin().lock().lines().map_while(Result::ok) {
            reader_gate.execute(&command);
        }
        reader_gate.open();
        reader_stop.cancel();
    });
    std::thread::scope(|scope| {
        scope.spawn(|| run_machine(MATCHING, role, layout, &gate, &stop));
        scope.spawn(|| run_machine(ORDERS, role, layout, &gate, &stop));
    });
}

fn run_machine(
    group: &'static str,
    role: &Role<'_>,
    layout: Layout,
    gate: &Arc<Gate>,
    stop: &CancellationToken,
) {
    let config = on_kafka::crash_config(role.brokers, role.prefix, role.session_seconds);
    let points = Arc::new(Points { gate: gate.clone(), group });
    let log = KafkaLog::open(&config, layout).unwrap().with_observer(points);
    let log: Arc<dyn Log> = observed(Arc::new(log), gate.clone(), role.bug);
    let clock = MovedClock::default();
    clock.0.store(role.hours * 3600 * 1_000_000, Ordering::SeqCst);
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let machine = if group == MATCHING { run_matching } else { run_orders };
    let (runtime, member) = (Runtime::new().unwrap(), role.member.to_owned());
    let (handle, stopped) = (runtime.handle().clone(), stop.clone());
    let outcome = machine(&StageContext { log, clock, member, handle, stop: stopped });
    let outcome = outcome.map_or_else(|error| error.to_string(), |()| "well".to_owned());
    gate.report(&Report::new(What::Ended, group, &outcome));
    // One machine that ends stops the whole process, which a supervisor restarts.
    gate.open();
    stop.cancel();
}
