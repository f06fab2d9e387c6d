//! Commands of orders: open a deposit, close it, report on a candidate, and the replies to settles.

use schemas::record::{Alert, DepositCommand, OpenDeposit, OrderCommandBody};
use schemas::{
    AlertKind, CloseReason, DepositId, FORGET_SECONDS, FulfillmentId, OrderId, RefusalReason,
    TransferId, TransferStatus, UnixMicros, UnixSeconds, UnknownReason,
};

use super::deposits::{DepositRow, Opening};
use super::transfers::TransferRow;
use super::{Broken, Effect, FORGOTTEN, State, TransferStage};

impl State {
    /// Chain time, or the input's before the first head.
    pub(super) fn time(&self) -> UnixSeconds {
        self.time_or(self.now)
    }

    /// Chain time, or `other` before the first head.
    pub(super) fn time_or(&self, other: UnixMicros) -> UnixSeconds {
        self.chain_time().unwrap_or(other.seconds())
    }

    /// Opens a deposit or refuses it. The outcome of an earlier open of this order and slot is repeated.
    pub(super) fn open(
        &mut self,
        command: &DepositCommand,
        open: &OpenDeposit,
    ) -> Result<(), Broken> {
        let (order, slot) = (command.order_id, command.slot);
        if let Some(row) = self.deposits.by_slot(order, slot) {
            self.answer_again(&row);
            return Ok(());
        }
        let wallet = command.wallet_address;
        let given = if self.chain_time().is_some_and(|time| time > open.expires_at) {
            Err(RefusalReason::Expired)
        } else {
            self.unseen(command, open)
                .and_then(|()| self.give_amount(command, open).ok_or(RefusalReason::AmountsTaken))
        };
        let given = match given {
            Ok(given) => given,
            Err(reason) => {
                self.refuse(command, open, reason);
                return Ok(());
            }
        };
        let own = given.from.filter(|row| row.order == order);
        if own.is_some_and(|row| row.slot > slot) {
            return Ok(()); // A duplicate: its deposit gave the amount to a later one of the order.
        }
        if let Some(row) = given.from {
            self.deposits.remove(row.id)?;
        }
        let id = DepositId::from_parts(self.id_partition(), self.next_sequence());
        let (started_at, opening) = (open.started_at, self.opening());
        // Transfers that the customer has sent since an earlier choice still count.
        let (started_at, opening) = own.map_or((started_at, opening), |row| {
            (started_at.min(row.started_at), opening.earlier(row.opening))
        });
        let row = DepositRow {
            id,
            order,
            slot,
            stablecoin: open.stablecoin,
            contracts: self.deposits.contracts_number(&open.contracts)?,
            wallet,
            user_address: open.user_address,
            value: given.value,
            started_at,
            expires_at: open.expires_at,
            updated_at: self.now,
            opening,
            late_window_seconds: open.late_window_seconds,
            accepts_late: open.accepts_late,
            closed: None,
        };
        self.publish_deposit(row)?;
        let opened = OrderCommandBody::DepositOpened { slot, deposit_id: id, value: given.value };
        self.command_order(order, opened);
        Ok(())
    }

    /// Opening position of a deposit that opens now.
    fn opening(&self) -> Opening {
        let above = self.lane.head.map_or(-1, |head| head.number);
        Opening { above, position: self.lane.sequence }
    }

    /// Repeats the outcome of a deposit, as its order may have missed the reply.
    fn answer_again(&mut self, row: &DepositRow) {
        let DepositRow { order, slot, id: deposit_id, value, .. } = *row;
        let opened = OrderCommandBody::DepositOpened { slot, deposit_id, value };
        self.command_order(order, opened);
        if let Some(closed) = &row.closed {
            let closed = OrderCommandBody::DepositClosed { slot, reason: closed.reason };
            self.command_order(order, closed);
        }
    }

    fn refuse(&mut self, command: &DepositCommand, open: &OpenDeposit, reason: RefusalReason) {
        let (slot, wallet_address) = (command.slot, command.wallet_address);
        let refused = OrderCommandBody::DepositRefused { slot, wallet_address, reason };
        self.command_order(command.order_id, refused);
        if reason == RefusalReason::AmountsTaken {
            let message = format!(
                "no amount is free for {} {} at wallet {wallet_address}",
                open.value, open.stablecoin
            );
            let subject = format!("{wallet_address}/{}", open.stablecoin);
            let alert = self.alert(AlertKind::AmountsTaken, &subject, message);
            let order_id = Some(command.order_id);
            self.effects.push(Effect::Alert(Alert { order_id, ..alert }));
        }
    }

