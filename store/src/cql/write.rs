//! Changes as writes, each of them alone and in any order harmless. Pure.

use std::collections::BTreeSet;

use schemas::record::{Attempt, ChainProgress, Deposit, Order, Record, Transfer};
use schemas::{AttemptOutcome, DepositState, OrderId, encode};
use scylla::value::CqlValue;

use super::place::{self, Place};
use super::statement::Statement;
use crate::{Change, Error};

/// When directory rows are written, as their only write time: they are never changed or deleted.
const DIRECTORY_VERSION: i64 = 1;

/// One statement with its values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Write {
    pub(super) statement: Statement,
    pub(super) values: Vec<CqlValue>,
}

/// What a call of [`crate::Store::apply`] writes.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Rows, and directory rows.
    pub(super) inserts: Vec<Write>,
    /// What is to go when the inserts are done: a row that moves is in two places for a moment, but
    /// never in none.
    pub(super) deletes: Vec<Write>,
}

impl Writes {
    /// The writes for changes.
    ///
    /// # Errors
    /// [`Error::Fatal`] if a record does not fit its schema, which is a defect of this program.
    pub(super) fn of(changes: &[Change]) -> Result<Self, Error> {
        let mut writes = Self::default();
        let mut places = BTreeSet::new();
        for change in changes {
            match change {
                Change::Order(order) => writes.order(order, &mut places)?,
                Change::Deposit(deposit) => writes.deposit(deposit)?,
                Change::Transfer(transfer) => writes.transfer(transfer, &mut places)?,
                Change::Attempt(attempt) => writes.attempt(attempt)?,
                Change::Chain(chain) => writes.chain(chain)?,
            }
        }
        for place in places {
            writes.insert(
                Statement::InsertListPartition,
                [
                    CqlValue::Text(place.list),
                    CqlValue::Int(place.bucket),
                    CqlValue::Text(place.stage),
                    CqlValue::Text(place.blockchain),
                    CqlValue::Text(place.stablecoin),
                    CqlValue::Int(place.shard),
                    CqlValue::BigInt(DIRECTORY_VERSION),
                ],
            );
        }
        Ok(writes)
    }

    fn insert<const N: usize>(&mut self, statement: Statement, values: [CqlValue; N]) {
        self.inserts.push(Write { statement, values: values.into() });
    }

    fn delete<const N: usize>(&mut self, statement: Statement, values: [CqlValue; N]) {
        self.deletes.push(Write { statement, values: values.into() });
    }

    fn order(&mut self, order: &Order, places: &mut BTreeSet<Place>) -> Result<(), Error> {
        let version = CqlValue::BigInt(order.updated_at.0);
        let created_at = CqlValue::BigInt(order.created_at.0);
        let id = || order_key(order.order_id);
        self.insert(
            Statement::InsertOrder,
            [CqlValue::Uuid(order.order_id.0), record(order)?, version.clone()],
        );
        let own = Place::of_order(order, order.status);
        self.insert(
            Statement::InsertOrderListed,
            [
                CqlValue::Text(own.stage.clone()),
                CqlValue::Int(own.bucket),
                CqlValue::Int(own.shard),
                created_at.clone(),
                id(),
                version.clone(),
            ],
        );
        for left in place::places_left(order) {
            self.delete(
                Statement::DeleteOrderListed,
                [
                    version.clone(),
                    CqlValue::Text(left.stage),
                    CqlValue::Int(left.bucket),
                    CqlValue::Int(left.shard),
                    created_at.clone(),
                    id(),
                ],
            );
        }
        let reference = Place::of_reference(order);
        self.insert(
            Statement::InsertOrderByReference,
            [
                CqlValue::Text(order.merchant_order_id.clone()),
                CqlValue::Int(reference.bucket),
                created_at,
                id(),
                word(order.status.as_str()),
                version,
            ],
        );
        places.extend([own, reference]);
        Ok(())
    }

    fn deposit(&mut self, deposit: &Deposit) -> Result<(), Error> {
        let version = CqlValue::BigInt(deposit.updated_at.0);
        let shard = CqlValue::Int(place::deposit_shard(deposit.deposit_id));
        let order = CqlValue::Uuid(deposit.order_id.0);
        let started_at = CqlValue::BigInt(deposit.started_at.0);
        let id = CqlValue::BigInt(deposit.deposit_id.0);
        match deposit.state {
            DepositState::Open => {
                let blockchain = word(deposit.blockchain.as_str());
                let stablecoin = word(deposit.stablecoin.as_str());
                self.insert(
                    Statement::InsertDepositOpen,
                    [
                        shard,
                        started_at.clone(),
                        id.clone(),
                        blockchain.clone(),
                        stablecoin.clone(),
                        record(deposit)?,
                        version.clone(),
                    ],
                );
                self.insert(
                    Statement::InsertDepositByOrder,
                    [order, started_at, id, blockchain, stablecoin, version],
                );
            }
            // Also if it was never seen: its older record may come later.
            DepositState::Requested | DepositState::Closed | DepositState::Refused => {
                self.delete(
                    Statement::DeleteDepositOpen,
                    [version.clone(), shard, started_at.clone(), id.clone()],
                );
                self.delete(Statement::DeleteDepositByOrder, [version, order, started_at, id]);
            }
        }
        Ok(())
    }

