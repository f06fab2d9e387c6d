//! Comparison of a row with its newest known version.

use std::cmp::Ordering;

use schemas::DepositState;
use schemas::record::Attempt;

use crate::{Change, DepositFilter, Error, Page, Store, Subject, Within};

/// Number of rows in one page: more than the open deposits of an order in one stablecoin.
const PAGE_ROWS: u32 = 500;

/// Difference between a row and its newest version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// The tables do not have the row.
    Missing,
    /// The tables have an earlier version.
    Older,
    /// The tables have a version that is later than the newest one known.
    Newer,
    /// The tables have the same version with another content.
    Changed,
}

impl Defect {
    /// Returns the defect of a row whose newest version is `newest`; none if it is that version, or if it is absent and
    /// reads would omit it.
    #[must_use]
    pub fn of(newest: &Change, row: Option<&Change>) -> Option<Self> {
        let Some(row) = row else { return is_listed(newest).then_some(Self::Missing) };
        // Attempts never change, so two with the same key count as equal.
        if row == newest || matches!(newest, Change::Attempt(_)) {
            return None;
        }
        Some(match row.written_at().cmp(&newest.written_at()) {
            Ordering::Less => Self::Older,
            Ordering::Greater => Self::Newer,
            Ordering::Equal => Self::Changed,
        })
    }

    /// Name of the defect, in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Older => "older",
            Self::Newer => "newer",
            Self::Changed => "changed",
        }
    }
}

/// `true` if reads return a row of this version: they omit deposits that are not open, and attempts
/// without a subject.
fn is_listed(change: &Change) -> bool {
    match change {
        Change::Deposit(deposit) => deposit.state == DepositState::Open,
        Change::Attempt(attempt) => attempt.order_id.is_some() || attempt.transfer_id.is_some(),
        Change::Order(_) | Change::Transfer(_) | Change::Chain(_) => true,
    }
}

/// The stored row that a change is a version of.
pub async fn stored(store: &dyn Store, change: &Change) -> Result<Option<Change>, Error> {
    Ok(match change {
        Change::Order(order) => store.order_record(order.order_id).await?.map(Change::Order),
        Change::Transfer(row) => store.transfer(row.transfer_id).await?.map(Change::Transfer),
        Change::Deposit(deposit) => {
            let within = Within { from: Some(deposit.started_at), before: None };
            let filter = DepositFilter {
                order_id: Some(deposit.order_id),
                blockchain: Some(deposit.blockchain),
                stablecoin: Some(deposit.stablecoin),
                within,
            };
            let rows = store.deposits(filter, Page { limit: PAGE_ROWS, offset: 0 }).await?;
            let mut rows = rows.into_iter().map(|row| row.deposit);
            rows.find(|row| row.deposit_id == deposit.deposit_id).map(Change::Deposit)
        }
        Change::Attempt(attempt) => attempt_of(store, attempt).await?.map(Change::Attempt),
        Change::Chain(chain) => {
            let rows = store.chains().await?.into_iter();
            let mut rows = rows.filter(|row| row.blockchain == chain.blockchain);
            rows.find(|row| row.lane == chain.lane).map(Change::Chain)
        }
    })
}

/// `true` if the tables have the order or transfer of an attempt; always for any other row.
pub async fn has_subject(store: &dyn Store, change: &Change) -> Result<bool, Error> {
    let Change::Attempt(attempt) = change else { return Ok(true) };
    Ok(match Subject::of(attempt.order_id, attempt.transfer_id) {
        Some(Subject::Order(id)) => store.order_record(id).await?.is_some(),
        Some(Subject::Transfer(id)) => store.transfer(id).await?.is_some(),
        None => false,
    })
}

async fn attempt_of(store: &dyn Store, attempt: &Attempt) -> Result<Option<Attempt>, Error> {
    let Some(subject) = Subject::of(attempt.order_id, attempt.transfer_id) else {
        return Ok(None);
    };
    let key = |row: &Attempt| (row.event_id.clone(), row.attempt, row.manual);
    let mut page = Page { limit: PAGE_ROWS, offset: 0 };
    loop {
        let rows = store.attempts(subject, page).await?;
        let is_last = !page.is_full(&rows);
        let found = rows.into_iter().find(|row| key(row) == key(attempt));
        if found.is_some() || is_last {
            return Ok(found);
        }
        page.offset = page.offset.saturating_add(PAGE_ROWS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::embedded::EmbeddedStore;
    use crate::{coalesce, sample};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn applied_rows_have_no_defect(changes in sample::changes()) {
            let dir = tempfile::tempdir().unwrap();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let store = EmbeddedStore::open(dir.path()).unwrap();
            let newest = coalesce(changes.clone());
            for change in &newest {
                let row = runtime.block_on(stored(&store, change)).unwrap();
                let expected = is_listed(change).then_some(Defect::Missing);
                assert_eq!(Defect::of(change, row.as_ref()), expected);
            }
            runtime.block_on(store.apply(changes)).unwrap();
            for change in &newest {
                let row = runtime.block_on(stored(&store, change)).unwrap();
                assert_eq!(Defect::of(change, row.as_ref()), None, "{row:?}");
            }
        }
    }
}
