//! The records of a partition in their order. Each page is read while the one before it is used.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use anyhow::bail;
use log::{Offset, Record, TopicPartition};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::tail::Source;

/// Maximum number of pages that are being read.
const READERS: usize = 4;

type Page = anyhow::Result<Vec<Arc<Record>>>;

/// Reads pages in the background.
#[derive(Clone)]
pub(super) struct Readahead {
    source: Arc<Source>,
    /// One permit per page that may be read; closed by the first failure.
    slots: Arc<Semaphore>,
    failure: Arc<OnceLock<String>>,
    stop: CancellationToken,
    runtime: Handle,
}

impl Readahead {
    /// Panics outside a Tokio runtime, on which the pages are read.
    pub(super) fn new(source: Source, stop: CancellationToken) -> Self {
        let (source, slots) = (Arc::new(source), Arc::new(Semaphore::new(READERS)));
        Self { source, slots, failure: Arc::default(), stop, runtime: Handle::current() }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    fn begin(&self, of: TopicPartition, next: Offset, end: Offset) -> JoinHandle<Page> {
        let Self { source, slots, failure, runtime, .. } = self.clone();
        self.runtime.spawn(async move {
            let Ok(_slot) = slots.acquire().await else {
                bail!("{}", failure.get().map_or("no page can be read", String::as_str));
            };
            let read = move || source.page_before(of, next..end);
            let page = runtime.spawn_blocking(read).await?;
            if let Err(error) = &page {
                failure.get_or_init(|| error.to_string());
                // Otherwise each page that waits for a slot would wait for the unavailable brokers
                // in turn.
                slots.close();
            }
            Ok(page?)
        })
    }

    fn wait(&self, page: JoinHandle<Page>) -> Page {
        let stopped = self.stop.cancelled();
        self.runtime.block_on(async {
            tokio::select! {
                page = page => page?,
                () = stopped => bail!("the replay was stopped"),
            }
        })
    }
}

/// A position in a partition, and records read ahead.
pub(super) struct Pages {
    pub(super) of: TopicPartition,
    readahead: Readahead,
    /// Offset after the last record of `page`.
    next: Offset,
    /// A stable end: records from here on are not read.
    end: Offset,
    page: VecDeque<Arc<Record>>,
    /// The page at `next`, being read.
    ahead: Option<JoinHandle<Page>>,
}

impl Pages {
    pub(super) fn new(
        readahead: &Readahead,
        of: TopicPartition,
        from: Offset,
        end: Offset,
    ) -> Self {
        let readahead = readahead.clone();
        Self { of, readahead, next: from, end, page: VecDeque::new(), ahead: None }
    }

    /// The next record; `None` at the end. Blocks, so it must not be called from an async task.
    pub(super) fn peek(&mut self) -> anyhow::Result<Option<&Arc<Record>>> {
        if self.page.is_empty() && self.next < self.end {
            let Self { of, readahead, next, end, .. } = self;
            let ahead = self.ahead.take().unwrap_or_else(|| readahead.begin(*of, *next, *end));
            self.page = readahead.wait(ahead)?.into();
            // A partition may end with the marker of a transaction, which is not a record.
            *next = self.page.back().map_or(*end, |last| last.offset.next());
            self.ahead = (next < end).then(|| readahead.begin(*of, *next, *end));
        }
        Ok(self.page.front())
    }

    /// As [`Pages::peek`], consuming it.
    pub(super) fn take(&mut self) -> anyhow::Result<Option<Arc<Record>>> {
        self.peek()?;
        Ok(self.page.pop_front())
    }

    /// Reads on up to a later end.
    pub(super) fn extend(&mut self, end: Offset) {
        (self.end, self.ahead) = (end, None);
    }

    /// Continues at another position.
    pub(super) fn restart(&mut self, from: Offset, end: Offset) {
        *self = Self::new(&self.readahead, self.of, from, end);
    }

    /// The offset of the next record.
    pub(super) fn position(&self) -> Offset {
        self.page.front().map_or(self.next, |record| record.offset)
    }
}
