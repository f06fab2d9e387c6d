//! The orders machine as the stories use it.

use schemas::record::{DepositCommand, DepositCommandBody, Order, OrderCommand, OrderCommandBody};
use schemas::{OrderCause, OrderStatus, UnixMicros};
use tidemark_processor::machine::orders::{Effect, State};

use crate::name::{amount, letter};
use crate::story::{Described, Numbers, Story};

/// A story of the orders of one partition.
pub(crate) type Book = Story<State>;

impl Described for State {
    fn fresh() -> Self {
        Self::new()
    }

    fn line(effect: &Effect, _numbers: &Numbers) -> String {
        match effect {
            Effect::Order(order) => order_words(order),
            Effect::Command(command) => command_words(command),
        }
    }

    /// A repeated command gets a second reply, but no second effect.
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
                ) | (
                    OrderCommandBody::Attach(..),
                    DepositCommandBody::Attached { .. } | DepositCommandBody::AttachRefused { .. }
                )
            ),
        }
    }

    /// None: a late repetition may change a pending order. `terminal_states_stay` covers terminal states.
    fn repeatable(_inputs: &[OrderCommand]) -> Vec<OrderCommand> {
        Vec::new()
    }

    fn version(effect: &Effect) -> Option<(String, UnixMicros)> {
        match effect {
            Effect::Order(order) => Some((order.order_id.to_string(), order.updated_at)),
            Effect::Command(_) => None,
        }
    }
}

/// Words of an order; of a pending one without its status.
fn order_words(order: &Order) -> String {
    assert_eq!(order.amount, amount(&order.amount_text));
    let mut words = format!("{} v{}", letter(order.order_id), order.version);
    if order.status != OrderStatus::Pending {
        words.push_str(&format!(" {}", order.status));
    }
    if order.status_changed {
        words.push('!');
    }
    words.push_str(&format!(" {}", order.cause));
    if let Some(transfer) = order.paid_by {
        words.push_str(&format!(" by #{transfer}"));
        let paid: Vec<_> = order.deposits.iter().map(|deposit| deposit.value).collect();
        let by_deposit = matches!(order.cause, OrderCause::Paid | OrderCause::PaidLate);
        assert!(order.paid_value.is_some());
        assert!(!by_deposit || paid.contains(&order.paid_value));
    }
    if let Some(command) = order.command_id {
        words.push_str(&format!(" answers {}", command.0.as_u128()));
    }
    for transfer in &order.candidates {
        words.push_str(&format!(" maybe #{transfer}"));
    }
    assert!(order.deposits.is_sorted_by(|a, b| a.slot < b.slot), "slots count upwards");
    for deposit in &order.deposits {
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
            format!("open {} {} from {first} to {last}{only}", open.value, open.stablecoin)
        }
        Body::Close { reason } => format!("close {reason}"),
        Body::Candidate { transfer_id } => format!("candidate #{transfer_id}"),
        Body::Settled { transfer_id } => format!("settled #{transfer_id}"),
        Body::Refused { transfer_id, reason } => format!("refused #{transfer_id} {reason}"),
        Body::Attach(attach) => format!("attach #{}", attach.transfer.transfer_id),
        Body::Attached { transfer_id } => format!("attached #{transfer_id}"),
        Body::AttachRefused { transfer_id } => format!("attach refused #{transfer_id}"),
        Body::Stop(_) | Body::Resume(_) => "of an operator's".to_owned(),
    };
    let (wallet, slot) = (number(&command.wallet_address), command.slot);
    format!("{} w{wallet}: {}/{slot} {what}", command.blockchain, letter(command.order_id))
}

/// The number of a wallet.
fn number(wallet: &schemas::Address) -> u8 {
    wallet.bytes().first().copied().unwrap_or_default()
}
