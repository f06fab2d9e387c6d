//! Random changes of few rows, for this crate's own tests.

use proptest::strategy::Strategy;
use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer, example};
use schemas::{DepositId, DepositState, OrderId, OrderStatus, TransferId, UnixMicros};

use crate::Change;

/// Changes of few rows, in any order of their versions, some of them more than once.
pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    proptest::collection::vec((0..5_u8, 0..4_u8, 0..6_u8), 0..60)
        .prop_map(|all| all.into_iter().map(|(t, r, v)| change(t, r, v)).collect())
}

/// Version `version` of row `row` of one of the five tables.
fn change(table: u8, row: u8, version: u8) -> Change {
    let updated_at = UnixMicros(version.into());
    match table {
        0 => Change::Order(Order {
            order_id: OrderId(uuid::Uuid::from_u128(row.into())),
            updated_at,
            status: OrderStatus::ALL[usize::from(version % 4)],
            ..example::order()
        }),
        1 => Change::Deposit(Deposit {
            deposit_id: DepositId(row.into()),
            updated_at,
            state: if version < 4 { DepositState::Open } else { DepositState::Closed },
            ..example::deposit()
        }),
        2 => Change::Transfer(Transfer {
            transfer_id: TransferId(row.into()),
            updated_at,
            blockchain_confirmed: version > 2,
            ..example::transfer()
        }),
        3 => Change::Attempt(Attempt { event_id: row.to_string(), ..example::attempt() }),
        _ => Change::Chain(ChainProgress {
            confirmed: version.into(),
            updated_at,
            ..example::chain_progress()
        }),
    }
}
