//! The page of one webhook: its body as it is sent, its attempts and the answers.

use schemas::record::{Attempt, Delivery};
use schemas::{AttemptOutcome, Topic, UnixMicros};
use url::Url;

use super::Page;
use super::markup::{
    actions, address, badge, button, code, facts, foreign, head, hint, hints, link, or_none, plain,
    section, table, time,
};
use super::records::of_subject;
use super::session::Visit;
use crate::error::{Answer, Refusal};
use crate::inspect::reader::Reader;
use crate::inspect::{Served, gather};
use crate::machine::story::Event;
use crate::machine::survey::{Subject, id_of};
use crate::page::Html;

/// Search period before a webhook's first attempt: it may have been deferred for a day.
const BEFORE_SECONDS: i64 = 25 * 3600;

pub(super) fn address_of(subject: Subject, event: &str) -> String {
    let kind = match subject {
        Subject::Order(_) => "order",
        Subject::Transfer(_) => "transfer",
    };
    address("/console/delivery", &[(kind, &id_of(subject)), ("event", event)])
}

/// Webhook, from the log and the tables.
pub(crate) struct Webhook {
    subject: Subject,
    event: String,
    /// `None` if it was not found in the log.
    delivery: Option<Delivery>,
    /// The newest first.
    attempts: Vec<Attempt>,
    given_up_at: Option<UnixMicros>,
    /// Notes on data missing from the page.
    remarks: Vec<String>,
}

/// Reads the webhook of an event; `since` bounds the search of topics. Blocks.
pub(crate) fn read(
    reader: &mut Reader<Served>,
    (subject, event): (Subject, String),
    since: UnixMicros,
) -> Answer<Webhook> {
    let (key, mut events) = (id_of(subject), Vec::new());
    gather::webhooks(reader, subject, since, &mut events)?;
    let (mut attempts, mut delivery, mut given_up_at) = (Vec::new(), None, None);
    for of in events {
        if let Event::Attempt(attempt) = of {
            attempts.extend(Some(attempt).filter(|attempt| attempt.event_id == event));
        } else if let Event::Dead(dead, at) = of
            && dead.event_id == event
        {
            (delivery, given_up_at) = (Some(dead), Some(at));
        }
    }
    attempts.sort_by_key(|attempt| std::cmp::Reverse(attempt.attempted_at));
    if delivery.is_none() {
        let first = attempts.last().map(|attempt| attempt.attempted_at.seconds());
        let from = first.map_or(since, |first| first.plus(-BEFORE_SECONDS).micros().max(since));
        let partition = reader.layout.webhook(&key);
        let place = (from, Some(&*key));
        delivery = reader.find(Topic::WebhooksDispatch, partition, place, |_, of: Delivery| {
            (of.event_id == event).then_some(of)
        })?;
    }
    let remarks = reader.remarks();
    if delivery.is_none() && attempts.is_empty() && remarks.is_empty() {
        return Err(Refusal::ResourceNotFound);
    }
    Ok(Webhook { subject, event, delivery, attempts, given_up_at, remarks })
}

/// A receiver's URL without path and query, which may hold secrets. Recorded answers have them masked already.
pub(super) fn origin(url: &str) -> Option<String> {
    Some(format!("{}/…", Url::parse(url).ok()?.origin().ascii_serialization()))
}

impl Webhook {
    fn state(&self) -> &'static str {
        let is_delivered = |attempt: &Attempt| attempt.outcome == AttemptOutcome::Delivered;
        let is_superseded = |attempt: &Attempt| attempt.outcome == AttemptOutcome::Superseded;
        if self.attempts.iter().any(is_delivered) {
            "delivered"
        } else if self.given_up_at.is_some() {
            "given_up"
        } else if self.attempts.iter().any(is_superseded) {
            "superseded"
        } else if self.delivery.is_none() && self.attempts.is_empty() {
            // The search was not complete.
            "unknown"
        } else {
            "on_its_way"
        }
    }

    fn facts(&self) -> Html {
        let mut rows =
            vec![("Event", code(self.event.as_str())), ("Subject", of_subject(self.subject))];
        if let Some(delivery) = &self.delivery {
            let by = if delivery.manual { "an operator" } else { "a change" };
            rows.extend([
                ("Kind", delivery.kind.as_str().replace('_', " ").into()),
                ("Receiver", or_none(origin(&delivery.url).map(foreign))),
                ("Announced", time(delivery.emitted_at.seconds())),
                ("Caused by", by.into()),
            ]);
        }
        rows.push(("Given up", or_none(self.given_up_at.map(|at| time(at.seconds())))));
        facts(rows)
    }

    fn body(&self) -> Html {
        let Some(delivery) = &self.delivery else {
            return hint(
                "It was not found in the log: webhooks.dispatch keeps a week, webhooks.dead what was given up. The webhook \
                 of the present status can be sent.",
            );
        };
        let lead = hint(
            "Byte for byte. The signatures are made anew for each attempt, and are kept nowhere.",
        );
        plain("<pre>{{text}}</pre>", &[("text", delivery.body.as_str().into())]).then(lead)
    }

    pub(crate) fn page(&self, visit: &Visit) -> Page {
        let to = match self.subject {
            Subject::Order(id) => format!("/console/orders/{id}/resend-webhook"),
            Subject::Transfer(id) => format!("/console/transfers/{id}/resend-webhook"),
        };
        let again = actions(button(to, "Resend the webhook…"));
        let again = if visit.operator.may_operate() { again } else { Html::default() };
        let remarks = hints(&self.remarks);
        let title = Html::from("Webhook ").then(badge(self.state()));
        let attempts = table_of(self.attempts.iter(), |_| None);
        let main = head(title, self.facts().then(again).then(remarks))
            .then(section("Body", self.body()))
            .then(section("Attempts and answers", attempts));
        Page::new(format!("Webhook {}", self.event), main)
    }
}

/// Table of attempts. `to` returns the page of an attempt's webhook, unless that is the current page.
pub(super) fn table_of<'a>(
    attempts: impl Iterator<Item = &'a Attempt>,
    to: impl Fn(&Attempt) -> Option<String>,
) -> Html {
    let row = |attempt: &Attempt| {
        let status = attempt.http_status.map(|status| format!(" {status}")).unwrap_or_default();
        let manual = if attempt.manual { ", asked for" } else { "" };
        let texts = [&attempt.cause, &attempt.answer].into_iter().filter(|text| !text.is_empty());
        let texts = texts.map(|text| Html::within("p", foreign(text.as_str()))).collect::<Html>();
        let event = code(attempt.event_id.as_str());
        vec![
            time(attempt.attempted_at.seconds()),
            match to(attempt) {
                Some(to) => link(to, event),
                None => event,
            },
            format!("{}{manual}", attempt.attempt).into(),
            badge(attempt.outcome.as_str()).then(status),
            format!("{} ms", attempt.duration_ms).into(),
            texts,
        ]
    };
    let names = ["Time", "Event", "Attempt", "Outcome", "Took", "Cause and answer"];
    table(&names, attempts.map(row), "None yet.")
}
