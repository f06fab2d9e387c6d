//! The meaning of a story, in one sentence, and advice.

use schemas::record::{Deposit, Order, Transfer};
use schemas::{
    AttemptOutcome, DepositState, OrderStatus, TransferStatus, UnixMicros, UnixSeconds,
    UnknownReason,
};

use super::words::time;
use super::{Event, Story};
use crate::machine::{arrival, candidates};

const NO_MONEY: &str = "The chain no longer has this transfer: no money came.";

/// A sentence, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    pub text: String,
    /// Advice, such as a command or a request of the Admin API; none if nothing is to be done.
    pub help: Option<String>,
}

impl Meaning {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), help: None }
    }

    fn with(text: impl Into<String>, help: impl Into<String>) -> Self {
        Self { text: text.into(), help: Some(help.into()) }
    }
}

/// The meaning of a story at a time.
pub fn of(story: &Story, now: UnixSeconds) -> Meaning {
    match &story.order {
        Some(order) => of_order(story, order, now),
        None => match story.transfers.last() {
            Some(transfer) => of_transfer(story, transfer),
            None => Meaning::plain("Nothing is known of it."),
        },
    }
}

fn of_order(story: &Story, order: &Order, now: UnixSeconds) -> Meaning {
    let gone = |transfer: &&Transfer| {
        transfer.orphaned_at.is_some() && order.paid_by == Some(transfer.transfer_id)
    };
    if let Some(transfer) = story.transfers.iter().find(gone) {
        return gone_after(&format!("Paid by transfer {}", transfer.transfer_id));
    }
    if order.status == OrderStatus::Paid {
        let meaning = paid(story, order);
        return match story.transfers.iter().rfind(|of| candidates::is_stray(of)) {
            Some(transfer) => with_stray(meaning, story, transfer, order),
            None => meaning,
        };
    }
    let unknown = |transfer: &&Transfer| {
        transfer.status == TransferStatus::NoMatchedDeposit && transfer.orphaned_at.is_none()
    };
    if let Some(transfer) = story.transfers.iter().rfind(unknown) {
        return unpaid_by(story, transfer, order);
    }
    if let Some(transfer) = story.transfers.iter().rfind(|of| arrival::is_waiting(of)) {
        return Meaning::with(
            format!(
                "A payment of {} {} was seen in block {} of {} and is not confirmed yet.",
                transfer.value_text,
                transfer.observation.stablecoin,
                transfer.block.number,
                transfer.blockchain
            ),
            "wait; if it takes long: tidemark status",
        );
    }
    match order.status {
        OrderStatus::Cancelled => match left(story) {
            Some(seen) => Meaning::plain(format!("Cancelled: {seen}.")),
            None => Meaning::plain("Cancelled before a payment was seen."),
        },
        OrderStatus::Expired => {
            let seen = left(story).unwrap_or_else(|| "no payment for it was seen".to_owned());
            Meaning::with(
                format!("Expired at {}: {seen}.", time(order.expires_at)),
                "if the customer has the hash of a payment: tidemark find HASH",
            )
        }
        OrderStatus::Pending | OrderStatus::Paid => pending(story, order, now),
    }
}

/// The last payment that failed to confirm, or that was unknown when it left the chain, in words.
fn left(story: &Story) -> Option<String> {
    let has_left = |transfer: &&Transfer| match transfer.status {
        TransferStatus::FailedToConfirm => true,
        TransferStatus::NoMatchedDeposit => transfer.orphaned_at.is_some(),
        TransferStatus::WaitingForConfirmation
        | TransferStatus::WaitingForMatch
        | TransferStatus::Matched => false,
    };
    let transfer = story.transfers.iter().rfind(has_left)?;
    let Transfer { value_text, observation, block, blockchain, .. } = transfer;
    Some(format!(
        "a payment of {value_text} {} was seen in block {} of {blockchain} and left the chain",
        observation.stablecoin, block.number
    ))
}

