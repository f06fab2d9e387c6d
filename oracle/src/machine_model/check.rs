//! The invariants of `docs/invariants.md`, over the records that the two machines wrote.
//!
//! Nothing here reads the state of a machine: every check starts from the inputs as delivered, the records
//! written, and the true chain.

use std::collections::{HashMap, HashSet};

use processor::machine::matching::{self, TransferStage};
use processor::machine::orders;
use schemas::record::{
    Block, ChainBody, ChainProgress, ChainRecord, Deposit, DepositCommand, DepositCommandBody,
    OpenDeposit, Order, OrderCommand, OrderCommandBody, Transfer, Watch,
};
use schemas::{
    Address, AlertKind, Amount, BlockHash, Blockchain, CloseReason, DepositId, DepositState,
    OrderCause, OrderId, OrderStatus, PaymentKey, Stablecoin, TransferId, TransferStatus,
    UnixSeconds, UnknownReason,
};

use super::chain::{CONTRACT, Chain, Policy, WALLETS};
use super::delivered::Delivered;
use super::leaving::Leaving;
use super::violation::Violation;

/// What a deposit reserves.
pub(super) fn place(deposit: &Deposit) -> (Blockchain, Address, Stablecoin, Amount) {
    (deposit.blockchain, deposit.wallet_address, deposit.stablecoin, deposit.value)
}

/// Fails with the text if the condition does not hold.
macro_rules! holds {
    ($invariant:literal, $condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(Violation { invariant: $invariant, text: format!($($text)+) });
        }
    };
}

/// A chain, and what the records delivered so far say of it.
struct Lane<'a> {
    chain: &'a Chain,
    head: Option<Block>,
    /// What counts as confirmed at this head.
    policy: Policy,
    time_max: UnixSeconds,
    watched: HashSet<Address>,
    /// Confirmed by the head that comes next.
    at_sight: Vec<Transfer>,
}

/// What the records written so far say.
pub struct Ledger<'a> {
    lanes: HashMap<Blockchain, Lane<'a>>,
    /// Where the records delivered so far have each payment, if in the chain.
    included: HashMap<PaymentKey, Option<Block>>,
    /// The newest record of each transfer.
    pub transfers: HashMap<PaymentKey, Transfer>,
    payments: HashMap<TransferId, PaymentKey>,
    stages: HashMap<PaymentKey, HashMap<TransferStage, usize>>,
    /// The newest record of each deposit.
    pub deposits: HashMap<DepositId, Deposit>,
    pub(super) opened: HashMap<(OrderId, i32), OpenDeposit>,
    /// Deposits by what they reserve or reserved, the newest last.
    pub(super) reserved: HashMap<(Blockchain, Address, Stablecoin, Amount), Vec<DepositId>>,
    /// The chain time at which a deposit closed.
    pub(super) closed: HashMap<DepositId, UnixSeconds>,
    /// The newest record of each order.
    pub orders: HashMap<OrderId, Order>,
    /// Every status that an order had.
    statuses: HashSet<(OrderId, OrderStatus)>,
    matched: HashMap<OrderId, TransferId>,
    forced: HashSet<OrderId>,
    /// Transfers whose order's answer was read.
    answered: HashSet<TransferId>,
    /// The order and deposit that a transfer asked to pay.
    asked: HashMap<TransferId, (OrderId, DepositId)>,
    /// The confirmed block by whose time each deposit expired.
    expired_by: HashMap<DepositId, BlockHash>,
    /// The block in which each unknown transfer was when that was decided.
    ended_in: HashMap<PaymentKey, BlockHash>,
    /// Transfers that had ended when a deposit opened.
    ended_before: HashSet<(DepositId, PaymentKey)>,
    alerts: HashSet<TransferId>,
    alerts_due: HashSet<TransferId>,
    /// What a lane says of itself that is not so. Checked last: a machine that is wrong about a transfer or a
    /// watch is found by what it does.
    untrue: Option<String>,
    pub(super) leaving: Leaving,
}

