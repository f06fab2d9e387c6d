//! The tables in ScyllaDB or Apache Cassandra, in one keyspace.
//!
//! Nothing here reads before it writes. Each record becomes rows of the tables of
//! `migrations/0001_tables.cql`, written with the record's version clock as their write timestamp,
//! so that the servers themselves keep the newest. What lists rely on beside that: of an order its
//! creation time and reference never change, of a deposit its start, order, chain and stablecoin, of a
//! transfer its creation time, wallet, chain and stablecoin; and statuses only go the ways that `place`
//! knows.

mod connection;
mod fault;
mod merge;
mod migration;
mod place;
mod query;
mod statement;
mod walk;
mod write;

use std::future::Future;
use std::sync::Arc;

use crate::config::CqlConfig;
use async_trait::async_trait;
use schemas::{Address, OrderId, TransferId};
use scylla::client::session::Session;
use scylla::response::query_result::QueryRowsResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::value::CqlValue;
use tokio::task::JoinSet;

pub use self::migration::migrate;
use self::statement::{Prepared, Statement};
use self::write::{Write, Writes};
use crate::{
    ChainRow, Change, DepositFilter, DepositRow, Error, OrderFilter, OrderRow, Page, Store,
    TransferFilter, TransferRow,
};

/// Writes of one call that are under way at once.
const WRITES_MAX: usize = 256;

/// The tables in a keyspace. Clones share their connections. It survives the loss of any node and
/// of all of them: calls then fail with [`Error::Transient`] until they are back.
#[derive(Debug, Clone)]
pub struct CqlStore {
    tables: Arc<Tables>,
}

/// The connections and what was prepared on them.
#[derive(Debug)]
struct Tables {
    session: Session,
    prepared: Prepared,
}

impl CqlStore {
    /// Connects, and looks whether the tables have this program's form.
    ///
    /// # Errors
    /// [`Error::Transient`] if no node can be reached now; [`Error::Fatal`] if the tables are
    /// missing, or of an older or newer program, or the nodes refuse us.
    pub async fn open(config: &CqlConfig) -> Result<Self, Error> {
        let session = connection::connect(config).await?;
        migration::check(&session, &config.keyspace).await?;
        let prepared = Prepared::new(&session).await?;
        Ok(Self { tables: Arc::new(Tables { session, prepared }) })
    }
}

impl Tables {
    /// One page of what a statement finds, and where the next one begins. A page may be empty and
    /// not the last.
    async fn page(
        &self,
        statement: Statement,
        values: &[CqlValue],
        rows: u32,
        from: PagingState,
    ) -> Result<(QueryRowsResult, Option<PagingState>), Error> {
        let mut prepared = self.prepared.get(statement)?.clone();
        prepared.set_page_size(i32::try_from(rows.max(1)).unwrap_or(i32::MAX));
        let (answer, next) = self
            .session
            .execute_single_page(&prepared, values, from)
            .await
            .map_err(|cause| fault::classify(&cause))?;
        let rows = answer.into_rows_result().map_err(|cause| walk::bad_row(&cause))?;
        let next = match next {
            PagingStateResponse::HasMorePages { state } => Some(state),
            PagingStateResponse::NoMorePages => None,
        };
        Ok((rows, next))
    }

    async fn write(&self, write: Write) -> Result<(), Error> {
        let prepared = self.prepared.get(write.statement)?;
        self.session
            .execute_unpaged(prepared, write.values)
            .await
            .map_err(|cause| fault::classify(&cause))?;
        Ok(())
    }

    /// Does something for each item, `at_once` of them side by side; the answers in the items'
    /// order. The first failure ends it.
    async fn each<I, T, F>(
        self: &Arc<Self>,
        items: Vec<I>,
        at_once: usize,
        work: impl Fn(Arc<Self>, I) -> F,
    ) -> Result<Vec<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let mut answers: Vec<Option<T>> = Vec::new();
        answers.resize_with(items.len(), || None);
        let mut running = JoinSet::new();
        let mut items = items.into_iter().enumerate();
        loop {
            while running.len() < at_once
                && let Some((number, item)) = items.next()
            {
                let answer = work(self.clone(), item);
                running.spawn(async move { answer.await.map(|answer| (number, answer)) });
            }
            let Some(ended) = running.join_next().await else { break };
            let ended = ended.map_err(|cause| Error::Fatal(format!("a call stopped: {cause}")))?;
            let (number, answer) = ended?;
            if let Some(place) = answers.get_mut(number) {
                *place = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }
}

#[async_trait]
impl Store for CqlStore {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), Error> {
        let writes = Writes::of(&changes)?;
        let write = |tables: Arc<Tables>, write| async move { tables.write(write).await };
        self.tables.each(writes.inserts, WRITES_MAX, write).await?;
        self.tables.each(writes.deletes, WRITES_MAX, write).await?;
        Ok(())
    }

    async fn order(&self, id: OrderId) -> Result<Option<OrderRow>, Error> {
        query::order(&self.tables, id).await
    }

    async fn orders(&self, filter: OrderFilter, page: Page) -> Result<Vec<OrderRow>, Error> {
        query::orders(&self.tables, filter, page).await
    }

    async fn deposits(&self, filter: DepositFilter, page: Page) -> Result<Vec<DepositRow>, Error> {
        query::deposits(&self.tables, filter, page).await
    }

    async fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, Error> {
        query::transfer(&self.tables, id).await
    }

    async fn transfers(
        &self,
        wallet: Address,
        filter: TransferFilter,
        page: Page,
    ) -> Result<Vec<TransferRow>, Error> {
        query::transfers(&self.tables, wallet, filter, page).await
    }

    async fn chains(&self) -> Result<Vec<ChainRow>, Error> {
        query::chains(&self.tables).await
    }
}
