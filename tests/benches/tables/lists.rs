//! The questions that are asked of the tables, and how long the answers take.

use std::time::{Duration, Instant};

use schemas::{OrderStatus, TransferStatus};
use store::{
    Cursor, DepositFilter, OrderFilter, OrderRow, Page, Store, TransferFilter, transfer_cursor,
};
use testkit::measure::{percentile, wallet};

use crate::rows::{SUBSCRIPTION, order_id};

/// Rows of a page.
const LIMIT: u32 = 20;
/// The greatest offset of the spec, and what a smaller list may have.
const OFFSETS: [u32; 2] = [100_000, 10_000];

#[derive(Debug, Clone)]
enum Kind {
    /// One order.
    Status,
    Orders(OrderFilter),
    Deposits,
    Transfers(TransferFilter),
}

/// A question.
#[derive(Debug, Clone)]
pub(crate) struct List {
    pub(crate) name: String,
    kind: Kind,
    pub(crate) offset: u32,
}

impl List {
    fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind, offset: 0 }
    }

    /// The status of one order, and the first page of every list.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::new("status", Kind::Status),
            Self::new("orders", Kind::Orders(OrderFilter::default())),
        ];
        for status in OrderStatus::ALL {
            let filter = OrderFilter { status: Some(*status), ..OrderFilter::default() };
            all.push(Self::new(format!("orders, {status}"), Kind::Orders(filter)));
        }
        let merchant_order_id = Some(SUBSCRIPTION.to_owned());
        let filter = OrderFilter { merchant_order_id, ..OrderFilter::default() };
        all.push(Self::new("orders of a reference", Kind::Orders(filter)));
        all.push(Self::new("deposits", Kind::Deposits));
        all.push(Self::new("transfers", Kind::Transfers(TransferFilter::default())));
        for status in TransferStatus::ALL {
            let filter = TransferFilter { status: Some(*status), ..TransferFilter::default() };
            all.push(Self::new(format!("transfers, {status}"), Kind::Transfers(filter)));
        }
        all
    }

    /// Of each list its page at the greatest offset that it has.
    pub(crate) async fn deep(store: &dyn Store) -> Vec<Self> {
        Self::deepest(store, Self::all()).await
    }

    /// The same of lists that only grow. To ask whether the others reach an offset is to read all that left them.
    pub(crate) async fn deep_of_growing(store: &dyn Store) -> Vec<Self> {
        let leaves = ["pending", "deposits", "waiting"];
        let grows = |list: &Self| !leaves.iter().any(|word| list.name.contains(word));
        Self::deepest(store, Self::all().into_iter().filter(grows).collect()).await
    }

    async fn deepest(store: &dyn Store, lists: Vec<Self>) -> Vec<Self> {
        let mut deep = Vec::new();
        for list in lists.into_iter().skip(1) {
            for offset in OFFSETS {
                let name = format!("{} at {offset}", list.name);
                let one = Self { name, offset, ..list.clone() };
                if one.page(store, Page { limit: 1, offset }).await.is_ok_and(|page| page == 1) {
                    deep.push(one);
                    break;
                }
            }
        }
        deep
    }

    /// Asks once; of the status, for the order with this number.
    pub(crate) async fn ask(&self, store: &dyn Store, number: usize) -> Result<(), String> {
        if matches!(self.kind, Kind::Status) {
            let row = store.order(order_id(number)).await.map_err(|error| error.to_string())?;
            return row.map(drop).ok_or_else(|| format!("order {number} is not there"));
        }
        self.page(store, Page { limit: LIMIT, offset: self.offset }).await.map(drop)
    }

    /// The number of rows of a page whose rows are in order.
    async fn page(&self, store: &dyn Store, page: Page) -> Result<usize, String> {
        let cursors: Result<Vec<Cursor>, store::Error> = match &self.kind {
            Kind::Status => Ok(Vec::new()),
            Kind::Orders(filter) => store
                .orders(filter.clone(), page)
                .await
                .map(|rows| rows.iter().map(OrderRow::cursor).collect()),
            Kind::Deposits => store
                .deposits(DepositFilter::default(), page)
                .await
                .map(|rows| rows.iter().map(|row| row.cursor()).collect()),
            Kind::Transfers(filter) => store
                .transfers(wallet(), *filter, page)
                .await
                .map(|rows| rows.iter().map(transfer_cursor).collect()),
        };
        let cursors = cursors.map_err(|error| error.to_string())?;
        match cursors.windows(2).all(|pair| pair[0] > pair[1]) {
            true => Ok(cursors.len()),
            false => Err("a page is out of order".into()),
        }
    }
}

/// Response times, and failures.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    times: Vec<Duration>,
    failures: usize,
    failure: String,
}

impl Times {
    pub(crate) async fn measure(&mut self, list: &List, store: &dyn Store, number: usize) {
        let begun = Instant::now();
        match list.ask(store, number).await {
            Ok(()) => self.times.push(begun.elapsed()),
            Err(failure) => {
                self.failures += 1;
                self.failure = failure;
            }
        }
    }

    /// p50, p99 and the longest, in milliseconds.
    pub(crate) fn text(&self) -> String {
        let mut times = self.times.clone();
        times.sort_unstable();
        let millis = |micros: u128| format!("{}.{}", micros / 1000, micros % 1000 / 100);
        let at = |percent| millis(percentile(&times, percent).as_micros());
        let [p50, p99, max] = [50, 99, 100].map(at);
        let failed = match self.failures {
            0 => String::new(),
            count => format!("; {count} FAILED, the last one: {}", self.failure),
        };
        format!("p50 {p50:>6}, p99 {p99:>6}, max {max:>6} ms of {}{failed}", times.len())
    }
}
