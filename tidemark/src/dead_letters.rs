//! `tidemark dead-letters`: what stages could not process, and putting it back.

use std::sync::Arc;

use anyhow::Context;
use log::{Log, NewRecord, Offset, Record, TopicPartition};
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::record::{DeadLetter, Delivery};
use schemas::{Headers, Partition, SchemaName, Topic, UnixMicros};

use crate::back_end::open_existing_log;
use crate::settings::Settings;
use crate::setup::Outcome;
use crate::tail::{Source, read_all};

const LETTERS: TopicPartition =
    TopicPartition { topic: Topic::DeadLetters, partition: Partition(0) };
/// As long as the log keeps a delivery. Whether a newer event of its order was sent is known for longer, not for ever.
const DELIVERY_AGE_MAX_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;

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

/// Appends the records of some dead letters, or of all, to where they were.
///
/// # Errors
/// The log cannot be read or written; run it again.
pub(crate) async fn replay(settings: Settings, offsets: Vec<i64>) -> anyhow::Result<Outcome> {
    telemetry::init_log(&settings.telemetry)?;
    let (clock, readiness): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), Readiness::default());
    let log = open_existing_log(&settings, &clock, &readiness).await?;
    replay_on(log, &offsets, clock.now()).await
}

async fn replay_on(log: Arc<dyn Log>, offsets: &[i64], now: UnixMicros) -> anyhow::Result<Outcome> {
    let reader = log.clone();
    let reading = move || read(|of, from, max| reader.read(of, from, max));
    let letters = tokio::task::spawn_blocking(reading).await??;
    let wanted = |offset: Offset| offsets.is_empty() || offsets.contains(&offset.0);
    let (mut lines, mut is_success) = (Vec::new(), true);
    for (offset, letter) in letters.into_iter().filter(|(offset, _)| wanted(*offset)) {
        let from = format!("{offset} {}/{}@{}", letter.topic, letter.partition, letter.offset);
        match put_back(letter, now) {
            Ok(record) => {
                log.produce(vec![record]).await.with_context(|| from.clone())?;
                lines.push(format!("{from}: put back"));
            }
            Err(reason) => {
                is_success = false;
                lines.push(format!("{from}: not put back: {reason}"));
            }
        }
    }
    Ok(Outcome { is_success, ..Outcome::success(lines, "there are no such dead letters") })
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
    let is_input = matches!(
        topic,
        Topic::TransfersRaw
            | Topic::OrdersCommands
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
    schemas::check(topic.spec().schema, &letter.value).map_err(|error| error.to_string())?;
    if topic.spec().schema == SchemaName::Delivery {
        let delivery: Delivery =
            schemas::decode(&letter.value).map_err(|error| error.to_string())?;
        if now.0.saturating_sub(delivery.emitted_at.0) > DELIVERY_AGE_MAX_MICROS {
            return Err("the event is more than 7 days old: resend it with the Admin API, which \
                        sends the present status"
                .into());
        }
    }
    let partition = Partition(letter.partition.cast_unsigned());
    let to = TopicPartition { topic, partition };
    Ok(NewRecord { to, key: letter.key, value: Some(letter.value), headers: Headers::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::embedded::EmbeddedLog;
    use schemas::Layout;
    use schemas::record::example;

    const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);

    #[test]
    fn an_old_webhook_is_not_put_back_for_a_newer_one_may_have_been_sent() {
        let of_age = |micros: i64| {
            let emitted_at = UnixMicros(NOW.0 - micros);
            let delivery = Delivery { emitted_at, ..example::delivery() };
            letter(Topic::WebhooksDispatch, schemas::encode(&delivery).unwrap())
        };
        assert!(put_back(of_age(DELIVERY_AGE_MAX_MICROS), NOW).is_ok());
        let refused = put_back(of_age(DELIVERY_AGE_MAX_MICROS + 1), NOW).unwrap_err();
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
        let command = schemas::encode(&example::order_command()).unwrap();
        let order = schemas::encode(&example::order()).unwrap();
        let mut newer = command.clone();
        newer[1] ^= 1;
        for letter in [
            letter(Topic::OrdersCommands, command.clone()),
            letter(Topic::OrdersCommands, newer),
            letter(Topic::OrdersCommands, vec![1]),
            letter(Topic::OrdersCommands, order.clone()),
            letter(Topic::Orders, order),
        ] {
            let record = NewRecord::encode(Topic::DeadLetters, Partition(0), "x", &letter).unwrap();
            log.produce(vec![record]).await.unwrap();
        }
        let Outcome { lines, is_success } = replay_on(log.clone(), &[], NOW).await.unwrap();
        let back: Vec<_> = lines.iter().map(|line| line.ends_with(": put back")).collect();
        assert_eq!(
            (back, is_success),
            (vec![true, false, false, false, false], false),
            "{lines:?}"
        );
        let of = TopicPartition { topic: Topic::OrdersCommands, partition: Partition(0) };
        let read = log.read(of, Offset(0), 10).unwrap();
        let values: Vec<_> = read.iter().map(|r| (r.key.clone(), r.value.clone())).collect();
        assert_eq!(values, [(b"key".to_vec(), Some(command))]);
        let one = replay_on(log.clone(), &[0], NOW).await.unwrap();
        assert_eq!((one.lines, one.is_success), (vec![lines[0].clone()], true));
        let none = replay_on(log, &[9], NOW).await.unwrap();
        assert_eq!(none.lines, ["there are no such dead letters"]);
    }
}
