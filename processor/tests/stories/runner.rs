//! Both runners on the embedded log: from a created order to a paid one, with unreadable records, restarts and aborted
//! steps.

mod forgetting;
mod jump;
mod measured;
mod newer;
mod positions;
mod unlucky;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::chain::{head, pay, watch};
use crate::command::{cancel, choose, create, mark_paid, seen, settle, usdt};
use crate::name::{self, CONTRACT, letter};
use log::embedded::EmbeddedLog;
use log::{LayeredLog, Log, NewRecord, Offset, Record, StageContext, TopicPartition};
use runtime::ManualClock;
use schemas::record::{
    ChainRecord, DeadLetter, Order, OrderCommand, OrderCommandBody, OrdersEntry, Transfer,
};
use schemas::{Blockchain, Headers, Layout, Partition, Topic, TransferId, UnixSeconds};
use tidemark_processor::machine::matching::Input;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use unlucky::{Unlucky, Watch};

const LAYOUT: Layout = Layout { lanes: 1, orders: 2, webhooks: 1 };
const INPUTS: [Topic; 3] = [Topic::TransfersRaw, Topic::DepositsCommands, Topic::OrdersCommands];
const OUTPUTS: [Topic; 9] = [
    Topic::Orders,
    Topic::Deposits,
    Topic::TransfersDetected,
    Topic::TransfersConfirmed,
    Topic::TransfersMatched,
    Topic::TransfersUnknown,
    Topic::TransfersFailed,
    Topic::Alerts,
    Topic::DeadLetters,
];
/// Maximum wait for anything here: far more than any of it takes.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Treatment {
    Kind,
    /// After every input the runners are stopped, the log is closed and opened, and they are started again.
    Restarts,
    /// Every step is aborted once.
    Aborts,
}

/// A processor on a log in a folder of its own.
struct TestProcessor {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    tokio: Runtime,
    watch: Arc<Watch>,
    treatment: Treatment,
    running: Option<Running>,
}

struct Running {
    log: EmbeddedLog,
    stop: CancellationToken,
    threads: Vec<JoinHandle<Result<(), tidemark_processor::Error>>>,
}

impl Running {
    fn start(processor: &TestProcessor) -> Self {
        let (dir, clock, watch) = (processor.dir.path(), &processor.clock, &processor.watch);
        let fails = processor.treatment == Treatment::Aborts;
        let embedded = EmbeddedLog::open(dir, LAYOUT, clock.clone()).unwrap();
        let unlucky = Unlucky { log: embedded.clone(), watch: watch.clone(), fails };
        let log: Arc<dyn Log> = Arc::new(LayeredLog::new(Arc::new(embedded.clone()), unlucky));
        let context = context(log, clock, &processor.tokio);
        let threads = [tidemark_processor::run_matching, tidemark_processor::run_orders]
            .map(|run| (run, context.clone()))
            .map(|(run, context)| std::thread::spawn(move || run(&context)));
        Self { log: embedded, stop: context.stop, threads: threads.into() }
    }

    fn stop(self) {
        self.stop.cancel();
        for thread in self.threads {
            thread.join().unwrap().unwrap();
        }
        self.log.close();
    }
}

