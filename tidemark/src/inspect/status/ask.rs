//! Reads the log and the tables: joins no group and writes nothing. Its calls block.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use api::inspect::reader::Reader;
use api::inspect::survey;
use api::redrive::Filter;
use api::survey::{Chain, Group, Subject};
use log::{Committed, Error, GroupMember, Offset, Record, TopicPartition};
use schemas::record::Delivery;
use schemas::{Blockchain, SchemaName, Topic, UnixMicros};

use crate::chain::{self, stop};
use crate::settings::Settings;
use crate::tail::Source;

/// A stage, its group, and the topics whose lag counts.
type Row = (&'static str, &'static str, &'static [Topic]);
/// All groups. For the deliverer only the topic of first attempts counts: a delayed webhook is not lag.
const GROUPS: [Row; 7] = [
    ("ingest", "ingest", &[]),
    ("processor", "processor.matching", &[Topic::TransfersRaw, Topic::DepositsCommands]),
    ("processor", "processor.orders", &[Topic::OrdersCommands]),
    ("projector", projector::GROUP, &projector::TOPICS),
    ("webhooks", "webhooks.dispatcher", &[Topic::Orders, Topic::TransfersUnknown]),
    ("webhooks", DELIVERER, &[Topic::WebhooksDispatch]),
    // Without `alerts`: an unreachable sink delays the group's position there.
    ("webhooks", "webhooks.alerts", &[Topic::DeadLetters]),
];
const DELIVERER: &str = "webhooks.deliverer";
/// Maximum number of waiting webhooks that are read, per partition.
const WAITING_MAX: usize = 10_000;
/// Number of partitions that are read concurrently: on Kafka a read to the end waits for the broker.
const READERS: usize = 8;

/// A partition, and a group's position in it.
type Place = (TopicPartition, Option<Committed>);

/// The chains that are configured or were followed. Records that cannot be read are added to `unreadable`.
pub(super) fn chains(
    source: &Source,
    settings: &Settings,
    unreadable: &mut Vec<String>,
) -> anyhow::Result<Vec<Chain>> {
    let known: BTreeMap<Blockchain, chain::Status> = chain::all(source, unreadable)?
        .into_iter()
        .map(|status| (status.blockchain, status))
        .collect();
    let endpoints: BTreeMap<Blockchain, usize> =
        settings.ingest.chains.iter().map(|of| (of.blockchain, of.endpoints.len())).collect();
    let names: BTreeSet<Blockchain> = known.keys().chain(endpoints.keys()).copied().collect();
    let one = |blockchain: Blockchain| {
        let status = known.get(&blockchain);
        let scanned = status.and_then(|status| status.scanned.as_ref());
        let halt = status.and_then(|status| status.halt.as_ref());
        let Some(lane) = settings.log.layout.lanes_of(blockchain).next() else {
            anyhow::bail!("{blockchain} has no lane")
        };
        let head = survey::last_head(source, lane)?;
        Ok(Chain {
            blockchain,
            endpoints: endpoints.get(&blockchain).copied().unwrap_or_default(),
            head: scanned.map(|scanned| scanned.head),
            confirmed: scanned.map_or(-1, |scanned| scanned.confirmed),
            finalized: scanned.map_or(-1, |scanned| scanned.finalized),
            halt: halt.map(|alert| (alert.message.clone(), alert.raised_at)),
            confirmed_at: head.as_ref().and_then(survey::confirmed_at),
            has_gap: head.as_ref().is_some_and(|head| head.has_gap),
            held: head.map(|head| head.held).unwrap_or_default(),
        })
    };
    names.into_iter().map(one).collect()
}

/// The lag and the members of each group. The embedded log lists no members, so `ingest`, without a lag, is left out.
pub(crate) fn groups(source: &Source, settings: &Settings) -> anyhow::Result<Vec<Group>> {
    let layout = &settings.log.layout;
    let mut places = Vec::new();
    for (_, name, topics) in GROUPS {
        let of = topics.iter().flat_map(|topic| {
            let partitions = topic.all_partitions(layout);
            partitions.map(|partition| TopicPartition { topic: *topic, partition })
        });
        let committed = source.committed(name, &of.collect::<Vec<_>>())?;
        places.extend(committed.into_iter().map(|place| (name, place)));
    }
    let behind = side_by_side(places, |(name, place)| Ok((name, behind(source, place)?)))?;
    let mut groups = Vec::new();
    for (stage, name, topics) in GROUPS {
        let of_group = behind.iter().filter(|(of, _)| *of == name);
        let (mut lag, mut oldest) = (0_i64, None);
        for (count, at) in of_group.filter_map(|(_, behind)| *behind) {
            lag = lag.saturating_add(count);
            oldest = Some(oldest.map_or(at, |oldest: UnixMicros| oldest.min(at)));
        }
        let members = source.members(name)?.map(|members| {
            let one = |member: GroupMember| (member.name, member.partitions.len());
            members.into_iter().map(one).collect()
        });
        if topics.is_empty() && members.is_none() {
            continue;
        }
        groups.push(Group { stage, name, lag, oldest, members });
    }
    Ok(groups)
}

/// The lag of a group in a partition, and the time of the first record that it has not read.
fn behind(source: &Source, place: Place) -> Result<Option<(i64, UnixMicros)>, Error> {
    // The end offset alone does not prove a lag: on Kafka the markers of transactions have offsets, too.
    let (end, unread) = unread(source, place, 1)?;
    Ok(unread.first().map(|first| (end.0.saturating_sub(first.offset.0), first.appended_at)))
}

/// The end of a partition, and the first records there, `max` at most, that a group has not read.
fn unread(
    source: &Source,
    (of, committed): Place,
    max: usize,
) -> Result<(Offset, Vec<Arc<Record>>), Error> {
    let bounds = source.bounds(of)?;
    let next = committed.map_or(bounds.start, |at| at.offset).max(bounds.start);
    Ok((bounds.end, source.read_before(of, next..bounds.end, max)?))
}

/// Reads from several places at the same time; the results have no order.
fn side_by_side<T: Send, R: Send>(
    places: Vec<T>,
    read: impl Fn(T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let queue = Mutex::new(places.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || std::iter::from_fn(&next).map(&read).collect::<Result<Vec<_>, Error>>();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for reader in readers {
            let part = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(part?);
        }
        Ok(all)
    })
}

/// The orders and transfers whose webhooks were given up and not delivered since.
pub(super) fn dead(reader: &mut Reader<Source>, now: UnixMicros) -> anyhow::Result<Vec<Subject>> {
    let dead = survey::dead(reader, &Filter::default(), now)?;
    Ok(dead.subjects.into_iter().map(|(subject, _)| subject).collect())
}

/// The number of webhooks that wait, [`WAITING_MAX`] per partition at most, and the time of the oldest one's event.
pub(super) fn waiting(
    source: &Source,
    settings: &Settings,
) -> anyhow::Result<(usize, Option<UnixMicros>)> {
    let topics = Topic::read_by(schemas::Stage::Webhooks);
    let topics = topics.filter(|topic| topic.spec().schema == SchemaName::Delivery);
    let of = topics.flat_map(|topic| {
        let partitions = topic.all_partitions(&settings.log.layout);
        partitions.map(move |partition| TopicPartition { topic, partition })
    });
    let places = source.committed(DELIVERER, &of.collect::<Vec<_>>())?;
    let parts = side_by_side(places, |place| {
        let (_, page) = unread(source, place, WAITING_MAX)?;
        let values = page.iter().filter_map(|record| record.value.as_deref());
        let deliveries = values.filter_map(|value| schemas::decode::<Delivery>(value).ok());
        Ok((page.len(), deliveries.map(|delivery| delivery.emitted_at).min()))
    })?;
    let count = parts.iter().fold(0_usize, |count, (more, _)| count.saturating_add(*more));
    Ok((count, parts.iter().filter_map(|(_, oldest)| *oldest).min()))
}

/// The stops in force, in words.
pub(super) fn stops(source: &Source) -> anyhow::Result<Vec<String>> {
    // Records that cannot be read are reported by `chains`, which reads the same topic.
    Ok(stop::lines(stop::in_force(source, &mut Vec::new())?))
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;

    /// Far longer than a thread takes to start.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn partitions_are_read_side_by_side() {
        let (reading, changed) = (Mutex::new(0), Condvar::new());
        let read = |place: usize| {
            let mut count = reading.lock().unwrap();
            *count += 1;
            changed.notify_all();
            let waited = changed.wait_timeout_while(count, PATIENCE, |count| *count < READERS);
            assert!(!waited.unwrap().1.timed_out(), "{place} is read alone");
            Ok(place)
        };
        let mut all = side_by_side((0..3 * READERS).collect(), read).unwrap();
        all.sort_unstable();
        assert_eq!(all, (0..3 * READERS).collect::<Vec<_>>());
        let failing = |place: usize| match place {
            7 => Err(Error::Transient("away".into())),
            _ => Ok(place),
        };
        assert!(side_by_side((0..20).collect(), failing).is_err());
    }
}
