//! What the chain tells: a transfer was seen, was orphaned, or the head moved.

use schemas::record::{Alert, ChainRecord, Head, Observation, OrderCommandBody};
use schemas::{
    AlertKind, CloseReason, DepositId, TransferId, TransferStatus, UnixMicros, UnixSeconds,
};

use super::deposits::{Closed, DepositRow};
use super::transfers::TransferRow;
use super::{Effect, FORGET_SECONDS, State, TransferStage};

impl State {
    /// A Transfer event in a block of the present chain.
    pub(super) fn observe(
        &mut self,
        record: &ChainRecord,
        seen: &Observation,
        effects: &mut Vec<Effect>,
    ) {
        if record.epoch < self.lane.epoch {
            return; // Seen before a rewind that has already taken it back or kept it.
        }
        match self.transfers.by_payment(&seen.payment()) {
            Some(id) => self.observe_again(id, record, seen, effects),
            None if self.is_stale(record) => {
                let message = format!(
                    "a transfer of {} {} in transaction {} surfaced more than a day late",
                    seen.value, seen.stablecoin, seen.tx_hash
                );
                self.alert(AlertKind::StaleTransfer, None, message, record.observed_at, effects);
            }
            None => {
                let id = TransferId::from_parts(self.partition, self.next_sequence());
                let row = TransferRow {
                    id,
                    updated_at: record.observed_at,
                    block: record.block,
                    seen: *seen,
                    created_at: record.observed_at.seconds(),
                    status: TransferStatus::WaitingForConfirmation,
                    fulfillment: None,
                    order: None,
                    deposit: None,
                    reason: None,
                    candidate_order: None,
                    epoch: record.epoch,
                    included: true,
                    settling: false,
                    match_deadline: None,
                    forget_at: None,
                };
                self.detect(row, record.observed_at, effects);
            }
        }
    }

    /// A known payment: a duplicate, or its transaction in another block.
    fn observe_again(
        &mut self,
        id: TransferId,
        record: &ChainRecord,
        seen: &Observation,
        effects: &mut Vec<Effect>,
    ) {
        let Some(old) = self.transfers.get(id).copied() else { return };
        // A duplicate, or one from before the rewind that took the transfer back.
        if record.epoch < old.epoch || (old.included && record.epoch == old.epoch) {
            return;
        }
        let same_place = old.seen.inclusion(&old.block) == seen.inclusion(&record.block);
        if old.included && same_place {
            return;
        }
        let mut row = TransferRow {
            block: record.block,
            seen: *seen,
            epoch: record.epoch,
            included: true,
            updated_at: old.updated_at.next(record.observed_at),
            ..old
        };
        if row.status == TransferStatus::FailedToConfirm {
            row.status = TransferStatus::WaitingForConfirmation;
            row.forget_at = None;
        }
        if row.status == TransferStatus::WaitingForConfirmation {
            self.detect(row, record.observed_at, effects);
        } else {
            self.publish(TransferStage::Detected, row, effects);
        }
    }

    /// Publishes a transfer that waits for confirmation, and ties it to the deposit it fits.
    fn detect(&mut self, mut row: TransferRow, now: UnixMicros, effects: &mut Vec<Effect>) {
        let fits = self.fitting_deposit(&row);
        if row.deposit != fits {
            self.untie(&mut row, now, effects);
            row.deposit = fits;
            if let Some(deposit) = fits.and_then(|id| self.deposits.get(id)) {
                let seen = OrderCommandBody::CandidateSeen { transfer_id: row.id };
                Self::tell_order(effects, deposit.order, now, seen);
            }
        }
        self.publish(TransferStage::Detected, row, effects);
    }

    /// The open deposit that this transfer would pay, in its present block.
    pub(super) fn fitting_deposit(&self, row: &TransferRow) -> Option<DepositId> {
        let seen = &row.seen;
        let (id, deposit) =
            self.deposits.reserved_by(seen.to_address, seen.stablecoin, seen.value)?;
        (deposit.is_open() && deposit.misfit(row).is_none()).then_some(id)
    }

    /// Lets go of the deposit that a waiting transfer was tied to.
    pub(super) fn untie(
        &mut self,
        row: &mut TransferRow,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(deposit) = row.deposit.take().and_then(|id| self.deposits.get(id)) {
            let gone = OrderCommandBody::CandidateGone { transfer_id: row.id };
            Self::tell_order(effects, deposit.order, now, gone);
        }
    }

    fn is_stale(&self, record: &ChainRecord) -> bool {
        self.chain_time().is_some_and(|now| record.block.timestamp.plus(FORGET_SECONDS) < now)
    }

