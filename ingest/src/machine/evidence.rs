//! Proofs, their sources and heights: **when a transfer is confirmed** is [`Evidence::confirmed`].
//!
//! Three heights bound the confirmation of every tier of amounts. Each is about published blocks:
//!
//! | height | up to it |
//! |---|---|
//! | checked | two endpoints were asked for the transfers of every block, and their differences were examined |
//! | vouched | two endpoints have shown the block, by number and hash: depth and tags count no further |
//! | alone | one endpoint was asked twice while no other answered: amounts below a bound need no more |
//!
//! The lower of two endpoints' tags counts. With one configured endpoint, its second answers count as checks, `vouched`
//! sets no bound, and its tags count. A transfer that endpoints disagree about is held ([`Held`]); it bounds no height.

use schemas::Amount;
use schemas::record::{Block, ConfirmedTier, Held, Observation};

use super::question::Proof;
use super::watch::Watch;
use super::{History, Policy, Tags};

/// Verdict of an endpoint on one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A receipt in the block has it.
    Proven,
    /// A receipt lacks it, failed or is in another block; or the block does not list the transaction.
    Denied,
    /// No evidence either way, or a receipt that contradicts itself.
    Unknown,
}

impl Verdict {
    /// Returns the verdict on a transfer with `rank` equal ones before it in its transaction.
    pub(crate) fn of(
        proof: &Proof,
        watch: &Watch,
        block: &Block,
        transfer: &Observation,
        rank: usize,
    ) -> Self {
        let receipt = match proof {
            Proof::Unknown => return Self::Unknown,
            Proof::Unlisted => return Self::Denied,
            Proof::Receipt(receipt) => receipt,
        };
        if !receipt.succeeded || receipt.block_hash != block.hash {
            return Self::Denied;
        }
        let logs = watch.sift(receipt.logs.iter().cloned(), block.number, block.number);
        let Ok(logs) = logs else { return Self::Unknown };
        let (seen, _) = watch.observe(&logs);
        let equal = seen.iter().filter(|seen| seen.is_equal(transfer)).count();
        if equal > rank { Self::Proven } else { Self::Denied }
    }
}

/// Heights up to which each kind of proof reaches.
#[derive(Debug)]
pub(crate) struct Evidence {
    /// With a second endpoint, its tiers are split at `alone_below`.
    policy: Policy,
    has_second: bool,
    /// Amounts below this need one endpoint while no other answers.
    alone_below: Amount,
    checked: i64,
    vouched: i64,
    alone: i64,
    /// `true` if no other endpoint vouched the last time.
    is_lonely: bool,
    /// Tags of the endpoint that scans.
    own_tags: Tags,
    /// Greatest tags of the endpoints that vouched since the last fork or change of the scanner.
    other_tags: Tags,
    held: Vec<Held>,
}

impl Evidence {
    /// Continues where the last head ends: blocks up to [`History::checked`] had all proofs.
    pub(crate) fn new(
        policy: &Policy,
        has_second: bool,
        alone_below: Amount,
        history: Option<&History>,
    ) -> Self {
        let checked = history.map_or(-1, History::checked);
        let policy = if has_second { policy.split(alone_below) } else { policy.clone() };
        let held = history.map_or_else(Vec::new, |history| history.head().held.clone());
        Self {
            policy,
            has_second,
            alone_below,
            checked,
            vouched: checked,
            alone: -1,
            is_lonely: false,
            own_tags: Tags::default(),
            other_tags: Tags::default(),
            held,
        }
    }

    /// The heights confirmed for each tier when the chain is scanned up to `number`, without their times.
    pub(crate) fn confirmed(&self, number: i64) -> Vec<ConfirmedTier> {
        let mut tiers = self.policy.confirmed(number.min(self.vouched_to()), self.tags());
        let alone = self.policy.confirmed(number, self.own_tags);
        for (tier, alone) in tiers.iter_mut().zip(alone) {
            tier.number = tier.number.min(self.checked);
            if self.may_be_alone(tier) {
                tier.number = tier.number.max(alone.number.min(self.alone));
            }
        }
        tiers
    }

    /// Heights that the scanning endpoint alone would confirm, so that a second check is worthwhile.
    pub(crate) fn wanted(&self, number: i64) -> Vec<ConfirmedTier> {
        self.policy.confirmed(number, self.own_tags)
    }

    fn may_be_alone(&self, tier: &ConfirmedTier) -> bool {
        self.has_second && tier.below.is_some_and(|below| below <= self.alone_below)
    }

    /// Returns the limit that vouching sets on confirmed heights; unlimited with one endpoint.
    pub(crate) fn vouched_to(&self) -> i64 {
        if self.has_second { self.vouched } else { i64::MAX }
    }

    /// The tags that count for confirmation: of two endpoints, the lower ones.
    pub(crate) fn tags(&self) -> Tags {
        if self.has_second { self.own_tags.lower(self.other_tags) } else { self.own_tags }
    }