fn pending(story: &Story, order: &Order, now: UnixSeconds) -> Meaning {
    let mut deposits = story.events.iter().rev().filter_map(|event| {
        let Event::Deposit(deposit) = event else { return None };
        Some(deposit)
    });
    if now > order.expires_at {
        return Meaning::with(
            format!(
                "The time to pay ended at {}, and no chain has passed it yet: a payment in time still counts.",
                time(order.expires_at)
            ),
            "tidemark status",
        );
    }
    match deposits.find(|deposit| deposit.state == DepositState::Open) {
        Some(Deposit { value_text, stablecoin, blockchain, wallet_address, .. }) => {
            Meaning::plain(format!(
                "Not paid yet: {value_text} {stablecoin} on {blockchain} to {wallet_address} pays it until {}.",
                time(order.expires_at)
            ))
        }
        None => Meaning::plain(format!(
            "The customer has not chosen how to pay; the order ends at {}.",
            time(order.expires_at)
        )),
    }
}

fn paid(story: &Story, order: &Order) -> Meaning {
    let how = match (order.paid_by, order.paid_value) {
        (Some(by), Some(value)) => {
            format!("Paid by transfer {by}: {value} of {}", order.amount_text)
        }
        _ => "Paid, as an operator marked it, without a transfer".to_owned(),
    };
    let changed = story.events.iter().filter_map(|event| {
        let Event::Order(order) = event else { return None };
        order.status_changed.then_some(order.updated_at)
    });
    let since = changed.max().unwrap_or(UnixMicros(0));
    let delivered = story.events.iter().any(|event| {
        let Event::Attempt(attempt) = event else { return false };
        attempt.outcome == AttemptOutcome::Delivered && attempt.attempted_at >= since
    });
    let is_dead = |event: &Event| matches!(event, Event::Dead(_, at) if *at >= since);
    if delivered {
        Meaning::plain(format!("{how}. The shop has acknowledged the webhook."))
    } else if story.events.iter().any(is_dead) {
        Meaning::with(
            format!("{how}. The shop has not acknowledged the webhook, which was given up."),
            format!("tidemark webhook dead redrive --order {}", order.order_id),
        )
    } else {
        Meaning::plain(format!("{how}. The shop has not acknowledged the webhook yet."))
    }
}

/// Adds to the meaning of a paid order that another transfer pays nothing, such as a second payment of the customer.
fn with_stray(paid: Meaning, story: &Story, transfer: &Transfer, order: &Order) -> Meaning {
    let Transfer { transfer_id, value_text, observation, .. } = transfer;
    let coin = observation.stablecoin;
    let advice = match order.paid_by {
        Some(_) => format!(
            "if transfer {transfer_id} is for another order, attach it to that one (docs/merchant/admin.md); {}",
            refund(story)
        ),
        // An operator may have marked the order paid because of this transfer.
        None => attach_or_refund(story, transfer, order),
    };
    let help: Vec<_> = paid.help.into_iter().chain([advice]).collect();
    Meaning::with(
        format!(
            "{} Transfer {transfer_id} brought {value_text} {coin} and pays nothing.",
            paid.text
        ),
        help.join("; "),
    )
}

/// Meaning of a payment whose transfer left the chain.
fn gone_after(payment: &str) -> Meaning {
    Meaning::with(
        format!("{payment}, and the chain no longer has that transfer: the money may be gone."),
        "ask the customer to pay again, or cancel the goods: docs/operate/jobs.md, A halted chain",
    )
}

/// Advice for money that pays no order. After a restore it may pay one of the lost orders.
const fn refund(story: &Story) -> &'static str {
    if story.is_restored {
        "a backup was restored: send nothing back that is in the shop's books (docs/operate/backup.md)"
    } else {
        "otherwise send it back"
    }
}

/// Advice about a transfer that pays nothing and may be for an order that no transfer has paid.
fn attach_or_refund(story: &Story, transfer: &Transfer, order: &Order) -> String {
    let id = transfer.transfer_id;
    let less = transfer.observation.value < order.amount;
    let accept = if less { ",\"accept_less\":true" } else { "" };
    format!(
        "if it is for this order: POST /api/v1/admin/transfers/{id}/attach \
         {{\"order_id\":\"{}\"{accept}}} (docs/merchant/admin.md); {}",
        order.order_id,
        refund(story)
    )
}

