//! Orders: the only arbiter of whether an order is paid, expired or cancelled.
//!
//! pending -> paid | expired | cancelled; mark-paid from any state; everything else leaves a terminal
//! order as it is. Whatever deposits an order has, the first settle wins.
//!
//! **Invariants** (`design` 11): 2 an order is paid by at most one transfer; 4 terminal states stay,
//! except by mark-paid.

mod deposit;
mod payment;

use std::collections::BTreeSet;

use schemas::record::{
    CreateOrder, DepositCommand, DepositCommandBody, Order, OrderCommand, OrderCommandBody,
    OrdersEntry, PendingChoice, Settle,
};
use schemas::{
    CloseReason, CommandId, DepositState, OrderCause, OrderId, OrderStatus, TransferId, UnixMicros,
    UnixSeconds, UnknownReason,
};

use super::journal::Journal;

/// An order may have at most this many deposits asked for; more choices are refused.
pub const DEPOSITS_MAX: usize = 64;

/// What the machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Publish the order.
    Order(Order),
    /// Tell the lane of a wallet.
    Command(DepositCommand),
}

/// One order with what its record does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OrderRow {
    order: Order,
    pending: Vec<PendingChoice>,
}

impl OrderRow {
    fn is_pending(&self) -> bool {
        self.order.status == OrderStatus::Pending
    }

    /// Whether some deposit may still be paid.
    fn has_active_deposit(&self) -> bool {
        self.order
            .deposits
            .iter()
            .any(|d| matches!(d.state, DepositState::Requested | DepositState::Open))
    }

    /// When its own timer is due. With a deposit, the chain's time decides instead.
    fn timer(&self) -> Option<UnixSeconds> {
        (self.is_pending() && !self.has_active_deposit()).then_some(self.order.expires_at)
    }
}

/// Everything the machine knows of the orders of one partition.
#[derive(Debug, Clone, Default)]
pub struct State {
    orders: Journal<OrderId, OrderRow>,
    timers: BTreeSet<(UnixSeconds, OrderId)>,
}

