//! Commands to orders: from merchant, customer and operator, from the lanes, from the timer.

use schemas::record::{
    Attach, CreateOrder, Order, OrderCommand, OrderCommandBody, PaymentRequest, Settle,
};
use schemas::{
    Blockchain, CloseReason, CommandId, DepositId, RefusalReason, Stablecoin, TransferId,
    UnixSeconds,
};
use uuid::Uuid;

use crate::name::{CONTRACT, amount, order, three_cents, wallet};

/// A command of the api at this second, with this number as its id.
pub(crate) fn at(
    second: i64,
    order_letter: char,
    id: u128,
    body: OrderCommandBody,
) -> OrderCommand {
    OrderCommand {
        order_id: order(order_letter),
        command_id: Some(CommandId(Uuid::from_u128(id))),
        issued_at: UnixSeconds(second).micros(),
        body,
    }
}

/// Command from a lane, or from the runner's timer, to an order.
pub(crate) fn command(order_letter: char, body: OrderCommandBody) -> OrderCommand {
    OrderCommand { command_id: None, ..at(1100, order_letter, 0, body) }
}

/// A tick of the order's timer at this second.
pub(crate) fn tick(second: i64, order_letter: char) -> OrderCommand {
    OrderCommand { command_id: None, ..at(second, order_letter, 0, OrderCommandBody::Tick) }
}

/// An order of 10.00 that expires at second 2000, created at 1000 by command 1.
pub(crate) fn create(order_letter: char, payment: Option<PaymentRequest>) -> OrderCommand {
    let body = OrderCommandBody::Create(CreateOrder {
        merchant_order_id: format!("shop-{order_letter}"),
        amount: amount("10.00"),
        amount_text: "10.00".to_owned(),
        webhook_url: "https://shop.example/hooks".to_owned(),
        expecting_wallet_address: None,
        blockchain: payment.as_ref().map(|payment| payment.blockchain),
        stablecoin: payment.as_ref().map(|payment| payment.stablecoin),
        expires_at: UnixSeconds(2000),
        first_version: 1,
        payment,
    });
    at(1000, order_letter, 1, body)
}

/// A choice of USDT on this chain, at one of these wallets.
pub(crate) fn usdt(blockchain: Blockchain, wallets: &[u8]) -> PaymentRequest {
    PaymentRequest {
        blockchain,
        stablecoin: Stablecoin::Usdt,
        contract: CONTRACT,
        decimals: 6,
        contracts: vec![CONTRACT],
        wallets: wallets.iter().map(|number| wallet(*number)).collect(),
        amounts: three_cents(),
        late_window_seconds: 500,
        accepts_late: false,
        head_age_max_seconds: u32::MAX,
    }
}

pub(crate) fn choose(order_letter: char, id: u128, payment: PaymentRequest) -> OrderCommand {
    at(1050, order_letter, id, OrderCommandBody::ChoosePayment(payment))
}

pub(crate) fn cancel(order_letter: char, id: u128) -> OrderCommand {
    at(1060, order_letter, id, OrderCommandBody::Cancel)
}

pub(crate) fn mark_paid(order_letter: char, id: u128) -> OrderCommand {
    at(1070, order_letter, id, OrderCommandBody::MarkPaid(None))
}

pub(crate) fn resend(order_letter: char, id: u128) -> OrderCommand {
    at(1080, order_letter, id, OrderCommandBody::ResendWebhook(None))
}

/// The command with the order's row in the tables.
pub(crate) fn carrying(mut command: OrderCommand, order: &Order) -> OrderCommand {
    match &mut command.body {
        OrderCommandBody::MarkPaid(ended)
        | OrderCommandBody::ResendWebhook(ended)
        | OrderCommandBody::Attach(_, ended)
        | OrderCommandBody::AttachRefused(ended) => {
            *ended = Some(Box::new(order.clone()));
        }
        other => panic!("carries no order: {other:?}"),
    }
    command
}

pub(crate) fn opened(order_letter: char, slot: i32, deposit: i64, value: &str) -> OrderCommand {
    let (deposit_id, value) = (DepositId(deposit), amount(value));
    command(order_letter, OrderCommandBody::DepositOpened { slot, deposit_id, value })
}

/// The lane of this wallet refuses the deposit.
pub(crate) fn refused(
    order_letter: char,
    slot: i32,
    number: u8,
    reason: RefusalReason,
) -> OrderCommand {
    let wallet_address = wallet(number);
    command(order_letter, OrderCommandBody::DepositRefused { slot, wallet_address, reason })
}

/// The lane of this wallet has no amount for the deposit.
pub(crate) fn full(order_letter: char, slot: i32, number: u8) -> OrderCommand {
    refused(order_letter, slot, number, RefusalReason::AmountsTaken)
}

pub(crate) fn closed(order_letter: char, slot: i32, reason: CloseReason) -> OrderCommand {
    command(order_letter, OrderCommandBody::DepositClosed { slot, reason })
}

pub(crate) fn expired(order_letter: char, slot: i32) -> OrderCommand {
    closed(order_letter, slot, CloseReason::Expired)
}

pub(crate) fn seen(order_letter: char, transfer: i64) -> OrderCommand {
    command(order_letter, OrderCommandBody::CandidateSeen { transfer_id: TransferId(transfer) })
}

pub(crate) fn gone(order_letter: char, transfer: i64) -> OrderCommand {
    command(order_letter, OrderCommandBody::CandidateGone { transfer_id: TransferId(transfer) })
}

/// A settle of a confirmed transfer at wallet 1 of Ethereum.
pub(crate) fn settle(order_letter: char, slot: i32, transfer: i64) -> OrderCommand {
    let settle = Settle {
        transfer_id: TransferId(transfer),
        slot,
        deposit_id: DepositId(9),
        blockchain: Blockchain::Eth,
        wallet_address: wallet(1),
        accepts_late: false,
    };
    command(order_letter, OrderCommandBody::Settle(settle))
}

/// A settle for a deposit that accepts late payments.
pub(crate) fn late_settle(order_letter: char, slot: i32, transfer: i64) -> OrderCommand {
    let mut command = settle(order_letter, slot, transfer);
    if let OrderCommandBody::Settle(settle) = &mut command.body {
        settle.accepts_late = true;
    }
    command
}

/// An attach of a transfer at wallet 1 of Ethereum, by an operator's command of this number.
pub(crate) fn attach(order_letter: char, id: u128, transfer: i64, value: &str) -> OrderCommand {
    let attach = Attach {
        transfer_id: TransferId(transfer),
        value: amount(value),
        blockchain: Blockchain::Eth,
        wallet_address: wallet(1),
    };
    at(1090, order_letter, id, OrderCommandBody::Attach(attach, None))
}

/// The same attach, repeated by the lane.
pub(crate) fn attach_again(order_letter: char, transfer: i64, value: &str) -> OrderCommand {
    OrderCommand { command_id: None, ..attach(order_letter, 0, transfer, value) }
}

/// The lane refuses an operator's attach: the transfer must not pay this order.
pub(crate) fn attach_refused(order_letter: char, id: u128) -> OrderCommand {
    at(1090, order_letter, id, OrderCommandBody::AttachRefused(None))
}