impl TestProcessor {
    fn new(treatment: Treatment) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(UnixSeconds(1000).micros()));
        let (watch, tokio) = (Arc::default(), Runtime::new().unwrap());
        let mut processor = Self { dir, clock, tokio, watch, treatment, running: None };
        processor.restart();
        processor
    }

    fn log(&self) -> &EmbeddedLog {
        &self.running.as_ref().unwrap().log
    }

    fn restart(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
        self.running = Some(Running::start(self));
    }

    /// Appends a record and waits until its outputs are processed.
    fn send(&mut self, record: NewRecord) -> &mut Self {
        // A failure meant for a runner may hit this append instead: then nothing was written.
        while self.tokio.block_on(self.log().produce(vec![record.clone()])).is_err() {}
        self.settle()
    }

    fn settle(&mut self) -> &mut Self {
        if self.treatment == Treatment::Restarts {
            self.restart();
        }
        self.wait_until("everything is worked off", Self::is_quiet);
        self
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        let mut tail = self.log().tail(&OUTPUTS).unwrap();
        while !is(self) {
            assert!(started.elapsed() < PATIENCE, "waited too long until {what}");
            tail.poll(Duration::from_millis(20)).unwrap();
        }
    }

    /// `true` if every input is committed. Outputs of a committed step are on the log, so those that are inputs of the
    /// other machine count too.
    fn is_quiet(&self) -> bool {
        let committed = self.watch.committed();
        INPUTS.iter().flat_map(|topic| partitions(*topic)).all(|of| {
            let end = self.log().bounds(of).unwrap().end;
            end == Offset(0) || committed.get(&of) == Some(&end)
        })
    }

    fn records(&self, topic: Topic) -> Vec<Arc<Record>> {
        let all = |of| self.log().read(of, Offset(0), 100_000).unwrap();
        partitions(topic).into_iter().flat_map(all).collect()
    }

    fn decoded<R: schemas::record::Record>(&self, topic: Topic) -> Vec<R> {
        let value = |record: &Arc<Record>| schemas::decode(record.value.as_ref().unwrap()).unwrap();
        self.records(topic).iter().map(value).collect()
    }

    /// All records of the topics, with places, keys, values, headers and times.
    fn outputs(&self) -> Vec<Arc<Record>> {
        OUTPUTS.into_iter().chain(INPUTS).flat_map(|topic| self.records(topic)).collect()
    }

    /// State in the changelogs: the last value of each key.
    fn state(&self) -> BTreeMap<(TopicPartition, Vec<u8>), Vec<u8>> {
        let mut state = BTreeMap::new();
        for topic in [Topic::MatchingChangelog, Topic::OrdersChangelog] {
            for record in self.records(topic) {
                let Record { from, key, value, .. } = Arc::unwrap_or_clone(record);
                match value {
                    Some(value) => state.insert((from, key), value),
                    None => state.remove(&(from, key)),
                };
            }
        }
        state
    }

    /// Versions of an order, as `status cause`.
    fn history(&self, of: char) -> Vec<String> {
        let orders: Vec<Order> = self.decoded(Topic::Orders);
        let of: Vec<&Order> = orders.iter().filter(|order| letter(order.order_id) == of).collect();
        for (order, version) in of.iter().zip(1..) {
            assert_eq!(order.version, version, "no version is missing or twice");
        }
        of.iter().map(|order| format!("{} {}", order.status, order.cause)).collect()
    }
}

impl Drop for TestProcessor {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop.cancel();
            for thread in running.threads {
                drop(thread.join());
            }
        }
    }
}

fn context(log: Arc<dyn Log>, clock: &Arc<ManualClock>, tokio: &Runtime) -> StageContext {
    let (clock, member, handle) = (clock.clone(), "one".to_owned(), tokio.handle().clone());
    StageContext { log, clock, member, handle, stop: CancellationToken::new() }
}

/// Returns the orders machine's error on a log with these records.
#[track_caller]
fn end_of_orders(records: Vec<NewRecord>) -> tidemark_processor::Error {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(UnixSeconds(1000).micros()));
    let log = EmbeddedLog::open(dir.path(), LAYOUT, clock.clone()).unwrap();
    let tokio = Runtime::new().unwrap();
    tokio.block_on(log.produce(records)).unwrap();
    let context = context(Arc::new(log), &clock, &tokio);
    end(std::thread::spawn(move || tidemark_processor::run_orders(&context)))
}

/// The error that a runner ends with.
#[track_caller]
fn end(runner: JoinHandle<Result<(), tidemark_processor::Error>>) -> tidemark_processor::Error {
    let started = Instant::now();
    while !runner.is_finished() {
        assert!(started.elapsed() < PATIENCE, "the runner continues");
        std::thread::yield_now();
    }
    runner.join().unwrap().unwrap_err()
}

fn partitions(topic: Topic) -> Vec<TopicPartition> {
    let count = topic.partitions(&LAYOUT);
    (0..count).map(|partition| TopicPartition { topic, partition: Partition(partition) }).collect()
}

