//! Random rows of few values, so that rows share times, references and filters.

use proptest::prelude::{Strategy, any};
use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer, example};
use schemas::{
    Address, AddressFamily, AttemptOutcome, Blockchain, DepositId, DepositState, OrderId,
    OrderStatus, Stablecoin, TransferId, TransferStatus, UnixMicros, UnixSeconds,
};
use store::{Change, Cursor, DepositFilter, OrderFilter, Subject, TransferFilter, Within};
use uuid::Uuid;

use crate::Dice;

/// Two EVM wallets, and a Tron wallet with the bytes of the first one: a different wallet.
pub(super) const WALLETS: [Address; 3] = [
    Address::new(AddressFamily::Evm, [0x11; 20]),
    Address::new(AddressFamily::Evm, [0x12; 20]),
    Address::new(AddressFamily::Tron, [0x11; 20]),
];
const REFERENCES: [&str; 3] = ["A-1", "a-1", ""];
const CHAINS: [Blockchain; 3] = [Blockchain::Eth, Blockchain::Base, Blockchain::Tron];

const DAY_SECONDS: i64 = 86_400;
const MONTHS_SECONDS: i64 = 100 * DAY_SECONDS + 7;

/// Few times, next to each other and days and months apart.
const SECONDS: [i64; 6] = [0, 1, DAY_SECONDS - 1, DAY_SECONDS, 3 * DAY_SECONDS, MONTHS_SECONDS];

fn time(dice: &mut Dice) -> UnixSeconds {
    UnixSeconds(dice.of(&SECONDS))
}

pub(super) fn order_id(number: u64) -> OrderId {
    OrderId(Uuid::from_u128(u128::from(number)))
}

/// Version `version` of row `row` of one of the five tables: a function of the numbers. Fields that the log never
/// changes are equal in all versions of a row. Statuses of orders and transfers change as on the log.
pub(super) fn change(seed: u64, table: u8, row: u64, version: u64) -> Change {
    let place = (u64::from(table) << 32) ^ (row << 16);
    let dice = |place: u64| Dice(seed ^ place.wrapping_mul(0xff51_afd7_ed55_8ccd));
    // Draws for fixed fields, and for fields that change by version.
    let (mut fixed, mut dice) = (dice(place), dice(place ^ version));
    let updated_at = UnixMicros(version.cast_signed() * 1_500_000);
    match table {
        0 => Change::Order(order(row, version, updated_at, &mut fixed)),
        1 => Change::Deposit(Deposit {
            deposit_id: DepositId(row.cast_signed()),
            updated_at,
            order_id: order_id(fixed.below(3) as u64),
            state: dice.of(&[DepositState::Open, DepositState::Open, DepositState::Closed]),
            blockchain: fixed.of(&CHAINS),
            stablecoin: fixed.of(Stablecoin::ALL),
            started_at: time(&mut fixed),
            ..example::deposit()
        }),
        2 => Change::Transfer(transfer(row, version, updated_at, (&mut fixed, &mut dice))),
        // Attempts have no versions: one attempt is one record.
        3 => Change::Attempt(attempt(row, &mut fixed)),
        _ => Change::Chain(ChainProgress {
            blockchain: CHAINS[usize::try_from(row % 3).unwrap_or(0)],
            lane: [None, Some(0), Some(12)][usize::try_from(row / 3 % 3).unwrap_or(0)],
            updated_at,
            confirmed: dice.below(1_000) as i64,
            ..example::chain_progress()
        }),
    }
}

fn attempt(row: u64, fixed: &mut Dice) -> Attempt {
    let order_id = (fixed.below(4) > 0).then(|| order_id(fixed.below(4) as u64));
    let transfer_id = order_id.is_none().then(|| TransferId(fixed.below(2) as i64));
    Attempt {
        event_id: format!("event-{}", row / 3),
        attempt: i32::try_from(row % 3).unwrap_or(0) + 1,
        manual: row.is_multiple_of(5),
        order_id,
        transfer_id,
        attempted_at: UnixMicros(fixed.below(4) as i64 * 2_000_000),
        outcome: fixed.of(AttemptOutcome::ALL),
        ..example::attempt()
    }
}

/// Subjects of the attempts.
pub(super) fn subjects() -> impl Iterator<Item = Subject> {
    let orders = (0..4).map(|number| Subject::Order(order_id(number)));
    orders.chain((0..2).map(|number| Subject::Transfer(TransferId(number))))
}

