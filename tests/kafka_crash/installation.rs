//! Topics of their own on a broker, processors as processes, and what is known of them.

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
use schemas::{Partition, Topic};
use tempfile::TempDir;
use uuid::Uuid;

use crate::LAYOUT;
use crate::child::{CHILD, MATCHING, ORDERS, Role, kafka_config};
use crate::load::Shop;
use crate::watched::{Bug, News};

/// How long anything may take; longer than a call may that does not return.
const PATIENCE: Duration = Duration::from_secs(120);
/// The shop stops trading while so many inputs wait.
const BACKLOG_MAX: i64 = 600;
/// How long nothing may have happened before all timers were looked at.
const CALM: Duration = Duration::from_secs(1);
/// How long one look for news takes.
const LOOK: Duration = Duration::from_millis(20);
/// How many hours ahead the clocks of the last processors are, so that every timer is due.
const HOURS_AHEAD: i64 = 10;

/// Which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessId(usize);

/// A processor.
struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    member: String,
    /// What it owns, of both groups.
    owned: BTreeSet<TopicPartition>,
    /// Everything it told, in order.
    told: Vec<News>,
    /// How much it had told when it was last asked to wait.
    told_before: usize,
    is_gone: bool,
}

/// One installation on a broker.
pub(crate) struct Installation {
    config: KafkaConfig,
    pub(crate) log: Arc<dyn Log>,
    processes: BTreeMap<ProcessId, Process>,
    news: Receiver<(ProcessId, Option<News>)>,
    teller: Sender<(ProcessId, Option<News>)>,
    /// How far the groups are, as far as somebody told.
    positions: Positions,
    notes: TempDir,
}

impl Installation {
    /// New topics on the broker.
    pub(crate) fn new(brokers: &str) -> Self {
        let config = kafka_config(brokers, &format!("crash-{}.", Uuid::new_v4().simple()));
        insist(|| admin::create_topics(&config, &LAYOUT));
        let log = Arc::new(KafkaLog::open(&config, LAYOUT).unwrap());
        // New topics have no leaders for a moment.
        let all = |topic: &Topic| topic.all_partitions(&LAYOUT).collect::<Vec<_>>();
        for (topic, partition) in
            Topic::ALL.iter().flat_map(|t| all(t).into_iter().map(|p| (*t, p)))
        {
            insist(|| log.bounds(TopicPartition { topic, partition }));
        }
        let (teller, news) = channel();
        let (processes, positions) = (BTreeMap::new(), Positions::new());
        let notes = tempfile::tempdir().unwrap();
        Self { config, log, processes, news, teller, positions, notes }
    }

    pub(crate) fn start(&mut self, member: &str) -> ProcessId {
        self.start_as(member, Bug::None, 0)
    }