    /// Closes a deposit, or reports its state: one that must stay open is reported as open, an earlier close is
    /// repeated, and for a forgotten deposit the reply has the reason in the command.
    pub(super) fn close(
        &mut self,
        command: &DepositCommand,
        reason: CloseReason,
    ) -> Result<(), Broken> {
        let (order, slot) = (command.order_id, command.slot);
        // Only chain time expires a deposit, and a replaced one can still be paid.
        let ends = !matches!(reason, CloseReason::Expired | CloseReason::Replaced);
        let row = match self.deposits.by_slot(order, slot) {
            Some(row) if row.is_open() || (row.is_replaced() && ends) => row,
            known => {
                let closed = known.and_then(|row| row.closed);
                let reason = closed.map_or(reason, |closed| closed.reason);
                let closed = OrderCommandBody::DepositClosed { slot, reason };
                self.command_order(order, closed);
                return Ok(());
            }
        };
        // This deposit stays open: only chain time expires it, and a payment seen for it keeps another choice from
        // replacing it. The reply reports it as open.
        if !ends && (reason == CloseReason::Expired || self.transfers.holds(row.id)) {
            self.answer_again(&row);
            return Ok(());
        }
        self.close_deposit(row, reason)
    }

    /// Reports again whether a transfer may still pay the order: a `CandidateGone` may be lost.
    pub(super) fn candidate(
        &mut self,
        command: &DepositCommand,
        transfer_id: TransferId,
    ) -> Result<(), Broken> {
        let known = self.transfers.get(transfer_id);
        if known.is_none() && transfer_id.partition() != self.id_partition() {
            return Ok(()); // The transfer is of another lane.
        }
        let waiting = known.filter(|row| row.is_waiting());
        let deposit = waiting.and_then(|row| row.deposit).map(|id| self.deposits.named(id));
        let answer = match deposit.transpose()? {
            Some(deposit) if deposit.order == command.order_id => {
                OrderCommandBody::CandidateSeen { transfer_id }
            }
            _ => OrderCommandBody::CandidateGone { transfer_id },
        };
        self.command_order(command.order_id, answer);
        Ok(())
    }

    /// Takes an order's acceptance.
    pub(super) fn settled(
        &mut self,
        command: &DepositCommand,
        transfer_id: TransferId,
    ) -> Result<(), Broken> {
        let (id, order) = (transfer_id, command.order_id);
        let Some(row) = self.asked(transfer_id) else {
            return self.settled_late(command, transfer_id);
        };
        let Some(deposit_id) = row.deposit else {
            return Err(Broken::new(2, format!("transfer {id} pays order {order} by no deposit")));
        };
        let deposit = self.deposits.named(deposit_id)?;
        let pays = deposit.order == order && deposit.price() == row.price();
        invariant!(2, pays, "transfer {id} does not pay deposit {deposit_id} of order {order}");
        self.match_with(row, order)?;
        self.close_deposit(deposit, CloseReason::Settled)
    }

    /// Publishes that a confirmed transfer paid this order.
    pub(super) fn match_with(&mut self, row: TransferRow, order: OrderId) -> Result<(), Broken> {
        // Lagging tables may still show it as unknown. As long as it is remembered, it cannot be attached to another
        // order.
        let forget_at = match row.status {
            TransferStatus::NoMatchedDeposit => self.attached_until(),
            TransferStatus::WaitingForConfirmation
            | TransferStatus::WaitingForMatch
            | TransferStatus::FailedToConfirm
            | TransferStatus::Matched => self.time().plus(FORGET_SECONDS),
        };
        let row = TransferRow {
            status: TransferStatus::Matched,
            settling: false,
            match_deadline: None,
            order: Some(order),
            reason: None,
            candidate_order: None,
            unanswered: false,
            asked_at: None,
            fulfillment: Some(FulfillmentId::from_parts(self.id_partition(), self.next_sequence())),
            updated_at: row.updated_at.next(self.now),
            forget_at: Some(forget_at),
            ..row
        };
        self.publish(TransferStage::Matched, row)
    }

