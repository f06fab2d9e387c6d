//! A deposit was opened for an order, and what becomes of it.

use schemas::record::{DepositCommand, DepositCommandBody, Order, OrderCommand, OrderDeposit};
use schemas::{Amount, CloseReason, DepositId, DepositState, OrderCause, UnixSeconds};

use super::{ASK_OF_OPEN_SECONDS, Broken, Effect, OrderRow, State, close_reason};

impl State {
    /// A deposit is reserved. If the order ended meanwhile, it is let go of again.
    pub(super) fn deposit_opened(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        slot: i32,
        (deposit_id, value): (DepositId, Amount),
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        let Some(deposit) = row.deposit_mut(slot) else { return Ok(()) };
        if deposit.state != DepositState::Requested {
            return Ok(());
        }
        deposit.state = DepositState::Open;
        deposit.deposit_id = Some(deposit_id);
        deposit.value = Some(value);
        let opened = deposit.clone();
        let close = row.close_ended(command, &opened);
        let cause = match close {
            Some(_) => OrderCause::NotPending,
            None => OrderCause::DepositOpened,
        };
        effects.extend(close);
        if cause == OrderCause::DepositOpened {
            effects
                .extend(row.replaced().map(|old| row.close(command, old, CloseReason::Replaced)));
        }
        self.answer_choices(row, command, slot, cause, effects)
    }
}

impl OrderRow {
    /// The command that lets go of a deposit, if the order has ended.
    pub(super) fn close_ended(
        &self,
        command: &OrderCommand,
        deposit: &OrderDeposit,
    ) -> Option<Effect> {
        Some(self.close(command, deposit, close_reason(self.order.status)?))
    }

    /// The time past which the lanes of its open deposits are asked what became of them: the chain should have
    /// closed them, or the order has let go of them, and an answer may have been lost.
    pub(super) fn asks_of_open_at(&self) -> Option<UnixSeconds> {
        let Order { expires_at, updated_at, .. } = self.order;
        let since = if self.is_pending() { expires_at } else { updated_at.seconds() };
        self.open().next()?;
        Some(self.asked_at.map_or(since, |at| at.max(since)).plus(ASK_OF_OPEN_SECONDS))
    }

    /// Asks them, if it is time.
    pub(super) fn ask_of_open(&mut self, command: &OrderCommand, effects: &mut Vec<Effect>) {
        let now = command.issued_at.seconds();
        if self.asks_of_open_at().is_some_and(|at| at < now) {
            let reason = close_reason(self.order.status).unwrap_or(CloseReason::Expired);
            effects.extend(self.open().map(|deposit| self.close(command, deposit, reason)));
            self.asked_at = Some(now);
        }
    }

    fn open(&self) -> impl Iterator<Item = &OrderDeposit> {
        self.order.deposits.iter().filter(|deposit| deposit.state == DepositState::Open)
    }

    /// Open deposits other than the one chosen last.
    fn replaced(&self) -> impl Iterator<Item = &OrderDeposit> {
        let last = self.open().map(|deposit| deposit.slot).max();
        self.open().filter(move |deposit| Some(deposit.slot) < last)
    }

    fn close(&self, command: &OrderCommand, deposit: &OrderDeposit, reason: CloseReason) -> Effect {
        Effect::Command(DepositCommand {
            order_id: self.order.order_id,
            slot: deposit.slot,
            blockchain: deposit.blockchain,
            wallet_address: deposit.wallet_address,
            issued_at: command.issued_at,
            body: DepositCommandBody::Close { reason },
        })
    }
}