    /// Starts a processor.
    pub(crate) fn start_as(&mut self, member: &str, bug: Bug, hours: i64) -> ProcessId {
        let id = ProcessId(self.processes.len());
        let (brokers, prefix) = (self.config.brokers.clone(), self.config.prefix.clone());
        let role = Role { brokers, prefix, member: member.to_owned(), bug, hours };
        let notes = File::create(self.notes.path().join(format!("{}-{member}", id.0))).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::child_runs_the_processor", "--nocapture"])
            .env(CHILD, role.line())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(notes)
            .spawn()
            .unwrap();
        let (orders, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let teller = self.teller.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(news) = News::parse(&line)
                    && teller.send((id, Some(news))).is_err()
                {
                    return;
                }
            }
            // Nobody listens any more once the test is over.
            drop(teller.send((id, None)));
        });
        let process = Process {
            child,
            orders,
            member: member.to_owned(),
            owned: BTreeSet::new(),
            told: Vec::new(),
            told_before: 0,
            is_gone: false,
        };
        self.processes.insert(id, process);
        id
    }

    fn process(&mut self, id: ProcessId) -> &mut Process {
        self.processes.get_mut(&id).expect("it was started")
    }

    fn order(&mut self, id: ProcessId, order: &str) {
        let orders = self.process(id).orders.as_mut().expect("it takes orders");
        writeln!(orders, "{order}").unwrap();
        orders.flush().unwrap();
    }

    /// It is to wait when it reaches this point of a step for the so-manieth time from now.
    pub(crate) fn arm(&mut self, id: ProcessId, group: &str, point: &str, count: u32) {
        self.process(id).told_before = self.told_by(id);
        self.order(id, &format!("arm {group} {point} {count}"));
    }

    /// It need not wait any more.
    pub(crate) fn let_go(&mut self, id: ProcessId) {
        self.order(id, "go");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, id: ProcessId) {
        let process = self.process(id);
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        process.owned.clear();
    }

    /// Stops every thread of a process where it is, and waits until all stand: the signal reaches them
    /// one by one, and a thread that still runs could finish a step.
    pub(crate) fn freeze(&mut self, id: ProcessId) {
        self.signal(id, "STOP");
        let tasks = format!("/proc/{}/task", self.process(id).child.id());
        let stands = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state comes after the name, which is in brackets and may hold anything.
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        self.wait_in_silence("a processor to stand still", |_| {
            std::fs::read_dir(&tasks).unwrap().flatten().all(stands)
        });
    }

    pub(crate) fn thaw(&mut self, id: ProcessId) {
        self.signal(id, "CONT");
    }

    /// Sends it a signal by name.
    fn signal(&mut self, id: ProcessId, name: &str) {
        let pid = self.process(id).child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(status.success(), "kill -{name}");
    }

    /// Stops it as a supervisor does, and waits until it ended.
    pub(crate) fn stop(&mut self, id: ProcessId) {
        self.process(id).orders = None;
        self.wait_in_silence("a processor to stop", |this| this.is_gone(id));
        let status = self.process(id).child.wait().unwrap();
        assert!(status.success(), "{}", self.told());
        self.process(id).owned.clear();
    }

    pub(crate) fn is_gone(&self, id: ProcessId) -> bool {
        self.processes[&id].is_gone
    }

    /// How many things a process has told.
    pub(crate) fn told_by(&self, id: ProcessId) -> usize {
        self.processes[&id].told.len()
    }

    /// What it told after so many others.
    pub(crate) fn told_since(&self, id: ProcessId, count: usize) -> &[News] {
        &self.processes[&id].told[count..]
    }

    /// Whether it waits where it was told to, in a step of this group.
    pub(crate) fn is_at(&self, id: ProcessId, group: &str) -> bool {
        let since = self.told_since(id, self.processes[&id].told_before);
        since.iter().any(|news| matches!(news, News::At(at, _) if at == group))
    }

    /// How many partitions of the inputs of a group it owns.
    pub(crate) fn owned(&self, id: ProcessId, group: &str) -> usize {
        let is_of = |of: &&TopicPartition| inputs(group).contains(&of.topic);
        self.processes[&id].owned.iter().filter(is_of).count()
    }

    /// Whether it owns something of both groups.
    pub(crate) fn works(&self, id: ProcessId) -> bool {
        self.owned(id, MATCHING) > 0 && self.owned(id, ORDERS) > 0
    }

    /// Whether it owns everything.
    pub(crate) fn owns_all(&self, id: ProcessId) -> bool {
        let partitions = |topic: &Topic| topic.all_partitions(&LAYOUT).count();
        let all = |group| inputs(group).iter().map(partitions).sum::<usize>();
        self.owned(id, MATCHING) == all(MATCHING) && self.owned(id, ORDERS) == all(ORDERS)
    }

    /// Trades until something is true.
    pub(crate) fn wait(&mut self, shop: &mut Shop, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.listen(Duration::ZERO);
            if is(self) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}\n{}", self.told());
            if self.backlog() < BACKLOG_MAX {
                shop.trade();
            } else {
                self.listen(LOOK);
            }
        }
    }

    /// Waits until something is true, without trade.
    pub(crate) fn wait_in_silence(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.listen(LOOK);
            if is(self) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}\n{}", self.told());
        }
    }

    /// Trades so many times, as fast as the processors follow.
    pub(crate) fn trade(&mut self, shop: &mut Shop, rounds: usize) {
        for _ in 0..rounds {
            self.wait_in_silence("the processors to follow", |this| this.backlog() < BACKLOG_MAX);
            shop.trade();
            self.listen(Duration::ZERO);
        }
    }

    /// Trades for so long, once in each `pause`.
    pub(crate) fn pass(&mut self, shop: &mut Shop, time: Duration, pause: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            let round = Instant::now();
            shop.trade();
            while round.elapsed() < pause {
                self.listen(LOOK);
            }
        }
    }

    /// Takes note of what was told, waiting for the first news only.
    fn listen(&mut self, timeout: Duration) {
        let mut next = self.news.recv_timeout(timeout);
        while let Ok((id, news)) = next {
            self.note(id, news);
            next = self.news.recv_timeout(Duration::ZERO);
        }
        assert_ne!(next, Err(RecvTimeoutError::Disconnected), "we could tell it ourselves");
    }

    fn note(&mut self, id: ProcessId, news: Option<News>) {
        let Some(news) = news else {
            self.process(id).is_gone = true;
            return;
        };
        match &news {
            News::Assigned(_, at) => {
                self.process(id).owned.extend(at.keys());
                self.advance(at);
            }
            News::Taken(_, at) => self.advance(at),
            News::Revoked(_, lost) => {
                self.process(id).owned.retain(|of| !lost.contains(of));
            }
            News::Failed(group, cause) => {
                // Whoever is fenced has lost everything, and is told so once.
                if cause.contains("fenced") {
                    let inputs = inputs(group);
                    self.process(id).owned.retain(|of| !inputs.contains(&of.topic));
                }
            }
            News::At(..) | News::Ended(..) => {}
        }
        self.process(id).told.push(news);
    }

    fn advance(&mut self, at: &BTreeMap<TopicPartition, Offset>) {
        for (of, offset) in at {
            let known = self.positions.entry(*of).or_default();
            *known = (*known).max(*offset);
        }
    }

    /// About how many inputs wait, by the ends of the partitions.
    fn backlog(&self) -> i64 {
        let behind = |of: TopicPartition| match self.log.bounds(of) {
            Ok(bounds) => bounds.end.0 - self.positions.get(&of).map_or(0, |at| at.0),
            Err(Error::Transient(_)) => 0,
            Err(error) => panic!("{error}"),
        };
        input_partitions().map(behind).sum()
    }

    /// Whether every input is taken, as far as is told.
    fn is_all_taken(&self) -> bool {
        input_partitions().all(|of| {
            let next = self.positions.get(&of).copied().unwrap_or_default();
            matches!(self.log.read(of, next, 1), Ok(records) if records.is_empty())
        })
    }

    fn wait_until_all_is_taken(&mut self) {
        let mut calm = Duration::ZERO;
        while calm < CALM {
            self.wait_in_silence("all inputs to be taken", Self::is_all_taken);
            let begun = Instant::now();
            while calm < CALM && self.is_all_taken() {
                self.listen(LOOK);
                calm = begun.elapsed();
            }
        }
    }

    /// Lets every window of the shop end, and reads what is there then.
    pub(crate) fn finish(&mut self, shop: &mut Shop, running: &[ProcessId]) -> Audit {
        shop.pass_all_windows();
        let members: Vec<_> = running.iter().map(|id| self.process(*id).member.clone()).collect();
        running.iter().for_each(|id| self.stop(*id));
        loop {
            let start = |this: &mut Self, name| this.start_as(name, Bug::None, HOURS_AHEAD);
            let ahead: Vec<_> = members.iter().map(|name| start(self, name)).collect();
            self.wait_until_all_is_taken();
            // What was opened, or asked, while the windows ended ends with one more head.
            shop.pass_all_windows();
            self.wait_until_all_is_taken();
            ahead.iter().for_each(|id| self.stop(*id));
            let audit = self.audit();
            // A timer that was due at the last moment needs another day.
            if audit.reading.is_taken(&audit.committed) {
                return audit;
            }
        }
    }

    /// Reads everything, and learns how far the groups are. No processor may run.
    pub(crate) fn audit(&self) -> Audit {
        let committed = committed(&*self.log, PATIENCE).unwrap();
        Audit { committed, reading: Reading::of(&*self.log).unwrap() }
    }

    /// What the processes told last, and what they noted.
    fn told(&self) -> String {
        let mut text = String::new();
        for (id, process) in &self.processes {
            if process.told.is_empty() && process.is_gone {
                continue;
            }
            text.push_str(&format!("{id:?} ({}):\n", process.member));
            for group in [MATCHING, ORDERS] {
                let of_group = process.told.iter().filter(|news| news.group() == group);
                let mut last: Vec<_> = of_group.rev().take(4).map(News::line).collect();
                last.reverse();
                last.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
            }
            let notes = self.notes.path().join(format!("{}-{}", id.0, process.member));
            let notes = std::fs::read_to_string(notes).unwrap_or_default();
            let last = notes.lines().rev().take(30).collect::<Vec<_>>();
            last.iter().rev().for_each(|line| text.push_str(&format!("  ! {line}\n")));
        }
        text
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.told());
        }
        for process in self.processes.values_mut() {
            drop(process.child.kill());
            drop(process.child.wait());
        }
        // The broker of a test that failed may be away.
        if !std::thread::panicking() {
            admin::delete_topics(&self.config, &LAYOUT, &Topic::ALL).unwrap();
        }
    }
}

/// Does something again while the broker is not ready for it.
fn insist<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// What is on the log, and how far the groups are.
pub(crate) struct Audit {
    pub(crate) committed: Positions,
    pub(crate) reading: Reading,
}

/// The inputs of a group.
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
