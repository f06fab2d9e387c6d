//! The records of the stream: each a function of a number, of what happened and of its version clock.

use schemas::record::{
    Attempt, Block, ChainProgress, Deposit, Observation, Order, OrderDeposit, Transfer, example,
};
use schemas::{
    Address, AttemptOutcome, Blockchain, CloseReason, DeliveryKind, DepositId, DepositState,
    FulfillmentId, Hash, OrderCause, OrderId, OrderStatus, Stablecoin, TransferId, TransferStatus,
    UnixMicros, UnixSeconds, UnknownReason,
};
use testkit::measure::{amount, wallet};
use uuid::Uuid;

/// Chains and stablecoins that the shop offers.
pub(crate) const CHAINS: [Blockchain; 2] = [Blockchain::Eth, Blockchain::Polygon];
const STABLECOINS: [Stablecoin; 2] = [Stablecoin::Usdt, Stablecoin::Usdc];
/// Number of orders from one of a subscription to its next one, which has the same reference.
const SUBSCRIPTION_EVERY: usize = 100;
pub(crate) const SUBSCRIPTION: &str = "subscription-1";
const URL: &str = "https://shop.example/hooks/orders";
const TTL_SECONDS: i64 = 1800;

/// An order under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) number: usize,
    pub(crate) created_at: UnixSeconds,
    pub(crate) version: i64,
}

/// A transfer under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paid {
    pub(crate) id: usize,
    pub(crate) created_at: UnixSeconds,
    /// The order that it pays.
    pub(crate) order: Option<usize>,
    /// `true` if its block will leave the chain.
    pub(crate) fails: bool,
}

/// State of an order in one of its versions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Created,
    Opened,
    Candidate(Paid),
    Paid(Paid),
    Ended(OrderStatus),
}

