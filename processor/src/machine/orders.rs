//! Orders: the only arbiter of whether an order is paid, expired or cancelled.
//!
//! pending -> paid | expired | cancelled. Any state -> paid by mark-paid, or by a transfer that an operator attaches.
//! Expired or cancelled -> paid where the shop accepts late payments. Nothing else changes a terminal status.
//! Whatever deposits an order has, the first settle wins. An ended order is forgotten once its deposits and candidates
//! have ended, and [`KEPT_SECONDS`] and its late window have passed since its last change.
//!
//! **Invariants** (`docs/internals/invariants.md`): 2 an order is paid by at most one transfer; 4 terminal states are
//! final, except by an operator or a late payment that the shop accepts; 8 an order expires only when none of its
//! deposits may still be paid, replaced ones included.

mod attach;
mod deposit;
mod end;
mod expiry;
mod forgetting;
mod payment;

pub use forgetting::KEPT_SECONDS;
pub use payment::PENDING_MAX;

use std::collections::BTreeSet;

use schemas::record::{
    CreateOrder, DepositCommand, DepositCommandBody, Order, OrderCommand, OrderCommandBody,
    OrderDeposit, OrdersEntry, PendingChoice, Settle,
};
use schemas::{
    Address, Blockchain, CloseReason, CommandId, DepositState, OrderCause, OrderId, OrderStatus,
    TransferId, UnixSeconds, UnknownReason,
};

use attach::answer_attach;
use end::{End, check_change};

use super::table::{Index, Row, RowNumber, Rows, Table, moved};
use super::{Broken, FORGOTTEN, Machine, RestoreError};

/// Maximum number of requested or open deposits of an order; more choices are refused.
pub const OPEN_MAX: usize = 3;

/// Seconds after which an unanswered request to open a deposit is repeated. Replies take seconds.
pub const ASK_AGAIN_SECONDS: i64 = 300;

/// Seconds after which lanes are requested to report open deposits or candidates. Longer than a chain takes to confirm
/// the block of the deadline, so that few requests are needed.
const ASK_OF_OPEN_SECONDS: i64 = 3600;

/// Effects that the machine publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Order(Order),
    /// To the lane of a wallet.
    Command(DepositCommand),
}

/// One order with its unpublished state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OrderRow {
    order: Order,
    pending: Vec<PendingChoice>,
    /// Longest late window of its choices, also of refused ones.
    late_window_seconds: u32,
    /// Time of the last request to lanes about its open deposits or candidates.
    asked_at: Option<UnixSeconds>,
}

impl Row for OrderRow {
    type Key = OrderId;

    fn key(&self) -> OrderId {
        self.order.order_id
    }
}

impl OrderRow {
    fn new(order: Order) -> Self {
        Self { order, pending: Vec::new(), late_window_seconds: 0, asked_at: None }
    }

    fn is_pending(&self) -> bool {
        self.order.status == OrderStatus::Pending
    }

    /// `true` if some deposit may still be paid, including one that was replaced.
    fn has_awaited_deposit(&self) -> bool {
        self.order.deposits.iter().any(is_awaited)
    }

    fn entry(&self) -> OrdersEntry {
        let Self { order, pending, late_window_seconds, asked_at } = self.clone();
        OrdersEntry { order, pending, late_window_seconds, asked_at }
    }
}

/// Orders by the time at which something is due.
type Due = BTreeSet<(UnixSeconds, OrderId)>;

/// Orders whose time is past, first due first.
fn past(due: &Due, now: UnixSeconds) -> impl Iterator<Item = OrderId> {
    due.iter().take_while(move |(at, _)| *at < now).map(|(_, id)| *id)
}

#[derive(Debug, Clone, Default)]
struct Timers {
    /// Orders, by their own timer.
    own: Due,
    /// Ended orders, by removal time.
    leaving: Due,
}

impl Index<OrderRow> for Timers {
    const ROW: &'static str = "order";
    const INVARIANT: u8 = 8;

    fn update(
        &mut self,
        _rows: &Rows<OrderRow>,
        _number: RowNumber,
        old: Option<&OrderRow>,
        new: Option<&OrderRow>,
    ) -> Result<(), Broken> {
        let timer = |row: &OrderRow| row.timer().map(|at| (at, row.key()));
        let leaves = |row: &OrderRow| row.leaves_at().map(|at| (at, row.key()));
        let agrees = moved(&mut self.own, old.and_then(timer), new.and_then(timer))
            && moved(&mut self.leaving, old.and_then(leaves), new.and_then(leaves));
        let id = old.or(new).map(Row::key);
        invariant!(8, agrees, "the timers do not have order {id:?} as it was");
        Ok(())
    }
}