impl<'a> Ledger<'a> {
    /// Checks every record as it was written.
    pub fn of(chains: &'a [Chain], delivered: &[Delivered]) -> Result<Self, Violation> {
        let lane = |chain: &'a Chain| Lane {
            chain,
            head: None,
            policy: chain.policy,
            time_max: UnixSeconds(0),
            watched: HashSet::new(),
            at_sight: Vec::new(),
        };
        let mut ledger = Self {
            lanes: chains.iter().map(|chain| (chain.blockchain, lane(chain))).collect(),
            included: HashMap::new(),
            transfers: HashMap::new(),
            payments: HashMap::new(),
            stages: HashMap::new(),
            deposits: HashMap::new(),
            opened: HashMap::new(),
            reserved: HashMap::new(),
            closed: HashMap::new(),
            orders: HashMap::new(),
            statuses: HashSet::new(),
            matched: HashMap::new(),
            forced: HashSet::new(),
            answered: HashSet::new(),
            asked: HashMap::new(),
            expired_by: HashMap::new(),
            ended_in: HashMap::new(),
            ended_before: HashSet::new(),
            alerts: HashSet::new(),
            alerts_due: HashSet::new(),
            untrue: None,
            leaving: Leaving::default(),
        };
        for delivered in delivered {
            match delivered {
                Delivered::Lane(input, effects) => {
                    let at_sight = match input {
                        matching::Input::Chain(record) => {
                            ledger.note_chain(record)?;
                            matches!(record.body, ChainBody::Transfer(_))
                        }
                        matching::Input::Command(command) => {
                            ledger.note_answer(command);
                            ledger.check_open(command, effects)?;
                            false
                        }
                    };
                    for effect in effects {
                        ledger.check_effect(effect, at_sight)?;
                    }
                }
                Delivered::Orders(command, effects) => ledger.check_orders(command, effects)?,
            }
        }
        Ok(ledger)
    }

    fn note_answer(&mut self, command: &DepositCommand) {
        use DepositCommandBody as Body;
        if let Body::Settled { transfer_id } | Body::Refused { transfer_id, .. } = command.body {
            self.answered.insert(transfer_id);
        }
    }

    fn lane(&self, blockchain: Blockchain) -> &Lane<'a> {
        &self.lanes[&blockchain]
    }

    /// The latest time of a chain's heads: they may go back.
    pub(super) fn time_max(&self, blockchain: Blockchain) -> UnixSeconds {
        self.lane(blockchain).time_max
    }

    fn note_chain(&mut self, record: &ChainRecord) -> Result<(), Violation> {
        let lane = self.lanes.get_mut(&record.blockchain).expect("a lane of one of the chains");
        match &record.body {
            ChainBody::Transfer(seen) => {
                self.included.insert(seen.payment(), Some(record.block));
            }
            ChainBody::Retract(seen) => {
                let payment = seen.payment();
                self.included.insert(payment, None);
                if let Some(transfer) = self.transfers.get(&payment)
                    && transfer.blockchain_confirmed
                {
                    self.alerts_due.insert(transfer.transfer_id);
                }
            }
            ChainBody::Watch(watch) => {
                lane.watched.insert(watch.wallet_address);
            }
            ChainBody::Head(_) => {
                lane.head = Some(record.block);
                lane.policy = lane.chain.policy_of(record);
                lane.time_max = lane.time_max.max(record.block.timestamp);
                for transfer in std::mem::take(&mut lane.at_sight) {
                    self.check_depth(&transfer)?;
                }
            }
        }
        Ok(())
    }

    /// 11: a deposit opens only where a payment is seen.
    fn check_open(
        &mut self,
        command: &DepositCommand,
        effects: &[matching::Effect],
    ) -> Result<(), Violation> {
        let DepositCommandBody::Open(open) = &command.body else { return Ok(()) };
        self.opened.insert((command.order_id, command.slot), open.clone());
        if effects.iter().any(|effect| matches!(effect, matching::Effect::Deposit(_))) {
            let (wallet, lane) = (command.wallet_address, self.lane(command.blockchain));
            let is_watched = lane.watched.contains(&wallet) && open.contract == CONTRACT;
            holds!(11, is_watched, "opened at {wallet}, which is not watched: {open:?}");
            let (head, limit) = (lane.head, i64::from(open.head_age_max_seconds));
            let issued_at = command.issued_at.seconds();
            let is_fresh = head.is_some_and(|head| issued_at <= head.timestamp.plus(limit));
            holds!(11, is_fresh, "opened at {issued_at} by {head:?}: {open:?}");
        }
        Ok(())
    }

    /// `at_sight`: a transfer in the chain led to it, not a head.
    fn check_effect(&mut self, effect: &matching::Effect, at_sight: bool) -> Result<(), Violation> {
        match effect {
            matching::Effect::Transfer(TransferStage::Confirmed, transfer) if at_sight => {
                let lane = self.lanes.get_mut(&transfer.blockchain).expect("a lane");
                lane.at_sight.push(transfer.clone());
                self.check_transfer(TransferStage::Confirmed, transfer)
            }
            matching::Effect::Transfer(stage, transfer) => {
                if *stage == TransferStage::Confirmed {
                    let is_known = self.transfers.contains_key(&transfer.observation.payment());
                    holds!(1, is_known, "confirmed and never seen: {transfer:?}");
                    self.check_depth(transfer)?;
                }
                self.check_transfer(*stage, transfer)
            }
            matching::Effect::Deposit(deposit) => self.check_deposit(deposit),
            matching::Effect::Command(command) => self.check_settle(command),
            matching::Effect::Progress(progress) => self.check_progress(progress),
            matching::Effect::Alert(alert) => {
                if alert.kind == AlertKind::ConfirmedTransferRetracted {
                    self.alerts.extend(alert.transfer_id);
                }
                Ok(())
            }
        }
    }

    /// 5: a lane is at the last head. 11: it says what is watched, and since when a transfer waits.
    fn check_progress(&mut self, progress: &ChainProgress) -> Result<(), Violation> {
        let blockchain = progress.blockchain;
        let lane = self.lane(blockchain);
        let hash = lane.head.map(|head| head.hash);
        holds!(5, hash == Some(progress.head.hash), "not the last head: {progress:?}");
        let of = |watch: &Watch| (watch.contracts == [CONTRACT]).then_some(watch.wallet_address);
        let watched: Option<HashSet<Address>> = progress.watched.iter().map(of).collect();
        let waits = |(payment, transfer): (&PaymentKey, &Transfer)| {
            let is_waiting = transfer.blockchain == blockchain
                && transfer.status == TransferStatus::WaitingForConfirmation;
            let block = self.included.get(payment).copied().flatten();
            block.filter(|_| is_waiting).map(|block| block.timestamp)
        };
        let oldest = self.transfers.iter().filter_map(waits).min();
        if watched.as_ref() != Some(&lane.watched) || oldest != progress.oldest_unconfirmed {
            let text = format!("{:?} are watched, {oldest:?} waits: {progress:?}", lane.watched);
            self.untrue.get_or_insert(text);
        }
        Ok(())
    }

    fn check_transfer(
        &mut self,
        stage: TransferStage,
        transfer: &Transfer,
    ) -> Result<(), Violation> {
        let payment = transfer.observation.payment();
        let named = *self.payments.entry(transfer.transfer_id).or_insert(payment);
        holds!(2, named == payment, "one id for {named:?} and {payment:?}");
        let last = self.transfers.get(&payment);
        if let Some(last) = last {
            holds!(2, last.transfer_id == transfer.transfer_id, "two ids for {payment:?}");
            let later = last.updated_at < transfer.updated_at;
            holds!(5, later, "the version clock does not grow: {last:?} then {transfer:?}");
        }
        let before = last.map(|last| last.status);
        let allowed = self.is_allowed(stage, before, transfer);
        holds!(1, allowed, "{before:?} became {} by {stage:?}: {transfer:?}", transfer.status);
        *self.stages.entry(payment).or_default().entry(stage).or_default() += 1;
        match stage {
            TransferStage::Detected | TransferStage::Failed => {}
            TransferStage::Confirmed => {
                holds!(3, transfer.blockchain_confirmed, "confirmed and not: {transfer:?}");
            }
            TransferStage::Matched => self.check_matched(transfer)?,
            TransferStage::Unknown => {
                self.ended_in.insert(payment, transfer.block.hash);
                let reason = self.is_true_reason(transfer);
                holds!(1, reason, "unknown without a true reason: {transfer:?}");
                let has_none = transfer.order_id.is_none() && transfer.fulfillment_id.is_none();
                holds!(2, has_none, "unknown, and yet of an order: {transfer:?}");
            }
        }
        self.transfers.insert(payment, transfer.clone());
        Ok(())
    }

    /// 1: which states may follow. Matched and unknown are ends, reached once, by way of confirmed.
    fn is_allowed(
        &self,
        stage: TransferStage,
        before: Option<TransferStatus>,
        transfer: &Transfer,
    ) -> bool {
        use TransferStatus::{
            FailedToConfirm, Matched, NoMatchedDeposit, WaitingForConfirmation, WaitingForMatch,
        };
        match (stage, before, transfer.status) {
            (
                TransferStage::Detected,
                None | Some(WaitingForConfirmation | FailedToConfirm),
                WaitingForConfirmation,
            )
            | (TransferStage::Confirmed, None | Some(WaitingForConfirmation), WaitingForMatch)
            | (TransferStage::Failed, Some(WaitingForConfirmation), FailedToConfirm)
            | (TransferStage::Matched, Some(WaitingForMatch), Matched)
            | (TransferStage::Unknown, Some(WaitingForMatch), NoMatchedDeposit) => true,
            // Nothing was paid with it, and its block is gone: it waits for confirmation again.
            (TransferStage::Detected, Some(WaitingForMatch), WaitingForConfirmation) => {
                self.included.get(&transfer.observation.payment()) == Some(&None)
            }
            // It left the chain while it asked to pay, and never got an answer.
            (TransferStage::Failed, Some(WaitingForMatch), FailedToConfirm) => {
                self.included.get(&transfer.observation.payment()) == Some(&None)
                    && !self.answered.contains(&transfer.transfer_id)
            }
            // In another block. What was decided stays.
            (
                TransferStage::Detected,
                Some(WaitingForMatch | Matched | NoMatchedDeposit),
                status,
            ) => before == Some(status),
            _ => false,
        }
    }

    /// 3: in the chain of the head that confirmed it, as deep as its amount needs.
    fn check_depth(&self, transfer: &Transfer) -> Result<(), Violation> {
        let Lane { chain, head, policy, .. } = self.lane(transfer.blockchain);
        let depth = policy.depth_of(transfer.observation.value);
        let confirmations =
            head.and_then(|head| chain.confirmations(transfer.block.hash, head.hash));
        holds!(
            3,
            confirmations.is_some_and(|count| count >= depth),
            "confirmed with {confirmations:?} of {depth} blocks at {head:?}: {transfer:?}"
        );
        Ok(())
    }

    /// 2: one order, one transfer; the order that was asked, with the deposit that it fits.
    fn check_matched(&mut self, transfer: &Transfer) -> Result<(), Violation> {
        let id = transfer.transfer_id;
        let pays = transfer.order_id.zip(transfer.deposit_id);
        let asked = self.asked.get(&id).copied();
        holds!(2, pays.is_some() && pays == asked, "asked {asked:?}: {transfer:?}");
        holds!(2, transfer.fulfillment_id.is_some(), "no fulfillment: {transfer:?}");
        if let Some((order, _)) = pays {
            let other = self.matched.insert(order, id);
            holds!(2, other.is_none(), "order {order} is paid by {other:?} and {id}");
            let paid_by = self.orders.get(&order).and_then(|order| order.paid_by);
            holds!(2, paid_by == Some(id), "{order} is paid by {paid_by:?}, not by {id}");
        }
        Ok(())
    }

    /// Whether the reason to give the transfer up is true now: of a deposit of its amount, or that
    /// there is none. No deposit that it fits may wait, unless its order refused.
    fn is_true_reason(&self, transfer: &Transfer) -> bool {
        let seen = &transfer.observation;
        let time = transfer.block.timestamp;
        let at_wallet = |d: &&Deposit| {
            d.blockchain == transfer.blockchain
                && d.wallet_address == seen.to_address
                && d.stablecoin == seen.stablecoin
        };
        let same_amount = |d: &&Deposit| at_wallet(d) && d.value == seen.value;
        let is_open = |d: &Deposit| d.state == DepositState::Open;
        let status = |d: &Deposit| self.orders.get(&d.order_id).map(|order| order.status);
        let was = |d: &Deposit, status| self.statuses.contains(&(d.order_id, status));
        let is_true = |d: &Deposit, reason| match reason {
            UnknownReason::SenderMismatch => d.user_address.is_some_and(|a| a != seen.from_address),
            UnknownReason::BeforeDeposit => time < d.started_at.plus(-self.skew(d)),
            UnknownReason::Late => {
                let expired = d.close_reason == Some(CloseReason::Expired);
                let is_over = was(d, OrderStatus::Expired) || self.leaving.has_left(d.order_id);
                time > d.expires_at || expired || is_over
            }
            UnknownReason::AlreadyPaid => was(d, OrderStatus::Paid),
            UnknownReason::OrderCancelled => was(d, OrderStatus::Cancelled),
            UnknownReason::NoDeposit | UnknownReason::AmountMismatch | UnknownReason::OwnWallet => {
                false
            }
        };
        let waits = |d: &Deposit| {
            is_open(d) && self.fits(transfer, d) && status(d) == Some(OrderStatus::Pending)
        };
        let mut deposits = self.deposits.values();
        let wanted = deposits.clone().any(waits);
        !wanted
            && match transfer.reason {
                None => false,
                Some(UnknownReason::OwnWallet) => WALLETS.contains(&seen.from_address),
                Some(UnknownReason::NoDeposit) => !deposits.any(|d| at_wallet(&d) && is_open(d)),
                Some(UnknownReason::AmountMismatch) => deposits.any(|d| at_wallet(&d)),
                Some(reason) => deposits.filter(same_amount).any(|d| is_true(d, reason)),
            }
    }

    fn skew(&self, deposit: &Deposit) -> i64 {
        let open = self.opened.get(&(deposit.order_id, deposit.slot));
        open.map_or(0, |open| i64::from(open.skew_seconds))
    }

    fn fits(&self, transfer: &Transfer, deposit: &Deposit) -> bool {
        let seen = &transfer.observation;
        let time = transfer.block.timestamp;
        !WALLETS.contains(&seen.from_address)
            && transfer.blockchain == deposit.blockchain
            && seen.to_address == deposit.wallet_address
            && seen.stablecoin == deposit.stablecoin
            && seen.value == deposit.value
            && deposit.user_address.is_none_or(|sender| sender == seen.from_address)
            && deposit.started_at.plus(-self.skew(deposit)) <= time
            && time <= deposit.expires_at
    }

    /// 10: no two open deposits share an amount. 8: none expires early, or with a payment under way.
    fn check_deposit(&mut self, deposit: &Deposit) -> Result<(), Violation> {
        let id = deposit.deposit_id;
        if let Some(last) = self.deposits.get(&id) {
            let replaced = last.close_reason == Some(CloseReason::Replaced);
            let settled = replaced && deposit.close_reason == Some(CloseReason::Settled);
            let was_open = last.state == DepositState::Open;
            holds!(10, was_open || settled, "opened or closed again: {deposit:?}");
            let later = last.updated_at < deposit.updated_at;
            holds!(5, later, "the version clock does not grow: {last:?} then {deposit:?}");
        }
        if deposit.state == DepositState::Open {
            self.check_reservation(deposit)?;
            self.reserved.entry(place(deposit)).or_default().push(id);
            let ended =
                self.transfers.iter().filter(|(_, t)| t.status == TransferStatus::NoMatchedDeposit);
            self.ended_before.extend(ended.map(|(payment, _)| (id, *payment)));
        } else {
            let known = self.deposits.contains_key(&id);
            holds!(10, known, "closed and never opened: {deposit:?}");
            let head = self.lane(deposit.blockchain).head;
            let time = head.map_or(deposit.updated_at.seconds(), |head| head.timestamp);
            self.closed.insert(id, time);
        }
        if deposit.close_reason == Some(CloseReason::Expired) {
            let Lane { chain, head, policy, .. } = self.lane(deposit.blockchain);
            let depth = policy.depth_of(deposit.value);
            let confirmed = head.and_then(|head| chain.confirmed(head.hash, depth));
            let passed = confirmed.is_some_and(|(_, time)| time > deposit.expires_at);
            holds!(8, passed, "expired with {confirmed:?} confirmed: {deposit:?}");
            self.expired_by.extend(confirmed.map(|(block, _)| (id, block)));
            let waits = |transfer: &&Transfer| {
                let (confirmation, matching) =
                    (TransferStatus::WaitingForConfirmation, TransferStatus::WaitingForMatch);
                [confirmation, matching].contains(&transfer.status) && self.fits(transfer, deposit)
            };
            let waiting = self.transfers.values().find(waits);
            holds!(8, waiting.is_none(), "{deposit:?} expired before {waiting:?} was settled");
        }
        self.deposits.insert(id, deposit.clone());
        Ok(())
    }

    /// 3: nothing that left the chain asks to pay. 2: what asks fits, as it is then.
    fn check_settle(&mut self, command: &OrderCommand) -> Result<(), Violation> {
        let OrderCommandBody::Settle(settle) = &command.body else { return Ok(()) };
        let payment = self.payments.get(&settle.transfer_id);
        let block = payment.and_then(|payment| self.included.get(payment).copied().flatten());
        holds!(3, block.is_some(), "{settle:?} asks to pay, and is in no block");
        let transfer = payment.and_then(|payment| self.transfers.get(payment));
        let deposit = self.deposits.get(&settle.deposit_id);
        // The same question without an answer: meanwhile it may be in a block of another time.
        let question = (command.order_id, settle.deposit_id);
        let asked_before = self.asked.get(&settle.transfer_id) == Some(&question)
            && !self.answered.contains(&settle.transfer_id);
        let fits = transfer.zip(deposit).is_some_and(|(transfer, deposit)| {
            transfer.status == TransferStatus::WaitingForMatch
                && (deposit.order_id, deposit.slot) == (command.order_id, settle.slot)
                && (self.fits(transfer, deposit) || asked_before)
        });
        holds!(2, fits, "{transfer:?} does not fit {deposit:?}");
        self.asked.insert(settle.transfer_id, question);
        Ok(())
    }

    fn check_orders(
        &mut self,
        command: &OrderCommand,
        effects: &[orders::Effect],
    ) -> Result<(), Violation> {
        self.check_answered(command, effects)?;
        if matches!(command.body, OrderCommandBody::MarkPaid(_)) && !effects.is_empty() {
            self.forced.insert(command.order_id);
        }
        for effect in effects {
            if let orders::Effect::Order(order) = effect {
                self.check_order(order, command)?;
                self.statuses.insert((order.order_id, order.status));
                self.orders.insert(order.order_id, order.clone());
            }
        }
        Ok(())
    }

    /// 4: the history of an order. 8: it expires only when its time has passed everywhere.
    fn check_order(&self, order: &Order, command: &OrderCommand) -> Result<(), Violation> {
        let id = order.order_id;
        let last = self.orders.get(&id);
        let before = last.map_or(OrderStatus::Pending, |last| last.status);
        // Repetitions are not in the records checked, but their versions are counted.
        let version = last.map_or(0, |last| last.version);
        holds!(4, order.version > version, "{id} has version {} twice", order.version);
        holds!(4, last.is_some() || order.cause == OrderCause::Created, "{order:?} came first");
        if let Some(last) = last {
            let later = last.updated_at < order.updated_at;
            holds!(5, later, "the version clock does not grow: {last:?} then {order:?}");
        }
        let allowed = match (before, order.status) {
            (before, after) if before == after => true,
            (OrderStatus::Pending, OrderStatus::Paid) => {
                [OrderCause::Paid, OrderCause::MarkedPaid].contains(&order.cause)
            }
            (OrderStatus::Pending, OrderStatus::Expired) => order.cause == OrderCause::Expired,
            (OrderStatus::Pending, OrderStatus::Cancelled) => order.cause == OrderCause::Cancelled,
            (_, OrderStatus::Paid) => order.cause == OrderCause::MarkedPaid,
            _ => false,
        };
        holds!(4, allowed, "{before} became {} by {}", order.status, order.cause);
        let changed = before != order.status;
        holds!(4, order.status_changed == changed, "status_changed after {before}: {order:?}");
        let payer = last.and_then(|last| last.paid_by);
        let kept = payer.is_none() || payer == order.paid_by;
        holds!(2, kept, "the payer was {payer:?}: {order:?}");
        if changed && order.status == OrderStatus::Expired {
            let time_max = self.lanes.values().map(|lane| lane.time_max).max();
            let time = time_max.unwrap_or_default().max(command.issued_at.seconds());
            holds!(8, order.expires_at < time, "expired at {time}: {order:?}");
            let open = |d: &&Deposit| d.order_id == id && d.state == DepositState::Open;
            let open = self.deposits.values().find(open);
            holds!(8, open.is_none(), "{id} expired with {open:?}");
        }
        Ok(())
    }

    /// What must hold once everything is read and every window has passed.
    pub fn check_end(&self) -> Result<(), Violation> {
        let at_sight: Vec<_> = self.lanes.values().flat_map(|lane| &lane.at_sight).collect();
        holds!(3, at_sight.is_empty(), "no head confirms {at_sight:?}");
        let payments = self.lanes.values().flat_map(|lane| lane.chain.payments());
        let canonical: HashSet<PaymentKey> = payments.map(|(payment, _)| payment).collect();
        for payment in &canonical {
            // 1: a transfer on the chain ends matched or unknown.
            let status = self.transfers.get(payment).map(|transfer| transfer.status);
            let ended = [Some(TransferStatus::Matched), Some(TransferStatus::NoMatchedDeposit)];
            holds!(1, ended.contains(&status), "{payment:?} ended as {status:?}");
        }
        for (payment, transfer) in &self.transfers {
            let confirmed = self.stages[payment].contains_key(&TransferStage::Confirmed);
            let failed = transfer.status == TransferStatus::FailedToConfirm;
            let on_chain = canonical.contains(payment);
            let shown = transfer.orphaned_at.is_none();
            holds!(3, !confirmed || shown == on_chain, "on the chain: {on_chain}; {transfer:?}");
            holds!(1, on_chain || confirmed || failed, "gone from the chain: {transfer:?}");
            let order = transfer.order_id.and_then(|order| self.orders.get(&order));
            if transfer.status == TransferStatus::Matched {
                let paid_by = order.and_then(|order| order.paid_by);
                holds!(2, paid_by == Some(transfer.transfer_id), "{order:?} by {transfer:?}");
            }
        }
        for order in self.orders.values() {
            holds!(8, order.status != OrderStatus::Pending, "waits for ever: {order:?}");
            let paid_by = self.matched.get(&order.order_id).copied();
            // A payment that left the chain is not asked about again, if the answer was never read.
            let unheard = |id: &TransferId| {
                !self.answered.contains(id) && !canonical.contains(&self.payments[id])
            };
            let payer = order.paid_by.filter(|id| !unheard(id));
            holds!(2, paid_by == payer, "{paid_by:?} paid {order:?}");
            let reason = order.paid_by.is_some() || self.forced.contains(&order.order_id);
            holds!(2, (order.status == OrderStatus::Paid) == reason, "not paid: {order:?}");
        }
        let open = self.deposits.values().find(|d| d.state == DepositState::Open);
        holds!(8, open.is_none(), "waits for ever: {open:?}");
        self.check_in_time()?;
        // 3: an alert reports each confirmation that was taken back.
        let missing: Vec<_> = self.alerts_due.difference(&self.alerts).collect();
        holds!(3, missing.is_empty(), "retracted after they were confirmed: {missing:?}");
        let untrue = self.untrue.as_ref();
        holds!(11, untrue.is_none(), "not what a lane publishes of itself: {untrue:?}");
        Ok(())
    }

    /// 11: no deposit expired for which there is a transfer in time that paid nothing, unless blocks that were
    /// confirmed left the chain since, or the transfer had ended when the deposit opened.
    fn check_in_time(&self) -> Result<(), Violation> {
        let chain_of = |deposit: &Deposit| self.lane(deposit.blockchain).chain;
        let for_ever =
            |d: &Deposit| self.expired_by.get(&d.deposit_id).is_some_and(|b| chain_of(d).has(*b));
        let expired = |d: &&Deposit| d.close_reason == Some(CloseReason::Expired) && for_ever(d);
        let ended_otherwise = |d: &&Deposit| {
            self.orders.get(&d.order_id).is_none_or(|o| o.status != OrderStatus::Expired)
        };
        for deposit in self.deposits.values().filter(expired).filter(|d| !ended_otherwise(d)) {
            let chain = chain_of(deposit);
            for (payment, time) in chain.payments() {
                let Some(transfer) = self.transfers.get(&payment) else { continue };
                if self.ended_in.get(&payment).is_some_and(|block| !chain.has(*block)) {
                    continue;
                }
                let block = Block { timestamp: time, ..transfer.block };
                let in_time = self.fits(&Transfer { block, ..transfer.clone() }, deposit);
                let paid_nothing = transfer.status != TransferStatus::Matched;
                let overlooked = in_time
                    && paid_nothing
                    && !self.ended_before.contains(&(deposit.deposit_id, payment));
                holds!(11, !overlooked, "{deposit:?} expired, though in time came {transfer:?}");
            }
        }
        Ok(())
    }
}
