//! Replies of an order to a settle, also late ones. A transfer that failed before the reply belongs to that order alone
//! until the reply is read.

use processor::machine::matching;
use schemas::record::{
    Deposit, DepositCommand, DepositCommandBody, OrderCommand, OrderCommandBody, Transfer,
};
use schemas::{
    AlertKind, DepositState, OrderId, OrderStatus, TransferId, TransferStatus, UnknownReason,
};

use crate::machine_model::ledger::Ledger;
use crate::machine_model::violation::{Violation, holds};

/// Chain time in seconds for which a transfer is remembered after its end.
pub(super) const KNOWN_SECONDS: i64 = 24 * 3600;
/// Retention in seconds, from its block, of an orphaned transfer that has a verdict or that an order counts on. If it
/// is included again, it must not pay twice.
const KNOWN_OFF_CHAIN_SECONDS: i64 = 30 * KNOWN_SECONDS;

impl Ledger<'_> {
    /// Invariant 3: an alert reports that an order is paid by a failed transfer. A refusal frees the transfer for other
    /// orders.
    pub(super) fn check_answer(
        &mut self,
        command: &DepositCommand,
        effects: &[matching::Effect],
    ) -> Result<(), Violation> {
        use DepositCommandBody as Body;
        let (Body::Settled { transfer_id: id } | Body::Refused { transfer_id: id, .. }) =
            command.body
        else {
            return Ok(());
        };
        let order = command.order_id;
        if let Body::Refused { reason: UnknownReason::NoDeposit, .. } = command.body {
            return self.check_forgotten(command, id);
        }
        let counts_on_it = self.counted_on.get(&id) == Some(&order);
        let is_refused = matches!(command.body, Body::Refused { .. });
        let payment = self.payments.get(&id);
        let transfer = payment.and_then(|payment| self.transfers.get(payment));
        let transfer = transfer.filter(|transfer| transfer.transfer_id == id);
        let status = transfer.map(|transfer| transfer.status);
        // A refusal that comes after the transfer ended as unknown changes nothing.
        if counts_on_it && is_refused && status != Some(TransferStatus::NoMatchedDeposit) {
            self.counted_on.remove(&id);
        }
        let asks_again = self.asked.contains_key(&id);
        if counts_on_it && !is_refused && !asks_again && !self.answered.contains(&(id, order)) {
            let reports = |effect: &matching::Effect| {
                let matching::Effect::Alert(alert) = effect else { return false };
                alert.kind == AlertKind::ConfirmedTransferRetracted
                    && (alert.transfer_id, alert.order_id) == (Some(id), Some(order))
            };
            let is_forgotten = transfer.is_none_or(|transfer| self.is_forgotten(transfer));
            let is_reported = effects.iter().any(reports) || is_forgotten;
            holds!(3, is_reported, "no alert says that {order} is paid by {id}, which had failed");
        }
        self.answered.insert((id, order));
        Ok(())
    }

    /// Invariant 2: a forgotten order's refusal does not count as a reply, as the transfer may be its payer. Invariant
    /// 4: only an order that has ended is forgotten.
    fn check_forgotten(
        &mut self,
        command: &DepositCommand,
        id: TransferId,
    ) -> Result<(), Violation> {
        let Some(order) = self.orders.get(&command.order_id) else { return Ok(()) };
        holds!(4, order.status != OrderStatus::Pending, "forgotten: {order:?}");
        self.forgotten_by.insert(id, order.order_id);
        if order.paid_by == Some(id) {
            self.counted_on.insert(id, order.order_id);
        }
        Ok(())
    }

    pub(super) fn note_candidate(&mut self, command: &OrderCommand) {
        if let OrderCommandBody::CandidateSeen { transfer_id } = command.body {
            self.candidates.insert((transfer_id, command.order_id));
        }
    }

    /// Invariant 8: a lane does not report a candidate as gone while it waits for a deposit of the order. A candidate
    /// that failed and was forgotten may return with another id, which the order knows.
    pub(super) fn check_candidate(
        &self,
        command: &DepositCommand,
        effects: &[matching::Effect],
    ) -> Result<(), Violation> {
        let DepositCommandBody::Candidate { transfer_id } = command.body else { return Ok(()) };
        let order = command.order_id;
        let is_gone = effects.iter().any(|effect| {
            matches!(effect, matching::Effect::Command(answer)
                if answer.body == OrderCommandBody::CandidateGone { transfer_id })
        });
        let payment = self.payments.get(&transfer_id);
        let transfer = payment.and_then(|payment| self.transfers.get(payment));
        let waits = |transfer: &&Transfer| {
            let waiting = [TransferStatus::WaitingForConfirmation, TransferStatus::WaitingForMatch];
            let deposit = transfer.deposit_id.and_then(|id| self.deposits.get(&id));
            waiting.contains(&transfer.status)
                && deposit.is_some_and(|deposit| deposit.order_id == order)
        };
        let is_known = |id: TransferId| {
            let has_asked = self.asked.get(&id).is_some_and(|(of, _)| *of == order);
            has_asked || self.candidates.contains(&(id, order))
        };
        let is_back = |transfer: &Transfer| {
            transfer.transfer_id != transfer_id && is_known(transfer.transfer_id)
        };
        let waiting = transfer.filter(waits).filter(|transfer| !is_back(transfer));
        holds!(8, !is_gone || waiting.is_none(), "{transfer_id} answered as gone: {waiting:?}");
        Ok(())
    }

    /// The order that counts on a failed transfer, and whether its reply was read.
    fn counts_on(&self, id: TransferId) -> Option<(OrderId, bool)> {
        let order = *self.counted_on.get(&id)?;
        Some((order, self.answered.contains(&(id, order))))
    }

    pub(super) fn is_counted_on(&self, id: TransferId) -> bool {
        self.counted_on.contains_key(&id)
    }

    /// `true` if the transfer may settle with this order.
    pub(in crate::machine_model) fn may_ask(&self, id: TransferId, order: OrderId) -> bool {
        self.counts_on(id).is_none_or(|(only, is_answered)| only == order && !is_answered)
    }

    /// `true` if no other order counts on the transfer: none was sent a settle of it, or that order has refused since,
    /// or the transfer's block is over 30 days old.
    pub(super) fn is_free_for(&self, transfer: &Transfer, order: OrderId) -> bool {
        let id = transfer.transfer_id;
        let known_to = transfer.block.timestamp.plus(KNOWN_OFF_CHAIN_SECONDS);
        if known_to < self.lane(transfer.blockchain).time_max {
            return true;
        }
        self.counts_on(id).is_none_or(|(only, is_answered)| {
            let is_paid_by_it = self.orders.get(&only).is_some_and(|of| of.paid_by == Some(id));
            only == order || (is_answered && !is_paid_by_it)
        })
    }

    /// `true` if an order has accepted a transfer that failed before its reply.
    pub(super) fn is_taken(&self, id: TransferId) -> bool {
        self.counts_on(id).is_some_and(|(_, is_answered)| is_answered)
    }

    /// Invariant 2: a transfer that an order counts on becomes unknown only without a reply, and only if no deposit of
    /// that order waits for it, unless the order is forgotten or the transfer is stopped.
    pub(super) fn check_counted_on(&self, transfer: &Transfer) -> Result<(), Violation> {
        let Some((order, is_answered)) = self.counts_on(transfer.transfer_id) else {
            return Ok(());
        };
        let waits = |d: &Deposit| {
            d.state == DepositState::Open && d.order_id == order && self.fits(transfer, d)
        };
        let is_forgotten = self.forgotten_by.get(&transfer.transfer_id) == Some(&order);
        let may_not_ask = is_forgotten || transfer.reason == Some(UnknownReason::Stopped);
        let waits = self.deposits.values().find(|deposit| waits(deposit)).filter(|_| !may_not_ask);
        let is_left_to_it = transfer.candidate_order_id == Some(order);
        holds!(
            2,
            is_left_to_it && !is_answered && waits.is_none(),
            "unknown, though {order} counts on it, with {waits:?}, answered: {is_answered}: {transfer:?}"
        );
        Ok(())
    }

    /// `true` if the transfer is so old that the lane may have forgotten it.
    pub(super) fn is_forgotten(&self, transfer: &Transfer) -> bool {
        use TransferStatus as Status;
        let id = transfer.transfer_id;
        let known_to = match transfer.status {
            Status::WaitingForConfirmation | Status::WaitingForMatch => None,
            Status::FailedToConfirm if !self.is_counted_on(id) => {
                self.ended_at.get(&id).map(|at| at.plus(KNOWN_SECONDS))
            }
            Status::FailedToConfirm | Status::Matched | Status::NoMatchedDeposit => {
                Some(transfer.block.timestamp.plus(KNOWN_OFF_CHAIN_SECONDS))
            }
        };
        known_to.is_some_and(|at| at < self.lane(transfer.blockchain).time_max)
    }
}
