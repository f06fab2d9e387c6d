//! Walks a list: finds its partitions, newest first, reads them page by page, and merges them.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use schemas::{Address, Blockchain, OrderId, OrderStatus, Stablecoin, UnixMicros};
use scylla::response::PagingState;
use scylla::response::query_result::QueryRowsResult;
use scylla::value::CqlValue;

use super::fault::bad_row;
use super::list_partition::{self, ListPartition, Span};
use super::merge::{Entry, Merge, Next};
use super::statement::Statement;
use super::sweep;
use super::table::{DEPOSITS_OPEN_BY_ORDER, Table};
use super::write::Write;
use super::{Tables, read_rows};
use crate::row::number;
use crate::{Cursor, DepositFilter, Error, OrderFilter, TransferFilter, Within};

/// Maximum number of rows in one page of a partition.
const ROWS_MAX: i32 = 5_000;
/// Minimum number of rows in the first page of a partition that also has rows of other lists.
const FILTERED_ROWS_MIN: i32 = 256;
/// Growth factor of a page's rows when the one before it was not enough: a filter outside the
/// partition key may pass one row of thousands.
const ROWS_GROWTH: i32 = 4;
/// Number of rows in the first page of the directory: the newest two or three days, where most
/// readers end.
const DIRECTORY_ROWS_MIN: i32 = 128;
/// Maximum number of rows in one page of the directory.
const DIRECTORY_ROWS_MAX: i32 = 2_000;
/// Maximum number of partitions opened together, beyond those of one bucket.
const OPENED_MAX: usize = 64;
/// Maximum bytes of a text that can be part of a key.
const KEY_BYTES_MAX: usize = 60_000;

/// A list with its filters.
#[derive(Debug, Clone)]
pub(super) enum List {
    Orders(OrderFilter),
    Transfers(Address, TransferFilter),
    Deposits(DepositFilter),
}

/// A partition of a list.
#[derive(Debug, Clone)]
struct Partition {
    table: &'static Table,
    key: Vec<CqlValue>,
}

impl List {
    /// The id of an entry, as its tables have it.
    fn id(&self, id: u128) -> CqlValue {
        match self {
            Self::Orders(_) => CqlValue::Blob(id.to_be_bytes().to_vec()),
            // No row has an id above `i64::MAX`.
            Self::Transfers(..) | Self::Deposits(_) => {
                CqlValue::BigInt(i64::try_from(id).unwrap_or(i64::MAX))
            }
        }
    }

    fn within(&self) -> Within {
        match self {
            Self::Orders(filter) => filter.within,
            Self::Transfers(_, filter) => filter.within,
            Self::Deposits(filter) => filter.within,
        }
    }

    /// Returns its part of the directory; none if its partitions are known without one.
    fn directory(&self) -> Option<Listed> {
        let listed = |list: &str, stage, span| {
            Some(Listed { list: list.to_owned(), stage, span, blockchain: None, stablecoin: None })
        };
        match self {
            Self::Orders(OrderFilter { merchant_order_id: Some(_), .. }) => {
                listed(list_partition::REFERENCES, list_partition::ALL, Span::ThirtyDays)
            }
            Self::Orders(filter) => match filter.status {
                None => listed(list_partition::ORDERS, list_partition::ALL, Span::Day),
                Some(OrderStatus::Pending) => {
                    listed(list_partition::ORDERS, list_partition::LIVE, Span::Minute)
                }
                Some(ended) => listed(list_partition::ORDERS, ended.as_str(), Span::Day),
            },
            Self::Transfers(wallet, filter) => {
                let (stage, span) = match filter.status {
                    None => (list_partition::ALL, Span::Day),
                    Some(status) if list_partition::is_waiting(status) => {
                        (list_partition::LIVE, Span::Minute)
                    }
                    Some(ended) => (ended.as_str(), Span::Day),
                };
                let (list, blockchain) = (list_partition::wallet(*wallet), filter.blockchain);
                Some(Listed { list, stage, span, blockchain, stablecoin: filter.stablecoin })
            }
            Self::Deposits(DepositFilter { order_id: Some(_), .. }) => None,
            Self::Deposits(_) => {
                listed(list_partition::DEPOSITS, list_partition::LIVE, Span::Minute)
            }
        }
    }

