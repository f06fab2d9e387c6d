//! `tidemark dead-letters`: what stages could not process, and putting it back.

use std::sync::Arc;

use anyhow::Context;
use log::{Log, NewRecord, Offset, Record, TopicPartition};
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::record::{
    AuditEntry, COMMAND_LINE, DeadLetter, Delivery, DepositCommand, DepositCommandBody,
    OrderCommand, OrderCommandBody,
};
use schemas::{AuditAction, Headers, Partition, SchemaName, Topic, UnixMicros};

use crate::back_end::open_existing_log;
use crate::listen::print;
use crate::settings::Settings;
use crate::setup::Outcome;
use crate::tail::{Source, read_all};

const LETTERS: TopicPartition =
    TopicPartition { topic: Topic::DeadLetters, partition: Partition(0) };
/// What is older is not put back. Of a delivery: whether a newer event of its order was sent is not known for ever. Of a
/// command: what it asks about may have ended and been forgotten, and would begin once more.
const AGE_MAX_MICROS: i64 = processor::machine::orders::KEPT_SECONDS * 1_000_000;
const OLD_EVENT: &str = "the event is more than 7 days old: resend it with the Admin API, which sends the present status";
const OLD_COMMAND: &str = "the command is more than 7 days old: what it asks about may have ended and been forgotten, and \
                           would begin once more; ask for it anew, by the API";
const RESEND: &str = "an event is not sent on a letter's word: resend it with the Admin API";
const ASK_ANEW: &str = "what an operator asks for is not believed on a letter's word: ask for it anew, by the Admin API";
const PROCESSORS: &str =
    "what only the processor writes is not believed on a letter's word: it asks again by itself";

/// All dead letters that the log still has, one a line. Also while processes run.
pub(crate) fn list(settings: &Settings) -> anyhow::Result<Outcome> {
    let source = Source::open(settings)?;
    let letters = read(|of, from, max| source.read(of, from, max))?;
    let line = |(offset, letter): &(Offset, DeadLetter)| {
        let DeadLetter { topic, partition, offset: at, group, reason, failed_at, .. } = letter;
        let time = failed_at.to_rfc3339();
        format!("{offset} {time} {topic}/{partition}@{at} {group}: {reason}")
    };
    Ok(Outcome::success(letters.iter().map(line).collect(), "there are no dead letters"))
}

/// Which dead letters are put back.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The first number of their lines in `dead-letters list`.
    #[arg(value_name = "NUMBER")]
    numbers: Vec<i64>,
    /// All that the log still has, also those that were put back before.
    #[arg(long)]
    all: bool,
    /// One whose record has expired where the letter says it was, on the letter's word alone.
    #[arg(long, value_name = "NUMBER")]
    without_original: Option<i64>,
}

/// Appends the records of some dead letters, or of all, to where they were, and prints each with what it says. Success is
/// that all were.
///
/// # Errors
/// The log cannot be read or written; what was printed before was put back.
pub(crate) async fn replay(settings: Settings, which: Which) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let (clock, readiness): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), Readiness::default());
    let log = open_existing_log(&settings, &clock, &readiness).await?;
    let Progress { back, is_success } = replay_on(log, &which, clock.now(), print).await?;
    Ok(Outcome { lines: vec![format!("{back} were put back")], is_success })
}

struct Progress {
    back: usize,
    is_success: bool,
}

