//! Deposits of a lane, with their reservations and deadlines.

mod contract_lists;
mod likely;
mod wallet_coins;

use std::collections::BTreeMap;

use schemas::{
    Address, Amount, CloseReason, DepositId, DepositState, OrderId, Stablecoin, UnixMicros,
    UnixSeconds,
};

use crate::machine::Broken;
use crate::machine::table::{Index, Lookup, Row, RowNumber, Rows, Table};
use contract_lists::ContractLists;
pub(super) use contract_lists::ContractsNumber;
pub(super) use likely::Likeliest;
use wallet_coins::{WalletCoin, WalletCoinNumber, WalletCoins};

/// One deposit, as used in decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DepositRow {
    pub(super) id: DepositId,
    pub(super) order: OrderId,
    pub(super) slot: i32,
    pub(super) stablecoin: Stablecoin,
    /// The contracts of the coin that pay it.
    pub(super) contracts: ContractsNumber,
    pub(super) wallet: Address,
    pub(super) user_address: Option<Address>,
    pub(super) value: Amount,
    pub(super) started_at: UnixSeconds,
    pub(super) expires_at: UnixSeconds,
    pub(super) updated_at: UnixMicros,
    pub(super) opening: Opening,
    pub(super) late_window_seconds: u32,
    pub(super) accepts_late: bool,
    pub(super) closed: Option<Closed>,
}

/// Position of the lane when a deposit opened. Transfers before it are older than the deposit, whatever the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opening {
    /// Height of its head; after a rewind below it, height of the rewind's head, as the blocks that replace the old
    /// ones are younger.
    pub(super) above: i64,
    /// Sequence of the lane: transfers seen before have a lower one.
    pub(super) position: i64,
}

impl Opening {
    /// The earlier of two, for a deposit that takes over an amount.
    pub(super) fn earlier(self, other: Self) -> Self {
        Self { above: self.above.min(other.above), position: self.position.min(other.position) }
    }
}

/// End of a deposit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) reason: CloseReason,
    /// Chain time until which the amount stays reserved, if not reused before. For a replaced deposit its deadline.
    pub(super) release_at: UnixSeconds,
}

/// Wallet, coin and amount that a transfer needs to pay a deposit.
pub(super) type Price = (Address, Stablecoin, Amount);

/// Holder of a reservation that a deposit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Nobody,
    One(DepositRow),
    /// Deposits limited to one sender each.
    Named,
}

impl DepositRow {
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// `true` if its customer has since chosen another way to pay.
    pub(super) fn is_replaced(&self) -> bool {
        self.closed.is_some_and(|closed| closed.reason == CloseReason::Replaced)
    }

    /// `true` if its order waits for it; after a replacement, until its chain has passed its
    /// deadline.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_open() || self.is_replaced()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.closed.is_some_and(|closed| closed.reason == CloseReason::Settled)
    }

    /// `true` if its order ended without it.
    pub(super) fn is_order_over(&self) -> bool {
        self.closed.is_some_and(|closed| match closed.reason {
            CloseReason::OrderPaid | CloseReason::OrderCancelled | CloseReason::OrderExpired => {
                true
            }
            CloseReason::Settled | CloseReason::Expired | CloseReason::Replaced => false,
        })
    }

    /// `true` if a transfer may pay it: while open or replaced, and after it or its order has ended
    /// unpaid if the shop accepts late payments.
    pub(super) fn takes(&self) -> bool {
        self.closed.is_none_or(|closed| match closed.reason {
            CloseReason::Replaced => true,
            CloseReason::Expired | CloseReason::OrderExpired | CloseReason::OrderCancelled => {
                self.accepts_late
            }
            CloseReason::Settled | CloseReason::OrderPaid => false,
        })
    }

    /// The chain time at which it ended; none while its order waits for it.
    pub(super) fn closed_at(&self) -> Option<UnixSeconds> {
        self.closed
            .filter(|_| !self.is_awaited())
            .map(|closed| closed.release_at.plus(-i64::from(self.late_window_seconds)))
    }

    pub(super) fn state(&self) -> DepositState {
        if self.is_open() { DepositState::Open } else { DepositState::Closed }
    }

    pub(super) fn price(&self) -> Price {
        (self.wallet, self.stablecoin, self.value)
    }
}

