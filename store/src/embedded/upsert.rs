//! Changes as SQL: one statement each, which does nothing if the row is as new or newer.

use rusqlite::types::Value;
use schemas::record::{Attempt, ChainProgress, Deposit, Order, Record, Transfer};
use schemas::{AttemptOutcome, OrderId, encode};

use crate::{Change, Error};

/// One row to write. The record is encoded by the caller, not by the one thread that writes.
#[derive(Debug)]
pub(super) struct Upsert {
    pub(super) sql: &'static str,
    pub(super) values: Vec<Value>,
}

const ORDER: &str = "INSERT INTO orders \
    (order_id, updated_at, created_at, status, merchant_order_id, record) \
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (order_id) DO UPDATE SET \
    updated_at = excluded.updated_at, created_at = excluded.created_at, \
    status = excluded.status, merchant_order_id = excluded.merchant_order_id, \
    record = excluded.record WHERE excluded.updated_at > orders.updated_at";

const DEPOSIT: &str = "INSERT INTO deposits \
    (deposit_id, updated_at, state, started_at, order_id, blockchain, token, record) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (deposit_id) DO UPDATE SET \
    updated_at = excluded.updated_at, state = excluded.state, \
    started_at = excluded.started_at, order_id = excluded.order_id, \
    blockchain = excluded.blockchain, token = excluded.token, \
    record = excluded.record WHERE excluded.updated_at > deposits.updated_at";

const TRANSFER: &str = "INSERT INTO transfers \
    (transfer_id, updated_at, wallet, created_at, status, blockchain, token, record) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (transfer_id) DO UPDATE SET \
    updated_at = excluded.updated_at, wallet = excluded.wallet, \
    created_at = excluded.created_at, status = excluded.status, \
    blockchain = excluded.blockchain, token = excluded.token, \
    record = excluded.record WHERE excluded.updated_at > transfers.updated_at";

const ATTEMPT: &str = "INSERT INTO attempts \
    (event_id, attempt, manual, order_id, attempted_at, delivered, record) \
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id, attempt, manual) DO NOTHING";

const CHAIN: &str = "INSERT INTO chains (blockchain, updated_at, record) VALUES (?, ?, ?) \
    ON CONFLICT (blockchain) DO UPDATE SET updated_at = excluded.updated_at, \
    record = excluded.record WHERE excluded.updated_at > chains.updated_at";

impl Upsert {
    /// The statement for a change.
    ///
    /// # Errors
    /// [`Error::Fatal`] if the record does not fit its schema, which is a defect of this program.
    pub(super) fn of(change: &Change) -> Result<Self, Error> {
        match change {
            Change::Order(order) => Self::order(order),
            Change::Deposit(deposit) => Self::deposit(deposit),
            Change::Transfer(transfer) => Self::transfer(transfer),
            Change::Attempt(attempt) => Self::attempt(attempt),
            Change::Chain(chain) => Self::chain(chain),
        }
    }

    fn order(order: &Order) -> Result<Self, Error> {
        let values = vec![
            order_key(order.order_id),
            order.updated_at.0.into(),
            order.created_at.0.into(),
            word(order.status.as_str()),
            order.merchant_order_id.clone().into(),
            record(order)?,
        ];
        Ok(Self { sql: ORDER, values })
    }

    fn deposit(deposit: &Deposit) -> Result<Self, Error> {
        let values = vec![
            deposit.deposit_id.0.into(),
            deposit.updated_at.0.into(),
            word(deposit.state.as_str()),
            deposit.started_at.0.into(),
            order_key(deposit.order_id),
            word(deposit.blockchain.as_str()),
            word(deposit.stablecoin.as_str()),
            record(deposit)?,
        ];
        Ok(Self { sql: DEPOSIT, values })
    }

    fn transfer(transfer: &Transfer) -> Result<Self, Error> {
        let values = vec![
            transfer.transfer_id.0.into(),
            transfer.updated_at.0.into(),
            transfer.observation.to_address.to_string().into(),
            transfer.created_at.0.into(),
            word(transfer.status.as_str()),
            word(transfer.blockchain.as_str()),
            word(transfer.observation.stablecoin.as_str()),
            record(transfer)?,
        ];
        Ok(Self { sql: TRANSFER, values })
    }

    fn attempt(attempt: &Attempt) -> Result<Self, Error> {
        let values = vec![
            attempt.event_id.clone().into(),
            i64::from(attempt.attempt).into(),
            i64::from(attempt.manual).into(),
            attempt.order_id.map_or(Value::Null, order_key),
            attempt.attempted_at.0.into(),
            i64::from(attempt.outcome == AttemptOutcome::Delivered).into(),
            record(attempt)?,
        ];
        Ok(Self { sql: ATTEMPT, values })
    }

    fn chain(chain: &ChainProgress) -> Result<Self, Error> {
        let values =
            vec![word(chain.blockchain.as_str()), chain.updated_at.0.into(), record(chain)?];
        Ok(Self { sql: CHAIN, values })
    }
}

/// An order's id as the tables have it.
pub(super) fn order_key(id: OrderId) -> Value {
    Value::Blob(id.0.as_bytes().to_vec())
}

/// A word of a closed vocabulary as the tables have it.
pub(super) fn word(text: &'static str) -> Value {
    Value::Text(text.to_owned())
}

fn record<R: Record>(record: &R) -> Result<Value, Error> {
    encode(record).map(Value::Blob).map_err(|cause| Error::Fatal(cause.to_string()))
}
