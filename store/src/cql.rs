//! The tables in ScyllaDB or Apache Cassandra, in one keyspace.
//!
//! Applying a record reads nothing. Each record becomes rows of the tables of
//! `migrations/0001_tables.cql`, written with the record's version clock as their write timestamp,
//! so that the servers themselves keep the newest version. Lists rely on two things: some columns never
//! change (see [`Change`](crate::Change)), and statuses make only the transitions in `list_partition`.

mod connection;
mod copy;
mod fault;
mod known_partitions;
mod list_partition;
mod merge;
mod migration;
mod prune;
mod query;
mod recent;
mod rest;
mod statement;
mod sweep;
mod table;
mod turns;
mod walk;
mod write;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use runtime::clock::{Clock as _, SystemClock};
use schemas::Address;
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryRowsResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::value::CqlValue;
use tokio::task::JoinSet;

use self::fault::bad_row;
use self::known_partitions::KnownPartitions;
use self::list_partition::ListPartition;
pub use self::migration::{Migrated, Pending, create_missing, migrate, pending};
use self::recent::Recent;
use self::statement::{Prepared, Statement};
use self::sweep::Emptied;
pub use self::turns::Turns;
use self::write::Write;
use crate::Error;
use crate::config::CqlConfig;
use crate::error::Cause;

/// Number of rows in one page of the wallets.
const WALLET_ROWS: i32 = 1_000;

/// The tables in a keyspace. Clones share their connections. While too few nodes are up, calls fail
/// with [`Error::Transient`]; they succeed again once the nodes are back.
#[derive(Debug, Clone)]
pub struct CqlStore {
    tables: Arc<Tables>,
}

/// Connections and their prepared statements.
#[derive(Debug)]
struct Tables {
    session: Session,
    keyspace: String,
    prepared: Prepared,
    chains: Recent,
    known: KnownPartitions,
    emptied: Emptied,
    requests: AtomicU64,
    /// Latest write time of an origin or a position, of those read or written.
    noted_at: AtomicI64,
    /// Turns of the requests, in tests.
    turns: OnceLock<Arc<dyn Turns>>,
}

impl CqlStore {
    /// Connects, and checks that the tables have this program's form.
    ///
    /// # Errors
    /// [`Error::Transient`] if no node can be reached now; [`Error::SchemaMissing`],
    /// [`Error::SchemaOutdated`], [`Error::TablesMissing`] or [`Error::SchemaNewer`]; [`Error::Replication`]
    /// if the keyspace keeps another number of copies than is configured; [`Error::Fatal`] if the nodes
    /// refuse this program.
    pub async fn open(config: &CqlConfig) -> Result<Self, Error> {
        let session = connection::connect(config).await?;
        migration::check(&session, config).await?;
        let prepared = Prepared::new(&session, &config.keyspace).await?;
        let (chains, known) = (Recent::default(), KnownPartitions::default());
        let (emptied, requests, noted_at, turns) = Default::default();
        let keyspace = config.keyspace.clone();
        let tables = Tables {
            session,
            keyspace,
            prepared,
            chains,
            known,
            emptied,
            requests,
            noted_at,
            turns,
        };
        Ok(Self { tables: Arc::new(tables) })
    }

    /// Number of requests by all clones since it was opened. Retries by the driver do not count.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.tables.requests.load(Ordering::Relaxed)
    }
}

impl Tables {
    /// One page of a statement's result, and the start of the next one. A page may be empty and not
    /// the last.
    async fn page(
        &self,
        statement: Statement,
        values: &[CqlValue],
        rows: i32,
        from: PagingState,
    ) -> Result<(QueryRowsResult, Option<PagingState>), Error> {
        let mut prepared = self.prepared.get(statement).clone();
        prepared.set_page_size(rows);
        let _turn = self.turn().await;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (answer, next) = self.session.execute_single_page(&prepared, values, from).await?;
        let rows = answer.into_rows_result().map_err(bad_row)?;
        let next = match next {
            PagingStateResponse::HasMorePages { state } => Some(state),
            PagingStateResponse::NoMorePages => None,
        };
        Ok((rows, next))
    }

    async fn write(&self, write: &Write) -> Result<(), Error> {
        let _turn = self.turn().await;
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let [row] = &write.rows[..] {
            self.session.execute_unpaged(self.prepared.get(write.statement), row).await?;
        } else {
            let batch = self.prepared.batch(write.statement, write.rows.len());
            self.session.batch(&batch, &write.rows).await?;
        }
        Ok(())
    }

    /// Writes directory rows, by which readers find partitions, unless they were written recently.
    async fn write_directory(
        self: &Arc<Self>,
        partitions: &BTreeSet<ListPartition>,
        wallets: &BTreeSet<Address>,
    ) -> Result<(), Error> {
        let at = self.instant();
        let unknown = self.known.unknown(partitions, at);
        // Wallets are written together with their partitions, so known partitions have known
        // wallets.
        if unknown.is_empty() {
            return Ok(());
        }
        let rows = write::directory(&unknown, wallets, SystemClock.now());
        self.write_all(rows).await?;
        self.known.written(unknown, at);
        Ok(())
    }

    /// Rows of a statement's result, as `read` takes them from each page of `page_rows` rows.
    async fn all<T>(
        &self,
        statement: Statement,
        values: &[CqlValue],
        page_rows: i32,
        read: impl Fn(&QueryRowsResult) -> Result<Vec<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        let (mut all, mut from) = (Vec::new(), Some(PagingState::start()));
        while let Some(page) = from {
            let (rows, next) = self.page(statement, values, page_rows, page).await?;
            all.extend(read(&rows)?);
            from = next;
        }
        Ok(all)
    }

    /// The wallets that have lists.
    async fn wallets(&self) -> Result<Vec<String>, Error> {
        let read =
            |rows: &QueryRowsResult| read_rows(rows, |(wallet,): (String,)| Ok(Some(wallet)));
        self.all(Statement::SelectWallets, &[CqlValue::Int(0)], WALLET_ROWS, read).await
    }

    /// Writes all rows, and returns when all are acknowledged.
    async fn write_all(self: &Arc<Self>, writes: Vec<Write>) -> Result<(), Error> {
        let work = |write: Write| {
            let tables = self.clone();
            async move {
                let outcome = tables.write(&write).await;
                (write, outcome)
            }
        };
        rest::finish(writes, work).await
    }

    /// Runs `work` for each item, `at_once` of them concurrently. Returns the results in the order
    /// of the items, or the first failure.
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
            let stopped = |cause| Error::Fatal(Cause::of(cause).context("a call stopped"));
            let (number, answer) = ended.map_err(stopped)??;
            answers[number] = Some(answer);
        }
        Ok(answers.into_iter().flatten().collect())
    }
}

/// Rows of a page, as `read` converts them; a row that it converts to `None` is left out.
fn read_rows<'a, R: DeserializeRow<'a, 'a>, T>(
    rows: &'a QueryRowsResult,
    read: impl Fn(R) -> Result<Option<T>, Error>,
) -> Result<Vec<T>, Error> {
    let rows = rows.rows::<R>().map_err(bad_row)?;
    rows.filter_map(|row| row.map_err(bad_row).and_then(&read).transpose()).collect()
}
