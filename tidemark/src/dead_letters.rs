//! `tidemark dead-letters`: what stages could not process, and putting it back.

use std::sync::Arc;

use anyhow::Context;
use log::{Log, NewRecord, Offset, Record, TopicPartition};
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::record::{DeadLetter, Delivery, DepositCommand, OrderCommand};
use schemas::{Headers, Partition, SchemaName, Topic, UnixMicros};

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
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The first number of their lines in `dead-letters list`.
    #[arg(value_name = "NUMBER")]
    numbers: Vec<i64>,
    /// All that the log still has, also those that were put back before.
    #[arg(long)]
    all: bool,
}

/// Appends the records of some dead letters, or of all, to where they were, and prints each. Success is that all were.
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
    Which { numbers, all }: &Which,
    now: UnixMicros,
    mut done: impl FnMut(&str),
) -> anyhow::Result<Progress> {
    let reader = log.clone();
    let reading = move || read(|of, from, max| reader.read(of, from, max));
    let letters = tokio::task::spawn_blocking(reading).await??;
    let mut progress = Progress { back: 0, is_success: true };
    for number in numbers {
        if !letters.iter().any(|(offset, _)| offset.0 == *number) {
            progress.is_success = false;
            done(&format!("{number}: there is no such dead letter"));
        }
    }
    let wanted = |offset: Offset| *all || numbers.contains(&offset.0);
    for (offset, letter) in letters.into_iter().filter(|(offset, _)| wanted(*offset)) {
        let from = format!("{offset} {}/{}@{}", letter.topic, letter.partition, letter.offset);
        match put_back(letter, now) {
            Ok(record) => {
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

/// The record of a letter, to be appended to where it was: to a topic whose readers take every record twice
/// without harm.
///
/// # Errors
/// Why it may not be.
fn put_back(letter: DeadLetter, now: UnixMicros) -> Result<NewRecord, String> {
    let topic = Topic::named(&letter.topic).ok_or("this version has no such topic")?;
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
    let (schema, value) = (topic.spec().schema, &letter.value);
    let is_old = |at: UnixMicros| now.0.saturating_sub(at.0) > AGE_MAX_MICROS;
    if schema == SchemaName::Delivery {
        if is_old(decode::<Delivery>(value)?.emitted_at) {
            return Err("the event is more than 7 days old: resend it with the Admin API, which \
                        sends the present status"
                .into());
        }
    } else {
        let issued_at = if schema == SchemaName::OrderCommand {
            decode::<OrderCommand>(value)?.issued_at
        } else {
            decode::<DepositCommand>(value)?.issued_at
        };
        if is_old(issued_at) {
            return Err(
                "the command is more than 7 days old: what it asks about may have ended and \
                        been forgotten, and would begin once more; ask for it anew, by the API"
                    .into(),
            );
        }
    }
    let partition = Partition(letter.partition.cast_unsigned());
    let to = TopicPartition { topic, partition };
    Ok(NewRecord { to, key: letter.key, value: Some(letter.value), headers: Headers::default() })
}

fn decode<R: schemas::record::Record>(value: &[u8]) -> Result<R, String> {
    schemas::decode(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::embedded::EmbeddedLog;
    use schemas::Layout;
    use schemas::record::example;

    const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);

    #[test]
    fn old_webhook_is_not_put_back() {
        let of_age = |micros: i64| {
            let emitted_at = UnixMicros(NOW.0 - micros);
            let delivery = Delivery { emitted_at, ..example::delivery() };
            letter(Topic::WebhooksDispatch, schemas::encode(&delivery).unwrap())
        };
        assert!(put_back(of_age(AGE_MAX_MICROS), NOW).is_ok());
        let refused = put_back(of_age(AGE_MAX_MICROS + 1), NOW).unwrap_err();
        assert!(refused.contains("Admin API"), "{refused}");
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

    #[tokio::test]
    async fn what_can_be_read_by_now_goes_back_to_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let log = EmbeddedLog::open(dir.path(), layout, Arc::new(SystemClock)).unwrap();
        let log: Arc<dyn Log> = Arc::new(log);
        let issued_at = UnixMicros(NOW.0 - AGE_MAX_MICROS);
        let command = OrderCommand { issued_at, ..example::order_command() };
        let old = OrderCommand { issued_at: UnixMicros(issued_at.0 - 1), ..command.clone() };
        let [command, old] = [command, old].map(|command| schemas::encode(&command).unwrap());
        let order = schemas::encode(&example::order()).unwrap();
        let mut newer = command.clone();
        newer[1] ^= 1;
        for letter in [
            letter(Topic::OrdersCommands, command.clone()),
            letter(Topic::OrdersCommands, newer),
            letter(Topic::OrdersCommands, old),
            letter(Topic::OrdersCommands, vec![1]),
            letter(Topic::OrdersCommands, order.clone()),
            letter(Topic::Orders, order),
            letter(Topic::TransfersRaw, schemas::encode(&example::chain_record()).unwrap()),
        ] {
            let record = NewRecord::encode(Topic::DeadLetters, Partition(0), "x", &letter).unwrap();
            log.produce(vec![record]).await.unwrap();
        }
        let replay = async |numbers: &[i64], all| {
            let (which, mut lines) = (Which { numbers: numbers.to_vec(), all }, Vec::new());
            let done = |line: &str| lines.push(line.to_owned());
            let Progress { back, is_success } =
                replay_on(log.clone(), &which, NOW, done).await.unwrap();
            (lines, back, is_success)
        };
        let (lines, count, is_success) = replay(&[], true).await;
        let back: Vec<_> = lines.iter().map(|line| line.ends_with(": put back")).collect();
        assert_eq!(
            (back, count, is_success),
            (vec![true, false, false, false, false, false, false], 1, false),
            "{lines:?}"
        );
        let of = TopicPartition { topic: Topic::OrdersCommands, partition: Partition(0) };
        let read = log.read(of, Offset(0), 10).unwrap();
        let values: Vec<_> = read.iter().map(|r| (r.key.clone(), r.value.clone())).collect();
        assert_eq!(values, [(b"key".to_vec(), Some(command))]);
        assert_eq!(replay(&[0], false).await, (vec![lines[0].clone()], 1, true));
        let none = "9: there is no such dead letter".to_owned();
        assert_eq!(replay(&[9, 0], false).await, (vec![none, lines[0].clone()], 1, false));
        assert!(lines[6].contains("tidemark rescan"), "{}", lines[6]);
    }
}
