//! Expiry of a pending order. It expires with the last of its deposits, replaced ones included, each by the time of its
//! own chain; without a deposit or candidate, by its own timer. Either time must be past `expires_at`, not equal to it.

use schemas::record::{OrderCommand, OrderDeposit};
use schemas::{CloseReason, DepositState, OrderCause, UnixSeconds};

use super::payment::asks_again_at;
use super::{Broken, End, OrderRow, State};

impl OrderRow {
    /// Due time of the order's timer: its expiry or, while a lane has not replied, the next request to it. An ended
    /// order has one, too, until the outcome of its deposits and candidates is known. While a lane reserves an amount
    /// for it, the chain's time decides its expiry.
    pub(super) fn timer(&self) -> Option<UnixSeconds> {
        if self.has_awaited_deposit() {
            let of_open = self.reserved().next().map(|_| self.asks_of_open_at());
            return self.unanswered().map(asks_again_at).chain(of_open).min();
        }
        if self.may_be_paid_by_candidates() {
            return Some(self.asks_of_open_at());
        }
        self.is_pending().then_some(self.order.expires_at)
    }

    /// `true` if a payment that was seen may still become the order's payer.
    pub(super) fn may_be_paid_by_candidates(&self) -> bool {
        self.order.paid_by.is_none() && !self.order.candidates.is_empty()
    }
}

impl State {
    /// Takes the closing or the replacement of a deposit. When the last one of a pending order without candidates
    /// expires, so does the order.
    pub(super) fn deposit_closed(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        slot: i32,
        reason: CloseReason,
    ) -> Result<(), Broken> {
        let is_replaced = reason == CloseReason::Replaced;
        let state = if is_replaced { DepositState::Replaced } else { DepositState::Closed };
        let is_known = |of: &OrderDeposit| of.state == state || of.state == DepositState::Closed;
        if row.deposit_mut(slot).is_none_or(|deposit| is_known(deposit)) {
            return Ok(());
        }
        row.leave_slot(slot, state);
        let ran_out = reason == CloseReason::Expired;
        let may_be_paid = row.has_awaited_deposit() || !row.order.candidates.is_empty();
        if row.is_pending() && ran_out && !may_be_paid {
            return self.end(row, command, End::Expired);
        }
        self.publish(row, command, OrderCause::DepositClosed, None).map(drop)
    }

    /// Takes a tick of the runner: the order's timer is due, unless a deposit was added since. If the order has no
    /// timer, forgets ended orders whose time is past, up to a limit.
    pub(super) fn tick(&mut self, row: OrderRow, command: &OrderCommand) -> Result<(), Broken> {
        match row.timer() {
            Some(at) if at < command.issued_at.seconds() => {
                if row.has_awaited_deposit() {
                    self.ask_again(row, command)
                } else if row.may_be_paid_by_candidates() {
                    self.ask_of_candidates(row, command)
                } else {
                    self.end(row, command, End::Expired)
                }
            }
            Some(_) => Ok(()),
            None => self.forget(command.issued_at.seconds()),
        }
    }
}
