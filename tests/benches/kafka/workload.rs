//! The inputs: deposits to open, transfers that pay them, heads that confirm the transfers; for our
//! processor and, in a fixed layout, for the peer.

use std::sync::Arc;

use log::kafka::KafkaLog;
use log::{Log, NewRecord, TopicPartition};
use schemas::record::{
    ChainBody, ChainRecord, DepositCommand, DepositCommandBody, Observation, OpenDeposit,
    OrderCommand, Record, Settle,
};
use schemas::{Blockchain, Headers, Layout, Stablecoin, Topic, UnixMicros};
use testkit::measure::{head, open, transfer, wallet, watch};

/// One lane for each chain.
pub(crate) const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };
/// The chains with payments: two for each of two workers, as `range` assigns them.
pub(crate) const CHAINS: [Blockchain; 4] =
    [Blockchain::Eth, Blockchain::Polygon, Blockchain::Op, Blockchain::Linea];
/// Transfers of one chain in a block; each block ends with a head.
pub(crate) const BLOCK: usize = 100;
/// Records handed to the log at once while filling it.
const CHUNK: usize = 5000;

/// Form of the inputs: ours or the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Avro.
    Ours,
    /// The fixed layout of `tests/peer/Join.java`; transfers are filled up to this many bytes with
    /// constant text.
    Peer { raw_bytes: usize },
}

fn chain(number: usize) -> Blockchain {
    CHAINS[number % CHAINS.len()]
}

/// Records to read before deposits open: the watched wallet and the head of each chain.
pub(crate) fn beginning() -> impl Iterator<Item = NewRecord> {
    let of =
        |chain: &Blockchain| [watch(0), head(0)].map(|r| ChainRecord { blockchain: *chain, ..r });
    CHAINS.iter().flat_map(of).map(|record| raw(record, Form::Ours))
}

/// Opens the deposit with this number.
pub(crate) fn opening(number: usize, form: Form) -> NewRecord {
    let command = opened(number);
    match form {
        Form::Ours => ours(Topic::DepositsCommands, command.blockchain, &command),
        Form::Peer { .. } => {
            peers(Topic::DepositsCommands, command.blockchain, peer_open(&command))
        }
    }
}

fn opened(number: usize) -> DepositCommand {
    DepositCommand { blockchain: chain(number), ..open(number) }
}

/// As [`opening`], a number of seconds later.
pub(crate) fn later_opening(number: usize, seconds: i64) -> NewRecord {
    let mut command = opened(number);
    command.issued_at = UnixMicros(command.issued_at.0 + seconds * 1_000_000);
    if let DepositCommandBody::Open(open) = &mut command.body {
        open.started_at = open.started_at.plus(seconds);
        open.expires_at = open.expires_at.plus(seconds);
    }
    ours(Topic::DepositsCommands, command.blockchain, &command)
}

/// Pays the deposit with this number. `confirmed` is the flag that ingest sets while it catches up.
pub(crate) fn payment(number: usize, height: usize, confirmed: bool, form: Form) -> NewRecord {
    raw(paid(number, height, confirmed), form)
}

/// Ends a block of a chain.
pub(crate) fn heading(blockchain: Blockchain, height: usize, form: Form) -> NewRecord {
    raw(ended(blockchain, height), form)
}

fn raw(record: ChainRecord, form: Form) -> NewRecord {
    match form {
        Form::Ours => ours(Topic::TransfersRaw, record.blockchain, &record),
        Form::Peer { raw_bytes } => {
            peers(Topic::TransfersRaw, record.blockchain, peer_raw(&record, raw_bytes))
        }
    }
}

/// The transfers with these numbers in blocks from `height` on, with the heads that end them.
pub(crate) fn payments(
    numbers: std::ops::Range<usize>,
    height: usize,
    confirmed: bool,
    form: Form,
) -> impl Iterator<Item = NewRecord> {
    observed(numbers, height, confirmed).map(move |record| raw(record, form))
}

/// The answer of an order that a transfer pays.
pub(crate) fn answer(command: &OrderCommand, settle: &Settle) -> NewRecord {
    let transfer_id = settle.transfer_id;
    let answer = DepositCommand {
        order_id: command.order_id,
        slot: settle.slot,
        blockchain: settle.blockchain,
        wallet_address: settle.wallet_address,
        issued_at: command.issued_at,
        body: DepositCommandBody::Settled { transfer_id },
    };
    ours(Topic::DepositsCommands, settle.blockchain, &answer)
}

/// As [`payments`], a number of seconds later.
pub(crate) fn later_payments(
    numbers: std::ops::Range<usize>,
    height: usize,
    seconds: i64,
) -> impl Iterator<Item = NewRecord> {
    observed(numbers, height, false).map(move |mut record| {
        record.block.timestamp = record.block.timestamp.plus(seconds);
        record.observed_at = UnixMicros(record.observed_at.0 + seconds * 1_000_000);
        if let ChainBody::Head(head) = &mut record.body {
            for tier in &mut head.confirmed {
                tier.timestamp = tier.timestamp.map(|at| at.plus(seconds));
            }
        }
        raw(record, Form::Ours)
    })
}

fn observed(
    numbers: std::ops::Range<usize>,
    height: usize,
    confirmed: bool,
) -> impl Iterator<Item = ChainRecord> {
    let block = BLOCK * CHAINS.len();
    let first = numbers.start;
    numbers.clone().flat_map(move |number| {
        let height = height + (number - first) / block;
        let is_last = (number - first) % block == block - 1 || number + 1 == numbers.end;
        let heads = if is_last { CHAINS.as_slice() } else { &[] };
        let heads = heads.iter().map(move |blockchain| ended(*blockchain, height));
        std::iter::once(paid(number, height, confirmed)).chain(heads)
    })
}

