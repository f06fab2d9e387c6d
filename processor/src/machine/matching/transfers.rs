//! Transfers of a lane, indexed by the event that each waits for.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use schemas::record::{Block, Observation};
use schemas::{
    DepositId, Epoch, FORGET_SECONDS, FulfillmentId, OrderId, PaymentKey, TransferId,
    TransferStatus, UnixMicros, UnixSeconds, UnknownReason,
};

use super::FORGET_ORPHANED_SECONDS;
use super::deposits::Price;
use crate::machine::Broken;
use crate::machine::table::{Index, Lookup, Row, RowNumber, Rows, Table, moved};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransferRow {
    pub(super) id: TransferId,
    pub(super) updated_at: UnixMicros,
    pub(super) block: Block,
    pub(super) seen: Observation,
    pub(super) created_at: UnixSeconds,
    /// The lane's sequence when it was first seen.
    pub(super) listed_at: i64,
    pub(super) status: TransferStatus,
    pub(super) fulfillment: Option<FulfillmentId>,
    /// The order that it paid. Before the match: one that accepted it late, or one that an operator attaches it to.
    pub(super) order: Option<OrderId>,
    /// While it waits: the deposit it fits. When matched: the one it paid; none if attached or accepted late.
    pub(super) deposit: Option<DepositId>,
    pub(super) reason: Option<UnknownReason>,
    /// Order it was most likely meant for, if unknown; before that, the one that had not replied
    /// when it failed.
    pub(super) candidate_order: Option<OrderId>,
    /// Epoch of the current inclusion, or of the retract that ended it.
    pub(super) epoch: Epoch,
    /// Time at which its block left the chain; none while the chain has it.
    pub(super) orphaned_at: Option<UnixSeconds>,
    /// `true` from its orphaning until that is published: the next blocks may include it.
    pub(super) orphan_due: bool,
    /// `true` while a request to its order is in flight.
    pub(super) settling: bool,
    /// `true` if the transfer failed before `candidate_order` replied, or that order is forgotten: the order may still
    /// count on the transfer.
    pub(super) unanswered: bool,
    /// Time of the last attach request to an order. It identifies the request: a refusal of an
    /// earlier one is ignored. Kept after a refusal, as the next request must be newer.
    pub(super) asked_at: Option<UnixMicros>,
    /// Chain time at which it stops waiting for a deposit; while it settles, at which the settle is repeated.
    pub(super) match_deadline: Option<UnixSeconds>,
    /// Minimum chain time until which it is kept.
    pub(super) forget_at: Option<UnixSeconds>,
}

impl Row for TransferRow {
    type Key = TransferId;

    fn key(&self) -> TransferId {
        self.id
    }
}

impl TransferRow {
    /// `true` if its block is in the chain.
    pub(super) fn is_included(&self) -> bool {
        self.orphaned_at.is_none()
    }

    pub(super) fn is_confirmed(&self) -> bool {
        match self.status {
            TransferStatus::WaitingForConfirmation | TransferStatus::FailedToConfirm => false,
            TransferStatus::WaitingForMatch
            | TransferStatus::NoMatchedDeposit
            | TransferStatus::Matched => true,
        }
    }

