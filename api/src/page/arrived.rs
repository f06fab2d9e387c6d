//! Notices about transfers that the order does not name: arrival, check, and advice. While such a transfer may pay, or
//! covers the price, the page asks for no other payment (decision 79).

use schemas::record::Order;
use schemas::{Amount, OrderStatus, Stablecoin, UnixSeconds, UnknownReason};

use super::html::{Html, Template, phrase};
use super::input::{LookUp, PageInput};
use super::language::Language;
use super::words::{money, time_of_day, tx};
use crate::machine::arrival;
use crate::machine::seen_transfer::SeenTransfer;

/// Reason to ask for no payment at present.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// `true` if a verdict or a search is awaited.
    is_waiting: bool,
    /// `true` if every such arrival may be another customer's.
    is_unsure: bool,
}

impl Held {
    pub(super) fn title(self) -> &'static str {
        if self.is_waiting { "held.wait" } else { "held.stop" }
    }
}

/// Arrivals that are not the order's own payment, with those found by the customer's hash.
fn strays<'a>(input: &PageInput<'a>) -> impl Iterator<Item = &'a SeenTransfer> + use<'a> {
    let PageInput { order, transfers, look_up, .. } = *input;
    let asked_for: &[SeenTransfer] = match look_up {
        Some(LookUp::Found(found)) => found,
        Some(LookUp::Malformed | LookUp::Later) | None => &[],
    };
    let is_shown = move |of: &&SeenTransfer| {
        transfers.iter().any(|shown| shown.transfer.transfer_id == of.transfer.transfer_id)
    };
    let asked_for = asked_for.iter().filter(move |of| !is_shown(of));
    let asked_for = asked_for.filter(|of| !arrival::is_of_another(order, &of.transfer));
    transfers.iter().chain(asked_for).filter(|seen| !is_named(order, seen))
}

fn is_named(order: &Order, seen: &SeenTransfer) -> bool {
    arrival::named(order).any(|id| id == seen.transfer.transfer_id)
}

/// Arrivals possibly of the customer, without those found by the customer's hash.
fn possible<'a>(input: &PageInput<'a>) -> impl Iterator<Item = &'a SeenTransfer> + use<'a> {
    let this = *input;
    let is_known = move |id| strays(&this).any(|of: &SeenTransfer| of.transfer.transfer_id == id);
    this.possible.iter().filter(move |of| !is_known(of.transfer.transfer_id))
}

/// `true` if something arrived that is not the order's own payment.
pub(super) fn has_arrived(input: &PageInput<'_>) -> bool {
    strays(input).next().is_some() || !input.possible.is_empty()
}

/// Reason to ask for no payment: an arrival may still pay or covers the price, or the customer has probably paid and
/// the transaction could not be looked up.
pub(super) fn held(input: &PageInput<'_>) -> Option<Held> {
    let price = input.order.amount;
    let holds = |seen: &&SeenTransfer| {
        seen.is_waiting() || seen.transfer.observation.value.parts() >= price.parts()
    };
    let own = || strays(input).filter(holds);
    let possible = || possible(input).filter(holds);
    let is_later = matches!(input.look_up, Some(LookUp::Later));
    let is_waiting = is_later || own().chain(possible()).any(SeenTransfer::is_waiting);
    let is_unsure = own().next().is_none();
    let is_held = is_later || !is_unsure || possible().next().is_some();
    is_held.then_some(Held { is_waiting, is_unsure })
}

/// View that replaces the amount and the address, until the customer requests them.
pub(super) fn hold(input: &PageInput<'_>, held: Held, cancel: Html) -> Html {
    let language = input.language;
    let again = if held.is_unsure { "held.show" } else { "held.again" };
    let values = [
        ("title", language.text(held.title()).into()),
        ("language", language.tag().into()),
        ("again", language.text(again).into()),
        ("cancel", cancel),
    ];
    Template(include_str!("templates/held.html")).fill(language, &values)
}

/// Notices about the arrivals that are not the order's own payment, and about the transaction that
/// the customer asked about. `is_asked` is `true` if the page shows an amount to pay below.
pub(super) fn notices<'a>(
    input: &PageInput<'a>,
    is_asked: bool,
) -> impl Iterator<Item = Html> + use<'a> {
    let (this, language) = (*input, input.language);
    let own = strays(input).map(move |seen| {
        let kind = if seen.is_waiting() { "waiting" } else { "" };
        let label = format!("{} {}", language.text("tx"), short(seen));
        let (title, more) =
            if seen.is_waiting() { waiting(&this, seen) } else { unknown(&this, seen, is_asked) };
        notice(language, kind, label, title, more.then(tx(language, seen)))
    });
    look_up(input).into_iter().chain(own).chain(possibly(input))
}