/// State of the orders of one partition.
#[derive(Debug, Clone, Default)]
pub struct State {
    orders: Table<OrderRow, Timers>,
    /// Effects so far of the command under way.
    effects: Vec<Effect>,
}

impl State {
    /// Creates a state without orders.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn create(&mut self, command: &OrderCommand, create: &CreateOrder) -> Result<(), Broken> {
        if self.orders.get(command.order_id).is_some() {
            return Ok(()); // A duplicate.
        }
        if self.may_be_forgotten(command) {
            return Ok(()); // Maybe a duplicate whose order has ended and was forgotten.
        }
        let row = OrderRow::new(create.first_record(command));
        self.effects.push(Effect::Order(row.order.clone()));
        self.orders.put(row.clone())?;
        match &create.payment {
            Some(payment) => self.choose(row, command, payment),
            None => Ok(()),
        }
    }

    fn cancel(&mut self, row: OrderRow, command: &OrderCommand) -> Result<(), Broken> {
        let cause = match (row.is_pending(), row.order.candidates.is_empty()) {
            (true, true) => return self.end(row, command, End::Cancelled),
            (true, false) => OrderCause::CancelRefused,
            (false, _) => OrderCause::NotPending,
        };
        self.reply(row, command, cause)
    }

    fn mark_paid(&mut self, row: OrderRow, command: &OrderCommand) -> Result<(), Broken> {
        if row.order.status == OrderStatus::Paid {
            let cause = OrderCause::MarkPaidRepeated;
            self.reply(row, command, cause)
        } else {
            self.end(row, command, End::MarkedPaid)
        }
    }

    /// Publishes an ended order again as a new version, as only the orders machine has the current one. A pending
    /// order refuses.
    fn resend_webhook(&mut self, row: OrderRow, command: &OrderCommand) -> Result<(), Broken> {
        let pending = row.is_pending();
        let cause = if pending { OrderCause::ResendRefused } else { OrderCause::WebhookResent };
        self.reply(row, command, cause)
    }

    fn candidate_seen(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        transfer_id: TransferId,
    ) -> Result<(), Broken> {
        // Also for an ended order: an operator may still mark it paid.
        let is_paid = row.order.status == OrderStatus::Paid;
        if is_paid || row.order.candidates.contains(&transfer_id) {
            return Ok(());
        }
        row.order.candidates.push(transfer_id);
        self.publish(row, command, OrderCause::CandidateSeen, None).map(drop)
    }

    fn candidate_gone(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        transfer_id: TransferId,
    ) -> Result<(), Broken> {
        if !row.order.candidates.contains(&transfer_id) {
            return Ok(());
        }
        row.order.candidates.retain(|id| *id != transfer_id);
        self.publish(row, command, OrderCause::CandidateGone, None).map(drop)
    }

    /// Decides a settle. The first one pays, after expiry or cancel only if the shop accepts late payments. An order
    /// that an operator marked paid without a transfer also accepts one of its candidates.
    fn settle(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        settle: &Settle,
    ) -> Result<(), Broken> {
        let (payer, paid_by) = (settle.transfer_id, row.order.paid_by);
        let settled = DepositCommandBody::Settled { transfer_id: payer };
        let end = match row.order.status {
            OrderStatus::Pending => Ok(End::Paid),
            OrderStatus::Expired | OrderStatus::Cancelled if settle.accepts_late => {
                Ok(End::PaidLate)
            }
            OrderStatus::Paid if paid_by == Some(payer) => {
                self.effects.push(answer(command, settle, settled));
                return Ok(());
            }
            OrderStatus::Paid if paid_by.is_none() && row.order.candidates.contains(&payer) => {
                Ok(End::Attached)
            }
            OrderStatus::Paid => Err(UnknownReason::AlreadyPaid),
            OrderStatus::Expired => Err(UnknownReason::Late),
            OrderStatus::Cancelled => Err(UnknownReason::OrderCancelled),
        };
        let end = match end {
            Ok(end) => end,
            Err(reason) => {
                self.effects.push(refuse(command, settle, reason));
                // The transfer leaves the candidates, so that a repeated settle is refused again even if the order is
                // marked paid meanwhile.
                return self.candidate_gone(row, command, payer);
            }
        };
        let id = row.order.order_id;
        invariant!(2, paid_by.is_none(), "order {id} is paid by {paid_by:?} and {payer}");
        row.order.paid_by = Some(payer);
        // The transfer's amount is that of its deposit.
        row.order.paid_value =
            row.leave_slot(settle.slot, DepositState::Closed).and_then(|paid| paid.value);
        self.effects.push(answer(command, settle, settled));
        self.end(row, command, end)
    }

    /// Moves the order to a terminal state and closes its deposits.
    fn end(&mut self, mut row: OrderRow, command: &OrderCommand, end: End) -> Result<(), Broken> {
        row.order.status = end.status();
        if !matches!(end, End::MarkedPaid) {
            row.order.candidates.clear();
        }
        self.effects.extend(row.reserved().filter_map(|deposit| row.close_ended(command, deposit)));
        self.reply(row, command, end.cause())
    }

    /// Publishes the order as the reply to a command.
    fn reply(
        &mut self,
        row: OrderRow,
        command: &OrderCommand,
        cause: OrderCause,
    ) -> Result<(), Broken> {
        self.publish(row, command, cause, command.command_id).map(drop)
    }

    /// Stores the order's new state and publishes it as its next version.
    fn publish(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        cause: OrderCause,
        command_id: Option<CommandId>,
    ) -> Result<OrderRow, Broken> {
        let before = &self.orders.named(row.order.order_id)?.order;
        check_change(before, &row, cause)?;
        let order = &mut row.order;
        order.status_changed = order.status != before.status;
        order.version = order.version.saturating_add(1);
        order.updated_at = order.updated_at.next(command.issued_at);
        order.cause = cause;
        order.command_id = command_id;
        self.effects.push(Effect::Order(order.clone()));
        self.orders.put(row.clone())?;
        Ok(row)
    }

    /// Applies a command, and appends its effects to [`State::effects`].
    fn take(&mut self, command: &OrderCommand) -> Result<(), Broken> {
        use OrderCommandBody as Body;
        let row = match (&command.body, self.orders.get(command.order_id)) {
            (Body::Create(create), _) => return self.create(command, create),
            (_, Some(row)) => row.clone(),
            (Body::Settle(settle), None) => {
                // Without a reply the transfer would wait for ever. The order had a deposit, so it existed and ended
                // long ago; this transfer may even have paid it.
                self.effects.push(refuse(command, settle, FORGOTTEN));
                return Ok(());
            }
            (Body::Tick, None) => return self.forget(command.issued_at.seconds()),
            (Body::Attach(attach, None), None) => {
                // Refused, as the lane waits for a reply.
                self.effects.push(answer_attach(command, attach, false));
                return Ok(());
            }
            (
                Body::MarkPaid(Some(order))
                | Body::ResendWebhook(Some(order))
                | Body::Attach(_, Some(order))
                | Body::AttachRefused(Some(order)),
                None,
            ) => {
                let Some(row) = OrderRow::remembered(command, order) else { return Ok(()) };
                self.orders.put(row.clone())?;
                row
            }
            (_, None) => return Ok(()),
        };
        match &command.body {
            Body::Create(_) => Ok(()),
            Body::ChoosePayment(payment) => self.choose(row, command, payment),
            Body::Cancel => self.cancel(row, command),
            Body::MarkPaid(_) => self.mark_paid(row, command),
            Body::ResendWebhook(_) => self.resend_webhook(row, command),
            Body::DepositOpened { slot, deposit_id, value } => {
                self.deposit_opened(row, command, *slot, (*deposit_id, *value))
            }
            Body::DepositRefused { slot, wallet_address, reason } => {
                self.deposit_refused(row, command, *slot, (*wallet_address, *reason))
            }
            Body::DepositClosed { slot, reason } => {
                self.deposit_closed(row, command, *slot, *reason)
            }
            Body::CandidateSeen { transfer_id } => self.candidate_seen(row, command, *transfer_id),
            Body::CandidateGone { transfer_id } => self.candidate_gone(row, command, *transfer_id),
            Body::Settle(settle) => self.settle(row, command, settle),
            Body::Attach(attach, _) => self.attach(row, command, attach),
            Body::AttachRefused(_) => self.reply(row, command, OrderCause::AttachRefused),
            Body::Tick => self.tick(row, command),
        }
    }
}