/// Pending, then final; perhaps marked as paid by an operator before or after that.
fn order(row: u64, version: u64, updated_at: UnixMicros, fixed: &mut Dice) -> Order {
    let end = fixed.of(&[OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled]);
    let (ended_at, marked_at) = (1 + fixed.below(6) as u64, 2 + fixed.below(9) as u64);
    let payer = (fixed.below(3) > 0).then_some(TransferId(7));
    let status = match (version < ended_at, version < marked_at) {
        (true, true) => OrderStatus::Pending,
        (false, true) => end,
        (_, false) => OrderStatus::Paid,
    };
    let settled = end == OrderStatus::Paid && ended_at < marked_at;
    Order {
        order_id: order_id(row),
        updated_at,
        version: version.cast_signed(),
        status,
        paid_by: payer.filter(|_| settled && status == OrderStatus::Paid),
        merchant_order_id: fixed.of(&REFERENCES).to_owned(),
        created_at: time(fixed),
        ..example::order()
    }
}

/// In an unsettled status, then finally matched or unknown.
fn transfer(
    row: u64,
    version: u64,
    updated_at: UnixMicros,
    (fixed, dice): (&mut Dice, &mut Dice),
) -> Transfer {
    let settled_at = 1 + fixed.below(7) as u64;
    let end = fixed.of(&[TransferStatus::Matched, TransferStatus::NoMatchedDeposit]);
    let unsettled = dice.of(&[
        TransferStatus::WaitingForConfirmation,
        TransferStatus::WaitingForMatch,
        TransferStatus::FailedToConfirm,
    ]);
    let mut transfer = Transfer {
        transfer_id: TransferId(row.cast_signed()),
        updated_at,
        blockchain: fixed.of(&CHAINS),
        status: if version < settled_at { unsettled } else { end },
        created_at: time(fixed),
        ..example::transfer()
    };
    transfer.observation.to_address = fixed.of(&WALLETS);
    transfer.observation.stablecoin = fixed.of(Stablecoin::ALL);
    transfer
}

/// Random changes in a few calls, each change perhaps several times and in any order of versions.
pub(super) fn calls() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let places = proptest::collection::vec((0..5_u8, 0..12_u64, 1..8_u64), 0..80);
    (any::<u64>(), proptest::collection::vec(places, 1..4)).prop_map(|(seed, calls)| {
        // In the table of chains rows 0 and 9 have one chain and lane, and a version must not have two contents.
        let row = |table, row| if table == 4 { row % 9 } else { row };
        let change = |(t, r, v): (u8, u64, u64)| change(seed, t, row(t, r), v);
        calls.into_iter().map(|places| places.into_iter().map(change).collect()).collect()
    })
}

fn perhaps<T: Copy + std::fmt::Debug + 'static>(
    all: &'static [T],
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(proptest::sample::select(all))
}

/// A part of the rows' time range: from a second on, before a cursor.
fn within() -> impl Strategy<Value = Within> {
    let second = || proptest::sample::select(&SECONDS[..]).prop_map(UnixSeconds);
    let before = (second(), 0..12_u128).prop_map(|(at, id)| Cursor { at, id });
    let part = (proptest::option::of(second()), proptest::option::of(before));
    part.prop_map(|(from, before)| Within { from, before })
}

/// One filter for each list, and a wallet.
pub(super) type Filters = (OrderFilter, DepositFilter, Address, TransferFilter);

pub(super) fn filters() -> impl Strategy<Value = Filters> {
    let orders = (perhaps(OrderStatus::ALL), perhaps(&REFERENCES), within()).prop_map(
        |(status, reference, within)| {
            let merchant_order_id = reference.map(str::to_owned);
            OrderFilter { status, merchant_order_id, within }
        },
    );
    let order = proptest::option::of((0..4_u64).prop_map(order_id));
    let deposits = (order, perhaps(&CHAINS), perhaps(Stablecoin::ALL), within()).prop_map(
        |(order_id, blockchain, stablecoin, within)| DepositFilter {
            order_id,
            blockchain,
            stablecoin,
            within,
        },
    );
    let transfers =
        (perhaps(TransferStatus::ALL), perhaps(&CHAINS), perhaps(Stablecoin::ALL), within())
            .prop_map(|(status, blockchain, stablecoin, within)| TransferFilter {
                status,
                blockchain,
                stablecoin,
                within,
            });
    (orders, deposits, proptest::sample::select(&WALLETS[..]), transfers)
}
