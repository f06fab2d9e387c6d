//! Verdict on a confirmed transfer: it settles, waits, or is unknown.

use schemas::record::{OrderCommandBody, Settle};
use schemas::{
    Address, CloseReason, FORGET_SECONDS, OrderId, TransferId, TransferStatus, UnknownReason,
};

use super::deposits::{DepositRow, Likeliest, Opening};
use super::transfers::TransferRow;
use super::{ASK_AGAIN_SECONDS, Broken, State, TransferStage};

impl DepositRow {
    /// Reason why a transfer of the right amount does not fit this deposit, if it does not.
    fn misfit(&self, row: &TransferRow, contracts: &[Address]) -> Option<UnknownReason> {
        let time = row.block.timestamp;
        if self.user_address.is_some_and(|sender| sender != row.seen.from_address) {
            Some(UnknownReason::SenderMismatch)
        } else if self.is_after(row) {
            Some(UnknownReason::BeforeDeposit)
        } else if time > self.expires_at && !self.accepts_late {
            Some(UnknownReason::Late)
        } else if !contracts.contains(&row.seen.contract) {
            Some(UnknownReason::OtherContract)
        } else {
            None
        }
    }

    /// `true` if the lane had the transfer or its block when this deposit opened: the transfer was meant for something
    /// else.
    fn is_after(&self, row: &TransferRow) -> bool {
        let Opening { above, position } = self.opening;
        row.listed_at < position || row.block.number <= above
    }

    /// `true` if a transfer of its amount may pay it, or was tied to it when its order ended without it: an operator
    /// may have marked the order paid, also after a cancel.
    pub(super) fn admits(&self, row: &TransferRow) -> bool {
        self.takes() || (self.is_order_over() && row.deposit == Some(self.id))
    }

    /// Reason why a transfer that fits comes too late for this deposit, if it does.
    fn closed_reason(&self, row: &TransferRow) -> Option<UnknownReason> {
        // For admitted transfers the order decides.
        self.closed.filter(|_| !self.admits(row)).and_then(|closed| match closed.reason {
            CloseReason::Settled | CloseReason::OrderPaid => Some(UnknownReason::AlreadyPaid),
            CloseReason::Expired | CloseReason::OrderExpired => Some(UnknownReason::Late),
            CloseReason::OrderCancelled => Some(UnknownReason::OrderCancelled),
            CloseReason::Replaced => None,
        })
    }
}

impl State {
    /// Deposit that reserves a transfer's amount for its sender; none if nobody does, or the transfer may not pay that
    /// order.
    pub(super) fn reserved_for(&self, row: &TransferRow) -> Option<DepositRow> {
        let reserved = self.deposits.reserved_by(row.price(), row.seen.from_address);
        reserved.filter(|deposit| row.may_pay(deposit.order))
    }

    /// Decides about a confirmed transfer, or leaves it waiting.
    pub(super) fn match_or_wait(&mut self, row: TransferRow) -> Result<(), Broken> {
        if row.seen.from_own_wallet {
            return self.reject(row, UnknownReason::OwnWallet, None);
        }
        if let Some(order) = row.order {
            return self.match_with(row, order);
        }
        // A transfer stays with the deposit that it is tied to.
        let holder = match row.deposit {
            Some(id) => Some(self.deposits.named(id)?),
            None => self.reserved_for(&row),
        };
        let is_stopped = self.is_held_up(&row);
        // While a deposit holds this amount for this sender no other can open for it, so the verdict need not wait.
        let Some(deposit) = holder else {
            if is_stopped {
                let order = row.candidate_order.or_else(|| meant_for(self.likeliest(&row), &row));
                return self.reject(row, UnknownReason::Stopped, order);
            }
            return Ok(());
        };
        match self.refusal(&deposit, &row) {
            Some(reason) => self.reject(row, reason, Some(deposit.order)),
            None if is_stopped => self.reject(row, UnknownReason::Stopped, Some(deposit.order)),
            None => self.ask(row, &deposit),
        }
    }

    /// Sends a settle; the reply is a command.
    pub(super) fn ask(&mut self, mut row: TransferRow, deposit: &DepositRow) -> Result<(), Broken> {
        let (equal, deposit_id) = (deposit.price() == row.price(), deposit.id);
        invariant!(2, equal, "transfer {} has not the amount of deposit {deposit_id}", row.id);
        let is_taken = self.deposits.contracts(deposit).contains(&row.seen.contract);
        invariant!(14, is_taken, "transfer {} is of no contract of deposit {deposit_id}", row.id);
        invariant!(14, !self.is_held_up(&row), "transfer {} asks, and is stopped", row.id);
        row.settling = true;
        row.deposit = Some(deposit_id);
        row.match_deadline = Some(self.time().plus(ASK_AGAIN_SECONDS));
        self.transfers.put(row)?;
        let settle = OrderCommandBody::Settle(Settle {
            transfer_id: row.id,
            slot: deposit.slot,
            deposit_id,
            blockchain: self.blockchain,
            wallet_address: deposit.wallet,
            accepts_late: deposit.accepts_late,
        });
        self.command_order(deposit.order, settle);
        Ok(())
    }

