//! Where the rows of lists are: partitions by what filters ask for, by time and by shard. Pure.

use schemas::record::{Order, Transfer};
use schemas::{
    Address, Blockchain, DepositId, OrderId, OrderStatus, Stablecoin, TransferId, TransferStatus,
    UnixSeconds,
};
use scylla::value::CqlValue;

/// The bucket of rows that will still move. Later than every day: lists are newest first.
pub(super) const LIVE: i32 = i32::MAX;
/// Partitions that the orders of one status and day are spread over. Part of the tables' form, like
/// all numbers here: another value is another migration.
const ORDER_SHARDS: u128 = 16;
/// Partitions that open deposits are spread over.
pub(super) const DEPOSIT_SHARDS: i32 = 16;
/// Partitions that the transfers of one wallet, stage, chain, stablecoin and day are spread over.
const TRANSFER_SHARDS: i64 = 4;
const DAY_SECONDS: i64 = 86_400;
/// The list of orders as the directory names it. No wallet has this name, nor the next.
pub(super) const ORDERS: &str = "orders";
/// The orders by reference.
pub(super) const REFERENCES: &str = "references";
/// The stage of transfers that may still change their status.
const UNSETTLED: &str = "unsettled";

/// How much time one bucket of a list holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    Day,
    ThirtyDays,
}

impl Span {
    const fn seconds(self) -> i64 {
        match self {
            Self::Day => DAY_SECONDS,
            Self::ThirtyDays => 30 * DAY_SECONDS,
        }
    }

    /// The bucket that a time lies in.
    pub(super) fn bucket(self, at: UnixSeconds) -> i32 {
        let bucket = at.0.div_euclid(self.seconds());
        // Thousands of millions of days: only so that every time has a bucket.
        let bound = if bucket < 0 { i32::MIN } else { LIVE - 1 };
        i32::try_from(bucket).unwrap_or(bound).min(LIVE - 1)
    }

    /// The first second of a bucket: no row of a later bucket is older.
    pub(super) fn start(self, bucket: i32) -> i64 {
        match bucket {
            LIVE => i64::MAX,
            i32::MIN => i64::MIN,
            bucket => i64::from(bucket) * self.seconds(),
        }
    }
}

/// A partition of a list, as the directory has it. What does not separate a list is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) list: String,
    pub(super) bucket: i32,
    pub(super) stage: String,
    pub(super) blockchain: String,
    pub(super) stablecoin: String,
    pub(super) shard: i32,
}

impl Place {
    /// Of orders of a status.
    pub(super) fn of_order(order: &Order, status: OrderStatus) -> Self {
        let bucket = match status {
            OrderStatus::Pending => LIVE,
            OrderStatus::Paid | OrderStatus::Expired | OrderStatus::Cancelled => {
                Span::Day.bucket(order.created_at)
            }
        };
        Self {
            list: ORDERS.to_owned(),
            bucket,
            stage: status.as_str().to_owned(),
            shard: order_shard(order.order_id),
            ..Self::default()
        }
    }

    /// Of orders by reference: the same for every reference.
    pub(super) fn of_reference(order: &Order) -> Self {
        Self {
            list: REFERENCES.to_owned(),
            bucket: Span::ThirtyDays.bucket(order.created_at),
            ..Self::default()
        }
    }

    /// Of a wallet's transfers in a stage.
    pub(super) fn of_transfer(transfer: &Transfer, stage: &str) -> Self {
        let is_live = stage == UNSETTLED;
        let bucket = if is_live { LIVE } else { Span::Day.bucket(transfer.created_at) };
        Self {
            list: wallet(transfer.observation.to_address),
            bucket,
            stage: stage.to_owned(),
            blockchain: transfer.blockchain.as_str().to_owned(),
            stablecoin: transfer.observation.stablecoin.as_str().to_owned(),
            shard: transfer_shard(transfer.transfer_id),
        }
    }

