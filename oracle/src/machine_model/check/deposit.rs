//! Checks of deposits: opening, reservation, expiry.

use processor::machine::matching;
use schemas::record::{Deposit, DepositCommand, DepositCommandBody, Transfer};
use schemas::{CloseReason, DepositState, TransferStatus};

use crate::machine_model::chain::{CONTRACT, OTHER_CONTRACT, WALLETS};
use crate::machine_model::ledger::{Lane, Ledger, Opening, place};
use crate::machine_model::violation::{Violation, holds};

/// Seconds for which a closed deposit keeps its amount from other orders, unless its late window is shorter.
const KEPT_SECONDS: i64 = 3600;

/// `true` if the deposit is closed because its customer chose another way to pay.
fn is_replaced(deposit: &Deposit) -> bool {
    deposit.close_reason == Some(CloseReason::Replaced)
}

impl Ledger<'_> {
    /// Invariants 11 and 14: a deposit opens only where payments are seen, and not stopped.
    pub(super) fn check_open(
        &mut self,
        command: &DepositCommand,
        effects: &[matching::Effect],
    ) -> Result<(), Violation> {
        let DepositCommandBody::Open(open) = &command.body else { return Ok(()) };
        self.opened.insert((command.order_id, command.slot), open.clone());
        if effects.iter().any(|effect| matches!(effect, matching::Effect::Deposit(_))) {
            let (wallet, lane) = (command.wallet_address, self.lane(command.blockchain));
            let are_seen = open.contracts.iter().all(|of| [CONTRACT, OTHER_CONTRACT].contains(of));
            let is_watched = lane.watched.contains(&wallet)
                && are_seen
                && open.contracts.contains(&open.contract);
            holds!(11, is_watched, "opened at {wallet}, which is not watched: {open:?}");
            let (coin, shown) = (open.stablecoin, open.contract);
            let is_stopped = lane.stopped.iter().any(|scope| scope.covers(wallet, coin, shown));
            holds!(14, !is_stopped, "opened at {wallet}, which is stopped: {open:?}");
            holds!(11, !lane.has_gap, "opened while the chain has a gap: {open:?}");
            let (head, limit) = (lane.head, i64::from(open.head_age_max_seconds));
            let issued_at = command.issued_at.seconds();
            let is_fresh = head.is_some_and(|head| issued_at <= head.timestamp.plus(limit));
            holds!(11, is_fresh, "opened at {issued_at} by {head:?}: {open:?}");
        }
        Ok(())
    }

    /// Invariant 10: no two open deposits share an amount. Invariant 8: none expires early, or while a payment for it
    /// waits.
    pub(super) fn check_deposit(&mut self, deposit: &Deposit) -> Result<(), Violation> {
        let id = deposit.deposit_id;
        if let Some(last) = self.deposits.get(&id) {
            // The order accepted a settle after the close: it was marked paid, or accepts late payments.
            let may_be_settled = last.close_reason != Some(CloseReason::Settled);
            let settled = may_be_settled && deposit.close_reason == Some(CloseReason::Settled);
            let was_open = last.state == DepositState::Open;
            let ends = is_replaced(last) && !is_replaced(deposit);
            holds!(10, was_open || ends || settled, "opened or closed again: {deposit:?}");
            let later = last.updated_at < deposit.updated_at;
            holds!(5, later, "the version clock does not grow: {last:?} then {deposit:?}");
        }
        if deposit.state == DepositState::Open {
            self.check_reservation(deposit)?;
            self.note_opening(deposit);
            self.reserved.entry(place(deposit)).or_default().push(id);
            let ended =
                self.transfers.iter().filter(|(_, t)| t.status == TransferStatus::NoMatchedDeposit);
            self.not_for.extend(ended.map(|(payment, _)| (id, *payment)));
        } else {
            let known = self.deposits.contains_key(&id);
            holds!(10, known, "closed and never opened: {deposit:?}");
            if !is_replaced(deposit) {
                let head = self.lane(deposit.blockchain).head;
                let time = head.map_or(deposit.updated_at.seconds(), |head| head.timestamp);
                self.closed.insert(id, time);
            }
        }
        if deposit.close_reason == Some(CloseReason::Expired) {
            let Lane { chain, head, policy, .. } = self.lane(deposit.blockchain);
            let depth = policy.depth_of(deposit.value);
            let confirmed = head.and_then(|head| chain.confirmed(head.hash, depth));
            let passed = confirmed.is_some_and(|(_, time)| time > deposit.expires_at);
            holds!(8, passed, "expired with {confirmed:?} confirmed: {deposit:?}");
            self.expired_by.extend(confirmed.map(|(block, _)| (id, block)));
            let waits = |transfer: &&Transfer| {
                let (confirmation, matching) =
                    (TransferStatus::WaitingForConfirmation, TransferStatus::WaitingForMatch);
                [confirmation, matching].contains(&transfer.status) && self.fits(transfer, deposit)
            };
            let waiting = self.transfers.values().find(waits);
            holds!(8, waiting.is_none(), "{deposit:?} expired before {waiting:?} was settled");
            let order = deposit.order_id;
            let is_anothers = |transfer: &Transfer| !self.may_ask(transfer.transfer_id, order);
            let others = self.transfers.iter().filter(|(_, transfer)| is_anothers(transfer));
            let others: Vec<_> = others.map(|(payment, _)| (id, *payment)).collect();
            self.not_for.extend(others);
        }
        self.deposits.insert(id, deposit.clone());
        Ok(())
    }

    /// Invariant 10: a deposit that opens is as requested, shares its amount with no other that is open or was closed
    /// lately, and claims no payment that was seen before it.
    fn check_reservation(&self, deposit: &Deposit) -> Result<(), Violation> {
        let Some(open) = self.opened.get(&(deposit.order_id, deposit.slot)) else {
            let text = format!("opened and never asked for: {deposit:?}");
            return Err(Violation { invariant: 10, text });
        };
        let raised = deposit.value.parts().checked_sub(open.value.parts());
        let is_asked_for = open.user_address == deposit.user_address
            && raised.is_some_and(|raised| raised <= open.amounts.limit.parts());
        holds!(10, is_asked_for, "{deposit:?} is not what {open:?} asks for");
        let are_offered = open.contracts == deposit.contracts;
        holds!(14, are_offered, "{deposit:?} has other contracts than {open:?} offers");
        let others = self.reserved.get(&place(deposit)).into_iter().flatten();
        let other = others.map(|id| &self.deposits[id]).find(|other| self.keeps(other, deposit));
        holds!(10, other.is_none(), "{other:?} and {deposit:?} share an amount");
        let claimed = self.claimed(deposit);
        holds!(10, claimed.is_none(), "{deposit:?} was given the amount of {claimed:?}");
        Ok(())
    }

    /// Notes the position at which the deposit opened, or that of the order's replaced deposit whose amount it took
    /// over.
    fn note_opening(&mut self, deposit: &Deposit) {
        let above = self.lane(deposit.blockchain).head.map_or(-1, |head| head.number);
        let mut opening = Opening { above, position: self.position };
        for id in self.reserved.get(&place(deposit)).into_iter().flatten() {
            let (other, before) = (&self.deposits[id], self.openings[id]);
            if is_replaced(other) && other.order_id == deposit.order_id {
                opening.above = opening.above.min(before.above);
                opening.position = opening.position.min(before.position);
                self.taken_over.insert(*id);
            }
        }
        self.openings.insert(deposit.deposit_id, opening);
    }

    /// `true` if a transfer in time pays it: it is open, or was replaced and still has its amount.
    pub(super) fn is_awaited(&self, deposit: &Deposit) -> bool {
        let is_taken_over = self.taken_over.contains(&deposit.deposit_id);
        deposit.state == DepositState::Open || (is_replaced(deposit) && !is_taken_over)
    }

    /// `true` if `other` still keeps its amount from `deposit`.
    fn keeps(&self, other: &Deposit, deposit: &Deposit) -> bool {
        let differ = other.user_address.zip(deposit.user_address).is_some_and(|(a, b)| a != b);
        if is_replaced(other) {
            return !differ && self.is_awaited(other) && other.order_id != deposit.order_id;
        }
        let Some(closed_at) = self.closed.get(&other.deposit_id) else { return !differ };
        let released_at = closed_at.plus(self.late_window(other).min(KEPT_SECONDS));
        // The newest time counts: a rewind does not reserve a released amount again.
        !differ && self.lane(deposit.blockchain).time_max < released_at
    }

    fn late_window(&self, deposit: &Deposit) -> i64 {
        let open = self.opened.get(&(deposit.order_id, deposit.slot));
        open.map_or(0, |open| i64::from(open.late_window_seconds))
    }

    /// `true` if it or its order ended unpaid, and it accepts late payments.
    pub(super) fn takes_late(&self, deposit: &Deposit) -> bool {
        use CloseReason::{Expired, OrderCancelled, OrderExpired};
        let over = [Expired, OrderExpired, OrderCancelled].map(Some);
        over.contains(&deposit.close_reason) && self.accepts_late(deposit)
    }

    /// `true` if a closed deposit is in its late window.
    pub(super) fn is_in_late_window(&self, deposit: &Deposit) -> bool {
        let kept = self.late_window(deposit).min(KEPT_SECONDS);
        let time = self.lane(deposit.blockchain).time_max;
        self.closed.get(&deposit.deposit_id).is_some_and(|at| time < at.plus(kept))
    }

    /// A waiting payment, seen before the deposit, that the deposit would match.
    fn claimed(&self, deposit: &Deposit) -> Option<&Transfer> {
        self.transfers.values().find(|transfer| {
            let seen = &transfer.observation;
            let waits = [TransferStatus::WaitingForConfirmation, TransferStatus::WaitingForMatch];
            waits.contains(&transfer.status)
                && !self.is_taken(transfer.transfer_id)
                && !WALLETS.contains(&seen.from_address)
                && (transfer.blockchain, seen.to_address, seen.stablecoin, seen.value)
                    == place(deposit)
                && deposit.contracts.contains(&seen.contract)
                && deposit.user_address.is_none_or(|only| only == seen.from_address)
        })
    }
}
