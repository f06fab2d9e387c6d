//! The records of a partition in their order, read in pages.

use std::collections::VecDeque;
use std::sync::Arc;

use log::{Error, Offset, Record, TopicPartition};

use crate::tail::Source;

/// Records of the first page, and of the largest: each further page has twice as many.
const FIRST_PAGE_RECORDS: usize = 250;
const LARGE_PAGE_RECORDS: usize = 4000;

/// A position in a partition, and records read ahead.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) of: TopicPartition,
    /// Offset of the next page.
    next: Offset,
    /// A stable end: records from here on are not read.
    end: Offset,
    /// There is nothing more to read.
    is_over: bool,
    page: VecDeque<Arc<Record>>,
    size: usize,
}

impl Pages {
    pub(super) fn new(of: TopicPartition, from: Offset, end: Offset) -> Self {
        Self {
            of,
            next: from,
            end,
            is_over: from >= end,
            page: VecDeque::new(),
            size: FIRST_PAGE_RECORDS,
        }
    }

    /// The next record; none at the end.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) fn peek(&mut self, source: &Source) -> Result<Option<&Arc<Record>>, Error> {
        if self.page.is_empty() && !self.is_over {
            let page = source.read_before(self.of, self.next..self.end, self.size)?;
            self.size = (2 * self.size).min(LARGE_PAGE_RECORDS);
            self.next = page.last().map_or(self.next, |last| last.offset.next());
            self.is_over = page.is_empty() || self.next >= self.end;
            self.page = page.into();
        }
        Ok(self.page.front())
    }

    /// As [`Pages::peek`], consuming it.
    ///
    /// # Errors
    /// As [`Pages::peek`].
    pub(super) fn take(&mut self, source: &Source) -> Result<Option<Arc<Record>>, Error> {
        self.peek(source)?;
        Ok(self.page.pop_front())
    }

    /// Reads on up to a later end.
    pub(super) fn extend(&mut self, end: Offset) {
        (self.end, self.is_over) = (end, self.next >= end);
    }

    /// The offset of the next record.
    pub(super) fn position(&self) -> Offset {
        self.page.front().map_or(self.next, |record| record.offset)
    }
}