/// Meaning of an unpaid order that an unknown payment was probably meant for.
fn unpaid_by(story: &Story, transfer: &Transfer, order: &Order) -> Meaning {
    let Transfer { transfer_id, value_text, observation, block, .. } = transfer;
    let coin = observation.stablecoin;
    let wanted = order.deposits.iter().rev().find_map(|deposit| deposit.value);
    let wanted = wanted.unwrap_or(order.amount);
    let late = block.timestamp.0.saturating_sub(order.expires_at.0);
    let why = match transfer.reason {
        Some(UnknownReason::Late) => format!("{late} s after the order's deadline"),
        Some(UnknownReason::SenderMismatch) => "from another sender than the order's".to_owned(),
        Some(UnknownReason::OtherContract) => "of another contract than the order's".to_owned(),
        Some(UnknownReason::BeforeDeposit) => "before the deposit was open".to_owned(),
        Some(UnknownReason::OrderCancelled) => "after the order was cancelled".to_owned(),
        Some(UnknownReason::Stopped) => "while an operator had stopped such payments".to_owned(),
        Some(UnknownReason::OwnWallet) => {
            return Meaning::plain(format!(
                "Not paid. Transfer {transfer_id} comes from a wallet of the configuration and is no payment."
            ));
        }
        Some(
            UnknownReason::NoDeposit | UnknownReason::AmountMismatch | UnknownReason::AlreadyPaid,
        )
        | None => "which is not the amount that was asked for".to_owned(),
    };
    Meaning::with(
        format!("Not paid: transfer {transfer_id} brought {value_text} {coin} of {wanted}, {why}."),
        attach_or_refund(story, transfer, order),
    )
}

/// Meaning of a transfer without a known order.
fn of_transfer(story: &Story, transfer: &Transfer) -> Meaning {
    let Transfer { transfer_id, value_text, observation, .. } = transfer;
    let (coin, has_left) = (observation.stablecoin, transfer.orphaned_at.is_some());
    match transfer.status {
        TransferStatus::WaitingForConfirmation | TransferStatus::WaitingForMatch => Meaning::with(
            format!("A payment of {value_text} {coin} that is not confirmed or not matched yet."),
            "wait; if it takes long: tidemark status",
        ),
        TransferStatus::Matched => {
            let order = transfer.order_id.map(|order| format!("order {order}"));
            let order = order.unwrap_or_else(|| "an order that is not known any more".to_owned());
            if has_left {
                gone_after(&format!("It paid {order}"))
            } else {
                Meaning::plain(format!("It pays {order}."))
            }
        }
        TransferStatus::FailedToConfirm => Meaning::plain(NO_MONEY),
        TransferStatus::NoMatchedDeposit if has_left => Meaning::plain(NO_MONEY),
        TransferStatus::NoMatchedDeposit => match transfer.reason {
            Some(UnknownReason::OwnWallet) => Meaning::plain(
                "It comes from a wallet of the configuration and is no payment of a customer.",
            ),
            Some(
                UnknownReason::NoDeposit
                | UnknownReason::AmountMismatch
                | UnknownReason::SenderMismatch
                | UnknownReason::BeforeDeposit
                | UnknownReason::Late
                | UnknownReason::AlreadyPaid
                | UnknownReason::OrderCancelled
                | UnknownReason::OtherContract
                | UnknownReason::Stopped,
            )
            | None => Meaning::with(
                format!("{value_text} {coin} came that no order is known for: it pays nothing."),
                format!(
                    "find its order by amount (tidemark find {value_text}) and attach it with POST \
                     /api/v1/admin/transfers/{transfer_id}/attach (docs/merchant/admin.md); {}",
                    refund(story)
                ),
            ),
        },
    }
}
