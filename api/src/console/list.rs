//! Pages of orders, deposits, transfers, unknown payments and search hits.

use schemas::record::Transfer;
use schemas::{OrderStatus, TransferStatus};
use store::{DepositRow, OrderRow, Page as Part, transfer_cursor};

use super::Page;
use super::markup::{
    actions, address, badge, button, choice, code, filter, foreign, head, hint, hints, link,
    or_none, plain, reference, section, table, time,
};
use super::order::of_transfers;
use super::records::of_subject;
use crate::inspect::search::{Hit, Hits};
use crate::inspect::wanted::Wanted;
use crate::machine::candidates::Candidate;
use crate::machine::catalog::Catalog;
use crate::machine::query::cursor_text;
use crate::page::Html;

/// Rows per page.
pub(crate) const ROWS: Part = Part { limit: 50, offset: 0 };
/// Unknown payments per page: each needs a search of orders.
pub(crate) const UNKNOWN: Part = Part { limit: 10, offset: 0 };
/// Maximum orders shown with an unknown payment, the likeliest ones.
const CANDIDATES_MAX: usize = 3;
const HITS_MAX: usize = 50;

/// The links below a list: older rows, and all rows as CSV.
fn around(path: &str, query: &[(&str, &str)], cursor: Option<store::Cursor>, export: &str) -> Html {
    let older = cursor.map(|cursor| {
        let cursor = cursor_text(cursor);
        let query: Vec<_> = query.iter().copied().chain([("cursor", &*cursor)]).collect();
        button(address(path, &query), "Older")
    });
    let file: Vec<_> = query.iter().copied().chain([("format", "csv")]).collect();
    let file = button(address(export, &file), "All as CSV");
    actions(older.unwrap_or_default().then(file))
}

/// Page of orders. `status` and `wanted` are the filters in force, by status and reference.
pub(crate) fn orders(rows: &[OrderRow], status: &str, wanted: &str) -> Page {
    let row = |row: &OrderRow| {
        let order = &row.order;
        vec![
            reference(order),
            badge(order.status.as_str()),
            order.amount_text.as_str().into(),
            time(order.created_at),
            or_none(row.webhook_success_at.map(time)),
            row.webhook_retry_count.to_string().into(),
        ]
    };
    let text = plain(
        "<label>Reference <input name=\"merchant_order_id\" value=\"{{value}}\"></label>",
        &[("value", wanted.into())],
    );
    let fields = choice("status", "Status", OrderStatus::WORDS, status).then(text);
    let names = ["Reference", "Status", "Amount", "Created", "Webhook acknowledged", "Attempts"];
    let query = [("status", status), ("merchant_order_id", wanted)];
    let cursor = rows.last().filter(|_| ROWS.is_full(rows)).map(OrderRow::cursor);
    let listed = table(&names, rows.iter().map(row), "No order.");
    let around = around("/console/orders", &query, cursor, "/console/export/orders");
    Page::new("Orders", head("Orders", filter("/console/orders", fields).then(listed).then(around)))
        .at("/console/orders")
}

pub(crate) fn deposits(rows: &[DepositRow]) -> Page {
    let row = |row: &DepositRow| {
        let of = &row.deposit;
        vec![
            of.deposit_id.to_string().into(),
            link(format!("/console/orders/{}", of.order_id), of.order_id.to_string()),
            format!("{} {} on {}", of.value_text, of.stablecoin, of.blockchain.label()).into(),
            code(of.wallet_address.to_string()),
            time(of.started_at),
            time(of.expires_at),
        ]
    };
    let names = ["Deposit", "Order", "To be paid", "Wallet", "Started", "Until"];
    let cursor = rows.last().filter(|_| ROWS.is_full(rows)).map(DepositRow::cursor);
    let listed = table(&names, rows.iter().map(row), "No deposit is open.");
    let around = around("/console/deposits", &[], cursor, "/console/export/deposits");
    Page::new("Open deposits", head("Open deposits", listed.then(around))).at("/console/deposits")
}

pub(crate) fn transfers(rows: &[Transfer], status: &str, catalog: &Catalog) -> Page {
    let fields = choice("status", "Status", TransferStatus::WORDS, status);
    let all: Vec<_> = rows.iter().collect();
    let cursor = rows.last().filter(|_| ROWS.is_full(rows)).map(transfer_cursor);
    let around =
        around("/console/transfers", &[("status", status)], cursor, "/console/export/transfers");
    let file = hint(plain("A file of each wallet: <a href=\"/console/chains\">Chains</a>.", &[]));
    let listed = filter("/console/transfers", fields).then(of_transfers(&all, catalog));
    Page::new("Transfers", head("Transfers", listed.then(around).then(file)))
        .at("/console/transfers")
}

/// Unknown payments, each with the orders that it may be meant for.
pub(crate) fn unknown(rows: &[(Transfer, Vec<Candidate>)], catalog: &Catalog) -> Page {
    let one = |(transfer, found): &(Transfer, Vec<Candidate>)| {
        let candidate = |candidate: &Candidate| {
            let order = &candidate.order;
            let values = [
                ("order", reference(order)),
                ("status", badge(order.status.as_str())),
                ("asked", candidate.asked.to_string().into()),
                ("difference", candidate.difference().into()),
            ];
            plain(
                "<li>{{order}} {{status}} asked for {{asked}}, difference {{difference}}</li>",
                &values,
            )
        };
        let id = transfer.transfer_id;
        let likely: Html = found.iter().take(CANDIDATES_MAX).map(candidate).collect();
        let likely = if found.is_empty() {
            hint("No order is near to it.")
        } else {
            plain("<ol class=\"likely\">{{all}}</ol>", &[("all", likely)])
        };
        let decide = button(format!("/console/transfers/{id}"), format!("Decide about {id}"));
        let title = format!("{} {}", transfer.value_text, transfer.observation.stablecoin);
        section(&title, of_transfers(&[transfer], catalog).then(likely).then(decide))
    };
    let last = rows.last().filter(|_| UNKNOWN.is_full(rows));
    let cursor = last.map(|(transfer, _)| transfer_cursor(transfer));
    let lead = "Confirmed payments to your wallets that pay no order, the newest first.";
    let none = if rows.is_empty() { hint("None.") } else { Html::default() };
    let query = [("status", TransferStatus::NoMatchedDeposit.as_str())];
    let main = head("Unknown payments", hint(lead).then(none))
        .then(rows.iter().map(one).collect::<Html>())
        .then(around("/console/unknown", &query, cursor, "/console/export/transfers"));
    Page::new("Unknown payments", main).at("/console/unknown")
}

pub(crate) fn hits(wanted: &Wanted, hits: &Hits, remarks: &[String]) -> Page {
    let row = |hit: &Hit| vec![time(hit.at), of_subject(hit.subject), foreign(hit.text.as_str())];
    let newest = hits.newest(HITS_MAX);
    let lead = format!("{} of {} hits, the newest first", newest.len(), hits.len());
    let kinds = wanted.kinds().join(", ");
    let title = plain("Search for <bdi>{{text}}</bdi>", &[("text", wanted.text.as_str().into())]);
    let none = format!(
        "Nothing is known of it. It was searched for as {kinds}, in the tables and in the topics of 30 days. The endpoints of \
         the chains are asked by: tidemark find"
    );
    let remarks = hints(remarks);
    let listed = table(&["Created", "Subject", "In words"], newest.into_iter().map(row), &none);
    let lead = if hits.is_empty() { Html::default() } else { hint(lead) };
    Page::new("Search", head(title, lead.then(listed).then(remarks)))
}