/// A notice of a kind, with its label for screen readers.
pub(super) fn notice(
    language: Language,
    kind: &'static str,
    label: impl Into<Html>,
    title: impl Into<Html>,
    more: Html,
) -> Html {
    let (label, title) = (label.into(), title.into());
    let values = [("kind", kind.into()), ("label", label), ("title", title), ("more", more)];
    Template(include_str!("templates/notice.html")).fill(language, &values)
}

fn line(text: impl Into<Html>) -> Html {
    Html::within("p", text)
}

/// The start of a transaction's hash, to distinguish it from others.
fn short(seen: &SeenTransfer) -> String {
    seen.transfer.observation.tx_hash.to_string().chars().take(10).collect()
}

/// Amount last asked of the customer, in this coin if one is given.
fn asked(order: &Order, coin: Option<Stablecoin>) -> Option<String> {
    let mut deposits = order.deposits.iter().rev();
    let deposit =
        deposits.find(|of| of.value.is_some() && coin.is_none_or(|coin| of.stablecoin == coin))?;
    Some(money(deposit.value?, deposit.stablecoin))
}

/// A transfer before its verdict.
fn waiting(input: &PageInput<'_>, seen: &SeenTransfer) -> (Html, Html) {
    let PageInput { order, language, .. } = *input;
    let of = &seen.transfer;
    let coin = of.observation.stablecoin;
    let (came, asked) = (money(of.observation.value, coin), asked(order, Some(coin)));
    let has_ended = matches!(order.status, OrderStatus::Expired | OrderStatus::Cancelled);
    if of.deposit_id.is_some() && has_ended {
        return (phrase(language, "arrived.pays", &[&came]), Html::default());
    }
    let is_other_sender =
        order.expecting_wallet_address.is_some_and(|sender| sender != of.observation.from_address);
    let title = match order.status {
        OrderStatus::Paid => phrase(language, "stray.second", &[&came]),
        OrderStatus::Cancelled => phrase(language, "stray.ended", &[&came]),
        OrderStatus::Pending | OrderStatus::Expired if of.block.timestamp > order.expires_at => {
            phrase(language, "stray.late", &[&came])
        }
        OrderStatus::Pending | OrderStatus::Expired if is_other_sender => {
            phrase(language, "stray.sender", &[&came])
        }
        OrderStatus::Pending | OrderStatus::Expired => match asked.filter(|asked| *asked != came) {
            Some(asked) => phrase(language, "arrived.amount", &[&came, &asked]),
            None => phrase(language, "arrived.plain", &[&came]),
        },
    };
    let end = ends(input, [seen]);
    let then = if end.is_some() { "check.then" } else { "stray.help" };
    let check = checked(language, end, ("check.until", "check.soon"));
    (title, line(check).then(line(language.text(then))))
}

/// End of the checks of these transfers, if it is known and has not passed.
fn ends<'a>(
    input: &PageInput<'_>,
    seen: impl IntoIterator<Item = &'a SeenTransfer>,
) -> Option<UnixSeconds> {
    let ends = seen.into_iter().map(|of| of.checked_by);
    ends.max().flatten().filter(|end| *end > input.now)
}

/// Text that a transfer is being checked, with the end of the check if that is known.
fn checked(
    language: Language,
    end: Option<UnixSeconds>,
    (until, soon): (&'static str, &'static str),
) -> Html {
    match end {
        Some(end) => clocked(language, until, end),
        None => language.text(soon).into(),
    }
}

/// A text with a time of day, which scripts show in the customer's own zone.
fn clocked(language: Language, key: &str, time: UnixSeconds) -> Html {
    let values = [("at", time.0.to_string().into()), ("text", time_of_day(time).into())];
    let time = Template(include_str!("templates/time.html")).fill(language, &values);
    let (before, after) = language.text(key).split_once("{0}").unwrap_or_default();
    Html::from(before).then(time).then(after)
}

