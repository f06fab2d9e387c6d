//! Orders of inputs that are hard to find.

use std::sync::Arc;

use log::Envelope;
use log::embedded::EmbeddedLog;
use log::{Offset, Record, TopicPartition};
use processor::machine::Machine;
use processor::machine::matching::State;
use runtime::SystemClock;
use schemas::record::{
    Block, ChainBody, ChainRecord, ConfirmedTier, DepositCommand, DepositCommandBody, Head,
    Observation, OpenDeposit,
};
use schemas::{
    Amount, Blockchain, CloseReason, Epoch, Hash, Headers, Layout, OrderId, Stablecoin, Topic,
    TransferId, UnixMicros, UnixSeconds, UnknownReason,
};
use uuid::Uuid;

use super::*;
use crate::machine_model::chain::{account, cents};

const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
const ORDER: OrderId = OrderId(Uuid::from_u128(7));

/// A lane that takes what it is given, and writes as the processor does.
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

    fn append(&mut self, of: TopicPartition, record: Record) -> Arc<Record> {
        let all = self.reading.records_mut(of);
        let offset = all.last().map_or(Offset(0), |last| last.offset.next());
        let record = Arc::new(Record { from: of, offset, ..record });
        all.push(record.clone());
        record
    }

    fn take(&mut self, topic: Topic, partition: Partition, input: Record) -> Arc<Record> {
        let of = TopicPartition { topic, partition };
        let input = self.append(of, input);
        self.committed.insert(of, input.offset.next());
        input
    }

    /// The headers of what some command to an order led to.
    fn caused_by_an_order(&mut self) -> Headers {
        let cause = self.take(Topic::OrdersCommands, Partition(0), record(Vec::new()));
        let id = format!("{}/{}/0", cause.from, cause.offset);
        [("ce_id", id.as_bytes())].into_iter().collect()
    }

    /// The order in which the lane is found to have taken its inputs.
    fn explain(&self) -> Result<Vec<Place>, Flaw> {
        let outputs = Outputs::of(&self.reading, &self.committed)?;
        let of = |topic| TopicPartition { topic, partition: self.lane };
        let inputs: Vec<_> = State::INPUTS
            .iter()
            .rev()
            .map(|t| self.reading.below(of(*t), &self.committed))
            .collect();
        let entries = self.reading.records(of(State::CHANGELOG));
        let taken = search::order::<State>(self.lane, LAYOUT, &inputs, &outputs, entries)?;
        Ok(taken.iter().map(|taken| taken.from).collect())
    }

    /// One step of these inputs, in this order.
    fn step(&mut self, inputs: Vec<(Topic, Vec<u8>)>) {
        for (topic, value) in inputs {
            let headers = if topic == Topic::DepositsCommands {
                self.caused_by_an_order()
            } else {
                Headers::default()
            };
            let input = self.take(topic, self.lane, Record { headers, ..record(value) });
            let mut effects = Vec::new();
            self.machine.decide(&self.machine.parse(&input).unwrap(), &mut effects).unwrap();
            let mut envelope = Envelope::of(&input);
            for effect in effects {
                let new = State::wrap(&effect, self.lane, &LAYOUT, &mut envelope).unwrap();
                let output = Record { key: new.key, value: new.value, ..record(Vec::new()) };
                self.append(new.to, Record { headers: new.headers, ..output });
            }
        }
        let of = TopicPartition { topic: State::CHANGELOG, partition: self.lane };
        for (key, value) in changes(&self.machine, self.lane) {
            self.append(of, Record { key: key.into_bytes(), value, ..record(Vec::new()) });
        }
        self.machine.commit();
    }
}

fn record(value: Vec<u8>) -> Record {
    let from = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
    Record {
        from,
        offset: Offset(0),
        appended_at: UnixMicros(0),
        key: Vec::new(),
        value: Some(value),
        headers: Headers::default(),
    }
}

fn block(number: i64, seconds: i64) -> Block {
    Block { number, hash: Hash([number as u8; 32]), timestamp: UnixSeconds(seconds) }
}

fn chain(block: Block, body: ChainBody) -> (Topic, Vec<u8>) {
    let record = ChainRecord {
        blockchain: Blockchain::Eth,
        epoch: Epoch(0),
        block,
        observed_at: block.timestamp.micros(),
        body,
    };
    (Topic::TransfersRaw, schemas::encode(&record).unwrap())
}

fn head(number: i64, seconds: i64) -> (Topic, Vec<u8>) {
    let confirmed = vec![ConfirmedTier { below: None, number }];
    let head = Head { confirmed, finalized: number, match_window_seconds: 1000 };
    chain(block(number, seconds), ChainBody::Head(head))
}

fn payment(number: i64, seconds: i64) -> (Topic, Vec<u8>) {
    let seen = Observation {
        stablecoin: Stablecoin::Usdt,
        contract: account(3),
        from_address: account(2),
        to_address: account(1),
        tx_hash: Hash([9; 32]),
        log_index: 0,
        ordinal: 0,
        value: cents(500),
    };
    chain(block(number, seconds), ChainBody::Transfer(seen))
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

/// A head is read twice, and then an order refuses the transfer that kept a deposit from being forgotten.
/// Had the refusal come between the two, the second head would have forgotten the deposit; nothing but
/// that tells where it came.
#[test]
fn a_head_that_came_twice_is_put_where_it_was() {
    let mut author = Author::new();
    let open = OpenDeposit {
        stablecoin: Stablecoin::Usdt,
        value: cents(500),
        user_address: None,
        started_at: UnixSeconds(0),
        expires_at: UnixSeconds(100),
        nudge_step: Amount::ZERO,
        nudge_limit: Amount::ZERO,
        late_window_seconds: 5,
        skew_seconds: 0,
    };
    // The deposit has the first number, the transfer the second.
    let transfer = TransferId::from_parts(author.lane, 2);
    author.step(vec![
        command(DepositCommandBody::Open(open)),
        payment(1, 10),
        head(1, 20),
        command(DepositCommandBody::Close { reason: CloseReason::OrderPaid }),
    ]);
    let reason = UnknownReason::AlreadyPaid;
    let refused = DepositCommandBody::Refused { transfer_id: transfer, reason };
    author.step(vec![head(2, 40), head(2, 40), command(refused)]);

    let taken = author.explain().unwrap_or_else(|flaw| panic!("{flaw}"));
    let places: Vec<String> = taken.iter().skip(4).map(ToString::to_string).collect();
    let lane = author.lane;
    assert_eq!(
        places,
        [
            format!("transfers.raw/{lane}/2"),
            format!("transfers.raw/{lane}/3"),
            format!("deposits.commands/{lane}/2"),
        ]
    );
}
