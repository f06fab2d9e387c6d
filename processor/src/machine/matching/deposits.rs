//! Deposits of a lane, with their reservations and deadlines.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use schemas::{
    Address, Amount, CloseReason, DepositId, DepositState, OrderId, Stablecoin, UnixMicros,
    UnixSeconds,
};

use crate::machine::journal::Journal;

/// One deposit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DepositRow {
    pub(super) order: OrderId,
    pub(super) slot: i32,
    pub(super) stablecoin: Stablecoin,
    pub(super) wallet: Address,
    pub(super) user_address: Option<Address>,
    pub(super) value: Amount,
    pub(super) started_at: UnixSeconds,
    pub(super) expires_at: UnixSeconds,
    pub(super) updated_at: UnixMicros,
    pub(super) skew_seconds: u32,
    pub(super) late_window_seconds: u32,
    pub(super) closed: Option<Closed>,
}

/// How a deposit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) reason: CloseReason,
    /// Chain time until which the amount stays reserved.
    pub(super) release_at: UnixSeconds,
}

impl DepositRow {
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    pub(super) fn state(&self) -> DepositState {
        if self.is_open() { DepositState::Open } else { DepositState::Closed }
    }

    /// What its reservation and its name follow from; fixed once it is open.
    fn place(&self) -> (Address, Stablecoin, Amount, OrderId, i32) {
        (self.wallet, self.stablecoin, self.value, self.order, self.slot)
    }

    /// The chain time at which something is due: expiry while open, release once closed.
    fn due_at(&self) -> UnixSeconds {
        self.closed.map_or(self.expires_at, |closed| closed.release_at)
    }
}

/// The rows and what follows from them.
#[derive(Debug, Clone, Default)]
pub(super) struct Deposits {
    rows: Journal<DepositId, DepositRow>,
    /// Reservations, open and late, ordered by amount: one deposit each.
    reserved: HashMap<(Address, Stablecoin), BTreeMap<Amount, DepositId>>,
    /// By order and slot, which are in the row: with a million open deposits a second copy is felt.
    by_slot: HashTable<DepositId>,
    hasher: DefaultHashBuilder,
    /// By the second at which something is due. Entries are not taken out when a row moves on: whoever
    /// reads them checks them against the row.
    due: BTreeMap<UnixSeconds, Vec<DepositId>>,
}

impl Deposits {
    pub(super) fn get(&self, id: DepositId) -> Option<&DepositRow> {
        self.rows.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn by_slot(&self, order: OrderId, slot: i32) -> Option<DepositId> {
        let same = |id: &DepositId| {
            self.rows.get(id).is_some_and(|row| (row.order, row.slot) == (order, slot))
        };
        self.by_slot.find(self.hasher.hash_one((order, slot)), same).copied()
    }

    /// The deposit that holds exactly this amount.
    pub(super) fn reserved_by(
        &self,
        wallet: Address,
        stablecoin: Stablecoin,
        value: Amount,
    ) -> Option<(DepositId, &DepositRow)> {
        let id = *self.reserved.get(&(wallet, stablecoin))?.get(&value)?;
        Some((id, self.rows.get(&id)?))
    }

    /// The deposit of this kind at this wallet for this stablecoin with the nearest amount; the lower one of
    /// two.
    pub(super) fn nearest(
        &self,
        wallet: Address,
        stablecoin: Stablecoin,
        value: Amount,
        is: &dyn Fn(&DepositRow) -> bool,
    ) -> Option<&DepositRow> {
        let amounts = self.reserved.get(&(wallet, stablecoin))?;
        let find = |(_, id): (&Amount, &DepositId)| self.rows.get(id).filter(|row| is(row));
        let below = amounts.range(..value).rev().take(NEAREST_SCAN_MAX).find_map(find);
        let above = amounts.range(value..).take(NEAREST_SCAN_MAX).find_map(find);
        let distance = |row: &&DepositRow| row.value.parts().abs_diff(value.parts());
        [below, above].into_iter().flatten().min_by_key(distance)
    }

    /// The least free amount that is `value` or some steps above it, within the limit.
    pub(super) fn free_amount(
        &self,
        wallet: Address,
        stablecoin: Stablecoin,
        value: Amount,
        step: Amount,
        limit: Amount,
    ) -> Option<Amount> {
        let last = value.checked_add(limit)?;
        let mut candidate = value;
        let taken = self.reserved.get(&(wallet, stablecoin));
        for amount in taken.into_iter().flat_map(|amounts| amounts.range(value..=last)) {
            if *amount.0 == candidate {
                if step == Amount::ZERO {
                    return None;
                }
                candidate = candidate.checked_add(step)?;
            } else if *amount.0 > candidate {
                break;
            }
        }
        (candidate <= last).then_some(candidate)
    }

    /// The deposits whose time is before `now`, in order.
    pub(super) fn due_before(&mut self, now: UnixSeconds) -> Vec<DepositId> {
        let rows = &self.rows;
        let (mut all, mut passed) = (Vec::new(), Vec::new());
        for (at, ids) in self.due.range_mut(..now) {
            ids.retain(|id| rows.get(id).is_some_and(|row| row.due_at() == *at));
            ids.sort_unstable();
            ids.dedup();
            all.extend_from_slice(ids);
            if ids.is_empty() {
                passed.push(*at);
            }
        }
        for at in passed {
            self.due.remove(&at);
        }
        all
    }

    pub(super) fn set(&mut self, id: DepositId, row: Option<DepositRow>) {
        let old = self.rows.set(id, row);
        self.reindex(id, old.as_ref(), row.as_ref());
    }

    fn reindex(&mut self, id: DepositId, old: Option<&DepositRow>, new: Option<&DepositRow>) {
        if let Some(at) =
            new.map(DepositRow::due_at).filter(|at| old.is_none_or(|o| o.due_at() != *at))
        {
            self.due.entry(at).or_default().push(id);
        }
        if old.map(DepositRow::place) == new.map(DepositRow::place) {
            return; // Most changes close a deposit, which keeps its place.
        }
        if let Some(old) = old {
            if let Some(amounts) = self.reserved.get_mut(&(old.wallet, old.stablecoin)) {
                amounts.remove(&old.value);
                if amounts.is_empty() {
                    self.reserved.remove(&(old.wallet, old.stablecoin));
                }
            }
            let hash = self.hasher.hash_one((old.order, old.slot));
            if let Ok(entry) = self.by_slot.find_entry(hash, |other| *other == id) {
                entry.remove();
            }
        }
        if let Some(new) = new {
            let amounts = self.reserved.entry((new.wallet, new.stablecoin)).or_default();
            let other = amounts.insert(new.value, id);
            debug_assert!(other.is_none(), "invariant 10: one reservation for an amount");
            let (rows, hasher) = (&self.rows, &self.hasher);
            let hash_of = |row: &DepositRow| hasher.hash_one((row.order, row.slot));
            let rehash = |id: &DepositId| rows.get(id).map_or(0, hash_of);
            self.by_slot.insert_unique(hash_of(new), id, rehash);
        }
    }

    pub(super) fn touched(&self) -> Vec<DepositId> {
        self.rows.touched()
    }

    pub(super) fn sorted(&self) -> Vec<(&DepositId, &DepositRow)> {
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

/// How many neighbours are looked at on each side for the nearest deposit: only a hint depends on it.
const NEAREST_SCAN_MAX: usize = 64;