    /// The partition's key in `orders_listed`.
    pub(super) fn of_orders(self) -> [CqlValue; 3] {
        [CqlValue::Text(self.stage), CqlValue::Int(self.bucket), CqlValue::Int(self.shard)]
    }

    /// The partition's key in `transfers_listed`.
    pub(super) fn of_transfers(self) -> [CqlValue; 6] {
        let texts = [self.list, self.stage, self.blockchain, self.stablecoin].map(CqlValue::Text);
        let [list, stage, blockchain, stablecoin] = texts;
        let [bucket, shard] = [self.bucket, self.shard].map(CqlValue::Int);
        [list, stage, blockchain, stablecoin, bucket, shard]
    }

    /// Whether a list with this filter may have rows here.
    pub(super) fn is_of(&self, filter: &Filter) -> bool {
        filter.stage.is_none_or(|stage| self.stage == stage)
            && filter.blockchain.is_none_or(|chain| self.blockchain == chain.as_str())
            && filter.stablecoin.is_none_or(|stablecoin| self.stablecoin == stablecoin.as_str())
    }
}

/// Which partitions of a list to read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filter {
    pub(super) stage: Option<&'static str>,
    pub(super) blockchain: Option<Blockchain>,
    pub(super) stablecoin: Option<Stablecoin>,
}

impl Filter {
    /// Whether it is for rows that will still move, and no other bucket has one.
    pub(super) fn is_live(&self) -> bool {
        let live = [UNSETTLED, OrderStatus::Pending.as_str()];
        self.stage.is_some_and(|stage| live.contains(&stage))
    }
}

/// Where an order was before it had this status. An order leaves `pending` once, and only an
/// operator takes it from one final status to another: to `paid`, with no transfer that paid it.
pub(super) fn places_left(order: &Order) -> Vec<Place> {
    let left: &[OrderStatus] = match (order.status, order.paid_by) {
        (OrderStatus::Pending, _) => &[],
        (OrderStatus::Expired | OrderStatus::Cancelled, _) | (OrderStatus::Paid, Some(_)) => {
            &[OrderStatus::Pending]
        }
        (OrderStatus::Paid, None) => {
            &[OrderStatus::Pending, OrderStatus::Expired, OrderStatus::Cancelled]
        }
    };
    left.iter().map(|status| Place::of_order(order, *status)).collect()
}

/// The stage of a status. A failed transfer may come back, so it is not settled.
pub(super) const fn stage(status: TransferStatus) -> &'static str {
    match status {
        TransferStatus::WaitingForConfirmation
        | TransferStatus::WaitingForMatch
        | TransferStatus::FailedToConfirm => UNSETTLED,
        TransferStatus::Matched | TransferStatus::NoMatchedDeposit => status.as_str(),
    }
}

/// Where a transfer was before it had this status.
pub(super) fn place_left(transfer: &Transfer) -> Option<Place> {
    let settled = stage(transfer.status) != UNSETTLED;
    settled.then(|| Place::of_transfer(transfer, UNSETTLED))
}

fn order_shard(id: OrderId) -> i32 {
    (id.0.as_u128() % ORDER_SHARDS) as i32
}

fn transfer_shard(id: TransferId) -> i32 {
    id.0.rem_euclid(TRANSFER_SHARDS) as i32
}