impl Machine for State {
    type Input = OrderCommand;
    type Effect = Effect;
    type Entry = OrdersEntry;

    fn decide(&mut self, command: &OrderCommand, effects: &mut Vec<Effect>) -> Result<(), Broken> {
        std::mem::swap(&mut self.effects, effects);
        let taken = self.take(command);
        std::mem::swap(&mut self.effects, effects);
        taken
    }

    fn changes(&self) -> Vec<(String, Option<OrdersEntry>)> {
        let touched = self.orders.touched();
        touched.map(|(id, row)| (id.to_string(), row.map(OrderRow::entry))).collect()
    }

    fn commit(&mut self) {
        self.orders.commit();
    }

    fn undo(&mut self) -> Result<(), Broken> {
        self.orders.undo()
    }

    fn restore(&mut self, key: &str, entry: Option<&OrdersEntry>) -> Result<(), RestoreError> {
        let id = key.parse().ok();
        let id = id.filter(|id| entry.is_none_or(|entry| entry.order.order_id == *id));
        let id: OrderId = id.ok_or_else(|| RestoreError::Key(key.to_owned()))?;
        match entry {
            Some(entry) => {
                let OrdersEntry { order, pending, late_window_seconds, asked_at } = entry.clone();
                self.orders.put(OrderRow { order, pending, late_window_seconds, asked_at })?;
            }
            None => self.orders.remove(id)?,
        }
        self.commit();
        Ok(())
    }