    /// The partition of a list that needs no directory.
    fn fixed_partition(&self) -> Option<Partition> {
        match self {
            Self::Deposits(DepositFilter { order_id: Some(OrderId(order)), .. }) => {
                let key = vec![CqlValue::Uuid(*order)];
                Some(Partition { table: &DEPOSITS_OPEN_BY_ORDER, key })
            }
            Self::Orders(_) | Self::Transfers(..) | Self::Deposits(_) => None,
        }
    }

    /// The partition that a directory row refers to.
    fn partition(&self, partition: &ListPartition) -> Partition {
        let mut key = partition.key();
        if let Self::Orders(OrderFilter { merchant_order_id: Some(reference), .. }) = self {
            key.insert(0, CqlValue::Text(reference.clone()));
        }
        Partition { table: partition.table(), key }
    }

    /// Returns the read of a partition's rows, after the filter's position if it has one.
    fn read(&self, Partition { table, key }: &Partition) -> (Statement, Vec<CqlValue>) {
        let Some(Cursor { at, id }) = self.within().before else {
            return (table.select, key.clone());
        };
        (table.before, [&key[..], &[CqlValue::BigInt(at.0), self.id(id)]].concat())
    }

    /// `true` if it cannot have rows: its key is too long for any row.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Orders(OrderFilter { merchant_order_id: Some(text), .. })
            if text.len() > KEY_BYTES_MAX)
    }

    /// `true` if its partitions have other lists' rows too.
    fn is_filtered(&self) -> bool {
        match self {
            Self::Orders(filter) => filter.merchant_order_id.is_some() && filter.status.is_some(),
            Self::Transfers(_, filter) => filter.status.is_some_and(list_partition::is_waiting),
            Self::Deposits(filter) => filter.blockchain.is_some() || filter.stablecoin.is_some(),
        }
    }

    /// Rows of a page that pass the filters outside of the partition key.
    fn entries(&self, rows: &QueryRowsResult) -> Result<Vec<Entry>, Error> {
        match self {
            Self::Orders(OrderFilter { merchant_order_id: Some(_), status, .. }) => {
                read_rows(rows, |(at, id, word): (i64, &[u8], &str)| {
                    let is_of = status.is_none_or(|status| status.as_str() == word);
                    is_of.then(|| Ok(Entry { at, id: order_id(id)? })).transpose()
                })
            }
            Self::Orders(_) => {
                read_rows(rows, |(at, id): (i64, &[u8])| Ok(Some(Entry { at, id: order_id(id)? })))
            }
            Self::Transfers(_, filter) => match filter.status {
                Some(status) if list_partition::is_waiting(status) => {
                    read_rows(rows, |(at, id, word, chain, coin): (i64, i64, &str, &str, &str)| {
                        let is_of = status.as_str() == word
                            && filter.blockchain.is_none_or(|wanted| wanted.as_str() == chain)
                            && filter.stablecoin.is_none_or(|wanted| wanted.as_str() == coin);
                        Ok(is_of.then(|| Entry { at, id: number(id) }))
                    })
                }
                Some(_) | None => {
                    read_rows(rows, |(at, id): (i64, i64)| Ok(Some(Entry { at, id: number(id) })))
                }
            },
            Self::Deposits(filter) => {
                read_rows(rows, |(at, id, chain, coin): (i64, i64, &str, &str)| {
                    let is_of = filter.blockchain.is_none_or(|wanted| wanted.as_str() == chain)
                        && filter.stablecoin.is_none_or(|wanted| wanted.as_str() == coin);
                    Ok(is_of.then(|| Entry { at, id: number(id) }))
                })
            }
        }
    }
}

/// An order's id as in entries: the number sorts like its bytes.
fn order_id(bytes: &[u8]) -> Result<u128, Error> {
    bytes.try_into().map(u128::from_be_bytes).map_err(bad_row)
}

/// A list's part of the directory.
#[derive(Debug)]
struct Listed {
    list: String,
    stage: &'static str,
    /// Time span of its buckets.
    span: Span,
    /// Only its partitions of this chain.
    blockchain: Option<Blockchain>,
    /// Only its partitions of this stablecoin.
    stablecoin: Option<Stablecoin>,
}

/// The directory of a list, read from its newest bucket on.
#[derive(Debug)]
struct Directory {
    listed: Listed,
    /// Buckets to read: others have no wanted rows.
    buckets: RangeInclusive<i32>,
    rows: VecDeque<ListPartition>,
    next: Option<PagingState>,
    /// Number of rows in the next page.
    page_rows: i32,
}

