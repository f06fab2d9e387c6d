//! Pages of dead letters: the list, and one letter with its content and whether it can be put back.

use log::OpenAlerts;
use schemas::record::{AuditEntry, DeadLetter};
use schemas::{AlertKind, AuditAction, Partition, Topic, UnixMicros};
use serde_json::Value;

use super::Page;
use super::action::{self, Action};
use super::alerts;
use super::delivery;
use super::markup::{
    actions, button, code, facts, foreign, head, hint, hints, link, notice, plain, section, table,
    time,
};
use super::records::Newest;
use super::session::Visit;
use crate::audit::Asker;
use crate::error::{Answer, Refusal};
use crate::inspect::Served;
use crate::inspect::reader::Reader;
use crate::letters::{Draft, WITHOUT_ORIGINAL, letter_at, place};
use crate::page::Html;

/// Maximum bytes of a record's content that are shown.
const CONTENT_BYTES_MAX: usize = 20_000;

/// Page of the list of letters, and their open alerts.
pub(crate) fn list(open: &OpenAlerts, found: &Newest<DeadLetter>, visit: &Visit) -> Page {
    let row = |(number, letter): &(i64, DeadLetter)| {
        vec![
            link(format!("/console/dead-letters/{number}"), format!("letter {number}")),
            time(letter.failed_at.seconds()),
            code(place(letter)),
            foreign(letter.group.as_str()),
            foreign(letter.reason.as_str()),
        ]
    };
    let names = ["Letter", "Failed", "Record", "Group", "Reason"];
    let listed = table(&names, found.records.iter().map(row), "No record was given up.");
    let skip = plain(
        "<p class=\"hint\">A record that no version can read, and that ends its stage, is none of them yet: <code>tidemark \
         dead-letters skip TOPIC/PARTITION@OFFSET</code> makes it one, while no process of that stage runs.</p>",
        &[],
    );
    let of_letters = |kind| kind == AlertKind::DeadLetter;
    let alerts = alerts::open(open, of_letters, visit.operator.may_operate());
    let lead =
        hint("Records that no stage could process. A letter stays here also when it was put back.");
    let main =
        head("Dead letters", lead.then(listed).then(found.around("dead-letters")).then(skip))
            .then(section("Their alerts, to be resolved when all is dealt with", alerts));
    Page::new("Dead letters", main).at("/console/dead-letters")
}

pub(crate) struct Letter {
    number: i64,
    letter: DeadLetter,
    /// The record, if this version can read it.
    content: Option<Value>,
    /// Reason why it cannot be put back.
    refusal: Option<String>,
    /// Earlier replays of the record, newest first.
    before: Vec<AuditEntry>,
    /// Notes on data missing from the page.
    remarks: Vec<String>,
}

/// Reads a letter by number, and checks if it can be put back. Blocks.
pub(crate) fn read(
    reader: &mut Reader<Served>,
    number: i64,
    by: &Asker,
    now: UnixMicros,
) -> Answer<Letter> {
    let log = reader.source().0.clone();
    let letter = letter_at(&*log, number)?.ok_or(Refusal::ResourceNotFound)?;
    let draft = match Draft::of(letter.clone(), by, now) {
        Ok(draft) => draft.compared(&*log, false)?,
        refused => refused,
    };
    let decoded = |topic: Topic| {
        let mut content = schemas::decode_json(topic.spec().schema, &letter.value).ok()?;
        if let Some(url) = content.get_mut("url") {
            *url = delivery::origin(url.as_str().unwrap_or_default()).into();
        }
        Some(content)
    };
    let (content, subject) = (Topic::named(&letter.topic).and_then(decoded), place(&letter));
    let (mut before, since) = (Vec::new(), (letter.failed_at, None));
    reader.scan(Topic::Audit, [Partition(0)], since, |_, entry: AuditEntry| {
        let is_replay = entry.action == AuditAction::ReplayDeadLetter;
        if is_replay && entry.subject.as_ref() == Some(&subject) {
            before.push(entry);
        }
    })?;
    before.reverse();
    let (refusal, remarks) = (draft.err(), reader.remarks());
    Ok(Letter { number, letter, content, refusal, before, remarks })
}

impl Letter {
    pub(crate) fn was_put_back(&self) -> bool {
        !self.before.is_empty()
    }

    fn facts(&self) -> Html {
        let DeadLetter { group, reason, failed_at, .. } = &self.letter;
        facts([
            ("Number", self.number.to_string().into()),
            ("Record", code(place(&self.letter))),
            ("Failed", time(failed_at.seconds())),
            ("Group", foreign(group.as_str())),
            ("Reason", foreign(reason.as_str())),
        ])
    }

    fn said(&self) -> Html {
        let Some(content) = &self.content else {
            let command = format!(
                "tidemark tail dead-letters --from offset:{} --limit 1 --until-end",
                self.number
            );
            return hint(
                Html::from("This version cannot read it. Its bytes: ").then(code(command)),
            );
        };
        let text = serde_json::to_string_pretty(content).unwrap_or_default();
        let shown = &text[..text.floor_char_boundary(CONTENT_BYTES_MAX)];
        plain("<pre>{{text}}</pre>", &[("text", shown.into())])
    }

    fn way_back(&self, visit: &Visit) -> Html {
        let Some(refusal) = &self.refusal else {
            let lead = hint(
                "Its record is in the log where the letter says, and this version can read it.",
            );
            let to = format!("/console/dead-letters/{}/replay", self.number);
            let offer = actions(button(to, "Put it back…"));
            return if visit.operator.may_operate() { lead.then(offer) } else { lead };
        };
        let values = [("text", refusal.as_str().into())];
        let text = plain("<p>It is not put back: <bdi>{{text}}</bdi></p>", &values);
        if !refusal.contains(WITHOUT_ORIGINAL) {
            return text;
        }
        let command = format!("tidemark dead-letters replay {WITHOUT_ORIGINAL} {}", self.number);
        text.then(hint(Html::from("On its word alone: ").then(code(command))))
    }

    /// Page of the letter. `done` is the message after an action.
    pub(crate) fn page(&self, visit: &Visit, done: Option<&'static str>) -> Page {
        let row = |entry: &AuditEntry| {
            vec![time(entry.requested_at.seconds()), foreign(entry.operator.as_str())]
        };
        let before = table(&["Time", "Operator"], self.before.iter().map(row), "Nobody yet.");
        let remarks = hints(&self.remarks);
        let title = format!("Dead letter {}", self.number);
        let main = head(title.as_str(), notice(done).then(self.facts()).then(remarks))
            .then(section("What the record says", self.said()))
            .then(section("The way back", self.way_back(visit)))
            .then(section("Put back before by", before));
        Page::new(title, main)
    }

    /// Confirmation page of a replay.
    pub(crate) fn replay(&self, visit: &Visit) -> Answer<Page> {
        if let Some(refusal) = &self.refusal {
            return Err(Refusal::NotPutBack(refusal.clone()));
        }
        let again = self.before.first().map(|entry| {
            let values = [
                ("name", entry.operator.as_str().into()),
                ("at", time(entry.requested_at.seconds())),
            ];
            plain(
                "<p class=\"bad\">It was put back before, by <bdi>{{name}}</bdi> at {{at}}.</p>",
                &values,
            )
        });
        let what = self.facts().then(self.said()).then(again.unwrap_or_default());
        Ok(action::confirm(Action::Replay, what, Html::default(), visit))
    }
}
