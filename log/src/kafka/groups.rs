//! Reads positions and members of groups, and sets positions, without joining a group.

use rdkafka::Offset as KafkaOffset;
use rdkafka::consumer::{CommitMode, Consumer};

use super::KafkaLog;
use super::client::context::PlainContext;
use super::client::{PlainConsumer, open, settings};
use super::group::position::{GroupPosition, Marks, list};
use super::read::query::QUERY_TIMEOUT;
use super::shared::Shared;
use crate::{Committed, Error, GroupMember, Offset, TopicPartition};

/// Number of characters that the broker appends to a member's name to make its id: a hyphen and a UUID.
const SUFFIX_CHARS: usize = 37;

impl KafkaLog {
    /// The positions of a group in some partitions; none for a partition without a position.
    ///
    /// # Errors
    /// [`Error::Transient`] if the group's broker cannot be reached.
    pub fn committed(
        &self,
        group: &str,
        of: &[TopicPartition],
    ) -> Result<Vec<(TopicPartition, Option<Committed>)>, Error> {
        // The library refuses an empty request.
        if of.is_empty() {
            return Ok(Vec::new());
        }
        self.shared.verify(of.iter().copied())?;
        let client = client(&self.shared, group)?;
        let transient = |error| Error::Transient(client.context().last.explain(error));
        let invalid = of.iter().map(|of| (*of, KafkaOffset::Invalid));
        let list = self.shared.names.list(invalid)?;
        let found = client.committed_offsets(list, QUERY_TIMEOUT).map_err(transient)?;
        let mut positions = Vec::with_capacity(of.len());
        for element in found.elements() {
            element.error().map_err(transient)?;
            let parsed = self.shared.names.parse(element.topic(), element.partition());
            let Some(of) = parsed else { continue };
            let offset = element.offset().to_raw().filter(|at| *at >= 0).map(Offset);
            let text = element.metadata().to_owned();
            let position = offset.map(|offset| GroupPosition { offset, text });
            positions.push((of, position.and_then(|position| position.committed())));
        }
        Ok(positions)
    }

    /// Sets the positions of a group without members; none for a partition that it never read.
    ///
    /// # Errors
    /// [`Error::Transient`] if the group has members, or its broker cannot be reached.
    pub fn set_committed(
        &self,
        group: &str,
        positions: &[(TopicPartition, Option<Committed>)],
    ) -> Result<(), Error> {
        if positions.is_empty() {
            return Ok(());
        }
        self.shared.verify(positions.iter().map(|(of, _)| *of))?;
        let client = client(&self.shared, group)?;
        let mut marks = Marks::new();
        let position = |(of, committed): &(TopicPartition, Option<Committed>)| {
            let mark = marks.next();
            let position = committed.as_ref().map(|at| GroupPosition::new(at, &mark));
            (*of, position.unwrap_or_else(|| GroupPosition::marked(None, &mark)))
        };
        let all: Vec<_> = positions.iter().map(position).collect();
        let list = list(&self.shared.names, all.iter().map(|(of, position)| (*of, position)))?;
        let transient = |error| Error::Transient(client.context().last.explain(error));
        client.commit(&list, CommitMode::Sync).map_err(transient)
    }

    /// The members of a group by name, each with the partitions that it has.
    ///
    /// # Errors
    /// [`Error::Transient`] if the group's broker cannot be reached.
    pub fn members(&self, group: &str) -> Result<Vec<GroupMember>, Error> {
        let client = client(&self.shared, group)?;
        let name = format!("{}{group}", self.shared.config.prefix);
        let transient = |error| Error::Transient(client.context().last.explain(error));
        let list = client.fetch_group_list(Some(&name), QUERY_TIMEOUT).map_err(transient)?;
        let found = list.groups().iter().flat_map(rdkafka::groups::GroupInfo::members);
        let mut members: Vec<_> = found
            .map(|member| {
                let assignment = member.assignment().unwrap_or_default();
                let id = member.id();
                let end = id.len().saturating_sub(SUFFIX_CHARS);
                GroupMember {
                    name: id.get(..end).filter(|name| !name.is_empty()).unwrap_or(id).to_owned(),
                    partitions: partitions(assignment, |topic, number| {
                        self.shared.names.parse(topic, number)
                    })
                    .unwrap_or_default(),
                }
            })
            .collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(members)
    }
}

fn client(shared: &Shared, group: &str) -> Result<PlainConsumer, Error> {
    let group = format!("{}{group}", shared.config.prefix);
    open(&settings::claim(&shared.config, &group), PlainContext::default())
}

/// The partitions in an assignment of Kafka's consumer protocol: a version, then each topic with its
/// partitions. None if it is not of this form.
fn partitions(
    mut bytes: &[u8],
    parse: impl Fn(&str, i32) -> Option<TopicPartition>,
) -> Option<Vec<TopicPartition>> {
    let mut found = Vec::new();
    let _version: [u8; 2] = take(&mut bytes)?;
    for _ in 0..i32::from_be_bytes(take(&mut bytes)?) {
        let length = usize::try_from(i16::from_be_bytes(take(&mut bytes)?)).ok()?;
        let (topic, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        let topic = std::str::from_utf8(topic).ok()?;
        for _ in 0..i32::from_be_bytes(take(&mut bytes)?) {
            found.extend(parse(topic, i32::from_be_bytes(take(&mut bytes)?)));
        }
    }
    Some(found)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use schemas::{Partition, Topic};

    use super::*;

    fn of(topic: &str, number: i32) -> Option<TopicPartition> {
        let partition = Partition(u32::try_from(number).ok()?);
        Some(TopicPartition { topic: Topic::named(topic)?, partition })
    }

    #[test]
    fn an_assignment_is_read() {
        let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, 6];
        bytes.extend(b"orders");
        bytes.extend([0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
        let expected = [0, 3].map(|number| of("orders", number).unwrap());
        assert_eq!(partitions(&bytes, of).unwrap(), expected);
        assert_eq!(partitions(&bytes[..20], of), None, "it is cut off");
        assert_eq!(partitions(&[], of), None, "it has no assignment yet");
    }
}
