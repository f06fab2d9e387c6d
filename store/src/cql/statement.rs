//! Every statement, prepared once for each connection to the tables.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::statement::Statement as Text;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::Error;

/// Maximum duration of a read, including the driver's own retries.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum duration of a write. Longer than of a read: batches of concurrent callers wait for each
/// other.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after which a read is also sent to another node; the first response wins: a hanging node
/// delays callers by this, not by the whole time-out.
const SECOND_READ_AFTER: Duration = Duration::from_millis(50);
/// The same for writes: later, because it doubles the load of servers that are only slow.
const SECOND_WRITE_AFTER: Duration = Duration::from_millis(250);
/// Placeholder of the keyspace in the texts. The session selects none: servers of different
/// versions in one cluster would prepare unqualified statements again and again.
const KEYSPACE: &str = "$keyspace";

/// The keys that a row is both written and deleted by.
const PENDING: &str = "bucket, shard, created_at, order_id";
const ENDED: &str = "status, bucket, shard, created_at, order_id";
const WAITING: &str = "wallet, bucket, shard, created_at, transfer_id";
const TRANSFERS_ENDED: &str =
    "wallet, status, blockchain, coin, bucket, shard, created_at, transfer_id";
const OPEN: &str = "bucket, shard, started_at, deposit_id";
const BY_ORDER: &str = "order_id, started_at, deposit_id";
const LIST_PARTITIONS: &str = "list, stage, bucket, blockchain, coin, shard";
const REFERENCE: &str = "merchant_order_id, bucket, created_at, order_id";
/// The keys of partitions that are also deleted as a whole.
const DAY: &str = "bucket, shard";
const DAY_ENDED: &str = "status, bucket, shard";
const COIN_DAY: &str = "wallet, blockchain, coin, bucket, shard";
const COIN_DAY_ENDED: &str = "wallet, status, blockchain, coin, bucket, shard";
/// Key of an attempt in its subject's partition.
const ATTEMPT: &str = "event_id, attempt, manual";

