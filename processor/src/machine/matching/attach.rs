//! Attachment of a transfer without a deposit to an order that an operator names. The order alone decides, as for any
//! transfer.

use schemas::record::{
    Attach, AttachTransfer, DepositCommand, EndedOrder, OrderCommandBody, Transfer,
};
use schemas::{CommandId, OrderId, TransferId, TransferStatus, UnixMicros, UnixSeconds};

use super::transfers::TransferRow;
use super::{ASK_AGAIN_SECONDS, ATTACHED_KEPT_SECONDS, Broken, State};

impl TransferRow {
    /// `true` if it may pay the order that an operator names: it is unknown, included, not from an own wallet, and no
    /// attach is in flight. An order that has not replied to its settle may have accepted it, so no other may get it.
    fn is_attachable(&self, order: OrderId) -> bool {
        self.status == TransferStatus::NoMatchedDeposit
            && self.is_included()
            && !self.seen.from_own_wallet
            && !self.settling
            && self.order.is_none()
            && (!self.unanswered || self.candidate_order == Some(order))
    }

    /// Time of the first attach request to an order, later than that of any refused request even with clock skew.
    /// Otherwise a duplicate of an old refusal would end this request.
    fn next_question(&self, now: UnixMicros) -> UnixMicros {
        self.asked_at.map_or(now, |at| now.max(UnixMicros(at.0.saturating_add(1))))
    }

    /// `true` if the attach request may be repeated.
    fn may_ask_again(&self) -> bool {
        self.status == TransferStatus::Matched || (self.is_attaching() && self.is_included())
    }
}

impl State {
    /// Sends the attach to the order. If the transfer may not pay it, the order publishes the refusal.
    pub(super) fn attach(
        &mut self,
        command: &DepositCommand,
        attach: &AttachTransfer,
    ) -> Result<(), Broken> {
        let (order, now) = (command.order_id, self.now);
        let payment = attach.transfer.observation.payment();
        let row = match self.transfers.get(attach.transfer.transfer_id).copied() {
            // If the payments differ, the operator means another transfer of this id.
            Some(known) => Some(known).filter(|row| row.seen.payment() == payment),
            None => self.remembered(&attach.transfer),
        };
        let (id, ended) = (Some(attach.command_id), attach.order.clone());
        match row {
            Some(row) if row.is_attachable(order) => {
                let asked_at = row.next_question(now);
                self.ask_attached(row, order, asked_at)?;
                self.command_attach(&row, order, asked_at, (id, ended));
            }
            // A repeated command, or another one for the same order: the attach request is sent again.
            Some(row) if row.order == Some(order) && row.may_ask_again() => {
                if row.is_attaching() && row.asked_at < Some(now) {
                    self.ask_attached(row, order, now)?;
                }
                self.command_attach(&row, order, now, (id, ended));
            }
            Some(_) | None => {
                let refused = OrderCommandBody::AttachRefused(ended);
                self.command_order_by((order, id), now, refused);
            }
        }
        Ok(())
    }

    /// Chain time until which a formerly unknown transfer is remembered; counted from the command's
    /// time if the chain is behind it.
    pub(super) fn attached_until(&self) -> UnixSeconds {
        self.time().max(self.now.seconds()).plus(ATTACHED_KEPT_SECONDS)
    }

    /// Row of a forgotten transfer, from the table row in the command, which is final; none if the transfer is of
    /// another lane, or its payment is known under another id.
    fn remembered(&self, transfer: &Transfer) -> Option<TransferRow> {
        let is_named_here = transfer.transfer_id.partition() == self.id_partition();
        // The id may be from before a move to another number of lanes: then the wallet identifies the lane.
        let is_moved = self.lane.id_partition.is_some();
        let is_here =
            is_named_here || is_moved && self.watches.has(transfer.observation.to_address);
        let is_own = transfer.blockchain == self.blockchain
            && is_here
            && self.transfers.by_payment(&transfer.observation.payment()).is_none();
        let at = (transfer.transfer_id, transfer.updated_at);
        is_own.then(|| TransferRow {
            created_at: transfer.created_at,
            status: transfer.status,
            fulfillment: transfer.fulfillment_id,
            order: transfer.order_id,
            reason: transfer.reason,
            candidate_order: transfer.candidate_order_id,
            orphaned_at: transfer.orphaned_at,
            forget_at: Some(self.attached_until()),
            ..self.row_of(at, transfer.block, transfer.observation)
        })
    }

    fn ask_attached(
        &mut self,
        row: TransferRow,
        order: OrderId,
        asked_at: UnixMicros,
    ) -> Result<(), Broken> {
        let match_deadline = Some(self.time_or(asked_at).plus(ASK_AGAIN_SECONDS));
        self.transfers.put(TransferRow {
            settling: true,
            order: Some(order),
            asked_at: Some(asked_at),
            match_deadline,
            ..row
        })
    }

    fn command_attach(
        &mut self,
        row: &TransferRow,
        order_id: OrderId,
        issued_at: UnixMicros,
        (command_id, ended): (Option<CommandId>, EndedOrder),
    ) {
        let attach = Attach {
            transfer_id: row.id,
            value: row.seen.value,
            blockchain: self.blockchain,
            wallet_address: row.seen.to_address,
        };
        let body = OrderCommandBody::Attach(attach, ended);
        self.command_order_by((order_id, command_id), issued_at, body);
    }

    /// Repeats an unanswered attach request. An orphaned transfer's request is postponed.
    pub(super) fn ask_attached_again(&mut self, row: TransferRow) -> Result<(), Broken> {
        let id = row.id;
        let Some(order) = row.order else {
            return Err(Broken::new(2, format!("transfer {id} is attached to no order")));
        };
        if !row.is_included() {
            let match_deadline = Some(self.time().plus(ASK_AGAIN_SECONDS));
            return self.transfers.put(TransferRow { match_deadline, ..row });
        }
        // The time of requests never goes back, even with clock skew: otherwise a refusal of an earlier request would
        // count as the reply to this one.
        let asked_at = row.asked_at.map_or(self.now, |at| at.max(self.now));
        self.command_attach(&row, order, asked_at, (None, None));
        self.ask_attached(row, order, asked_at)
    }

    /// Takes an order's acceptance of an attached transfer.
    pub(super) fn attached(
        &mut self,
        command: &DepositCommand,
        id: TransferId,
    ) -> Result<(), Broken> {
        let order = command.order_id;
        let unpaid = |row: &TransferRow| {
            row.status == TransferStatus::NoMatchedDeposit && row.order.is_none_or(|of| of == order)
        };
        match self.transfers.get(id).copied().filter(unpaid) {
            Some(row) => self.match_with(row, order),
            None => {
                self.report_second_order(id, order);
                Ok(())
            }
        }
    }

    /// Ends the attach that the order refused: the transfer is as before.
    pub(super) fn attach_refused(
        &mut self,
        command: &DepositCommand,
        id: TransferId,
    ) -> Result<(), Broken> {
        let is_asked = |row: &TransferRow| {
            row.is_attaching()
                && row.order == Some(command.order_id)
                // A reply repeats the time of its request, so the refusal of an earlier request ends nothing.
                && row.asked_at <= Some(command.issued_at)
        };
        let row = self.transfers.get(id).copied().filter(is_asked);
        let Some(row) = row else { return Ok(()) };
        self.transfers.put(TransferRow {
            settling: false,
            order: None,
            asked_at: Some(command.issued_at),
            match_deadline: None,
            ..row
        })
    }
}
