//! The page of a transfer; of an unknown one, with the orders it was probably meant for.

use schemas::record::Transfer;
use schemas::{OrderId, TransferStatus};

use super::Page;
use super::explorer;
use super::markup::{
    self, badge, button, code, facts, head, link, notice, or_none, plain, section, table, time,
};
use super::order::{Context, of_attempts, said, timeline};
use crate::machine::candidates::Candidate;
use crate::page::Html;

pub(crate) fn render(transfer: &Transfer, found: &[Candidate], of: &Context<'_>) -> Page {
    let story = of.story;
    let Transfer { transfer_id, status, .. } = transfer;
    let title = plain(
        "Transfer {{id}} {{status}}",
        &[("id", transfer_id.to_string().into()), ("status", badge(status.as_str()))],
    );
    let is_unknown = *status == TransferStatus::NoMatchedDeposit;
    let mut main =
        head(title, notice(of.done).then(said(story, of.now)).then(actions(transfer, of)));
    if is_unknown {
        let found = candidates(transfer, found, of);
        main = main.then(section("Orders that it may be meant for, the likeliest first", found));
    }
    let main = main
        .then(section("Facts", of_transfer(transfer, of)))
        .then(section("What happened", timeline(story, of.remarks)))
        .then(section("Webhook attempts", of_attempts(story)));
    Page::new(format!("Transfer {transfer_id}"), main)
}

fn actions(transfer: &Transfer, of: &Context<'_>) -> Html {
    let Transfer { transfer_id: id, status, .. } = transfer;
    if !of.by.may_operate() || *status != TransferStatus::NoMatchedDeposit {
        return Html::default();
    }
    let resend = button(format!("/console/transfers/{id}/resend-webhook"), "Resend the webhook…");
    let attach = plain(
        "<form class=\"attach\" action=\"/console/transfers/{{id}}/attach\"><label for=\"order\">Id of the order that it \
         pays</label><input id=\"order\" name=\"order_id\" autocomplete=\"off\" required><button class=\"button\">Attach…</button>\
         </form>",
        &[("id", id.to_string().into())],
    );
    attach.then(markup::actions(resend))
}

/// The ranked orders, each with its requested amount.
fn candidates(transfer: &Transfer, found: &[Candidate], of: &Context<'_>) -> Html {
    let id = transfer.transfer_id;
    let row = |candidate: &Candidate| {
        let Candidate { order, deposit, asked, .. } = candidate;
        let order_id = order.order_id;
        let is_offered = of.by.may_operate() && order.paid_by.is_none();
        let action = is_offered.then(|| {
            let to = format!("/console/transfers/{id}/attach?order_id={order_id}");
            link(to, format!("Attach to {}…", order.merchant_order_id))
        });
        vec![
            link(format!("/console/orders/{order_id}"), order.merchant_order_id.as_str()),
            badge(order.status.as_str()),
            asked.to_string().into(),
            candidate.difference().into(),
            format!("{} on {}", deposit.stablecoin, deposit.blockchain.label()).into(),
            time(order.created_at),
            action.unwrap_or_default(),
        ]
    };
    let names = ["Order", "Status", "Asked for", "Difference", "Way", "Created", "Action"];
    table(&names, found.iter().map(row), "No order is near to it.")
}

fn of_transfer(transfer: &Transfer, of: &Context<'_>) -> Html {
    let seen = &transfer.observation;
    let order = |id: Option<OrderId>| {
        or_none(id.map(|id| link(format!("/console/orders/{id}"), id.to_string())))
    };
    facts([
        ("Amount", format!("{} {}", transfer.value_text, seen.stablecoin).into()),
        ("Chain", transfer.blockchain.label().into()),
        ("Transaction", explorer::transaction(of.catalog, transfer)),
        ("Hash", code(seen.tx_hash.to_string())),
        ("From", code(seen.from_address.to_string())),
        ("To", code(seen.to_address.to_string())),
        ("Block", transfer.block.number.to_string().into()),
        ("Block time", time(transfer.block.timestamp)),
        ("Confirmed", if transfer.blockchain_confirmed { "yes" } else { "no" }.into()),
        ("Seen", time(transfer.created_at)),
        ("Reason", or_none(transfer.reason.map(|why| why.as_str().replace('_', " ").into()))),
        ("Pays order", order(transfer.order_id)),
        ("Probably meant for", order(transfer.candidate_order_id)),
        ("Left the chain", or_none(transfer.orphaned_at.map(time))),
    ])
}
