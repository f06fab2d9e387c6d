//! The matching machine on the log: one lane.

use log::Envelope;
use log::{self, NewRecord};
use runtime::Clock;
use schemas::{Blockchain, CodecError, Layout, Partition, Topic, UnixSeconds};

use super::{Change, Machine, Rejected, decode_entry, encode_changes};
use crate::machine::matching::{Effect, Input, State, TransferStage};

/// One lane.
pub(super) struct Lane {
    blockchain: Blockchain,
    partition: Partition,
    state: State,
    /// Kept between inputs to spare the allocation.
    effects: Vec<Effect>,
}

impl Lane {
    fn parse(&self, record: &log::Record) -> Result<Input, String> {
        let value = record.value.as_deref().unwrap_or_default();
        let (input, blockchain) = match record.from.topic {
            Topic::TransfersRaw => schemas::decode(value).map(|record| {
                let record: schemas::record::ChainRecord = record;
                let blockchain = record.blockchain;
                (Input::Chain(record), blockchain)
            }),
            _ => schemas::decode(value).map(|command| {
                let command: schemas::record::DepositCommand = command;
                let blockchain = command.blockchain;
                (Input::Command(command), blockchain)
            }),
        }
        .map_err(|error| error.to_string())?;
        if blockchain == self.blockchain {
            Ok(input)
        } else {
            Err(format!("a record of {blockchain} in a lane of {}", self.blockchain))
        }
    }

    fn wrap(
        &self,
        effect: &Effect,
        layout: &Layout,
        envelope: &mut Envelope<'_>,
    ) -> Result<NewRecord, CodecError> {
        match effect {
            Effect::Transfer(stage, transfer) => {
                let key = transfer.observation.to_address.to_string();
                envelope.wrap(topic(*stage), self.partition, key, transfer)
            }
            Effect::Deposit(deposit) => {
                let key = deposit.wallet_address.to_string();
                envelope.wrap(Topic::Deposits, self.partition, key, deposit)
            }
            Effect::Command(command) => {
                let key = command.order_id.to_string();
                envelope.wrap(Topic::OrdersCommands, layout.order(&key), key, command)
            }
            Effect::Alert(alert) => {
                tracing::error!(blockchain = %alert.blockchain, "{}", alert.message);
                envelope.wrap(Topic::Alerts, Partition(0), alert.blockchain.as_str(), alert)
            }
        }
    }
}

fn topic(stage: TransferStage) -> Topic {
    match stage {
        TransferStage::Detected => Topic::TransfersDetected,
        TransferStage::Confirmed => Topic::TransfersConfirmed,
        TransferStage::Matched => Topic::TransfersMatched,
        TransferStage::Unknown => Topic::TransfersUnknown,
        TransferStage::Failed => Topic::TransfersFailed,
    }
}

impl Machine for Lane {
    const GROUP: &'static str = "processor.matching";
    const INPUTS: &'static [Topic] = &[Topic::TransfersRaw, Topic::DepositsCommands];
    const CHANGELOG: Topic = Topic::MatchingChangelog;

    fn new(partition: Partition, layout: &Layout) -> Self {
        let of = |chain: &&Blockchain| layout.lanes_of(**chain).any(|lane| lane == partition);
        let blockchain = Blockchain::ALL.iter().find(of).copied().unwrap_or(Blockchain::Tron);
        let state = State::new(blockchain, partition);
        Self { blockchain, partition, state, effects: Vec::new() }
    }

    fn take(
        &mut self,
        record: &log::Record,
        layout: &Layout,
        outputs: &mut Vec<NewRecord>,
    ) -> Result<(), Rejected> {
        let input = self.parse(record).map_err(Rejected::Poison)?;
        let mut effects = std::mem::take(&mut self.effects);
        self.state.decide(&input, &mut effects);
        let mut envelope = Envelope::of(record);
        for effect in effects.drain(..) {
            outputs.push(self.wrap(&effect, layout, &mut envelope)?);
        }
        self.effects = effects;
        Ok(())
    }

    fn timers(
        &mut self,
        _now: UnixSeconds,
        _outputs: &mut Vec<NewRecord>,
        _clock: &dyn Clock,
    ) -> Result<(), CodecError> {
        Ok(()) // Time comes with heads.
    }

    fn changes(&self) -> Result<Vec<Change>, CodecError> {
        encode_changes(self.state.changes())
    }

    fn restore(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String> {
        self.state.restore(key, decode_entry(value)?.as_ref())
    }

    fn commit(&mut self) {
        self.state.commit();
    }

    fn undo(&mut self) {
        self.state.undo();
    }

    fn rows(&self) -> usize {
        self.state.deposit_count().saturating_add(self.state.transfer_count())
    }
}
