//! Transfers of a lane, with everything they wait for.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use schemas::record::{Block, Observation};
use schemas::{
    Address, Amount, DepositId, Epoch, FulfillmentId, OrderId, PaymentKey, Stablecoin, TransferId,
    TransferStatus, UnixMicros, UnixSeconds, UnknownReason,
};

use crate::machine::journal::Journal;

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransferRow {
    pub(super) id: TransferId,
    pub(super) updated_at: UnixMicros,
    pub(super) block: Block,
    pub(super) seen: Observation,
    pub(super) created_at: UnixSeconds,
    pub(super) status: TransferStatus,
    pub(super) fulfillment: Option<FulfillmentId>,
    pub(super) order: Option<OrderId>,
    /// While it waits: the deposit it fits. When matched: the one it paid.
    pub(super) deposit: Option<DepositId>,
    pub(super) reason: Option<UnknownReason>,
    pub(super) candidate_order: Option<OrderId>,
    /// Epoch of the current inclusion, or of the retract that ended it.
    pub(super) epoch: Epoch,
    /// Whether its block is still in the chain.
    pub(super) included: bool,
    /// Whether the order was asked and has not answered.
    pub(super) settling: bool,
    /// Chain time at which it stops waiting for a deposit.
    pub(super) match_deadline: Option<UnixSeconds>,
    /// Chain time from which it is forgotten.
    pub(super) forget_at: Option<UnixSeconds>,
}

impl TransferRow {
    pub(super) fn is_confirmed(&self) -> bool {
        match self.status {
            TransferStatus::WaitingForConfirmation | TransferStatus::FailedToConfirm => false,
            TransferStatus::WaitingForMatch
            | TransferStatus::NoMatchedDeposit
            | TransferStatus::Matched => true,
        }
    }

    /// Whether it may still pay something.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(
            self.status,
            TransferStatus::WaitingForConfirmation | TransferStatus::WaitingForMatch
        )
    }

    fn is_loose(&self) -> bool {
        self.is_waiting() && self.deposit.is_none()
    }

    fn is_unconfirmed(&self) -> bool {
        self.status == TransferStatus::WaitingForConfirmation
    }

    fn key(&self) -> (Address, Stablecoin, Amount) {
        (self.seen.to_address, self.seen.token, self.seen.value)
    }

    /// The deadline, while it counts.
    fn deadline(&self) -> Option<UnixSeconds> {
        let waits = self.status == TransferStatus::WaitingForMatch && !self.settling;
        self.match_deadline.filter(|_| waits)
    }
}

/// The rows and what follows from them.
#[derive(Debug, Clone, Default)]
pub(super) struct Transfers {
    rows: Journal<TransferId, TransferRow>,
    by_payment: HashMap<PaymentKey, TransferId>,
    /// In the chain, not confirmed, by height.
    unconfirmed: BTreeSet<(i64, TransferId)>,
    /// Orphaned before confirmation, by the height they had.
    orphaned: BTreeSet<(i64, TransferId)>,
    /// Waiting without a deposit, by what a deposit would have to be.
    loose: BTreeMap<(Address, Stablecoin, Amount), BTreeSet<TransferId>>,
    deadlines: BTreeSet<(UnixSeconds, TransferId)>,
    forget: BTreeSet<(UnixSeconds, TransferId)>,
    /// How many waiting transfers each deposit must not expire before.
    holds: HashMap<DepositId, u32>,
}