    /// `true` if it waits for its confirmation or its match.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(
            self.status,
            TransferStatus::WaitingForConfirmation | TransferStatus::WaitingForMatch
        )
    }

    /// `true` if it was forgotten before its retract: its verdict is lost, and the row is never published.
    pub(super) fn is_nameless(&self) -> bool {
        self.status == TransferStatus::NoMatchedDeposit && self.reason.is_none()
    }

    /// `true` if its attach request is in flight.
    pub(super) fn is_attaching(&self) -> bool {
        self.settling && self.status == TransferStatus::NoMatchedDeposit
    }

    fn is_loose(&self) -> bool {
        self.is_waiting()
            && self.deposit.is_none()
            && self.order.is_none()
            && !self.seen.from_own_wallet
    }

    /// `true` if a deposit of this order may get it: it is not from an own wallet and has no order. An order that has
    /// not replied to its settle may count on it, so no other may get it.
    pub(super) fn may_pay(&self, order: OrderId) -> bool {
        !self.seen.from_own_wallet
            && self.order.is_none()
            && self.candidate_order.is_none_or(|asked| asked == order)
    }

    fn is_unconfirmed(&self) -> bool {
        self.status == TransferStatus::WaitingForConfirmation
    }

    pub(super) fn place(&self) -> Place {
        (self.seen.log_index, self.id)
    }

    pub(super) fn price(&self) -> Price {
        (self.seen.to_address, self.seen.stablecoin, self.seen.value)
    }

    /// Chain time from which it is forgotten; none while it waits or its attach is in flight. By then a new report of
    /// its block is stale, and no new payment can get its id.
    fn forget_at(&self) -> Option<UnixSeconds> {
        let counts = self.is_confirmed() || self.order.or(self.candidate_order).is_some();
        let is_long = self.unanswered || (counts && !self.is_included());
        let seconds = if is_long { FORGET_ORPHANED_SECONDS } else { FORGET_SECONDS };
        let waits = self.is_attaching() && self.is_included();
        let forget_at = self.forget_at.filter(|_| !waits);
        let is_given_until = self.id.window_end().plus(FORGET_SECONDS);
        forget_at.map(|at| at.max(self.block.timestamp.plus(seconds)).max(is_given_until))
    }

    fn deadline(&self) -> Option<UnixSeconds> {
        let asks = self.status == TransferStatus::WaitingForMatch || self.is_attaching();
        self.match_deadline.filter(|_| asks)
    }
}

/// Order of transfers at one height or deadline: by log index, then id. Any deterministic order would do.
type Place = (i32, TransferId);
/// An entry of an index by height.
type Height = (i64, Place);

fn unconfirmed(row: &TransferRow) -> Option<Height> {
    (row.is_unconfirmed() && row.is_included()).then_some((row.block.number, row.place()))
}

fn orphaned(row: &TransferRow) -> Option<Height> {
    (row.is_unconfirmed() && !row.is_included()).then_some((row.block.number, row.place()))
}

fn orphan_due(row: &TransferRow) -> Option<Height> {
    row.orphan_due.then_some((row.block.number, row.place()))
}

fn deadline(row: &TransferRow) -> Option<(UnixSeconds, Place)> {
    row.deadline().map(|at| (at, row.place()))
}

fn forget(row: &TransferRow) -> Option<(UnixSeconds, TransferId)> {
    row.forget_at().map(|at| (at, row.id))
}

fn loose(row: &TransferRow) -> Option<Price> {
    row.is_loose().then(|| row.price())
}

fn hold(row: &TransferRow) -> Option<DepositId> {
    row.deposit.filter(|_| row.is_waiting())
}

pub(super) type Transfers = Table<TransferRow, TransferIndex>;

#[derive(Debug, Clone, Default)]
pub(super) struct TransferIndex {
    /// Rows by payment, which is in the row.
    by_payment: Lookup,
    /// In the chain, not confirmed, by height.
    unconfirmed: BTreeSet<Height>,
    /// Orphaned before confirmation, by the height they had.
    orphaned: BTreeSet<Height>,
    /// Orphans that are not published as such yet.
    orphan_due: BTreeSet<Height>,
    /// Waiting without a deposit, by the price a deposit needs.
    loose: BTreeMap<Price, BTreeSet<TransferId>>,
    deadlines: BTreeSet<(UnixSeconds, Place)>,
    forget: BTreeSet<(UnixSeconds, TransferId)>,
    /// Number of waiting transfers of each deposit, which delay its expiry.
    holds: HashMap<DepositId, u32>,
}

impl Index<TransferRow> for TransferIndex {
    const ROW: &'static str = "transfer";
    const INVARIANT: u8 = 1;

