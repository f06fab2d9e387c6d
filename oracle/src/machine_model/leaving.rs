//! Ended orders are forgotten, and no others: over the records.

use std::collections::{HashMap, HashSet};

use processor::machine::orders;
use schemas::record::{DepositCommandBody, OrderCommand, OrderCommandBody};
use schemas::{DepositState, OrderId, OrderStatus, UnixSeconds, UnknownReason};

use super::check::Ledger;
use super::violation::Violation;

/// For this long after its late window an order that has ended is known.
const KNOWN_SECONDS: i64 = 7 * 24 * 3600;

/// What decides which orders may be forgotten.
#[derive(Default)]
pub(super) struct Leaving {
    /// The longest late window that an order asked for.
    late_windows: HashMap<OrderId, u32>,
    /// The latest time that orders had.
    time: UnixSeconds,
    /// Those that may have been forgotten when they were asked.
    left: HashSet<OrderId>,
}

impl Leaving {
    pub(super) fn has_left(&self, order: OrderId) -> bool {
        self.left.contains(&order)
    }

    fn note(&mut self, order: OrderId, late_window: u32) {
        let longest = self.late_windows.entry(order).or_default();
        *longest = late_window.max(*longest);
    }
}

impl Ledger<'_> {
    /// 4: an operator may mark any order paid, and have its status sent again: each such command is answered
    /// once. Only one about an order that ended long ago may be in vain, if it does not carry that order.
    pub(super) fn check_answered(
        &mut self,
        command: &OrderCommand,
        effects: &[orders::Effect],
    ) -> Result<(), Violation> {
        use OrderCommandBody as Body;
        let id = command.order_id;
        let leaving = &mut self.leaving;
        leaving.time = leaving.time.max(command.issued_at.seconds());
        if let Body::Create(create) = &command.body
            && let Some(payment) = &create.payment
        {
            leaving.note(id, payment.late_window_seconds);
        }
        if let Body::ChoosePayment(payment) = &command.body {
            leaving.note(id, payment.late_window_seconds);
        }
        let may_have_left = self.may_have_left(id);
        let is_answered = effects.iter().any(|e| matches!(e, orders::Effect::Order(_)));
        if may_have_left {
            self.leaving.left.insert(id);
        }
        let is_late = |effect: &orders::Effect| {
            let orders::Effect::Command(answer) = effect else { return false };
            let reason = UnknownReason::Late;
            matches!(answer.body, DepositCommandBody::Refused { reason: given, .. } if given == reason)
        };
        let has_expired =
            self.orders.get(&id).is_some_and(|order| order.status == OrderStatus::Expired);
        if effects.iter().any(is_late) && !has_expired && !may_have_left {
            let text = format!("refused as late: {command:?}");
            return Err(Violation { invariant: 1, text });
        }
        let (Body::MarkPaid(row) | Body::ResendWebhook(row)) = &command.body else {
            return Ok(());
        };
        let in_vain = may_have_left && row.is_none();
        if is_answered || in_vain || !self.orders.contains_key(&id) {
            return Ok(());
        }
        let text = format!("no answer to {command:?}");
        Err(Violation { invariant: 4, text })
    }

    fn may_have_left(&self, id: OrderId) -> bool {
        let late_window = self.leaving.late_windows.get(&id).copied().unwrap_or_default();
        self.orders.get(&id).is_some_and(|order| {
            let waits = |state| [DepositState::Requested, DepositState::Open].contains(&state);
            let known_to = order.updated_at.seconds().plus(KNOWN_SECONDS + i64::from(late_window));
            order.status != OrderStatus::Pending
                && !order.deposits.iter().any(|deposit| waits(deposit.state))
                && known_to < self.leaving.time
        })
    }
}