/// Text key for the reason why a transfer does not pay the order; for a wrong amount, also the difference.
fn misfit(order: &Order, seen: &SeenTransfer) -> (&'static str, Option<Amount>) {
    use UnknownReason as Reason;
    let transfer = &seen.transfer;
    let (value, coin) = (transfer.observation.value, transfer.observation.stablecoin);
    let asked = order.deposits.iter().rev().find(|of| {
        of.blockchain == transfer.blockchain
            && of.stablecoin == coin
            && of.wallet_address == transfer.observation.to_address
    });
    let asked = asked.and_then(|of| of.value).map_or(0, Amount::parts);
    let difference = Amount::from_parts(asked.abs_diff(value.parts()));
    match transfer.reason {
        Some(Reason::AmountMismatch) if value.parts() < asked => ("stray.short", difference),
        Some(Reason::AmountMismatch) if asked > 0 => ("stray.over", difference),
        Some(Reason::Late) => ("stray.late", None),
        Some(Reason::SenderMismatch) => ("stray.sender", None),
        Some(Reason::AlreadyPaid) => ("stray.second", None),
        Some(Reason::OrderCancelled) => ("stray.ended", None),
        Some(Reason::OtherContract) => ("stray.contract", None),
        Some(Reason::Stopped) => ("stray.stopped", None),
        Some(
            Reason::NoDeposit | Reason::AmountMismatch | Reason::BeforeDeposit | Reason::OwnWallet,
        )
        | None => ("stray.other", None),
    }
}

/// A transfer that pays nothing.
fn unknown(input: &PageInput<'_>, seen: &SeenTransfer, is_asked: bool) -> (Html, Html) {
    let PageInput { order, language, .. } = *input;
    let (coin, value) = (seen.transfer.observation.stablecoin, seen.transfer.observation.value);
    let (key, difference) = misfit(order, seen);
    let difference = difference.map(|of| money(of, coin)).unwrap_or_default();
    let mut more = Html::default();
    if value.parts() >= order.amount.parts() {
        more = more.then(line(language.text("stray.stop")));
    } else if key == "stray.short" && is_asked {
        more = more.then(line(language.text("stray.again")));
    }
    let title = phrase(language, key, &[&money(value, coin), &difference]);
    (title, more.then(line(language.text("stray.help"))))
}

/// One notice about all transfers possibly of the customer, without hashes and amounts.
fn possibly(input: &PageInput<'_>) -> Option<Html> {
    let PageInput { order, language, .. } = *input;
    possible(input).next()?;
    let asked = asked(order, None)?;
    let is_waiting = possible(input).any(SeenTransfer::is_waiting);
    let (kind, title, more) = if is_waiting {
        let end = ends(input, possible(input));
        let check = checked(language, end, ("maybe.until", "maybe.soon"));
        let more = line(check).then(line(language.text("maybe.help")));
        ("waiting", "maybe.wait", more)
    } else {
        ("", "maybe.unknown", line(language.text("maybe.stop")))
    };
    let title = phrase(language, title, &[&asked]);
    Some(notice(language, kind, language.text("maybe.label"), title, more))
}

/// Notice about the transaction that the customer asked about.
fn look_up(input: &PageInput<'_>) -> Option<Html> {
    let PageInput { order, language, .. } = *input;
    let key = match input.look_up? {
        LookUp::Malformed => "lookup.malformed",
        LookUp::Later => "problem.busy",
        LookUp::Found(found) if found.is_empty() => "lookup.none",
        LookUp::Found(found) if found.iter().any(|of| is_named(order, of)) => "lookup.seen",
        LookUp::Found(found)
            if found.iter().any(|of| arrival::is_of_another(order, &of.transfer)) =>
        {
            "lookup.other"
        }
        // The transfer has a notice of its own.
        LookUp::Found(_) => return None,
    };
    let label = language.text("lookup.title");
    Some(notice(language, "result", label, language.text(key), Html::default()))
}

/// The form that looks up a transaction, in a disclosure. Empty before an amount is asked, and once a fitting
/// payment is seen or the order is paid.
pub(super) fn look_up_form(input: &PageInput<'_>) -> Html {
    let PageInput { order, language, .. } = *input;
    let was_asked = order.deposits.iter().any(|deposit| deposit.value.is_some());
    if !was_asked || order.status == OrderStatus::Paid || !order.candidates.is_empty() {
        return Html::default();
    }
    // A possible transfer is shown as the customer's own once its hash is entered.
    let is_open = input.look_up.is_some() || !input.possible.is_empty();
    let values = [
        ("action", order.order_id.to_string().into()),
        ("language", language.tag().into()),
        ("open", if is_open { " open" } else { "" }.into()),
    ];
    Template(include_str!("templates/lookup.html")).fill(language, &values)
}
