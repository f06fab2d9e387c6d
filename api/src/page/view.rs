//! View of the checkout page, by the order's status and its seen payment, with notices.

use schemas::record::{Order, OrderDeposit};
use schemas::{AddressFamily, Amount, DepositState, OrderStatus, Stablecoin};

use super::arrived;
use super::html::{Html, Template, phrase};
use super::input::{PageInput, Problem};
use super::language::Language;
use super::words::{money, qr_code, time_of_day, tx};
use crate::machine::seen_transfer::SeenTransfer;
use crate::view::ChainView;

macro_rules! template {
    ($name:literal) => {
        Template(include_str!(concat!("templates/", $name, ".html")))
    };
}

/// Bold characters at each end of an address.
const ADDRESS_ENDS: usize = 6;

/// Contents of the page's `main`, and the one line that a screen reader announces.
#[derive(Default)]
pub(super) struct PageView {
    pub(super) main: Html,
    pub(super) news: Html,
    /// Seconds until the page reloads without a script, if it may change by itself.
    pub(super) refresh: Option<u8>,
}

/// Seconds between refreshes while the order may change soon.
const SOON: Option<u8> = Some(15);
/// Seconds between refreshes after an end, and while nothing can be paid: a late payment or an operator may still
/// change the order.
const LATER: Option<u8> = Some(60);

pub(super) fn of(input: &PageInput<'_>) -> PageView {
    let PageInput { order, language, .. } = *input;
    let seen = !order.candidates.is_empty();
    let title = |key: &str| Html::from(language.text(key));
    let (body, news, refresh) = match order.status {
        OrderStatus::Paid => (paid(input), title("paid.title"), None),
        OrderStatus::Expired => (ended(input, "expired"), title("expired.title"), LATER),
        OrderStatus::Cancelled => (ended(input, "cancelled"), title("cancelled.title"), LATER),
        OrderStatus::Pending if seen => (confirming(input), title("seen.title"), SOON),
        OrderStatus::Pending if input.now > order.expires_at => {
            (template!("over").fill(language, &[]), title("over.title"), SOON)
        }
        OrderStatus::Pending => match (payable(input), arrived::held(input)) {
            (Some(_), _) if input.is_stopped => (stopped(input), title("stopped.title"), SOON),
            (Some(_), Some(held)) if !input.is_again => {
                let body = arrived::hold(input, held, cancel(input));
                (body, title(held.title()), SOON)
            }
            (Some(deposit), _) => (pay(input, deposit), title("pay.title"), SOON),
            (None, _) if input.choices.is_empty() => (none(input), title("choose.title"), LATER),
            (None, _) => (choose(input), title("choose.title"), None),
        },
    };
    let problem = input.problem.filter(|_| order.status == OrderStatus::Pending && !seen);
    let main = problem.into_iter().map(|problem| refused(language, problem));
    let main = main.chain(arrived::notices(input, shown(input).is_some())).chain([body]);
    let main = main.chain([arrived::look_up_form(input)]).collect();
    // A refresh would repeat the search for the transaction, and remove text that the customer is typing.
    let refresh = refresh.filter(|_| input.look_up.is_none());
    PageView { main, news, refresh }
}

/// The deposit that the page asks for.
fn payable<'a>(input: &PageInput<'a>) -> Option<&'a OrderDeposit> {
    let order = input.order;
    let is_asked = order.status == OrderStatus::Pending
        && order.candidates.is_empty()
        && input.now <= order.expires_at
        && !input.is_changing;
    open_deposit(order).filter(|_| is_asked)
}

/// The deposit that awaits the customer: the latest one that is open.
fn open_deposit(order: &Order) -> Option<&OrderDeposit> {
    order.deposits.iter().rev().find(|deposit| deposit.state == DepositState::Open)
}

/// The deposit whose amount and address the page shows.
fn shown<'a>(input: &PageInput<'a>) -> Option<&'a OrderDeposit> {
    let is_held = !input.is_again && arrived::held(input).is_some();
    payable(input).filter(|_| !input.is_stopped && !is_held)
}

fn refused(language: Language, problem: Problem) -> Html {
    let (label, title) = (language.text("problem.title"), language.text(problem.key()));
    arrived::notice(language, "problem", label, title, Html::default())
}

fn cancel(input: &PageInput<'_>) -> Html {
    template!("cancel").fill(input.language, &[("action", input.action("cancel"))])
}

/// View of an order that cannot be paid at present, or ever.
fn none(input: &PageInput<'_>) -> Html {
    let is_passing = input.catalog.has_way(input.order);
    let lead = if is_passing { "choose.none" } else { "choose.never" };
    let lead = input.language.text(lead).into();
    template!("none").fill(input.language, &[("lead", lead), ("cancel", cancel(input))])
}

/// View of an order whose payments are stopped.
fn stopped(input: &PageInput<'_>) -> Html {
    let language = input.language;
    let other = if input.choices.is_empty() { Html::default() } else { other(language) };
    let values = [("other", other), ("cancel", cancel(input))];
    template!("stopped").fill(language, &values)
}

