//! Every statement, prepared once for each connection to the tables.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::statement::Statement as Text;
use scylla::statement::prepared::PreparedStatement;

use super::fault;
use crate::Error;

/// How long a read may take, with the driver's own retries.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a write may take: batches of many wait for each other.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What may be asked of the tables. Values are bound in the order of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statement {
    InsertOrder,
    InsertOrderListed,
    DeleteOrderListed,
    InsertOrderByReference,
    InsertDepositOpen,
    DeleteDepositOpen,
    InsertDepositByOrder,
    DeleteDepositByOrder,
    InsertTransfer,
    InsertTransferListed,
    DeleteTransferListed,
    InsertAttempt,
    InsertChain,
    InsertListPartition,
    SelectOrder,
    SelectAttempts,
    SelectOrdersListed,
    SelectOrdersByReference,
    SelectDepositsOpen,
    SelectDepositsByOrder,
    SelectDeposit,
    SelectTransfer,
    SelectTransfersListed,
    SelectChain,
    SelectListPartitions,
}

/// All of them, each at its number.
const ALL: [Statement; 25] = [
    Statement::InsertOrder,
    Statement::InsertOrderListed,
    Statement::DeleteOrderListed,
    Statement::InsertOrderByReference,
    Statement::InsertDepositOpen,
    Statement::DeleteDepositOpen,
    Statement::InsertDepositByOrder,
    Statement::DeleteDepositByOrder,
    Statement::InsertTransfer,
    Statement::InsertTransferListed,
    Statement::DeleteTransferListed,
    Statement::InsertAttempt,
    Statement::InsertChain,
    Statement::InsertListPartition,
    Statement::SelectOrder,
    Statement::SelectAttempts,
    Statement::SelectOrdersListed,
    Statement::SelectOrdersByReference,
    Statement::SelectDepositsOpen,
    Statement::SelectDepositsByOrder,
    Statement::SelectDeposit,
    Statement::SelectTransfer,
    Statement::SelectTransfersListed,
    Statement::SelectChain,
    Statement::SelectListPartitions,
];

