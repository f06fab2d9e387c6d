//! The model's shop: orders, deposits, transfers, and their matching.

use std::collections::{BTreeMap, BTreeSet};

use schemas::record::{Block, StopScope};
use schemas::{
    Address, Amount, Blockchain, CloseReason, OrderId, OrderStatus, PaymentKey, Stablecoin,
    TransferStatus, UnixSeconds, UnknownReason,
};

use super::chain::WALLETS;

#[derive(Debug)]
pub(super) struct ModelOrder {
    pub(super) id: OrderId,
    pub(super) amount: Amount,
    pub(super) sender: Option<Address>,
    pub(super) expires_at: UnixSeconds,
    pub(super) status: OrderStatus,
    pub(super) payer: Option<PaymentKey>,
    /// Its candidates when an operator marked it paid.
    pub(super) on_its_way: Vec<PaymentKey>,
}

#[derive(Debug)]
pub(super) struct ModelDeposit {
    pub(super) order: OrderId,
    pub(super) blockchain: Blockchain,
    pub(super) stablecoin: Stablecoin,
    pub(super) contracts: Vec<Address>,
    pub(super) wallet: Address,
    pub(super) value: Amount,
    pub(super) sender: Option<Address>,
    /// Height of the lane, and number of transfers seen, when it opened.
    pub(super) above: i64,
    pub(super) listed: usize,
    pub(super) until: UnixSeconds,
    pub(super) late_window_seconds: i64,
    pub(super) accepts_late: bool,
    /// Close reason, and the chain time of the close.
    pub(super) closed: Option<(CloseReason, UnixSeconds)>,
    /// `true` if its amount may be reserved again.
    pub(super) released: bool,
}

#[derive(Debug)]
pub(super) struct ModelTransfer {
    pub(super) blockchain: Blockchain,
    pub(super) payment: PaymentKey,
    /// Number of transfers seen before it.
    pub(super) number: usize,
    /// The deposit that it fitted when it was seen.
    pub(super) awaited_by: Option<usize>,
    pub(super) block: Block,
    /// Its place in the block.
    pub(super) log_index: i32,
    pub(super) on_chain: bool,
    pub(super) status: TransferStatus,
    /// Number of the head that confirmed it, counted over all chains.
    pub(super) confirmed_by: usize,
    /// Chain time at which it stops waiting for a deposit.
    pub(super) deadline: UnixSeconds,
    pub(super) order: Option<OrderId>,
    pub(super) reasons: BTreeSet<UnknownReason>,
}

impl ModelTransfer {
    /// `true` if the merchant moves its own money.
    pub(super) fn is_sweep(&self) -> bool {
        WALLETS.contains(&self.payment.from)
    }

    /// `true` if one of these stops covers it. None covers the merchant's own money.
    pub(super) fn is_covered(&self, stopped: &BTreeSet<StopScope>) -> bool {
        let PaymentKey { to, stablecoin, contract, .. } = self.payment;
        let covers = |scope: &StopScope| scope.covers(to, stablecoin, contract);
        !self.is_sweep() && stopped.iter().any(covers)
    }

    pub(super) fn end_stopped(&mut self) {
        self.status = TransferStatus::NoMatchedDeposit;
        self.reasons.insert(UnknownReason::Stopped);
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(
            self.status,
            TransferStatus::WaitingForConfirmation | TransferStatus::WaitingForMatch
        )
    }
}

impl ModelDeposit {
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// `true` if its order waits for it: it is open, or was replaced and still has its amount.
    pub(super) fn is_awaited(&self) -> bool {
        let is_replaced = matches!(self.closed, Some((CloseReason::Replaced, _)));
        self.is_open() || (is_replaced && !self.released)
    }

    /// `true` if the order decides about a payment: the deposit has its amount, and is open, was
    /// replaced, or ended unpaid and accepts late payments.
    pub(super) fn takes(&self) -> bool {
        !self.released && self.closed.is_none_or(|(reason, _)| self.is_left_to_order(reason))
    }

