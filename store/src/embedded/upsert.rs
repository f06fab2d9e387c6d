//! Changes as SQL: one statement each, which does nothing if the row is as new or newer.

use std::sync::LazyLock;

use rusqlite::types::Value;
use schemas::{AttemptOutcome, OrderId, encode};

use crate::row::lane_key;
use crate::{Change, Error};

const ATTEMPT: &str = "INSERT INTO attempts \
    (event_id, attempt, manual, order_id, transfer_id, attempted_at, counted, delivered, record) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id, attempt, manual) DO NOTHING";

/// Columns of an order's row that a newer version replaces, beside its record.
pub(super) const ORDER_COLUMNS: &str = "updated_at, created_at, status, merchant_order_id";
/// Columns of a transfer's row that a newer version replaces, beside its record.
pub(super) const TRANSFER_COLUMNS: &str =
    "updated_at, wallet, created_at, status, blockchain, token";

/// One row to write or to delete. The record is encoded by the caller, not by the one thread that writes.
#[derive(Debug)]
pub(super) struct Upsert {
    pub(super) sql: &'static str,
    pub(super) values: Vec<Value>,
}

/// The SQL for a table: its key, and the columns that a newer version of a row replaces.
fn sql(table: &str, key: &str, replaced: &str) -> String {
    let columns = format!("{key}, {replaced}, record");
    let values = vec!["?"; columns.split(", ").count()].join(", ");
    let set = |column: &str| format!("{column} = excluded.{column}");
    let set: Vec<_> = replaced.split(", ").chain(["record"]).map(set).collect();
    format!(
        "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {} \
         WHERE excluded.updated_at > {table}.updated_at",
        set.join(", ")
    )
}

static ORDER: LazyLock<String> = LazyLock::new(|| sql("orders", "order_id", ORDER_COLUMNS));
static DEPOSIT: LazyLock<String> = LazyLock::new(|| {
    sql("deposits", "deposit_id", "updated_at, state, started_at, order_id, blockchain, token")
});
static TRANSFER: LazyLock<String> =
    LazyLock::new(|| sql("transfers", "transfer_id", TRANSFER_COLUMNS));
static CHAIN: LazyLock<String> = LazyLock::new(|| sql("chains", "blockchain, lane", "updated_at"));

impl Upsert {
    /// The statement for a change, its values in the order of the columns above.
    pub(super) fn of(change: &Change) -> Result<Self, Error> {
        Ok(match change {
            Change::Order(order) => Self {
                sql: &ORDER,
                values: vec![
                    order_key(order.order_id),
                    order.updated_at.0.into(),
                    order.created_at.0.into(),
                    word(order.status.as_str()),
                    order.merchant_order_id.clone().into(),
                    encode(order)?.into(),
                ],
            },
            Change::Deposit(deposit) => Self {
                sql: &DEPOSIT,
                values: vec![
                    deposit.deposit_id.0.into(),
                    deposit.updated_at.0.into(),
                    word(deposit.state.as_str()),
                    deposit.started_at.0.into(),
                    order_key(deposit.order_id),
                    word(deposit.blockchain.as_str()),
                    word(deposit.stablecoin.as_str()),
                    encode(deposit)?.into(),
                ],
            },
            Change::Transfer(transfer) => Self {
                sql: &TRANSFER,
                values: vec![
                    transfer.transfer_id.0.into(),
                    transfer.updated_at.0.into(),
                    transfer.observation.to_address.to_string().into(),
                    transfer.created_at.0.into(),
                    word(transfer.status.as_str()),
                    word(transfer.blockchain.as_str()),
                    word(transfer.observation.stablecoin.as_str()),
                    encode(transfer)?.into(),
                ],
            },
            Change::Attempt(attempt) => Self {
                sql: ATTEMPT,
                values: vec![
                    attempt.event_id.clone().into(),
                    attempt.attempt.into(),
                    attempt.manual.into(),
                    attempt.order_id.map_or(Value::Null, order_key),
                    attempt.transfer_id.map_or(Value::Null, |id| id.0.into()),
                    attempt.attempted_at.0.into(),
                    attempt.outcome.is_request().into(),
                    (attempt.outcome == AttemptOutcome::Delivered).into(),
                    encode(attempt)?.into(),
                ],
            },
            Change::Chain(chain) => Self {
                sql: &CHAIN,
                values: vec![
                    word(chain.blockchain.as_str()),
                    lane_key(chain.lane).into(),
                    chain.updated_at.0.into(),
                    encode(chain)?.into(),
                ],
            },
        })
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