fn chain_record(input: impl Into<Input>) -> NewRecord {
    let Input::Chain(record) = input.into() else { panic!("not of the chain") };
    raw(&record)
}

/// Watches the wallet on the chain, and writes a head.
fn followed(processor: &mut TestProcessor, blockchain: Blockchain, wallet: u8) {
    for input in [watch(100, wallet, CONTRACT), head(100).into()] {
        let Input::Chain(record) = input else { panic!("not of the chain") };
        let record = ChainRecord { blockchain, ..record };
        processor.send(wrap(Topic::TransfersRaw, Partition(blockchain.index()), "wallet", &record));
    }
}

fn raw(record: &ChainRecord) -> NewRecord {
    wrap(Topic::TransfersRaw, Partition(Blockchain::Eth.index()), "wallet", record)
}

fn order_command(command: &OrderCommand) -> NewRecord {
    let key = command.order_id.to_string();
    wrap(Topic::OrdersCommands, LAYOUT.order(&key), &key, command)
}

fn wrap<R: schemas::record::Record>(
    topic: Topic,
    partition: Partition,
    key: &str,
    record: &R,
) -> NewRecord {
    NewRecord::encode(topic, partition, key, record).unwrap()
}

/// Plays an order that is paid after its transfer moved to another block, a second payment of it, an order that an
/// operator marks paid, and one that expires.
fn play(processor: &mut TestProcessor) {
    let eth = || usdt(Blockchain::Eth, &[1]);
    followed(processor, Blockchain::Eth, 1);
    followed(processor, Blockchain::Base, 2);
    processor
        .send(order_command(&create('A', Some(eth()))))
        .send(chain_record(head(105)))
        .send(chain_record(pay(1, "10.00")))
        .send(order_command(&cancel('A', 2)))
        .send(order_command(&create('B', None)))
        .send(order_command(&choose('B', 3, usdt(Blockchain::Base, &[2]))))
        .send(chain_record(head(112)))
        .send(chain_record(pay(1, "10.00").retracted(1)))
        .send(chain_record(head(109).epoch(1)))
        .send(chain_record(pay(1, "10.00").at(113).fork(1)))
        .send(chain_record(head(123).epoch(1)))
        .send(chain_record(pay(2, "10.00").at(124).fork(1)))
        .send(chain_record(head(134).epoch(1)))
        .send(order_command(&mark_paid('B', 4)))
        .send(order_command(&create('C', None)))
        // The chain's time passes too: the timer waits for it.
        .send(chain_record(head(141).epoch(1)));
    processor.clock.advance(Duration::from_secs(1001));
    processor.wait_until("order C has expired", |processor| processor.history('C').len() == 2);
    processor.settle();
}

#[test]
fn paid_marked_and_expired() {
    let mut processor = TestProcessor::new(Treatment::Kind);
    play(&mut processor);
    assert_eq!(
        processor.history('A'),
        [
            "pending created",
            "pending payment_chosen",
            "pending deposit_opened",
            "pending candidate_seen",
            "pending cancel_refused",
            "paid paid",
        ]
    );
    assert_eq!(
        processor.history('B'),
        [
            "pending created",
            "pending payment_chosen",
            "pending deposit_opened",
            "paid marked_paid",
            "paid deposit_closed",
        ]
    );
    assert_eq!(processor.history('C'), ["pending created", "expired expired"]);

    let transfers = |topic| -> Vec<String> {
        let words = |transfer: &Transfer| {
            let order = transfer.order_id.or(transfer.candidate_order_id).map(letter);
            format!("@{} {} {order:?}", transfer.block.number, transfer.status)
        };
        processor.decoded(topic).iter().map(words).collect()
    };
    assert_eq!(
        transfers(Topic::TransfersDetected),
        [
            "@110 waiting_for_confirmation None",
            "@113 waiting_for_confirmation None",
            "@124 waiting_for_confirmation None",
        ]
    );
    assert_eq!(
        transfers(Topic::TransfersConfirmed),
        ["@113 waiting_for_match None", "@124 waiting_for_match None"]
    );
    assert_eq!(transfers(Topic::TransfersMatched), ["@113 matched Some('A')"]);
    assert_eq!(transfers(Topic::TransfersUnknown), ["@124 no_matched_deposit Some('A')"]);
    assert!(processor.records(Topic::TransfersFailed).is_empty());
    assert!(processor.records(Topic::Alerts).is_empty());
    assert!(processor.records(Topic::DeadLetters).is_empty());
    assert_eq!(processor.watch.aborts(), 0);
}

