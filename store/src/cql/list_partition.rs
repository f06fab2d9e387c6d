//! Partitions of lists: by the columns of filters, by time and by shard. Pure.

use schemas::record::{Deposit, Order, Transfer};
use schemas::{
    Address, Blockchain, OrderCause, OrderId, OrderStatus, Stablecoin, TransferId, TransferStatus,
    UnixSeconds,
};

pub(super) use crate::row::is_waiting;

/// Number of partitions over which the orders of one day are spread, in the list of all orders and in that of each
/// final status. Part of the tables' form, like all numbers here: a change needs a migration.
const ORDER_SHARDS: u128 = 8;
/// Number of partitions over which the transfers of one wallet, chain, stablecoin and day are
/// spread.
const TRANSFER_SHARDS: i64 = 2;
/// Number of partitions over which the rows of one minute are spread in a list that rows leave.
const LIVE_SHARDS: i64 = 4;
const MINUTE_SECONDS: i64 = 60;
const DAY_SECONDS: i64 = 86_400;
/// Name of the list of orders in the directory (`list_partitions`). No wallet has this name, nor one of those below.
pub(super) const ORDERS: &str = "orders";
/// Name of the list of orders by reference.
pub(super) const REFERENCES: &str = "references";
/// Name of the list of open deposits.
pub(super) const DEPOSITS: &str = "deposits";
/// The stage of the rows of a list that stay, whatever their status.
pub(super) const ALL: &str = "all";
/// The stage of the rows of a list that will leave it.
pub(super) const LIVE: &str = "live";

/// Time span of one bucket of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    Minute,
    Day,
    ThirtyDays,
}

impl Span {
    const fn seconds(self) -> i64 {
        match self {
            Self::Minute => MINUTE_SECONDS,
            Self::Day => DAY_SECONDS,
            Self::ThirtyDays => 30 * DAY_SECONDS,
        }
    }

    /// The bucket that a time lies in.
    pub(super) fn bucket(self, at: UnixSeconds) -> i32 {
        let bucket = at.0.div_euclid(self.seconds());
        // Only times thousands of years away are clamped, so that every time has a bucket.
        i32::try_from(bucket).unwrap_or(if bucket < 0 { i32::MIN } else { i32::MAX })
    }

    /// The first second of a bucket: no row of a later bucket is older.
    pub(super) fn start(self, bucket: i32) -> i64 {
        if bucket == i32::MIN { i64::MIN } else { i64::from(bucket) * self.seconds() }
    }
}

/// A partition of a list, as in the directory. Columns outside a list's key are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ListPartition {
    pub(super) list: String,
    pub(super) stage: String,
    pub(super) bucket: i32,
    pub(super) blockchain: String,
    pub(super) stablecoin: String,
    pub(super) shard: i32,
}

impl ListPartition {
    /// Partition of any order, in `orders_by_day`.
    pub(super) fn of_order(order: &Order) -> Self {
        Self {
            list: ORDERS.to_owned(),
            stage: ALL.to_owned(),
            bucket: Span::Day.bucket(order.created_at),
            shard: order_shard(order.order_id),
            ..Self::default()
        }
    }

    /// Partition of an order of a status, in `orders_pending` or `orders_ended`.
    pub(super) fn of_status(order: &Order, status: OrderStatus) -> Self {
        match status {
            OrderStatus::Pending => {
                let low = (order.order_id.0.as_u128() & 0xffff_ffff) as i64;
                Self::live(ORDERS.to_owned(), order.created_at, low)
            }
            OrderStatus::Paid | OrderStatus::Expired | OrderStatus::Cancelled => {
                Self { stage: status.as_str().to_owned(), ..Self::of_order(order) }
            }
        }
    }

    /// Directory entry of an order by reference: one for all references of a bucket.
    pub(super) fn of_reference(order: &Order) -> Self {
        Self {
            list: REFERENCES.to_owned(),
            stage: ALL.to_owned(),
            bucket: Span::ThirtyDays.bucket(order.created_at),
            ..Self::default()
        }
    }

