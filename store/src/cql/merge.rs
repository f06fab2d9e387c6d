//! Many partitions of a list as one list: newest first, each row once. Pure.

use std::collections::{BinaryHeap, VecDeque};

/// Row of a list: its time of creation and its id. Greater ones come first in lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// Unix seconds.
    pub(super) at: i64,
    /// An order's id as a number, big-endian; or a deposit's or transfer's.
    pub(super) id: u128,
}

impl Entry {
    /// The id of a deposit or a transfer, which is not negative.
    pub(super) fn integer(self) -> i64 {
        self.id as i64
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A row, and the number of the source that has it.
    Row(Entry, usize),
    /// The next page of each of these sources is needed first.
    Pages(Vec<usize>),
    /// No row is left at or above the floor.
    End,
}

#[derive(Debug)]
struct Source {
    rows: VecDeque<Entry>,
    has_more: bool,
}

/// Sorted sources, and the position in each.
#[derive(Debug, Default)]
pub(super) struct Merge {
    sources: Vec<Source>,
    /// The first row of each source that has one.
    heads: BinaryHeap<(Entry, usize)>,
    /// Sources whose next page must be read first.
    dry: Vec<usize>,
    last: Option<Entry>,
}

impl Merge {
    /// Adds a source with its first page, and returns its number.
    pub(super) fn add(&mut self, rows: Vec<Entry>, has_more: bool) -> usize {
        let number = self.sources.len();
        self.sources.push(Source { rows: rows.into(), has_more });
        self.advance(number);
        number
    }

    /// Adds the next page of a source, which may be empty.
    pub(super) fn fill(&mut self, number: usize, rows: Vec<Entry>, has_more: bool) {
        let source = &mut self.sources[number];
        source.rows.extend(rows);
        source.has_more = has_more;
        self.advance(number);
    }

    /// The newest row that was not returned yet, if it is not older than `floor`: sources that are
    /// not added yet have only older rows.
    pub(super) fn next(&mut self, floor: i64) -> Next {
        loop {
            if !self.dry.is_empty() {
                return Next::Pages(std::mem::take(&mut self.dry));
            }
            let Some((entry, number)) = self.heads.peek().copied() else { return Next::End };
            if entry.at < floor {
                return Next::End;
            }
            self.heads.pop();
            self.advance(number);
            // A row that moves from one partition to another is in both for a moment.
            if self.last.replace(entry) != Some(entry) {
                return Next::Row(entry, number);
            }
        }
    }

    fn advance(&mut self, number: usize) {
        let source = &mut self.sources[number];
        match source.rows.pop_front() {
            Some(entry) => self.heads.push((entry, number)),
            None if source.has_more => self.dry.push(number),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    fn entry(at: i64, id: u128) -> Entry {
        Entry { at, id }
    }

    /// Cuts a source into pages, some of them empty.
    fn pages(mut rows: Vec<Entry>, cuts: &[usize]) -> VecDeque<Vec<Entry>> {
        rows.sort_by_key(|row| Reverse(*row));
        rows.dedup();
        let mut pages = VecDeque::new();
        let mut cuts = cuts.iter().cycle();
        while !rows.is_empty() {
            let cut = cuts.next().copied().unwrap_or(1).min(rows.len());
            pages.push_back(rows.drain(..cut).collect());
            if cut == 0 {
                let row = rows.remove(0);
                pages.push_back(vec![row]);
            }
        }
        pages
    }

    /// Some sources, each with rows in any order.
    fn sources() -> impl Strategy<Value = Vec<Vec<Entry>>> {
        let row = (0..6_i64, 0..8_u128).prop_map(|(at, id)| entry(at, id));
        prop::collection::vec(prop::collection::vec(row, 0..30), 0..6)
    }

    proptest! {
        #[test]
        fn a_merge_is_the_sorted_union_whatever_the_pages(
            sources in sources(),
            cuts in prop::collection::vec(0..5_usize, 1..4),
        ) {
            let mut expected: Vec<_> = sources.iter().flatten().copied().collect();
            expected.sort_by_key(|row| Reverse(*row));
            expected.dedup();
            let mut unread: Vec<_> = sources.into_iter().map(|rows| pages(rows, &cuts)).collect();
            let mut merge = Merge::default();
            for source in &mut unread {
                let first = source.pop_front().unwrap_or_default();
                merge.add(first, !source.is_empty());
            }
            let mut found = Vec::new();
            loop {
                match merge.next(i64::MIN) {
                    Next::Row(row, _) => found.push(row),
                    Next::Pages(numbers) => {
                        for number in numbers {
                            let page = unread[number].pop_front().unwrap();
                            merge.fill(number, page, !unread[number].is_empty());
                        }
                    }
                    Next::End => break,
                }
            }
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn rows_below_the_floor_wait_for_later_sources() {
        let mut merge = Merge::default();
        merge.add(vec![entry(9, 1), entry(3, 1)], false);
        assert_eq!(merge.next(5), Next::Row(entry(9, 1), 0));
        assert_eq!(merge.next(5), Next::End);
        merge.add(vec![entry(4, 2)], false);
        assert_eq!(merge.next(0), Next::Row(entry(4, 2), 1));
        assert_eq!(merge.next(0), Next::Row(entry(3, 1), 0));
        assert_eq!(merge.next(0), Next::End);
    }

    #[test]
    fn an_empty_page_is_no_end() {
        let mut merge = Merge::default();
        let source = merge.add(Vec::new(), true);
        assert_eq!(merge.next(0), Next::Pages(vec![source]));
        merge.fill(source, Vec::new(), true);
        assert_eq!(merge.next(0), Next::Pages(vec![source]));
        merge.fill(source, vec![entry(1, 1)], false);
        assert_eq!(merge.next(0), Next::Row(entry(1, 1), 0));
        assert_eq!(merge.next(0), Next::End);
    }

    /// Pages are requested together: otherwise a filter that few rows pass would wait for each in
    /// turn.
    #[test]
    fn all_sources_that_are_dry_are_asked_for_together() {
        let mut merge = Merge::default();
        let sources = [(); 3].map(|()| merge.add(Vec::new(), true));
        assert_eq!(merge.next(0), Next::Pages(sources.to_vec()));
        merge.fill(0, vec![entry(5, 1)], false);
        merge.fill(1, Vec::new(), true);
        merge.fill(2, Vec::new(), true);
        assert_eq!(merge.next(0), Next::Pages(vec![1, 2]));
        merge.fill(1, Vec::new(), false);
        merge.fill(2, vec![entry(7, 2)], false);
        assert_eq!(merge.next(0), Next::Row(entry(7, 2), 2));
        assert_eq!(merge.next(0), Next::Row(entry(5, 1), 0));
        assert_eq!(merge.next(0), Next::End);
    }
}
