//! The matching machine on the log: one lane.

use log::{NewRecord, Unreadable};
use schemas::record::Alert;
use schemas::{Blockchain, CodecError, Layout, Partition, Topic};

use super::Wire;
use crate::machine::matching::{Effect, Input, State, TransferStage};

impl Wire for State {
    const GROUP: &'static str = "processor.matching";
    const INPUTS: &'static [Topic] = &[Topic::TransfersRaw, Topic::DepositsCommands];
    const CHANGELOG: Topic = Topic::MatchingChangelog;
    const STEPS: Topic = Topic::MatchingSteps;
    const HAS_TIMERS: bool = false;

    fn fresh(partition: Partition, layout: &Layout) -> Option<Self> {
        let has = |chain: &&Blockchain| layout.lanes_of(**chain).any(|lane| lane == partition);
        let blockchain = Blockchain::ALL.iter().find(has)?;
        Some(Self::new(*blockchain, partition))
    }

    fn parse(&self, record: &log::Record) -> Result<Input, Unreadable> {
        let input = if record.from.topic == Topic::TransfersRaw {
            Input::Chain(record.read()?)
        } else {
            Input::Command(record.read()?)
        };
        let blockchain = input.blockchain();
        if blockchain == self.blockchain() {
            Ok(input)
        } else {
            let reason = format!("a record of {blockchain} in a lane of {}", self.blockchain());
            Err(Unreadable::Garbage(reason))
        }
    }

    fn encode(effect: &Effect, lane: Partition, layout: &Layout) -> Result<NewRecord, CodecError> {
        match effect {
            Effect::Transfer(stage, transfer) => {
                let topic = match stage {
                    TransferStage::Detected => Topic::TransfersDetected,
                    TransferStage::Confirmed => Topic::TransfersConfirmed,
                    TransferStage::Matched => Topic::TransfersMatched,
                    TransferStage::Unknown => Topic::TransfersUnknown,
                    TransferStage::Failed => Topic::TransfersFailed,
                };
                let wallet = transfer.observation.to_address.to_string();
                NewRecord::encode(topic, lane, wallet, transfer)
            }
            Effect::Deposit(deposit) => {
                let wallet = deposit.wallet_address.to_string();
                NewRecord::encode(Topic::Deposits, lane, wallet, deposit)
            }
            Effect::Command(command) => {
                let key = command.order_id.to_string();
                NewRecord::encode(Topic::OrdersCommands, layout.order(&key), key, command)
            }
            Effect::Alert(alert) => {
                let chain = alert.blockchain.map_or("", Blockchain::as_str);
                NewRecord::encode(Topic::Alerts, Partition(0), chain, alert)
            }
            Effect::Progress(progress) => {
                let partition = Partition(progress.blockchain.index());
                let key = format!("{}/{lane}", progress.blockchain);
                NewRecord::encode(Topic::Chains, partition, key, progress)
            }
        }
    }

    fn alert(effect: &Effect) -> Option<&Alert> {
        match effect {
            Effect::Alert(alert) => Some(alert),
            Effect::Transfer(..)
            | Effect::Deposit(_)
            | Effect::Command(_)
            | Effect::Progress(_) => None,
        }
    }
}
