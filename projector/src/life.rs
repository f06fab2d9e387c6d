//! The life of each payment as log lines, for a person who searches the log for an order.

use schemas::record::{Deposit, Order, Transfer};
use schemas::{
    Amount, Blockchain, DepositId, DepositState, OrderCause, OrderId, OrderStatus, Stablecoin,
    TransferId, TransferStatus, UnknownReason,
};
use store::Change;
use tracing::Level;

/// Target of the lines, for filters.
const TARGET: &str = "tidemark::orders";

/// A step in the life of a payment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Event {
    what: &'static str,
    order_id: Option<OrderId>,
    /// Likely order of a transfer that pays none.
    candidate_id: Option<OrderId>,
    deposit_id: Option<DepositId>,
    transfer_id: Option<TransferId>,
    amount: Amount,
    blockchain: Option<Blockchain>,
    stablecoin: Option<Stablecoin>,
    reason: Option<UnknownReason>,
}

macro_rules! write_at {
    ($level:expr, $event:expr) => {
        tracing::event!(
            target: TARGET,
            $level,
            order.id = $event.order_id.map(tracing::field::display),
            order.candidate_id = $event.candidate_id.map(tracing::field::display),
            deposit.id = $event.deposit_id.map(tracing::field::display),
            transfer.id = $event.transfer_id.map(tracing::field::display),
            amount = %$event.amount,
            stablecoin = $event.stablecoin.map(Stablecoin::as_str),
            blockchain = $event.blockchain.map(Blockchain::as_str),
            reason = $event.reason.map(UnknownReason::as_str),
            "{}",
            $event.what
        )
    };
}

impl Event {
    /// Returns the payment step of a change, if it is one.
    pub(super) fn of(change: &Change) -> Option<Self> {
        match change {
            Change::Order(order) => of_order(order),
            Change::Deposit(deposit) => of_deposit(deposit),
            Change::Transfer(transfer) => of_transfer(transfer),
            Change::Attempt(_) | Change::Chain(_) => None,
        }
    }

    pub(super) fn write(&self, level: Level) {
        // `tracing` needs a constant level at each place that logs.
        if level == Level::INFO {
            write_at!(Level::INFO, self);
        } else {
            write_at!(Level::DEBUG, self);
        }
    }
}

/// `true` if lines of this level are written.
pub(super) fn is_read(level: Level) -> bool {
    if level == Level::INFO {
        tracing::enabled!(target: TARGET, Level::INFO)
    } else {
        tracing::enabled!(target: TARGET, Level::DEBUG)
    }
}

fn of_order(order: &Order) -> Option<Event> {
    let created = order.cause == OrderCause::Created;
    let what = match (order.status, order.cause) {
        (_, OrderCause::Created) => "order created",
        _ if !order.status_changed => return None,
        (OrderStatus::Paid, OrderCause::PaidLate) => "order paid late",
        (OrderStatus::Paid, OrderCause::Attached) => "order paid by an attached transfer",
        (OrderStatus::Paid, OrderCause::MarkedPaid) => "order marked paid",
        (OrderStatus::Paid, _) => "order paid",
        (OrderStatus::Expired, _) => "order expired",
        (OrderStatus::Cancelled, _) => "order cancelled",
        (OrderStatus::Pending, _) => return None,
    };
    let (blockchain, stablecoin) =
        if created { (order.blockchain, order.stablecoin) } else { paid_with(order) };
    Some(Event {
        what,
        order_id: Some(order.order_id),
        transfer_id: order.paid_by,
        amount: order.paid_value.unwrap_or(order.amount),
        blockchain,
        stablecoin,
        ..Event::default()
    })
}

/// Chain and coin of the payment, where only one of the order's deposits had its amount.
fn paid_with(order: &Order) -> (Option<Blockchain>, Option<Stablecoin>) {
    let paid = |value: Option<Amount>| value.is_some() && value == order.paid_value;
    let mut payers = order.deposits.iter().filter(|deposit| paid(deposit.value));
    match (payers.next(), payers.next()) {
        (Some(payer), None) => (Some(payer.blockchain), Some(payer.stablecoin)),
        _ => (None, None),
    }
}

fn of_deposit(deposit: &Deposit) -> Option<Event> {
    (deposit.state == DepositState::Open).then_some(Event {
        what: "deposit opened",
        order_id: Some(deposit.order_id),
        deposit_id: Some(deposit.deposit_id),
        amount: deposit.value,
        blockchain: Some(deposit.blockchain),
        stablecoin: Some(deposit.stablecoin),
        ..Event::default()
    })
}

