//! `tidemark dead-letters`: inputs that stages rejected, and their replay.

pub(crate) mod skip;

use std::sync::Arc;

use anyhow::Context;
use api::audit::Asker;
use api::letters::{self, Draft, LETTERS};
use log::{Log, Offset, Record, TopicPartition};
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::UnixMicros;
use schemas::record::DeadLetter;

use crate::back_end::open_existing_log;
use crate::output::print;
use crate::settings::Settings;
use crate::setup::Outcome;
use crate::tail::{Source, read_readable};

/// All dead letters that the log still has, one a line. Also while processes run. Fails if one cannot be read.
pub(crate) fn list(settings: &Settings) -> anyhow::Result<Outcome> {
    let source = Source::open(settings)?;
    let (letters, unreadable) = read(|of, from, max| source.read(of, from, max))?;
    let line = |(offset, letter): &(Offset, DeadLetter)| {
        let DeadLetter { group, reason, failed_at, .. } = letter;
        let (time, place) = (failed_at.to_rfc3339(), letters::place(letter));
        format!("{offset} {time} {place} {group}: {reason}")
    };
    let lines = letters.iter().map(line).collect();
    Ok(Outcome::readable(lines, "there are no dead letters", &unreadable))
}

/// The dead letters to put back.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Numbers from the first column of `dead-letters list`.
    #[arg(value_name = "NUMBER")]
    numbers: Vec<i64>,
    /// All letters that the log still has, also those that were put back before.
    #[arg(long)]
    all: bool,
    /// Put back this letter although its original record has expired: its content is trusted unchecked.
    #[arg(long, value_name = "NUMBER")]
    without_original: Option<i64>,
}

/// Appends the records of some dead letters, or of all, to their partitions, and prints each. Succeeds if all were
/// appended.
///
/// # Errors
/// The log cannot be read or written. Letters that were printed as put back before the error remain so.
pub(crate) async fn replay(settings: Settings, which: Which) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let log = open_existing_log(&settings, &Readiness::default()).await?;
    let Progress { back, is_success } = replay_on(log, &which, SystemClock.now(), print).await?;
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
    let (letters, unreadable) = tokio::task::spawn_blocking(reading).await??;
    let mut progress = Progress { back: 0, is_success: true };
    let numbers: Vec<_> = which.numbers.iter().copied().chain(which.without_original).collect();
    for number in &numbers {
        if !letters.iter().any(|(offset, _)| offset.0 == *number) {
            progress.is_success = false;
            done(&format!("{number}: there is no such dead letter"));
        }
    }
    let may_be_wanted = which.all || !progress.is_success;
    for line in unreadable.iter().filter(|_| may_be_wanted) {
        progress.is_success = false;
        done(line);
    }
    let wanted = |offset: Offset| which.all || numbers.contains(&offset.0);
    for (offset, letter) in letters.into_iter().filter(|(offset, _)| wanted(*offset)) {
        let from = format!("{offset} {}", letters::place(&letter));
        let draft = match Draft::of(letter, &Asker::command_line(), now) {
            Ok(draft) => {
                done(&format!("{from}: {}", draft.content()));
                let reader = log.clone();
                let may_miss = which.without_original == Some(offset.0);
                tokio::task::spawn_blocking(move || draft.compared(&*reader, may_miss)).await??
            }
            refused => refused,
        };
        match draft {
            Ok(draft) => {
                // The audit entry is durable before the letter's record, so that none takes effect without one.
                for record in draft.records() {
                    log.produce(vec![record]).await.with_context(|| from.clone())?;
                }
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

/// The letters, and positions and errors of those that cannot be read.
type Read = (Vec<(Offset, DeadLetter)>, Vec<String>);

fn read(
    page: impl Fn(TopicPartition, Offset, usize) -> Result<Vec<Arc<Record>>, log::Error>,
) -> Result<Read, log::Error> {
    let (mut letters, mut unreadable) = (Vec::new(), Vec::new());
    let take = |record: Arc<Record>, letter| letters.push((record.offset, letter));
    read_readable(LETTERS, Offset(0), page, take, &mut unreadable)?;
    Ok((letters, unreadable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::NewRecord;
    use log::embedded::EmbeddedLog;
    use schemas::record::{
        AuditEntry, Delivery, DepositCommand, OrderCommand, OrderCommandBody, example,
    };
    use schemas::{Amount, AuditAction, DepositId, Headers, Layout, Partition, Topic};

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

    /// Writes the original record of a letter, and returns the letter.
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

    /// Returns the last line about each letter, the number put back, and `true` if all were.
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
        let subject = Some("orders.commands/0@0".to_owned());
        let by = Asker::command_line().entry(AuditAction::ReplayDeadLetter, NOW);
        let entry = AuditEntry { order_id, command_id, subject, ..by };
        assert_eq!(audit, [entry.clone(), entry.clone(), entry]);
    }

    #[tokio::test]
    async fn an_unreadable_letter_hides_no_other() {
        let (log, _dir) = log();
        let (key, value, headers) = (Vec::new(), Some(vec![9]), Headers::default());
        log.produce(vec![NewRecord { to: LETTERS, key, value, headers }]).await.unwrap();
        let cancel = letter(Topic::OrdersCommands, of_order(OrderCommandBody::Cancel));
        write(&*log, &original(&*log, cancel).await).await;
        let place = "dead-letters/0@0: ";
        let (lines, count, is_success) = replayed(&log, these(&[1])).await;
        assert_eq!((lines.len(), count, is_success), (1, 1, true), "{lines:?}");
        let (lines, count, is_success) = replayed(&log, all()).await;
        assert_eq!((lines.len(), count, is_success), (2, 1, false), "{lines:?}");
        assert!(lines[0].starts_with(place), "{lines:?}");
        let (lines, count, _) = replayed(&log, these(&[0])).await;
        assert_eq!((lines.len(), count), (2, 0), "{lines:?}");
        assert!(lines[1].starts_with(place), "{lines:?}");
    }

    /// Every stage may write letters, so a letter alone proves nothing. The original record proves that the content was
    /// written by a writer of its topic.
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