    fn snapshot(&self) -> Vec<(String, OrdersEntry)> {
        let sorted = self.orders.sorted();
        sorted.into_iter().map(|row| (row.key().to_string(), row.entry())).collect()
    }

    fn rows(&self) -> usize {
        self.orders.len()
    }

    fn due(&self, now: UnixSeconds, max: usize) -> Vec<OrderId> {
        let Timers { own, leaving } = &self.orders.index;
        // One tick forgets many orders, so one of them is enough.
        past(leaving, now).take(1).chain(past(own, now)).take(max).collect()
    }

    fn ticked(command: &OrderCommand) -> Option<OrderId> {
        (command.body == OrderCommandBody::Tick).then_some(command.order_id)
    }
}

/// `true` if a deposit is requested or open, and so is shown to the order's customer.
fn is_active(deposit: &OrderDeposit) -> bool {
    matches!(deposit.state, DepositState::Requested | DepositState::Open)
}

/// `true` if a lane may reserve an amount for it, as far as the order knows.
fn is_reserved(deposit: &OrderDeposit) -> bool {
    matches!(deposit.state, DepositState::Open | DepositState::Replaced)
}

/// `true` if a deposit may still be paid, as far as the order knows.
fn is_awaited(deposit: &OrderDeposit) -> bool {
    is_active(deposit) || is_reserved(deposit)
}

/// Reason with which an ended order closes its deposits; none while it is pending.
fn close_reason(status: OrderStatus) -> Option<CloseReason> {
    match status {
        OrderStatus::Pending => None,
        OrderStatus::Paid => Some(CloseReason::OrderPaid),
        OrderStatus::Cancelled => Some(CloseReason::OrderCancelled),
        OrderStatus::Expired => Some(CloseReason::OrderExpired),
    }
}

fn refuse(command: &OrderCommand, settle: &Settle, reason: UnknownReason) -> Effect {
    let transfer_id = settle.transfer_id;
    answer(command, settle, DepositCommandBody::Refused { transfer_id, reason })
}

/// Reply to the requesting lane.
fn answer(command: &OrderCommand, settle: &Settle, body: DepositCommandBody) -> Effect {
    to_lane(command, (settle.blockchain, settle.wallet_address), settle.slot, body)
}

/// Command to the lane of a wallet, with the time of the command to the order that causes it.
fn to_lane(
    command: &OrderCommand,
    (blockchain, wallet_address): (Blockchain, Address),
    slot: i32,
    body: DepositCommandBody,
) -> Effect {
    let OrderCommand { order_id, issued_at, .. } = *command;
    let to_lane = DepositCommand { order_id, slot, blockchain, wallet_address, issued_at, body };
    Effect::Command(to_lane)
}
