//! Dead webhooks of the last 30 days: their list, and their redrive.

use std::cmp::Reverse;
use std::str::FromStr;

use schemas::record::Delivery;
use schemas::{AttemptOutcome, DeliveryKind, Topic, UnixMicros};

use super::Page;
use super::action::{self, Action};
use super::delivery;
use super::markup::{
    actions, address, badge, button, choice, code, filter, foreign, head, hidden, hint, hints,
    link, notice, or_none, plain, table, time,
};
use super::records::{RECORDS, of_subject, subject};
use super::session::Visit;
use crate::error::{Answer, Refusal};
use crate::inspect::Served;
use crate::inspect::reader::Reader;
use crate::inspect::survey::{self, Dead};
use crate::machine::survey::Subject;
use crate::page::Html;
use crate::redrive::{self, Filter};

/// Maximum age of listed dead webhooks, in seconds.
pub(crate) const GIVEN_UP_SECONDS: i64 = 30 * 24 * 3600;
/// Maximum number resent by one form, at [`REDRIVES_A_SECOND`].
const BATCH: usize = 100;
/// Webhooks resent per second; the default of `tidemark webhook dead redrive`.
pub(crate) const REDRIVES_A_SECOND: u32 = 20;

/// Position in the list of dead webhooks: time, partition and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(UnixMicros, u32, i64);

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text.split('-').map(|part| part.parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let place = next().zip(next()).zip(next()).and_then(|((at, partition), offset)| {
            Some(Self(UnixMicros(at), u32::try_from(partition).ok()?, offset))
        });
        place.ok_or("is none of this list")
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(at, partition, offset) = self;
        write!(f, "{}-{partition}-{offset}", at.0)
    }
}

/// A page of the list.
pub(crate) struct GivenUp {
    /// Newest first. The flag is `true` if a webhook of the same subject was delivered since; `None` if that is not
    /// known.
    found: Vec<(Place, Delivery, Option<bool>)>,
    /// Cursor of the next, older page.
    before: Option<Place>,
    remarks: Vec<String>,
}

/// Dead webhooks that match, older than a position if given. Blocks.
pub(crate) fn read(
    reader: &mut Reader<Served>,
    filter: &Filter,
    before: Option<Place>,
    now: UnixMicros,
) -> Answer<GivenUp> {
    let since = now.seconds().plus(-GIVEN_UP_SECONDS).micros();
    let mut found: Vec<(Place, Delivery)> = Vec::new();
    let keep_newest = |found: &mut Vec<(Place, Delivery)>| {
        found.sort_by_key(|(place, _)| Reverse(*place));
        found.truncate(RECORDS.saturating_add(1));
    };
    let partitions = Topic::WebhooksDead.all_partitions(&reader.layout);
    reader.scan(Topic::WebhooksDead, partitions, (since, None), |record, of: Delivery| {
        let place = Place(record.appended_at, record.from.partition.0, record.offset.0);
        if before.is_none_or(|before| place < before) && filter.fits(record.appended_at, &of) {
            // The list shows no bodies.
            found.push((place, Delivery { body: String::new(), ..of }));
        }
        if found.len() > 4 * RECORDS {
            keep_newest(&mut found);
        }
    })?;
    keep_newest(&mut found);
    let has_more = found.len() > RECORDS;
    found.truncate(RECORDS);
    let before = found.last().map(|(place, _)| *place).filter(|_| has_more);
    let mut all = Vec::new();
    for (place, delivery) in found {
        let is_delivered = match redrive::subject_of(&delivery) {
            Some(subject) => survey::is_delivered(reader, subject, place.0)?,
            None => None,
        };
        all.push((place, delivery, is_delivered));
    }
    Ok(GivenUp { found: all, before, remarks: reader.remarks() })
}