    /// `true` if the order decides about a payment to a deposit closed for this reason.
    pub(super) fn is_left_to_order(&self, reason: CloseReason) -> bool {
        match reason {
            CloseReason::Replaced => true,
            CloseReason::Expired | CloseReason::OrderExpired | CloseReason::OrderCancelled => {
                self.accepts_late
            }
            CloseReason::Settled | CloseReason::OrderPaid => false,
        }
    }

    pub(super) fn is_for_sender(&self, sender: Address) -> bool {
        self.sender.is_none_or(|only| only == sender)
    }

    pub(super) fn has_amount_of(&self, transfer: &ModelTransfer) -> bool {
        let payment = &transfer.payment;
        self.blockchain == transfer.blockchain
            && self.wallet == payment.to
            && self.stablecoin == payment.stablecoin
            && self.value == payment.value
    }

    /// `true` if the transfer or its block was seen before the deposit opened.
    pub(super) fn is_after(&self, transfer: &ModelTransfer) -> bool {
        transfer.number < self.listed || transfer.block.number <= self.above
    }

    pub(super) fn fits(&self, transfer: &ModelTransfer) -> bool {
        let time = transfer.block.timestamp;
        !transfer.is_sweep()
            && self.has_amount_of(transfer)
            && self.contracts.contains(&transfer.payment.contract)
            && self.is_for_sender(transfer.payment.from)
            && !self.is_after(transfer)
            && (time <= self.until || self.accepts_late)
    }
}

#[derive(Debug, Default)]
pub(super) struct Shop {
    pub(super) orders: Vec<ModelOrder>,
    pub(super) deposits: Vec<ModelDeposit>,
    /// Transfers in the order of first sight.
    pub(super) transfers: Vec<ModelTransfer>,
    pub(super) lanes: BTreeMap<Blockchain, ModelLane>,
    /// Number of heads read, over all chains.
    pub(super) heads: usize,
}

/// State of a chain's lane in the model.
#[derive(Debug, Default)]
pub(super) struct ModelLane {
    pub(super) watched: BTreeSet<Address>,
    /// Time of the last head; `None` before the first.
    pub(super) time: Option<UnixSeconds>,
    /// The height of that head.
    pub(super) height: i64,
    /// `true` if that head has a gap.
    pub(super) has_gap: bool,
    pub(super) stopped: BTreeSet<StopScope>,
}

impl Shop {
    /// `true` if a stop covers the transfer.
    pub(super) fn is_stopped(&self, transfer: &ModelTransfer) -> bool {
        let lane = self.lanes.get(&transfer.blockchain);
        lane.is_some_and(|lane| transfer.is_covered(&lane.stopped))
    }

    /// `true` if a payment for it is under way.
    pub(super) fn has_payment_for(&self, deposit: &ModelDeposit) -> bool {
        self.transfers.iter().any(|t| self.is_under_way(t, deposit))
    }

    /// `true` if the transfer waits for this deposit. An orphaned transfer belongs to the order whose deposit awaited
    /// it: until it is included again, it is not a candidate of another order.
    pub(super) fn is_under_way(&self, transfer: &ModelTransfer, deposit: &ModelDeposit) -> bool {
        let awaited_by = transfer.awaited_by.map(|at| self.deposits[at].order);
        let is_tied = transfer.on_chain || awaited_by == Some(deposit.order);
        transfer.is_waiting() && is_tied && deposit.fits(transfer)
    }

    pub(super) fn status_of(&self, order: OrderId) -> Option<OrderStatus> {
        self.orders.iter().find(|o| o.id == order).map(|o| o.status)
    }

    pub(super) fn time_of(&self, blockchain: Blockchain) -> UnixSeconds {
        self.lanes.get(&blockchain).and_then(|lane| lane.time).unwrap_or_default()
    }
}
