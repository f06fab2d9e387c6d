//! The state of the webhooks of the compared events.

use std::collections::BTreeSet;

use api::survey::Group;
use reconcile::{Announced, Deliveries, Event};
use schemas::record::{Attempt, Delivery, Transfer};
use schemas::{AttemptOutcome, OrderId, Topic, TransferStatus, UnixMicros};

use super::records::{Newest, Reader, is_in_flight};
use crate::inspect::status::groups;
use crate::settings::Settings;
use crate::tail::Source;

/// Allowed lag of the stages, in microseconds: they catch up after a restart.
const DISPATCH_MICROS: i64 = 5 * 60 * 1_000_000;
/// Stages whose unread records are not reported as differences.
const STAGES: [&str; 2] = ["processor", "webhooks"];

/// The time from which records may be unprocessed: five minutes ago, or that of the oldest unread record if earlier.
pub(super) fn fresh_since(
    source: &Source,
    settings: &Settings,
    now: UnixMicros,
) -> anyhow::Result<UnixMicros> {
    Ok(oldest_undone(&groups(source, settings)?, now))
}

fn oldest_undone(groups: &[Group], now: UnixMicros) -> UnixMicros {
    let recent = UnixMicros(now.0.saturating_sub(DISPATCH_MICROS));
    let judged = groups.iter().filter(|group| STAGES.contains(&group.stage));
    judged.filter_map(|group| group.oldest).fold(recent, UnixMicros::min)
}

/// The event of a transfer that pays nothing, if it is to be announced.
pub(super) fn event_of(
    settings: &Settings,
    Newest { value: transfer, appended_at, .. }: &Newest<Transfer>,
    fresh_since: UnixMicros,
) -> Option<Event> {
    let config = &settings.webhooks;
    let is_due = transfer.status == TransferStatus::NoMatchedDeposit
        && !webhooks::is_dust(transfer, &config.dust_threshold);
    let url = config.unknown_transfer_webhook_url.as_deref().filter(|_| is_due);
    let delivery = webhooks::decide_transfer(transfer, url)?;
    Some(Event {
        id: delivery.event_id,
        about: Announced::Transfer(transfer.transfer_id),
        is_new: *appended_at >= fresh_since,
    })
}

/// Reads the state of the webhooks of these events.
pub(super) fn read(reader: &mut Reader<'_>, events: &[Event]) -> anyhow::Result<Deliveries> {
    let ids: BTreeSet<&str> = events.iter().map(|event| event.id.as_str()).collect();
    let orders: BTreeSet<OrderId> = events.iter().filter_map(order_of).collect();
    let mut found = Deliveries::default();
    reader.topic(Topic::WebhooksAttempts, |_, attempt: Attempt| {
        let is_delivered = attempt.outcome == AttemptOutcome::Delivered;
        let order = attempt.order_id.filter(|order| is_delivered && orders.contains(order));
        if let Some((order, version)) = order.zip(version_of(&attempt.event_id)) {
            let newest = found.newest.entry(order).or_insert(version);
            *newest = version.max(*newest);
        }
        let is_done = is_delivered || attempt.outcome == AttemptOutcome::Superseded;
        if is_done && ids.contains(attempt.event_id.as_str()) {
            found.delivered.insert(attempt.event_id);
        }
    })?;
    reader.topic(Topic::WebhooksDead, |_, delivery: Delivery| {
        if ids.contains(delivery.event_id.as_str()) {
            found.dead.insert(delivery.event_id);
        }
    })?;
    for topic in Topic::ALL.into_iter().filter(|topic| is_in_flight(*topic)) {
        reader.topic(topic, |_, delivery: Delivery| {
            if ids.contains(delivery.event_id.as_str()) {
                found.dispatched.insert(delivery.event_id);
            }
        })?;
    }
    Ok(found)
}

fn order_of(event: &Event) -> Option<OrderId> {
    match event.about {
        Announced::Order(order, _) => Some(order),
        Announced::Transfer(_) => None,
    }
}

/// The version of the order that an event announces.
fn version_of(event_id: &str) -> Option<i64> {
    event_id.rsplit_once('.')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use log::{Offset, TopicPartition};
    use schemas::Partition;
    use schemas::record::example;

    use super::*;

    /// A processor that catches up writes what follows from blocks that were observed long before.
    #[test]
    fn an_event_is_new_by_the_time_of_its_record() {
        let url = "[merchant]\nunknown_transfer_webhook_url = \"https://shop.example/\"\n";
        let settings = Settings::parse(url, &[]).unwrap();
        let at = TopicPartition { topic: Topic::TransfersUnknown, partition: Partition(0) };
        let (status, updated_at) = (TransferStatus::NoMatchedDeposit, UnixMicros(1));
        let is_new = |appended_at| {
            let value = Transfer { status, updated_at, ..example::transfer() };
            let newest = Newest { value, at, offset: Offset(0), appended_at };
            event_of(&settings, &newest, UnixMicros(7)).unwrap().is_new
        };
        assert_eq!([6, 7].map(|at| is_new(UnixMicros(at))), [false, true]);
    }

    #[test]
    fn what_a_stage_has_not_read_is_not_judged() {
        let now = UnixMicros(10 * DISPATCH_MICROS);
        let recent = UnixMicros(9 * DISPATCH_MICROS);
        let group = |stage, oldest: Option<i64>| Group {
            stage,
            name: "group",
            lag: 1,
            oldest: oldest.map(UnixMicros),
            members: None,
        };
        for (groups, expected) in [
            (vec![], recent),
            (vec![group("webhooks", None)], recent),
            (vec![group("webhooks", Some(7)), group("processor", Some(5))], UnixMicros(5)),
            (vec![group("projector", Some(5))], recent),
            (vec![group("webhooks", Some(now.0))], recent),
        ] {
            assert_eq!(oldest_undone(&groups, now), expected, "{groups:?}");
        }
    }
}
