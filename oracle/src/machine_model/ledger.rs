//! State derived from the records written so far, for the checks.

use std::collections::{HashMap, HashSet};

use schemas::record::{Block, Deposit, OpenDeposit, Order, StopScope, Transfer};
use schemas::{
    Address, Amount, BlockHash, Blockchain, DepositId, Epoch, OrderId, OrderStatus, PaymentKey,
    Stablecoin, TransferId, UnixSeconds,
};

use super::chain::{Chain, Policy, WALLETS};

/// Returns the reservation of a deposit: chain, wallet, stablecoin, amount.
pub(super) fn place(deposit: &Deposit) -> (Blockchain, Address, Stablecoin, Amount) {
    (deposit.blockchain, deposit.wallet_address, deposit.stablecoin, deposit.value)
}

/// Position in the delivered records at which a deposit opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// Height of the head, or of the head of a later rewind below it.
    pub(super) above: i64,
    /// Number of records delivered.
    pub(super) position: usize,
}

/// A chain, and the state of its lane after the records delivered so far.
pub(super) struct Lane<'a> {
    pub(super) chain: &'a Chain,
    pub(super) head: Option<Block>,
    pub(super) epoch: Epoch,
    /// The transfers that its head holds, each with its block.
    pub(super) held: HashSet<(BlockHash, PaymentKey)>,
    /// `true` if its head has a gap.
    pub(super) has_gap: bool,
    /// Confirmation policy at this head.
    pub(super) policy: Policy,
    pub(super) time_max: UnixSeconds,
    pub(super) watched: HashSet<Address>,
    /// Scopes that operators have stopped, in their order.
    pub(super) stopped: Vec<StopScope>,
    /// The block after which payments to a wallet are seen, by its first watch.
    pub(super) seen_after: HashMap<Address, i64>,
    /// Transfers confirmed by their own record, before a head: the next head must confirm them.
    pub(super) at_sight: Vec<Transfer>,
}