async fn replay_on(
    log: Arc<dyn Log>,
    which: &Which,
    now: UnixMicros,
    mut done: impl FnMut(&str),
) -> anyhow::Result<Progress> {
    let reader = log.clone();
    let reading = move || read(|of, from, max| reader.read(of, from, max));
    let letters = tokio::task::spawn_blocking(reading).await??;
    let mut progress = Progress { back: 0, is_success: true };
    let numbers: Vec<_> = which.numbers.iter().copied().chain(which.without_original).collect();
    for number in &numbers {
        if !letters.iter().any(|(offset, _)| offset.0 == *number) {
            progress.is_success = false;
            done(&format!("{number}: there is no such dead letter"));
        }
    }
    let wanted = |offset: Offset| which.all || numbers.contains(&offset.0);
    for (offset, letter) in letters.into_iter().filter(|(offset, _)| wanted(*offset)) {
        let from = format!("{offset} {}/{}@{}", letter.topic, letter.partition, letter.offset);
        let draft = match Draft::of(letter, now) {
            Ok(draft) => {
                done(&format!("{from}: {}", draft.text));
                let reader = log.clone();
                let may_miss = which.without_original == Some(offset.0);
                tokio::task::spawn_blocking(move || draft.compared(&*reader, may_miss)).await??
            }
            refused => refused,
        };
        match draft {
            Ok(Draft { record, audit, .. }) => {
                // Durable before the command: nothing is done that is not there.
                log.produce(vec![audit]).await.with_context(|| from.clone())?;
                log.produce(vec![record]).await.with_context(|| from.clone())?;
                progress.back = progress.back.saturating_add(1);
                done(&format!("{from}: put back"));
            }
            Err(reason) => {
                progress.is_success = false;
                done(&format!("{from}: not put back: {reason}"));
            }
        }
    }
    Ok(progress)
}

fn read(
    page: impl Fn(TopicPartition, Offset, usize) -> Result<Vec<Arc<Record>>, log::Error>,
) -> anyhow::Result<Vec<(Offset, DeadLetter)>> {
    let mut letters = Vec::new();
    read_all(LETTERS, Offset(0), page, |record, letter| letters.push((record.offset, letter)))?;
    Ok(letters)
}

/// What a letter says. Every stage may write letters, so that alone is no reason to believe it.
struct Draft {
    record: NewRecord,
    /// Where the record was.
    offset: Offset,
    /// The record, decoded.
    text: String,
    audit: NewRecord,
    /// How to have the same without the letter, where its word is not enough: it would move money, or be signed.
    instead: Option<&'static str>,
}

impl Draft {
    /// The record of a letter, to be appended to where it was: to a topic whose readers take every record twice without
    /// harm.
    ///
    /// # Errors
    /// Why it may not be.
    fn of(letter: DeadLetter, now: UnixMicros) -> Result<Self, String> {
        let topic = input(&letter.topic)?;
        let (schema, value) = (topic.spec().schema, &letter.value);
        let is_old = |at: UnixMicros| now.0.saturating_sub(at.0) > AGE_MAX_MICROS;
        let entry = audit_entry(now);
        let (at, entry, instead, too_old) = if schema == SchemaName::Delivery {
            let Delivery { order_id, transfer_id, emitted_at, .. } = decode(value)?;
            let entry = AuditEntry { order_id, transfer_id, ..entry };
            (emitted_at, entry, Some(RESEND), OLD_EVENT)
        } else if schema == SchemaName::OrderCommand {
            let command: OrderCommand = decode(value)?;
            let OrderCommand { order_id, command_id, issued_at, .. } = command;
            let entry = AuditEntry { order_id: Some(order_id), command_id, ..entry };
            (issued_at, entry, of_order(&command.body), OLD_COMMAND)
        } else {
            let command: DepositCommand = decode(value)?;
            let entry = AuditEntry { order_id: Some(command.order_id), ..entry };
            (command.issued_at, entry, Some(of_deposit(&command.body)), OLD_COMMAND)
        };
        if is_old(at) {
            return Err(too_old.into());
        }
        let say = |error: schemas::CodecError| error.to_string();
        let text = schemas::decode_json(schema, value).map_err(say)?.to_string();
        let audit =
            NewRecord::encode(Topic::Audit, Partition(0), COMMAND_LINE, &entry).map_err(say)?;
        let to = TopicPartition { topic, partition: Partition(letter.partition.cast_unsigned()) };
        let (key, value, headers) = (letter.key, Some(letter.value), Headers::default());
        let record = NewRecord { to, key, value, headers };
        Ok(Self { record, offset: Offset(letter.offset), text, audit, instead })
    }