impl Statement {
    #[expect(clippy::too_many_lines, reason = "a table, one row for each statement")]
    const fn text(self) -> &'static str {
        match self {
            Self::InsertOrder => {
                "INSERT INTO orders (order_id, record) VALUES (?, ?) USING TIMESTAMP ?"
            }
            Self::InsertOrderListed => {
                "INSERT INTO orders_listed (status, bucket, shard, created_at, order_id) \
                 VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
            }
            Self::DeleteOrderListed => {
                "DELETE FROM orders_listed USING TIMESTAMP ? \
                 WHERE status = ? AND bucket = ? AND shard = ? AND created_at = ? AND order_id = ?"
            }
            Self::InsertOrderByReference => {
                "INSERT INTO orders_by_reference \
                 (merchant_order_id, bucket, created_at, order_id, status) VALUES (?, ?, ?, ?, ?) \
                 USING TIMESTAMP ?"
            }
            Self::InsertDepositOpen => {
                "INSERT INTO deposits_open \
                 (shard, started_at, deposit_id, blockchain, coin, record) \
                 VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
            }
            Self::DeleteDepositOpen => {
                "DELETE FROM deposits_open USING TIMESTAMP ? \
                 WHERE shard = ? AND started_at = ? AND deposit_id = ?"
            }
            Self::InsertDepositByOrder => {
                "INSERT INTO deposits_open_by_order \
                 (order_id, started_at, deposit_id, blockchain, coin) VALUES (?, ?, ?, ?, ?) \
                 USING TIMESTAMP ?"
            }
            Self::DeleteDepositByOrder => {
                "DELETE FROM deposits_open_by_order USING TIMESTAMP ? \
                 WHERE order_id = ? AND started_at = ? AND deposit_id = ?"
            }
            Self::InsertTransfer => {
                "INSERT INTO transfers (transfer_id, record) VALUES (?, ?) USING TIMESTAMP ?"
            }
            Self::InsertTransferListed => {
                "INSERT INTO transfers_listed \
                 (wallet, stage, blockchain, coin, bucket, shard, created_at, transfer_id, status) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
            }
            Self::DeleteTransferListed => {
                "DELETE FROM transfers_listed USING TIMESTAMP ? \
                 WHERE wallet = ? AND stage = ? AND blockchain = ? AND coin = ? AND bucket = ? \
                 AND shard = ? AND created_at = ? AND transfer_id = ?"
            }
            Self::InsertAttempt => {
                "INSERT INTO attempts \
                 (subject, event_id, attempt, manual, attempted_at, delivered, record) \
                 VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
            }
            Self::InsertChain => {
                "INSERT INTO chains (blockchain, record) VALUES (?, ?) USING TIMESTAMP ?"
            }
            Self::InsertListPartition => {
                "INSERT INTO list_partitions \
                 (list, bucket, stage, blockchain, coin, shard) VALUES (?, ?, ?, ?, ?, ?) \
                 USING TIMESTAMP ?"
            }
            Self::SelectOrder => "SELECT record FROM orders WHERE order_id = ?",
            Self::SelectAttempts => {
                "SELECT attempted_at, delivered FROM attempts WHERE subject = ?"
            }
            Self::SelectOrdersListed => {
                "SELECT created_at, order_id FROM orders_listed \
                 WHERE status = ? AND bucket = ? AND shard = ?"
            }
            Self::SelectOrdersByReference => {
                "SELECT created_at, order_id, status FROM orders_by_reference \
                 WHERE merchant_order_id = ? AND bucket = ?"
            }
            Self::SelectDepositsOpen => {
                "SELECT started_at, deposit_id, blockchain, coin FROM deposits_open \
                 WHERE shard = ?"
            }
            Self::SelectDepositsByOrder => {
                "SELECT started_at, deposit_id, blockchain, coin \
                 FROM deposits_open_by_order WHERE order_id = ?"
            }
            Self::SelectDeposit => {
                "SELECT record FROM deposits_open \
                 WHERE shard = ? AND started_at = ? AND deposit_id = ?"
            }
            Self::SelectTransfer => "SELECT record FROM transfers WHERE transfer_id = ?",
            Self::SelectTransfersListed => {
                "SELECT created_at, transfer_id, status FROM transfers_listed \
                 WHERE wallet = ? AND stage = ? AND blockchain = ? AND coin = ? AND bucket = ? \
                 AND shard = ?"
            }
            Self::SelectChain => "SELECT record FROM chains WHERE blockchain = ?",
            Self::SelectListPartitions => {
                "SELECT bucket, stage, blockchain, coin, shard FROM list_partitions \
                 WHERE list = ?"
            }
        }
    }
}

/// The statements as the nodes know them.
#[derive(Debug)]
pub(super) struct Prepared(Vec<PreparedStatement>);

impl Prepared {
    /// Prepares all of them.
    ///
    /// # Errors
    /// [`Error::Transient`] if the nodes cannot be asked; [`Error::Fatal`] if they know no such
    /// table.
    pub(super) async fn new(session: &Session) -> Result<Self, Error> {
        let mut prepared = Vec::with_capacity(ALL.len());
        for text in ALL.map(Statement::text) {
            let is_read = text.starts_with("SELECT");
            let mut statement = session
                .prepare(Text::new(text))
                .await
                .map_err(|cause| fault::of_prepare(&cause))?;
            // Versions make every write one that may be done twice.
            statement.set_is_idempotent(true);
            let timeout = if is_read { READ_TIMEOUT } else { WRITE_TIMEOUT };
            statement.set_request_timeout(Some(timeout));
            prepared.push(statement);
        }
        Ok(Self(prepared))
    }

    /// One of them.
    pub(super) fn get(&self, statement: Statement) -> Result<&PreparedStatement, Error> {
        let missing = || Error::Fatal(format!("{statement:?} was not prepared"));
        self.0.get(statement as usize).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_at_their_number() {
        for (position, statement) in ALL.into_iter().enumerate() {
            assert_eq!(statement as usize, position);
        }
    }

    /// What both servers offer and keeps its promise under any order of writes.
    #[test]
    fn every_write_carries_its_version_and_every_read_names_its_partition() {
        for statement in ALL {
            let text = statement.text();
            let is_read = text.starts_with("SELECT");
            assert_eq!(text.contains("USING TIMESTAMP ?"), !is_read, "{statement:?}");
            assert!(!is_read || text.contains(" WHERE "), "{statement:?} reads a whole table");
            for word in ["ALLOW FILTERING", " IF ", "TTL", " IN ", "OFFSET"] {
                assert!(!text.contains(word), "{statement:?} has {word}");
            }
        }
    }
}