/// State derived from the records written so far.
#[derive(Default)]
pub struct Ledger<'a> {
    pub(super) lanes: HashMap<Blockchain, Lane<'a>>,
    /// Block of each payment by the records delivered so far; `None` if it left the chain.
    pub(super) included: HashMap<PaymentKey, Option<Block>>,
    /// The newest record of each transfer.
    pub transfers: HashMap<PaymentKey, Transfer>,
    pub(super) payments: HashMap<TransferId, PaymentKey>,
    /// Payments that were published as confirmed.
    pub(super) confirmed: HashSet<PaymentKey>,
    /// The newest record of each payment that has paid.
    pub(super) settled: HashMap<PaymentKey, Transfer>,
    /// Orphaned payments that their lane may have forgotten before: no alert is due.
    pub(super) left_alone: HashSet<PaymentKey>,
    /// The newest record of each deposit.
    pub deposits: HashMap<DepositId, Deposit>,
    pub(super) opened: HashMap<(OrderId, i32), OpenDeposit>,
    /// Deposits by their reservation, past ones included, the newest last.
    pub(super) reserved: HashMap<(Blockchain, Address, Stablecoin, Amount), Vec<DepositId>>,
    /// Position of each deposit's lane when the deposit opened.
    pub(super) openings: HashMap<DepositId, Opening>,
    /// Number of records delivered.
    pub(super) position: usize,
    /// Position at which each transfer was first seen.
    pub(super) listed: HashMap<TransferId, usize>,
    /// Deposits that gave their amount to another one of their order.
    pub(super) taken_over: HashSet<DepositId>,
    /// The chain time at which a deposit closed.
    pub(super) closed: HashMap<DepositId, UnixSeconds>,
    /// The newest record of each order.
    pub orders: HashMap<OrderId, Order>,
    /// Every status that each order has had.
    pub(super) statuses: HashSet<(OrderId, OrderStatus)>,
    pub(super) matched: HashMap<OrderId, TransferId>,
    pub(super) forced: HashSet<OrderId>,
    /// Candidates of each order at the time when an operator marked it paid, unless gone since.
    pub(super) on_its_way: HashSet<(OrderId, TransferId)>,
    /// Settles whose reply was read.
    pub(super) answered: HashSet<(TransferId, OrderId)>,
    /// Candidates that a lane reported to an order.
    pub(super) candidates: HashSet<(TransferId, OrderId)>,
    /// Order and deposit of a transfer's last settle, until it fails.
    pub(super) asked: HashMap<TransferId, (OrderId, DepositId)>,
    /// Transfers that operators attached, each with its order.
    pub(super) attached: HashSet<(TransferId, OrderId)>,
    /// Order of a transfer's attach request.
    pub(super) attaching: HashMap<TransferId, OrderId>,
    /// Order that may count on a transfer: it had not replied when the transfer failed, and has not refused since; or
    /// it is paid by the transfer and forgotten.
    pub(super) counted_on: HashMap<TransferId, OrderId>,
    /// Transfers that a forgotten order refused.
    pub(super) forgotten_by: HashMap<TransferId, OrderId>,
    /// End of each transfer, in its chain's time.
    pub(super) ended_at: HashMap<TransferId, UnixSeconds>,
    /// The confirmed block by whose time each deposit expired.
    pub(super) expired_by: HashMap<DepositId, BlockHash>,
    /// Block of each unknown transfer at its rejection.
    pub(super) ended_in: HashMap<PaymentKey, BlockHash>,
    /// Transfers that had ended when a deposit opened, or that another order counted on when it expired.
    pub(super) not_for: HashSet<(DepositId, PaymentKey)>,
    pub(super) alerts: HashSet<TransferId>,
    pub(super) alerts_due: HashSet<TransferId>,
    /// The first false progress record of a lane. Checked last, so that defects of transfers and watches are found by
    /// their other effects.
    pub(super) untrue: Option<String>,
    /// Longest late window of the deposits of each order.
    pub(super) late_windows: HashMap<OrderId, u32>,
    /// Latest time of a command to orders.
    pub(super) orders_time: UnixSeconds,
    /// Orders that may have been forgotten when they got a command.
    pub(super) left: HashSet<OrderId>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(chains: &'a [Chain]) -> Self {
        let lane = |chain: &'a Chain| Lane {
            chain,
            head: None,
            epoch: Epoch(0),
            held: HashSet::new(),
            has_gap: false,
            policy: chain.policy,
            time_max: UnixSeconds(0),
            watched: HashSet::new(),
            stopped: Vec::new(),
            seen_after: HashMap::new(),
            at_sight: Vec::new(),
        };
        let lanes = chains.iter().map(|chain| (chain.blockchain, lane(chain))).collect();
        Self { lanes, ..Self::default() }
    }

    pub(super) fn lane(&self, blockchain: Blockchain) -> &Lane<'a> {
        &self.lanes[&blockchain]
    }

    /// `true` if the lane had the transfer, or its block, when the deposit opened.
    pub(super) fn is_before(&self, transfer: &Transfer, deposit: &Deposit) -> bool {
        let listed = self.listed.get(&transfer.transfer_id);
        self.openings.get(&deposit.deposit_id).is_some_and(|opening| {
            let is_listed = listed.is_some_and(|at| *at < opening.position);
            is_listed || transfer.block.number <= opening.above
        })
    }

    pub(super) fn accepts_late(&self, deposit: &Deposit) -> bool {
        let open = self.opened.get(&(deposit.order_id, deposit.slot));
        open.is_some_and(|open| open.accepts_late)
    }

    /// `true` if the deposit was offered with this contract.
    pub(super) fn takes_contract(&self, deposit: &Deposit, contract: Address) -> bool {
        let open = self.opened.get(&(deposit.order_id, deposit.slot));
        open.is_some_and(|open| open.contracts.contains(&contract))
    }

    pub(super) fn fits(&self, transfer: &Transfer, deposit: &Deposit) -> bool {
        let seen = &transfer.observation;
        let time = transfer.block.timestamp;
        self.takes_contract(deposit, seen.contract)
            && !WALLETS.contains(&seen.from_address)
            && transfer.blockchain == deposit.blockchain
            && seen.to_address == deposit.wallet_address
            && seen.stablecoin == deposit.stablecoin
            && seen.value == deposit.value
            && deposit.user_address.is_none_or(|sender| sender == seen.from_address)
            && self.may_ask(transfer.transfer_id, deposit.order_id)
            && !self.is_before(transfer, deposit)
            && (time <= deposit.expires_at || self.accepts_late(deposit))
    }
}
