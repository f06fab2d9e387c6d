//! False claims about the order of inputs.

use std::sync::Arc;

use log::embedded::EmbeddedLog;
use log::{Offset, Record, TopicPartition};
use processor::machine::Machine;
use processor::machine::matching::State;
use processor::wire::NEXT_HEADER;
use runtime::SystemClock;
use schemas::record::{
    AmountRule, ChainRecord, DepositCommand, DepositCommandBody, InputRun, OpenDeposit,
    ProcessorStep,
};
use schemas::{
    Blockchain, CloseReason, Headers, Layout, OrderId, Stablecoin, Topic, TransferId, UnixMicros,
    UnixSeconds, UnknownReason,
};
use uuid::Uuid;

use super::*;
use crate::machine_model::chain::{CONTRACT, Chain, Movement, Policy, account, cents};

const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
const ORDER: OrderId = OrderId(Uuid::from_u128(7));
/// Every block is confirmed and final by its own head.
const POLICY: Policy =
    Policy { depth: 1, depth_large: 1, finality: 0, rewind_max: 0, match_window_seconds: 1000 };

/// A lane that takes its inputs in the given order and writes outputs as the processor does.
struct Author {
    reading: Reading,
    committed: Positions,
    machine: State,
    lane: Partition,
}

impl Author {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(dir.path(), LAYOUT, Arc::new(SystemClock)).unwrap();
        let lane = LAYOUT.lane(Blockchain::Eth, &account(1));
        let (reading, machine) = (Reading::of(&log).unwrap(), fresh(lane, LAYOUT));
        Self { reading, committed: Positions::new(), machine, lane }
    }

    fn append(&mut self, topic: Topic, partition: Partition, record: Record) -> Arc<Record> {
        let from = TopicPartition { topic, partition };
        let all = self.reading.records_mut(from);
        let offset = all.last().map_or(Offset(0), |last| last.offset.next());
        let record = Arc::new(Record { from, offset, ..record });
        all.push(record.clone());
        record
    }

    fn input(&mut self, topic: Topic, partition: Partition, input: Record) -> Arc<Record> {
        let input = self.append(topic, partition, input);
        self.committed.insert(input.from, input.offset.next());
        input
    }

    /// Runs a step on these inputs in this order, and writes the given claim about them.
    fn step(&mut self, inputs: Vec<(Topic, Vec<u8>)>, claim: &str) {
        for (topic, value) in inputs {
            let input = self.input(topic, self.lane, record(value));
            let mut effects = Vec::new();
            self.machine.decide(&self.machine.parse(&input).unwrap(), &mut effects).unwrap();
            for effect in effects {
                let new = State::encode(&effect, self.lane, &LAYOUT).unwrap();
                let output = Record { key: new.key, value: new.value, ..record(Vec::new()) };
                self.append(new.to.topic, new.to.partition, output);
            }
        }
        let mut headers: Headers = [(NEXT_HEADER, &b""[..])].into_iter().collect();
        for (key, value) in changes(&self.machine, self.lane) {
            let headers = std::mem::take(&mut headers);
            let entry = Record { key: key.into_bytes(), value, headers, ..record(Vec::new()) };
            self.append(State::CHANGELOG, self.lane, entry);
        }
        let step = schemas::encode(&claimed(claim)).unwrap();
        self.append(State::STEPS, self.lane, record(step));
        self.machine.commit();
    }

    /// The flaw of the lane alone.
    fn flaw(&self) -> Option<Flaw> {
        let of = |topic| TopicPartition { topic, partition: self.lane };
        let inputs: Vec<_> =
            State::INPUTS.iter().map(|t| self.reading.below(of(*t), &self.committed)).collect();
        let [steps, entries] =
            [State::STEPS, State::CHANGELOG].map(|topic| self.reading.records(of(topic)));
        let outputs = Outputs::of(&self.reading).unwrap();
        Replay::<State>::run((self.lane, LAYOUT), &inputs, &outputs, steps, entries).err()
    }
}

/// Parses a claim such as `transfers.raw/4+2,deposits.commands/2+1`: topic, first offset, count.
fn claimed(text: &str) -> ProcessorStep {
    let run = |run: &str| {
        let (topic, run) = run.split_once('/').unwrap();
        let (first, count) = run.split_once('+').unwrap();
        let (first, count) = (first.parse().unwrap(), count.parse().unwrap());
        InputRun { topic: topic.to_owned(), first, count }
    };
    ProcessorStep { inputs: text.split_terminator(',').map(run).collect() }
}

