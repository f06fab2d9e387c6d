//! Changes as writes, which give the same rows in any order. Pure.

use std::collections::{BTreeMap, BTreeSet};

use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer};
use schemas::{Address, AttemptOutcome, DepositState, OrderId, UnixMicros, encode};
use scylla::value::CqlValue::{self, BigInt, Blob, Boolean, Int, Text};

use super::list_partition::{self, ListPartition};
use super::statement::Statement;
use crate::row::lane_key;
use crate::{Change, Error};

const BATCH_ROWS_MAX: usize = 100;
/// Approximate maximum bytes of one batch: both servers refuse large ones, Cassandra those of several
/// partitions only.
const BATCH_BYTES_MAX: usize = 48 * 1024;

/// Rows of one partition, written by one statement in one request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Write {
    pub(super) statement: Statement,
    pub(super) rows: Vec<Vec<CqlValue>>,
}

/// Writes of one call of [`crate::Store::apply`].
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) inserts: Vec<Write>,
    /// Run when the inserts are done: a row that moves is in two partitions for a moment, but never
    /// in none.
    pub(super) deletes: Vec<Write>,
    /// Partitions that must be in the directory.
    pub(super) partitions: BTreeSet<ListPartition>,
    /// Wallets that have lists.
    pub(super) wallets: BTreeSet<Address>,
    /// Rows to insert, by partition: those of one partition are written in batches.
    entering: BTreeMap<ListPartition, Vec<Vec<CqlValue>>>,
    /// Rows to delete, by partition and statement.
    leaving: BTreeMap<(ListPartition, Statement), Vec<Vec<CqlValue>>>,
}

impl Writes {
    pub(super) fn of(changes: &[Change]) -> Result<Self, Error> {
        let mut writes = Self::default();
        for change in changes {
            match change {
                Change::Order(order) => writes.order(order)?,
                Change::Deposit(deposit) => writes.deposit(deposit)?,
                Change::Transfer(transfer) => writes.transfer(transfer)?,
                Change::Attempt(attempt) => writes.attempt(attempt)?,
                Change::Chain(chain) => writes.chain(chain)?,
            }
        }
        for (partition, rows) in std::mem::take(&mut writes.entering) {
            let statement = partition.table().insert;
            writes.inserts.extend(batches(rows).map(|rows| Write { statement, rows }));
            writes.partitions.insert(partition);
        }
        for ((_, statement), rows) in std::mem::take(&mut writes.leaving) {
            writes.deletes.extend(batches(rows).map(|rows| Write { statement, rows }));
        }
        Ok(writes)
    }

    /// Inserts one row by its own request, without a batch.
    fn insert(&mut self, statement: Statement, version: UnixMicros, row: Vec<CqlValue>) {
        let rows = vec![[row, vec![BigInt(version.0)]].concat()];
        self.inserts.push(Write { statement, rows });
    }

    /// Inserts a row of a list.
    fn enter(&mut self, partition: ListPartition, version: UnixMicros, row: &[CqlValue]) {
        let row = entering(&partition, version, row);
        self.entering.entry(partition).or_default().push(row);
    }

    /// Deletes a row of a list.
    fn leave(&mut self, partition: ListPartition, version: UnixMicros, row: &[CqlValue]) {
        if let Some((statement, row)) = leaving(&partition, version, row) {
            self.leaving.entry((partition, statement)).or_default().push(row);
        }
    }

    fn order(&mut self, order: &Order) -> Result<(), Error> {
        let version = order.updated_at;
        let row = [BigInt(order.created_at.0), order_key(order.order_id)];
        let whole = vec![CqlValue::Uuid(order.order_id.0), Blob(encode(order)?)];
        self.insert(Statement::InsertOrder, version, whole);
        self.enter(ListPartition::of_order(order), version, &row);
        self.enter(ListPartition::of_status(order, order.status), version, &row);
        for left in list_partition::statuses_left(order) {
            self.leave(ListPartition::of_status(order, *left), version, &row);
        }
        let reference = ListPartition::of_reference(order);
        let mut by_reference = vec![Text(order.merchant_order_id.clone()), Int(reference.bucket)];
        by_reference.extend(row);
        by_reference.push(word(order.status.as_str()));
        self.insert(Statement::InsertOrderByReference, version, by_reference);
        self.partitions.insert(reference);
        Ok(())
    }

    fn deposit(&mut self, deposit: &Deposit) -> Result<(), Error> {
        let version = deposit.updated_at;
        let partition = ListPartition::of_deposit(deposit);
        let row = [BigInt(deposit.started_at.0), BigInt(deposit.deposit_id.0)];
        let by_order = [&[CqlValue::Uuid(deposit.order_id.0)], &row[..]].concat();
        match deposit.state {
            DepositState::Open => {
                let filters = [deposit.blockchain.as_str(), deposit.stablecoin.as_str()].map(word);
                let open = [&row[..], &filters, &[Blob(encode(deposit)?)]].concat();
                self.enter(partition, version, &open);
                let by_order = [&by_order[..], &filters].concat();
                self.insert(Statement::InsertDepositByOrder, version, by_order);
            }
            // Deleted even if it was not inserted yet: its older record may be applied later.
            DepositState::Requested
            | DepositState::Replaced
            | DepositState::Closed
            | DepositState::Refused => {
                self.leave(partition, version, &row);
                let rows = vec![[vec![BigInt(version.0)], by_order].concat()];
                self.deletes.push(Write { statement: Statement::DeleteDepositByOrder, rows });
            }
        }
        Ok(())
    }

