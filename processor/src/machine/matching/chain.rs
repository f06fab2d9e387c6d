//! Reports of the chain: a transfer was seen, was orphaned, or the head moved.

use std::fmt::Display;

use schemas::record::{Alert, Block, ChainRecord, Head, Observation, OrderCommandBody};
use schemas::{AlertKind, FORGET_SECONDS, OrderId, TransferId, TransferStatus, UnixMicros};

use super::deposits::{DepositRow, Opening};
use super::transfers::TransferRow;
use super::{Broken, Effect, State, TransferStage};

impl State {
    /// A Transfer event in a block of the present chain.
    pub(super) fn observe(
        &mut self,
        record: &ChainRecord,
        seen: &Observation,
    ) -> Result<(), Broken> {
        if record.epoch < self.lane.epoch {
            return Ok(()); // From before a rewind, which has retracted or kept it.
        }
        if let Some(old) = self.transfers.by_payment(&seen.payment()) {
            return self.observe_again(*old, record, seen);
        }
        if self.is_stale(record) {
            self.report_stale(seen, "surfaced more than a day late");
            return Ok(());
        }
        let row = self.new_row(record, seen);
        // A misplaced head is ignored, so it confirms nothing.
        if record.confirmed && self.misplaced(record).is_none() {
            self.confirm_at_sight(row)
        } else {
            self.detect(row)
        }
    }

    /// The payment's id, or the next unused one. Ids of forgotten payments cannot collide: a new payment's id is in a
    /// later window.
    fn transfer_id(&self, record: &ChainRecord, seen: &Observation) -> TransferId {
        let payment = seen.payment();
        let mut id = TransferId::of_payment(self.id_partition(), &payment, record.block.timestamp);
        while self.transfers.get(id).is_some() {
            id = id.next();
        }
        id
    }

    fn new_row(&self, record: &ChainRecord, seen: &Observation) -> TransferRow {
        let id = self.transfer_id(record, seen);
        let row = self.row_of((id, record.observed_at), record.block, *seen);
        TransferRow { epoch: record.epoch, ..row }
    }

    /// A transfer of this id, last published at this time, that waits for its confirmation in the lane's epoch.
    pub(super) fn row_of(
        &self,
        (id, updated_at): (TransferId, UnixMicros),
        block: Block,
        seen: Observation,
    ) -> TransferRow {
        TransferRow {
            id,
            updated_at,
            block,
            seen,
            created_at: updated_at.seconds(),
            listed_at: self.lane.sequence,
            status: TransferStatus::WaitingForConfirmation,
            fulfillment: None,
            order: None,
            deposit: None,
            reason: None,
            candidate_order: None,
            epoch: self.lane.epoch,
            orphaned_at: None,
            orphan_due: false,
            settling: false,
            unanswered: false,
            asked_at: None,
            match_deadline: None,
            forget_at: None,
        }
    }

    /// Settles at once a transfer that the head of its own step confirms, if it fits a deposit without another waiting
    /// transfer and no stop covers it. Otherwise the transfer is detected, and confirmed when that head is read.
    fn confirm_at_sight(&mut self, mut row: TransferRow) -> Result<(), Broken> {
        let is_free = |deposit: &DepositRow| {
            deposit.takes()
                && self.misfit(deposit, &row).is_none()
                && !self.transfers.holds(deposit.id)
                && !self.is_held_up(&row)
        };
        let reserved = self.reserved_for(&row);
        let Some(deposit) = reserved.filter(is_free) else {
            return self.detect(row);
        };
        row.status = TransferStatus::WaitingForMatch;
        row.deposit = Some(deposit.id);
        self.publish(TransferStage::Confirmed, row)?;
        self.ask(row, &deposit)
    }

    /// A known payment: a duplicate, or its transaction in another block.
    fn observe_again(
        &mut self,
        old: TransferRow,
        record: &ChainRecord,
        seen: &Observation,
    ) -> Result<(), Broken> {
        if old.is_nameless() {
            let how = "was taken back more than a day after its block, and is in another one: it may have paid before";
            self.report_stale(seen, how);
            // Restarts its retention from the younger block.
            let (block, forget_at) = (record.block, Some(record.block.timestamp));
            let is_younger = block.timestamp > old.block.timestamp;
            let row = TransferRow { block, forget_at, ..old };
            return if is_younger { self.transfers.put(row) } else { Ok(()) };
        }
        // A duplicate, or one from before the rewind that retracted it.
        if record.epoch < old.epoch || (old.is_included() && record.epoch == old.epoch) {
            return Ok(());
        }
        if old.is_included() && old.block.hash == record.block.hash {
            return Ok(());
        }
        let mut row = TransferRow {
            block: record.block,
            seen: *seen,
            epoch: record.epoch,
            orphaned_at: None,
            orphan_due: false,
            updated_at: old.updated_at.next(record.observed_at),
            ..old
        };
        if row.status == TransferStatus::FailedToConfirm {
            row.status = TransferStatus::WaitingForConfirmation;
            row.forget_at = None;
        }
        if row.status == TransferStatus::WaitingForConfirmation {
            self.detect(row)
        } else {
            self.publish(TransferStage::Detected, row)
        }
    }

