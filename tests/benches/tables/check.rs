//! Check of the lists against the shop: every row, once, and the newest first.

use std::time::Instant;

use schemas::{OrderStatus, TransferStatus};
use store::{
    Cursor, DepositFilter, OrderFilter, OrderRow, Page, Store, TransferFilter, Within,
    transfer_cursor,
};
use testkit::measure::wallet;

use crate::rows::number;
use crate::shop::Truth;

/// Rows that are read at once.
const LIMIT: u32 = 1000;
/// Rows of a list that are compared: more than the greatest offset of the spec.
const NEWEST: usize = 100_200;
/// Offsets at which pages are compared too.
const OFFSETS: [u32; 5] = [0, 20, 1_000, 50_000, 100_000];

/// A list to check.
#[derive(Debug, Clone, Copy)]
enum Of {
    Orders(Option<OrderStatus>),
    Deposits,
    Transfers(Option<TransferStatus>),
}

impl Of {
    /// The numbers of the rows that the list must have, the newest first.
    fn expected(self, truth: &Truth) -> Vec<usize> {
        let orders = |status: Option<OrderStatus>| {
            let all = truth.orders.iter().enumerate().rev();
            let of = all.filter(|(_, one)| status.is_none_or(|status| status == **one));
            of.map(|(number, _)| number).take(NEWEST).collect()
        };
        match self {
            Self::Orders(status) => orders(status),
            Self::Deposits => orders(Some(OrderStatus::Pending)),
            Self::Transfers(status) => {
                let all = truth.transfers.iter().enumerate().rev();
                let of = all.filter(|(_, one)| status.is_none_or(|status| status == **one));
                of.map(|(number, _)| number).take(NEWEST).collect()
            }
        }
    }

    /// A page: the numbers of its rows, and the position of the last one.
    async fn page(
        self,
        store: &dyn Store,
        page: Page,
        before: Option<Cursor>,
    ) -> Result<(Vec<usize>, Option<Cursor>), store::Error> {
        let within = Within { from: None, before };
        let size = |id: i64| usize::try_from(id).expect("no id is negative");
        Ok(match self {
            Self::Orders(status) => {
                let filter = OrderFilter { status, within, ..OrderFilter::default() };
                let rows = store.orders(filter, page).await?;
                let numbers = rows.iter().map(|row| number(row.order.order_id)).collect();
                (numbers, rows.last().map(OrderRow::cursor))
            }
            Self::Deposits => {
                let filter = DepositFilter { within, ..DepositFilter::default() };
                let rows = store.deposits(filter, page).await?;
                let numbers = rows.iter().map(|row| size(row.deposit.deposit_id.0)).collect();
                (numbers, rows.last().map(|row| row.cursor()))
            }
            Self::Transfers(status) => {
                let filter = TransferFilter { status, within, ..TransferFilter::default() };
                let rows = store.transfers(wallet(), filter, page).await?;
                let numbers = rows.iter().map(|row| size(row.transfer_id.0)).collect();
                (numbers, rows.last().map(transfer_cursor))
            }
        })
    }

    /// The numbers of the list, page after page, and of pages at some offsets.
    async fn compare(self, store: &dyn Store, expected: &[usize]) -> Result<(), String> {
        let failed = |error: store::Error| error.to_string();
        let (mut found, mut before) = (Vec::new(), None);
        while found.len() < NEWEST {
            let page = Page { limit: LIMIT, offset: 0 };
            let (numbers, last) = self.page(store, page, before).await.map_err(failed)?;
            found.extend(numbers);
            if last.is_none() {
                break;
            }
            before = last;
        }
        found.truncate(NEWEST);
        if let Some(position) = found.iter().zip(expected).position(|(one, other)| one != other) {
            let [found, expected] = [found[position], expected[position]];
            return Err(format!("row {position} is {found}, not {expected}"));
        }
        if found.len() != expected.len() {
            return Err(format!("{} rows, not {}", found.len(), expected.len()));
        }
        for offset in OFFSETS {
            let page = Page { limit: 20, offset };
            let (numbers, _) = self.page(store, page, None).await.map_err(failed)?;
            let begin = expected.len().min(usize::try_from(offset).expect("small"));
            let all = &expected[begin..expected.len().min(begin + 20)];
            // Behind the newest that are compared there may be more.
            if expected.len() < NEWEST && numbers != all || !numbers.starts_with(all) {
                return Err(format!("the page at {offset} differs"));
            }
        }
        Ok(())
    }
}

pub(crate) async fn run(store: &dyn Store, truth: &Truth) {
    let mut all = vec![Of::Deposits, Of::Orders(None), Of::Transfers(None)];
    all.extend(OrderStatus::ALL.iter().map(|status| Of::Orders(Some(*status))));
    all.extend(TransferStatus::ALL.iter().map(|status| Of::Transfers(Some(*status))));
    for of in all {
        let expected = of.expected(truth);
        let begun = Instant::now();
        let verdict = match of.compare(store, &expected).await {
            Ok(()) => "right".to_owned(),
            Err(flaw) => format!("WRONG: {flaw}"),
        };
        let (rows, time) = (expected.len(), begun.elapsed().as_secs());
        println!("    checked {of:?}: {rows} rows are {verdict}, in {time} s");
    }
}
