//! The two machines as pure functions from records to records. How effects become records is said here
//! once more, so that the processor's runner is compared with something.

use std::fmt::Debug;

use log::Envelope;
use log::{NewRecord, Record};
use processor::machine::matching::TransferStage;
use processor::machine::{matching, orders};
use schemas::record::{MatchingEntry, OrderCommand, OrdersEntry};
use schemas::{Blockchain, Layout, OrderId, Partition, Topic};

use super::{Change, Taken};

/// A machine to fold.
pub trait Folded: Sized + Clone + Debug {
    /// Its consumer group.
    const GROUP: &'static str;
    /// Its inputs.
    const INPUTS: &'static [Topic];
    /// Its changelog.
    const CHANGELOG: Topic;
    /// What it takes.
    type Input: Clone + Debug;
    /// What it wants done.
    type Effect: Clone + Debug;

    /// One partition that has seen nothing.
    fn new(partition: Partition, layout: Layout) -> Self;
    /// Reads an input.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn parse(&self, record: &Record) -> Result<Self::Input, String>;
    /// What follows from it.
    fn decide(&mut self, input: &Self::Input) -> Vec<Self::Effect>;
    /// The record that an effect is.
    fn wrap(&self, effect: &Self::Effect, envelope: &mut Envelope<'_>) -> NewRecord;
    /// What was changed since the last commit.
    fn changes(&self) -> Vec<Change>;
    /// How far the row of an entry is.
    fn version(value: Option<&[u8]>) -> Version;
    /// The changes stay.
    fn commit(&mut self);
    /// The changes are taken back.
    fn undo(&mut self);
    /// Takes an entry of the changelog.
    ///
    /// # Errors
    /// Why it is none.
    fn restore(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String>;
    /// The whole state.
    fn snapshot(&self) -> Vec<Change>;
}

fn encode<R: schemas::record::Record>(key: String, entry: Option<&R>) -> Change {
    let bytes = |entry| schemas::encode(entry).unwrap_or_else(|error| panic!("{key}: {error}"));
    let value = entry.map(bytes);
    (key, value)
}

/// How far a row is in its history. A lane has two counts, each of which only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// By its head and by the ids that it gave.
    Lane([i64; 2]),
    /// By its version clock, and whether it asks an order.
    Row(i64, bool),
    /// It is gone.
    Gone,
}

impl Version {
    /// Whether a row in this version may become one in that version.
    pub(super) fn is_up_to(&self, that: &Self) -> bool {
        match (self, that) {
            (Self::Lane(these), Self::Lane(those)) => {
                these.iter().zip(those).all(|(this, that)| this <= that)
            }
            (Self::Row(clock, asks), Self::Row(later, asks_later)) => {
                (clock, asks) <= (later, asks_later)
            }
            (_, Self::Gone) => true,
            _ => false,
        }
    }

    /// Whether there is one value of this version.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self, Self::Lane(_))
    }
}

/// Matching, one lane.
#[derive(Debug, Clone)]
pub struct Lane {
    blockchain: Blockchain,
    partition: Partition,
    layout: Layout,
    state: matching::State,
}

impl Lane {
    /// The order that an input of a lane is about.
    pub(super) fn order(taken: &Taken<Self>) -> Option<OrderId> {
        match &taken.input {
            Some(matching::Input::Command(command)) => Some(command.order_id),
            _ => None,
        }
    }
}

impl Folded for Lane {
    const GROUP: &'static str = "processor.matching";
    // Commands first: where both fit, the command is the one that a later head may spoil.
    const INPUTS: &'static [Topic] = &[Topic::DepositsCommands, Topic::TransfersRaw];
    const CHANGELOG: Topic = Topic::MatchingChangelog;
    type Input = matching::Input;
    type Effect = matching::Effect;

    fn new(partition: Partition, layout: Layout) -> Self {
        let has = |chain: &&Blockchain| layout.lanes_of(**chain).any(|lane| lane == partition);
        let blockchain = *Blockchain::ALL.iter().find(has).expect("each lane is some chain's");
        let state = matching::State::new(blockchain, partition);
        Self { blockchain, partition, layout, state }
    }

    fn parse(&self, record: &Record) -> Result<matching::Input, String> {
        let value = record.value.as_deref().unwrap_or_default();
        let (input, blockchain) = if record.from.topic == Topic::TransfersRaw {
            let record: schemas::record::ChainRecord =
                schemas::decode(value).map_err(|error| error.to_string())?;
            let blockchain = record.blockchain;
            (matching::Input::Chain(record), blockchain)
        } else {
            let command: schemas::record::DepositCommand =
                schemas::decode(value).map_err(|error| error.to_string())?;
            let blockchain = command.blockchain;
            (matching::Input::Command(command), blockchain)
        };
        if blockchain == self.blockchain {
            Ok(input)
        } else {
            Err(format!("a record of {blockchain} in a lane of {}", self.blockchain))
        }
    }

    fn decide(&mut self, input: &matching::Input) -> Vec<matching::Effect> {
        let mut effects = Vec::new();
        self.state.decide(input, &mut effects);
        effects
    }