/// One deposit in memory, packed as there may be a million: wallet and coin are a number, rare fields are boxed, and an
/// amount is bytes, as a `u128` would align the row to 16.
#[derive(Debug, Clone)]
struct KeptDeposit {
    id: DepositId,
    order: OrderId,
    value: [u8; 16],
    started_at: UnixSeconds,
    expires_at: UnixSeconds,
    updated_at: UnixMicros,
    /// Chain time of the next event: expiry while its order waits for it, release after that.
    due_at: UnixSeconds,
    user_address: Option<Box<Address>>,
    opening: Opening,
    wallet_coin: WalletCoinNumber,
    contracts: ContractsNumber,
    slot: i32,
    late_window_seconds: u32,
    accepts_late: bool,
    close_reason: Option<CloseReason>,
}

impl Row for KeptDeposit {
    type Key = DepositId;

    fn key(&self) -> DepositId {
        self.id
    }
}

impl KeptDeposit {
    fn new(row: &DepositRow, wallet_coin: WalletCoinNumber) -> Self {
        Self {
            id: row.id,
            order: row.order,
            value: row.value.parts().to_ne_bytes(),
            started_at: row.started_at,
            expires_at: row.expires_at,
            updated_at: row.updated_at,
            due_at: row.closed.map_or(row.expires_at, |closed| closed.release_at),
            user_address: row.user_address.map(Box::new),
            wallet_coin,
            contracts: row.contracts,
            slot: row.slot,
            opening: row.opening,
            late_window_seconds: row.late_window_seconds,
            accepts_late: row.accepts_late,
            close_reason: row.closed.map(|closed| closed.reason),
        }
    }

    fn sender(&self) -> Option<Address> {
        self.user_address.as_deref().copied()
    }