    /// A block with a known transfer is no longer in the chain.
    pub(super) fn retract(
        &mut self,
        record: &ChainRecord,
        seen: &Observation,
        effects: &mut Vec<Effect>,
    ) {
        let Some(id) = self.transfers.by_payment(&seen.payment()) else { return };
        let Some(old) = self.transfers.get(id).copied() else { return };
        let same_place = old.seen.inclusion(&old.block) == seen.inclusion(&record.block);
        if !old.included || !same_place || record.epoch <= old.epoch {
            return;
        }
        let updated_at = old.updated_at.next(record.observed_at);
        let mut row = TransferRow { included: false, epoch: record.epoch, updated_at, ..old };
        if row.is_confirmed() {
            let message = format!(
                "transfer {id} was confirmed ({}) and its block {} is no longer in the chain",
                row.status, row.block.number
            );
            let kind = AlertKind::ConfirmedTransferRetracted;
            self.alert(kind, Some(&row), message, record.observed_at, effects);
        }
        if row.status == TransferStatus::WaitingForMatch && !row.settling {
            // Nothing was paid with it yet, so it can wait for its confirmation again.
            row.status = TransferStatus::WaitingForConfirmation;
            row.match_deadline = None;
            self.publish(TransferStage::Detected, row, effects);
        } else {
            self.transfers.set(id, Some(row));
        }
    }

    /// All blocks up to this one are scanned: confirm, give up, expire and forget what is due.
    pub(super) fn advance(&mut self, record: &ChainRecord, head: &Head, effects: &mut Vec<Effect>) {
        let behind = self.lane.head.is_some_and(|last| record.block.number < last.number);
        if record.epoch < self.lane.epoch || (record.epoch == self.lane.epoch && behind) {
            return;
        }
        let lane = self.lane_mut();
        lane.epoch = record.epoch;
        lane.head = Some(record.block);
        lane.finalized = lane.finalized.max(head.finalized);
        lane.match_window_seconds = head.match_window_seconds;
        let (now, chain_time) = (record.observed_at, record.block.timestamp);

        for id in self.transfers.unconfirmed_to(head.confirmed_max().min(record.block.number)) {
            self.confirm(id, head, chain_time, now, effects);
        }
        for id in self.transfers.orphaned_to(self.lane.finalized) {
            self.fail(id, chain_time, now, effects);
        }
        for id in self.transfers.unmatched_before(chain_time) {
            self.give_up(id, now, effects);
        }
        for id in self.deposits.due_before(chain_time) {
            self.deposit_due(id, chain_time, now, effects);
        }
        for id in self.transfers.forgettable_before(chain_time) {
            let finalized = self.lane.finalized;
            let is_past = |row: &TransferRow| {
                // Also by its block: what is forgotten must be too old to be taken for new.
                let age_from = row.block.timestamp.plus(FORGET_SECONDS);
                row.block.number <= finalized && age_from < chain_time
            };
            if self.transfers.get(id).is_some_and(is_past) {
                self.transfers.set(id, None);
            }
        }
    }

    fn confirm(
        &mut self,
        id: TransferId,
        head: &Head,
        chain_time: UnixSeconds,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        let Some(old) = self.transfers.get(id).copied() else { return };
        if old.block.number > head.confirmed_number(old.seen.value) {
            return;
        }
        let row = TransferRow {
            status: TransferStatus::WaitingForMatch,
            updated_at: old.updated_at.next(now),
            match_deadline: Some(chain_time.plus(self.lane.match_window_seconds)),
            ..old
        };
        self.publish(TransferStage::Confirmed, row, effects);
        self.match_or_wait(id, now, effects);
    }

    fn fail(
        &mut self,
        id: TransferId,
        chain_time: UnixSeconds,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        let Some(old) = self.transfers.get(id).copied() else { return };
        let mut row = TransferRow {
            status: TransferStatus::FailedToConfirm,
            updated_at: old.updated_at.next(now),
            forget_at: Some(chain_time.plus(FORGET_SECONDS)),
            ..old
        };
        self.untie(&mut row, now, effects);
        self.publish(TransferStage::Failed, row, effects);
    }

    fn deposit_due(
        &mut self,
        id: DepositId,
        chain_time: UnixSeconds,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        if self.transfers.holds(id) {
            return; // Neither expired nor given to another while a transfer for it waits.
        }
        if self.deposits.get(id).is_some_and(DepositRow::is_open) {
            self.close_deposit(id, CloseReason::Expired, chain_time, now, effects);
        } else {
            self.deposits.set(id, None);
        }
    }

    /// Closes an open deposit and keeps its amount for the late window.
    pub(super) fn close_deposit(
        &mut self,
        id: DepositId,
        reason: CloseReason,
        chain_time: UnixSeconds,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        let Some(mut row) = self.deposits.get(id).copied().filter(|row| row.is_open()) else {
            return;
        };
        let release_at = chain_time.plus(i64::from(row.late_window_seconds));
        row.closed = Some(Closed { reason, release_at });
        row.updated_at = row.updated_at.next(now);
        self.deposits.set(id, Some(row));
        effects.push(Effect::Deposit(self.deposit_record(id, &row)));
        if reason != CloseReason::Settled {
            let closed = OrderCommandBody::DepositClosed { slot: row.slot, reason };
            Self::tell_order(effects, row.order, now, closed);
        }
    }

    pub(super) fn alert(
        &self,
        kind: AlertKind,
        row: Option<&TransferRow>,
        message: String,
        raised_at: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Alert(Alert {
            kind,
            blockchain: self.blockchain,
            transfer_id: row.map(|row| row.id),
            order_id: row.and_then(|row| row.order),
            message,
            raised_at,
        }));
    }
}
