//! Conditions that must hold once everything is read and every window has passed.

use std::collections::HashSet;

use schemas::record::{Block, Deposit, Transfer};
use schemas::{CloseReason, OrderStatus, PaymentKey, TransferId, TransferStatus, UnknownReason};

use crate::machine_model::ledger::Ledger;
use crate::machine_model::violation::{Violation, holds};

impl Ledger<'_> {
    /// Checks these conditions.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn check_end(&self) -> Result<(), Violation> {
        let at_sight: Vec<_> = self.lanes.values().flat_map(|lane| &lane.at_sight).collect();
        holds!(3, at_sight.is_empty(), "no head confirms {at_sight:?}");
        let payments = self.lanes.values().flat_map(|lane| lane.chain.payments());
        let canonical: HashSet<PaymentKey> = payments.map(|(payment, _)| payment).collect();
        for payment in &canonical {
            // Invariant 1: a transfer on the chain ends matched or unknown.
            let status = self.transfers.get(payment).map(|transfer| transfer.status);
            let ended = [Some(TransferStatus::Matched), Some(TransferStatus::NoMatchedDeposit)];
            holds!(1, ended.contains(&status), "{payment:?} ended as {status:?}");
        }
        for (payment, transfer) in &self.transfers {
            let confirmed = self.confirmed.contains(payment);
            let failed = transfer.status == TransferStatus::FailedToConfirm;
            let on_chain = canonical.contains(payment);
            let shown = transfer.orphaned_at.is_none();
            let is_left = self.left_alone.contains(payment);
            let is_true = !confirmed || is_left || shown == on_chain;
            holds!(3, is_true, "on the chain: {on_chain}; {transfer:?}");
            holds!(1, on_chain || confirmed || failed, "gone from the chain: {transfer:?}");
            let order = transfer.order_id.and_then(|order| self.orders.get(&order));
            if transfer.status == TransferStatus::Matched {
                let paid_by = order.and_then(|order| order.paid_by);
                holds!(2, paid_by == Some(transfer.transfer_id), "{order:?} by {transfer:?}");
            }
        }
        for order in self.orders.values() {
            holds!(8, order.status != OrderStatus::Pending, "waits for ever: {order:?}");
            let paid_by = self.matched.get(&order.order_id).copied();
            // A transfer that failed before the order's reply was read may be unknown, or never return.
            let is_gone = |id: &TransferId| {
                self.payments.get(id).is_none_or(|payment| !canonical.contains(payment))
            };
            let counts_on = |id: &TransferId| {
                self.counted_on.get(id) == Some(&order.order_id)
                    || (self.attaching.get(id) == Some(&order.order_id) && is_gone(id))
            };
            let is_left = paid_by.is_none() && order.paid_by.as_ref().is_some_and(counts_on);
            holds!(2, paid_by == order.paid_by || is_left, "{paid_by:?} paid {order:?}");
            let reason = order.paid_by.is_some() || self.forced.contains(&order.order_id);
            holds!(2, (order.status == OrderStatus::Paid) == reason, "not paid: {order:?}");
        }
        let awaited = self.deposits.values().find(|deposit| self.is_awaited(deposit));
        holds!(8, awaited.is_none(), "waits for ever: {awaited:?}");
        self.check_in_time()?;
        // Invariant 3: an alert reports each confirmed transfer that was retracted.
        let missing: Vec<_> = self.alerts_due.difference(&self.alerts).collect();
        holds!(3, missing.is_empty(), "retracted after they were confirmed: {missing:?}");
        let untrue = self.untrue.as_ref();
        holds!(11, untrue.is_none(), "not what a lane publishes of itself: {untrue:?}");
        Ok(())
    }

    /// Invariant 11: no order expired although a transfer that fits one of its deposits came in time and paid nothing.
    /// Exceptions: confirmed blocks left the chain since; the transfer had ended when the deposit opened, or was
    /// another order's; it came before its wallet was watched; it was confirmed during a stop.
    fn check_in_time(&self) -> Result<(), Violation> {
        let chain_of = |deposit: &Deposit| self.lane(deposit.blockchain).chain;
        let for_ever =
            |d: &Deposit| self.expired_by.get(&d.deposit_id).is_some_and(|b| chain_of(d).has(*b));
        let has_expired = |d: &Deposit| d.close_reason == Some(CloseReason::Expired) && for_ever(d);
        let expired = |d: &&Deposit| has_expired(d) || self.is_awaited(d);
        let ended_otherwise = |d: &&Deposit| {
            self.orders.get(&d.order_id).is_none_or(|o| o.status != OrderStatus::Expired)
        };
        for deposit in self.deposits.values().filter(expired).filter(|d| !ended_otherwise(d)) {
            let chain = chain_of(deposit);
            for (payment, time) in chain.payments() {
                let Some(transfer) = self.transfers.get(&payment) else { continue };
                if self.ended_in.get(&payment).is_some_and(|block| !chain.has(*block)) {
                    continue;
                }
                // Not covered by the watch: it was seen only because of a rewind below the first watched block.
                let seen_after = self.lane(deposit.blockchain).seen_after.get(&payment.to);
                if seen_after.is_some_and(|number| transfer.block.number <= *number) {
                    continue;
                }
                let block = Block { timestamp: time, ..transfer.block };
                let in_time = time <= deposit.expires_at
                    && self.fits(&Transfer { block, ..transfer.clone() }, deposit);
                // A transfer that came before the deposit may seem to come after it now: a rewind lowered the head at
                // which the deposit opened.
                let excused = [UnknownReason::Stopped, UnknownReason::BeforeDeposit].map(Some);
                let paid_nothing = transfer.status != TransferStatus::Matched
                    && !excused.contains(&transfer.reason);
                let overlooked = in_time
                    && paid_nothing
                    && !self.not_for.contains(&(deposit.deposit_id, payment));
                holds!(11, !overlooked, "{deposit:?} expired, though in time came {transfer:?}");
            }
        }
        Ok(())
    }
}