impl Directory {
    /// Directory of the buckets in which rows between two positions may be.
    fn within(listed: Listed, Within { from, before }: Within) -> Self {
        let first = from.map_or(i32::MIN, |from| listed.span.bucket(from));
        let last = before.map_or(i32::MAX, |before| listed.span.bucket(before.at));
        Self {
            listed,
            buckets: first..=last,
            rows: VecDeque::new(),
            next: (first <= last).then(PagingState::start),
            page_rows: DIRECTORY_ROWS_MIN,
        }
    }

    /// All partitions of the next buckets, until at least `least` pass the filter, and the last
    /// bucket. None at the end.
    async fn buckets(
        &mut self,
        tables: &Tables,
        least: usize,
    ) -> Result<Option<(Vec<ListPartition>, i32)>, Error> {
        let mut wanted = Vec::new();
        let mut last = None;
        loop {
            let Some(row) = self.rows.front() else {
                match self.next.take() {
                    Some(from) => self.read(tables, from).await?,
                    None => return Ok(last.map(|bucket| (wanted, bucket))),
                }
                continue;
            };
            if let Some(bucket) = last
                && row.bucket != bucket
                && wanted.len() >= least
            {
                return Ok(Some((wanted, bucket)));
            }
            last = Some(row.bucket);
            let row = self.rows.pop_front();
            let Listed { blockchain, stablecoin, .. } = self.listed;
            wanted.extend(row.filter(|row| row.is_of(blockchain, stablecoin)));
        }
    }

    async fn read(&mut self, tables: &Tables, from: PagingState) -> Result<(), Error> {
        let Listed { list, stage, .. } = &self.listed;
        let page = (self.page_rows, from);
        let (rows, next) = sweep::listed_page(tables, list, stage, &self.buckets, page).await?;
        self.page_rows = self.page_rows.saturating_mul(ROWS_GROWTH).min(DIRECTORY_ROWS_MAX);
        self.rows.extend(rows.into_iter().map(|listed| listed.partition));
        self.next = next;
        Ok(())
    }
}

/// Traversal of a list, newest row first.
#[derive(Debug)]
pub(super) struct Walk {
    tables: Arc<Tables>,
    list: Arc<List>,
    directory: Option<Directory>,
    merge: Merge,
    sources: Vec<Source>,
    /// Unopened partitions only have rows before this second.
    floor: i64,
    /// The oldest second that the filter allows.
    from: i64,
    /// Minimum number of partitions to open next: few first, since most readers want one page.
    least: usize,
    /// Number of rows that the caller is expected to take.
    expected: i32,
}

/// A source of the merge.
#[derive(Debug, Clone)]
struct Source {
    partition: Partition,
    /// Start of its next page.
    next: Option<PagingState>,
    /// Number of rows in that page.
    rows: i32,
}

impl Source {
    /// Reads its next page, and makes the one after it longer.
    async fn page(mut self, tables: &Tables, list: &List) -> Result<(Self, Vec<Entry>), Error> {
        let from = self.next.take();
        let from = from.ok_or_else(|| Error::Fatal("a page after the last one".into()))?;
        let (statement, values) = list.read(&self.partition);
        let (rows, next) = tables.page(statement, &values, self.rows, from).await?;
        self.next = next;
        self.rows = self.rows.saturating_mul(ROWS_GROWTH).min(ROWS_MAX);
        Ok((self, list.entries(&rows)?))
    }
}

/// Number of rows in the first page of each of `partitions`. Together they have at least twice the expected rows, if no
/// page reaches its maximum, as rows are not spread quite evenly. A filtered list reads more: extra rows cost less than
/// a second request.
fn first_rows(expected: i32, partitions: usize, is_filtered: bool) -> i32 {
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX).max(1);
    let least = if is_filtered { FILTERED_ROWS_MIN } else { 8 };
    (expected.saturating_mul(2) / partitions).saturating_add(least).min(ROWS_MAX)
}

impl Walk {
    /// A walk that is expected to end after `rows` rows.
    pub(super) async fn start(tables: Arc<Tables>, list: List, rows: u32) -> Result<Self, Error> {
        let fixed = list.fixed_partition();
        let within = list.within();
        let directory = list.directory().filter(|_| !list.is_empty());
        let directory = directory.map(|listed| Directory::within(listed, within));
        let mut walk = Self {
            tables,
            floor: if directory.is_some() { i64::MAX } else { i64::MIN },
            from: within.from.map_or(i64::MIN, |from| from.0),
            directory,
            list: Arc::new(list),
            merge: Merge::default(),
            sources: Vec::new(),
            least: 1,
            expected: i32::try_from(rows).unwrap_or(i32::MAX),
        };
        walk.open(fixed.into_iter().collect()).await?;
        Ok(walk)
    }