    fn transfer(&mut self, transfer: &Transfer, places: &mut BTreeSet<Place>) -> Result<(), Error> {
        let version = CqlValue::BigInt(transfer.updated_at.0);
        let created_at = CqlValue::BigInt(transfer.created_at.0);
        let id = CqlValue::BigInt(transfer.transfer_id.0);
        self.insert(Statement::InsertTransfer, [id.clone(), record(transfer)?, version.clone()]);
        let own = Place::of_transfer(transfer, place::stage(transfer.status));
        if let Some(left) = place::place_left(transfer) {
            self.delete(
                Statement::DeleteTransferListed,
                [
                    version.clone(),
                    CqlValue::Text(left.list),
                    CqlValue::Text(left.stage),
                    CqlValue::Text(left.blockchain),
                    CqlValue::Text(left.stablecoin),
                    CqlValue::Int(left.bucket),
                    CqlValue::Int(left.shard),
                    created_at.clone(),
                    id.clone(),
                ],
            );
        }
        self.insert(
            Statement::InsertTransferListed,
            [
                CqlValue::Text(own.list.clone()),
                CqlValue::Text(own.stage.clone()),
                CqlValue::Text(own.blockchain.clone()),
                CqlValue::Text(own.stablecoin.clone()),
                CqlValue::Int(own.bucket),
                CqlValue::Int(own.shard),
                created_at,
                id,
                word(transfer.status.as_str()),
                version,
            ],
        );
        places.insert(own);
        Ok(())
    }

    fn attempt(&mut self, attempt: &Attempt) -> Result<(), Error> {
        self.insert(
            Statement::InsertAttempt,
            [
                CqlValue::Text(subject(attempt)),
                CqlValue::Text(attempt.event_id.clone()),
                CqlValue::Int(attempt.attempt),
                CqlValue::Boolean(attempt.manual),
                CqlValue::BigInt(attempt.attempted_at.0),
                CqlValue::Boolean(attempt.outcome == AttemptOutcome::Delivered),
                record(attempt)?,
                CqlValue::BigInt(attempt.attempted_at.0),
            ],
        );
        Ok(())
    }

    fn chain(&mut self, chain: &ChainProgress) -> Result<(), Error> {
        self.insert(
            Statement::InsertChain,
            [word(chain.blockchain.as_str()), record(chain)?, CqlValue::BigInt(chain.updated_at.0)],
        );
        Ok(())
    }
}

/// An order's id as lists have it.
pub(super) fn order_key(id: OrderId) -> CqlValue {
    CqlValue::Blob(id.0.as_bytes().to_vec())
}

/// A word of a closed vocabulary.
pub(super) fn word(text: &'static str) -> CqlValue {
    CqlValue::Text(text.to_owned())
}

/// What an attempt's event is about.
fn subject(attempt: &Attempt) -> String {
    match (attempt.order_id, attempt.transfer_id) {
        (Some(order), _) => order.to_string(),
        (None, Some(transfer)) => transfer.to_string(),
        (None, None) => attempt.event_id.clone(),
    }
}

fn record<R: Record>(record: &R) -> Result<CqlValue, Error> {
    encode(record).map(CqlValue::Blob).map_err(|cause| Error::Fatal(cause.to_string()))
}

#[cfg(test)]
mod tests {
    use schemas::record::example;
    use schemas::{OrderStatus, TransferId, TransferStatus, UnixMicros};

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
            Change::Chain(example::chain_progress()),
        ];
        for change in changes {
            let version = match &change {
                Change::Order(order) => order.updated_at,
                Change::Deposit(deposit) => deposit.updated_at,
                Change::Transfer(transfer) => transfer.updated_at,
                Change::Attempt(attempt) => attempt.attempted_at,
                Change::Chain(chain) => chain.updated_at,
            };
            let version = Some(CqlValue::BigInt(version.0));
            let writes = Writes::of(&[change]).unwrap();
            for write in &writes.inserts {
                let is_row = write.statement != Statement::InsertListPartition;
                let expected = if is_row {
                    version.clone()
                } else {
                    Some(CqlValue::BigInt(DIRECTORY_VERSION))
                };
                assert_eq!(write.values.last().cloned(), expected, "{:?}", write.statement);
            }
            for write in &writes.deletes {
                assert_eq!(write.values.first().cloned(), version, "{:?}", write.statement);
            }
        }
    }

    #[test]
    fn what_closes_a_deposit_deletes_it_though_nothing_was_seen_of_it() {
        let closed = Deposit { state: DepositState::Closed, ..example::deposit() };
        let writes = Writes::of(&[Change::Deposit(closed)]).unwrap();
        assert_eq!(writes.inserts, []);
        let both = [Statement::DeleteDepositOpen, Statement::DeleteDepositByOrder];
        assert_eq!(statements(&writes.deletes), both);
    }

    #[test]
    fn a_partition_enters_the_directory_once_a_call() {
        let paid = |number: i64| {
            let mut transfer = example::transfer();
            transfer.transfer_id = TransferId(number * 4);
            transfer.status = TransferStatus::Matched;
            transfer.updated_at = UnixMicros(number);
            Change::Transfer(transfer)
        };
        let writes = Writes::of(&(1..=9).map(paid).collect::<Vec<_>>()).unwrap();
        let directory =
            writes.inserts.iter().filter(|w| w.statement == Statement::InsertListPartition);
        assert_eq!(directory.count(), 1);
        assert_eq!(writes.inserts.len(), 9 * 2 + 1);
        assert_eq!(writes.deletes.len(), 9, "each leaves the unsettled ones");
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
            let listed = |write: &&Write| write.statement == Statement::InsertOrderListed;
            let own = writes.inserts.iter().find(listed).unwrap();
            for left in &writes.deletes {
                assert_ne!(own.values[..5], left.values[1..], "{status}");
            }
        }
    }
}