/// Invariants 5 and 6: the same records at the same offsets, and the same state.
#[test]
fn restarts_and_aborts_change_nothing() {
    let mut kind = TestProcessor::new(Treatment::Kind);
    play(&mut kind);
    for treatment in [Treatment::Restarts, Treatment::Aborts] {
        let mut other = TestProcessor::new(treatment);
        play(&mut other);
        assert_eq!(other.watch.aborts() > 10, treatment == Treatment::Aborts);
        let (expected, found) = (kind.outputs(), other.outputs());
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found);
        }
        assert_eq!(expected.len(), found.len());
        assert_eq!(kind.state(), other.state());
    }
}

#[test]
fn poison_becomes_a_dead_letter() {
    let mut processor = TestProcessor::new(Treatment::Kind);
    followed(&mut processor, Blockchain::Eth, 1);
    let key = name::order('A').to_string();
    let broken = |mut record: NewRecord, value: Option<&[u8]>| {
        record.value = value.map(<[u8]>::to_vec);
        record
    };
    let good = order_command(&create('A', Some(usdt(Blockchain::Eth, &[1]))));
    let mut stranger = pay(1, "10.00").record();
    stranger.blockchain = Blockchain::Base;
    let whole = good.value.clone().unwrap();
    let poison = [
        broken(good.clone(), Some(b"{}")),
        broken(good.clone(), None),
        broken(good.clone(), Some(&whole[..whole.len() - 1])),
        broken(chain_record(head(100)), Some(&whole)),
        raw(&stranger),
    ];
    for record in &poison {
        processor.send(record.clone());
    }
    processor.send(good).send(chain_record(pay(1, "10.00"))).send(chain_record(head(120)));
    assert_eq!(processor.history('A').last().map(String::as_str), Some("paid paid"));

    let letters: Vec<DeadLetter> = processor.decoded(Topic::DeadLetters);
    assert_eq!(letters.len(), poison.len());
    let partition = i32::try_from(LAYOUT.order(&key).0).unwrap();
    for (letter, offset) in letters.iter().take(3).zip(0..) {
        assert_eq!((letter.topic.as_str(), letter.partition), ("orders.commands", partition));
        assert_eq!((letter.offset, letter.group.as_str()), (offset, "processor.orders"));
        assert_eq!(letter.key, key.as_bytes());
        assert!(!letter.reason.is_empty());
    }
    for (letter, record) in letters.iter().zip(&poison) {
        assert_eq!(letter.value, record.value.clone().unwrap_or_default());
    }
    let last = letters.last().unwrap();
    assert_eq!((last.topic.as_str(), last.group.as_str()), ("transfers.raw", "processor.matching"));
    assert_eq!(last.reason, "a record of base in a lane of eth");
}

#[test]
fn a_timer_is_written_once() {
    for treatment in [Treatment::Kind, Treatment::Aborts] {
        let mut processor = TestProcessor::new(treatment);
        processor.send(order_command(&create('A', None)));
        processor.clock.advance(Duration::from_secs(1000));
        // At the deadline itself the timer is not due: a choice of this second still counts.
        processor.send(order_command(&choose('A', 2, usdt(Blockchain::Eth, &[]))));
        assert_eq!(processor.history('A'), ["pending created", "pending payment_refused"]);
        processor.clock.advance(Duration::from_secs(1));
        processor
            .wait_until("the order has expired", |processor| processor.history('A').len() == 3);
        processor.settle();
        assert_eq!(processor.history('A').last().map(String::as_str), Some("expired expired"));
        let commands: Vec<OrderCommand> = processor.decoded(Topic::OrdersCommands);
        let is_tick = |command: &&OrderCommand| command.body == OrderCommandBody::Tick;
        let ticks: Vec<_> = commands.iter().filter(is_tick).collect();
        assert_eq!(ticks.len(), 1);
        assert_eq!(ticks[0].issued_at.seconds(), UnixSeconds(2001));
    }
}

