//! Actions of an operator: the page of each states its consequence before the operator confirms it.

use schemas::record::{Order, Transfer};

use super::Page;
use super::markup::{badge, code, facts, foreign, head, hidden, plain};
use super::session::Visit;
use crate::page::Html;

/// Declares the actions of operators on the console, each with its word in URLs, title, message afterwards and
/// consequence.
macro_rules! actions {
    ($($action:ident $word:literal $title:literal $done:literal: $consequence:literal;)+) => {
        /// Action of an operator on the console.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Action { $($action,)+ }

        impl Action {
            const ALL: &'static [Self] = &[$(Self::$action,)+];

            const fn texts(self) -> [&'static str; 4] {
                match self { $(Self::$action => [$word, $title, $done, $consequence],)+ }
            }
        }
    };
}

actions! {
    Cancel "cancel" "Cancel the order?" "The order is cancelled.":
        "The order ends as cancelled, its deposits close, and the shop gets a webhook. A payment \
         that comes later pays only if orders.late_payments accepts it. It cannot be undone.";
    MarkPaid "mark-paid" "Mark the order paid?" "The order is paid.":
        "The order becomes paid without a payment, and the shop gets a webhook: it may ship. No \
         money is moved or checked. If a payment did come, attach its transfer instead. It \
         cannot be undone.";
    ResendOrder "resend-webhook" "Send the order's webhook again?" "The webhook is on its way.":
        "The shop gets the webhook of the order's present status once more, with the whole \
         schedule of attempts.";
    ResendTransfer "resend-webhook" "Send the transfer's webhook again?" "The webhook is on its way.":
        "merchant.unknown_transfer_webhook_url gets the event of this transfer once more, with \
         the whole schedule of attempts.";
    Attach "attach" "Attach the transfer to the order?" "The transfer pays this order.":
        "The transfer pays the order: it becomes paid, the transfer matched, and the shop gets a \
         webhook. It cannot be undone.";
    Stop "stop" "Stop these payments?" "The stop is on its way: it is in force when it is listed here.":
        "Nothing that it covers is offered any more, and payments that are confirmed meanwhile \
         pay nothing, also for orders that wait: they are unknown, by the reason stopped.";
    Resume "resume" "End the stop?" "The end of the stop is on its way.":
        "What it covered is offered and pays again from now on. What was confirmed meanwhile \
         stays unknown: attach what is good.";
    Resolve "resolve" "Resolve the alert?" "The alert is resolved.":
        "The alert ends, here and for everybody who is sent alerts. Nothing else is changed: its \
         cause is not mended.";
    Replay "replay" "Put the record back?" "The record was put back.":
        "The record is appended to its topic once more, and its stage takes it again. What it \
         asks for may happen now: read what it says.";
    Redrive "redrive" "Send these webhooks again?" "The webhooks are on their way.":
        "The shop gets the webhook of the present status of each order once more, and of each \
         transfer its event, with the whole schedule of attempts. What was delivered since, or \
         asked for already, is left out.";
}

impl Action {
    pub(crate) const fn word(self) -> &'static str {
        let [word, ..] = self.texts();
        word
    }

    /// Message after the action.
    pub(crate) const fn done(self) -> &'static str {
        let [_, _, done, _] = self.texts();
        done
    }

    /// The action with this word in URLs. Two actions share `resend-webhook`, for which the one on orders is returned.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.word() == word)
    }
}

/// The page of an action; its form posts to the same URL.
pub(super) fn confirm(action: Action, what: Html, fields: Html, visit: &Visit) -> Page {
    let [_, title, _, consequence] = action.texts();
    let form = plain(
        "<p>{{consequence}}</p>{{what}}<form method=\"post\">{{token}}{{fields}}<p class=\"actions\"><button class=\"main\">{{yes}}\
         </button></p></form><p class=\"hint\">The audit will have it under the name <bdi>{{name}}</bdi>.</p>",
        &[
            ("consequence", consequence.into()),
            ("what", what),
            ("token", visit.field()),
            ("fields", fields),
            ("yes", title.trim_end_matches('?').into()),
            ("name", visit.operator.name.to_string().into()),
        ],
    );
    Page::new(title.trim_end_matches('?'), head(title, form))
}

fn of_order(order: &Order) -> [(&'static str, Html); 4] {
    [
        ("Order", foreign(order.merchant_order_id.as_str())),
        ("Id", code(order.order_id.to_string())),
        ("Status", badge(order.status.as_str())),
        ("Amount", order.amount_text.as_str().into()),
    ]
}

fn of_transfer(transfer: &Transfer) -> [(&'static str, Html); 4] {
    let seen = &transfer.observation;
    let amount =
        format!("{} {} on {}", transfer.value_text, seen.stablecoin, transfer.blockchain.label());
    [
        ("Transfer", transfer.transfer_id.to_string().into()),
        ("Transfer status", badge(transfer.status.as_str())),
        ("Brought", amount.into()),
        ("From", code(seen.from_address.to_string())),
    ]
}

pub(crate) fn on_order(action: Action, order: &Order, visit: &Visit) -> Page {
    confirm(action, facts(of_order(order)), Html::default(), visit)
}

pub(crate) fn on_transfer(action: Action, transfer: &Transfer, visit: &Visit) -> Page {
    confirm(action, facts(of_transfer(transfer)), Html::default(), visit)
}

/// Attach page, with transfer and order side by side.
pub(crate) fn attach(transfer: &Transfer, order: &Order, visit: &Visit) -> Page {
    let what = facts(of_order(order).into_iter().chain(of_transfer(transfer)));
    let mut fields = hidden("order_id", order.order_id.to_string());
    if transfer.observation.value < order.amount {
        let values = [
            ("sent", transfer.value_text.as_str().into()),
            ("asked", order.amount_text.as_str().into()),
        ];
        fields = fields.then(plain(
            "<p class=\"bad\">It brought less than the order's amount.</p><label class=\"check\"><input type=\"checkbox\" \
             name=\"accept_less\" value=\"yes\" required> {{sent}} pays {{asked}} in full</label>",
            &values,
        ));
    }
    confirm(Action::Attach, what, fields, visit)
}

/// Page that starts or ends a stop of payments. `on` is the only chain; empty for all.
pub(crate) fn stop(action: Action, (subject, on): (&str, &str), visit: &Visit) -> Page {
    let chain = if on.is_empty() { "every chain that has it" } else { on };
    let what = facts([("Subject", foreign(subject)), ("On", foreign(chain))]);
    let fields = hidden("subject", subject).then(hidden("blockchain", on));
    confirm(action, what, fields, visit)
}