    pub(crate) fn own_tags(&self) -> Tags {
        self.own_tags
    }

    pub(crate) fn checked(&self) -> i64 {
        self.checked
    }

    /// Returns the height up to which two answers were compared, of one endpoint or of two.
    pub(crate) fn checked_by_any(&self) -> i64 {
        self.checked.max(self.alone)
    }

    pub(crate) fn vouched(&self) -> i64 {
        self.vouched
    }

    /// Returns `true` if one endpoint confirms blocks that no other has checked or shown yet.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_lonely || self.alone > self.checked
    }

    /// Notes that no other endpoint vouches: one alone may confirm checked blocks, for amounts below `alone_below`.
    pub(crate) fn note_alone(&mut self) {
        self.is_lonely = true;
        self.alone = self.alone.max(self.checked);
    }

    pub(crate) fn held(&self) -> &[Held] {
        &self.held
    }

    /// Starts the checked and the vouched height at the block before the first scanned one.
    pub(crate) fn begin(&mut self, number: i64) {
        (self.checked, self.vouched, self.alone) = (number, number, -1);
    }

    /// Raises the checked height, or the one that an endpoint checked alone.
    pub(crate) fn check(&mut self, number: i64, is_alone: bool) {
        let height = if is_alone { &mut self.alone } else { &mut self.checked };
        *height = (*height).max(number);
    }

    /// Raises the vouched height; the tags are those of the endpoint that did not scan.
    pub(crate) fn vouch(&mut self, number: i64, tags: Tags) {
        self.is_lonely = false;
        self.vouched = self.vouched.max(number);
        self.other_tags.merge(tags);
    }

    /// Lowers the vouched height, and drops the other tags: another endpoint shows a fork above this height.
    pub(crate) fn contest(&mut self, number: i64) {
        self.vouched = self.vouched.min(number);
        self.other_tags = Tags::default();
    }

    /// Takes note of the tags on our chain that the scanning endpoint reports.
    pub(crate) fn scanner_says(&mut self, tags: Tags) {
        self.own_tags.merge(tags);
    }

    /// Drops all tags: the scanner changes.
    pub(crate) fn switch(&mut self) {
        (self.own_tags, self.other_tags) = (Tags::default(), Tags::default());
    }

    /// Takes note of a rewind to a height: the blocks above it are of another chain now.
    pub(crate) fn rewind(&mut self, number: i64) {
        self.checked = self.checked.min(number);
        self.vouched = self.vouched.min(number);
        self.alone = self.alone.min(number);
        self.own_tags = self.own_tags.up_to(number);
        self.other_tags = self.other_tags.up_to(number);
        self.held.retain(|held| held.block.number <= number);
    }

    /// Keeps a transfer unconfirmed. Returns `true` if it was not held before.
    pub(crate) fn hold(&mut self, block: Block, transfer: Observation) -> bool {
        let is_new = !self.holds(&block, &transfer);
        if is_new {
            self.held.push(Held { block, transfer });
        }
        is_new
    }

    /// Releases a held transfer: it is proven, or retracted.
    pub(crate) fn release(&mut self, block: &Block, transfer: &Observation) {
        self.held.retain(|held| !is_held(held, block, transfer));
    }

    pub(crate) fn holds(&self, block: &Block, transfer: &Observation) -> bool {
        self.held.iter().any(|held| is_held(held, block, transfer))
    }
}

fn is_held(held: &Held, block: &Block, transfer: &Observation) -> bool {
    held.block.hash == block.hash && held.transfer.payment() == transfer.payment()
}

#[cfg(test)]
mod tests {
    use schemas::record::{Head, example};
    use schemas::{BlockHash, Hash, UnixSeconds};

    use super::*;
    use crate::machine::{EventLog, Receipt, Tag, Tier};
    use crate::simulation::{self, chain};

    const HASH: BlockHash = Hash([5; 32]);
    const BLOCK: Block = Block { number: 5, hash: HASH, timestamp: UnixSeconds(1005) };

    fn event(log_index: i32, units: u128) -> EventLog {
        simulation::event(BLOCK, log_index, units)
    }