/// The link to the choice of another way to pay.
fn other(language: Language) -> Html {
    let text = Html::within("span", language.text("pay.other"));
    template!("other").fill(language, &[("language", language.tag().into()), ("text", text)])
}

fn choose(input: &PageInput<'_>) -> Html {
    let language = input.language;
    let coin = |coin: &Stablecoin| {
        let chains = input.choices.iter().filter(|chain| chain.stablecoins.contains(coin));
        let way = |chain: &ChainView| {
            let on = language.text("choose.on").replace("{0}", chain.name);
            let values = [
                ("way", format!("{}.{coin}", chain.blockchain).into()),
                ("label", format!("{coin} {on}").into()),
                ("chain", chain.name.into()),
            ];
            template!("way").fill(language, &values)
        };
        let ways: Vec<Html> = chains.map(way).collect();
        let values = [("coin", coin.as_str().into()), ("ways", ways.iter().cloned().collect())];
        (!ways.is_empty()).then(|| template!("coin").fill(language, &values))
    };
    let values = [
        ("action", input.action("payment")),
        ("coins", Stablecoin::ALL.iter().filter_map(coin).collect()),
        ("cancel", cancel(input)),
    ];
    template!("choose").fill(language, &values)
}

/// Payment instructions of a deposit.
fn pay(input: &PageInput<'_>, deposit: &OrderDeposit) -> Html {
    let PageInput { order, language, .. } = *input;
    let (coin, chain) = (deposit.stablecoin, deposit.blockchain);
    let value = deposit.value.unwrap_or_default();
    let due = money(value, coin);
    let address = deposit.wallet_address.to_string();
    // The deposit's own chain and coin may be missing among the choices.
    let is_other = |view: &ChainView| {
        view.stablecoins.iter().any(|of| (view.blockchain, *of) != (chain, coin))
    };
    let has_other = input.choices.iter().any(is_other);
    let sender = order.expecting_wallet_address.map(|sender| sender.to_string());
    let from = match &sender {
        Some(sender) => phrase(language, "pay.sender", &[sender]),
        None => phrase(language, "pay.exchange", &[&due]),
    };
    let amount = order.amount.to_string();
    let digits = if value == order.amount {
        language.text("pay.plain").into()
    } else {
        phrase(language, "pay.digits", &[&money(order.amount, coin)])
    };
    let text = value.to_string();
    // The digits of the order's amount, and those that were added to it.
    let (whole, added) = match text.strip_prefix(&amount) {
        Some(added) => (&*amount, added),
        None => (&*text, ""),
    };
    let Call { chain_id, contract, data, uri } = call(input, deposit, value);
    let account =
        language.text("wallet.account").replace("{0}", sender.as_deref().unwrap_or_default());
    let left = order.expires_at.0.saturating_sub(input.now.0).max(0);
    // The same for a deposit that is opened again: what a browser's wallet has sent pays that one, too.
    let key = format!("{}.{chain}.{coin}.{address}.{value}", order.order_id);
    let values = [
        ("deposit", key.into()),
        ("coin", coin.as_str().into()),
        ("on", phrase(language, "choose.on", &[chain.label()])),
        ("until", format!("PT{left}S").into()),
        ("expires_at", order.expires_at.0.to_string().into()),
        ("now", input.now.0.to_string().into()),
        ("until_text", phrase(language, "pay.until", &[&time_of_day(order.expires_at)])),
        ("value", Html::from(whole).then(Html::within("i", added))),
        ("value_plain", text.as_str().into()),
        ("digits", digits),
        ("qr", qr_code(language, &address)),
        ("address", with_ends(&address)),
        ("address_plain", address.into()),
        ("demo", input.test_payment()),
        ("chain_id", chain_id.into()),
        ("contract", contract.into()),
        ("call", data.into()),
        ("sender", sender.unwrap_or_default().into()),
        ("wallet_network", language.text("wallet.network").replace("{0}", chain.label()).into()),
        ("wallet_account", account.into()),
        ("uri", uri.into()),
        ("only", phrase(language, "pay.only", &[coin.as_str(), chain.label()])),
        ("from", from),
        ("other", if has_other { other(language) } else { Html::default() }),
        ("cancel", cancel(input)),
    ];
    template!("pay").fill(language, &values)
}

/// An address, its ends emphasized.
fn with_ends(address: &str) -> Html {
    let cut = |at| address.split_at_checked(at).unwrap_or((address, ""));
    let (start, rest) = cut(ADDRESS_ENDS);
    let middle = rest.len().saturating_sub(ADDRESS_ENDS);
    let (middle, end) = rest.split_at_checked(middle).unwrap_or((rest, ""));
    Html::within("b", start).then(middle).then(Html::within("b", end))
}

/// Payment data for a wallet.
#[derive(Default)]
struct Call {
    chain_id: String,
    contract: String,
    data: String,
    uri: String,
}

