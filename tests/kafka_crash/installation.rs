//! Separate topics on a broker, processors as processes, and their reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use log::config::KafkaConfig;
use log::kafka::{KafkaLog, admin};
use log::{Error, Log, Offset, TopicPartition};
use oracle::fold::{Positions, Reading, committed};
use oracle::load::Shop;
use schemas::{Partition, Topic};
use tempfile::TempDir;
use testkit::DEADLINE;
use testkit::log_suite::on_kafka::crash_config;
use testkit::observed::{Bug, Report, What};
use testkit::process::signal;
use uuid::Uuid;

use crate::{LAYOUT, MATCHING, ORDERS, SESSION};

/// The load pauses while more inputs than this wait.
const BACKLOG_MAX: i64 = 600;
/// Time without activity after which every timer has been checked.
const QUIET: Duration = Duration::from_secs(1);
/// Timeout of one poll for reports.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Hours by which the clocks of the last processors are ahead, so that every timer is due: orders
/// that have ended are forgotten after a week.
const HOURS_AHEAD: i64 = 9 * 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessId(usize);

struct Process {
    child: Child,
    commands: Option<ChildStdin>,
    member: String,
    /// Partitions that it owns, of both groups.
    owned: BTreeSet<TopicPartition>,
    /// Everything it reported, in order.
    reports: Vec<Report>,
    /// Number of reports when a hold was last requested.
    reports_before_hold: usize,
    is_gone: bool,
}

/// One installation on a broker.
pub(crate) struct Installation {
    config: KafkaConfig,
    pub(crate) log: Arc<dyn Log>,
    processes: BTreeMap<ProcessId, Process>,
    session_seconds: u64,
    reports: Receiver<(ProcessId, Option<Report>)>,
    reporter: Sender<(ProcessId, Option<Report>)>,
    /// Positions of the groups, as far as reported.
    positions: Positions,
    /// Logs of the processes.
    logs: TempDir,
}

impl Installation {
    /// New topics on the broker.
    pub(crate) fn new(brokers: &str) -> Self {
        Self::with_session(brokers, SESSION)
    }

    /// With another session time-out, in seconds.
    pub(crate) fn with_session(brokers: &str, session_seconds: u64) -> Self {
        let prefix = format!("crash-{}.", Uuid::new_v4().simple());
        let config = crash_config(brokers, &prefix, session_seconds);
        retry(|| admin::create_topics(&config, &LAYOUT));
        let log = Arc::new(KafkaLog::open(&config, LAYOUT).unwrap());
        // New topics have no leaders for a moment.
        let all = |topic: &Topic| topic.all_partitions(&LAYOUT).collect::<Vec<_>>();
        for (topic, partition) in
            Topic::ALL.iter().flat_map(|t| all(t).into_iter().map(|p| (*t, p)))
        {
            retry(|| log.bounds(TopicPartition { topic, partition }));
        }
        let (reporter, reports) = channel();
        let (processes, positions) = (BTreeMap::new(), Positions::new());
        let logs = tempfile::tempdir().unwrap();
        Self { config, log, processes, session_seconds, reports, reporter, positions, logs }
    }

    pub(crate) fn start(&mut self, member: &str) -> ProcessId {
        self.start_as(member, Bug::None, 0)
    }

