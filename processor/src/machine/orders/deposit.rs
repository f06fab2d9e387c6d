//! A deposit was opened for an order.

use schemas::record::{DepositCommand, DepositCommandBody, OrderCommand, OrderDeposit};
use schemas::{Amount, CloseReason, DepositId, DepositState, OrderCause};

use super::{Broken, Effect, OrderRow, State, close_reason};

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

    /// Open deposits other than the one chosen last.
    fn replaced(&self) -> impl Iterator<Item = &OrderDeposit> {
        let open = || self.order.deposits.iter().filter(|of| of.state == DepositState::Open);
        let last = open().map(|deposit| deposit.slot).max();
        open().filter(move |deposit| Some(deposit.slot) < last)
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
