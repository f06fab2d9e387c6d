//! Transfers of a lane, with everything they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use schemas::record::{Block, Observation};
use schemas::{
    Address, Amount, DepositId, Epoch, FulfillmentId, OrderId, PaymentKey, Stablecoin, TransferId,
    TransferStatus, UnixMicros, UnixSeconds, UnknownReason,
};

use crate::machine::journal::{Journal, move_entry};

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

    fn key(&self) -> LooseKey {
        (self.seen.to_address, self.seen.stablecoin, self.seen.value)
    }

    /// The deadline, while it counts.
    fn deadline(&self) -> Option<UnixSeconds> {
        let waits = self.status == TransferStatus::WaitingForMatch && !self.settling;
        self.match_deadline.filter(|_| waits)
    }
}

/// What a deposit would have to be to fit a transfer.
type LooseKey = (Address, Stablecoin, Amount);

/// A place in an index by height.
type Height = (i64, TransferId);

fn unconfirmed(row: &TransferRow) -> Option<Height> {
    (row.is_unconfirmed() && row.included).then_some((row.block.number, row.id))
}

fn orphaned(row: &TransferRow) -> Option<Height> {
    (row.is_unconfirmed() && !row.included).then_some((row.block.number, row.id))
}

fn deadline(row: &TransferRow) -> Option<(UnixSeconds, TransferId)> {
    row.deadline().map(|at| (at, row.id))
}

fn forget(row: &TransferRow) -> Option<(UnixSeconds, TransferId)> {
    row.forget_at.map(|at| (at, row.id))
}

/// The rows and what follows from them.
#[derive(Debug, Clone, Default)]
pub(super) struct Transfers {
    rows: Journal<TransferId, TransferRow>,
    /// By payment, which is in the row.
    by_payment: HashTable<TransferId>,
    hasher: DefaultHashBuilder,
    /// In the chain, not confirmed, by height.
    unconfirmed: BTreeSet<(i64, TransferId)>,
    /// Orphaned before confirmation, by the height they had.
    orphaned: BTreeSet<(i64, TransferId)>,
    /// Waiting without a deposit, by what a deposit would have to be.
    loose: BTreeMap<LooseKey, BTreeSet<TransferId>>,
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
        let same =
            |id: &TransferId| self.rows.get(id).is_some_and(|row| row.seen.payment() == *key);
        self.by_payment.find(self.hasher.hash_one(*key), same).copied()
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
        stablecoin: Stablecoin,
        value: Amount,
    ) -> Vec<TransferId> {
        self.loose
            .get(&(wallet, stablecoin, value))
            .map_or_else(Vec::new, |ids| ids.iter().copied().collect())
    }

    pub(super) fn set(&mut self, id: TransferId, row: Option<TransferRow>) {
        let old = self.rows.set(id, row);
        let (old, new) = (old.as_ref(), row.as_ref());
        move_entry(&mut self.unconfirmed, old.and_then(unconfirmed), new.and_then(unconfirmed));
        move_entry(&mut self.orphaned, old.and_then(orphaned), new.and_then(orphaned));
        move_entry(&mut self.deadlines, old.and_then(deadline), new.and_then(deadline));
        move_entry(&mut self.forget, old.and_then(forget), new.and_then(forget));
        let loose = |row: &TransferRow| row.is_loose().then(|| row.key());
        self.move_loose(id, old.and_then(loose), new.and_then(loose));
        let hold = |row: &TransferRow| row.deposit.filter(|_| row.is_waiting());
        self.move_hold(old.and_then(hold), new.and_then(hold));
        self.name(id, old, new);
    }

    /// Keeps the index of payments. A row's payment never changes.
    fn name(&mut self, id: TransferId, old: Option<&TransferRow>, new: Option<&TransferRow>) {
        match (old, new) {
            (Some(old), None) => {
                let hash = self.hasher.hash_one(old.seen.payment());
                if let Ok(entry) = self.by_payment.find_entry(hash, |other| *other == id) {
                    entry.remove();
                }
            }
            (None, Some(new)) => {
                let (rows, hasher) = (&self.rows, &self.hasher);
                let hash_of = |row: &TransferRow| hasher.hash_one(row.seen.payment());
                let rehash = |id: &TransferId| rows.get(id).map_or(0, hash_of);
                self.by_payment.insert_unique(hash_of(new), id, rehash);
            }
            _ => {}
        }
    }

    fn move_loose(&mut self, id: TransferId, from: Option<LooseKey>, to: Option<LooseKey>) {
        if from == to {
            return;
        }
        if let Some(key) = from
            && let Some(ids) = self.loose.get_mut(&key)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.loose.remove(&key);
            }
        }
        if let Some(key) = to {
            self.loose.entry(key).or_default().insert(id);
        }
    }

    fn move_hold(&mut self, from: Option<DepositId>, to: Option<DepositId>) {
        if from == to {
            return;
        }
        if let Some(deposit) = from
            && let Some(count) = self.holds.get_mut(&deposit)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.holds.remove(&deposit);
            }
        }
        if let Some(deposit) = to {
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
        for (id, row) in self.rows.way_back() {
            self.set(id, row);
        }
        self.rows.commit();
    }
}