    fn transfer(&mut self, transfer: &Transfer) -> Result<(), Error> {
        let version = transfer.updated_at;
        let id = BigInt(transfer.transfer_id.0);
        let row = [BigInt(transfer.created_at.0), id.clone()];
        self.insert(Statement::InsertTransfer, version, vec![id, Blob(encode(transfer)?)]);
        self.enter(ListPartition::of_transfer(transfer), version, &row);
        if list_partition::is_waiting(transfer.status) {
            let filters = [
                transfer.status.as_str(),
                transfer.blockchain.as_str(),
                transfer.observation.stablecoin.as_str(),
            ];
            let row = [&row[..], &filters.map(word)].concat();
            self.enter(ListPartition::of_waiting(transfer), version, &row);
        } else {
            self.enter(ListPartition::of_ended(transfer, transfer.status), version, &row);
            self.leave(ListPartition::of_waiting(transfer), version, &row);
            if let Some(left) = list_partition::ends_left(transfer) {
                self.leave(ListPartition::of_ended(transfer, left), version, &row);
            }
        }
        self.wallets.insert(transfer.observation.to_address);
        Ok(())
    }

    /// An attempt without a subject gets no row: no query would find it.
    fn attempt(&mut self, attempt: &Attempt) -> Result<(), Error> {
        let version = attempt.attempted_at;
        let key = [Text(attempt.event_id.clone()), Int(attempt.attempt), Boolean(attempt.manual)];
        let record = [Blob(encode(attempt)?)];
        match (attempt.order_id, attempt.transfer_id) {
            (Some(order), _) => {
                let counts = [
                    BigInt(attempt.attempted_at.0),
                    Boolean(attempt.outcome.is_request()),
                    Boolean(attempt.outcome == AttemptOutcome::Delivered),
                ];
                let row = [&[CqlValue::Uuid(order.0)], &key[..], &counts, &record].concat();
                self.insert(Statement::InsertOrderAttempt, version, row);
            }
            (None, Some(transfer)) => {
                let row = [&[BigInt(transfer.0)], &key[..], &record].concat();
                self.insert(Statement::InsertTransferAttempt, version, row);
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn chain(&mut self, chain: &ChainProgress) -> Result<(), Error> {
        let lane = Int(lane_key(chain.lane));
        let row = vec![word(chain.blockchain.as_str()), lane, Blob(encode(chain)?)];
        self.insert(Statement::InsertChain, chain.updated_at, row);
        Ok(())
    }
}

/// Returns the values that insert a row into a partition of a list.
pub(super) fn entering(
    partition: &ListPartition,
    version: UnixMicros,
    row: &[CqlValue],
) -> Vec<CqlValue> {
    [&partition.key()[..], row, &[BigInt(version.0)]].concat()
}

/// Returns the deletion of a row from a partition, by its key; none where rows do not leave one by one.
pub(super) fn leaving(
    partition: &ListPartition,
    version: UnixMicros,
    key: &[CqlValue],
) -> Option<(Statement, Vec<CqlValue>)> {
    let row = || [&[BigInt(version.0)], &partition.key()[..], key].concat();
    partition.table().leave.map(|statement| (statement, row()))
}

/// Directory rows, and the wallets.
pub(super) fn directory(
    partitions: &[ListPartition],
    wallets: &BTreeSet<Address>,
    now: UnixMicros,
) -> Vec<Write> {
    let at = BigInt(now.0);
    let row =
        |ListPartition { list, stage, bucket, blockchain, stablecoin, shard }: &ListPartition| {
            let texts = [list, stage, blockchain, stablecoin].map(|text| Text(text.clone()));
            let [list, stage, blockchain, stablecoin] = texts;
            let row = [list, stage, Int(*bucket), blockchain, stablecoin, Int(*shard)];
            let rows = vec![[&row[..], &[at.clone(), at.clone()]].concat()];
            Write { statement: Statement::InsertListPartition, rows }
        };
    let wallet = |wallet: &Address| vec![Int(0), Text(list_partition::wallet(*wallet)), at.clone()];
    let wallets = wallets.iter().map(wallet).collect();
    let wallets = batches(wallets).map(|rows| Write { statement: Statement::InsertWallet, rows });
    partitions.iter().map(row).chain(wallets).collect()
}

/// Splits rows into batches within limits.
fn batches(rows: Vec<Vec<CqlValue>>) -> impl Iterator<Item = Vec<Vec<CqlValue>>> {
    let mut rows = rows.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = vec![rows.next()?];
        let mut bytes = size(&part[0]);
        while part.len() < BATCH_ROWS_MAX
            && let Some(row) = rows.next_if(|row| bytes + size(row) <= BATCH_BYTES_MAX)
        {
            bytes += size(&row);
            part.push(row);
        }
        Some(part)
    })
}

/// Approximate bytes of a row in a request.
fn size(row: &[CqlValue]) -> usize {
    let value = |value: &CqlValue| {
        let bytes = value.as_blob().map(Vec::len).or_else(|| value.as_text().map(String::len));
        bytes.unwrap_or(8)
    };
    row.iter().map(|column| 4 + value(column)).sum::<usize>() + 24
}

/// An order's id as lists have it.
pub(super) fn order_key(id: OrderId) -> CqlValue {
    Blob(id.0.as_bytes().to_vec())
}

/// A word of a closed vocabulary.
pub(super) fn word(text: &'static str) -> CqlValue {
    Text(text.to_owned())
}

#[cfg(test)]
mod tests {
    use schemas::record::example;
    use schemas::{OrderStatus, TransferId, TransferStatus};