    /// Repeats a settle without a reply: the order repeats its decision. A stopped or orphaned transfer's settle is
    /// postponed; an orphan whose height is final fails a day after its block.
    fn ask_again(&mut self, mut row: TransferRow) -> Result<(), Broken> {
        let time = self.time();
        if row.is_included() && self.is_held_up(&row) {
            row.match_deadline = Some(time.plus(ASK_AGAIN_SECONDS));
            return self.transfers.put(row);
        }
        if let Some(deposit) = row.deposit.filter(|_| row.is_included()) {
            let deposit = self.deposits.named(deposit)?;
            return self.ask(row, &deposit);
        }
        let is_final = row.block.number <= self.lane.finalized;
        if is_final && row.block.timestamp.plus(FORGET_SECONDS) < time {
            return self.fail(row.id);
        }
        row.match_deadline = Some(time.plus(ASK_AGAIN_SECONDS));
        self.transfers.put(row)
    }

    /// Handles the passed deadline of a transfer.
    pub(super) fn give_up(&mut self, id: TransferId) -> Result<(), Broken> {
        let row = *self.transfers.named(id)?;
        if row.is_attaching() {
            return self.ask_attached_again(row);
        }
        if row.settling {
            return self.ask_again(row);
        }
        if row.seen.from_own_wallet {
            return self.reject(row, UnknownReason::OwnWallet, None);
        }
        if let Some(asked) = row.candidate_order {
            return self.reject(row, UnknownReason::Late, Some(asked));
        }
        let (price, from) = (row.price(), row.seen.from_address);
        let reserved = self.deposits.reserved_by(price, from);
        if let Some(deposit) = reserved.or_else(|| self.deposits.reserved_by_another(price))
            && let Some(reason) = self.refusal(&deposit, &row)
        {
            return self.reject(row, reason, Some(deposit.order));
        }
        let found = self.likeliest(&row);
        let takes =
            |deposit: &DepositRow| self.deposits.contracts(deposit).contains(&row.seen.contract);
        let reason = match found.first() {
            Some(deposit) if takes(deposit) => UnknownReason::AmountMismatch,
            Some(_) => UnknownReason::OtherContract,
            None => UnknownReason::NoDeposit,
        };
        self.reject(row, reason, meant_for(found, &row))
    }

    /// Reason why a transfer of its amount does not fit this deposit, if it does not.
    pub(super) fn misfit(&self, deposit: &DepositRow, row: &TransferRow) -> Option<UnknownReason> {
        deposit.misfit(row, self.deposits.contracts(deposit))
    }

    /// Reason why a transfer of its amount does not pay this deposit, if any.
    fn refusal(&self, deposit: &DepositRow, row: &TransferRow) -> Option<UnknownReason> {
        self.misfit(deposit, row).or(deposit.closed_reason(row))
    }

    /// The deposit of another amount that a transfer was most likely meant for: one that could be paid at the time of
    /// the transfer, even if closed since; if there is none, any.
    fn likeliest(&self, row: &TransferRow) -> Likeliest {
        let (price, from) = (row.price(), row.seen.from_address);
        let waited = |deposit: &DepositRow| deposit.misfit(row, &[row.seen.contract]).is_none();
        let found = self.deposits.likeliest(price, from, &waited);
        match found.first() {
            Some(_) => found,
            None => self.deposits.likeliest(price, from, &|_| true),
        }
    }

    /// Ends a confirmed transfer that pays nothing.
    pub(super) fn reject(
        &mut self,
        mut row: TransferRow,
        reason: UnknownReason,
        candidate_order: Option<OrderId>,
    ) -> Result<(), Broken> {
        if row.settling {
            row.deposit = None; // The order refused, and needs no `CandidateGone`.
        } else {
            self.untie(&mut row)?;
        }
        row.status = TransferStatus::NoMatchedDeposit;
        row.settling = false;
        row.match_deadline = None;
        row.reason = Some(reason);
        row.candidate_order = candidate_order;
        row.updated_at = row.updated_at.next(self.now);
        row.forget_at = Some(self.time().plus(FORGET_SECONDS));
        self.publish(TransferStage::Unknown, row)
    }
}

/// The order of the deposit that a transfer of another amount was clearly meant for; none if it opened after it.
fn meant_for(found: Likeliest, row: &TransferRow) -> Option<OrderId> {
    let deposit = found.clear().filter(|deposit| !deposit.is_after(row));
    deposit.map(|deposit| deposit.order)
}