impl State {
    /// No orders.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many orders are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether no order is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.orders.len() == 0
    }

    /// The orders whose own timer is past at `now`, first due first, at most `max`. Each is to be told by
    /// a `tick` on the log.
    #[must_use]
    pub fn due(&self, now: UnixSeconds, max: usize) -> Vec<OrderId> {
        self.timers.iter().take_while(|(at, _)| *at < now).take(max).map(|(_, id)| *id).collect()
    }

    /// Takes one command and adds what follows from it to `effects`.
    pub fn decide(&mut self, command: &OrderCommand, effects: &mut Vec<Effect>) {
        use OrderCommandBody as Body;
        if let Body::Create(create) = &command.body {
            return self.create(command, create, effects);
        }
        let Some(row) = self.orders.get(&command.order_id).cloned() else {
            // Answered all the same, or the transfer would wait for ever.
            if let Body::Settle(settle) = &command.body {
                effects.push(refuse(command, settle, UnknownReason::NoDeposit));
            }
            return;
        };
        match &command.body {
            Body::Create(_) => {}
            Body::ChoosePayment(payment) => self.choose(row, command, payment, effects),
            Body::Cancel => self.cancel(row, command, effects),
            Body::MarkPaid => self.mark_paid(row, command, effects),
            Body::DepositOpened { slot, deposit_id, value } => {
                self.deposit_opened(row, command, *slot, (*deposit_id, *value), effects);
            }
            Body::DepositRefused { slot, wallet_address, reason } => {
                self.deposit_refused(row, command, *slot, (*wallet_address, *reason), effects);
            }
            Body::DepositClosed { slot, reason } => {
                self.deposit_closed(row, command, *slot, *reason, effects);
            }
            Body::CandidateSeen { transfer_id } => {
                self.candidate_seen(row, command, *transfer_id, effects);
            }
            Body::CandidateGone { transfer_id } => {
                self.candidate_gone(row, command, *transfer_id, effects);
            }
            Body::Settle(settle) => self.settle(row, command, settle, effects),
            Body::Tick => {
                if row.timer().is_some_and(|at| at < command.issued_at.seconds()) {
                    self.end(row, command, OrderStatus::Expired, OrderCause::Expired, effects);
                }
            }
        }
    }

    fn create(&mut self, command: &OrderCommand, create: &CreateOrder, effects: &mut Vec<Effect>) {
        if self.orders.get(&command.order_id).is_some() {
            return; // The same create again: its sender finds the order that stands.
        }
        let order = Order {
            order_id: command.order_id,
            version: 0,
            updated_at: UnixMicros(0),
            cause: OrderCause::Created,
            command_id: None,
            status: OrderStatus::Pending,
            status_changed: false,
            merchant_order_id: create.merchant_order_id.clone(),
            amount: create.amount,
            amount_text: create.amount_text.clone(),
            webhook_url: create.webhook_url.clone(),
            expecting_wallet_address: create.expecting_wallet_address,
            blockchain: create.blockchain,
            stablecoin: create.stablecoin,
            created_at: command.issued_at.seconds(),
            expires_at: create.expires_at,
            paid_by: None,
            candidates: Vec::new(),
            deposits: Vec::new(),
        };
        let row = OrderRow { order, pending: Vec::new() };
        let row = self.publish(row, command, OrderCause::Created, command.command_id, effects);
        if let Some(payment) = &create.payment {
            self.choose(row, command, payment, effects);
        }
    }

    fn cancel(&mut self, row: OrderRow, command: &OrderCommand, effects: &mut Vec<Effect>) {
        let cause = match (row.is_pending(), row.order.candidates.is_empty()) {
            (false, _) => OrderCause::NotPending,
            (true, false) => OrderCause::CancelRefused,
            (true, true) => {
                let cause = OrderCause::Cancelled;
                return self.end(row, command, OrderStatus::Cancelled, cause, effects);
            }
        };
        self.publish(row, command, cause, command.command_id, effects);
    }

    fn mark_paid(&mut self, row: OrderRow, command: &OrderCommand, effects: &mut Vec<Effect>) {
        if row.order.status == OrderStatus::Paid {
            let cause = OrderCause::MarkPaidRepeated;
            self.publish(row, command, cause, command.command_id, effects);
        } else {
            self.end(row, command, OrderStatus::Paid, OrderCause::MarkedPaid, effects);
        }
    }

    fn candidate_seen(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        transfer_id: TransferId,
        effects: &mut Vec<Effect>,
    ) {
        if row.is_pending() && !row.order.candidates.contains(&transfer_id) {
            row.order.candidates.push(transfer_id);
            self.publish(row, command, OrderCause::CandidateSeen, None, effects);
        }
    }

    fn candidate_gone(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        transfer_id: TransferId,
        effects: &mut Vec<Effect>,
    ) {
        let before = row.order.candidates.len();
        row.order.candidates.retain(|id| *id != transfer_id);
        if row.is_pending() && row.order.candidates.len() < before {
            self.publish(row, command, OrderCause::CandidateGone, None, effects);
        }
    }

    /// A confirmed transfer asks to pay: the first one does.
    fn settle(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        settle: &Settle,
        effects: &mut Vec<Effect>,
    ) {
        let reason = match row.order.status {
            OrderStatus::Pending => {
                row.order.paid_by = Some(settle.transfer_id);
                if let Some(deposit) = row.deposit_mut(settle.slot) {
                    deposit.state = DepositState::Closed;
                }
                effects.push(answer(command, settle, settled(settle)));
                return self.end(row, command, OrderStatus::Paid, OrderCause::Paid, effects);
            }
            OrderStatus::Paid if row.order.paid_by == Some(settle.transfer_id) => {
                return effects.push(answer(command, settle, settled(settle)));
            }
            OrderStatus::Paid => UnknownReason::AlreadyPaid,
            OrderStatus::Expired => UnknownReason::Late,
            OrderStatus::Cancelled => UnknownReason::OrderCancelled,
        };
        effects.push(refuse(command, settle, reason));
    }

    /// Moves the order to a terminal state and lets go of its deposits.
    fn end(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        status: OrderStatus,
        cause: OrderCause,
        effects: &mut Vec<Effect>,
    ) {
        debug_assert!(
            row.is_pending() || cause == OrderCause::MarkedPaid,
            "invariant 4: terminal states stay"
        );
        row.order.status = status;
        row.order.candidates.clear();
        for deposit in row.order.deposits.iter().filter(|d| d.state == DepositState::Open) {
            effects.push(row.close(command, deposit, close_reason(status)));
        }
        self.publish(row, command, cause, command.command_id, effects);
    }

    /// Stores the order's new state and publishes it as its next version.
    fn publish(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        cause: OrderCause,
        command_id: Option<CommandId>,
        effects: &mut Vec<Effect>,
    ) -> OrderRow {
        let order = &mut row.order;
        let before = self.orders.get(&order.order_id).map(|row| row.order.status);
        order.version = order.version.saturating_add(1);
        order.updated_at = order.updated_at.next(command.issued_at);
        order.cause = cause;
        order.command_id = command_id;
        order.status_changed = before.is_some_and(|status| status != order.status);
        effects.push(Effect::Order(order.clone()));
        self.store(row.clone());
        row
    }

    fn store(&mut self, row: OrderRow) {
        self.set(row.order.order_id, Some(row));
    }

    fn set(&mut self, id: OrderId, row: Option<OrderRow>) {
        let timer = row.as_ref().and_then(OrderRow::timer);
        let old = self.orders.set(id, row);
        if let Some(at) = old.as_ref().and_then(OrderRow::timer) {
            self.timers.remove(&(at, id));
        }
        if let Some(at) = timer {
            self.timers.insert((at, id));
        }
    }

    /// What the step changed, for the changelog: key and entry.
    #[must_use]
    pub fn changes(&self) -> Vec<(String, Option<OrdersEntry>)> {
        let entry = |id: OrderId| (id.to_string(), self.orders.get(&id).map(entry));
        self.orders.touched().into_iter().map(entry).collect()
    }

    /// The step is committed.
    pub fn commit(&mut self) {
        self.orders.commit();
    }

    /// The step did not happen: the state is as it was before it.
    pub fn undo(&mut self) {
        for (id, row) in self.orders.way_back() {
            self.set(id, row);
        }
        self.orders.commit();
    }

    /// Takes an entry of the changelog.
    ///
    /// # Errors
    /// The key, if it is no order's.
    pub fn restore(&mut self, key: &str, entry: Option<&OrdersEntry>) -> Result<(), String> {
        let id: OrderId = key.parse().map_err(|_| key.to_owned())?;
        let row = entry
            .map(|entry| OrderRow { order: entry.order.clone(), pending: entry.pending.clone() });
        self.set(id, row);
        self.commit();
        Ok(())
    }

    /// The whole state as changelog entries, in a fixed order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(String, OrdersEntry)> {
        self.orders.sorted().into_iter().map(|(id, row)| (id.to_string(), entry(row))).collect()
    }
}

fn entry(row: &OrderRow) -> OrdersEntry {
    OrdersEntry { order: row.order.clone(), pending: row.pending.clone() }
}

fn close_reason(status: OrderStatus) -> CloseReason {
    match status {
        OrderStatus::Paid => CloseReason::OrderPaid,
        OrderStatus::Cancelled => CloseReason::OrderCancelled,
        OrderStatus::Expired | OrderStatus::Pending => CloseReason::OrderExpired,
    }
}

fn settled(settle: &Settle) -> DepositCommandBody {
    DepositCommandBody::Settled { transfer_id: settle.transfer_id }
}

fn refuse(command: &OrderCommand, settle: &Settle, reason: UnknownReason) -> Effect {
    let transfer_id = settle.transfer_id;
    answer(command, settle, DepositCommandBody::Refused { transfer_id, reason })
}

/// An answer to the lane that asked.
fn answer(command: &OrderCommand, settle: &Settle, body: DepositCommandBody) -> Effect {
    Effect::Command(DepositCommand {
        order_id: command.order_id,
        slot: settle.slot,
        blockchain: settle.blockchain,
        wallet_address: settle.wallet_address,
        issued_at: command.issued_at,
        body,
    })
}
