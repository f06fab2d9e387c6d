//! The page of an order: its timeline and meaning, its deposits, transfers and webhooks.

use schemas::record::{Order, OrderDeposit, Transfer};
use schemas::{OrderStatus, UnixSeconds};
use store::OrderRow;

use super::Page;
use super::delivery;
use super::explorer;
use super::markup::{
    self, badge, button, code, facts, foreign, head, hint, hints, link, notice, or_none, plain,
    section, table, time,
};
use crate::auth::Operator;
use crate::machine::catalog::Catalog;
use crate::machine::story::{Event, Story, meaning, words};
use crate::machine::survey::Subject;
use crate::page::Html;

/// Maximum events that are shown: the newest ones.
const EVENTS_MAX: usize = 200;

/// Data of the page of an order, and of a transfer.
pub(crate) struct Context<'a> {
    pub(crate) story: &'a Story,
    /// Notes on data missing from the story.
    pub(crate) remarks: &'a [String],
    pub(crate) catalog: &'a Catalog,
    pub(crate) by: &'a Operator,
    pub(crate) now: UnixSeconds,
    /// Message after an action.
    pub(crate) done: Option<&'static str>,
}

/// The page. `checkout` is the order's checkout link, if the service's address is configured.
pub(crate) fn render(row: &OrderRow, checkout: Option<&str>, of: &Context<'_>) -> Page {
    let Context { story, catalog, .. } = of;
    let order = &row.order;
    let title = plain(
        "Order <bdi>{{reference}}</bdi> {{status}}",
        &[
            ("reference", order.merchant_order_id.as_str().into()),
            ("status", badge(order.status.as_str())),
        ],
    );
    let transfers: Vec<_> = story.transfers.iter().collect();
    let main = head(title, notice(of.done).then(said(story, of.now)).then(actions(order, of)))
        .then(section("Facts", of_order(row, checkout, of)))
        .then(section("What happened", timeline(story, of.remarks)))
        .then(section("Deposits", of_deposits(&order.deposits)))
        .then(section("Transfers", of_transfers(&transfers, catalog)))
        .then(section("Webhook attempts", of_attempts(story)));
    Page {
        is_live: order.status == OrderStatus::Pending,
        ..Page::new(format!("Order {}", order.merchant_order_id), main)
    }
}

/// The meaning of a story in one sentence, and advice if something is to be done.
pub(super) fn said(story: &Story, now: UnixSeconds) -> Html {
    let meaning = meaning::of(story, now);
    let help = meaning.help.map(|help| {
        plain("<p class=\"hint\">What helps: {{help}}</p>", &[("help", foreign(help))])
    });
    let values = [("text", meaning.text.into())];
    plain("<p class=\"meaning\"><bdi>{{text}}</bdi></p>", &values).then(help.unwrap_or_default())
}

fn actions(order: &Order, of: &Context<'_>) -> Html {
    if !of.by.may_operate() {
        return Html::default();
    }
    let Order { order_id, status, .. } = order;
    let is_pending = *status == OrderStatus::Pending;
    let all = [
        ("cancel", "Cancel…", is_pending),
        ("mark-paid", "Mark paid…", *status != OrderStatus::Paid),
        ("resend-webhook", "Resend the webhook…", !is_pending),
    ];
    let offered = all.into_iter().filter(|(_, _, is_offered)| *is_offered);
    let one = |(word, text, _): (&str, &str, bool)| {
        button(format!("/console/orders/{order_id}/{word}"), text)
    };
    markup::actions(offered.map(one).collect())
}

