//! How far a state has read its inputs. The changelog says so, beside the group: who sets the group's position back has
//! inputs taken a second time, and who sets it forward has some that are never taken.

use std::fmt;

use log::{Assigned, Offset};
use schemas::Topic;

/// Beside the positions that the processor commits. What other tools commit has none.
pub(super) const OWN: &str = "step";

/// The next position in each input; written as `transfers.raw/123,deposits.commands/18`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Positions(Vec<(Topic, Offset)>);

impl Positions {
    /// Reads a header; none if it is no such text.
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

    fn of(&self, topic: Topic) -> Option<Offset> {
        self.0.iter().find(|(of, _)| *of == topic).map(|(_, next)| *next)
    }

    /// Why the group does not continue where this state ends. A position of the processor's own may differ: steps that change
    /// no row move the group alone, and a step of the last owner may end while this one reads. The log finds that.
    pub(super) fn misfit(&self, group: &str, input: &Assigned) -> Option<String> {
        let of = input.partition;
        let (known, committed) = (self.of(of.topic)?, input.committed.as_ref()?);
        let next = committed.offset;
        if next == known || committed.metadata == OWN {
            return None;
        }
        let what = match next < known {
            true => "back: what the state has taken would be taken again",
            false => "forward: what is between would never be taken",
        };
        Some(format!(
            "the group {group} continues {of} at {next}, and the state is that of {known}. Somebody has set the group \
             {what}. Set it to {known} (on Kafka: `kafka-consumer-groups.sh --group <log.prefix>{group} --topic \
             <log.prefix>{} --reset-offsets --to-offset {known} --execute`, with `:{}` behind the topic)",
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
    use log::{Committed, TopicPartition};
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
            // By hand, to where it was.
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
        assert!(text.contains("continues deposits.commands/2 at 3, and the state is that of 18"));
        // No step of it is known.
        assert_eq!(misfit(&at(Topic::OrdersCommands, 3, "")), None);
    }
}