fn of_transfer(transfer: &Transfer) -> Option<Event> {
    let what = match transfer.status {
        TransferStatus::FailedToConfirm => "transfer failed to confirm",
        // A retract publishes the transfer again, without a new step of the payment.
        _ if transfer.orphaned_at.is_some() => return None,
        TransferStatus::WaitingForConfirmation => "transfer seen",
        TransferStatus::NoMatchedDeposit => "transfer unknown",
        TransferStatus::WaitingForMatch | TransferStatus::Matched => return None,
    };
    Some(Event {
        what,
        order_id: transfer.order_id,
        candidate_id: transfer.candidate_order_id,
        deposit_id: transfer.deposit_id,
        transfer_id: Some(transfer.transfer_id),
        amount: transfer.observation.value,
        blockchain: Some(transfer.blockchain),
        stablecoin: Some(transfer.observation.stablecoin),
        reason: transfer.reason,
    })
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    fn whats(changes: &[Change]) -> Vec<&'static str> {
        changes.iter().filter_map(Event::of).map(|event| event.what).collect()
    }

    fn ended(status: OrderStatus, cause: OrderCause) -> Order {
        Order { status, cause, status_changed: true, ..example::order() }
    }

    #[test]
    fn each_step_is_one_line() {
        let created = Order { cause: OrderCause::Created, ..example::order() };
        let closed = Deposit { state: DepositState::Closed, ..example::deposit() };
        let transfer = |status| Change::Transfer(Transfer { status, ..example::transfer() });
        let orphaned = Transfer {
            status: TransferStatus::NoMatchedDeposit,
            orphaned_at: Some(example::deposit().expires_at),
            ..example::transfer()
        };
        let repeated = Order { status: OrderStatus::Paid, ..example::order() };
        let events = whats(&[
            Change::Order(created),
            Change::Order(example::order()),
            Change::Deposit(example::deposit()),
            Change::Deposit(closed),
            transfer(TransferStatus::WaitingForConfirmation),
            transfer(TransferStatus::WaitingForMatch),
            transfer(TransferStatus::Matched),
            transfer(TransferStatus::NoMatchedDeposit),
            transfer(TransferStatus::FailedToConfirm),
            Change::Transfer(orphaned),
            Change::Order(ended(OrderStatus::Paid, OrderCause::Paid)),
            Change::Order(ended(OrderStatus::Paid, OrderCause::PaidLate)),
            Change::Order(ended(OrderStatus::Paid, OrderCause::Attached)),
            Change::Order(ended(OrderStatus::Paid, OrderCause::MarkedPaid)),
            Change::Order(ended(OrderStatus::Expired, OrderCause::Expired)),
            Change::Order(ended(OrderStatus::Cancelled, OrderCause::Cancelled)),
            Change::Order(repeated),
            Change::Attempt(example::attempt()),
            Change::Chain(example::chain_progress()),
        ]);
        let expected = [
            "order created",
            "deposit opened",
            "transfer seen",
            "transfer unknown",
            "transfer failed to confirm",
            "order paid",
            "order paid late",
            "order paid by an attached transfer",
            "order marked paid",
            "order expired",
            "order cancelled",
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn a_paid_order_names_its_transfer_and_chain() {
        let transfer = example::transfer();
        let paid = Order {
            paid_by: Some(transfer.transfer_id),
            paid_value: example::order().deposits[0].value,
            ..ended(OrderStatus::Paid, OrderCause::Paid)
        };
        let expected = Event {
            what: "order paid",
            order_id: Some(paid.order_id),
            transfer_id: Some(transfer.transfer_id),
            amount: example::deposit().value,
            blockchain: Some(Blockchain::Eth),
            stablecoin: Some(Stablecoin::Usdt),
            ..Event::default()
        };
        assert_eq!(Event::of(&Change::Order(paid.clone())), Some(expected));
        // Two deposits had the paid amount, so the order alone does not identify the chain.
        let deposits = [&paid.deposits[..], &paid.deposits].concat();
        let event = Event::of(&Change::Order(Order { deposits, ..paid })).unwrap();
        assert_eq!((event.blockchain, event.stablecoin), (None, None));
    }
}
