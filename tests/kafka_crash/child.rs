//! A processor as a process of its own: this test's executable, started again. It tells on standard
//! output what its workers do, and takes orders on standard input.

use std::io::{BufRead, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use log::Log;
use log::config::{KafkaConfig, KafkaSecurity};
use log::kafka::{KafkaLog, StepObserver, StepPoint};
use processor::{run_matching, run_orders};
use runtime::Clock;
use tokio_util::sync::CancellationToken;

use crate::LAYOUT;
use crate::clock::MovedClock;
use crate::watched::{Bug, News, Witness, watched};

/// Tells a child what it is. In a process without it the child's test does nothing.
pub(crate) const CHILD: &str = "TIDEMARK_TEST_PROCESSOR";
pub(crate) const MATCHING: &str = "processor.matching";
pub(crate) const ORDERS: &str = "processor.orders";

/// What a child is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) brokers: String,
    pub(crate) prefix: String,
    pub(crate) member: String,
    pub(crate) bug: Bug,
    /// By how many hours its clock is ahead.
    pub(crate) hours: i64,
}

impl Role {
    pub(crate) fn line(&self) -> String {
        let Self { brokers, prefix, member, bug, hours } = self;
        format!("{brokers} {prefix} {member} {bug:?} {hours}")
    }

    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [brokers, prefix, member, bug, hours] = words[..] else { panic!("{line}") };
        Self {
            brokers: brokers.to_owned(),
            prefix: prefix.to_owned(),
            member: member.to_owned(),
            bug: Bug::parse(bug),
            hours: hours.parse().unwrap(),
        }
    }
}

/// How everybody here reaches Kafka. Sessions are short: a test waits for them to end.
pub(crate) fn kafka_config(brokers: &str, prefix: &str) -> KafkaConfig {
    KafkaConfig {
        brokers: brokers.to_owned(),
        prefix: prefix.to_owned(),
        replication: 1,
        session_timeout: Duration::from_secs(3),
        transaction_timeout: Duration::from_secs(2),
        security: KafkaSecurity::default(),
    }
}

/// Where a worker can be made to wait.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Group, point, and how often it may still be reached.
    armed: Option<(String, String, u32)>,
    is_held: bool,
    is_open: bool,
}

impl Gate {
    /// Takes an order.
    fn obey(&self, order: &str) {
        let mut state = self.state.lock().unwrap();
        let words: Vec<&str> = order.split(' ').collect();
        match words[..] {
            ["arm", group, point, count] => {
                let count = count.parse().unwrap();
                state.armed = Some((group.to_owned(), point.to_owned(), count));
            }
            ["go"] => state.is_held = false,
            _ => panic!("no such order: {order}"),
        }
        self.changed.notify_all();
    }

    /// Lets everybody through from now on.
    fn open(&self) {
        let mut state = self.state.lock().unwrap();
        (state.armed, state.is_held, state.is_open) = (None, false, true);
        self.changed.notify_all();
    }
}

impl Witness for Gate {
    fn tell(&self, news: &News) {
        let mut out = std::io::stdout().lock();
        // Without a reader there is nobody to tell.
        drop(writeln!(out, "\n{}", news.line()).and_then(|()| out.flush()));
    }

    fn reached(&self, group: &str, point: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        let State { armed: Some((armed_group, armed_point, count)), is_open: false, .. } =
            &mut *state
        else {
            return true;
        };
        if (&**armed_group, &**armed_point) != (group, point) {
            return true;
        }
        *count -= 1;
        if *count > 0 {
            return true;
        }
        (state.armed, state.is_held) = (None, true);
        self.tell(&News::At(group.to_owned(), point.to_owned()));
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

/// The child of the other tests of this file's neighbours: both machines, until told otherwise.
#[test]
fn child_runs_the_processor() {
    let Some(role) = std::env::var_os(CHILD) else { return };
    let role = Role::parse(&role.into_string().unwrap());
    let telemetry = runtime::telemetry::Config {
        listen: None,
        // Forks that come too late are part of the shop's life.
        filter: "info,processor::alert=off".to_owned(),
        json: false,
    };
    runtime::telemetry::init_log(&telemetry).unwrap();
    let gate = Arc::new(Gate::default());
    let stop = CancellationToken::new();
    let ears = (gate.clone(), stop.clone());
    std::thread::spawn(move || {
        let (gate, stop) = ears;
        for order in std::io::stdin().lock().lines().map_while(Result::ok) {
            gate.obey(&order);
        }
        // The end of the input is the order to stop.
        gate.open();
        stop.cancel();
    });
    std::thread::scope(|scope| {
        scope.spawn(|| run(MATCHING, &role, &gate, &stop));
        scope.spawn(|| run(ORDERS, &role, &gate, &stop));
    });
}

fn run(group: &'static str, role: &Role, gate: &Arc<Gate>, stop: &CancellationToken) {
    let config = kafka_config(&role.brokers, &role.prefix);
    let points = Arc::new(Points { gate: gate.clone(), group });
    let log = KafkaLog::open(&config, LAYOUT).unwrap().with_observer(points);
    let log: Arc<dyn Log> = Arc::new(log);
    let log = watched(log, gate.clone(), role.bug);
    let clock = MovedClock::default();
    clock.0.store(role.hours * 3600 * 1_000_000, Ordering::SeqCst);
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let machine = if group == MATCHING { run_matching } else { run_orders };
    let outcome = machine(&log, &clock, &role.member, stop);
    let outcome = outcome.map_or_else(|error| error.to_string(), |()| "well".to_owned());
    gate.tell(&News::Ended(group.to_owned(), outcome));
    // A process whose machine failed ends, and is started again by whoever watches over it.
    gate.open();
    stop.cancel();
}

#[test]
fn a_role_comes_back_as_it_was_given() {
    let role = Role {
        brokers: "127.0.0.1:9092".to_owned(),
        prefix: "t.".to_owned(),
        member: "a".to_owned(),
        bug: Bug::OffsetsFirst,
        hours: 10,
    };
    assert_eq!(Role::parse(&role.line()), role);
}
