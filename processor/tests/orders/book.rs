//! The orders machine as the stories tell it, and the commands they are made of. Orders are letters;
//! commands, wallets and transfers are numbers.

use processor::machine::orders::{Effect, State};
use schemas::record::{
    CreateOrder, DepositCommand, DepositCommandBody, Order, OrderCommand, OrderCommandBody,
    OrdersEntry, PaymentRequest, Settle,
};
use schemas::{
    Address, AddressFamily, Amount, Blockchain, CloseReason, CommandId, DepositId, OrderId,
    RefusalReason, Stablecoin, TransferId, UnixMicros, UnixSeconds,
};
use uuid::Uuid;

use crate::story::{Machine, Story};

/// A story of the orders of one partition.
pub(crate) type Book = Story<State>;

impl Machine for State {
    type Input = OrderCommand;
    type Effect = Effect;
    type Entry = OrdersEntry;

    fn fresh() -> Self {
        Self::new()
    }
    fn decide(&mut self, input: &OrderCommand, effects: &mut Vec<Effect>) {
        self.decide(input, effects);
    }
    fn changes(&self) -> Vec<(String, Option<OrdersEntry>)> {
        self.changes()
    }
    fn commit(&mut self) {
        self.commit();
    }
    fn undo(&mut self) {
        self.undo();
    }
    fn restore(&mut self, key: &str, entry: Option<&OrdersEntry>) -> Result<(), String> {
        self.restore(key, entry)
    }
    fn snapshot(&self) -> Vec<(String, OrdersEntry)> {
        self.snapshot()
    }

    fn line(effect: &Effect) -> String {
        match effect {
            Effect::Order(order) => order_words(order),
            Effect::Command(command) => command_words(command),
        }
    }

    /// A command given twice is answered twice; what it did is done once.
    fn may_repeat(duplicate: &OrderCommand, effect: &Effect) -> bool {
        match effect {
            Effect::Order(order) => {
                duplicate.command_id.is_some()
                    && order.command_id == duplicate.command_id
                    && !order.status_changed
            }
            Effect::Command(command) => matches!(
                (&duplicate.body, &command.body),
                (
                    OrderCommandBody::Settle(_),
                    DepositCommandBody::Settled { .. } | DepositCommandBody::Refused { .. }
                )
            ),
        }
    }

    /// Commands may come again late only where they find an end; the matrix of terminal states has those.
    fn old_news(_told: &[OrderCommand]) -> Vec<OrderCommand> {
        Vec::new()
    }

    fn version(effect: &Effect) -> Option<(String, UnixMicros)> {
        match effect {
            Effect::Order(order) => Some((order.order_id.to_string(), order.updated_at)),
            Effect::Command(_) => None,
        }
    }
}

fn order_words(order: &Order) -> String {
    assert_eq!(order.amount, amount(&order.amount_text));
    let mut words =
        format!("{} v{} {}", letter(order.order_id), order.version, order.status.as_str());
    if order.status_changed {
        words.push('!');
    }
    words.push_str(&format!(" {}", order.cause));
    if let Some(transfer) = order.paid_by {
        words.push_str(&format!(" by #{transfer}"));
    }
    if let Some(command) = order.command_id {
        words.push_str(&format!(" answers {}", command.0.as_u128()));
    }
    for transfer in &order.candidates {
        words.push_str(&format!(" maybe #{transfer}"));
    }
    for (position, deposit) in order.deposits.iter().enumerate() {
        assert_eq!(usize::try_from(deposit.slot), Ok(position), "slots count from 0");
        let (wallet, state) = (number(&deposit.wallet_address), deposit.state);
        words.push_str(&format!(" [{state} w{wallet}"));
        if let (Some(id), Some(value)) = (deposit.deposit_id, deposit.value) {
            words.push_str(&format!(" #{id} {value}"));
        }
        words.push(']');
    }
    words
}

