//! Random rows out of few values, so that rows meet: same times, same references, same filters.

use proptest::prelude::{Strategy, any};
use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer, example};
use schemas::{
    Address, AddressFamily, AttemptOutcome, Blockchain, DepositId, DepositState, OrderId,
    OrderStatus, Stablecoin, TransferId, TransferStatus, UnixMicros, UnixSeconds,
};
use store::{Change, DepositFilter, OrderFilter, TransferFilter};
use uuid::Uuid;

/// Two EVM wallets, and a Tron wallet with the bytes of the first: another wallet all the same.
pub(super) const WALLETS: [Address; 3] = [
    Address::new(AddressFamily::Evm, [0x11; 20]),
    Address::new(AddressFamily::Evm, [0x12; 20]),
    Address::new(AddressFamily::Tron, [0x11; 20]),
];
const REFERENCES: [&str; 3] = ["A-1", "a-1", ""];
const CHAINS: [Blockchain; 3] = [Blockchain::Eth, Blockchain::Base, Blockchain::Tron];

/// Numbers that follow from their seed alone (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn time(&mut self) -> UnixSeconds {
        UnixSeconds(self.below(4).cast_signed())
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let place = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
        all[place]
    }
}

/// The n-th order's id.
pub(super) fn order_id(number: u64) -> OrderId {
    OrderId(Uuid::from_u128(u128::from(number)))
}

/// Version `version` of row `row` of one of the five tables: always the same one for the same
/// numbers.
pub(super) fn change(seed: u64, table: u8, row: u64, version: u64) -> Change {
    let place = (u64::from(table) << 32) ^ (row << 16);
    // Attempts have no versions: the same attempt is the same record.
    let unique = if table == 3 { place } else { place ^ version };
    let mut dice = Dice(seed ^ unique.wrapping_mul(0xff51_afd7_ed55_8ccd));
    let updated_at = UnixMicros(version.cast_signed() * 1_500_000);
    match table {
        0 => Change::Order(Order {
            order_id: order_id(row),
            updated_at,
            version: version.cast_signed(),
            status: dice.of(OrderStatus::ALL),
            merchant_order_id: dice.of(&REFERENCES).to_owned(),
            created_at: dice.time(),
            ..example::order()
        }),
        1 => Change::Deposit(Deposit {
            deposit_id: DepositId(row.cast_signed()),
            updated_at,
            order_id: order_id(dice.below(3)),
            state: dice.of(&[DepositState::Open, DepositState::Open, DepositState::Closed]),
            blockchain: dice.of(&CHAINS),
            token: dice.of(Stablecoin::ALL),
            started_at: dice.time(),
            ..example::deposit()
        }),
        2 => Change::Transfer(transfer(row, updated_at, &mut dice)),
        3 => Change::Attempt(Attempt {
            event_id: format!("event-{}", row / 3),
            attempt: i32::try_from(row % 3).unwrap_or(0) + 1,
            manual: row.is_multiple_of(5),
            order_id: (dice.below(4) > 0).then(|| order_id(dice.below(4))),
            attempted_at: UnixMicros(dice.below(9_000_000).cast_signed()),
            outcome: dice.of(&[AttemptOutcome::Delivered, AttemptOutcome::Timeout]),
            ..example::attempt()
        }),
        _ => Change::Chain(ChainProgress {
            blockchain: CHAINS[usize::try_from(row % 3).unwrap_or(0)],
            updated_at,
            confirmed: dice.below(1_000).cast_signed(),
            ..example::chain_progress()
        }),
    }
}

fn transfer(row: u64, updated_at: UnixMicros, dice: &mut Dice) -> Transfer {
    let mut transfer = Transfer {
        transfer_id: TransferId(row.cast_signed()),
        updated_at,
        blockchain: dice.of(&CHAINS),
        status: dice.of(TransferStatus::ALL),
        created_at: dice.time(),
        ..example::transfer()
    };
    transfer.observation.to_address = dice.of(&WALLETS);
    transfer.observation.token = dice.of(Stablecoin::ALL);
    transfer
}

/// Random changes, each perhaps several times and in any order of versions.
pub(super) fn changes() -> impl Strategy<Value = Vec<Change>> {
    let places = proptest::collection::vec((0..5_u8, 0..12_u64, 1..5_u64), 0..120);
    (any::<u64>(), places).prop_map(|(seed, places)| {
        // The chain of row 4 is that of row 1: their numbers must not give two contents of one
        // version.
        let row = |table, row| if table == 4 { row % 3 } else { row };
        places.into_iter().map(|(t, r, v)| change(seed, t, row(t, r), v)).collect()
    })
}

fn perhaps<T: Copy + std::fmt::Debug + 'static>(
    all: &'static [T],
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(proptest::sample::select(all))
}

/// One filter for each list, and a wallet.
pub(super) fn filters()
-> impl Strategy<Value = (OrderFilter, DepositFilter, Address, TransferFilter)> {
    let orders =
        (perhaps(OrderStatus::ALL), perhaps(&REFERENCES)).prop_map(|(status, reference)| {
            OrderFilter { status, merchant_order_id: reference.map(str::to_owned) }
        });
    let order = proptest::option::of((0..4_u64).prop_map(order_id));
    let deposits = (order, perhaps(&CHAINS), perhaps(Stablecoin::ALL))
        .prop_map(|(order_id, blockchain, token)| DepositFilter { order_id, blockchain, token });
    let transfers = (perhaps(TransferStatus::ALL), perhaps(&CHAINS), perhaps(Stablecoin::ALL))
        .prop_map(|(status, blockchain, token)| TransferFilter { status, blockchain, token });
    (orders, deposits, proptest::sample::select(&WALLETS[..]), transfers)
}
