//! Changes as writes, which give the same rows in any order. Pure.

use std::collections::BTreeSet;

use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer};
use schemas::{AttemptOutcome, DepositState, OrderId, UnixMicros, encode};
use scylla::value::CqlValue::{self, BigInt, Blob, Boolean, Int, Text};

use super::place::{self, Place};
use super::statement::Statement;
use crate::row::lane_key;
use crate::{Change, Error};

/// When directory rows are written, as their only write time: they are never changed or deleted.
const DIRECTORY_VERSION: UnixMicros = UnixMicros(1);

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
    /// Run when the inserts are done: a row that moves is in two partitions for a moment, but never
    /// in none.
    pub(super) deletes: Vec<Write>,
}

impl Writes {
    /// The writes for changes.
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
        for Place { list, bucket, stage, blockchain, stablecoin, shard } in places {
            let [list, stage, chain, coin] = [list, stage, blockchain, stablecoin].map(Text);
            let row = [list, Int(bucket), stage, chain, coin, Int(shard)];
            writes.insert(Statement::InsertListPartition, DIRECTORY_VERSION, &[&row]);
        }
        Ok(writes)
    }

    fn insert(&mut self, statement: Statement, version: UnixMicros, parts: &[&[CqlValue]]) {
        let values = [&parts.concat()[..], &[BigInt(version.0)]].concat();
        self.inserts.push(Write { statement, values });
    }

    fn delete(&mut self, statement: Statement, version: UnixMicros, parts: &[&[CqlValue]]) {
        let values = [&[BigInt(version.0)], &parts.concat()[..]].concat();
        self.deletes.push(Write { statement, values });
    }

    fn order(&mut self, order: &Order, places: &mut BTreeSet<Place>) -> Result<(), Error> {
        let version = order.updated_at;
        let row = [BigInt(order.created_at.0), order_key(order.order_id)];
        let whole = [CqlValue::Uuid(order.order_id.0), Blob(encode(order)?)];
        self.insert(Statement::InsertOrder, version, &[&whole]);
        let own = Place::of_order(order, order.status);
        self.insert(Statement::InsertOrderListed, version, &[&own.clone().of_orders(), &row]);
        for left in place::places_left(order) {
            self.delete(Statement::DeleteOrderListed, version, &[&left.of_orders(), &row]);
        }
        let reference = Place::of_reference(order);
        let key = [Text(order.merchant_order_id.clone()), Int(reference.bucket)];
        let status = [word(order.status.as_str())];
        self.insert(Statement::InsertOrderByReference, version, &[&key, &row, &status]);
        places.extend([own, reference]);
        Ok(())
    }

    fn deposit(&mut self, deposit: &Deposit) -> Result<(), Error> {
        let version = deposit.updated_at;
        let shard = [Int(place::deposit_shard(deposit.deposit_id))];
        let order = [CqlValue::Uuid(deposit.order_id.0)];
        let row = [BigInt(deposit.started_at.0), BigInt(deposit.deposit_id.0)];
        match deposit.state {
            DepositState::Open => {
                let filters = [deposit.blockchain.as_str(), deposit.stablecoin.as_str()].map(word);
                let record = [Blob(encode(deposit)?)];
                let open = [&shard[..], &row, &filters, &record];
                self.insert(Statement::InsertDepositOpen, version, &open);
                self.insert(Statement::InsertDepositByOrder, version, &[&order, &row, &filters]);
            }
            // Also if it was never seen: its older record may come later.
            DepositState::Requested | DepositState::Closed | DepositState::Refused => {
                self.delete(Statement::DeleteDepositOpen, version, &[&shard, &row]);
                self.delete(Statement::DeleteDepositByOrder, version, &[&order, &row]);
            }
        }
        Ok(())
    }

    fn transfer(&mut self, transfer: &Transfer, places: &mut BTreeSet<Place>) -> Result<(), Error> {
        let version = transfer.updated_at;
        let id = BigInt(transfer.transfer_id.0);
        let row = [BigInt(transfer.created_at.0), id.clone()];
        self.insert(Statement::InsertTransfer, version, &[&[id, Blob(encode(transfer)?)]]);
        if let Some(left) = place::place_left(transfer) {
            self.delete(Statement::DeleteTransferListed, version, &[&left.of_transfers(), &row]);
        }
        let own = Place::of_transfer(transfer, place::stage(transfer.status));
        let (key, status) = (own.clone().of_transfers(), [word(transfer.status.as_str())]);
        self.insert(Statement::InsertTransferListed, version, &[&key, &row, &status]);
        places.insert(own);
        Ok(())
    }

    fn attempt(&mut self, attempt: &Attempt) -> Result<(), Error> {
        let row = [
            Text(subject(attempt)),
            Text(attempt.event_id.clone()),
            Int(attempt.attempt),
            Boolean(attempt.manual),
            BigInt(attempt.attempted_at.0),
            Boolean(attempt.outcome.is_request()),
            Boolean(attempt.outcome == AttemptOutcome::Delivered),
            Blob(encode(attempt)?),
        ];
        self.insert(Statement::InsertAttempt, attempt.attempted_at, &[&row]);
        Ok(())
    }

    fn chain(&mut self, chain: &ChainProgress) -> Result<(), Error> {
        let lane = Int(lane_key(chain.lane));
        let row = [word(chain.blockchain.as_str()), lane, Blob(encode(chain)?)];
        self.insert(Statement::InsertChain, chain.updated_at, &[&row]);
        Ok(())
    }
}

/// An order's id as lists have it.
pub(super) fn order_key(id: OrderId) -> CqlValue {
    Blob(id.0.as_bytes().to_vec())
}

/// A word of a closed vocabulary.
pub(super) fn word(text: &'static str) -> CqlValue {
    Text(text.to_owned())
}

/// What an attempt's event is about.
fn subject(attempt: &Attempt) -> String {
    match (attempt.order_id, attempt.transfer_id) {
        (Some(order), _) => order.to_string(),
        (None, Some(transfer)) => transfer.to_string(),
        (None, None) => attempt.event_id.clone(),
    }
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
            Change::Chain(example::chain_progress()),
        ];
        for change in changes {
            let version = Some(BigInt(change.written_at().0));
            let writes = Writes::of(&[change]).unwrap();
            for write in &writes.inserts {
                let is_row = write.statement != Statement::InsertListPartition;
                let directory = Some(BigInt(DIRECTORY_VERSION.0));
                let expected = if is_row { version.clone() } else { directory };
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
