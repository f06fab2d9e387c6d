//! Every statement, prepared once for each connection to the tables.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::statement::Statement as Text;
use scylla::statement::prepared::PreparedStatement;

use crate::Error;

/// How long a read may take, with the driver's own retries.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a write may take: batches of many wait for each other.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long a read is also asked of another node, whose answer counts if it comes first: a node that hangs
/// costs its callers this, not their whole time.
const SECOND_READ_AFTER: Duration = Duration::from_millis(50);
/// As for reads: later, because it doubles the load of servers that are only slow.
const SECOND_WRITE_AFTER: Duration = Duration::from_millis(250);
/// In the texts, for the keyspace. A session has none of its own: servers of different versions in one cluster would
/// prepare unqualified statements again and again.
const KEYSPACE: &str = "$keyspace";

/// The keys that a row is both written and deleted by.
const ORDERS_LISTED: &str = "status, bucket, shard, created_at, order_id";
const TRANSFERS_LISTED: &str =
    "wallet, stage, blockchain, coin, bucket, shard, created_at, transfer_id";

macro_rules! statements {
    ($($name:ident = $text:expr,)+) => {
        /// What may be asked of the tables. Values are bound in the order of the columns; a write's
        /// timestamp is its last value, a deletion's its first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Statement { $($name,)+ }

        /// All of them, each at its number.
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
    InsertOrderListed = insert("orders_listed", ORDERS_LISTED),
    DeleteOrderListed = delete("orders_listed", ORDERS_LISTED),
    InsertOrderByReference =
        insert("orders_by_reference", "merchant_order_id, bucket, created_at, order_id, status"),
    InsertDepositOpen =
        insert("deposits_open", "shard, started_at, deposit_id, blockchain, coin, record"),
    DeleteDepositOpen = delete("deposits_open", "shard, started_at, deposit_id"),
    InsertDepositByOrder =
        insert("deposits_open_by_order", "order_id, started_at, deposit_id, blockchain, coin"),
    DeleteDepositByOrder = delete("deposits_open_by_order", "order_id, started_at, deposit_id"),
    InsertTransfer = insert("transfers", "transfer_id, record"),
    InsertTransferListed = insert("transfers_listed", &format!("{TRANSFERS_LISTED}, status")),
    DeleteTransferListed = delete("transfers_listed", TRANSFERS_LISTED),
    InsertAttempt = insert(
        "attempts",
        "subject, event_id, attempt, manual, attempted_at, counted, delivered, record",
    ),
    InsertChain = insert("chains", "blockchain, lane, record"),
    InsertListPartition =
        insert("list_partitions", "list, bucket, stage, blockchain, coin, shard"),
    SelectOrder = select("record", "orders", "order_id"),
    SelectAttempts = select("record", "attempts", "subject"),
    SelectAttemptTimes = select("attempted_at, counted, delivered", "attempts", "subject"),
    SelectOrdersListed = orders_listed(),
    SelectOrdersListedBefore = before(orders_listed(), "created_at, order_id"),
    SelectOrdersByReference = orders_by_reference(),
    SelectOrdersByReferenceBefore = before(orders_by_reference(), "created_at, order_id"),
    SelectDepositsOpen = deposits("deposits_open", "shard"),
    SelectDepositsOpenBefore = before(deposits("deposits_open", "shard"), "started_at, deposit_id"),
    SelectDepositsByOrder = deposits("deposits_open_by_order", "order_id"),
    SelectDepositsByOrderBefore =
        before(deposits("deposits_open_by_order", "order_id"), "started_at, deposit_id"),
    SelectDeposit = select("record", "deposits_open", "shard, started_at, deposit_id"),
    SelectTransfer = select("record", "transfers", "transfer_id"),
    SelectTransfersListed = transfers_listed(),
    SelectTransfersListedBefore = before(transfers_listed(), "created_at, transfer_id"),
    SelectChain = select("record", "chains", "blockchain"),
    SelectListPartitions =
        select("bucket, stage, blockchain, coin, shard", "list_partitions", "list"),
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

fn orders_listed() -> String {
    select("created_at, order_id", "orders_listed", "status, bucket, shard")
}

fn orders_by_reference() -> String {
    select("created_at, order_id, status", "orders_by_reference", "merchant_order_id, bucket")
}

fn deposits(table: &str, key: &str) -> String {
    select("started_at, deposit_id, blockchain, coin", table, key)
}

fn transfers_listed() -> String {
    let key = "wallet, stage, blockchain, coin, bucket, shard";
    select("created_at, transfer_id, status", "transfers_listed", key)
}

/// The rows of a partition after a position in its order, which is descending.
fn before(select: String, order: &str) -> String {
    format!("{select} AND ({order}) < (?, ?)")
}

fn equal(key: &str) -> String {
    key.split(", ").map(|column| format!("{column} = ?")).collect::<Vec<_>>().join(" AND ")
}

/// The statements as the nodes know them.
#[derive(Debug)]
pub(super) struct Prepared(Vec<PreparedStatement>);

impl Prepared {
    /// # Errors
    /// [`Error::Transient`] if the nodes cannot be asked; [`Error::Fatal`] if they know no such
    /// table.
    pub(super) async fn new(session: &Session, keyspace: &str) -> Result<Self, Error> {
        let reads = profile(session, READ_TIMEOUT, SECOND_READ_AFTER);
        let writes = profile(session, WRITE_TIMEOUT, SECOND_WRITE_AFTER);
        let mut prepared = Vec::with_capacity(ALL.len());
        for text in ALL.iter().map(|statement| statement.text()) {
            let profile = if text.starts_with("SELECT") { &reads } else { &writes };
            let text = Text::new(text.replace(KEYSPACE, keyspace));
            let mut statement = session.prepare(text).await?;
            // Versions make every write one that may be repeated.
            statement.set_is_idempotent(true);
            statement.set_execution_profile_handle(Some(profile.clone()));
            prepared.push(statement);
        }
        Ok(Self(prepared))
    }

    pub(super) fn get(&self, statement: Statement) -> &PreparedStatement {
        &self.0[statement as usize]
    }
}

/// As the session's statements, but for the time that it takes.
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
    fn every_write_carries_its_version_and_every_read_names_its_partition() {
        for statement in ALL {
            let text = statement.text();
            let is_read = text.starts_with("SELECT");
            assert_eq!(text.contains("USING TIMESTAMP ?"), !is_read, "{statement:?}");
            assert!(!is_read || text.contains(" WHERE "), "{statement:?} reads a whole table");
            assert_eq!(text.matches(KEYSPACE).count(), 1, "{statement:?}");
            for word in ["ALLOW FILTERING", " IF ", "TTL", " IN ", "OFFSET"] {
                assert!(!text.contains(word), "{statement:?} has {word}");
            }
        }
    }
}