fn of_order(row: &OrderRow, checkout: Option<&str>, of: &Context<'_>) -> Html {
    let order = &row.order;
    let paid_by = order.paid_by.map(|id| {
        let value = order.paid_value.map(|value| format!(", which brought {value}"));
        link(format!("/console/transfers/{id}"), format!("transfer {id}"))
            .then(value.unwrap_or_default())
    });
    let sender = order.expecting_wallet_address.map(|of| code(of.to_string()));
    let webhook = match (row.webhook_success_at, row.webhook_retry_count) {
        (Some(at), count) => {
            Html::from("acknowledged at ").then(time(at)).then(format!(", {count} attempts in all"))
        }
        (None, 0) => "no attempt yet".into(),
        (None, count) => format!("not acknowledged, {count} attempts").into(),
    };
    let mut rows = vec![
        ("Id", code(order.order_id.to_string())),
        ("Reference", foreign(order.merchant_order_id.as_str())),
        ("Amount", order.amount_text.as_str().into()),
        ("Created", time(order.created_at)),
        ("To be paid by", time(order.expires_at)),
        ("Paid by", or_none(paid_by)),
        ("Only from", or_none(sender)),
        ("Webhook", webhook),
        ("Webhook URL", foreign(order.webhook_url.as_str())),
    ];
    // The link allows choosing and cancelling, which a read-only secret must not allow.
    if let Some(url) = checkout.filter(|_| of.by.may_operate()) {
        let values = [("url", url.into())];
        rows.push((
            "Checkout page",
            plain(
                "<a href=\"{{url}}\" rel=\"noreferrer noopener\">open as the customer</a>",
                &values,
            ),
        ));
    }
    facts(rows)
}

/// The events of a story, the newest last.
pub(super) fn timeline(story: &Story, remarks: &[String]) -> Html {
    let left_out = story.events.len().saturating_sub(EVENTS_MAX);
    let event = |event: &Event| {
        let values = [
            ("at", time(event.at().seconds())),
            ("kind", event.kind().into()),
            ("text", foreign(words::text(event))),
        ];
        plain("<li class=\"{{kind}}\"><span>{{at}}</span> <b>{{kind}}</b> {{text}}</li>", &values)
    };
    let events: Html = story.events.iter().skip(left_out).map(event).collect();
    let cut = (left_out > 0).then(|| hint(format!("{left_out} earlier events are left out.")));
    let remarks = hints(remarks);
    cut.unwrap_or_default()
        .then(plain("<ol class=\"timeline\">{{events}}</ol>", &[("events", events)]))
        .then(remarks)
}

fn of_deposits(deposits: &[OrderDeposit]) -> Html {
    let row = |deposit: &OrderDeposit| {
        vec![
            or_none(deposit.deposit_id.map(|id| id.to_string().into())),
            badge(deposit.state.as_str()),
            format!("{} on {}", deposit.stablecoin, deposit.blockchain.label()).into(),
            or_none(deposit.value.map(|value| value.to_string().into())),
            code(deposit.wallet_address.to_string()),
            time(deposit.started_at),
        ]
    };
    let names = ["Deposit", "State", "Way", "To be paid", "Wallet", "Started"];
    table(&names, deposits.iter().map(row), "The customer has not chosen how to pay.")
}

pub(super) fn of_transfers(transfers: &[&Transfer], catalog: &Catalog) -> Html {
    let row = |transfer: &&Transfer| {
        let Transfer { transfer_id: id, status, observation, value_text, .. } = *transfer;
        let gone = transfer.orphaned_at.is_some();
        let gone = if gone { " its block left the chain" } else { "" };
        let why = transfer.reason.map(|why| format!(" {}", why.as_str().replace('_', " ")));
        let meant = transfer.order_id.or(transfer.candidate_order_id);
        let meant = meant.map(|order| {
            let text = order.to_string();
            link(
                format!("/console/orders/{order}"),
                format!("{}…", text.get(..13).unwrap_or(&text)),
            )
        });
        vec![
            link(format!("/console/transfers/{id}"), id.to_string()),
            badge(status.as_str()).then(why.unwrap_or_default()).then(gone),
            format!("{value_text} {}", observation.stablecoin).into(),
            transfer.blockchain.label().into(),
            explorer::transaction(catalog, transfer),
            or_none(meant),
            time(transfer.created_at),
        ]
    };
    let names = ["Transfer", "Status", "Amount", "Chain", "Transaction", "Order", "Seen"];
    table(&names, transfers.iter().map(row), "None.")
}

/// The webhook attempts of a story, the newest first, each with a link to its webhook.
pub(super) fn of_attempts(story: &Story) -> Html {
    let attempts = story.events.iter().rev().filter_map(|event| {
        let Event::Attempt(attempt) = event else { return None };
        Some(attempt)
    });
    delivery::table_of(attempts, |attempt| {
        let subject = Subject::of(attempt.order_id, attempt.transfer_id)?;
        Some(delivery::address_of(subject, &attempt.event_id))
    })
}
