//! The orders machine on the log: one partition.

use std::collections::HashSet;

use log::Envelope;
use log::{self, NewRecord};
use runtime::Clock;
use schemas::record::{OrderCommand, OrderCommandBody};
use schemas::{CodecError, Layout, OrderId, Partition, Topic, UnixSeconds};

use super::{Change, Machine, Rejected, decode_entry, encode_changes};
use crate::machine::orders::{Effect, State};

/// How many ticks one step writes at most.
const TICKS_MAX: usize = 1000;

/// One partition of orders.
pub(super) struct Orders {
    partition: Partition,
    state: State,
    /// Ticks written and not read back yet: not to be written again.
    ticking: HashSet<OrderId>,
    /// Kept between inputs to spare the allocation.
    effects: Vec<Effect>,
}

impl Machine for Orders {
    const GROUP: &'static str = "processor.orders";
    const INPUTS: &'static [Topic] = &[Topic::OrdersCommands];
    const CHANGELOG: Topic = Topic::OrdersChangelog;

    fn new(partition: Partition, _layout: &Layout) -> Self {
        Self { partition, state: State::new(), ticking: HashSet::new(), effects: Vec::new() }
    }

    fn take(
        &mut self,
        record: &log::Record,
        layout: &Layout,
        outputs: &mut Vec<NewRecord>,
    ) -> Result<(), Rejected> {
        let value = record.value.as_deref().unwrap_or_default();
        let command: OrderCommand =
            schemas::decode(value).map_err(|error| Rejected::Poison(error.to_string()))?;
        if command.body == OrderCommandBody::Tick {
            self.ticking.remove(&command.order_id);
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.state.decide(&command, &mut effects);
        let mut envelope = Envelope::of(record);
        for effect in effects.drain(..) {
            outputs.push(match &effect {
                Effect::Order(order) => {
                    let key = order.order_id.to_string();
                    envelope.wrap(Topic::Orders, self.partition, key, order)?
                }
                Effect::Command(command) => {
                    let lane = layout.lane(command.blockchain, &command.wallet_address);
                    let key = command.wallet_address.to_string();
                    envelope.wrap(Topic::DepositsCommands, lane, key, command)?
                }
            });
        }
        self.effects = effects;
        Ok(())
    }

    fn timers(
        &mut self,
        now: UnixSeconds,
        outputs: &mut Vec<NewRecord>,
        clock: &dyn Clock,
    ) -> Result<(), CodecError> {
        for order_id in self.state.due(now, TICKS_MAX) {
            if !self.ticking.insert(order_id) {
                continue;
            }
            let issued_at = clock.now();
            let body = OrderCommandBody::Tick;
            let tick = OrderCommand { order_id, command_id: None, issued_at, body };
            let origin = format!("tick/{order_id}/{}", issued_at.0);
            let mut envelope = Envelope::from_outside(origin, issued_at, None);
            let key = order_id.to_string();
            outputs.push(envelope.wrap(Topic::OrdersCommands, self.partition, key, &tick)?);
        }
        Ok(())
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
        self.ticking.clear();
    }

    fn rows(&self) -> usize {
        self.state.len()
    }
}
