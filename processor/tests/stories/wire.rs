//! Encoding of effects and inputs, against a table written by hand. The bytes are the golden files of `schemas`; the
//! partitions were computed by another implementation of murmur2.

use log::{Offset, Record, TopicPartition, Unreadable};
use schemas::record::example;
use schemas::{Blockchain, Headers, Layout, Partition, Topic, UnixMicros, UnixSeconds};
use tidemark_processor::machine::matching::{self, Input, TransferStage};
use tidemark_processor::machine::orders;
use tidemark_processor::wire::{Wire, tick};

const LAYOUT: Layout = Layout { lanes: 3, orders: 7, webhooks: 1 };
const ORDER: &str = "01996d3c-5b00-7abc-8def-0123456789ab";
const WALLET: &str = "0x1111111111111111111111111111111111111111";
const ORDER_PARTITION: Partition = Partition(1);
/// Ethereum is the first chain, and the wallet is in the last of its three lanes.
const LANE: Partition = Partition(2);

fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/../schemas/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    let digits: Vec<char> = std::fs::read_to_string(path).unwrap().trim().chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Checks the record of an effect of the machine of `partition`: topic, partition, key, value.
#[track_caller]
fn check<M: Wire>(
    effect: &M::Effect,
    partition: Partition,
    (topic, to, key, value): (&str, u32, &str, &str),
) {
    let record = M::encode(effect, partition, &LAYOUT).unwrap();
    let found = (record.to.topic.name(), record.to.partition.0, record.key.as_slice());
    assert_eq!(found, (topic, to, key.as_bytes()));
    assert_eq!(record.value, Some(golden(value)), "{topic} has the bytes of {value}.hex");
}

#[test]
fn effects_have_their_place() {
    for (stage, topic) in [
        (TransferStage::Detected, "transfers.detected"),
        (TransferStage::Confirmed, "transfers.confirmed"),
        (TransferStage::Matched, "transfers.matched"),
        (TransferStage::Unknown, "transfers.unknown"),
        (TransferStage::Failed, "transfers.failed"),
    ] {
        let effect = matching::Effect::Transfer(stage, example::transfer());
        check::<matching::State>(&effect, LANE, (topic, 2, WALLET, "transfer"));
    }
    for (effect, expected) in [
        (matching::Effect::Deposit(example::deposit()), ("deposits", 2, WALLET, "deposit")),
        (
            matching::Effect::Command(example::order_command()),
            ("orders.commands", 1, ORDER, "order_command"),
        ),
        (matching::Effect::Alert(example::alert()), ("alerts", 0, "eth", "alert")),
        (
            matching::Effect::Progress(example::lane_progress()),
            ("chains", 0, "eth/2", "lane_progress"),
        ),
    ] {
        check::<matching::State>(&effect, LANE, expected);
    }
    for (effect, expected) in [
        (orders::Effect::Order(example::order()), ("orders", 1, ORDER, "order")),
        (
            orders::Effect::Command(example::deposit_command()),
            ("deposits.commands", 2, WALLET, "deposit_command"),
        ),
    ] {
        check::<orders::State>(&effect, ORDER_PARTITION, expected);
    }
    let tick = tick(example::order().order_id, UnixSeconds(5).micros(), ORDER_PARTITION).unwrap();
    let found = (tick.to.topic.name(), tick.to.partition.0, tick.key.as_slice());
    assert_eq!(found, ("orders.commands", 1, ORDER.as_bytes()));
}

fn input(topic: Topic, value: Option<Vec<u8>>) -> Record {
    Record {
        from: TopicPartition { topic, partition: LANE },
        offset: Offset(0),
        appended_at: UnixMicros(0),
        key: Vec::new(),
        value,
        headers: Headers::default(),
    }
}

#[test]
fn inputs_are_read() {
    let lane = matching::State::fresh(LANE, &LAYOUT).unwrap();
    let parse = |topic, name| lane.parse(&input(topic, Some(golden(name))));
    assert_eq!(
        parse(Topic::TransfersRaw, "chain_record"),
        Ok(Input::Chain(example::chain_record()))
    );
    assert_eq!(parse(Topic::TransfersRaw, "chain_head"), Ok(Input::Chain(example::chain_head())));
    let command = Input::Command(example::deposit_command());
    assert_eq!(parse(Topic::DepositsCommands, "deposit_command"), Ok(command));
    assert!(parse(Topic::DepositsCommands, "chain_record").is_err());
    assert!(lane.parse(&input(Topic::TransfersRaw, None)).is_err());

    let orders = orders::State::new();
    let command = orders.parse(&input(Topic::OrdersCommands, Some(golden("order_command"))));
    assert_eq!(command, Ok(example::order_command()));
    assert!(orders.parse(&input(Topic::OrdersCommands, Some(golden("order")))).is_err());
}

#[test]
fn a_lane_is_of_one_chain() {
    let chain = |partition| {
        matching::State::fresh(Partition(partition), &LAYOUT).map(|lane| lane.blockchain())
    };
    assert_eq!(
        [0, 2, 3].map(chain),
        [Blockchain::Eth, Blockchain::Eth, Blockchain::Polygon].map(Some)
    );
    let end = LAYOUT.lanes * Blockchain::ALL.len() as u32;
    assert_eq!([end - 1, end].map(chain), [Blockchain::ALL.last().copied(), None]);
    let polygon = matching::State::fresh(Partition(3), &LAYOUT).unwrap();
    let refused = polygon.parse(&input(Topic::TransfersRaw, Some(golden("chain_record"))));
    let reason = "a record of eth in a lane of polygon".to_owned();
    assert_eq!(refused, Err(Unreadable::Garbage(reason)));
}