    /// Publishes a transfer that waits for confirmation, and ties it to the deposit it fits, or to none.
    pub(super) fn detect(&mut self, mut row: TransferRow) -> Result<(), Broken> {
        let fits =
            |deposit: &DepositRow| deposit.admits(&row) && self.misfit(deposit, &row).is_none();
        let reserved = self.reserved_for(&row);
        let fitting = reserved.filter(fits).map(|deposit| (deposit.id, deposit.order));
        if row.deposit != fitting.map(|(id, _)| id) {
            self.untie(&mut row)?;
            if let Some((deposit, order)) = fitting {
                row.deposit = Some(deposit);
                let seen = OrderCommandBody::CandidateSeen { transfer_id: row.id };
                self.command_order(order, seen);
            }
        }
        self.publish(TransferStage::Detected, row)
    }

    /// Unties a waiting transfer from its deposit.
    pub(super) fn untie(&mut self, row: &mut TransferRow) -> Result<(), Broken> {
        if let Some(id) = row.deposit.take() {
            let gone = OrderCommandBody::CandidateGone { transfer_id: row.id };
            self.command_order(self.deposits.named(id)?.order, gone);
        }
        Ok(())
    }

    /// `true` if the transfers of the record's block may have been forgotten, also when a rewind
    /// below final blocks took the lane's time back.
    fn is_stale(&self, record: &ChainRecord) -> bool {
        let was_final = record.block.number <= self.lane.finalized;
        let newest = self.lane.newest.filter(|_| was_final).max(self.chain_time());
        newest.is_some_and(|newest| record.block.timestamp.plus(FORGET_SECONDS) < newest)
    }

    fn report_stale(&mut self, seen: &Observation, how: &str) {
        let Observation { value, stablecoin, tx_hash, .. } = seen;
        let message = format!("a transfer of {value} {stablecoin} in transaction {tx_hash} {how}");
        let alert = self.alert(AlertKind::StaleTransfer, tx_hash, message);
        self.effects.push(Effect::Alert(alert));
    }

    /// The block of a transfer is no longer in the chain.
    pub(super) fn retract(
        &mut self,
        record: &ChainRecord,
        seen: &Observation,
    ) -> Result<(), Broken> {
        let Some(old) = self.transfers.by_payment(&seen.payment()).copied() else {
            return self.retract_forgotten(record, seen);
        };
        let is_there = old.is_included() && old.block.hash == record.block.hash;
        if !is_there || record.epoch <= old.epoch {
            return Ok(());
        }
        self.orphan(old, record)
    }

    /// Remembers a forgotten transfer that a rewind of more than a day retracts: it may have paid. If its transaction
    /// is included in a new block, it must not count as a new payment.
    fn retract_forgotten(
        &mut self,
        record: &ChainRecord,
        seen: &Observation,
    ) -> Result<(), Broken> {
        if record.epoch <= self.lane.epoch || !self.is_stale(record) {
            return Ok(());
        }
        let row = TransferRow {
            status: TransferStatus::NoMatchedDeposit,
            orphaned_at: Some(record.observed_at.seconds()),
            forget_at: Some(record.block.timestamp),
            ..self.new_row(record, seen)
        };
        self.transfers.put(row)
    }

    /// Orphans transfers of earlier epochs above the head of a new one, also those that ingest could not retract as
    /// their records are gone. Deposits that opened above count as opened at this head: the blocks that replace the old
    /// ones are younger.
    pub(super) fn orphan_above(&mut self, record: &ChainRecord) -> Result<(), Broken> {
        for id in self.transfers.included_above(record.block.number) {
            let old = *self.transfers.named(id)?;
            if old.epoch < record.epoch {
                self.orphan(old, record)?;
            }
        }
        let number = record.block.number;
        for row in self.deposits.opened_above(number) {
            let opening = Opening { above: number, ..row.opening };
            self.deposits.put(DepositRow { opening, ..row })?;
        }
        Ok(())
    }