fn command_words(command: &DepositCommand) -> String {
    use DepositCommandBody as Body;
    let what = match &command.body {
        Body::Open(open) => {
            let (first, last) = (open.started_at, open.expires_at);
            let only = open
                .user_address
                .map_or(String::new(), |sender| format!(" only from w{}", number(&sender)));
            format!("open {} {} from {first} to {last}{only}", open.value, open.token)
        }
        Body::Close { reason } => format!("close {reason}"),
        Body::Settled { transfer_id } => format!("settled #{transfer_id}"),
        Body::Refused { transfer_id, reason } => format!("refused #{transfer_id} {reason}"),
    };
    let (wallet, slot) = (number(&command.wallet_address), command.slot);
    format!("{} w{wallet}: {}/{slot} {what}", command.blockchain, letter(command.order_id))
}

fn letter(order: OrderId) -> char {
    u32::try_from(order.0.as_u128()).ok().and_then(char::from_u32).unwrap_or('?')
}

fn number(wallet: &Address) -> u8 {
    wallet.bytes().first().copied().unwrap_or_default()
}

pub(crate) fn order(letter: char) -> OrderId {
    OrderId(Uuid::from_u128(u128::from(u32::from(letter))))
}

pub(crate) fn wallet(number: u8) -> Address {
    Address::new(AddressFamily::Evm, [number; 20])
}

pub(crate) fn amount(text: &str) -> Amount {
    let parsed = Amount::parse(text);
    assert!(parsed.is_ok(), "{text} is an amount");
    parsed.unwrap_or_default()
}

/// A command of somebody outside at a second, named by a number.
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

/// What a lane, or the runner's timer, tells an order.
pub(crate) fn tell(order_letter: char, body: OrderCommandBody) -> OrderCommand {
    OrderCommand { command_id: None, ..at(1100, order_letter, 0, body) }
}

/// The timer at this second.
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
        stablecoin: payment.as_ref().map(|payment| payment.token),
        expires_at: UnixSeconds(2000),
        payment,
    });
    at(1000, order_letter, 1, body)
}

/// USDT on this chain at one of these wallets.
pub(crate) fn usdt(blockchain: Blockchain, wallets: &[u8]) -> PaymentRequest {
    PaymentRequest {
        blockchain,
        token: Stablecoin::Usdt,
        wallets: wallets.iter().map(|number| wallet(*number)).collect(),
        nudge_step: amount("0.01"),
        nudge_limit: amount("0.03"),
        late_window_seconds: 500,
        skew_seconds: 30,
    }
}

pub(crate) fn choose(order_letter: char, id: u128, payment: PaymentRequest) -> OrderCommand {
    at(1050, order_letter, id, OrderCommandBody::ChoosePayment(payment))
}

pub(crate) fn cancel(order_letter: char, id: u128) -> OrderCommand {
    at(1060, order_letter, id, OrderCommandBody::Cancel)
}

pub(crate) fn mark_paid(order_letter: char, id: u128) -> OrderCommand {
    at(1070, order_letter, id, OrderCommandBody::MarkPaid)
}

pub(crate) fn opened(order_letter: char, slot: i32, deposit: i64, value: &str) -> OrderCommand {
    let (deposit_id, value) = (DepositId(deposit), amount(value));
    tell(order_letter, OrderCommandBody::DepositOpened { slot, deposit_id, value })
}

pub(crate) fn refused(order_letter: char, slot: i32, reason: RefusalReason) -> OrderCommand {
    tell(order_letter, OrderCommandBody::DepositRefused { slot, reason })
}

pub(crate) fn closed(order_letter: char, slot: i32, reason: CloseReason) -> OrderCommand {
    tell(order_letter, OrderCommandBody::DepositClosed { slot, reason })
}

pub(crate) fn seen(order_letter: char, transfer: i64) -> OrderCommand {
    tell(order_letter, OrderCommandBody::CandidateSeen { transfer_id: TransferId(transfer) })
}

pub(crate) fn gone(order_letter: char, transfer: i64) -> OrderCommand {
    tell(order_letter, OrderCommandBody::CandidateGone { transfer_id: TransferId(transfer) })
}

/// A confirmed transfer at wallet 1 of Ethereum asks to pay.
pub(crate) fn settle(order_letter: char, slot: i32, transfer: i64) -> OrderCommand {
    let settle = Settle {
        transfer_id: TransferId(transfer),
        slot,
        deposit_id: DepositId(9),
        blockchain: Blockchain::Eth,
        wallet_address: wallet(1),
    };
    tell(order_letter, OrderCommandBody::Settle(settle))
}