impl Transfers {
    pub(super) fn get(&self, id: TransferId) -> Option<&TransferRow> {
        self.rows.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn by_payment(&self, key: &PaymentKey) -> Option<TransferId> {
        self.by_payment.get(key).copied()
    }

    pub(super) fn holds(&self, deposit: DepositId) -> bool {
        self.holds.contains_key(&deposit)
    }

    /// Transfers in the chain up to this height that wait for confirmation.
    pub(super) fn unconfirmed_to(&self, number: i64) -> Vec<TransferId> {
        self.unconfirmed.iter().take_while(|(n, _)| *n <= number).map(|(_, id)| *id).collect()
    }

    /// Orphans whose height is final.
    pub(super) fn orphaned_to(&self, number: i64) -> Vec<TransferId> {
        self.orphaned.iter().take_while(|(n, _)| *n <= number).map(|(_, id)| *id).collect()
    }

    /// Transfers whose wait for a deposit ended before `now`.
    pub(super) fn unmatched_before(&self, now: UnixSeconds) -> Vec<TransferId> {
        self.deadlines.iter().take_while(|(at, _)| *at < now).map(|(_, id)| *id).collect()
    }

    /// Transfers to forget before `now`.
    pub(super) fn forgettable_before(&self, now: UnixSeconds) -> Vec<TransferId> {
        self.forget.iter().take_while(|(at, _)| *at < now).map(|(_, id)| *id).collect()
    }

    /// Waiting transfers that a deposit of exactly this would fit, oldest first.
    pub(super) fn loose(
        &self,
        wallet: Address,
        token: Stablecoin,
        value: Amount,
    ) -> Vec<TransferId> {
        self.loose
            .get(&(wallet, token, value))
            .map_or_else(Vec::new, |ids| ids.iter().copied().collect())
    }

    pub(super) fn set(&mut self, id: TransferId, row: Option<TransferRow>) {
        let old = self.rows.set(id, row);
        if let Some(old) = old {
            self.remove_index(&old);
        }
        if let Some(new) = row {
            self.add_index(&new);
        }
    }

    fn remove_index(&mut self, old: &TransferRow) {
        self.by_payment.remove(&old.seen.payment());
        if old.is_unconfirmed() {
            let place = (old.block.number, old.id);
            if old.included {
                self.unconfirmed.remove(&place)
            } else {
                self.orphaned.remove(&place)
            };
        }
        if old.is_loose() {
            let key = old.key();
            if let Some(ids) = self.loose.get_mut(&key) {
                ids.remove(&old.id);
                if ids.is_empty() {
                    self.loose.remove(&key);
                }
            }
        }
        if let Some(at) = old.deadline() {
            self.deadlines.remove(&(at, old.id));
        }
        if let Some(at) = old.forget_at {
            self.forget.remove(&(at, old.id));
        }
        if let Some(deposit) = old.deposit.filter(|_| old.is_waiting())
            && let Some(count) = self.holds.get_mut(&deposit)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.holds.remove(&deposit);
            }
        }
    }

    fn add_index(&mut self, new: &TransferRow) {
        self.by_payment.insert(new.seen.payment(), new.id);
        if new.is_unconfirmed() {
            let place = (new.block.number, new.id);
            if new.included {
                self.unconfirmed.insert(place)
            } else {
                self.orphaned.insert(place)
            };
        }
        if new.is_loose() {
            self.loose.entry(new.key()).or_default().insert(new.id);
        }
        if let Some(at) = new.deadline() {
            self.deadlines.insert((at, new.id));
        }
        if let Some(at) = new.forget_at {
            self.forget.insert((at, new.id));
        }
        if let Some(deposit) = new.deposit.filter(|_| new.is_waiting()) {
            let count = self.holds.entry(deposit).or_default();
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn touched(&self) -> Vec<TransferId> {
        self.rows.touched()
    }

    pub(super) fn sorted(&self) -> Vec<(&TransferId, &TransferRow)> {
        self.rows.sorted()
    }

    pub(super) fn commit(&mut self) {
        self.rows.commit();
    }

    pub(super) fn undo(&mut self) {
        let before = self.rows.take_before();
        // First all that the step added, then all that it took: a payment has one row at any time.
        for (id, _) in &before {
            self.set(*id, None);
        }
        for (id, row) in before {
            self.set(id, row);
        }
        self.rows.commit();
    }
}