    /// Takes an acceptance of a transfer that is not settling. If the transfer failed or became unknown without this
    /// reply, raises an alert; the transfer pays the order once it is confirmed. Otherwise checks for a second order.
    fn settled_late(&mut self, command: &DepositCommand, id: TransferId) -> Result<(), Broken> {
        let order = command.order_id;
        let Some(mut row) = self.unanswered(id, order) else {
            self.report_second_order(id, order);
            return Ok(());
        };
        let message = format!("order {order} is paid by transfer {id}, which is {}", row.status);
        self.alert_of_payment(id, Some(order), message);
        row.order = Some(order);
        row.unanswered = false;
        if row.status == TransferStatus::NoMatchedDeposit {
            return self.match_with(row, order);
        }
        self.untie(&mut row)?;
        if row.status == TransferStatus::WaitingForMatch {
            return self.match_with(row, order);
        }
        self.transfers.put(row)
    }

    /// Raises an alert if two orders count on one transfer: both decisions are final.
    pub(super) fn report_second_order(&mut self, id: TransferId, order: OrderId) {
        let other = self.transfers.get(id).and_then(|row| row.order).filter(|of| *of != order);
        if let Some(other) = other {
            let message = format!("order {order} counts on transfer {id}, which order {other} has");
            self.alert_of_payment(id, Some(order), message);
        }
    }

    /// Takes an order's refusal.
    pub(super) fn refused(
        &mut self,
        command: &DepositCommand,
        transfer_id: TransferId,
        reason: UnknownReason,
    ) -> Result<(), Broken> {
        let order = command.order_id;
        let is_forgotten = reason == FORGOTTEN;
        let row = match self.asked(transfer_id) {
            Some(row) => row,
            None if is_forgotten => return Ok(()),
            None => return self.refused_late(transfer_id, order),
        };
        let deposit = row.deposit.map(|id| self.deposits.named(id)).transpose()?;
        if deposit.is_some_and(|deposit| deposit.order != order) {
            return Ok(()); // Another order is asked by now.
        }
        // A forgotten order may have accepted an earlier settle, and count on it.
        let row = TransferRow { unanswered: is_forgotten, ..row };
        let reason = if is_forgotten { UnknownReason::Late } else { reason };
        self.reject(row, reason, Some(order))
    }

    /// Takes the late refusal of a transfer that has failed or become unknown. The transfer may pay another order from
    /// then on: a failed one if it is included again, an unknown one if an operator attaches it.
    fn refused_late(&mut self, id: TransferId, order: OrderId) -> Result<(), Broken> {
        let Some(row) = self.unanswered(id, order) else { return Ok(()) };
        if row.status == TransferStatus::NoMatchedDeposit {
            return self.transfers.put(TransferRow { unanswered: false, ..row });
        }
        let mut row = TransferRow { candidate_order: None, unanswered: false, ..row };
        let tied = row.deposit.map(|id| self.deposits.named(id)).transpose()?;
        if tied.is_some_and(|deposit| deposit.order == order) {
            self.untie(&mut row)?; // That order has replied, and is not asked again.
        }
        if row.status == TransferStatus::WaitingForConfirmation {
            // A deposit that has opened since may fit. Tied to it, the transfer delays its expiry.
            row.updated_at = row.updated_at.next(self.now);
            return self.detect(row);
        }
        self.transfers.put(row)?;
        if row.status == TransferStatus::WaitingForMatch {
            return self.match_or_wait(row);
        }
        Ok(())
    }

    /// The transfer, if it failed or became unknown without a reply of this order. An operator may be attaching it to
    /// the same order by now.
    fn unanswered(&self, id: TransferId, order: OrderId) -> Option<TransferRow> {
        let row = self.transfers.get(id).copied()?;
        let is_open = row.order.is_none() || (row.is_attaching() && row.order == Some(order));
        (row.candidate_order == Some(order) && is_open).then_some(row)
    }

    /// The transfer, if its settle has no reply yet.
    fn asked(&self, id: TransferId) -> Option<TransferRow> {
        self.transfers.get(id).copied().filter(|row| row.settling && !row.is_attaching())
    }
}