macro_rules! statements {
    ($($name:ident = $text:expr,)+) => {
        /// Requests to the tables. Values are bound in the order of the columns; a write's
        /// timestamp is its last value, a deletion's its first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Statement { $($name,)+ }

        /// All statements, each at the index of its number.
        const ALL: &[Statement] = &[$(Statement::$name,)+];

        impl Statement {
            fn text(self) -> String {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

statements! {
    InsertOrder = insert("orders", "order_id, record"),
    InsertOrderByDay = insert("orders_by_day", PENDING),
    InsertOrderPending = insert("orders_pending", PENDING),
    DeleteOrderPending = delete("orders_pending", PENDING),
    InsertOrderEnded = insert("orders_ended", ENDED),
    DeleteOrderEnded = delete("orders_ended", ENDED),
    InsertOrderByReference = insert("orders_by_reference", &format!("{REFERENCE}, status")),
    DeleteOrderByReference = delete("orders_by_reference", REFERENCE),
    DeleteOrder = delete("orders", "order_id"),
    DeleteOrdersByDay = delete("orders_by_day", DAY),
    DeleteOrdersEnded = delete("orders_ended", DAY_ENDED),
    InsertOrderAttempt = insert(
        "orders",
        &format!("order_id, {ATTEMPT}, attempted_at, counted, delivered, attempt_record"),
    ),
    InsertDepositOpen = insert("deposits_open", &format!("{OPEN}, blockchain, coin, record")),
    DeleteDepositOpen = delete("deposits_open", OPEN),
    InsertDepositByOrder =
        insert("deposits_open_by_order", &format!("{BY_ORDER}, blockchain, coin")),
    DeleteDepositByOrder = delete("deposits_open_by_order", BY_ORDER),
    InsertTransfer = insert("transfers", "transfer_id, record"),
    InsertTransferByDay = insert(
        "transfers_by_day",
        "wallet, blockchain, coin, bucket, shard, created_at, transfer_id",
    ),
    InsertTransferWaiting =
        insert("transfers_waiting", &format!("{WAITING}, status, blockchain, coin")),
    DeleteTransferWaiting = delete("transfers_waiting", WAITING),
    InsertTransferEnded = insert("transfers_ended", TRANSFERS_ENDED),
    DeleteTransferEnded = delete("transfers_ended", TRANSFERS_ENDED),
    DeleteTransfer = delete("transfers", "transfer_id"),
    DeleteTransfersByDay = delete("transfers_by_day", COIN_DAY),
    DeleteTransfersEnded = delete("transfers_ended", COIN_DAY_ENDED),
    InsertTransferAttempt =
        insert("transfers", &format!("transfer_id, {ATTEMPT}, attempt_record")),
    InsertChain = insert("chains", "blockchain, lane, record"),
    InsertListPartition =
        insert("list_partitions", &format!("{LIST_PARTITIONS}, written_at")),
    DeleteListPartition = delete("list_partitions", LIST_PARTITIONS),
    InsertWallet = insert("wallets", "part, wallet"),
    InsertPruned = insert("pruned", "part, created_before"),
    InsertOrigin = insert("origin", "part, installation, incarnation"),
    InsertPosition = insert("positions", "part, topic, partition, next"),
    SelectOrder = select("record, attempted_at, counted, delivered", "orders", "order_id"),
    SelectWholeOrder = select("record, attempt_record", "orders", "order_id"),
    SelectWholeTransfer = select("record, attempt_record", "transfers", "transfer_id"),
    SelectOrderAttempts = select("attempt_record", "orders", "order_id"),
    SelectTransferAttempts = select("attempt_record", "transfers", "transfer_id"),
    SelectOrdersByDay = orders("orders_by_day", DAY),
    SelectOrdersByDayBefore = before(orders("orders_by_day", DAY), "created_at, order_id"),
    SelectOrdersPending = orders("orders_pending", DAY),
    SelectOrdersPendingBefore = before(orders("orders_pending", DAY), "created_at, order_id"),
    SelectOrdersPendingWithin = within(orders("orders_pending", DAY), "created_at"),
    SelectOrdersEnded = orders("orders_ended", DAY_ENDED),
    SelectOrdersEndedBefore = before(orders("orders_ended", DAY_ENDED), "created_at, order_id"),
    SelectOrdersByReference = orders_by_reference(),
    SelectOrdersByReferenceBefore = before(orders_by_reference(), "created_at, order_id"),
    SelectDepositsOpen = deposits("deposits_open", "bucket, shard"),
    SelectDepositsOpenBefore =
        before(deposits("deposits_open", "bucket, shard"), "started_at, deposit_id"),
    SelectDepositsOpenWithin = within(deposits("deposits_open", "bucket, shard"), "started_at"),
    SelectDepositsByOrder = deposits("deposits_open_by_order", "order_id"),
    SelectDepositsByOrderBefore =
        before(deposits("deposits_open_by_order", "order_id"), "started_at, deposit_id"),
    SelectDepositRecords = select("record", "deposits_open", "bucket, shard"),
    SelectDeposit = select("record", "deposits_open", OPEN),
    SelectTransfer = select("record", "transfers", "transfer_id"),
    SelectTransfersByDay = transfers("transfers_by_day", COIN_DAY),
    SelectTransfersByDayBefore =
        before(transfers("transfers_by_day", COIN_DAY), "created_at, transfer_id"),
    SelectTransfersWaiting = transfers_waiting(),
    SelectTransfersWaitingBefore = before(transfers_waiting(), "created_at, transfer_id"),
    SelectTransfersWaitingWithin = within(transfers_waiting(), "created_at"),
    SelectTransfersEnded = transfers("transfers_ended", COIN_DAY_ENDED),
    SelectTransfersEndedBefore =
        before(transfers("transfers_ended", COIN_DAY_ENDED), "created_at, transfer_id"),
    SelectChain = select("record", "chains", "blockchain"),
    SelectListPartitions = format!(
        "{} AND bucket >= ? AND bucket <= ?",
        select("bucket, blockchain, coin, shard, written_at", "list_partitions", "list, stage")
    ),
    SelectWallets = select("wallet", "wallets", "part"),
    ScanOrders = scan("order_id, record, attempt_record", "orders"),
    ScanTransfers = scan("transfer_id, record, attempt_record", "transfers"),
    ScanChains = scan("record", "chains"),
    SelectPruned = select("created_before", "pruned", "part"),
    SelectOrigin = select("installation, incarnation, writetime(incarnation)", "origin", "part"),
    SelectPositions = select("topic, partition, next, writetime(next)", "positions", "part"),
}

impl Statement {
    /// Number of values that are bound.
    #[cfg(test)]
    pub(super) fn values(self) -> usize {
        self.text().matches('?').count()
    }
}

fn insert(table: &str, columns: &str) -> String {
    let values = vec!["?"; columns.split(", ").count()].join(", ");
    format!("INSERT INTO {KEYSPACE}.{table} ({columns}) VALUES ({values}) USING TIMESTAMP ?")
}

fn delete(table: &str, key: &str) -> String {
    format!("DELETE FROM {KEYSPACE}.{table} USING TIMESTAMP ? WHERE {}", equal(key))
}

fn select(columns: &str, table: &str, key: &str) -> String {
    format!("SELECT {columns} FROM {KEYSPACE}.{table} WHERE {}", equal(key))
}

/// Full scan of a table; may take hours.
fn scan(columns: &str, table: &str) -> String {
    format!("SELECT {columns} FROM {KEYSPACE}.{table}")
}

fn orders(table: &str, key: &str) -> String {
    select("created_at, order_id", table, key)
}

fn orders_by_reference() -> String {
    select("created_at, order_id, status", "orders_by_reference", "merchant_order_id, bucket")
}

fn deposits(table: &str, key: &str) -> String {
    select("started_at, deposit_id, blockchain, coin", table, key)
}

fn transfers(table: &str, key: &str) -> String {
    select("created_at, transfer_id", table, key)
}

fn transfers_waiting() -> String {
    let columns = "created_at, transfer_id, status, blockchain, coin";
    select(columns, "transfers_waiting", "wallet, bucket, shard")
}

/// The rows of a partition after a position in its order, which is descending.
fn before(select: String, order: &str) -> String {
    format!("{select} AND ({order}) < (?, ?)")
}

/// The rows of a partition from a second on, before another.
fn within(select: String, time: &str) -> String {
    format!("{select} AND {time} >= ? AND {time} < ?")
}

fn equal(key: &str) -> String {
    key.split(", ").map(|column| format!("{column} = ?")).collect::<Vec<_>>().join(" AND ")
}

/// The statements, prepared on the nodes.
#[derive(Debug)]
pub(super) struct Prepared {
    statements: Vec<PreparedStatement>,
    writes: ExecutionProfileHandle,
}

impl Prepared {
    /// Prepares all statements.
    ///
    /// # Errors
    /// [`Error::Transient`] if the nodes are unavailable; [`Error::Fatal`] if they lack a table.
    pub(super) async fn new(session: &Session, keyspace: &str) -> Result<Self, Error> {
        let reads = profile(session, READ_TIMEOUT, SECOND_READ_AFTER);
        let writes = profile(session, WRITE_TIMEOUT, SECOND_WRITE_AFTER);
        let mut prepared = Vec::with_capacity(ALL.len());
        for text in ALL.iter().map(|statement| statement.text()) {
            let profile = if text.starts_with("SELECT") { &reads } else { &writes };
            let text = Text::new(text.replace(KEYSPACE, keyspace));
            let mut statement = session.prepare(text).await?;
            // Versions make every write idempotent.
            statement.set_is_idempotent(true);
            statement.set_execution_profile_handle(Some(profile.clone()));
            prepared.push(statement);
        }
        Ok(Self { statements: prepared, writes })
    }

    pub(super) fn get(&self, statement: Statement) -> &PreparedStatement {
        &self.statements[statement as usize]
    }

    /// A batch of one statement for `rows` rows of one partition: one mutation and one request.
    pub(super) fn batch(&self, statement: Statement, rows: usize) -> Batch {
        let one = BatchStatement::PreparedStatement(self.get(statement).clone());
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, vec![one; rows]);
        batch.set_is_idempotent(true);
        batch.set_execution_profile_handle(Some(self.writes.clone()));
        batch
    }
}

/// The session's profile with this time-out, and with speculative execution after `after`.
fn profile(session: &Session, timeout: Duration, after: Duration) -> ExecutionProfileHandle {
    let second = SimpleSpeculativeExecutionPolicy { max_retry_count: 1, retry_interval: after };
    let builder = session.get_default_execution_profile_handle().pointee_to_builder();
    builder
        .request_timeout(Some(timeout))
        .speculative_execution_policy(Some(Arc::new(second)))
        .build()
        .into_handle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_at_their_number() {
        for (position, statement) in ALL.iter().enumerate() {
            assert_eq!(*statement as usize, position);
        }
    }

    /// Both servers support these forms, and they give the same rows under any order of writes.
    #[test]
    fn writes_have_versions_reads_name_partitions() {
        for statement in ALL {
            let text = statement.text();
            let is_read = text.starts_with("SELECT");
            assert_eq!(text.contains("USING TIMESTAMP ?"), !is_read, "{statement:?}");
            let is_scan = format!("{statement:?}").starts_with("Scan");
            assert_eq!(is_read && !is_scan, text.contains(" WHERE ") && is_read, "{statement:?}");
            assert_eq!(text.matches(KEYSPACE).count(), 1, "{statement:?}");
            for word in ["ALLOW FILTERING", " IF ", "TTL", " IN ", "OFFSET"] {
                assert!(!text.contains(word), "{statement:?} has {word}");
            }
        }
    }
}