    fn orphan(&mut self, old: TransferRow, record: &ChainRecord) -> Result<(), Broken> {
        let id = old.id;
        let updated_at = old.updated_at.next(record.observed_at);
        let orphaned_at = Some(record.observed_at.seconds());
        let mut row = TransferRow { orphaned_at, epoch: record.epoch, updated_at, ..old };
        if !row.is_confirmed() {
            // One of the next blocks may include the transfer, so the orphan is published only once a head is at its
            // height.
            return self.transfers.put(TransferRow { orphan_due: true, ..row });
        }
        let message = format!(
            "transfer {id} was confirmed ({}) and its block {} is no longer in the chain",
            row.status, row.block.number
        );
        self.alert_of_payment(row.id, row.order, message);
        if row.status == TransferStatus::WaitingForMatch && !row.settling {
            // No settle is in flight, so the transfer can wait for confirmation again.
            row.status = TransferStatus::WaitingForConfirmation;
            row.match_deadline = None;
        }
        // A verdict stays; the published transfer is marked as orphaned.
        self.publish(TransferStage::Detected, row)
    }

    /// All blocks up to this one are scanned: confirm, reject, expire and forget what is due.
    pub(super) fn run_to(&mut self, record: &ChainRecord, head: &Head) -> Result<(), Broken> {
        let chain_time = record.block.timestamp;

        for id in self.transfers.unconfirmed_to(head.confirmed_max().min(record.block.number)) {
            self.confirm(id, record, head)?;
        }
        for id in self.transfers.orphaned_to(self.lane.finalized) {
            self.fail(id)?;
        }
        for id in self.transfers.orphan_due_to(record.block.number) {
            self.show_orphan(id)?;
        }
        for id in self.transfers.unmatched_before(chain_time) {
            self.give_up(id)?;
        }
        for id in self.deposits.due_before(chain_time) {
            self.deposit_due(id, head)?;
        }
        for id in self.transfers.forgettable_before(chain_time) {
            if self.transfers.named(id)?.block.number <= self.lane.finalized {
                self.transfers.remove(id)?;
            }
        }
        Ok(())
    }

    /// Confirms a transfer, unless it is above the height that the head confirms for its amount, or the head holds it,
    /// as endpoints disagree about it. An unconfirmed transfer stays tied to its deposit.
    fn confirm(&mut self, id: TransferId, record: &ChainRecord, head: &Head) -> Result<(), Broken> {
        let old = *self.transfers.named(id)?;
        if !head.confirms(&old.block, &old.seen) {
            return Ok(());
        }
        let (block, scanned) = (old.block.number, record.block.number);
        invariant!(3, old.is_included(), "transfer {id} would be confirmed after its retract");
        invariant!(3, block <= scanned, "transfer {id} in block {block} above head {scanned}");
        let row = TransferRow {
            status: TransferStatus::WaitingForMatch,
            updated_at: old.updated_at.next(self.now),
            // Counted from the block: a slow confirmation does not prolong the wait.
            match_deadline: Some(old.block.timestamp.plus(self.lane.match_window_seconds)),
            ..old
        };
        self.publish(TransferStage::Confirmed, row)?;
        self.match_or_wait(row)
    }

    /// Publishes a waiting transfer as orphaned: the blocks that replaced its own do not include it.
    fn show_orphan(&mut self, id: TransferId) -> Result<(), Broken> {
        let old = *self.transfers.named(id)?;
        let updated_at = old.updated_at.next(self.now);
        let row = TransferRow { orphan_due: false, updated_at, ..old };
        self.publish(TransferStage::Detected, row)
    }

    pub(super) fn fail(&mut self, id: TransferId) -> Result<(), Broken> {
        let old = *self.transfers.named(id)?;
        let mut row = TransferRow {
            status: TransferStatus::FailedToConfirm,
            settling: false,
            orphan_due: false,
            match_deadline: None,
            updated_at: old.updated_at.next(self.now),
            forget_at: Some(self.time().plus(FORGET_SECONDS)),
            ..old
        };
        if let Some(deposit) = row.deposit.filter(|_| old.settling) {
            row.candidate_order = Some(self.deposits.named(deposit)?.order);
            row.unanswered = true;
        }
        self.untie(&mut row)?;
        self.publish(TransferStage::Failed, row)
    }

    /// Alert of the lane's chain about `subject`.
    pub(super) fn alert(&self, kind: AlertKind, subject: &dyn Display, message: String) -> Alert {
        Alert::raise(kind, Some(self.blockchain), subject, message, self.now)
    }

    /// Raises the alert about a payment that was orphaned after its confirmation, accepted late, or accepted by two
    /// orders.
    pub(super) fn alert_of_payment(
        &mut self,
        id: TransferId,
        order: Option<OrderId>,
        message: String,
    ) {
        let subject = order.map_or_else(|| id.to_string(), |order| format!("{id}/{order}"));
        let alert = self.alert(AlertKind::ConfirmedTransferRetracted, &subject, message);
        let (transfer_id, order_id) = (Some(id), order);
        self.effects.push(Effect::Alert(Alert { transfer_id, order_id, ..alert }));
    }
}