fn paid(number: usize, height: usize, confirmed: bool) -> ChainRecord {
    ChainRecord { blockchain: chain(number), confirmed, ..transfer(number, height) }
}

fn ended(blockchain: Blockchain, height: usize) -> ChainRecord {
    ChainRecord { blockchain, ..head(height) }
}

/// Writes records and returns how many.
pub(crate) async fn fill(log: &KafkaLog, records: impl Iterator<Item = NewRecord>) -> u64 {
    let mut count = 0;
    let mut records = records.peekable();
    let mut before: Option<tokio::task::JoinHandle<()>> = None;
    while records.peek().is_some() {
        let chunk: Vec<_> = records.by_ref().take(CHUNK).collect();
        count += chunk.len() as u64;
        // One chunk is in flight while the next is built.
        if let Some(before) = before.take() {
            before.await.expect("written");
        }
        let log = log.clone();
        before = Some(tokio::spawn(async move { log.produce(chunk).await.expect("written") }));
    }
    if let Some(before) = before {
        before.await.expect("written");
    }
    count
}

/// Copies records from the beginning of a topic's partitions to another log.
pub(crate) async fn copy(from: &KafkaLog, to: &KafkaLog, topic: Topic, count: usize) -> u64 {
    let records = sample(from, topic, count);
    fill(to, records.into_iter()).await
}

/// Records from the beginnings of a topic's partitions, `count` in all.
pub(crate) fn sample(log: &KafkaLog, topic: Topic, count: usize) -> Vec<NewRecord> {
    let mut found = Vec::new();
    for partition in topic.all_partitions(&log.layout()) {
        let of = TopicPartition { topic, partition };
        let mut from = log.bounds(of).expect("bounds").start;
        // An equal share of each partition: chains have one lane each, and there are as many partitions of orders.
        let most = count.div_ceil(CHAINS.len());
        let mut left = most;
        while left > 0 {
            let records = log.read(of, from, left.min(CHUNK)).expect("readable");
            let Some(last) = records.last() else { break };
            from = last.offset.next();
            left -= records.len();
            found.extend(records.into_iter().map(|record| {
                let record = Arc::unwrap_or_clone(record);
                NewRecord { to: of, key: record.key, value: record.value, headers: record.headers }
            }));
        }
    }
    found.truncate(count);
    found
}

fn ours<R: Record>(topic: Topic, blockchain: Blockchain, record: &R) -> NewRecord {
    let lane = LAYOUT.lane(blockchain, &wallet());
    NewRecord::encode(topic, lane, wallet().to_string(), record).expect("encoded")
}

fn peers(topic: Topic, blockchain: Blockchain, value: Vec<u8>) -> NewRecord {
    let partition = LAYOUT.lane(blockchain, &wallet());
    let key = wallet().bytes().to_vec();
    let to = TopicPartition { topic, partition };
    NewRecord { to, key, value: Some(value), headers: Headers::default() }
}

fn units(value: schemas::Amount) -> [u8; 16] {
    value.parts().to_be_bytes()
}

fn coin_byte(stablecoin: Stablecoin) -> u8 {
    stablecoin as u8
}

fn peer_open(command: &DepositCommand) -> Vec<u8> {
    let DepositCommandBody::Open(open) = &command.body else { return Vec::new() };
    let OpenDeposit { stablecoin, value, started_at, expires_at, .. } = open;
    let mut bytes = Vec::with_capacity(70);
    bytes.push(b'O');
    bytes.extend_from_slice(command.order_id.0.as_bytes());
    bytes.extend_from_slice(command.wallet_address.bytes());
    bytes.push(coin_byte(*stablecoin));
    bytes.extend_from_slice(&units(*value));
    bytes.extend_from_slice(&started_at.0.to_be_bytes());
    bytes.extend_from_slice(&expires_at.0.to_be_bytes());
    bytes
}

fn peer_raw(record: &ChainRecord, raw_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw_bytes);
    match &record.body {
        ChainBody::Transfer(seen) | ChainBody::Retract(seen) => peer_seen(record, seen, &mut bytes),
        ChainBody::Head(_) | ChainBody::Watch(_) => {
            bytes.push(b'H');
            bytes.extend_from_slice(&record.block.number.to_be_bytes());
        }
    }
    let text = b"blockchain eth stablecoin usdt status waiting_for_confirmation reason none ";
    let missing = raw_bytes.saturating_sub(bytes.len());
    bytes.extend(text.iter().cycle().take(missing));
    bytes
}

fn peer_seen(record: &ChainRecord, seen: &Observation, bytes: &mut Vec<u8>) {
    bytes.push(b'T');
    bytes.extend_from_slice(&record.block.number.to_be_bytes());
    bytes.extend_from_slice(&seen.tx_hash.0);
    bytes.extend_from_slice(&seen.ordinal.to_be_bytes());
    bytes.extend_from_slice(seen.to_address.bytes());
    bytes.push(coin_byte(seen.stablecoin));
    bytes.extend_from_slice(&units(seen.value));
    bytes.extend_from_slice(&record.block.timestamp.0.to_be_bytes());
    bytes.extend_from_slice(&record.block.hash.0);
    bytes.extend_from_slice(seen.contract.bytes());
    bytes.extend_from_slice(seen.from_address.bytes());
    bytes.extend_from_slice(&record.observed_at.0.to_be_bytes());
    bytes.extend_from_slice(&record.epoch.0.to_be_bytes());
    bytes.push(u8::from(record.confirmed));
}
