//! Invariant 10 over the records: who may reserve what.

use schemas::record::{Deposit, OpenDeposit};
use schemas::{CloseReason, TransferStatus};

use super::chain::WALLETS;
use super::check::{Ledger, place};
use super::violation::Violation;

/// For this long a closed deposit keeps its amount from other orders.
const KEPT_SECONDS: i64 = 3600;

impl Ledger<'_> {
    /// A deposit that opens is what was asked for, shares its amount with no other that is open or closed
    /// lately, and claims no payment that was there before it.
    pub(super) fn check_reservation(&self, deposit: &Deposit) -> Result<(), Violation> {
        let fails = |text: String| Err(Violation { invariant: 10, text });
        let Some(open) = self.opened.get(&(deposit.order_id, deposit.slot)) else {
            return fails(format!("opened and never asked for: {deposit:?}"));
        };
        let raised = deposit.value.parts().checked_sub(open.value.parts());
        let is_asked_for = open.user_address == deposit.user_address
            && raised.is_some_and(|raised| raised <= open.amounts.limit.parts());
        if !is_asked_for {
            return fails(format!("{deposit:?} is not what {open:?} asks for"));
        }
        let others = self.reserved.get(&place(deposit)).into_iter().flatten();
        if let Some(other) =
            others.map(|id| &self.deposits[id]).find(|other| self.keeps(other, deposit))
        {
            return fails(format!("{other:?} and {deposit:?} share an amount"));
        }
        self.check_claims(deposit, open)
    }

    /// Whether a deposit still has its amount, as far as another is concerned.
    fn keeps(&self, other: &Deposit, deposit: &Deposit) -> bool {
        let differ = other.user_address.zip(deposit.user_address).is_some_and(|(a, b)| a != b);
        let Some(closed_at) = self.closed.get(&other.deposit_id) else { return !differ };
        let late_window = self.opened.get(&(other.order_id, other.slot));
        let late_window = late_window.map_or(0, |open| i64::from(open.late_window_seconds));
        let released_at = closed_at.plus(late_window.min(KEPT_SECONDS));
        let given_back =
            other.order_id == deposit.order_id && other.close_reason == Some(CloseReason::Replaced);
        // Heads may go back; what was released stays free.
        !differ && !given_back && self.time_max(deposit.blockchain) < released_at
    }

    fn check_claims(&self, deposit: &Deposit, open: &OpenDeposit) -> Result<(), Violation> {
        let is_exact = deposit.value == open.value;
        let claimed = self.transfers.values().find(|transfer| {
            let seen = &transfer.observation;
            let is_older = transfer.block.timestamp < open.started_at;
            let waits = [TransferStatus::WaitingForConfirmation, TransferStatus::WaitingForMatch];
            waits.contains(&transfer.status)
                && !WALLETS.contains(&seen.from_address)
                && (transfer.blockchain, seen.to_address, seen.stablecoin, seen.value)
                    == place(deposit)
                && deposit.user_address.is_none_or(|only| only == seen.from_address)
                && (is_older || !is_exact)
        });
        match claimed {
            None => Ok(()),
            Some(transfer) => {
                let text = format!("{deposit:?} was given the amount of {transfer:?}");
                Err(Violation { invariant: 10, text })
            }
        }
    }
}
