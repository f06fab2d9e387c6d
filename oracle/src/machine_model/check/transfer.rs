//! Checks of transfers (status changes, depth, reasons) and of settles.

use processor::machine::matching::TransferStage;
use schemas::record::{Deposit, OrderCommand, OrderCommandBody, Transfer};
use schemas::{CloseReason, DepositState, OrderStatus, TransferStatus, UnknownReason};

use super::answer::KNOWN_SECONDS;
use crate::machine_model::chain::WALLETS;
use crate::machine_model::ledger::{Lane, Ledger};
use crate::machine_model::violation::{Violation, holds};

impl Ledger<'_> {
    pub(super) fn check_transfer(
        &mut self,
        stage: TransferStage,
        transfer: &Transfer,
    ) -> Result<(), Violation> {
        let payment = transfer.observation.payment();
        let named = *self.payments.entry(transfer.transfer_id).or_insert(payment);
        self.listed.entry(transfer.transfer_id).or_insert(self.position);
        holds!(2, named == payment, "one id for {named:?} and {payment:?}");
        let last = self.transfers.get(&payment);
        let paid = self.settled.get(&payment);
        // A transfer that has paid stays matched, whatever block it is in.
        let is_another = |paid: &&Transfer| {
            paid.transfer_id != transfer.transfer_id || transfer.status != TransferStatus::Matched
        };
        let paid = paid.filter(is_another);
        let again = paid.filter(|paid| !self.is_forgotten(paid));
        holds!(13, again.is_none(), "{again:?} has paid, and is new as {transfer:?}");
        let is_new = last.is_some_and(|last| {
            last.transfer_id != transfer.transfer_id && self.is_forgotten(last)
        });
        if is_new {
            self.confirmed.remove(&payment);
        }
        let last = last.filter(|_| !is_new);
        if let Some(last) = last {
            holds!(2, last.transfer_id == transfer.transfer_id, "two ids for {payment:?}");
            let later = last.updated_at < transfer.updated_at;
            holds!(5, later, "the version clock does not grow: {last:?} then {transfer:?}");
        }
        let before = last.map(|last| last.status);
        let allowed = self.is_allowed(stage, before, transfer);
        holds!(1, allowed, "{before:?} became {} by {stage:?}: {transfer:?}", transfer.status);
        match stage {
            TransferStage::Detected => {
                if transfer.status == TransferStatus::WaitingForConfirmation {
                    self.ended_at.remove(&transfer.transfer_id);
                }
            }
            TransferStage::Failed => {
                self.note_end(transfer);
                let asked = self.asked.remove(&transfer.transfer_id);
                let counted_on = asked.filter(|_| before == Some(TransferStatus::WaitingForMatch));
                self.counted_on.extend(counted_on.map(|(order, _)| (transfer.transfer_id, order)));
            }
            TransferStage::Confirmed => {
                holds!(3, transfer.blockchain_confirmed, "confirmed and not: {transfer:?}");
                self.confirmed.insert(payment);
            }
            TransferStage::Matched => self.check_matched(transfer, before)?,
            TransferStage::Unknown => {
                self.note_end(transfer);
                self.ended_in.insert(payment, transfer.block.hash);
                self.check_counted_on(transfer)?;
                let reason = self.is_true_reason(transfer);
                holds!(1, reason, "unknown without a true reason: {transfer:?}");
                let has_none = transfer.order_id.is_none() && transfer.fulfillment_id.is_none();
                holds!(2, has_none, "unknown, and yet of an order: {transfer:?}");
            }
        }
        self.transfers.insert(payment, transfer.clone());
        if transfer.status == TransferStatus::Matched {
            self.settled.insert(payment, transfer.clone());
        }
        Ok(())
    }

    /// Invariant 1: allowed changes of status. Matched and unknown are final, reached once, after confirmed. Exceptions
    /// for an unknown transfer: an operator attaches it, or an order that counted on it accepts it late.
    fn is_allowed(
        &self,
        stage: TransferStage,
        before: Option<TransferStatus>,
        transfer: &Transfer,
    ) -> bool {
        use TransferStatus::{
            FailedToConfirm, Matched, NoMatchedDeposit, WaitingForConfirmation, WaitingForMatch,
        };
        let is_gone = self.included.get(&transfer.observation.payment()) == Some(&None);
        match (stage, before, transfer.status) {
            (
                TransferStage::Detected,
                None | Some(WaitingForConfirmation | FailedToConfirm),
                WaitingForConfirmation,
            )
            | (TransferStage::Confirmed, None | Some(WaitingForConfirmation), WaitingForMatch)
            | (TransferStage::Matched, Some(WaitingForMatch), Matched)
            | (TransferStage::Unknown, Some(WaitingForMatch), NoMatchedDeposit) => true,
            (TransferStage::Matched, Some(NoMatchedDeposit), Matched) => {
                let id = transfer.transfer_id;
                let counted_on = self.counted_on.get(&id).copied().filter(|_| self.is_taken(id));
                let by = [self.attaching.get(&id).copied(), counted_on];
                transfer.order_id.is_some() && by.contains(&transfer.order_id)
            }
            // It paid nothing, and its block left the chain: it waits for confirmation again.
            (TransferStage::Detected, Some(WaitingForMatch), WaitingForConfirmation) => is_gone,
            (TransferStage::Failed, Some(WaitingForConfirmation), FailedToConfirm) => is_gone,
            // It left the chain, its settle has no reply, and its block is over a day old.
            (TransferStage::Failed, Some(WaitingForMatch), FailedToConfirm) => {
                is_gone && self.waits_in_vain(transfer)
            }
            // It was included in another block: its status stays.
            (
                TransferStage::Detected,
                Some(WaitingForMatch | Matched | NoMatchedDeposit),
                status,
            ) => before == Some(status),
            _ => false,
        }
    }

    /// `true` if the transfer's last settle has no reply and its block is over a day old.
    fn waits_in_vain(&self, transfer: &Transfer) -> bool {
        let id = transfer.transfer_id;
        let Lane { chain, head, .. } = self.lane(transfer.blockchain);
        let mined_at = chain.time_of(transfer.block.hash);
        let is_old =
            mined_at.zip(*head).is_some_and(|(at, head)| at.plus(KNOWN_SECONDS) < head.timestamp);
        let asked = self.asked.get(&id);
        is_old && asked.is_some_and(|(order, _)| !self.answered.contains(&(id, *order)))
    }

    fn note_end(&mut self, transfer: &Transfer) {
        let at = self
            .lane(transfer.blockchain)
            .head
            .map_or(transfer.updated_at.seconds(), |head| head.timestamp);
        self.ended_at.insert(transfer.transfer_id, at);
    }

    /// Invariant 3: a confirmed transfer is on the chain of the head that confirmed it, as deep as
    /// its amount needs, and not held by that head.
    pub(super) fn check_depth(&self, transfer: &Transfer) -> Result<(), Violation> {
        let Lane { chain, head, held, policy, .. } = self.lane(transfer.blockchain);
        let place = (transfer.block.hash, transfer.observation.payment());
        holds!(3, !held.contains(&place), "confirmed while {head:?} holds it: {transfer:?}");
        let depth = policy.depth_of(transfer.observation.value);
        let confirmations =
            head.and_then(|head| chain.confirmations(transfer.block.hash, head.hash));
        holds!(
            3,
            confirmations.is_some_and(|count| count >= depth),
            "confirmed with {confirmations:?} of {depth} blocks at {head:?}: {transfer:?}"
        );
        Ok(())
    }

    /// Invariant 2: one transfer pays one order: that of its settle, by the deposit that it fits.
    fn check_matched(
        &mut self,
        transfer: &Transfer,
        before: Option<TransferStatus>,
    ) -> Result<(), Violation> {
        let id = transfer.transfer_id;
        let pays = transfer.order_id.zip(transfer.deposit_id);
        let asked = self.asked.get(&id).copied();
        // If the order replied after the transfer had failed, the deposit may be forgotten.
        let counted_on = self.counted_on.get(&id).copied().filter(|_| self.is_taken(id));
        let is_late = transfer.deposit_id.is_none() && counted_on.is_some();
        // `is_allowed` has checked the order. Such a match has no deposit.
        let was_unknown = before == Some(TransferStatus::NoMatchedDeposit);
        let is_asked = match is_late {
            _ if was_unknown => transfer.deposit_id.is_none(),
            true => transfer.order_id == counted_on,
            false => pays.is_some() && pays == asked,
        };
        holds!(2, is_asked, "asked {asked:?}, counted on by {counted_on:?}: {transfer:?}");
        holds!(2, transfer.fulfillment_id.is_some(), "no fulfillment: {transfer:?}");
        if let Some(order) = transfer.order_id {
            let other = self.matched.insert(order, id);
            holds!(2, other.is_none(), "order {order} is paid by {other:?} and {id}");
            let paid_by = self.orders.get(&order).and_then(|order| order.paid_by);
            holds!(2, paid_by == Some(id), "{order} is paid by {paid_by:?}, not by {id}");
        }
        Ok(())
    }

    /// `true` if the reason of the rejection holds now. No deposit that the transfer fits may be waiting, unless its
    /// order refused, or the reason is a stop.
    fn is_true_reason(&self, transfer: &Transfer) -> bool {
        let seen = &transfer.observation;
        let time = transfer.block.timestamp;
        let at_wallet = |d: &&Deposit| {
            d.blockchain == transfer.blockchain
                && d.wallet_address == seen.to_address
                && d.stablecoin == seen.stablecoin
        };
        let same_amount = |d: &&Deposit| at_wallet(d) && d.value == seen.value;
        let is_open = |d: &Deposit| d.state == DepositState::Open;
        let status = |d: &Deposit| self.orders.get(&d.order_id).map(|order| order.status);
        let was = |d: &Deposit, status| self.statuses.contains(&(d.order_id, status));
        let is_true = |d: &Deposit, reason| match reason {
            UnknownReason::SenderMismatch => d.user_address.is_some_and(|a| a != seen.from_address),
            UnknownReason::BeforeDeposit => self.is_before(transfer, d),
            UnknownReason::Late => {
                let expired = d.close_reason == Some(CloseReason::Expired);
                let is_over = was(d, OrderStatus::Expired) || time > d.expires_at || expired;
                // An order that accepts late payments refuses one only if it was forgotten.
                self.left.contains(&d.order_id) || (is_over && !self.accepts_late(d))
            }
            UnknownReason::AlreadyPaid => was(d, OrderStatus::Paid),
            UnknownReason::OrderCancelled => was(d, OrderStatus::Cancelled),
            UnknownReason::NoDeposit
            | UnknownReason::AmountMismatch
            | UnknownReason::OwnWallet
            | UnknownReason::OtherContract
            | UnknownReason::Stopped => false,
        };
        let waits = |d: &Deposit| match status(d) {
            Some(OrderStatus::Pending) => self.is_awaited(d) && self.fits(transfer, d),
            // Until the late window ends: then the amount may be reassigned. A forgotten order refuses.
            Some(OrderStatus::Expired | OrderStatus::Cancelled) => {
                let is_kept = self.is_in_late_window(d) && !self.left.contains(&d.order_id);
                self.takes_late(d) && self.fits(transfer, d) && is_kept
            }
            Some(OrderStatus::Paid) | None => false,
        };
        let mut deposits = self.deposits.values();
        let wanted = deposits.clone().any(waits);
        if transfer.reason == Some(UnknownReason::Stopped) {
            return self.is_stopped(transfer);
        }
        !wanted
            && match transfer.reason {
                None => false,
                Some(UnknownReason::OwnWallet) => WALLETS.contains(&seen.from_address),
                Some(UnknownReason::NoDeposit) => !deposits.any(|d| at_wallet(&d) && is_open(d)),
                Some(UnknownReason::AmountMismatch) => deposits.any(|d| at_wallet(&d)),
                Some(UnknownReason::OtherContract) => {
                    deposits.any(|d| at_wallet(&d) && !self.takes_contract(d, seen.contract))
                }
                // The order that counts on the transfer may have forgotten its deposit.
                Some(UnknownReason::Late) if self.is_counted_on(transfer.transfer_id) => true,
                Some(reason) => deposits.filter(same_amount).any(|d| is_true(d, reason)),
            }
    }

    /// Invariants of a settle. 3: its transfer is on the chain. 2: the transfer fits the deposit now. 14: it is of a
    /// contract that the deposit was offered with, and is not stopped.
    pub(super) fn check_settle(&mut self, command: &OrderCommand) -> Result<(), Violation> {
        let OrderCommandBody::Settle(settle) = &command.body else { return Ok(()) };
        let payment = self.payments.get(&settle.transfer_id);
        let block = payment.and_then(|payment| self.included.get(payment).copied().flatten());
        holds!(3, block.is_some(), "{settle:?} asks to pay, and is in no block");
        let transfer = payment.and_then(|payment| self.transfers.get(payment));
        let deposit = self.deposits.get(&settle.deposit_id);
        let is_offered = transfer.zip(deposit).is_none_or(|(transfer, deposit)| {
            self.takes_contract(deposit, transfer.observation.contract)
        });
        holds!(14, is_offered, "{transfer:?} is of no contract of {deposit:?}");
        let is_stopped = transfer.is_some_and(|transfer| self.is_stopped(transfer));
        holds!(14, !is_stopped, "asks to pay, and is stopped: {transfer:?}");
        // A settle without a reply is repeated. Meanwhile the transfer may have moved to a block with another time.
        let question = (command.order_id, settle.deposit_id);
        let asked_before = self.asked.get(&settle.transfer_id) == Some(&question)
            && !self.answered.contains(&(settle.transfer_id, command.order_id));
        let fits = transfer.zip(deposit).is_some_and(|(transfer, deposit)| {
            transfer.status == TransferStatus::WaitingForMatch
                && (deposit.order_id, deposit.slot) == (command.order_id, settle.slot)
                && (self.fits(transfer, deposit) || asked_before)
        });
        holds!(2, fits, "{transfer:?} does not fit {deposit:?}");
        self.asked.insert(settle.transfer_id, question);
        self.answered.remove(&(settle.transfer_id, command.order_id));
        Ok(())
    }
}