    pub(crate) fn start_as(&mut self, member: &str, bug: Bug, hours: i64) -> ProcessId {
        let id = ProcessId(self.processes.len());
        let KafkaConfig { brokers, prefix, .. } = &self.config;
        let (bug, hours) = (format!("{bug:?}"), hours.to_string());
        let log = File::create(self.logs.path().join(format!("{}-{member}", id.0))).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_child"))
            .args(["processor", brokers, prefix, member, &bug, &hours])
            .arg(self.session_seconds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (commands, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let reporter = self.reporter.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(report) = Report::parse(&line)
                    && reporter.send((id, Some(report))).is_err()
                {
                    return;
                }
            }
            // The receiver is gone once the test is over.
            drop(reporter.send((id, None)));
        });
        let process = Process {
            child,
            commands,
            member: member.to_owned(),
            owned: BTreeSet::new(),
            reports: Vec::new(),
            reports_before_hold: 0,
            is_gone: false,
        };
        self.processes.insert(id, process);
        id
    }

    fn process(&mut self, id: ProcessId) -> &mut Process {
        self.processes.get_mut(&id).expect("it was started")
    }

    fn send(&mut self, id: ProcessId, command: &str) {
        let commands = self.process(id).commands.as_mut().expect("it takes commands");
        writeln!(commands, "{command}").unwrap();
        commands.flush().unwrap();
    }

    /// Requests a hold at this point of a step, at the `count`-th passage from now.
    pub(crate) fn request_hold(&mut self, id: ProcessId, group: &str, point: &str, count: u32) {
        self.process(id).reports_before_hold = self.report_count(id);
        self.send(id, &format!("hold {group} {point} {count}"));
    }

    pub(crate) fn release(&mut self, id: ProcessId) {
        self.send(id, "release");
    }

    pub(crate) fn kill(&mut self, id: ProcessId) {
        let process = self.process(id);
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        process.owned.clear();
    }

    /// Suspends every thread of a process: the signal reaches them one by one, and a thread that still
    /// runs could finish a step.
    pub(crate) fn suspend(&mut self, id: ProcessId) {
        signal(self.process(id).child.id(), "STOP");
        let tasks = format!("/proc/{}/task", self.process(id).child.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state comes after the name, which is in brackets and may hold anything.
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        self.wait_until("a processor to be suspended", |_| {
            std::fs::read_dir(&tasks).unwrap().flatten().all(is_stopped)
        });
    }

    pub(crate) fn resume(&mut self, id: ProcessId) {
        signal(self.process(id).child.id(), "CONT");
    }

    /// Closes its input, which makes it stop in order, and waits for its end.
    pub(crate) fn stop(&mut self, id: ProcessId) {
        self.process(id).commands = None;
        self.wait_until("a processor to stop", |this| this.is_gone(id));
        let status = self.process(id).child.wait().unwrap();
        assert!(status.success(), "{}", self.summary());
        self.process(id).owned.clear();
    }

    pub(crate) fn is_gone(&self, id: ProcessId) -> bool {
        self.processes[&id].is_gone
    }

    pub(crate) fn report_count(&self, id: ProcessId) -> usize {
        self.processes[&id].reports.len()
    }

    /// Reports of a process after the first `count`.
    pub(crate) fn reports_since(&self, id: ProcessId, count: usize) -> &[Report] {
        &self.processes[&id].reports[count..]
    }

    /// `true` if it is held at the requested point, in a step of this group.
    pub(crate) fn is_at(&self, id: ProcessId, group: &str) -> bool {
        let since = self.reports_since(id, self.processes[&id].reports_before_hold);
        since.iter().any(|report| report.what == What::Held && report.group == group)
    }

    /// Number of input partitions of a group that it owns.
    pub(crate) fn owned(&self, id: ProcessId, group: &str) -> usize {
        let is_of = |of: &&TopicPartition| inputs(group).contains(&of.topic);
        self.processes[&id].owned.iter().filter(is_of).count()
    }

    /// `true` if it owns partitions of both groups.
    pub(crate) fn works(&self, id: ProcessId) -> bool {
        self.owned(id, MATCHING) > 0 && self.owned(id, ORDERS) > 0
    }

    /// `true` if it owns all partitions of both groups.
    pub(crate) fn owns_all(&self, id: ProcessId) -> bool {
        let partitions = |topic: &Topic| topic.all_partitions(&LAYOUT).count();
        let all = |group| inputs(group).iter().map(partitions).sum::<usize>();
        self.owned(id, MATCHING) == all(MATCHING) && self.owned(id, ORDERS) == all(ORDERS)
    }

    /// Trades until a condition holds.
    pub(crate) fn trade_until(&mut self, shop: &mut Shop, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.receive(Duration::ZERO);
            if is(self) {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}\n{}", self.summary());
            if self.backlog() < BACKLOG_MAX {
                shop.trade();
            } else {
                self.receive(POLL_INTERVAL);
            }
        }
    }

    /// Waits until a condition holds, without trade.
    pub(crate) fn wait_until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.receive(POLL_INTERVAL);
            if is(self) {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}\n{}", self.summary());
        }
    }

    /// Trades as fast as the processors follow.
    pub(crate) fn trade(&mut self, shop: &mut Shop, rounds: usize) {
        for _ in 0..rounds {
            self.wait_until("the processors to follow", |this| this.backlog() < BACKLOG_MAX);
            shop.trade();
            self.receive(Duration::ZERO);
        }
    }

    /// Trades for these rounds, each at least `interval` long.
    pub(crate) fn trade_slowly(&mut self, shop: &mut Shop, rounds: u32, interval: Duration) {
        for _ in 0..rounds {
            let begun = Instant::now();
            shop.trade();
            while begun.elapsed() < interval {
                self.receive(POLL_INTERVAL);
            }
        }
    }

    /// Receives queued reports, waiting only for the first.
    fn receive(&mut self, timeout: Duration) {
        let mut next = self.reports.recv_timeout(timeout);
        while let Ok((id, report)) = next {
            self.apply(id, report);
            next = self.reports.recv_timeout(Duration::ZERO);
        }
        assert_ne!(next, Err(RecvTimeoutError::Disconnected), "we hold a sender");
    }

    fn apply(&mut self, id: ProcessId, report: Option<Report>) {
        let Some(report) = report else {
            self.process(id).is_gone = true;
            return;
        };
        let Report { what, group, positions, text } = &report;
        match what {
            What::Assigned => {
                self.process(id).owned.extend(positions.keys());
                self.advance(positions);
            }
            What::Committed => self.advance(positions),
            What::Revoked => self.process(id).owned.retain(|of| !positions.contains_key(of)),
            // A fenced member loses its partitions without revocation.
            What::Failed if text.contains("fenced") => {
                let inputs = inputs(group);
                self.process(id).owned.retain(|of| !inputs.contains(&of.topic));
            }
            What::Failed | What::Held | What::Ended => {}
        }
        self.process(id).reports.push(report);
    }

    fn advance(&mut self, at: &BTreeMap<TopicPartition, Offset>) {
        for (of, offset) in at {
            let known = self.positions.entry(*of).or_default();
            *known = (*known).max(*offset);
        }
    }

    /// Approximate number of inputs that wait, by the ends of the partitions.
    fn backlog(&self) -> i64 {
        let behind = |of: TopicPartition| match self.log.bounds(of) {
            Ok(bounds) => bounds.end.0 - self.positions.get(&of).map_or(0, |at| at.0),
            Err(Error::Transient(_)) => 0,
            Err(error) => panic!("{error}"),
        };
        input_partitions().map(behind).sum()
    }

    /// `true` if every input is committed, as far as reported.
    fn is_all_taken(&self) -> bool {
        input_partitions().all(|of| {
            let next = self.positions.get(&of).copied().unwrap_or_default();
            matches!(self.log.read(of, next, 1), Ok(records) if records.is_empty())
        })
    }

    fn wait_until_all_is_taken(&mut self) {
        let mut quiet = Duration::ZERO;
        while quiet < QUIET {
            self.wait_until("all inputs to be taken", Self::is_all_taken);
            let begun = Instant::now();
            while quiet < QUIET && self.is_all_taken() {
                self.receive(POLL_INTERVAL);
                quiet = begun.elapsed();
            }
        }
    }

    /// Replaces the running processors by ones whose clocks are ahead, until every window of the shop has ended. Stops
    /// all, and returns an audit.
    pub(crate) fn finish(&mut self, shop: &mut Shop, running: &[ProcessId]) -> Audit {
        shop.pass_all_windows();
        let members: Vec<_> = running.iter().map(|id| self.process(*id).member.clone()).collect();
        running.iter().for_each(|id| self.stop(*id));
        loop {
            let start = |this: &mut Self, name| this.start_as(name, Bug::None, HOURS_AHEAD);
            let ahead: Vec<_> = members.iter().map(|name| start(self, name)).collect();
            self.wait_until_all_is_taken();
            shop.ask_about_ended();
            // Deposits and settles that began meanwhile end only with a further head.
            shop.pass_all_windows();
            self.wait_until_all_is_taken();
            ahead.iter().for_each(|id| self.stop(*id));
            let audit = self.audit();
            // A timer that became due meanwhile needs another round.
            if audit.reading.is_taken(&audit.committed) {
                return audit;
            }
        }
    }

    /// Reads the log, and the positions of the groups. No processor may run.
    pub(crate) fn audit(&self) -> Audit {
        let committed = committed(&*self.log, DEADLINE).unwrap();
        Audit { committed, reading: Reading::of(&*self.log).unwrap() }
    }

    /// The last reports and log lines of each process.
    fn summary(&self) -> String {
        let mut text = String::new();
        for (id, process) in &self.processes {
            if process.reports.is_empty() && process.is_gone {
                continue;
            }
            text.push_str(&format!("{id:?} ({}):\n", process.member));
            for group in [MATCHING, ORDERS] {
                let of_group = process.reports.iter().filter(|report| report.group == group);
                let mut last: Vec<_> = of_group.rev().take(4).map(Report::line).collect();
                last.reverse();
                last.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
            }
            let log = self.logs.path().join(format!("{}-{}", id.0, process.member));
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let last = log.lines().rev().take(30).collect::<Vec<_>>();
            last.iter().rev().for_each(|line| text.push_str(&format!("  ! {line}\n")));
        }
        text
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.summary());
        }
        for process in self.processes.values_mut() {
            drop(process.child.kill());
            drop(process.child.wait());
        }
        // After a failure the broker may be down.
        if !std::thread::panicking() {
            admin::delete_topics(&self.config, &LAYOUT, &Topic::ALL).unwrap();
        }
    }
}

/// Retries while the broker is not ready.
fn retry<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(begun.elapsed() < DEADLINE, "{error}"),
        }
    }
}

/// Contents of the log, and positions of the groups.
pub(crate) struct Audit {
    pub(crate) committed: Positions,
    pub(crate) reading: Reading,
}

fn inputs(group: &str) -> &'static [Topic] {
    if group == ORDERS {
        &[Topic::OrdersCommands]
    } else {
        &[Topic::TransfersRaw, Topic::DepositsCommands]
    }
}

fn input_partitions() -> impl Iterator<Item = TopicPartition> {
    let of = |topic: &'static Topic| {
        let place = |partition: Partition| TopicPartition { topic: *topic, partition };
        topic.all_partitions(&LAYOUT).map(place)
    };
    [MATCHING, ORDERS].into_iter().flat_map(inputs).flat_map(of)
}