fn call(input: &PageInput<'_>, deposit: &OrderDeposit, value: Amount) -> Call {
    let OrderDeposit { blockchain, wallet_address: address, contract, decimals, .. } = *deposit;
    match (blockchain.address_family(), value.to_units(decimals)) {
        (AddressFamily::Evm, Some(units)) => {
            let own = blockchain.chain_id();
            let chain_id = input.catalog.terms(blockchain).map_or(own, |terms| terms.chain_id);
            let to = address.to_string().trim_start_matches("0x").to_lowercase();
            Call {
                // transfer(address,uint256)
                data: format!("0xa9059cbb{to:0>64}{units:064x}"),
                // EIP-681.
                uri: format!(
                    "ethereum:{contract}@{chain_id}/transfer?address={address}&uint256={units}"
                ),
                chain_id: chain_id.to_string(),
                contract: contract.to_string(),
            }
        }
        // Tron has no standard URI with an amount: a wallet may read the amount as one of the chain's own coin.
        (AddressFamily::Tron, _) => Call { uri: format!("tron:{address}"), ..Call::default() },
        (AddressFamily::Evm, None) => Call::default(),
    }
}

/// View of an order whose payment was seen.
fn confirming(input: &PageInput<'_>) -> Html {
    let PageInput { order, language, .. } = *input;
    let named = |seen: &&SeenTransfer| order.candidates.contains(&seen.transfer.transfer_id);
    let seen = input.transfers.iter().find(named);
    let arrived = |value: Option<Amount>, coin, chain: schemas::Blockchain| {
        phrase(language, "seen.lead", &[&money(value.unwrap_or_default(), coin), chain.label()])
    };
    let lead = match (seen.map(|seen| &seen.transfer), open_deposit(order)) {
        (Some(of), _) => {
            arrived(Some(of.observation.value), of.observation.stablecoin, of.blockchain)
        }
        // The transfer's row is not written yet.
        (None, Some(of)) => arrived(of.value, of.stablecoin, of.blockchain),
        (None, None) => Html::default(),
    };
    let progress = match seen.map(|seen| (seen.confirmations, seen.required)) {
        Some((count, Some(required))) => {
            let (count, required) = (count.to_string(), required.to_string());
            let text = phrase(language, "seen.count", &[&count, &required]);
            let values = [
                ("required", required.into()),
                ("count", count.into()),
                ("label", language.text("seen.title").into()),
                ("text", text),
            ];
            template!("progress").fill(language, &values)
        }
        Some((_, None)) => Html::within("p", language.text("seen.final")),
        None => Html::default(),
    };
    let tx = seen.map(|seen| tx(language, seen)).unwrap_or_default();
    template!("seen").fill(language, &[("lead", lead), ("progress", progress), ("tx", tx)])
}

/// View of an order that ended without a payment.
fn ended(input: &PageInput<'_>, kind: &'static str) -> Html {
    let PageInput { order, language, .. } = *input;
    // A payment may be on its way, if there was an amount to send.
    let may_be_paid = order.deposits.iter().any(|deposit| deposit.value.is_some())
        && input.catalog.takes_late(order.expires_at, input.now);
    let lead = match (order.status, arrived::has_arrived(input)) {
        (OrderStatus::Expired, true) => "arrived",
        _ if may_be_paid => "late",
        _ => "lead",
    };
    let lead = language.text(&format!("{kind}.{lead}"));
    let title = language.text(&format!("{kind}.title"));
    outcome(language, [kind, "×", title], lead.into(), (Html::default(), input.back()))
}

/// Main part of a page with nothing to pay: its kind, its mark and its title, its text, and links.
pub(super) fn outcome(
    language: Language,
    [kind, mark, title]: [&'static str; 3],
    lead: Html,
    (tx, back): (Html, Html),
) -> Html {
    let values = [
        ("kind", kind.into()),
        ("mark", mark.into()),
        ("title", title.into()),
        ("lead", lead),
        ("tx", tx),
        ("back", back),
    ];
    template!("ended").fill(language, &values)
}

fn paid(input: &PageInput<'_>) -> Html {
    let PageInput { order, language, .. } = *input;
    let named = |seen: &&SeenTransfer| Some(seen.transfer.transfer_id) == order.paid_by;
    let seen = input.transfers.iter().find(named);
    let of_value = |of: &&OrderDeposit| of.value.is_some() && of.value == order.paid_value;
    let received = |value: Amount, coin, chain: schemas::Blockchain| {
        phrase(language, "paid.lead", &[&money(value, coin), chain.label()])
    };
    let lead = match (seen.map(|seen| &seen.transfer), order.deposits.iter().find(of_value)) {
        (Some(of), _) => received(of.observation.value, of.observation.stablecoin, of.blockchain),
        (None, Some(of)) if order.paid_by.is_some() => {
            received(of.value.unwrap_or_default(), of.stablecoin, of.blockchain)
        }
        (None, _) if order.paid_by.is_some() => Html::default(),
        (None, _) => language.text("paid.manual").into(),
    };
    let tx = seen.map(|seen| tx(language, seen)).unwrap_or_default();
    outcome(language, ["paid", "✓", language.text("paid.title")], lead, (tx, input.back()))
}