    fn wrap(&self, effect: &matching::Effect, envelope: &mut Envelope<'_>) -> NewRecord {
        let lane = self.partition;
        let wrapped = match effect {
            matching::Effect::Transfer(stage, transfer) => {
                let topic = match stage {
                    TransferStage::Detected => Topic::TransfersDetected,
                    TransferStage::Confirmed => Topic::TransfersConfirmed,
                    TransferStage::Matched => Topic::TransfersMatched,
                    TransferStage::Unknown => Topic::TransfersUnknown,
                    TransferStage::Failed => Topic::TransfersFailed,
                };
                let wallet = transfer.observation.to_address.to_string();
                envelope.wrap(topic, lane, wallet, transfer)
            }
            matching::Effect::Deposit(deposit) => {
                envelope.wrap(Topic::Deposits, lane, deposit.wallet_address.to_string(), deposit)
            }
            matching::Effect::Command(command) => {
                let key = command.order_id.to_string();
                envelope.wrap(Topic::OrdersCommands, self.layout.order(&key), key, command)
            }
            matching::Effect::Alert(alert) => {
                envelope.wrap(Topic::Alerts, Partition(0), alert.blockchain.as_str(), alert)
            }
        };
        wrapped.expect("effects fit their schemas")
    }

    fn changes(&self) -> Vec<Change> {
        self.state.changes().into_iter().map(|(key, entry)| encode(key, entry.as_ref())).collect()
    }

    fn version(value: Option<&[u8]>) -> Version {
        let Some(Ok(entry)) = value.map(schemas::decode) else { return Version::Gone };
        match entry {
            MatchingEntry::Lane(lane) => {
                let number = lane.head.map_or(-1, |head| head.number);
                Version::Lane([(lane.epoch.0 << 40) + number, lane.sequence])
            }
            MatchingEntry::Deposit(entry) => Version::Row(entry.deposit.updated_at.0, false),
            MatchingEntry::Transfer(entry) => {
                Version::Row(entry.transfer.updated_at.0, entry.settling)
            }
        }
    }

    fn commit(&mut self) {
        self.state.commit();
    }

    fn undo(&mut self) {
        self.state.undo();
    }

    fn restore(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String> {
        let entry = value.map(schemas::decode::<MatchingEntry>).transpose();
        self.state.restore(key, entry.map_err(|error| error.to_string())?.as_ref())
    }

    fn snapshot(&self) -> Vec<Change> {
        let all = self.state.snapshot();
        all.into_iter().map(|(key, entry)| encode(key, Some(&entry))).collect()
    }
}

/// Orders, one partition.
#[derive(Debug, Clone)]
pub struct Orders {
    partition: Partition,
    layout: Layout,
    state: orders::State,
}

impl Folded for Orders {
    const GROUP: &'static str = "processor.orders";
    const INPUTS: &'static [Topic] = &[Topic::OrdersCommands];
    const CHANGELOG: Topic = Topic::OrdersChangelog;
    type Input = OrderCommand;
    type Effect = orders::Effect;

    fn new(partition: Partition, layout: Layout) -> Self {
        Self { partition, layout, state: orders::State::new() }
    }

    fn parse(&self, record: &Record) -> Result<OrderCommand, String> {
        schemas::decode(record.value.as_deref().unwrap_or_default())
            .map_err(|error| error.to_string())
    }

    fn decide(&mut self, input: &OrderCommand) -> Vec<orders::Effect> {
        let mut effects = Vec::new();
        self.state.decide(input, &mut effects);
        effects
    }

    fn wrap(&self, effect: &orders::Effect, envelope: &mut Envelope<'_>) -> NewRecord {
        let wrapped = match effect {
            orders::Effect::Order(order) => {
                envelope.wrap(Topic::Orders, self.partition, order.order_id.to_string(), order)
            }
            orders::Effect::Command(command) => {
                let lane = self.layout.lane(command.blockchain, &command.wallet_address);
                let wallet = command.wallet_address.to_string();
                envelope.wrap(Topic::DepositsCommands, lane, wallet, command)
            }
        };
        wrapped.expect("effects fit their schemas")
    }

    fn changes(&self) -> Vec<Change> {
        self.state.changes().into_iter().map(|(key, entry)| encode(key, entry.as_ref())).collect()
    }

    fn version(value: Option<&[u8]>) -> Version {
        // Its inputs are in one order: there is nothing to find out.
        value.map_or(Version::Gone, |_| Version::Lane([0, 0]))
    }

    fn commit(&mut self) {
        self.state.commit();
    }

    fn undo(&mut self) {
        self.state.undo();
    }

    fn restore(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String> {
        let entry = value.map(schemas::decode::<OrdersEntry>).transpose();
        self.state.restore(key, entry.map_err(|error| error.to_string())?.as_ref())
    }

    fn snapshot(&self) -> Vec<Change> {
        let all = self.state.snapshot();
        all.into_iter().map(|(key, entry)| encode(key, Some(&entry))).collect()
    }
}