/// A changelog that this version cannot read stops the processor.
#[test]
fn an_unreadable_changelog_stops_it() {
    let to = TopicPartition { topic: Topic::OrdersChangelog, partition: Partition(1) };
    let (key, headers) = (b"x".to_vec(), Headers::default());
    let error = end_of_orders(vec![NewRecord { to, key, value: Some(vec![1]), headers }]);
    let expected = "the changelog processor.orders.changelog/1 cannot be restored: ";
    assert!(error.to_string().starts_with(expected), "{error}");
}

fn changelog_of_a() -> TopicPartition {
    let partition = LAYOUT.order(&name::order('A').to_string());
    TopicPartition { topic: Topic::OrdersChangelog, partition }
}

/// A group without positions would read all inputs again, and publish all outputs again.
#[test]
fn state_without_a_position_stops_it() {
    let mut processor = TestProcessor::new(Treatment::Kind);
    processor.send(order_command(&create('A', None)));
    let to = changelog_of_a();
    let state = processor.log().read(to, Offset(0), 100).unwrap();
    assert!(!state.is_empty());
    // The changelog of an older program has no positions. A topic that was deleted and recreated has none of the
    // state's records.
    let command = order_command(&create('A', None));
    let (group, deleted) = ("it has 1 rows, but the group", "Somebody has deleted it");
    for (is_old, commands, expected) in [
        (true, vec![command.clone()], group),
        (false, vec![command], deleted),
        (false, vec![], group),
    ] {
        let copy = |record: &Arc<Record>| {
            let Record { key, value, headers, .. } = Record::clone(record);
            let headers = if is_old { Headers::default() } else { headers };
            NewRecord { to, key, value, headers }
        };
        let error = end_of_orders(commands.into_iter().chain(state.iter().map(copy)).collect());
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A damaged row breaks invariant 2 at the next settle. Nothing of that step is committed: neither outputs of earlier
/// records in it nor offsets.
#[test]
fn broken_invariant_ends_the_runner_uncommitted() {
    let mut processor = TestProcessor::new(Treatment::Kind);
    processor.send(order_command(&create('A', None)));
    processor.running.take().unwrap().stop();

    let log = EmbeddedLog::open(processor.dir.path(), LAYOUT, processor.clock.clone()).unwrap();
    let to = changelog_of_a();
    let row = log.read(to, Offset(0), 100).unwrap().last().cloned().unwrap();
    let mut entry: OrdersEntry = schemas::decode(row.value.as_ref().unwrap()).unwrap();
    entry.order.paid_by = Some(TransferId(7));
    let (key, headers) = (row.key.clone(), Headers::default());
    let damaged = NewRecord { to, key, value: Some(schemas::encode(&entry).unwrap()), headers };
    let commands = [seen('A', 8), settle('A', 0, 8)];
    let records = std::iter::once(damaged).chain(commands.iter().map(order_command));
    processor.tokio.block_on(log.produce(records.collect())).unwrap();
    let before = (processor.watch.committed(), log.bounds(to).unwrap());

    let watched = Unlucky { log: log.clone(), watch: processor.watch.clone(), fails: false };
    let watched = Arc::new(LayeredLog::new(Arc::new(log.clone()), watched));
    let context = context(watched, &processor.clock, &processor.tokio);
    let error = end(std::thread::spawn(move || tidemark_processor::run_orders(&context)));
    let text = error.to_string();
    assert!(matches!(error, tidemark_processor::Error::Broken { .. }), "{text}");
    assert!(text.starts_with("invariant 2 is broken: "), "{text}");
    let input = TopicPartition { topic: Topic::OrdersCommands, ..to };
    assert!(text.contains(&format!("(at {input}/2)")), "{text}");
    assert_eq!((processor.watch.committed(), log.bounds(to).unwrap()), before);
    let orders = TopicPartition { topic: Topic::Orders, ..to };
    assert_eq!(log.bounds(orders).unwrap().end, Offset(1), "only the created order");
}
