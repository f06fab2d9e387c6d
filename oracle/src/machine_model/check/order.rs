//! Checks of orders: status changes, expiry, a reply to each command, forgetting of ended orders alone.

use processor::machine::orders;
use schemas::record::{Deposit, DepositCommandBody, Order, OrderCommand, OrderCommandBody};
use schemas::{DepositState, OrderCause, OrderId, OrderStatus, UnknownReason};

use crate::machine_model::ledger::Ledger;
use crate::machine_model::violation::{Violation, holds};

/// Seconds for which an ended order is remembered after its late window.
const KNOWN_SECONDS: i64 = 7 * 24 * 3600;

impl Ledger<'_> {
    pub(super) fn check_orders(
        &mut self,
        command: &OrderCommand,
        effects: &[orders::Effect],
    ) -> Result<(), Violation> {
        self.check_answered(command, effects)?;
        if matches!(command.body, OrderCommandBody::MarkPaid(_)) && !effects.is_empty() {
            self.forced.insert(command.order_id);
        }
        self.check_marked(command, effects)?;
        for effect in effects {
            if let orders::Effect::Order(order) = effect {
                self.check_order(order, command)?;
                self.statuses.insert((order.order_id, order.status));
                self.orders.insert(order.order_id, order.clone());
            }
        }
        Ok(())
    }

    /// Invariant 11: a candidate of an order that an operator marked paid becomes its payer once it settles.
    fn check_marked(
        &mut self,
        command: &OrderCommand,
        effects: &[orders::Effect],
    ) -> Result<(), Violation> {
        let id = command.order_id;
        let Some(order) = self.orders.get(&id) else { return Ok(()) };
        match &command.body {
            OrderCommandBody::MarkPaid(_) if order.status != OrderStatus::Paid => {
                self.on_its_way.extend(order.candidates.iter().map(|transfer| (id, *transfer)));
            }
            OrderCommandBody::CandidateGone { transfer_id } => {
                self.on_its_way.remove(&(id, *transfer_id));
            }
            OrderCommandBody::Settle(settle) => {
                let payer = settle.transfer_id;
                let pays = |effect: &orders::Effect| matches!(effect, orders::Effect::Order(after) if after.paid_by == Some(payer));
                let is_due = self.on_its_way.contains(&(id, payer)) && order.paid_by.is_none();
                let is_paid = !is_due || self.may_have_left(id) || effects.iter().any(pays);
                holds!(11, is_paid, "{payer} was on its way, and does not pay {order:?}");
            }
            _ => {}
        }
        Ok(())
    }

    /// Invariant 4: the allowed changes of an order. Invariant 8: it expires only when its time has passed on all its
    /// chains.
    fn check_order(&self, order: &Order, command: &OrderCommand) -> Result<(), Violation> {
        let id = order.order_id;
        let last = self.orders.get(&id);
        let before = last.map_or(OrderStatus::Pending, |last| last.status);
        // Versions may have gaps: records of repeated commands have versions too, and are not checked here.
        let version = last.map_or(0, |last| last.version);
        holds!(4, order.version > version, "{id} has version {} twice", order.version);
        holds!(4, last.is_some() || order.cause == OrderCause::Created, "{order:?} came first");
        if let Some(last) = last {
            let later = last.updated_at < order.updated_at;
            holds!(5, later, "the version clock does not grow: {last:?} then {order:?}");
        }
        let by_operator = match command.body {
            OrderCommandBody::MarkPaid(_) => order.cause == OrderCause::MarkedPaid,
            OrderCommandBody::Attach(..) => order.cause == OrderCause::Attached,
            _ => false,
        };
        let allowed = match (before, order.status) {
            (before, after) if before == after => true,
            (OrderStatus::Pending, OrderStatus::Paid) => {
                order.cause == OrderCause::Paid || by_operator
            }
            (OrderStatus::Pending, OrderStatus::Expired) => order.cause == OrderCause::Expired,
            (OrderStatus::Pending, OrderStatus::Cancelled) => order.cause == OrderCause::Cancelled,
            (OrderStatus::Expired | OrderStatus::Cancelled, OrderStatus::Paid) => {
                let is_accepted = matches!(&command.body, OrderCommandBody::Settle(settle)
                    if self.deposits.get(&settle.deposit_id).is_some_and(|d| self.accepts_late(d)));
                by_operator || (order.cause == OrderCause::PaidLate && is_accepted)
            }
            (_, OrderStatus::Paid) => by_operator,
            _ => false,
        };
        holds!(4, allowed, "{before} became {} by {}", order.status, order.cause);
        let changed = before != order.status;
        holds!(4, order.status_changed == changed, "status_changed after {before}: {order:?}");
        let payer = last.and_then(|last| last.paid_by);
        let kept = payer.is_none() || payer == order.paid_by;
        holds!(2, kept, "the payer was {payer:?}: {order:?}");
        if changed && order.status == OrderStatus::Expired {
            let time_max = self.lanes.values().map(|lane| lane.time_max).max();
            let time = time_max.unwrap_or_default().max(command.issued_at.seconds());
            holds!(8, order.expires_at < time, "expired at {time}: {order:?}");
            let awaited = |d: &&Deposit| d.order_id == id && self.is_awaited(d);
            let awaited = self.deposits.values().find(awaited);
            holds!(8, awaited.is_none(), "{id} expired with {awaited:?}");
        }
        Ok(())
    }

    /// Invariant 4: an operator may mark any order paid, attach a transfer to it, and have its status sent again. Each
    /// such command gets a reply. An exception is a command without the order's row, about an order that ended long
    /// ago.
    fn check_answered(
        &mut self,
        command: &OrderCommand,
        effects: &[orders::Effect],
    ) -> Result<(), Violation> {
        use OrderCommandBody as Body;
        let id = command.order_id;
        self.orders_time = self.orders_time.max(command.issued_at.seconds());
        let payment = match &command.body {
            Body::Create(create) => create.payment.as_ref(),
            Body::ChoosePayment(payment) => Some(payment),
            _ => None,
        };
        if let Some(payment) = payment {
            let longest = self.late_windows.entry(id).or_default();
            *longest = payment.late_window_seconds.max(*longest);
        }
        let may_have_left = self.may_have_left(id);
        if may_have_left {
            self.left.insert(id);
        }
        let is_late = |effect: &orders::Effect| {
            let orders::Effect::Command(answer) = effect else { return false };
            let reason = UnknownReason::Late;
            matches!(answer.body, DepositCommandBody::Refused { reason: given, .. } if given == reason)
        };
        let order = self.orders.get(&id);
        let accepts = matches!(&command.body, Body::Settle(settle) if settle.accepts_late);
        let has_expired =
            order.is_some_and(|order| order.status == OrderStatus::Expired) && !accepts;
        let is_over = has_expired || may_have_left || !effects.iter().any(is_late);
        holds!(1, is_over, "refused as late: {command:?}");
        if let Body::MarkPaid(row)
        | Body::ResendWebhook(row)
        | Body::Attach(_, row)
        | Body::AttachRefused(row) = &command.body
        {
            // An attach request that a lane repeats needs no record, as no api request waits.
            let is_repeated =
                matches!(command.body, Body::Attach(..)) && command.command_id.is_none();
            let is_answered =
                is_repeated || effects.iter().any(|e| matches!(e, orders::Effect::Order(_)));
            let may_be_in_vain = order.is_none() || (may_have_left && row.is_none());
            holds!(4, is_answered || may_be_in_vain, "no answer to {command:?}");
        }
        Ok(())
    }

    fn may_have_left(&self, id: OrderId) -> bool {
        let late_window = self.late_windows.get(&id).copied().unwrap_or_default();
        self.orders.get(&id).is_some_and(|order| {
            let waits = |state| !matches!(state, DepositState::Closed | DepositState::Refused);
            let known_to = order.updated_at.seconds().plus(KNOWN_SECONDS + i64::from(late_window));
            order.status != OrderStatus::Pending
                && !order.deposits.iter().any(|deposit| waits(deposit.state))
                && known_to < self.orders_time
        })
    }
}
