//! Deposits of an order: opening, outcome, closing.

use std::collections::BTreeSet;

use schemas::record::{DepositCommandBody, Order, OrderCommand, OrderDeposit};
use schemas::{Amount, CloseReason, DepositId, DepositState, OrderCause, UnixSeconds};

use super::{
    ASK_OF_OPEN_SECONDS, Broken, Effect, OrderRow, State, close_reason, is_reserved, to_lane,
};

impl State {
    /// Takes an opened deposit. Closes it if the order has ended; otherwise replaces all open ones but the last chosen.
    pub(super) fn deposit_opened(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        slot: i32,
        (deposit_id, value): (DepositId, Amount),
    ) -> Result<(), Broken> {
        let Some(deposit) = row.deposit_mut(slot) else { return Ok(()) };
        if deposit.state != DepositState::Requested {
            return Ok(());
        }
        deposit.state = DepositState::Open;
        deposit.deposit_id = Some(deposit_id);
        deposit.value = Some(value);
        let opened = deposit.clone();
        row.drop_taken_over(&opened);
        let cause = if let Some(close) = row.close_ended(command, &opened) {
            self.effects.push(close);
            OrderCause::NotPending
        } else {
            let replaced = CloseReason::Replaced;
            self.effects.extend(row.outdated().map(|old| close(old, command, replaced)));
            OrderCause::DepositOpened
        };
        self.answer_choices(row, command, slot, cause)
    }

    /// Requests the outcome of the order's candidates from each lane. A lane replies for its own.
    pub(super) fn ask_of_candidates(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
    ) -> Result<(), Broken> {
        let mut asked = BTreeSet::new();
        for deposit in &row.order.deposits {
            if asked.insert((deposit.blockchain, deposit.wallet_address)) {
                for transfer_id in row.order.candidates.iter().copied() {
                    let question = DepositCommandBody::Candidate { transfer_id };
                    self.effects.push(to_lane_of(deposit, command, question));
                }
            }
        }
        row.asked_at = Some(command.issued_at.seconds());
        self.orders.put(row)
    }
}

impl OrderRow {
    /// Command to close a deposit; none while the order is pending.
    pub(super) fn close_ended(
        &self,
        command: &OrderCommand,
        deposit: &OrderDeposit,
    ) -> Option<Effect> {
        Some(close(deposit, command, close_reason(self.order.status)?))
    }

    /// Time past which lanes are requested to report the outcome of its deposits, or of its candidates if it has none:
    /// they should have ended by then, and a reply may have been lost.
    pub(super) fn asks_of_open_at(&self) -> UnixSeconds {
        let Order { expires_at, updated_at, .. } = self.order;
        let since = if self.is_pending() { expires_at } else { updated_at.seconds() };
        self.asked_at.map_or(since, |at| at.max(since)).plus(ASK_OF_OPEN_SECONDS)
    }

    /// Sends a close for each reserved deposit, if it is time: its lane replies with the outcome.
    pub(super) fn ask_of_open(&mut self, command: &OrderCommand) -> Vec<Effect> {
        let now = command.issued_at.seconds();
        if self.reserved().next().is_none() || self.asks_of_open_at() >= now {
            return Vec::new();
        }
        let reason = close_reason(self.order.status).unwrap_or(CloseReason::Expired);
        let asks = self.reserved().map(|deposit| close(deposit, command, reason)).collect();
        self.asked_at = Some(now);
        asks
    }

    fn open(&self) -> impl Iterator<Item = &OrderDeposit> {
        self.order.deposits.iter().filter(|deposit| deposit.state == DepositState::Open)
    }

    /// Deposits with a reserved amount.
    pub(super) fn reserved(&self) -> impl Iterator<Item = &OrderDeposit> {
        self.order.deposits.iter().filter(|deposit| is_reserved(deposit))
    }

    /// Removes the replaced deposit whose amount this one has: a lane has one deposit for an amount at a wallet.
    fn drop_taken_over(&mut self, opened: &OrderDeposit) {
        let place = |of: &OrderDeposit| (of.blockchain, of.stablecoin, of.wallet_address, of.value);
        let is_taken_over =
            |of: &OrderDeposit| of.state == DepositState::Replaced && place(of) == place(opened);
        self.order.deposits.retain(|of| !is_taken_over(of));
    }

    /// Open deposits other than the one chosen last.
    fn outdated(&self) -> impl Iterator<Item = &OrderDeposit> {
        let last = self.open().map(|deposit| deposit.slot).max();
        self.open().filter(move |deposit| Some(deposit.slot) < last)
    }
}

/// Command to close a deposit.
fn close(deposit: &OrderDeposit, command: &OrderCommand, reason: CloseReason) -> Effect {
    to_lane_of(deposit, command, DepositCommandBody::Close { reason })
}

/// Command to the lane of a deposit.
pub(super) fn to_lane_of(
    deposit: &OrderDeposit,
    command: &OrderCommand,
    body: DepositCommandBody,
) -> Effect {
    to_lane(command, (deposit.blockchain, deposit.wallet_address), deposit.slot, body)
}