    /// Partition of an open deposit, in `deposits_open`.
    pub(super) fn of_deposit(deposit: &Deposit) -> Self {
        Self::live(DEPOSITS.to_owned(), deposit.started_at, deposit.deposit_id.0)
    }

    /// Partition of any transfer, in `transfers_by_day`.
    pub(super) fn of_transfer(transfer: &Transfer) -> Self {
        Self {
            list: wallet(transfer.observation.to_address),
            stage: ALL.to_owned(),
            bucket: Span::Day.bucket(transfer.created_at),
            blockchain: transfer.blockchain.as_str().to_owned(),
            stablecoin: transfer.observation.stablecoin.as_str().to_owned(),
            shard: transfer_shard(transfer.transfer_id),
        }
    }

    /// Partition of a transfer that ended with this status, in `transfers_ended`.
    pub(super) fn of_ended(transfer: &Transfer, status: TransferStatus) -> Self {
        Self { stage: status.as_str().to_owned(), ..Self::of_transfer(transfer) }
    }

    /// Partition of a transfer that waits, in `transfers_waiting`.
    pub(super) fn of_waiting(transfer: &Transfer) -> Self {
        let list = wallet(transfer.observation.to_address);
        Self::live(list, transfer.created_at, transfer.transfer_id.0)
    }

    fn live(list: String, at: UnixSeconds, number: i64) -> Self {
        let (bucket, shard) = (Span::Minute.bucket(at), live_shard(number));
        Self { list, stage: LIVE.to_owned(), bucket, shard, ..Self::default() }
    }

    /// `true` if a list with these filters may have rows here.
    pub(super) fn is_of(
        &self,
        blockchain: Option<Blockchain>,
        stablecoin: Option<Stablecoin>,
    ) -> bool {
        self.stage == LIVE
            || blockchain.is_none_or(|chain| self.blockchain == chain.as_str())
                && stablecoin.is_none_or(|stablecoin| self.stablecoin == stablecoin.as_str())
    }
}

/// Statuses that an order may have had before this version. It leaves `pending` once, and changes a
/// final status only to `paid`: by an operator, or by a late payment. Later versions do not show that
/// change: if only they are written, readers delete the outdated entries.
pub(super) fn statuses_left(order: &Order) -> &'static [OrderStatus] {
    let had_ended = order.paid_by.is_none()
        || matches!(order.cause, OrderCause::PaidLate | OrderCause::Attached);
    match order.status {
        OrderStatus::Pending => &[],
        OrderStatus::Paid if had_ended => {
            &[OrderStatus::Pending, OrderStatus::Expired, OrderStatus::Cancelled]
        }
        OrderStatus::Paid | OrderStatus::Expired | OrderStatus::Cancelled => {
            &[OrderStatus::Pending]
        }
    }
}

/// Final status that a transfer may have had before this one: that of an unknown transfer, if it is
/// matched without a deposit, by an operator or by an order that accepted it late. A failed transfer
/// may be mined again too; readers delete its old entry.
pub(super) fn ends_left(transfer: &Transfer) -> Option<TransferStatus> {
    let was_unknown = transfer.status == TransferStatus::Matched && transfer.deposit_id.is_none();
    was_unknown.then_some(TransferStatus::NoMatchedDeposit)
}

fn order_shard(id: OrderId) -> i32 {
    (id.0.as_u128() % ORDER_SHARDS) as i32
}

fn transfer_shard(id: TransferId) -> i32 {
    id.0.rem_euclid(TRANSFER_SHARDS) as i32
}

/// The shard of a row that will leave its list.
pub(super) fn live_shard(number: i64) -> i32 {
    number.rem_euclid(LIVE_SHARDS) as i32
}

