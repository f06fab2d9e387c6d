//! What orders tell: open a deposit, close it, and the answers to settles.

use schemas::record::{DepositCommand, OpenDeposit, OrderCommandBody};
use schemas::{
    CloseReason, DepositId, FulfillmentId, RefusalReason, TransferId, TransferStatus, UnixMicros,
    UnixSeconds, UnknownReason,
};

use super::deposits::DepositRow;
use super::transfers::TransferRow;
use super::{Effect, FORGET_SECONDS, State, TransferStage, seconds_u32};

impl State {
    /// The chain's time, or before its first head the record's.
    pub(super) fn time_or(&self, now: UnixMicros) -> UnixSeconds {
        self.chain_time().unwrap_or(now.seconds())
    }

    /// Reserves the least free amount and waits for it.
    pub(super) fn open(
        &mut self,
        command: &DepositCommand,
        open: &OpenDeposit,
        effects: &mut Vec<Effect>,
    ) {
        let (order, slot, now) = (command.order_id, command.slot, command.issued_at);
        if self.deposits.by_slot(order, slot).is_some() {
            return;
        }
        let wallet_address = command.wallet_address;
        let refuse = |reason| OrderCommandBody::DepositRefused { slot, wallet_address, reason };
        if self.chain_time().is_some_and(|time| time > open.expires_at) {
            return Self::tell_order(effects, order, now, refuse(RefusalReason::Expired));
        }
        let wallet = wallet_address;
        let (step, limit) = (open.nudge_step, open.nudge_limit);
        let free = self.deposits.free_amount(wallet, open.stablecoin, open.value, step, limit);
        let Some(value) = free else {
            return Self::tell_order(effects, order, now, refuse(RefusalReason::AmountsTaken));
        };
        let id = DepositId::from_parts(self.partition, self.next_sequence());
        let row = DepositRow {
            order,
            slot,
            stablecoin: open.stablecoin,
            wallet,
            user_address: open.user_address,
            value,
            started_at: open.started_at,
            expires_at: open.expires_at,
            updated_at: now,
            skew_seconds: seconds_u32(open.skew_seconds),
            late_window_seconds: seconds_u32(open.late_window_seconds),
            closed: None,
        };
        self.deposits.set(id, Some(row));
        effects.push(Effect::Deposit(self.deposit_record(id, &row)));
        let opened = OrderCommandBody::DepositOpened { slot, deposit_id: id, value };
        Self::tell_order(effects, order, now, opened);
        self.adopt(id, &row, now, effects);
    }

    /// Ties transfers that came before their deposit to it.
    fn adopt(
        &mut self,
        id: DepositId,
        deposit: &DepositRow,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        let mut waiting = self.transfers.loose(deposit.wallet, deposit.stablecoin, deposit.value);
        // As the chain has them: the one pays that would have, had the deposit come before them.
        waiting.sort_by_key(|id| (self.transfers.get(*id).map(|row| row.block.number), *id));
        for transfer_id in waiting {
            let Some(row) = self.transfers.get(transfer_id).copied() else { continue };
            if row.status == TransferStatus::WaitingForMatch {
                // One that does not fit is not told at once, as it might fit a deposit after this one.
                if deposit.misfit(&row).is_none() {
                    self.match_or_wait(transfer_id, now, effects);
                }
            } else if deposit.misfit(&row).is_none() {
                let row =
                    TransferRow { deposit: Some(id), updated_at: row.updated_at.next(now), ..row };
                let seen = OrderCommandBody::CandidateSeen { transfer_id };
                Self::tell_order(effects, deposit.order, now, seen);
                self.publish(TransferStage::Detected, row, effects);
            }
        }
    }

    /// The order ended in another way.
    pub(super) fn close(
        &mut self,
        command: &DepositCommand,
        reason: CloseReason,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(id) = self.deposits.by_slot(command.order_id, command.slot) {
            let time = self.time_or(command.issued_at);
            self.close_deposit(id, reason, time, command.issued_at, effects);
        }
    }

    /// The order is paid by this transfer.
    pub(super) fn settled(
        &mut self,
        command: &DepositCommand,
        transfer_id: TransferId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(row) = self.settling(transfer_id) else { return };
        let now = command.issued_at;
        let time = self.time_or(now);
        let fulfillment = FulfillmentId::from_parts(self.partition, self.next_sequence());
        let row = TransferRow {
            status: TransferStatus::Matched,
            settling: false,
            match_deadline: None,
            order: Some(command.order_id),
            fulfillment: Some(fulfillment),
            updated_at: row.updated_at.next(now),
            forget_at: Some(time.plus(FORGET_SECONDS)),
            ..row
        };
        self.publish(TransferStage::Matched, row, effects);
        if let Some(deposit) = row.deposit {
            self.close_deposit(deposit, CloseReason::Settled, time, now, effects);
        }
    }

    /// The order may not be paid by this transfer.
    pub(super) fn refused(
        &mut self,
        command: &DepositCommand,
        transfer_id: TransferId,
        reason: UnknownReason,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(row) = self.settling(transfer_id) {
            self.reject(row, reason, Some(command.order_id), command.issued_at, effects);
        }
    }

    /// The transfer, if the order was asked about it and this is the first answer.
    fn settling(&self, id: TransferId) -> Option<TransferRow> {
        self.transfers.get(id).copied().filter(|row| row.settling)
    }
}
