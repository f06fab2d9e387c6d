//! Actions of an operator: each one's page states its consequence before it is confirmed.

use schemas::record::{Order, Transfer};

use super::Page;
use super::markup::{badge, code, facts, foreign, head, plain};
use super::session::Visit;
use crate::page::Html;

/// Action of an operator on the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Cancel,
    MarkPaid,
    ResendOrder,
    ResendTransfer,
    Attach,
    Stop,
    Resume,
    Resolve,
    Replay,
    Redrive,
}

impl Action {
    const ALL: [Self; 10] = [
        Self::Cancel,
        Self::MarkPaid,
        Self::ResendOrder,
        Self::ResendTransfer,
        Self::Attach,
        Self::Stop,
        Self::Resume,
        Self::Resolve,
        Self::Replay,
        Self::Redrive,
    ];

    /// Its word in addresses.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::MarkPaid => "mark-paid",
            Self::ResendOrder | Self::ResendTransfer => "resend-webhook",
            Self::Attach => "attach",
            Self::Stop => "stop",
            Self::Resume => "resume",
            Self::Resolve => "resolve",
            Self::Replay => "replay",
            Self::Redrive => "redrive",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel the order?",
            Self::MarkPaid => "Mark the order paid?",
            Self::ResendOrder => "Send the order's webhook again?",
            Self::ResendTransfer => "Send the transfer's webhook again?",
            Self::Attach => "Attach the transfer to the order?",
            Self::Stop => "Stop these payments?",
            Self::Resume => "End the stop?",
            Self::Resolve => "Resolve the alert?",
            Self::Replay => "Put the record back?",
            Self::Redrive => "Send these webhooks again?",
        }
    }

    /// Consequence of the action.
    const fn consequence(self) -> &'static str {
        match self {
            Self::Cancel => {
                "The order ends as cancelled, its deposits close, and the shop gets a webhook. A payment that comes later pays \
                 nothing. It cannot be undone."
            }
            Self::MarkPaid => {
                "The order becomes paid without a payment, and the shop gets a webhook: it may ship. No money is moved or \
                 checked. If a payment did come, attach its transfer instead. It cannot be undone."
            }
            Self::ResendOrder => {
                "The shop gets the webhook of the order's present status once more, with the whole schedule of attempts."
            }
            Self::ResendTransfer => {
                "merchant.unknown_transfer_webhook_url gets the event of this transfer once more, with the whole schedule of \
                 attempts."
            }
            Self::Attach => {
                "The transfer pays the order: it becomes paid, the transfer matched, and the shop gets a webhook. It cannot be \
                 undone."
            }
            Self::Stop => {
                "Nothing that it covers is offered any more, and payments that are confirmed meanwhile pay nothing, also for \
                 orders that wait: they are unknown, by the reason stopped."
            }
            Self::Resume => {
                "What it covered is offered and pays again from now on. What was confirmed meanwhile stays unknown: attach \
                 what is good."
            }
            Self::Resolve => {
                "The alert ends, here and for everybody who is sent alerts. Nothing else is changed: its cause is not mended."
            }
            Self::Replay => {
                "The record is appended to its topic once more, and its stage takes it again. What it asks for may happen \
                 now: read what it says."
            }
            Self::Redrive => {
                "The shop gets the webhook of the present status of each order once more, and of each transfer its event, \
                 with the whole schedule of attempts. What was delivered since, or asked for already, is left out."
            }
        }
    }

    /// Message after the action.
    pub(crate) const fn done(self) -> &'static str {
        match self {
            Self::Cancel => "The order is cancelled.",
            Self::MarkPaid => "The order is paid.",
            Self::ResendOrder | Self::ResendTransfer => "The webhook is on its way.",
            Self::Attach => "The transfer pays this order.",
            Self::Stop => "The stop is on its way: it is in force when it is listed here.",
            Self::Resume => "The end of the stop is on its way.",
            Self::Resolve => "The alert is resolved.",
            Self::Replay => "The record was put back.",
            Self::Redrive => "The webhooks are on their way.",
        }
    }

    /// The first action of a word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}

/// The page of an action, whose form goes to where the page is.
pub(super) fn confirm(action: Action, what: Html, fields: Html, visit: &Visit) -> Page {
    let form = plain(
        "<p>{{consequence}}</p>{{what}}<form method=\"post\">{{token}}{{fields}}<p class=\"actions\"><button class=\"main\">{{yes}}\
         </button></p></form><p class=\"hint\">The audit will have it under the name <bdi>{{name}}</bdi>.</p>",
        &[
            ("consequence", action.consequence().into()),
            ("what", what),
            ("token", visit.field()),
            ("fields", fields),
            ("yes", action.title().trim_end_matches('?').into()),
            ("name", visit.operator.name.to_string().into()),
        ],
    );
    Page::new(action.title().trim_end_matches('?'), head(action.title(), form))
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

/// The page of an action on an order.
pub(crate) fn on_order(action: Action, order: &Order, visit: &Visit) -> Page {
    confirm(action, facts(of_order(order)), Html::default(), visit)
}

/// The page of an action on a transfer.
pub(crate) fn on_transfer(action: Action, transfer: &Transfer, visit: &Visit) -> Page {
    confirm(action, facts(of_transfer(transfer)), Html::default(), visit)
}

/// The page that attaches a transfer to an order, side by side.
pub(crate) fn attach(transfer: &Transfer, order: &Order, visit: &Visit) -> Page {
    let what = facts(of_order(order).into_iter().chain(of_transfer(transfer)));
    let id = [("id", order.order_id.to_string().into())];
    let mut fields = plain("<input type=\"hidden\" name=\"order_id\" value=\"{{id}}\">", &id);
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

/// The page that stops payments, or ends that. `on` is the only chain; empty for every chain.
pub(crate) fn stop(action: Action, (subject, on): (&str, &str), visit: &Visit) -> Page {
    let chain = if on.is_empty() { "every chain that has it" } else { on };
    let what = facts([("Subject", foreign(subject)), ("On", foreign(chain))]);
    let fields = plain(
        "<input type=\"hidden\" name=\"subject\" value=\"{{subject}}\"><input type=\"hidden\" name=\"blockchain\" value=\"{{on}}\">",
        &[("subject", subject.into()), ("on", on.into())],
    );
    confirm(action, what, fields, visit)
}