/// A wallet as the tables name it.
pub(super) fn wallet(address: Address) -> String {
    address.to_string()
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_that_starts_before() {
        for span in [Span::Minute, Span::Day, Span::ThirtyDays] {
            for at in [0, 1, 59, 60, 86_399, 86_400, -1, -86_400, -86_401, 1_790_000_000] {
                let bucket = span.bucket(UnixSeconds(at));
                assert!(span.start(bucket) <= at, "{span:?} {at}");
                assert!(at < span.start(bucket + 1), "{span:?} {at}");
            }
            // Times beyond any calendar have a bucket too, in order.
            assert_eq!(span.bucket(UnixSeconds(i64::MAX)), i32::MAX);
            assert_eq!(span.bucket(UnixSeconds(i64::MIN)), i32::MIN);
            assert_eq!(span.start(i32::MIN), i64::MIN);
        }
        assert_eq!(Span::Minute.bucket(UnixSeconds(60)), 1);
        assert_eq!(Span::Day.bucket(UnixSeconds(86_400)), 1);
        assert_eq!(Span::ThirtyDays.bucket(UnixSeconds(30 * 86_400 - 1)), 0);
    }

    #[test]
    fn order_leaves_its_former_partitions_never_its_own() {
        use OrderStatus::{Cancelled, Expired, Paid, Pending};
        let at = |status, paid_by| Order { status, paid_by, ..example::order() };
        let by = |cause| Order { cause, ..at(Paid, Some(TransferId(7))) };
        let payer = Some(TransferId(7));
        for (order, left) in [
            (at(Pending, None), &[][..]),
            (at(Expired, None), &[Pending]),
            (at(Cancelled, None), &[Pending]),
            (at(Paid, payer), &[Pending]),
            (at(Paid, None), &[Pending, Expired, Cancelled]),
            (by(OrderCause::PaidLate), &[Pending, Expired, Cancelled]),
            (by(OrderCause::Attached), &[Pending, Expired, Cancelled]),
        ] {
            assert_eq!(statuses_left(&order), left, "{order:?}");
            let own = ListPartition::of_status(&order, order.status);
            assert!(left.iter().all(|status| ListPartition::of_status(&order, *status) != own));
            assert_eq!(own.stage == LIVE, order.status == Pending);
        }
    }

    #[test]
    fn transfer_without_deposit_was_listed_as_unknown() {
        let attached = Transfer { deposit_id: None, ..example::transfer() };
        assert_eq!(ends_left(&attached), Some(TransferStatus::NoMatchedDeposit));
        assert_eq!(ends_left(&example::transfer()), None);
        for status in TransferStatus::ALL.iter().filter(|of| **of != TransferStatus::Matched) {
            assert_eq!(ends_left(&Transfer { status: *status, ..attached.clone() }), None);
        }
    }

    #[test]
    fn only_transfers_that_wait_are_live() {
        for status in TransferStatus::ALL {
            let word = status.as_str();
            assert_eq!(is_waiting(*status), word.starts_with("waiting"), "{word}");
            // No status has the name of another stage.
            assert!(word != LIVE && word != ALL);
        }
        assert_eq!(ListPartition::of_waiting(&example::transfer()).stage, LIVE);
    }

    #[test]
    fn a_filter_reads_its_partitions_only() {
        let partition = ListPartition::of_transfer(&example::transfer());
        let (chain, stablecoin) =
            (example::transfer().blockchain, example::transfer().observation.stablecoin);
        assert!(partition.is_of(None, None));
        assert!(partition.is_of(Some(chain), Some(stablecoin)));
        let other = Blockchain::ALL.iter().find(|one| **one != chain).copied();
        assert!(!partition.is_of(other, None));
        // The rows of a minute are of every chain: they are filtered.
        assert!(ListPartition::of_waiting(&example::transfer()).is_of(other, None));
        let other = Stablecoin::ALL.iter().find(|one| **one != stablecoin).copied();
        assert!(!partition.is_of(None, other));
    }
}