    fn value(&self) -> Amount {
        Amount::from_parts(u128::from_ne_bytes(self.value)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Deposits(Table<KeptDeposit, DepositIndex>);

#[derive(Debug, Clone, Default)]
struct DepositIndex {
    wallet_coins: WalletCoins,
    contract_lists: ContractLists,
    /// Reservations, open and late, by price and sender: one deposit each.
    by_price: Lookup,
    by_slot: Lookup,
    /// By due time. An entry stays when the due time of its row changes, so readers compare it with
    /// the row.
    due: BTreeMap<UnixSeconds, Vec<RowNumber>>,
}

impl Index<KeptDeposit> for DepositIndex {
    const ROW: &'static str = "deposit";
    const INVARIANT: u8 = 10;

    fn update(
        &mut self,
        rows: &Rows<KeptDeposit>,
        number: RowNumber,
        old: Option<&KeptDeposit>,
        new: Option<&KeptDeposit>,
    ) -> Result<(), Broken> {
        if let Some(new) = new
            && old.is_none_or(|old| old.due_at != new.due_at)
        {
            self.due.entry(new.due_at).or_default().push(number);
        }
        match (old, new) {
            (None, Some(new)) => self.reserve(rows, number, new),
            (Some(old), None) => self.release(number, old),
            (Some(old), Some(new)) => {
                let same = |row: &KeptDeposit| {
                    (row.wallet_coin, row.value, row.sender(), row.contracts, row.order, row.slot)
                };
                let id = new.id;
                invariant!(10, same(old) == same(new), "deposit {id} changed what it reserves");
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn step_over(&mut self) {
        self.wallet_coins.step_over();
    }
}

impl DepositIndex {
    fn reserve(
        &mut self,
        rows: &Rows<KeptDeposit>,
        number: RowNumber,
        row: &KeptDeposit,
    ) -> Result<(), Broken> {
        let (id, value) = (row.id, row.value());
        let WalletCoin { wallet, stablecoin, .. } = *self.wallet_coins.get(row.wallet_coin);
        let (price, sender) = ((wallet, stablecoin, value), row.sender());
        let is_same = reserves(rows, &self.wallet_coins, price, sender);
        let is_new = self.by_price.insert(&(price, sender), number, is_same).is_ok();
        let is_free = is_new && self.wallet_coins.reserve(row.wallet_coin, value, sender, number);
        let what = || format!("{value} {stablecoin} from {sender:?} at {wallet}");
        invariant!(10, is_free, "deposit {id} is not the only one that reserves {}", what());
        let of = (row.order, row.slot);
        let known = self.by_slot.insert(&of, number, is_for(rows, of));
        invariant!(10, known.is_ok(), "deposit {id} is not the only one for its order and slot");
        Ok(())
    }

    fn release(&mut self, number: RowNumber, row: &KeptDeposit) -> Result<(), Broken> {
        let (id, value) = (row.id, row.value());
        let WalletCoin { wallet, stablecoin, .. } = *self.wallet_coins.get(row.wallet_coin);
        let sender = row.sender();
        let reserved = self.by_price.remove(&((wallet, stablecoin, value), sender), number)
            && self.wallet_coins.release(row.wallet_coin, value, sender, number);
        invariant!(10, reserved, "deposit {id} does not reserve {value} {stablecoin} at {wallet}");
        let known = self.by_slot.remove(&(row.order, row.slot), number);
        invariant!(10, known, "deposit {id} is not known by its order");
        Ok(())
    }
}

/// Returns a test for rows that reserve this price from this sender, or from any.
fn reserves<'a>(
    rows: &'a Rows<KeptDeposit>,
    wallet_coins: &'a WalletCoins,
    (wallet, stablecoin, value): Price,
    sender: Option<Address>,
) -> impl Fn(RowNumber) -> bool + 'a {
    let value = value.parts().to_ne_bytes();
    move |number| {
        rows.get(number).filter(|row| row.value == value).is_some_and(|row| {
            let at = wallet_coins.get(row.wallet_coin);
            (at.wallet, at.stablecoin, row.sender()) == (wallet, stablecoin, sender)
        })
    }
}

/// Returns a test for rows of this order and slot.
fn is_for(rows: &Rows<KeptDeposit>, of: (OrderId, i32)) -> impl Fn(RowNumber) -> bool {
    move |number| rows.get(number).is_some_and(|row| (row.order, row.slot) == of)
}

impl Deposits {
    fn row(&self, kept: &KeptDeposit) -> DepositRow {
        let at = self.0.index.wallet_coins.get(kept.wallet_coin);
        let closed = |reason| Closed { reason, release_at: kept.due_at };
        DepositRow {
            id: kept.id,
            order: kept.order,
            slot: kept.slot,
            stablecoin: at.stablecoin,
            contracts: kept.contracts,
            wallet: at.wallet,
            user_address: kept.sender(),
            value: kept.value(),
            started_at: kept.started_at,
            expires_at: kept.expires_at,
            updated_at: kept.updated_at,
            opening: kept.opening,
            late_window_seconds: kept.late_window_seconds,
            accepts_late: kept.accepts_late,
            closed: kept.close_reason.map(closed),
        }
    }

    fn numbered(&self, number: RowNumber) -> Option<DepositRow> {
        self.0.rows.get(number).map(|kept| self.row(kept))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The deposit that a transfer or a deadline names: it must exist.
    pub(super) fn named(&self, id: DepositId) -> Result<DepositRow, Broken> {
        self.0.named(id).map(|kept| self.row(kept))
    }

    /// The contracts that pay a deposit.
    pub(super) fn contracts(&self, row: &DepositRow) -> &[Address] {
        self.0.index.contract_lists.get(row.contracts)
    }

    /// Number by which rows refer to a list of contracts.
    pub(super) fn contracts_number(
        &mut self,
        contracts: &[Address],
    ) -> Result<ContractsNumber, Broken> {
        let number = self.0.index.contract_lists.number(contracts);
        number.ok_or_else(|| Broken::new(2, "there are too many lists of contracts".to_owned()))
    }

    /// Adds a deposit or replaces it.
    pub(super) fn put(&mut self, row: DepositRow) -> Result<(), Broken> {
        let number = self.0.index.wallet_coins.number(row.wallet, row.stablecoin);
        let number = number.ok_or_else(|| {
            Broken::new(10, format!("deposit {} is at one wallet too many", row.id))
        })?;
        self.0.put(KeptDeposit::new(&row, number))
    }

    pub(super) fn remove(&mut self, id: DepositId) -> Result<(), Broken> {
        self.0.remove(id)
    }

    pub(super) fn touched(&self) -> impl Iterator<Item = (DepositId, Option<DepositRow>)> {
        self.0.touched().map(|(id, kept)| (id, kept.map(|kept| self.row(kept))))
    }

    pub(super) fn commit(&mut self) {
        self.0.commit();
    }

    pub(super) fn undo(&mut self) -> Result<(), Broken> {
        self.0.undo()
    }

    pub(super) fn sorted(&self) -> Vec<DepositRow> {
        self.0.sorted().into_iter().map(|kept| self.row(kept)).collect()
    }

    pub(super) fn by_slot(&self, order: OrderId, slot: i32) -> Option<DepositRow> {
        let of = (order, slot);
        self.numbered(self.0.index.by_slot.find(&of, is_for(&self.0.rows, of))?)
    }

    fn reserving(&self, price: Price, sender: Option<Address>) -> Option<DepositRow> {
        let DepositIndex { by_price, wallet_coins, .. } = &self.0.index;
        let same = reserves(&self.0.rows, wallet_coins, price, sender);
        self.numbered(by_price.find(&(price, sender), same)?)
    }

    /// Deposit that reserves exactly this amount, from this sender or from any.
    pub(super) fn reserved_by(&self, price: Price, from: Address) -> Option<DepositRow> {
        self.reserving(price, None).or_else(|| self.reserving(price, Some(from)))
    }

    /// A deposit that reserves exactly this amount from one sender only.
    pub(super) fn reserved_by_another(
        &self,
        (wallet, stablecoin, value): Price,
    ) -> Option<DepositRow> {
        let at = self.0.index.wallet_coins.find(wallet, stablecoin)?;
        at.named_at(value).next().and_then(|number| self.numbered(number))
    }

    /// Holder of a reservation that keeps a deposit from reserving this price.
    pub(super) fn holder(&self, price: Price, sender: Option<Address>) -> Holder {
        let one = self
            .reserving(price, None)
            .or_else(|| sender.and_then(|sender| self.reserving(price, Some(sender))));
        match one {
            Some(row) => Holder::One(row),
            None if sender.is_none() && self.reserved_by_another(price).is_some() => Holder::Named,
            None => Holder::Nobody,
        }
    }

    /// The deposits that opened at a head above this height.
    pub(super) fn opened_above(&self, number: i64) -> Vec<DepositRow> {
        let above = self.0.filtered(|kept| kept.opening.above > number);
        above.into_iter().map(|kept| self.row(kept)).collect()
    }

    /// Deposits due before `now`, by due time and id.
    pub(super) fn due_before(&mut self, now: UnixSeconds) -> Vec<DepositId> {
        let (rows, due) = (&self.0.rows, &mut self.0.index.due);
        let (mut all, mut passed) = (Vec::new(), Vec::new());
        for (at, numbers) in due.range_mut(..now) {
            let due = |number: &RowNumber| rows.get(*number).filter(|row| row.due_at == *at);
            numbers.retain(|number| due(number).is_some());
            numbers.sort_unstable_by_key(|number| due(number).map(|row| row.id));
            numbers.dedup();
            all.extend(numbers.iter().filter_map(due).map(|row| row.id));
            if numbers.is_empty() {
                passed.push(*at);
            }
        }
        for at in passed {
            due.remove(&at);
        }
        all
    }
}
