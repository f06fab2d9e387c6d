//! Rows as queries return them, and the changes behind them.

use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer};
use schemas::{DepositState, OrderStatus, TransferStatus, UnixMicros, UnixSeconds};

use crate::Cursor;

/// One record of the log, to be applied to the tables.
///
/// Columns that lists are sorted and filtered by do not change from one version of a row to the
/// next, and no back end searches for the list entry that a row had before: of an order,
/// `created_at` and `merchant_order_id`; of a deposit, `started_at`, order, chain and stablecoin;
/// of a transfer, `created_at`, wallet, chain and stablecoin. Only statuses change: an order's from
/// pending to a final one, and from there to paid, by an operator (without a `paid_by`, or by the
/// cause `attached`) or by a late payment (the cause `paid_late`); a transfer's until it is matched
/// or unknown, and from unknown to matched without a `deposit_id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// From `orders`. Its version clock is `updated_at`.
    Order(Order),
    /// From `deposits`. Its version clock is `updated_at`; closed deposits leave the list.
    Deposit(Deposit),
    /// From `transfers.*`. Its version clock is `updated_at`.
    Transfer(Transfer),
    /// From `webhooks.attempts`. Identified by `event_id`, `attempt` and `manual`; immutable.
    Attempt(Attempt),
    /// From `chains`. Its version clock is `updated_at`.
    Chain(ChainProgress),
}

impl Change {
    /// Write timestamp on CQL servers: the version clock, or the start of the attempt.
    #[must_use]
    pub const fn written_at(&self) -> UnixMicros {
        match self {
            Self::Order(order) => order.updated_at,
            Self::Deposit(deposit) => deposit.updated_at,
            Self::Transfer(transfer) => transfer.updated_at,
            Self::Attempt(attempt) => attempt.attempted_at,
            Self::Chain(chain) => chain.updated_at,
        }
    }

    /// `true` if the record was final (a deposit: not open) before `pruned`. Its row was created before
    /// that time too, and may have been removed: rebuilt tables need not have it.
    #[must_use]
    pub fn was_final_before(&self, pruned: UnixSeconds) -> bool {
        let is_final = match self {
            Self::Order(order) => order.status != OrderStatus::Pending,
            Self::Deposit(deposit) => deposit.state != DepositState::Open,
            Self::Transfer(transfer) => !is_waiting(transfer.status),
            Self::Attempt(_) => true,
            Self::Chain(_) => false,
        };
        is_final && self.written_at().seconds() < pruned
    }

    /// `true` if it is an order or a transfer whose row may be gone after final rows created before
    /// `pruned` were removed.
    #[must_use]
    pub fn may_be_removed(&self, pruned: UnixSeconds) -> bool {
        match self {
            Self::Order(order) => order.created_at < pruned && order.status != OrderStatus::Pending,
            Self::Transfer(row) => row.created_at < pruned && !is_waiting(row.status),
            // Attempts go with their subject (see `has_subject`), closed deposits are not listed, chains stay.
            Self::Attempt(_) | Self::Deposit(_) | Self::Chain(_) => false,
        }
    }

    /// Names its row within the table, for people.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Self::Order(order) => order.order_id.to_string(),
            Self::Deposit(deposit) => deposit.deposit_id.0.to_string(),
            Self::Transfer(transfer) => transfer.transfer_id.0.to_string(),
            Self::Attempt(attempt) => {
                let by = if attempt.manual { "/manual" } else { "" };
                format!("{}/{}{by}", attempt.event_id, attempt.attempt)
            }
            Self::Chain(chain) => match chain.lane {
                Some(lane) => format!("{}/{lane}", chain.blockchain),
                None => chain.blockchain.to_string(),
            },
        }
    }

    /// The name of its table, as metrics have it.
    #[must_use]
    pub const fn table(&self) -> &'static str {
        match self {
            Self::Order(_) => "orders",
            Self::Deposit(_) => "deposits",
            Self::Transfer(_) => "transfers",
            Self::Attempt(_) => "attempts",
            Self::Chain(_) => "chains",
        }
    }
}

/// An order with its delivery state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderRow {
    pub order: Order,
    /// Number of webhook attempts that made a request (spec 2.3).
    pub webhook_retry_count: i64,
    /// Start of the first successful attempt.
    pub webhook_success_at: Option<UnixSeconds>,
    /// Start of the last attempt that made a request.
    pub webhook_last_tried_at: Option<UnixSeconds>,
}

impl OrderRow {
    /// Its position in the list.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor { at: self.order.created_at, id: self.order.order_id.0.as_u128() }
    }
}

/// An open deposit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepositRow {
    pub deposit: Deposit,
    /// Time of the last scan of its chain by ingest (spec 2.4); none before the first.
    pub last_scanned_at: Option<UnixSeconds>,
}

impl DepositRow {
    /// Its position in the list.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor { at: self.deposit.started_at, id: number(self.deposit.deposit_id.0) }
    }
}

/// The position of a transfer in the list.
#[must_use]
pub fn transfer_cursor(row: &TransferRow) -> Cursor {
    Cursor { at: row.created_at, id: number(row.transfer_id.0) }
}

/// An id of a deposit or a transfer as cursors have it; none is negative.
pub(crate) fn number(id: i64) -> u128 {
    u128::from(id.cast_unsigned())
}

/// A transfer as its last record has it.
pub type TransferRow = Transfer;

/// A chain or one of its lanes, as its last record has it.
pub type ChainRow = ChainProgress;

/// The lane of progress as a key: -1 for the scan of ingest, which sorts before the lanes.
pub(crate) fn lane_key(lane: Option<i32>) -> i32 {
    lane.unwrap_or(-1)
}

/// `true` if a transfer with this status waits for confirmation or its match. A failed transfer that is
/// mined again waits again.
pub(crate) const fn is_waiting(status: TransferStatus) -> bool {
    match status {
        TransferStatus::WaitingForConfirmation | TransferStatus::WaitingForMatch => true,
        TransferStatus::Matched
        | TransferStatus::NoMatchedDeposit
        | TransferStatus::FailedToConfirm => false,
    }
}