/// The partition of an open deposit.
pub(super) fn deposit_shard(id: DepositId) -> i32 {
    id.0.rem_euclid(i64::from(DEPOSIT_SHARDS)) as i32
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
    fn every_time_lies_in_the_bucket_that_starts_before_it() {
        for span in [Span::Day, Span::ThirtyDays] {
            for at in [0, 1, 86_399, 86_400, -1, -86_400, -86_401, 1_790_000_000] {
                let bucket = span.bucket(UnixSeconds(at));
                assert!(span.start(bucket) <= at, "{span:?} {at}");
                assert!(at < span.start(bucket + 1), "{span:?} {at}");
            }
            // Times of no calendar have one too, in order, and never that of live rows.
            assert_eq!(span.bucket(UnixSeconds(i64::MAX)), LIVE - 1);
            assert_eq!(span.bucket(UnixSeconds(i64::MIN)), i32::MIN);
            assert_eq!((span.start(LIVE), span.start(i32::MIN)), (i64::MAX, i64::MIN));
        }
        assert_eq!(Span::Day.bucket(UnixSeconds(86_400)), 1);
        assert_eq!(Span::ThirtyDays.bucket(UnixSeconds(30 * 86_400 - 1)), 0);
    }

    #[test]
    fn an_order_leaves_every_place_it_may_have_had_and_never_its_own() {
        let at = |status, paid_by| Order { status, paid_by, ..example::order() };
        let payer = Some(TransferId(7));
        for (order, left) in [
            (at(OrderStatus::Pending, None), vec![]),
            (at(OrderStatus::Expired, None), vec!["pending"]),
            (at(OrderStatus::Cancelled, None), vec!["pending"]),
            (at(OrderStatus::Paid, payer), vec!["pending"]),
            (at(OrderStatus::Paid, None), vec!["pending", "expired", "cancelled"]),
        ] {
            let places = places_left(&order);
            let stages: Vec<_> = places.iter().map(|place| place.stage.as_str()).collect();
            assert_eq!(stages, left, "{order:?}");
            let own = Place::of_order(&order, order.status);
            assert!(!places.contains(&own));
            assert_eq!(own.bucket == LIVE, order.status == OrderStatus::Pending);
        }
    }

    #[test]
    fn a_transfer_leaves_the_live_bucket_when_it_is_settled() {
        for status in TransferStatus::ALL {
            let transfer = Transfer { status: *status, ..example::transfer() };
            let own = Place::of_transfer(&transfer, stage(*status));
            let settled =
                matches!(status, TransferStatus::Matched | TransferStatus::NoMatchedDeposit);
            assert_eq!(own.bucket != LIVE, settled, "{status}");
            let left = place_left(&transfer);
            assert_eq!(left.is_some(), settled, "{status}");
            assert!(left.is_none_or(|left| left.bucket == LIVE && left.shard == own.shard));
        }
    }

    /// Readers go by it when they stop at the live bucket.
    #[test]
    fn a_stage_is_live_if_its_rows_are_in_the_live_bucket() {
        let is_live = |stage| Filter { stage: Some(stage), ..Filter::default() }.is_live();
        for status in OrderStatus::ALL {
            let place = Place::of_order(&example::order(), *status);
            assert_eq!(is_live(status.as_str()), place.bucket == LIVE, "{status}");
        }
        for status in TransferStatus::ALL {
            let place = Place::of_transfer(&example::transfer(), stage(*status));
            assert_eq!(is_live(stage(*status)), place.bucket == LIVE, "{status}");
        }
        assert!(!Filter::default().is_live());
    }

    #[test]
    fn a_filter_reads_its_partitions_only() {
        let place = Place::of_transfer(&example::transfer(), "matched");
        let (chain, stablecoin) =
            (example::transfer().blockchain, example::transfer().observation.stablecoin);
        let filter = |stage, blockchain, stablecoin| Filter { stage, blockchain, stablecoin };
        assert!(place.is_of(&Filter::default()));
        assert!(place.is_of(&filter(Some("matched"), Some(chain), Some(stablecoin))));
        assert!(!place.is_of(&filter(Some(UNSETTLED), None, None)));
        let other = Blockchain::ALL.iter().find(|one| **one != chain).copied();
        assert!(!place.is_of(&filter(None, other, None)));
        let other = Stablecoin::ALL.iter().find(|one| **one != stablecoin).copied();
        assert!(!place.is_of(&filter(None, None, other)));
    }
}