    fn update(
        &mut self,
        rows: &Rows<TransferRow>,
        number: RowNumber,
        old: Option<&TransferRow>,
        new: Option<&TransferRow>,
    ) -> Result<(), Broken> {
        let Some(TransferRow { id, .. }) = old.or(new) else { return Ok(()) };
        let agrees =
            moved(&mut self.unconfirmed, old.and_then(unconfirmed), new.and_then(unconfirmed))
                && moved(&mut self.orphaned, old.and_then(orphaned), new.and_then(orphaned))
                && moved(&mut self.orphan_due, old.and_then(orphan_due), new.and_then(orphan_due))
                && moved(&mut self.deadlines, old.and_then(deadline), new.and_then(deadline))
                && moved(&mut self.forget, old.and_then(forget), new.and_then(forget))
                && self.move_loose(*id, old.and_then(loose), new.and_then(loose))
                && self.move_hold(old.and_then(hold), new.and_then(hold));
        invariant!(1, agrees, "an index does not have transfer {id} as it was");
        match (old, new) {
            (None, Some(new)) => self.add_payment(rows, number, new),
            (Some(old), None) => self.remove_payment(number, old),
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
        rows: &Rows<TransferRow>,
        number: RowNumber,
        row: &TransferRow,
    ) -> Result<(), Broken> {
        let (id, payment) = (row.id, row.seen.payment());
        let added = self.by_payment.insert(&payment, number, pays(rows, &payment));
        let other = added.err().and_then(|other| rows.get(other)).map(|other| other.id);
        invariant!(2, added.is_ok(), "transfers {other:?} and {id} are the same payment");
        Ok(())
    }

    fn remove_payment(&mut self, number: RowNumber, row: &TransferRow) -> Result<(), Broken> {
        let was_there = self.by_payment.remove(&row.seen.payment(), number);
        invariant!(2, was_there, "transfer {} is not known by its payment", row.id);
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
    pub(super) fn by_payment(&self, key: &PaymentKey) -> Option<&TransferRow> {
        self.rows.get(self.index.by_payment.find(key, pays(&self.rows, key))?)
    }

    /// `true` if a transfer that fits this deposit is waiting: the deposit neither expires nor
    /// releases its amount.
    pub(super) fn holds(&self, deposit: DepositId) -> bool {
        self.index.holds.contains_key(&deposit)
    }

    /// Transfers in the chain up to this height that wait for confirmation.
    pub(super) fn unconfirmed_to(&self, number: i64) -> Vec<TransferId> {
        to_height(&self.index.unconfirmed, number)
    }

    /// Transfers in blocks of the chain above this height, in any status.
    pub(super) fn included_above(&self, number: i64) -> Vec<TransferId> {
        let is_above = |row: &&&TransferRow| row.is_included() && row.block.number > number;
        self.sorted().iter().filter(is_above).map(|row| row.id).collect()
    }

    /// The unconfirmed transfer in the lowest block.
    pub(super) fn oldest_unconfirmed(&self) -> Option<TransferId> {
        self.index.unconfirmed.first().map(|(_, (_, id))| *id)
    }

    /// Transfers orphaned before confirmation, up to this height.
    pub(super) fn orphaned_to(&self, number: i64) -> Vec<TransferId> {
        to_height(&self.index.orphaned, number)
    }

    /// Unpublished orphans up to this height.
    pub(super) fn orphan_due_to(&self, number: i64) -> Vec<TransferId> {
        to_height(&self.index.orphan_due, number)
    }

    /// Transfers whose wait for a deposit, or for the reply of an order, ended before `now`.
    pub(super) fn unmatched_before(&self, now: UnixSeconds) -> Vec<TransferId> {
        before(&self.index.deadlines, now).map(|(_, id)| id).collect()
    }

    /// Transfers to forget before `now`.
    pub(super) fn forgettable_before(&self, now: UnixSeconds) -> Vec<TransferId> {
        before(&self.index.forget, now).collect()
    }

    /// Waiting transfers of this price without a deposit.
    pub(super) fn loose(&self, price: Price) -> Vec<TransferId> {
        self.index.loose.get(&price).map_or_else(Vec::new, |ids| ids.iter().copied().collect())
    }
}

/// Returns a test for the row of this payment.
fn pays(rows: &Rows<TransferRow>, payment: &PaymentKey) -> impl Fn(RowNumber) -> bool {
    move |number| rows.get(number).is_some_and(|row| row.seen.payment() == *payment)
}

fn to_height(index: &BTreeSet<Height>, number: i64) -> Vec<TransferId> {
    index.iter().take_while(|(at, _)| *at <= number).map(|(_, (_, id))| *id).collect()
}

fn before<T: Copy>(
    index: &BTreeSet<(UnixSeconds, T)>,
    now: UnixSeconds,
) -> impl Iterator<Item = T> {
    index.iter().take_while(move |(at, _)| *at < now).map(|(_, of)| *of)
}
