//! Deposits of a lane, with their reservations and deadlines.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use schemas::{
    Address, Amount, CloseReason, DepositId, DepositState, OrderId, Stablecoin, UnixMicros,
    UnixSeconds,
};

use crate::machine::Broken;
use crate::machine::table::{Index, Table};

/// How many neighbours on each side are searched for the nearest deposit: only a hint depends on it.
const NEAREST_SCAN_MAX: usize = 64;

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

/// What a transfer has to carry to pay a deposit.
pub(super) type Price = (Address, Stablecoin, Amount);

impl DepositRow {
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    pub(super) fn state(&self) -> DepositState {
        if self.is_open() { DepositState::Open } else { DepositState::Closed }
    }

    pub(super) fn price(&self) -> Price {
        (self.wallet, self.stablecoin, self.value)
    }

    /// The chain time at which something is due: expiry while open, release once closed.
    fn due_at(&self) -> UnixSeconds {
        self.closed.map_or(self.expires_at, |closed| closed.release_at)
    }
}

pub(super) type Deposits = Table<DepositId, DepositRow, DepositIndex>;

#[derive(Debug, Clone, Default)]
pub(super) struct DepositIndex {
    /// Reservations, open and late, ordered by amount: one deposit each.
    reserved: HashMap<(Address, Stablecoin), BTreeMap<Amount, DepositId>>,
    /// By order and slot, which are in the row: with a million open deposits a second copy is felt.
    by_slot: HashTable<DepositId>,
    hasher: DefaultHashBuilder,
    /// By the second at which something is due. An entry stays when its row moves on, so a reader
    /// compares it with the row.
    due: BTreeMap<UnixSeconds, Vec<DepositId>>,
}

impl Index<DepositId, DepositRow> for DepositIndex {
    const ROW: &'static str = "deposit";
    const INVARIANT: u8 = 10;

    fn update(
        &mut self,
        rows: &HashMap<DepositId, DepositRow>,
        id: DepositId,
        old: Option<&DepositRow>,
        new: Option<&DepositRow>,
    ) -> Result<(), Broken> {
        if let Some(new) = new
            && old.is_none_or(|old| old.due_at() != new.due_at())
        {
            self.due.entry(new.due_at()).or_default().push(id);
        }
        match (old, new) {
            (None, Some(new)) => self.reserve(rows, id, new),
            (Some(old), None) => self.release(id, old),
            (Some(old), Some(new)) => {
                let same = |row: &DepositRow| (row.price(), row.order, row.slot);
                invariant!(10, same(old) == same(new), "deposit {id} changed what it reserves");
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }
}

impl DepositIndex {
    fn reserve(
        &mut self,
        rows: &HashMap<DepositId, DepositRow>,
        id: DepositId,
        row: &DepositRow,
    ) -> Result<(), Broken> {
        let amounts = self.reserved.entry((row.wallet, row.stablecoin)).or_default();
        if let Some(other) = amounts.insert(row.value, id) {
            let (value, stablecoin, wallet) = (row.value, row.stablecoin, row.wallet);
            let what =
                format!("deposits {other} and {id} both reserve {value} {stablecoin} at {wallet}");
            return Err(Broken::new(10, what));
        }
        let hash_of = |row: &DepositRow| self.hasher.hash_one((row.order, row.slot));
        let rehash = |id: &DepositId| rows.get(id).map_or(0, hash_of);
        self.by_slot.insert_unique(hash_of(row), id, rehash);
        Ok(())
    }

    fn release(&mut self, id: DepositId, row: &DepositRow) -> Result<(), Broken> {
        let of_wallet = (row.wallet, row.stablecoin);
        let amounts = self.reserved.entry(of_wallet).or_default();
        let reserved = amounts.remove(&row.value);
        invariant!(10, reserved == Some(id), "deposit {id} is not reserved, {reserved:?} is");
        if amounts.is_empty() {
            self.reserved.remove(&of_wallet);
        }
        let hash = self.hasher.hash_one((row.order, row.slot));
        match self.by_slot.find_entry(hash, |other| *other == id) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => {
                return Err(Broken::new(10, format!("deposit {id} is not known by its order")));
            }
        }
        Ok(())
    }
}

impl Deposits {
    pub(super) fn by_slot(&self, order: OrderId, slot: i32) -> Option<DepositId> {
        let same = |id: &DepositId| {
            self.rows.get(id).is_some_and(|row| (row.order, row.slot) == (order, slot))
        };
        let index = &self.index;
        index.by_slot.find(index.hasher.hash_one((order, slot)), same).copied()
    }

    /// The deposit that holds exactly this amount.
    pub(super) fn reserved_by(
        &self,
        (wallet, stablecoin, value): Price,
    ) -> Result<Option<(DepositId, &DepositRow)>, Broken> {
        let amounts = self.index.reserved.get(&(wallet, stablecoin));
        let Some(id) = amounts.and_then(|amounts| amounts.get(&value)) else { return Ok(None) };
        Ok(Some((*id, self.named(*id)?)))
    }

    /// The deposit of this kind at this wallet for this coin whose amount is nearest; the lower one of
    /// two.
    pub(super) fn nearest(
        &self,
        (wallet, stablecoin, value): Price,
        is: &dyn Fn(&DepositRow) -> bool,
    ) -> Option<&DepositRow> {
        let amounts = self.index.reserved.get(&(wallet, stablecoin))?;
        let find = |(_, id): (&Amount, &DepositId)| self.rows.get(id).filter(|row| is(row));
        let below = amounts.range(..value).rev().take(NEAREST_SCAN_MAX).find_map(find);
        let above = amounts.range(value..).take(NEAREST_SCAN_MAX).find_map(find);
        let distance = |row: &&DepositRow| row.value.parts().abs_diff(value.parts());
        [below, above].into_iter().flatten().min_by_key(distance)
    }

    /// The least free amount that is `value` or some steps above it, within the limit.
    pub(super) fn free_amount(
        &self,
        (wallet, stablecoin, value): Price,
        step: Amount,
        limit: Amount,
    ) -> Option<Amount> {
        let last = value.checked_add(limit)?;
        let mut candidate = value;
        let taken = self.index.reserved.get(&(wallet, stablecoin));
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
        let (rows, due) = (&self.rows, &mut self.index.due);
        let (mut all, mut passed) = (Vec::new(), Vec::new());
        for (at, ids) in due.range_mut(..now) {
            ids.retain(|id| rows.get(id).is_some_and(|row| row.due_at() == *at));
            ids.sort_unstable();
            ids.dedup();
            all.extend_from_slice(ids);
            if ids.is_empty() {
                passed.push(*at);
            }
        }
        for at in passed {
            due.remove(&at);
        }
        all
    }
}
