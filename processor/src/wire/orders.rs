//! The orders machine on the log: one partition.

use log::{NewRecord, Unreadable};
use schemas::record::OrderCommand;
use schemas::{CodecError, Layout, OrderId, Partition, Topic};

use super::Wire;
use crate::machine::orders::{Effect, State};

impl Wire for State {
    const GROUP: &'static str = "processor.orders";
    const INPUTS: &'static [Topic] = &[Topic::OrdersCommands];
    const CHANGELOG: Topic = Topic::OrdersChangelog;
    const STEPS: Topic = Topic::OrdersSteps;
    const HAS_TIMERS: bool = true;

    fn fresh(_partition: Partition, _layout: &Layout) -> Option<Self> {
        Some(Self::new())
    }

    fn parse(&self, record: &log::Record) -> Result<OrderCommand, Unreadable> {
        record.read()
    }

    fn encode(
        effect: &Effect,
        partition: Partition,
        layout: &Layout,
    ) -> Result<NewRecord, CodecError> {
        match effect {
            Effect::Order(order) => {
                NewRecord::encode(Topic::Orders, partition, order.order_id.to_string(), order)
            }
            Effect::Command(command) => {
                let lane = layout.lane(command.blockchain, &command.wallet_address);
                let key = command.wallet_address.to_string();
                NewRecord::encode(Topic::DepositsCommands, lane, key, command)
            }
        }
    }

    fn order(command: &OrderCommand) -> Option<OrderId> {
        Some(command.order_id)
    }
}
