//! Who committed: a mark behind the metadata of each offset.
//!
//! Every step leaves a mark of its own with at least one offset. By it the log can be asked whether a
//! step happened, and whether anybody else worked on a partition in between, even without reading on.

use uuid::Uuid;

use crate::{Committed, Offset};

/// Between the metadata and the mark.
const SEPARATOR: char = '\u{1f}';
/// Before the mark where the group has read nothing yet.
const NEVER: char = '-';

/// Where a group stands in a partition, as the broker keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The next record to read.
    pub(super) offset: Offset,
    /// Metadata and mark.
    pub(super) text: String,
}

impl Place {
    /// Where the group goes on after the step of `mark`.
    pub(super) fn new(committed: &Committed, mark: &str) -> Self {
        let text = format!("{}{SEPARATOR}{mark}", committed.metadata);
        Self { offset: committed.offset, text }
    }

    /// The same place after a step that read nothing there.
    pub(super) fn again(place: Option<&Self>, mark: &str) -> Self {
        match place.and_then(Self::committed) {
            Some(committed) => Self::new(&committed, mark),
            None => Self { offset: Offset(0), text: format!("{SEPARATOR}{NEVER}{mark}") },
        }
    }

    /// What the group knows of it; none if it never read here.
    pub(super) fn committed(&self) -> Option<Committed> {
        let (metadata, mark) = self.text.rsplit_once(SEPARATOR).unwrap_or((&self.text, ""));
        let committed = Committed { offset: self.offset, metadata: metadata.to_owned() };
        (!mark.starts_with(NEVER)).then_some(committed)
    }
}

/// Makes marks that nobody else makes.
#[derive(Debug)]
pub(super) struct Marks {
    maker: Uuid,
    count: u64,
}

impl Marks {
    /// A maker of its own.
    pub(super) fn new() -> Self {
        Self { maker: Uuid::now_v7(), count: 0 }
    }

    /// The next mark.
    pub(super) fn next(&mut self) -> String {
        self.count += 1;
        format!("{}.{:x}", self.maker.simple(), self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_back_without_the_mark() {
        let mut marks = Marks::new();
        for metadata in ["", "{\"done\":[7]} ä", "a\u{1f}b", "-"] {
            let committed = Committed { offset: Offset(7), metadata: metadata.to_owned() };
            let place = Place::new(&committed, &marks.next());
            assert_eq!(place.committed(), Some(committed.clone()));
            let again = Place::again(Some(&place), &marks.next());
            assert_ne!(again, place);
            assert_eq!(again.committed(), Some(committed));
        }
    }

    #[test]
    fn a_place_never_read_stays_so() {
        let mut marks = Marks::new();
        let place = Place::again(None, &marks.next());
        assert_eq!(place.committed(), None);
        assert_eq!(Place::again(Some(&place), &marks.next()).committed(), None);
    }

    #[test]
    fn what_other_tools_committed_is_metadata() {
        let place = Place { offset: Offset(3), text: "reset by hand".to_owned() };
        assert_eq!(place.committed().unwrap().metadata, "reset by hand");
    }

    #[test]
    fn the_longest_metadata_and_its_mark_fit_the_brokers_limit() {
        let committed = Committed { offset: Offset(0), metadata: "x".repeat(4000) };
        let mut marks = Marks { maker: Uuid::max(), count: u64::MAX - 1 };
        assert!(Place::new(&committed, &marks.next()).text.len() <= 4096);
    }
}