    /// The draft, if the log has the same record where the letter says it was, or may miss it. Blocks.
    ///
    /// # Errors
    /// The log cannot be read; or why the letter is not believed.
    fn compared(self, log: &dyn Log, may_miss: bool) -> anyhow::Result<Result<Self, String>> {
        let NewRecord { to, key, value, .. } = &self.record;
        if !to.topic.all_partitions(&log.layout()).any(|partition| partition == to.partition) {
            return Ok(Err("this installation has no such partition".into()));
        }
        let found = log.read(*to, self.offset, 1)?;
        let found = found.first().filter(|record| record.offset == self.offset);
        Ok(match (found, self.instead) {
            (Some(found), _) if found.key == *key && found.value == *value => Ok(self),
            (Some(_), _) => {
                Err("the record there is another one: who wrote the letter made it up, \
                                 or it is of another copy of the log"
                    .into())
            }
            (None, Some(instead)) => Err(format!("its record has expired there; {instead}")),
            (None, None) if may_miss => Ok(self),
            (None, None) => {
                Err("its record has expired there: read what the letter says, and use \
                                 --without-original for this one if you know that it was published"
                    .into())
            }
        })
    }
}

/// The topic of a letter that can be put back.
fn input(name: &str) -> Result<Topic, String> {
    let topic = Topic::named(name).ok_or("this version has no such topic")?;
    if topic == Topic::TransfersRaw {
        // Ingest reads it too, as its own position: an old record at its end is a chain that went back.
        return Err(
            "a chain's records are not put back: `tidemark rescan` publishes what is missing"
                .into(),
        );
    }
    let is_input = matches!(
        topic,
        Topic::OrdersCommands
            | Topic::DepositsCommands
            | Topic::WebhooksDispatch
            | Topic::WebhooksRetry(_)
            | Topic::WebhooksDefer(_)
    );
    if !is_input {
        return Err(
            "others read this topic too: `tidemark tables rebuild` makes the tables again".into()
        );
    }
    Ok(topic)
}

/// Why a letter alone is not believed about an order: none for what a shop or a customer may ask.
fn of_order(body: &OrderCommandBody) -> Option<&'static str> {
    use OrderCommandBody as Body;
    match body {
        Body::Create(_) | Body::ChoosePayment(_) | Body::Cancel => None,
        Body::MarkPaid(_) | Body::ResendWebhook(_) => Some(ASK_ANEW),
        Body::DepositOpened { .. }
        | Body::DepositRefused { .. }
        | Body::DepositClosed { .. }
        | Body::CandidateSeen { .. }
        | Body::CandidateGone { .. }
        | Body::Settle(_)
        | Body::Attach(..)
        | Body::AttachRefused(_)
        | Body::Tick => Some(PROCESSORS),
    }
}

fn of_deposit(body: &DepositCommandBody) -> &'static str {
    use DepositCommandBody as Body;
    match body {
        Body::Attach(_) | Body::Stop(_) | Body::Resume(_) => ASK_ANEW,
        Body::Open(_)
        | Body::Close { .. }
        | Body::Candidate { .. }
        | Body::Settled { .. }
        | Body::Refused { .. }
        | Body::Attached { .. }
        | Body::AttachRefused { .. } => PROCESSORS,
    }
}

fn audit_entry(now: UnixMicros) -> AuditEntry {
    AuditEntry {
        operator: COMMAND_LINE.into(),
        client: None,
        action: AuditAction::ReplayDeadLetter,
        order_id: None,
        transfer_id: None,
        command_id: None,
        subject: None,
        requested_at: now,
    }
}

