//! Reads the log and the tables: joins no group and writes nothing. Its calls block.

use std::collections::{BTreeMap, BTreeSet};

use api::inspect::reader::Reader;
use api::inspect::survey;
use api::redrive::Filter;
use api::survey::{Chain, Group, Subject, stop_words};
use log::{GroupMember, TopicPartition};
use schemas::record::Delivery;
use schemas::{Blockchain, SchemaName, Topic, UnixMicros};

use crate::chain::{self, stop};
use crate::settings::Settings;
use crate::tail::Source;

/// A stage, its group, and the topics that the group has to have read.
type Row = (&'static str, &'static str, &'static [Topic]);
/// All groups. The deliverer has only topics due at once: a delayed webhook is no lag.
const GROUPS: [Row; 7] = [
    ("ingest", "ingest", &[]),
    ("processor", "processor.matching", &[Topic::TransfersRaw, Topic::DepositsCommands]),
    ("processor", "processor.orders", &[Topic::OrdersCommands]),
    ("projector", projector::GROUP, &projector::TOPICS),
    ("webhooks", "webhooks.dispatcher", &[Topic::Orders, Topic::TransfersUnknown]),
    ("webhooks", DELIVERER, &[Topic::WebhooksDispatch]),
    // An unreachable sink delays its position.
    ("webhooks", "webhooks.alerts", &[Topic::DeadLetters]),
];
const DELIVERER: &str = "webhooks.deliverer";
/// Maximum number of waiting webhooks that are read, per partition.
const WAITING_MAX: usize = 10_000;

/// The chains that are configured or were followed. Records that cannot be read are added to `unreadable`.
///
/// # Errors
/// The log cannot be read.
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

/// The positions and members of all groups.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn groups(source: &Source, settings: &Settings) -> anyhow::Result<Vec<Group>> {
    let mut groups = Vec::new();
    for (stage, name, topics) in GROUPS {
        let layout = &settings.log.layout;
        let of = topics.iter().flat_map(|topic| {
            let partitions = topic.all_partitions(layout);
            partitions.map(|partition| TopicPartition { topic: *topic, partition })
        });
        let (mut lag, mut oldest) = (0_i64, None);
        for (of, committed) in source.committed(name, &of.collect::<Vec<_>>())? {
            let bounds = source.bounds(of)?;
            let next = committed.map_or(bounds.start, |at| at.offset).max(bounds.start);
            // The end alone does not show a lag: on Kafka the ends of transactions have offsets, too.
            if next >= bounds.end {
                continue;
            }
            let Some(first) = source.read(of, next, 1)?.into_iter().next() else { continue };
            lag = lag.saturating_add(bounds.end.0.saturating_sub(first.offset.0));
            let at = first.appended_at;
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

/// The webhooks that were given up and not delivered since.
///
/// # Errors
/// The log or the tables cannot be read.
pub(super) fn dead(reader: &mut Reader<Source>, now: UnixMicros) -> anyhow::Result<Vec<Subject>> {
    let dead = survey::dead(reader, &Filter::default(), now)?;
    Ok(dead.subjects.into_iter().map(|(subject, _)| subject).collect())
}

/// The number of webhooks that wait, and the time at which the oldest of them was announced.
///
/// # Errors
/// The log cannot be read.
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
    let (mut count, mut oldest) = (0_usize, None);
    for (of, committed) in source.committed(DELIVERER, &of.collect::<Vec<_>>())? {
        let bounds = source.bounds(of)?;
        let next = committed.map_or(bounds.start, |at| at.offset).max(bounds.start);
        if next >= bounds.end {
            continue;
        }
        let page = source.read(of, next, WAITING_MAX)?;
        count = count.saturating_add(page.len());
        for value in page.iter().filter_map(|record| record.value.as_deref()) {
            let Ok(Delivery { emitted_at, .. }) = schemas::decode(value) else { continue };
            oldest = Some(oldest.map_or(emitted_at, |oldest: UnixMicros| oldest.min(emitted_at)));
        }
    }
    Ok((count, oldest))
}

/// The stops in force, in words.
///
/// # Errors
/// The log cannot be read.
pub(super) fn stops(source: &Source) -> anyhow::Result<Vec<String>> {
    // Records that cannot be read were shown with the chains.
    let stopped = stop::in_force(source, &mut Vec::new())?;
    let all = stopped.into_iter().flat_map(|(blockchain, scopes)| {
        scopes.into_iter().map(move |scope| format!("{blockchain}: {}", stop_words(scope)))
    });
    Ok(all.collect())
}