    use super::*;

    fn statements(writes: &[Write]) -> Vec<Statement> {
        writes.iter().map(|write| write.statement).collect()
    }

    #[test]
    fn every_write_has_the_version_of_its_record() {
        let changes = [
            Change::Order(Order { status: OrderStatus::Paid, ..example::order() }),
            Change::Deposit(example::deposit()),
            Change::Deposit(Deposit { state: DepositState::Closed, ..example::deposit() }),
            Change::Transfer(Transfer { status: TransferStatus::Matched, ..example::transfer() }),
            Change::Attempt(example::attempt()),
            Change::Chain(example::chain_progress()),
        ];
        for change in changes {
            let version = BigInt(change.written_at().0);
            let writes = Writes::of(&[change]).unwrap();
            for row in writes.inserts.iter().flat_map(|write| &write.rows) {
                assert_eq!(row.last(), Some(&version));
            }
            for row in writes.deletes.iter().flat_map(|write| &write.rows) {
                assert_eq!(row.first(), Some(&version));
            }
            assert!(!writes.inserts.is_empty() || !writes.deletes.is_empty());
        }
    }

    #[test]
    fn closing_deletes_a_deposit_never_seen_open() {
        let closed = Deposit { state: DepositState::Closed, ..example::deposit() };
        let writes = Writes::of(&[Change::Deposit(closed)]).unwrap();
        assert_eq!(writes.inserts, []);
        let both = [Statement::DeleteDepositByOrder, Statement::DeleteDepositOpen];
        assert_eq!(statements(&writes.deletes), both);
    }

    #[test]
    fn rows_of_one_partition_are_written_together() {
        let paid = |number: i64| {
            let (transfer_id, updated_at) = (TransferId(number * 4), UnixMicros(number));
            let status = TransferStatus::Matched;
            Change::Transfer(Transfer { transfer_id, status, updated_at, ..example::transfer() })
        };
        let writes = Writes::of(&(1..=9).map(paid).collect::<Vec<_>>()).unwrap();
        let rows = |statement| -> Vec<usize> {
            let all = writes.inserts.iter().chain(&writes.deletes);
            all.filter(|write| write.statement == statement).map(|w| w.rows.len()).collect()
        };
        assert_eq!(rows(Statement::InsertTransfer), [1; 9], "each has a partition of its own");
        assert_eq!(rows(Statement::InsertTransferByDay), [9]);
        assert_eq!(rows(Statement::InsertTransferEnded), [9]);
        assert_eq!(rows(Statement::DeleteTransferWaiting), [9]);
        assert_eq!(writes.partitions.len(), 2, "each enters the directory once a call");
    }

    #[test]
    fn batches_are_bounded_and_lose_no_row() {
        let row = |bytes: usize| vec![Blob(vec![7; bytes])];
        let lengths = |rows: Vec<_>| batches(rows).map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(lengths(vec![row(10); 250]), [100, 100, 50]);
        assert_eq!(lengths(vec![row(20_000); 5]), [2, 2, 1]);
        assert_eq!(lengths(vec![row(90_000), row(1), row(1)]), [1, 2], "a large row goes alone");
        assert_eq!(lengths(Vec::new()), [0; 0]);
    }

    /// No row is written and deleted by one record: at one write time, the deletion would win.
    #[test]
    fn no_record_deletes_what_it_writes() {
        for (status, paid_by) in [
            (OrderStatus::Pending, None),
            (OrderStatus::Expired, None),
            (OrderStatus::Paid, None),
            (OrderStatus::Paid, Some(TransferId(7))),
        ] {
            let order = Order { status, paid_by, ..example::order() };
            let writes = Writes::of(&[Change::Order(order)]).unwrap();
            let written =
                |statement| writes.inserts.iter().filter(move |w| w.statement == statement);
            for left in &writes.deletes {
                let same = if left.statement == Statement::DeleteOrderPending {
                    Statement::InsertOrderPending
                } else {
                    Statement::InsertOrderEnded
                };
                for own in written(same) {
                    let key = own.rows[0].len() - 1;
                    assert_ne!(own.rows[0][..key], left.rows[0][1..], "{status}");
                }
            }
        }
    }
}