fn decode<R: schemas::record::Record>(value: &[u8]) -> Result<R, String> {
    schemas::decode(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::embedded::EmbeddedLog;
    use schemas::record::example;
    use schemas::{Amount, DepositId, Layout};

    const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);

    const TO: TopicPartition =
        TopicPartition { topic: Topic::OrdersCommands, partition: Partition(0) };

    /// A log without a record, and its folder.
    fn log() -> (Arc<dyn Log>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let log = EmbeddedLog::open(dir.path(), layout, Arc::new(SystemClock)).unwrap();
        (Arc::new(log), dir)
    }

    fn letter(topic: Topic, value: Vec<u8>) -> DeadLetter {
        DeadLetter {
            topic: topic.name().to_owned(),
            partition: 0,
            offset: 7,
            group: "processor.orders".into(),
            reason: "not known to this version".into(),
            key: b"key".to_vec(),
            value,
            failed_at: NOW,
        }
    }

    /// Writes a record to where a letter says it was, and returns the letter.
    async fn original(log: &dyn Log, letter: DeadLetter) -> DeadLetter {
        let topic = Topic::named(&letter.topic).unwrap();
        let to = TopicPartition { topic, partition: Partition(0) };
        let offset = log.bounds(to).unwrap().end.0;
        let (key, value) = (letter.key.clone(), Some(letter.value.clone()));
        log.produce(vec![NewRecord { to, key, value, headers: Headers::default() }]).await.unwrap();
        DeadLetter { offset, ..letter }
    }

    async fn write(log: &dyn Log, letter: &DeadLetter) {
        let record = NewRecord::encode(Topic::DeadLetters, Partition(0), "x", letter).unwrap();
        log.produce(vec![record]).await.unwrap();
    }

    /// What is said at last about each letter, the number that were put back, and whether all were.
    async fn replayed(log: &Arc<dyn Log>, which: Which) -> (Vec<String>, usize, bool) {
        let mut lines = Vec::new();
        let done = |line: &str| lines.push(line.to_owned());
        let Progress { back, is_success } =
            replay_on(log.clone(), &which, NOW, done).await.unwrap();
        lines.retain(|line| !line.ends_with('}'));
        (lines, back, is_success)
    }

    fn all() -> Which {
        Which { all: true, ..Which::default() }
    }

    fn these(numbers: &[i64]) -> Which {
        Which { numbers: numbers.to_vec(), ..Which::default() }
    }

    fn of_order(body: OrderCommandBody) -> Vec<u8> {
        let (issued_at, order) = (NOW, example::order_command());
        schemas::encode(&OrderCommand { issued_at, body, ..order }).unwrap()
    }

    #[test]
    fn old_letters_are_not_put_back() {
        let refused = |topic, age: i64| {
            let at = UnixMicros(NOW.0 - age);
            let value = match topic {
                Topic::WebhooksDispatch => {
                    schemas::encode(&Delivery { emitted_at: at, ..example::delivery() })
                }
                Topic::DepositsCommands => {
                    schemas::encode(&DepositCommand { issued_at: at, ..example::deposit_command() })
                }
                _ => schemas::encode(&OrderCommand { issued_at: at, ..example::order_command() }),
            };
            Draft::of(letter(topic, value.unwrap()), NOW).err()
        };
        for (topic, text) in [
            (Topic::WebhooksDispatch, "resend it with the Admin API"),
            (Topic::OrdersCommands, "ask for it anew"),
            (Topic::DepositsCommands, "ask for it anew"),
        ] {
            assert_eq!(refused(topic, AGE_MAX_MICROS), None, "{topic}");
            let refused = refused(topic, AGE_MAX_MICROS + 1).unwrap();
            assert!(refused.contains(text), "{topic}: {refused}");
        }
    }

    #[tokio::test]
    async fn what_can_be_read_by_now_goes_back_to_where_it_was() {
        let (log, _dir) = log();
        let command = OrderCommand { issued_at: NOW, ..example::order_command() };
        let value = schemas::encode(&command).unwrap();
        let order = schemas::encode(&example::order()).unwrap();
        let mut newer = value.clone();
        newer[1] ^= 1;
        let good = original(&*log, letter(Topic::OrdersCommands, value.clone())).await;
        for letter in [
            good.clone(),
            letter(Topic::OrdersCommands, newer),
            letter(Topic::OrdersCommands, vec![1]),
            letter(Topic::OrdersCommands, order.clone()),
            letter(Topic::Orders, order),
            letter(Topic::TransfersRaw, schemas::encode(&example::chain_record()).unwrap()),
            DeadLetter { partition: 9, ..good.clone() },
            DeadLetter { partition: -1, ..good },
        ] {
            write(&*log, &letter).await;
        }
        let (lines, count, is_success) = replayed(&log, all()).await;
        let back: Vec<_> = lines.iter().map(|line| line.ends_with(": put back")).collect();
        let expected = [true, false, false, false, false, false, false, false];
        assert_eq!((&*back, count, is_success), (&expected[..], 1, false), "{lines:?}");
        let read = log.read(TO, Offset(1), 10).unwrap();
        let values: Vec<_> = read.iter().map(|r| (r.key.clone(), r.value.clone())).collect();
        assert_eq!(values, [(b"key".to_vec(), Some(value))]);
        assert_eq!(replayed(&log, these(&[0])).await, (vec![lines[0].clone()], 1, true));
        let none = "19: there is no such dead letter".to_owned();
        assert_eq!(replayed(&log, these(&[19, 0])).await, (vec![none, lines[0].clone()], 1, false));
        assert!(lines[5].contains("tidemark rescan"), "{}", lines[5]);
        let of = TopicPartition { topic: Topic::Audit, partition: Partition(0) };
        let audit = log.read(of, Offset(0), 10).unwrap();
        let audit: Vec<AuditEntry> = audit.iter().map(|record| record.read().unwrap()).collect();
        let (order_id, command_id) = (Some(command.order_id), command.command_id);
        let entry = AuditEntry { order_id, command_id, ..audit_entry(NOW) };
        assert_eq!(audit, [entry.clone(), entry.clone(), entry]);
    }

    /// Every stage may write letters; only the record itself shows that one of the command's writers wrote it.
    #[tokio::test]
    async fn a_made_up_letter_is_not_believed() {
        let (log, _dir) = log();
        let [cancel, paid] = [OrderCommandBody::Cancel, OrderCommandBody::MarkPaid(None)];
        let there = original(&*log, letter(Topic::OrdersCommands, of_order(cancel))).await;
        let forged = DeadLetter { value: of_order(paid), ..there.clone() };
        let other_key = DeadLetter { key: b"other".to_vec(), ..there };
        for letter in [&forged, &other_key] {
            write(&*log, letter).await;
        }
        for which in [all(), Which { without_original: Some(0), ..Which::default() }] {
            let (lines, count, is_success) = replayed(&log, which).await;
            assert_eq!((count, is_success), (0, false), "{lines:?}");
            assert!(lines.iter().all(|line| line.contains("is another one")), "{lines:?}");
        }
        assert_eq!(log.bounds(TO).unwrap().end, Offset(1));
        let mut lines = Vec::new();
        let done = |line: &str| lines.push(line.to_owned());
        replay_on(log, &these(&[0]), NOW, done).await.unwrap();
        assert!(lines[0].contains("\"kind\":\"mark_paid\""), "{lines:?}");
    }

    #[tokio::test]
    async fn what_moves_money_needs_its_record() {
        let (log, _dir) = log();
        let asked = |topic, value| DeadLetter { offset: 70, ..letter(topic, value) };
        let delivery = Delivery { emitted_at: NOW, ..example::delivery() };
        let deposit = DepositCommand { issued_at: NOW, ..example::deposit_command() };
        let (deposit_id, value) = (DepositId(1), Amount::ZERO);
        let opened = OrderCommandBody::DepositOpened { slot: 0, deposit_id, value };
        for letter in [
            asked(Topic::OrdersCommands, of_order(OrderCommandBody::Cancel)),
            asked(Topic::OrdersCommands, of_order(OrderCommandBody::MarkPaid(None))),
            asked(Topic::OrdersCommands, of_order(OrderCommandBody::Tick)),
            asked(Topic::OrdersCommands, of_order(opened)),
            asked(Topic::DepositsCommands, schemas::encode(&deposit).unwrap()),
            asked(Topic::WebhooksDispatch, schemas::encode(&delivery).unwrap()),
        ] {
            write(&*log, &letter).await;
        }
        let (lines, count, _) = replayed(&log, all()).await;
        assert_eq!(count, 0, "{lines:?}");
        assert!(lines[0].contains("--without-original"), "{}", lines[0]);
        for number in 0..6 {
            let which = Which { without_original: Some(number), ..Which::default() };
            let (lines, count, is_success) = replayed(&log, which).await;
            assert_eq!((count, is_success), (usize::from(number == 0), number == 0), "{lines:?}");
        }
        let back = log.read(TO, Offset(0), 10).unwrap();
        assert_eq!(back.len(), 1);
        assert_eq!(back[0].value, Some(of_order(OrderCommandBody::Cancel)));
    }
}