/// Bits in no order, as the random half of an id.
fn scattered(number: usize) -> u64 {
    let z = (number as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// Ids grow with the numbers, as those of one second do not, so that the order of a list is known.
pub(crate) fn order_id(number: usize) -> OrderId {
    OrderId(Uuid::from_u128(((number as u128 + 1) << 64) | u128::from(scattered(number))))
}

/// The number of an order.
pub(crate) fn number(id: OrderId) -> usize {
    usize::try_from(id.0.as_u128() >> 64).expect("small") - 1
}

fn chain_and_coin(number: usize) -> (Blockchain, Stablecoin) {
    let dice = usize::try_from(scattered(number) >> 40).expect("small");
    (CHAINS[dice % CHAINS.len()], STABLECOINS[dice / CHAINS.len() % STABLECOINS.len()])
}

fn id(number: usize) -> i64 {
    i64::try_from(number).expect("small")
}

pub(crate) fn order(placed: Placed, step: &Step, updated_at: UnixMicros) -> Order {
    let Placed { number, created_at, version } = placed;
    let (status, cause) = match step {
        Step::Created => (OrderStatus::Pending, OrderCause::Created),
        Step::Opened => (OrderStatus::Pending, OrderCause::DepositOpened),
        Step::Candidate(_) => (OrderStatus::Pending, OrderCause::CandidateSeen),
        Step::Paid(_) => (OrderStatus::Paid, OrderCause::Paid),
        Step::Ended(OrderStatus::Expired) => (OrderStatus::Expired, OrderCause::Expired),
        Step::Ended(status) => (*status, OrderCause::Cancelled),
    };
    let (blockchain, stablecoin) = chain_and_coin(number);
    let is_open = status == OrderStatus::Pending;
    let (state, deposit_id) = match step {
        Step::Created => (DepositState::Requested, None),
        _ if is_open => (DepositState::Open, Some(DepositId(id(number)))),
        _ => (DepositState::Closed, Some(DepositId(id(number)))),
    };
    let reference = match number % SUBSCRIPTION_EVERY {
        0 => SUBSCRIPTION.to_owned(),
        _ => format!("shop-4-{number}"),
    };
    let transfer = |transfer: &Paid| TransferId(id(transfer.id));
    let paid_by = if let Step::Paid(payer) = step { Some(transfer(payer)) } else { None };
    let candidates = if let Step::Candidate(one) = step { vec![transfer(one)] } else { Vec::new() };
    Order {
        order_id: order_id(number),
        version,
        updated_at,
        cause,
        command_id: None,
        status,
        status_changed: !is_open,
        merchant_order_id: reference,
        amount: amount(number),
        amount_text: amount(number).to_string(),
        webhook_url: URL.to_owned(),
        expecting_wallet_address: None,
        blockchain: Some(blockchain),
        stablecoin: Some(stablecoin),
        created_at,
        expires_at: created_at.plus(TTL_SECONDS),
        paid_by,
        paid_value: paid_by.map(|_| amount(number)),
        candidates,
        deposits: vec![OrderDeposit {
            slot: 0,
            blockchain,
            stablecoin,
            contract: example::transfer().observation.contract,
            decimals: 6,
            state,
            deposit_id,
            wallet_address: wallet(),
            value: deposit_id.map(|_| amount(number)),
            started_at: created_at,
        }],
    }
}

pub(crate) fn deposit(placed: Placed, is_closed: bool, updated_at: UnixMicros) -> Deposit {
    let Placed { number, created_at, .. } = placed;
    let (blockchain, stablecoin) = chain_and_coin(number);
    Deposit {
        deposit_id: DepositId(id(number)),
        updated_at,
        order_id: order_id(number),
        slot: 0,
        state: if is_closed { DepositState::Closed } else { DepositState::Open },
        close_reason: is_closed.then_some(CloseReason::Settled),
        blockchain,
        stablecoin,
        contracts: vec![example::transfer().observation.contract],
        user_address: None,
        wallet_address: wallet(),
        value: amount(number),
        value_text: amount(number).to_string(),
        started_at: created_at,
        expires_at: created_at.plus(TTL_SECONDS),
    }
}

pub(crate) fn transfer(paid: Paid, status: TransferStatus, updated_at: UnixMicros) -> Transfer {
    let Paid { id: number, created_at, order, fails } = paid;
    let (blockchain, stablecoin) = chain_and_coin(order.unwrap_or(number));
    let value = amount(order.unwrap_or(number));
    let mut hash = [0x5c; 32];
    hash[..8].copy_from_slice(&scattered(number).to_be_bytes());
    hash[24..].copy_from_slice(&scattered(number + 7).to_be_bytes());
    let is_matched = status == TransferStatus::Matched;
    let is_unknown = status == TransferStatus::NoMatchedDeposit;
    Transfer {
        transfer_id: TransferId(id(number)),
        updated_at,
        blockchain,
        block: Block {
            number: 21_000_000 + id(number) / 50,
            hash: Hash([0xb1; 32]),
            timestamp: created_at,
        },
        observation: Observation {
            stablecoin,
            from_address: Address::new(schemas::AddressFamily::Evm, [0x22; 20]),
            to_address: wallet(),
            tx_hash: Hash(hash),
            log_index: 42,
            value,
            ..example::transfer().observation
        },
        value_text: value.to_string(),
        blockchain_confirmed: !matches!(
            status,
            TransferStatus::WaitingForConfirmation | TransferStatus::FailedToConfirm
        ),
        created_at,
        status,
        fulfillment_id: is_matched.then(|| FulfillmentId(id(number))),
        order_id: order.filter(|_| is_matched).map(order_id),
        deposit_id: order.map(|order| DepositId(id(order))),
        reason: is_unknown.then_some(UnknownReason::AmountMismatch),
        candidate_order_id: is_unknown.then(|| order_id(number / 2)),
        orphaned_at: fails.then_some(created_at),
    }
}

/// An attempt to deliver that an order has ended.
pub(crate) fn attempt_of_order(
    placed: Placed,
    attempt: i32,
    is_refused: bool,
    attempted_at: UnixMicros,
) -> Attempt {
    let order_id = order_id(placed.number);
    let outcome = if is_refused { AttemptOutcome::Status } else { AttemptOutcome::Delivered };
    Attempt {
        event_id: format!("{order_id}.{}", placed.version),
        kind: DeliveryKind::OrderStatusChanged,
        order_id: Some(order_id),
        transfer_id: None,
        attempt,
        manual: false,
        attempted_at,
        outcome,
        http_status: Some(if is_refused { 503 } else { 200 }),
        duration_ms: 41,
        cause: String::new(),
        answer: String::new(),
    }
}

/// The attempt to deliver that a transfer pays nothing.
pub(crate) fn attempt_of_transfer(paid: Paid, attempted_at: UnixMicros) -> Attempt {
    let placed = Placed { number: 0, created_at: paid.created_at, version: 1 };
    Attempt {
        event_id: format!("transfer.{}", paid.id),
        kind: DeliveryKind::UnknownTransfer,
        order_id: None,
        transfer_id: Some(TransferId(id(paid.id))),
        ..attempt_of_order(placed, 1, false, attempted_at)
    }
}

/// Progress of a chain, or of one of its lanes.
pub(crate) fn progress(
    blockchain: Blockchain,
    lane: Option<i32>,
    number: usize,
    updated_at: UnixMicros,
) -> ChainProgress {
    let height = 21_000_000 + id(number) / 50;
    let head = Block { number: height, hash: Hash([0xb1; 32]), timestamp: updated_at.seconds() };
    ChainProgress {
        blockchain,
        head,
        confirmed: height - 12,
        finalized: height - 64,
        updated_at,
        lane,
        ..example::chain_progress()
    }
}
