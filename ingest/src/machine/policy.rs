//! Confirmation policy of blocks: by depth, by the node's tags, or both, for each amount tier.

use schemas::Amount;
use schemas::record::ConfirmedTier;

/// Block tag of a node (`eth_getBlockByNumber`), by rising certainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// Unlikely to be orphaned; on a rollup, written to its parent chain.
    Safe,
    /// Orphaned only in a catastrophe.
    Finalized,
}

/// Conditions of one amount tier for a block. With both depth and tag, both must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Upper bound, exclusive, of the tier's amounts; `None` for the last tier, which has no bound.
    pub below: Option<Amount>,
    /// Confirmations, the block itself counted as the first.
    pub depth: Option<i64>,
    /// The tag that must have reached the block.
    pub tag: Option<Tag>,
}

/// The confirmation policy of a chain: tiers by rising amount, the last without a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub tiers: Vec<Tier>,
}

/// The greatest heights that an endpoint's tags have reached on our chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    pub(crate) safe: Option<i64>,
    pub(crate) finalized: Option<i64>,
}

impl Tags {
    /// Takes later answers. Tags of one endpoint go backwards or vanish at times: the greatest
    /// counts.
    pub(crate) fn merge(&mut self, later: Self) {
        self.safe = self.safe.max(later.safe);
        self.finalized = self.finalized.max(later.finalized);
    }

    /// Caps the tags at a height: blocks above it may be of another chain.
    pub(crate) fn up_to(self, number: i64) -> Self {
        Self {
            safe: self.safe.map(|safe| safe.min(number)),
            finalized: self.finalized.map(|finalized| finalized.min(number)),
        }
    }

    /// Returns the lower height of each tag: both endpoints have reached it.
    pub(crate) fn lower(self, other: Self) -> Self {
        let lower = |a: Option<i64>, b: Option<i64>| Some(a?.min(b?));
        Self {
            safe: lower(self.of(Tag::Safe), other.of(Tag::Safe)),
            finalized: lower(self.finalized, other.finalized),
        }
    }

    fn of(self, tag: Tag) -> Option<i64> {
        match tag {
            // A final block is safe, whatever the `safe` tag of the endpoint is.
            Tag::Safe => self.safe.max(self.finalized),
            Tag::Finalized => self.finalized,
        }
    }
}

impl Tier {
    /// The height confirmed when the chain is scanned up to `head`; -1 for none yet. Depth n means
    /// n confirmations with the including block as the first: `head - (n - 1)`.
    fn confirmed(self, head: i64, tags: Tags) -> i64 {
        let depth = self.depth.map_or(head, |depth| head.saturating_sub(depth - 1));
        let tag = self.tag.map_or(head, |tag| tags.of(tag).unwrap_or(-1));
        depth.min(tag).min(head).max(-1)
    }
}

impl Policy {
    /// One tier for all amounts.
    pub fn flat(depth: Option<i64>, tag: Option<Tag>) -> Self {
        Self { tiers: vec![Tier { below: None, depth, tag }] }
    }

    /// Splits in two the tier that this amount lies in. Zero, or the bound of a tier, splits nothing.
    pub(crate) fn split(&self, below: Amount) -> Self {
        let mut tiers = self.tiers.clone();
        let place = tiers.iter().position(|tier| tier.below.is_none_or(|end| end > below));
        let begins = |place: usize| {
            let before = place.checked_sub(1).and_then(|before| tiers.get(before));
            before.and_then(|tier| tier.below).unwrap_or(Amount::ZERO)
        };
        if let Some(place) = place.filter(|place| begins(*place) < below)
            && let Some(tier) = tiers.get(place).copied()
        {
            tiers.insert(place, Tier { below: Some(below), ..tier });
        }
        Self { tiers }
    }

    /// Returns `true` if any tier waits for a tag.
    pub(crate) fn uses_tags(&self) -> bool {
        self.tiers.iter().any(|tier| tier.tag.is_some())
    }

    /// Returns `true` if any tier waits for this tag.
    pub(crate) fn uses(&self, tag: Tag) -> bool {
        self.tiers.iter().any(|tier| tier.tag == Some(tag))
    }

    /// Returns `true` if some amounts are confirmed by depth alone, long before finality.
    pub(crate) fn is_shallow(&self) -> bool {
        self.tiers.iter().any(|tier| tier.tag.is_none())
    }

    /// The heights confirmed when the chain is scanned up to `head`, without their times.
    pub(crate) fn confirmed(&self, head: i64, tags: Tags) -> Vec<ConfirmedTier> {
        let tier = |tier: &Tier| {
            let number = tier.confirmed(head, tags);
            ConfirmedTier { below: tier.below, number, timestamp: None }
        };
        self.tiers.iter().map(tier).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(policy: &Policy, head: i64, tags: (Option<i64>, Option<i64>), expected: &[i64]) {
        let tags = Tags { safe: tags.0, finalized: tags.1 };
        let numbers: Vec<_> = policy.confirmed(head, tags).iter().map(|t| t.number).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn depth_counts_the_including_block_as_one() {
        let depth = |n| Policy::flat(Some(n), None);
        check(&depth(1), 100, (None, None), &[100]);
        check(&depth(12), 100, (None, None), &[89]);
        check(&depth(12), 11, (None, None), &[0]);
        check(&depth(12), 10, (None, None), &[-1]);
        check(&depth(12), 3, (None, None), &[-1]);
    }

    #[test]
    fn tags_never_confirm_beyond_the_scan() {
        let finalized = Policy::flat(None, Some(Tag::Finalized));
        check(&finalized, 100, (Some(99), Some(64)), &[64]);
        check(&finalized, 50, (None, Some(64)), &[50]);
        check(&finalized, 100, (Some(99), None), &[-1]);
        let safe = Policy::flat(None, Some(Tag::Safe));
        check(&safe, 100, (Some(96), Some(64)), &[96]);
        check(&safe, 100, (None, Some(64)), &[64]);
    }

    #[test]
    fn both_is_the_lower_and_tiers_keep_their_order() {
        check(&Policy::flat(Some(32), Some(Tag::Finalized)), 100, (None, Some(98)), &[69]);
        check(&Policy::flat(Some(32), Some(Tag::Finalized)), 100, (None, Some(60)), &[60]);
        let below = Amount::parse("1000").ok();
        let policy = Policy {
            tiers: vec![
                Tier { below, depth: Some(3), tag: None },
                Tier { below: None, depth: Some(12), tag: Some(Tag::Finalized) },
            ],
        };
        check(&policy, 100, (None, Some(64)), &[98, 64]);
        let tiers = policy.confirmed(100, Tags::default());
        assert_eq!((tiers[0].below, tiers[1].below), (below, None));
    }

    #[test]
    fn tags_never_go_back_except_to_a_common_ancestor() {
        let mut tags = Tags { safe: Some(96), finalized: Some(64) };
        tags.merge(Tags { safe: None, finalized: Some(60) });
        assert_eq!(tags, Tags { safe: Some(96), finalized: Some(64) });
        assert_eq!(tags.up_to(90), Tags { safe: Some(90), finalized: Some(64) });
    }
}
