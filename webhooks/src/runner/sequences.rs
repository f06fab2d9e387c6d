//! The [`Sequence`] of each partition of this worker, kept on `webhooks.changelog`.

use std::collections::HashMap;

use log::consumer::Member;
use log::{NewRecord, Record, TopicPartition, Unreadable};
use schemas::record::WebhookEntry;
use schemas::{CodecError, Headers, OrderId, Partition, Topic, UnixMicros};

use super::job::Job;
use crate::error::Error;
use crate::machine::sequence::{Admitted, Sequence, Turn};

/// Maximum number of old entries that one step removes from each partition.
const EXPIRED_MAX: usize = 100;

/// Sequences of this worker's partitions, and their entries for the next step.
#[derive(Default)]
pub(super) struct Sequences {
    of: HashMap<Partition, Sequence<Job>>,
    /// Entries for the next step, each with the partition that the worker must own to write it.
    entries: Vec<(TopicPartition, NewRecord)>,
}

impl Sequences {
    /// Restores a partition's sequence before its deliveries are read. Adds none if the process stops first.
    pub(super) fn restore(
        &mut self,
        partition: Partition,
        member: &mut Member<'_>,
        now: UnixMicros,
    ) -> Result<(), Error> {
        let changelog = TopicPartition { topic: Topic::WebhooksChangelog, partition };
        let new = || Ok(Sequence::new(now));
        let apply = |state: &mut Result<Sequence<Job>, Error>, record: Record| {
            if let Ok(sequence) = state
                && let Err(unreadable) = take(sequence, &record)
            {
                *state = Err(damaged(&record, unreadable));
            }
        };
        if let Some(sequence) = member.restore(changelog, new, apply)? {
            self.of.insert(partition, sequence?);
        }
        Ok(())
    }

    /// Drops the sequences of lost partitions.
    pub(super) fn revoke(&mut self, lost: &[TopicPartition]) {
        self.of.retain(|partition, _| !lost.iter().any(|of| of.partition == *partition));
        self.entries.retain(|(of, _)| !lost.contains(of));
    }

    /// Admits a due delivery, and keeps its entry for the next step.
    pub(super) fn admit(&mut self, job: Job, now: UnixMicros) -> Result<Admitted<Job>, CodecError> {
        let from = job.position.from;
        let sequence = self.of.get_mut(&from.partition);
        let Some((turn, sequence)) = Turn::of(&job.delivery).zip(sequence) else {
            return Ok(Admitted::Start(job));
        };
        let admitted = sequence.admit(turn, job, now);
        if let Admitted::Wait { entry: Some(entry), .. } = &admitted {
            let key = entry.order_id.to_string();
            let record = NewRecord::encode(Topic::WebhooksChangelog, from.partition, key, entry)?;
            self.entries.push((from, record));
        }
        Ok(admitted)
    }

    /// `true` if a newer event of its order supersedes it.
    pub(super) fn is_overtaken(&self, job: &Job) -> bool {
        let sequence = self.of.get(&job.position.from.partition);
        let turn = Turn::of(&job.delivery);
        turn.zip(sequence).is_some_and(|(turn, sequence)| sequence.is_overtaken(turn))
    }

    /// Marks a delivery as ended; its result is in the next step.
    pub(super) fn ended(&mut self, job: &Job) {
        let sequence = self.of.get_mut(&job.position.from.partition);
        if let Some((turn, sequence)) = Turn::of(&job.delivery).zip(sequence) {
            sequence.ended(turn);
        }
    }

    /// Removes expired entries, with the next step.
    pub(super) fn expire(&mut self, now: UnixMicros) {
        for (partition, sequence) in &mut self.of {
            let of = |topic| TopicPartition { topic, partition: *partition };
            let removed = sequence.expire(now, EXPIRED_MAX).into_iter().map(|order| {
                let removal = NewRecord {
                    to: of(Topic::WebhooksChangelog),
                    key: order.to_string().into_bytes(),
                    value: None,
                    headers: Headers::default(),
                };
                (of(Topic::WebhooksDispatch), removal)
            });
            self.entries.extend(removed);
        }
    }

    /// The entries for the next step.
    pub(super) fn entries(&self) -> &[(TopicPartition, NewRecord)] {
        &self.entries
    }

    /// `true` if an entry or an event waits for the next step.
    pub(super) fn is_awaited(&self) -> bool {
        !self.entries.is_empty() || self.of.values().any(Sequence::is_awaited)
    }

    /// Ends a durable step. Returns the deliveries to send now.
    pub(super) fn committed(&mut self) -> Vec<Job> {
        self.entries.clear();
        self.of.values_mut().flat_map(Sequence::committed).collect()
    }
}

fn damaged(record: &Record, unreadable: Unreadable) -> Error {
    let at = format!("{}@{}", record.from, record.offset);
    unreadable.garbage(record).map_or_else(Error::from, |cause| Error::Changelog { at, cause })
}

fn take(sequence: &mut Sequence<Job>, record: &Record) -> Result<(), Unreadable> {
    if record.value.is_some() {
        let entry: WebhookEntry = record.read()?;
        sequence.restore(entry);
        return Ok(());
    }
    let key = String::from_utf8_lossy(&record.key);
    let order: OrderId = key.parse().map_err(|_| {
        let cause = format!("{key:?} is no order");
        Unreadable::Garbage(cause)
    })?;
    sequence.forget(order);
    Ok(())
}
