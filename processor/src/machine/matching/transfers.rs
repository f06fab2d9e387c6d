//! Transfers of a lane, with everything they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use schemas::record::{Block, Observation};
use schemas::{
    DepositId, Epoch, FulfillmentId, OrderId, PaymentKey, TransferId, TransferStatus, UnixMicros,
    UnixSeconds, UnknownReason,
};

use super::deposits::Price;
use crate::machine::Broken;
use crate::machine::table::{Index, Table, moved};

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

    pub(super) fn price(&self) -> Price {
        (self.seen.to_address, self.seen.stablecoin, self.seen.value)
    }

    fn deadline(&self) -> Option<UnixSeconds> {
        let waits = self.status == TransferStatus::WaitingForMatch && !self.settling;
        self.match_deadline.filter(|_| waits)
    }
}

/// An entry of an index by height.
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

fn loose(row: &TransferRow) -> Option<Price> {
    row.is_loose().then(|| row.price())
}

fn hold(row: &TransferRow) -> Option<DepositId> {
    row.deposit.filter(|_| row.is_waiting())
}

pub(super) type Transfers = Table<TransferId, TransferRow, TransferIndex>;

#[derive(Debug, Clone, Default)]
pub(super) struct TransferIndex {
    /// By payment, which is in the row.
    by_payment: HashTable<TransferId>,
    hasher: DefaultHashBuilder,
    /// In the chain, not confirmed, by height.
    unconfirmed: BTreeSet<Height>,
    /// Orphaned before confirmation, by the height they had.
    orphaned: BTreeSet<Height>,
    /// Waiting without a deposit, by what a deposit would have to be.
    loose: BTreeMap<Price, BTreeSet<TransferId>>,
    deadlines: BTreeSet<(UnixSeconds, TransferId)>,
    forget: BTreeSet<(UnixSeconds, TransferId)>,
    /// How many waiting transfers each deposit must not expire before.
    holds: HashMap<DepositId, u32>,
}

impl Index<TransferId, TransferRow> for TransferIndex {
    const ROW: &'static str = "transfer";
    const INVARIANT: u8 = 1;

    fn update(
        &mut self,
        rows: &HashMap<TransferId, TransferRow>,
        id: TransferId,
        old: Option<&TransferRow>,
        new: Option<&TransferRow>,
    ) -> Result<(), Broken> {
        let agrees =
            moved(&mut self.unconfirmed, old.and_then(unconfirmed), new.and_then(unconfirmed))
                && moved(&mut self.orphaned, old.and_then(orphaned), new.and_then(orphaned))
                && moved(&mut self.deadlines, old.and_then(deadline), new.and_then(deadline))
                && moved(&mut self.forget, old.and_then(forget), new.and_then(forget))
                && self.move_loose(id, old.and_then(loose), new.and_then(loose))
                && self.move_hold(old.and_then(hold), new.and_then(hold));
        invariant!(1, agrees, "an index does not have transfer {id} as it was");
        match (old, new) {
            (None, Some(new)) => self.add_payment(rows, id, new),
            (Some(old), None) => self.remove_payment(id, old),
            (Some(old), Some(new)) => {
                let same = old.seen.payment() == new.seen.payment();
                invariant!(2, same, "transfer {id} became another payment");
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }
}

impl TransferIndex {
    fn add_payment(
        &mut self,
        rows: &HashMap<TransferId, TransferRow>,
        id: TransferId,
        row: &TransferRow,
    ) -> Result<(), Broken> {
        let payment = row.seen.payment();
        let hash_of = |row: &TransferRow| self.hasher.hash_one(row.seen.payment());
        let same = |id: &TransferId| rows.get(id).is_some_and(|row| row.seen.payment() == payment);
        let other = self.by_payment.find(hash_of(row), same);
        invariant!(2, other.is_none(), "transfers {other:?} and {id} are the same payment");
        let rehash = |id: &TransferId| rows.get(id).map_or(0, hash_of);
        self.by_payment.insert_unique(hash_of(row), id, rehash);
        Ok(())
    }

    fn remove_payment(&mut self, id: TransferId, row: &TransferRow) -> Result<(), Broken> {
        let hash = self.hasher.hash_one(row.seen.payment());
        match self.by_payment.find_entry(hash, |other| *other == id) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => {
                return Err(Broken::new(2, format!("transfer {id} is not known by its payment")));
            }
        }
        Ok(())
    }

    fn move_loose(&mut self, id: TransferId, from: Option<Price>, to: Option<Price>) -> bool {
        if from == to {
            return true;
        }
        let left = from.is_none_or(|price| {
            let ids = self.loose.entry(price).or_default();
            let left = ids.remove(&id);
            if ids.is_empty() {
                self.loose.remove(&price);
            }
            left
        });
        left && to.is_none_or(|price| self.loose.entry(price).or_default().insert(id))
    }

    fn move_hold(&mut self, from: Option<DepositId>, to: Option<DepositId>) -> bool {
        if from == to {
            return true;
        }
        if let Some(deposit) = from {
            match self.holds.get_mut(&deposit) {
                None => return false,
                Some(1) => drop(self.holds.remove(&deposit)),
                Some(count) => *count = count.saturating_sub(1),
            }
        }
        if let Some(deposit) = to {
            let count = self.holds.entry(deposit).or_default();
            *count = count.saturating_add(1);
        }
        true
    }
}

impl Transfers {
    pub(super) fn by_payment(&self, key: &PaymentKey) -> Option<TransferId> {
        let same =
            |id: &TransferId| self.rows.get(id).is_some_and(|row| row.seen.payment() == *key);
        let index = &self.index;
        index.by_payment.find(index.hasher.hash_one(*key), same).copied()
    }

    /// Whether a transfer that fits this deposit waits: it neither expires nor gives its amount away.
    pub(super) fn holds(&self, deposit: DepositId) -> bool {
        self.index.holds.contains_key(&deposit)
    }

    /// Transfers in the chain up to this height that wait for confirmation.
    pub(super) fn unconfirmed_to(&self, number: i64) -> Vec<TransferId> {
        to_height(&self.index.unconfirmed, number)
    }

    /// Orphans whose height is final.
    pub(super) fn orphaned_to(&self, number: i64) -> Vec<TransferId> {
        to_height(&self.index.orphaned, number)
    }

    /// Transfers whose wait for a deposit ended before `now`.
    pub(super) fn unmatched_before(&self, now: UnixSeconds) -> Vec<TransferId> {
        before(&self.index.deadlines, now)
    }

    /// Transfers to forget before `now`.
    pub(super) fn forgettable_before(&self, now: UnixSeconds) -> Vec<TransferId> {
        before(&self.index.forget, now)
    }

    /// Waiting transfers that a deposit of exactly this would fit, oldest first.
    pub(super) fn loose(&self, price: Price) -> Vec<TransferId> {
        self.index.loose.get(&price).map_or_else(Vec::new, |ids| ids.iter().copied().collect())
    }
}

fn to_height(index: &BTreeSet<Height>, number: i64) -> Vec<TransferId> {
    index.iter().take_while(|(at, _)| *at <= number).map(|(_, id)| *id).collect()
}

fn before(index: &BTreeSet<(UnixSeconds, TransferId)>, now: UnixSeconds) -> Vec<TransferId> {
    index.iter().take_while(|(at, _)| *at < now).map(|(_, id)| *id).collect()
}