    /// The next row, and the number of the partition that has it; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<(Entry, usize)>, Error> {
        loop {
            match self.merge.next(self.floor) {
                Next::Row(entry, _) if entry.at < self.from => return Ok(None),
                Next::Row(entry, number) => return Ok(Some((entry, number))),
                Next::Pages(numbers) => self.read_more(numbers).await?,
                // Partitions that are not open yet have only rows older than the filter allows.
                Next::End if self.floor <= self.from => return Ok(None),
                Next::End => self.open_next().await?,
            }
        }
    }

    async fn read_more(&mut self, numbers: Vec<usize>) -> Result<(), Error> {
        let sources = numbers.iter().map(|number| self.sources[*number].clone()).collect();
        let pages = self.pages(sources).await?;
        for (number, (source, entries)) in numbers.into_iter().zip(pages) {
            self.merge.fill(number, entries, source.next.is_some());
            self.sources[number] = source;
        }
        Ok(())
    }

    /// The next page of each source, and the source after it.
    async fn pages(&self, sources: Vec<Source>) -> Result<Vec<(Source, Vec<Entry>)>, Error> {
        let list = self.list.clone();
        let read = move |tables: Arc<Tables>, source: Source| {
            let list = list.clone();
            async move { source.page(&tables, &list).await }
        };
        self.tables.each(sources, OPENED_MAX, read).await
    }

    /// Returns the deletion of an entry that the record's version contradicts; none where a record
    /// never moves. A later version may insert the entry again.
    pub(super) fn repair(
        &self,
        (entry, number): (Entry, usize),
        UnixMicros(version): UnixMicros,
    ) -> Option<Write> {
        let Partition { table, key } = &self.sources[number].partition;
        let row = [CqlValue::BigInt(entry.at), self.list.id(entry.id)];
        let row = [&[CqlValue::BigInt(version)], &key[..], &row].concat();
        table.leave.map(|statement| Write { statement, rows: vec![row] })
    }

    /// Opens the next partitions, or finds that there are no more.
    async fn open_next(&mut self) -> Result<(), Error> {
        let mut found = None;
        if let Some(directory) = &mut self.directory {
            found = directory.buckets(&self.tables, self.least).await?;
            self.floor = match &found {
                Some((_, bucket)) => directory.listed.span.start(*bucket),
                None => i64::MIN,
            };
        }
        self.least = (self.least * 4).min(OPENED_MAX);
        let found = found.map(|(partitions, _)| partitions).unwrap_or_default();
        let partitions = found.iter().map(|partition| self.list.partition(partition)).collect();
        self.open(partitions).await
    }

    /// Reads the first pages concurrently.
    async fn open(&mut self, partitions: Vec<Partition>) -> Result<(), Error> {
        let rows = first_rows(self.expected, partitions.len(), self.list.is_filtered());
        let source = |partition| Source { partition, next: Some(PagingState::start()), rows };
        let sources = partitions.into_iter().map(source).collect();
        for (source, entries) in self.pages(sources).await? {
            self.merge.add(entries, source.next.is_some());
            self.sources.push(source);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_pages_hold_little_more_than_expected() {
        for (expected, partitions, rows, filtered) in [
            (20, 1, 48, 296),
            (20, 64, 8, 256),
            (200, 64, 14, 262),
            (1, 16, 8, 256),
            (100_200, 32, ROWS_MAX, ROWS_MAX),
            (7, 0, 22, 270),
        ] {
            let found = [false, true].map(|is| first_rows(expected, partitions, is));
            assert_eq!(found, [rows, filtered], "{expected} of {partitions}");
        }
    }

    /// No server is sent a key that it would refuse.
    #[test]
    fn a_reference_longer_than_a_key_is_of_no_order() {
        let is_empty = |bytes| {
            let merchant_order_id = Some("x".repeat(bytes));
            List::Orders(OrderFilter { merchant_order_id, ..OrderFilter::default() }).is_empty()
        };
        assert_eq!([KEY_BYTES_MAX, KEY_BYTES_MAX + 1].map(is_empty), [false, true]);
    }
}