    #[test]
    fn silence_is_neither_proof_nor_denial() {
        use Verdict::{Denied, Proven, Unknown};
        let chain = chain(Policy::flat(Some(3), None));
        let watch = &chain.rules().watch;
        let (seen, _) = watch.observe(&[event(0, 7)]);
        let receipt =
            |logs: &[EventLog]| Receipt { block_hash: HASH, succeeded: true, logs: logs.to_vec() };
        let (one, two) = (receipt(&[event(4, 7)]), receipt(&[event(4, 7), event(6, 7)]));
        let unnumbered = receipt(&[event(0, 7), event(0, 7)]);
        let failed = Receipt { succeeded: false, ..two.clone() };
        let moved = Receipt { block_hash: Hash([6; 32]), ..two.clone() };
        let orphaned = receipt(&[EventLog { removed: true, ..event(4, 7) }]);
        for (proof, first, second) in [
            (Proof::Receipt(two), Proven, Proven),
            (Proof::Receipt(unnumbered), Proven, Proven),
            (Proof::Receipt(one), Proven, Denied),
            (Proof::Receipt(receipt(&[event(4, 8)])), Denied, Denied),
            (Proof::Receipt(failed), Denied, Denied),
            (Proof::Receipt(moved), Denied, Denied),
            (Proof::Receipt(orphaned), Unknown, Unknown),
            (Proof::Unlisted, Denied, Denied),
            (Proof::Unknown, Unknown, Unknown),
        ] {
            let said = [0, 1].map(|rank| Verdict::of(&proof, watch, &BLOCK, &seen[0], rank));
            assert_eq!(said, [first, second], "{proof:?}");
        }
    }

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    /// Amounts below 1000 are confirmed by a depth of 3, greater ones by `finalized`. Below 100 one endpoint is enough.
    fn evidence(has_second: bool) -> Evidence {
        let small = Tier { below: Some(amount("1000")), depth: Some(3), tag: None };
        let large = Tier { below: None, depth: None, tag: Some(Tag::Finalized) };
        let policy = Policy { tiers: vec![small, large] };
        let mut evidence = Evidence::new(&policy, has_second, amount("100"), None);
        evidence.begin(10);
        evidence
    }

    fn tags(finalized: i64) -> Tags {
        Tags { safe: None, finalized: Some(finalized) }
    }

    fn heights(evidence: &Evidence, number: i64) -> Vec<i64> {
        evidence.confirmed(number).iter().map(|tier| tier.number).collect()
    }

    #[test]
    fn each_tier_ends_at_the_lowest_proof() {
        let mut evidence = evidence(true);
        evidence.scanner_says(tags(40));
        assert_eq!(heights(&evidence, 50), [8, 8, -1], "nothing is vouched for");
        evidence.check(30, false);
        evidence.vouch(25, tags(20));
        assert_eq!(heights(&evidence, 50), [23, 23, 20], "two more blocks on top");
        evidence.vouch(50, tags(35));
        assert_eq!(heights(&evidence, 50), [30, 30, 30], "as far as it was checked");
        evidence.check(48, false);
        assert_eq!(heights(&evidence, 50), [48, 48, 35], "the lower of the tags");
        // The other endpoint shows a fork: neither depth nor tags count beyond it, for any amount.
        evidence.contest(33);
        assert_eq!(heights(&evidence, 60), [31, 31, -1]);
        evidence.vouch(60, tags(36));
        evidence.switch();
        assert_eq!(heights(&evidence, 60), [48, 48, -1], "tags are an endpoint's own");
        evidence.rewind(45);
        assert_eq!(heights(&evidence, 60), [43, 43, -1]);
    }

    #[test]
    fn one_endpoint_alone_confirms_small_amounts() {
        let mut evidence = evidence(true);
        evidence.scanner_says(tags(50));
        evidence.check(46, true);
        assert_eq!((heights(&evidence, 50), evidence.is_alone()), (vec![46, 8, -1], true));
        evidence.check(46, false);
        evidence.vouch(50, tags(50));
        assert_eq!((heights(&evidence, 50), evidence.is_alone()), (vec![46, 46, 46], false));
        let bounds: Vec<_> = evidence.confirmed(50).iter().map(|tier| tier.below).collect();
        assert_eq!(bounds, [Some(amount("100")), Some(amount("1000")), None]);
    }

    #[test]
    fn one_configured_endpoint_vouches_for_itself() {
        let mut evidence = evidence(false);
        evidence.scanner_says(tags(40));
        evidence.check(48, false);
        assert_eq!(heights(&evidence, 50), [48, 40]);
    }

    #[test]
    fn what_is_held_survives_a_restart() {
        let mut evidence = evidence(true);
        let transfer = example::transfer().observation;
        assert!(evidence.hold(BLOCK, transfer) && !evidence.hold(BLOCK, transfer));
        let confirmed = evidence.confirmed(50);
        let held = evidence.held().to_vec();
        let head = Head { confirmed, finalized: 3, match_window_seconds: 1, held, has_gap: false };
        let body = schemas::record::ChainBody::Head(head);
        let record = schemas::record::ChainRecord { body, ..example::chain_record() };
        let history = History::fold(None, &record);
        let policy = Policy::flat(Some(3), None);
        let mut after = Evidence::new(&policy, true, Amount::ZERO, history.as_ref());
        assert!(after.holds(&BLOCK, &transfer));
        // In another block it is not the same.
        assert!(!after.holds(&Block { hash: Hash([6; 32]), ..BLOCK }, &transfer));
        after.release(&BLOCK, &transfer);
        assert_eq!(after.held(), []);
    }
}
