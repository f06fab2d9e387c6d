//! Checks of the tags that the policy waits for: without one, confirmation stops, and nothing else
//! reports it.

use std::collections::BTreeMap;

use schemas::Blockchain;

use crate::ChainConfig;
use crate::config::{normal_age, tag_age_min};
use crate::machine::{Answer, Ask, History, Point, Role, Tag};

/// Number of consecutive polls without a good tag after which it is logged.
const FAULTS_MAX: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagFault {
    /// The endpoint has no such block.
    Absent,
    /// Its block is much older than usual on this chain.
    Old,
    /// Its block is newer than the chain can have made it.
    Young,
    /// Its block is not the one that was scanned at that height.
    Foreign,
}

impl TagFault {
    /// The value of the metric label `fault`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Old => "old",
            Self::Young => "young",
            Self::Foreign => "foreign",
        }
    }
}

impl Tag {
    /// The value of the metric label `tag`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Finalized => "finalized",
        }
    }
}

/// The tags of a chain, each with its number of consecutive bad polls.
#[derive(Debug)]
pub(crate) struct TagCheck {
    blockchain: Blockchain,
    chain_id: u64,
    needed: Vec<Tag>,
    faults: BTreeMap<(bool, &'static str), u32>,
}

/// A tag with its fault in a poll; `true` if the fault is to be logged.
pub(crate) type Found = (Tag, TagFault, bool);

impl TagCheck {
    pub(crate) fn new(chain: &ChainConfig) -> Self {
        let needed = [Tag::Safe, Tag::Finalized].into_iter();
        let needed = needed.filter(|tag| chain.policy.uses(*tag)).collect();
        let (blockchain, chain_id) = (chain.blockchain, chain.chain_id);
        Self { blockchain, chain_id, needed, faults: BTreeMap::new() }
    }

    /// Checks the tags of an answer, and removes those of another fork than ours, or that the chain cannot have made
    /// yet.
    pub(crate) fn check(
        &mut self,
        ask: &Ask,
        answer: &mut Answer,
        history: Option<&History>,
    ) -> Vec<Found> {
        let Some(newest) = ask.shown(answer, Point::Latest) else { return Vec::new() };
        let mut found = Vec::new();
        for (point, header) in ask.blocks.iter().zip(&mut answer.blocks) {
            let tag = match point {
                Point::Safe => Tag::Safe,
                Point::Finalized => Tag::Finalized,
                Point::Latest | Point::Number(_) => continue,
            };
            let fault = match header {
                None => Some(TagFault::Absent),
                Some(header) => {
                    let number = header.block.number;
                    let ours = history.and_then(|history| history.anchor_at_or_below(number));
                    let is_foreign = ours.is_some_and(|ours| {
                        ours.number == number && ours.hash != header.block.hash
                    });
                    let age = newest.block.timestamp.0.saturating_sub(header.block.timestamp.0);
                    let is_old = age > 2 * normal_age(self.blockchain, tag);
                    let is_young = age < tag_age_min(self.blockchain, self.chain_id, tag);
                    let faults = [
                        (is_foreign, TagFault::Foreign),
                        (is_young, TagFault::Young),
                        (is_old, TagFault::Old),
                    ];
                    faults.into_iter().find_map(|(is, fault)| is.then_some(fault))
                }
            };
            if matches!(fault, Some(TagFault::Foreign | TagFault::Young)) {
                *header = None;
            }
            let count = self.faults.entry((ask.role == Role::First, tag.name())).or_default();
            *count = fault.map_or(0, |_| count.saturating_add(1));
            // Faults of a tag that the policy does not need are not reported.
            let fault = fault.filter(|_| self.needed.contains(&tag));
            found.extend(fault.map(|fault| (tag, fault, *count == FAULTS_MAX)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Header, Policy};
    use crate::simulation::{Node, chain, head};

    /// Returns the tag check of a development chain.
    fn check_of(policy: Policy) -> TagCheck {
        TagCheck::new(&ChainConfig { chain_id: 31_337, ..chain(policy) })
    }

    /// Returns a poll of a chain whose policy waits for `safe`, with the node's answer.
    fn poll(node: &Node, safe: Option<Header>) -> (Ask, Answer) {
        let blocks = vec![Point::Latest, Point::Finalized, Point::Safe];
        let ask = Ask { blocks, ..Ask::default() };
        let mut answer = node.answer(&ask).unwrap();
        answer.blocks[2] = safe;
        (ask, answer)
    }

    fn header(node: &Node, number: i64) -> Header {
        let ask = Ask { blocks: vec![Point::Number(number)], ..Ask::default() };
        node.answer(&ask).unwrap().blocks[0].unwrap()
    }

    #[test]
    fn absent_or_old_tag_is_reported_once() {
        let node = Node::new(200);
        let policy = Policy::flat(None, Some(Tag::Safe));
        let mut tags = check_of(policy);
        let mut check = |safe: Option<Header>| {
            let (ask, mut answer) = poll(&node, safe);
            let found = tags.check(&ask, &mut answer, None);
            assert_eq!(answer.blocks[2], safe);
            found
        };
        // Blocks are twelve seconds apart.
        assert_eq!(check(Some(header(&node, 120))), []);
        let old = Some(header(&node, 119));
        for position in 1..=12 {
            let safe = if position % 2 == 0 { old } else { None };
            let fault = if position % 2 == 0 { TagFault::Old } else { TagFault::Absent };
            assert_eq!(check(safe), [(Tag::Safe, fault, position == 10)]);
        }
        assert_eq!(check(Some(header(&node, 150))), []);
        assert_eq!(check(None), [(Tag::Safe, TagFault::Absent, false)]);
        // The policy needs no tag.
        let mut depth = check_of(Policy::flat(Some(3), None));
        let (ask, mut answer) = poll(&node, None);
        assert_eq!(depth.check(&ask, &mut answer, None), []);
    }

    #[test]
    fn a_tag_of_another_fork_confirms_nothing() {
        let mut node = Node::new(10);
        let before = History::fold(None, &head(node.head(), Vec::new(), 0)).unwrap();
        let mut tags = check_of(Policy::flat(None, Some(Tag::Safe)));
        let ours = Some(header(&node, 10));
        let (ask, mut answer) = poll(&node, ours);
        assert_eq!(tags.check(&ask, &mut answer, Some(&before)), []);
        node.reorg(1, &[]);
        let theirs = Some(header(&node, 10));
        let (ask, mut answer) = poll(&node, theirs);
        let found = tags.check(&ask, &mut answer, Some(&before));
        assert_eq!(found, [(Tag::Safe, TagFault::Foreign, false)]);
        assert_eq!(answer.blocks[2], None);
    }
}