/// Query of a filter, as in the form.
fn query(filter: &Filter) -> [(&'static str, &str); 3] {
    [
        ("host", filter.host.as_deref().unwrap_or_default()),
        ("outcome", filter.outcome.map_or("", AttemptOutcome::as_str)),
        ("kind", filter.kind.map_or("", DeliveryKind::as_str)),
    ]
}

/// Command for the same redrive without a limit. A host that a shell or the command could misread is omitted.
fn command(filter: &Filter) -> String {
    let is_plain = |host: &&str| {
        !host.starts_with('-')
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    let options = query(filter).into_iter().filter(|(_, value)| !value.is_empty());
    let options = options.filter(|(_, value)| is_plain(&&value.replace('_', "")[..]));
    let options = options.map(|(name, value)| format!(" --{name} {value}"));
    format!("tidemark webhook dead redrive{}", options.collect::<String>())
}

pub(crate) fn list(given_up: &GivenUp, filter_in_force: &Filter, visit: &Visit) -> Page {
    let row = |(place, delivery, is_delivered): &(Place, Delivery, Option<bool>)| {
        let last = delivery.last_status.map(|status| status.to_string());
        let last = last.or_else(|| delivery.last_outcome.map(|of| of.as_str().to_owned()));
        let kind = delivery.kind.as_str().replace('_', " ");
        let event = match redrive::subject_of(delivery) {
            Some(of) => link(delivery::address_of(of, &delivery.event_id), kind),
            None => kind.into(),
        };
        vec![
            time(place.0.seconds()),
            subject((delivery.order_id, delivery.transfer_id)),
            event,
            or_none(redrive::host_of(delivery).map(foreign)),
            delivery.requests.to_string().into(),
            or_none(last.map(Html::from)),
            match is_delivered {
                Some(true) => badge("delivered").then(" since it was given up"),
                Some(false) => badge("not_delivered"),
                None => "not known".into(),
            },
        ]
    };
    let names = ["Given up", "Subject", "Event", "Receiver", "Requests", "Last answer", "State"];
    let listed =
        table(&names, given_up.found.iter().map(row), "No webhook was given up in 30 days.");
    let [host, outcome, kind] = query(filter_in_force);
    let text = plain(
        "<label>Receiver's host <input name=\"host\" autocomplete=\"off\" value=\"{{value}}\"></label>",
        &[("value", host.1.into())],
    );
    let fields = text
        .then(choice("outcome", "Last attempt", AttemptOutcome::WORDS, outcome.1))
        .then(choice("kind", "Event", DeliveryKind::WORDS, kind.1));
    let before = given_up.before.map(|before| before.to_string());
    let older = before.map(|before| {
        let query: Vec<_> = [host, outcome, kind, ("before", &*before)].into();
        button(address("/console/deliveries", &query), "Older")
    });
    let again = address("/console/deliveries/redrive", &query(filter_in_force));
    let is_offered = visit.operator.may_operate() && !given_up.found.is_empty();
    let again = if is_offered { button(again, "Send again…") } else { Html::default() };
    let file = button(address("/console/export/deliveries", &query(filter_in_force)), "All as CSV");
    let around = actions(older.unwrap_or_default().then(file).then(again));
    let remarks = hints(&given_up.remarks);
    let lead = hint("Webhooks that were given up in the last 30 days, the newest first.");
    let fields = filter("/console/deliveries", fields);
    let main = lead.then(fields).then(listed).then(around).then(remarks);
    Page::new("Deliveries", head("Deliveries that were given up", main)).at("/console/deliveries")
}

/// Webhooks that a redrive resends.
pub(crate) struct Plan {
    /// Oldest first.
    pub(crate) subjects: Vec<(Subject, UnixMicros)>,
    /// Number of webhooks left for the next redrive.
    left: usize,
    /// Number that operators have resent since they were given up.
    asked: usize,
    /// Number of the newest subjects with dead webhooks that were considered, and number of all such subjects.
    considered: (usize, usize),
    remarks: Vec<String>,
}

/// Plans the redrive of the webhooks that fit the filter. Blocks.
pub(crate) fn plan(reader: &mut Reader<Served>, filter: &Filter, now: UnixMicros) -> Answer<Plan> {
    let Dead { mut subjects, considered, given_up } = survey::dead(reader, filter, now)?;
    subjects.reverse();
    let since = subjects.first().map_or(now, |(_, at)| *at);
    let asked_for = redrive::asked(reader, since)?;
    let all = subjects.len();
    subjects.retain(|(subject, at)| asked_for.get(subject).is_none_or(|asked| asked < at));
    let asked = all.saturating_sub(subjects.len());
    let left = subjects.len().saturating_sub(BATCH);
    subjects.truncate(BATCH);
    let considered = (considered, given_up);
    Ok(Plan { subjects, left, asked, considered, remarks: reader.remarks() })
}

impl Plan {
    /// Notes on the webhooks that the plan leaves out.
    fn around(&self, filter: &Filter) -> Html {
        let asked = (self.asked > 0)
            .then(|| format!("{} more were asked for already and are on their way.", self.asked));
        let left = (self.left > 0).then(|| format!("{} more are for the next time.", self.left));
        let (considered, given_up) = self.considered;
        let newest = (considered < given_up).then(|| {
            format!("Only the newest {considered} of {given_up} that were given up are considered.")
        });
        let all = Html::from("All of them at once: ");
        let texts = asked.into_iter().chain(left).chain(newest);
        let texts = texts.chain(self.remarks.iter().cloned());
        texts.map(hint).collect::<Html>().then(hint(all.then(code(command(filter)))))
    }

    /// The confirmation page.
    pub(crate) fn ask(&self, filter: &Filter, visit: &Visit) -> Page {
        let row =
            |(subject, at): &(Subject, UnixMicros)| vec![of_subject(*subject), time(at.seconds())];
        let listed = table(&["Subject", "Given up"], self.subjects.iter().map(row), "None.");
        let what = listed.then(self.around(filter));
        if self.subjects.is_empty() {
            let lead = hint("There is nothing to send again.");
            return Page::new("Nothing to send", head("Nothing to send", lead.then(what)))
                .at("/console/deliveries");
        }
        let field = |(name, value): (&'static str, &str)| hidden(name, value);
        let fields = query(filter).into_iter().map(field).collect();
        action::confirm(Action::Redrive, what, fields, visit).at("/console/deliveries")
    }

    /// Page of the results; `done` has only the webhooks that were attempted.
    pub(crate) fn done(&self, done: &[(Subject, Result<(), Refusal>)], filter: &Filter) -> Page {
        let row = |(subject, result): &(Subject, Result<(), Refusal>)| {
            let text = match result {
                Ok(()) => "on its way".to_owned(),
                // The command may be on the log.
                Err(refusal) if refusal.status().is_server_error() => format!("unclear: {refusal}"),
                Err(refusal) => format!("not sent: {refusal}"),
            };
            vec![of_subject(*subject), text.into()]
        };
        let sent = done.iter().filter(|(_, result)| result.is_ok()).count();
        let lead = format!("{sent} of {} webhooks are on their way.", self.subjects.len());
        let listed = table(&["Subject", "Result"], done.iter().map(row), "None.");
        let back = actions(button("/console/deliveries", "Deliveries"));
        let main = notice(Some(&lead)).then(listed).then(self.around(filter)).then(back);
        Page::new("Sent again", head("Sent again", main)).at("/console/deliveries")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_becomes_a_command_of_its_own() {
        let of = |host: &str| {
            let outcome = Some(AttemptOutcome::CircuitOpen);
            command(&Filter { host: Some(host.to_owned()), outcome, ..Filter::default() })
        };
        let all = "tidemark webhook dead redrive";
        assert_eq!(of("a-1.example"), format!("{all} --host a-1.example --outcome circuit_open"));
        for host in ["$(id)", "a;b", "a b", "`a`", "--api", "a'", "a\nb"] {
            assert_eq!(of(host), format!("{all} --outcome circuit_open"), "{host:?}");
        }
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        let place = Place(UnixMicros(1_790_000_000_000_001), 3, 70);
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "1", "1-2", "1--2-3", "a-1-2"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong:?}");
        }
    }
}
