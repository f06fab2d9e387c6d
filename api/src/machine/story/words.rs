//! Events in words, one line each.

use schemas::record::{Alert, Attempt, AuditEntry, Delivery, Deposit, Order, Transfer};
use schemas::{AlertState, AttemptOutcome, DepositState, OrderCause, TransferStatus, UnixSeconds};

use super::{Confirmation, Event};

/// A time to the second.
pub fn time(at: UnixSeconds) -> String {
    let text = at.micros().to_rfc3339();
    text.split('.').next().map_or_else(String::new, |seconds| format!("{seconds}Z"))
}

fn spaced(word: &str) -> String {
    word.replace('_', " ")
}

/// An event in a line, with its time and kind.
pub fn line(event: &Event) -> String {
    format!("{}  {:<8}  {}", time(event.at().seconds()), event.kind(), text(event))
}

/// An event in words.
pub fn text(event: &Event) -> String {
    match event {
        Event::Order(order) => of_order(order),
        Event::Deposit(deposit) => of_deposit(deposit),
        Event::Transfer(transfer) => of_transfer(transfer),
        Event::Confirmed(confirmation) => of_confirmation(confirmation),
        Event::Attempt(attempt) => of_attempt(attempt),
        Event::Dead(delivery, _) => of_dead(delivery),
        Event::Alert(Alert { kind, state: AlertState::Raised, message, .. }) => {
            format!("{kind}: {message}")
        }
        Event::Alert(Alert { kind, state, message, .. }) => format!("{kind} {state}: {message}"),
        Event::Operator(entry) => of_operator(entry),
    }
}

fn of_order(order: &Order) -> String {
    let Order { cause, status, amount_text, merchant_order_id, expires_at, .. } = order;
    let way = order.blockchain.zip(order.stablecoin);
    match (cause, way) {
        (OrderCause::Created, _) => format!(
            "created: {amount_text}, reference {merchant_order_id}, to be paid by {}",
            time(*expires_at)
        ),
        (OrderCause::PaymentChosen, Some((chain, coin))) => {
            format!("payment chosen: {coin} on {chain}")
        }
        _ => {
            let cause = spaced(cause.as_str());
            let is_said = !order.status_changed || cause.contains(status.as_str());
            let status = if is_said { String::new() } else { format!(": {status}") };
            let paid_by = order.paid_by.filter(|_| order.status_changed);
            let paid_by = paid_by.map(|by| format!(" by transfer {by}")).unwrap_or_default();
            format!("{cause}{status}{paid_by}")
        }
    }
}

fn of_deposit(deposit: &Deposit) -> String {
    let Deposit { deposit_id, state, blockchain, stablecoin, value_text, .. } = deposit;
    let why = deposit.close_reason.map(|why| format!(": {}", spaced(why.as_str())));
    let what = match state {
        DepositState::Open => format!(
            "open: {value_text} {stablecoin} on {blockchain} to {} until {}",
            deposit.wallet_address,
            time(deposit.expires_at)
        ),
        DepositState::Requested
        | DepositState::Replaced
        | DepositState::Closed
        | DepositState::Refused => format!("{state}{}", why.unwrap_or_default()),
    };
    format!("{deposit_id} {what}")
}

fn of_transfer(transfer: &Transfer) -> String {
    let Transfer { transfer_id, status, observation, value_text, blockchain, .. } = transfer;
    let (coin, block) = (observation.stablecoin, transfer.block.number);
    let gone = if transfer.orphaned_at.is_some() { "; its block left the chain" } else { "" };
    let what = match status {
        TransferStatus::WaitingForConfirmation => format!(
            "seen: {value_text} {coin} on {blockchain} from {} to {}, block {block}, transaction {}",
            observation.from_address, observation.to_address, observation.tx_hash
        ),
        TransferStatus::WaitingForMatch => {
            format!("confirmed: {value_text} {coin} on {blockchain}, block {block}")
        }
        TransferStatus::Matched => transfer
            .order_id
            .map_or_else(|| "matched".to_owned(), |order| format!("pays order {order}")),
        TransferStatus::NoMatchedDeposit => {
            let why = transfer.reason.map_or_else(String::new, |why| spaced(why.as_str()));
            let meant = transfer.candidate_order_id;
            let meant = meant.map(|order| format!(", probably meant for order {order}"));
            format!("pays nothing: {why}{}", meant.unwrap_or_default())
        }
        TransferStatus::FailedToConfirm => "not confirmed: the chain no longer has it".to_owned(),
    };
    format!("{transfer_id} {what}{gone}")
}

/// `name` and the finalized height, or a text while no block is final.
#[must_use]
pub fn finality(name: &str, finalized: i64) -> String {
    if finalized < 0 { "nothing is final yet".to_owned() } else { format!("{name} {finalized}") }
}

fn of_confirmation(by: &Confirmation) -> String {
    let Confirmation { transfer_id, blockchain, number, head, finalized, .. } = by;
    let depth = head.number.saturating_sub(*number).saturating_add(1);
    let finality = finality("final up to block", *finalized);
    format!(
        "{blockchain} at block {} confirms transfer {transfer_id}: depth {depth}, {finality}",
        head.number
    )
}

fn of_attempt(attempt: &Attempt) -> String {
    let Attempt { kind, attempt: number, outcome, cause, answer, duration_ms, .. } = attempt;
    let status = attempt.http_status.map(|status| format!(" {status}")).unwrap_or_default();
    let by = if attempt.manual { ", asked for by an operator" } else { "" };
    let why: String = [cause, answer]
        .into_iter()
        .filter(|text| !text.is_empty())
        .fold(String::new(), |all, text| format!("{all}: {}", text.replace(['\n', '\t'], " ")));
    let why = if *outcome == AttemptOutcome::Delivered { String::new() } else { why };
    format!("{kind}, attempt {number}{by}: {outcome}{status} after {duration_ms} ms{why}")
}

fn of_dead(delivery: &Delivery) -> String {
    let Delivery { kind, requests, .. } = delivery;
    format!("{kind} given up after {requests} requests")
}

fn of_operator(entry: &AuditEntry) -> String {
    let AuditEntry { operator, action, client, .. } = entry;
    let client = client.as_ref().map(|client| format!(" from {client}")).unwrap_or_default();
    format!("{} by {operator}{client}", spaced(action.as_str()))
}