fn record(value: Vec<u8>) -> Record {
    Record {
        from: TopicPartition { topic: Topic::Orders, partition: Partition(0) },
        offset: Offset(0),
        appended_at: UnixMicros(0),
        key: Vec::new(),
        value: Some(value),
        headers: Headers::default(),
    }
}

/// The input of each new record of ingest.
fn written(chain: &mut Chain) -> Vec<(Topic, Vec<u8>)> {
    let input = |record: ChainRecord| {
        let record = ChainRecord { confirmed: false, ..record };
        (Topic::TransfersRaw, schemas::encode(&record).unwrap())
    };
    chain.records.drain(..).map(input).collect()
}

fn command(body: DepositCommandBody) -> (Topic, Vec<u8>) {
    let command = DepositCommand {
        order_id: ORDER,
        slot: 0,
        blockchain: Blockchain::Eth,
        wallet_address: account(1),
        issued_at: UnixMicros(1),
        body,
    };
    (Topic::DepositsCommands, schemas::encode(&command).unwrap())
}

/// A lane reads two heads, then a refusal of the transfer that kept a deposit from being forgotten. If the refusal came
/// between the heads, the second head would forget the deposit: only the changelog shows the difference.
fn flaw_of(second_claim: &str) -> Option<Flaw> {
    let mut author = Author::new();
    let mut chain = Chain::new(Blockchain::Eth, POLICY, UnixSeconds(0), &[account(1)]);
    let watch_and_head = written(&mut chain);
    let movement = Movement {
        stablecoin: Stablecoin::Usdt,
        contract: CONTRACT,
        from: account(2),
        to: account(1),
        value: cents(500),
    };
    chain.send(movement, false, 1);
    let payment = std::mem::take(&mut chain.mempool);
    chain.mine(payment, UnixSeconds(20));
    chain.scan();
    let payment_and_head = written(&mut chain);
    let (payment, at) = chain.payments().next().unwrap();
    let transfer_id = TransferId::of_payment(author.lane, &payment, at);
    chain.mine(Vec::new(), UnixSeconds(40));
    chain.scan();
    chain.beat();
    let two_heads = written(&mut chain);
    let open = command(DepositCommandBody::Open(OpenDeposit {
        stablecoin: Stablecoin::Usdt,
        contract: CONTRACT,
        contracts: vec![CONTRACT],
        value: cents(500),
        user_address: None,
        started_at: UnixSeconds(0),
        expires_at: UnixSeconds(100),
        amounts: AmountRule::EXACT,
        late_window_seconds: 5,
        accepts_late: false,
        head_age_max_seconds: 0,
    }));
    let close = command(DepositCommandBody::Close { reason: CloseReason::OrderPaid });
    let reason = UnknownReason::AlreadyPaid;
    let refused = command(DepositCommandBody::Refused { transfer_id, reason });
    author.step(watch_and_head, "transfers.raw/0+2");
    author.step(
        [vec![open], payment_and_head, vec![close]].concat(),
        "deposits.commands/0+1,transfers.raw/2+2,deposits.commands/1+1",
    );
    author.step([two_heads, vec![refused]].concat(), second_claim);
    author.flaw()
}

#[test]
fn only_the_true_claim_holds() {
    assert_eq!(flaw_of("transfers.raw/4+2,deposits.commands/2+1"), None);
    for (claim, kind) in [
        ("transfers.raw/4+1,deposits.commands/2+1,transfers.raw/5+1", FlawKind::Lost),
        ("deposits.commands/2+1,transfers.raw/4+2", FlawKind::Lost),
        ("transfers.raw/4+1,deposits.commands/2+1", FlawKind::Lost),
        ("transfers.raw/3+3,deposits.commands/2+1", FlawKind::Doubled),
        ("transfers.raw/4+3,deposits.commands/2+1", FlawKind::Uncommitted),
        ("transfers.raw/11+1,deposits.commands/2+1", FlawKind::Foreign),
        ("orders.commands/0+1", FlawKind::Foreign),
        ("", FlawKind::Foreign),
    ] {
        let flaw = flaw_of(claim).unwrap_or_else(|| panic!("{claim} holds"));
        assert_eq!(flaw.kind, kind, "{claim}: {flaw}");
    }
}
