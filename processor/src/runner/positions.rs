//! Positions up to which a state has read its inputs. The changelog has them too, to detect a group that somebody
//! moved: after a move back, inputs would be taken a second time; after a move forward, some would never be taken.

use std::fmt;

use log::{Assigned, Committed, Offset};
use schemas::Topic;

/// Metadata of positions that the processor commits. Other tools leave it empty.
pub const OWN: &str = "step";

/// The next position in each input of a state, parsed from the header [`crate::wire::NEXT_HEADER`]; none if it is
/// invalid.
#[must_use]
pub fn next_inputs(header: &[u8]) -> Option<Vec<(Topic, Offset)>> {
    Positions::parse(header).map(|positions| positions.0)
}

/// The next position in each input, written as `transfers.raw/123,deposits.commands/18`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Positions(Vec<(Topic, Offset)>);

impl Positions {
    /// Parses a header; none if it is invalid.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let position = |part: &str| {
            let (topic, next) = part.split_once('/')?;
            Some((Topic::named(topic)?, Offset(next.parse().ok()?)))
        };
        let parts = std::str::from_utf8(text).ok()?.split(',').filter(|part| !part.is_empty());
        parts.map(position).collect::<Option<_>>().map(Self)
    }

    pub(super) fn set(&mut self, topic: Topic, next: Offset) {
        match self.0.iter_mut().find(|(of, _)| *of == topic) {
            Some((_, known)) => *known = next,
            None => self.0.push((topic, next)),
        }
    }

    pub(super) fn of(&self, topic: Topic) -> Option<Offset> {
        self.0.iter().find(|(of, _)| *of == topic).map(|(_, next)| *next)
    }

    /// Returns the reason if the group does not continue where this state ends. A position that the processor committed
    /// may differ: steps that change no row move the group alone, and a step of the last owner may end during the
    /// restore, which the log detects itself.
    pub(super) fn misfit(&self, group: &str, input: &Assigned) -> Option<String> {
        let of = input.partition;
        let known = self.of(of.topic)?;
        let (found, what) = match &input.committed {
            None if known == Offset(0) => return None,
            None => (
                "has no position in".to_owned(),
                "has deleted it: what the state has taken would be taken again",
            ),
            Some(Committed { offset, metadata }) if *offset == known || metadata == OWN => {
                return None;
            }
            Some(Committed { offset, .. }) if *offset < known => (
                format!("continues at {offset} in"),
                "has set the group back: what the state has taken would be taken again",
            ),
            Some(Committed { offset, .. }) => (
                format!("continues at {offset} in"),
                "has set the group forward: what is between would never be taken",
            ),
        };
        Some(format!(
            "the group {group} {found} {of}, and the state is that of {known}. Somebody {what}. Set it to {known} (on \
             Kafka: `kafka-consumer-groups.sh --group <log.prefix>{group} --topic <log.prefix>{}:{} --reset-offsets \
             --to-offset {known} --execute`), or restore a backup of the embedded files (`tidemark restore`)",
            of.topic, of.partition
        ))
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (topic, next)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{topic}/{next}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use log::TopicPartition;
    use schemas::Partition;

    use super::*;

    fn positions() -> Positions {
        let mut positions = Positions::default();
        positions.set(Topic::TransfersRaw, Offset(120));
        positions.set(Topic::DepositsCommands, Offset(18));
        positions.set(Topic::TransfersRaw, Offset(123));
        positions
    }

    #[test]
    fn they_read_back() {
        let text = positions().to_string();
        assert_eq!(text, "transfers.raw/123,deposits.commands/18");
        assert_eq!(Positions::parse(text.as_bytes()), Some(positions()));
        assert_eq!(Positions::parse(b""), Some(Positions::default()));
        for text in ["transfers.raw", "transfers.raw/x", "nothing/1"] {
            assert_eq!(Positions::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_group_that_was_set_elsewhere_does_not_fit() {
        let at = |topic, offset, metadata: &str| Assigned {
            partition: TopicPartition { topic, partition: Partition(2) },
            committed: Some(Committed { offset: Offset(offset), metadata: metadata.to_owned() }),
        };
        let misfit = |input: &Assigned| positions().misfit("processor.matching", input);
        for (offset, metadata, part) in [
            (123, OWN, None),
            // Set by hand to the same offset.
            (123, "", None),
            // Inputs that changed nothing.
            (130, OWN, None),
            (130, "", Some("forward")),
            // A step of the last owner that ended since.
            (122, OWN, None),
            (122, "", Some("back")),
            (0, "", Some("back")),
        ] {
            let found = misfit(&at(Topic::TransfersRaw, offset, metadata));
            let expected = part.map(|part| format!("Somebody has set the group {part}: "));
            assert_eq!(found.is_some(), expected.is_some(), "{offset} {metadata:?}: {found:?}");
            let has = |text: &String| expected.is_some_and(|part| text.contains(&part));
            assert!(found.as_ref().is_none_or(has), "{found:?}");
        }
        let text = misfit(&at(Topic::DepositsCommands, 3, "")).unwrap();
        let expected = "continues at 3 in deposits.commands/2, and the state is that of 18";
        assert!(text.contains(expected), "{text}");
        let without = |topic| Assigned { committed: None, ..at(topic, 0, "") };
        let text = misfit(&without(Topic::DepositsCommands)).unwrap();
        assert!(text.contains("has no position in deposits.commands/2"), "{text}");
        let mut first = Positions::default();
        first.set(Topic::OrdersCommands, Offset(0));
        assert_eq!(first.misfit("processor.orders", &without(Topic::OrdersCommands)), None);
        // The state has read nothing of this topic.
        assert_eq!(misfit(&at(Topic::OrdersCommands, 3, "")), None);
    }
}
