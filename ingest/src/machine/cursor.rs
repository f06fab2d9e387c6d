//! The cursor: the open question, and the change of state by each answer. The first step is in [`begin`], a
//! reorganisation in [`reorg`], the second check in [`second`], differences of two answers in [`settle`].

mod begin;
mod checks;
mod due;
mod publish;
mod reorg;
mod scan;
mod second;
mod settle;

use schemas::record::Watch as Announced;
use schemas::record::{Block, ChainBody, Held};
use schemas::{UnixMicros, UnixSeconds};

use super::blocks;
use super::evidence::Evidence;
use super::range::RangeSize;
use super::{
    Answer, Ask, Decision, Difference, EventLog, Header, History, Next, Note, Outcome, Point,
    Refusal, Rules, Span, Tag, Tags,
};

use checks::{Check, Checks, Found, Question};
use scan::Scanned;
use settle::LateWatch;

/// Most blocks to verify in one step: bounds the records of a step and the requests to verify it.
const HIT_BLOCKS_MAX: usize = 200;
/// Number of refusals after which a range is halved, whatever the reason.
pub(super) const REFUSED_MAX: u32 = 3;

/// The open question.
#[derive(Debug)]
enum Phase {
    /// The head, to know where to begin.
    Begin,
    /// The block before the first one to scan, and some below it.
    Base { number: i64 },
    /// The head, our last block and the tags.
    Tip,
    /// The logs of a range; `again` if the next range follows at once.
    Scan { from: i64, to: i64, again: bool },
    /// Verification of a scan.
    Verify(Scanned),
    /// Search for the newest anchor below this height that is still canonical.
    Search { below: i64 },
    /// A second answer about a range, or about single blocks.
    Check(Check),
    /// Search for the newest of our blocks that the other endpoint has.
    Common { check: Check, blocks: Vec<Block>, why: Option<Difference> },
    /// Receipts for transfers that two answers differ in, that are held, or whose outcome is not known.
    Settle { found: Found, questions: Vec<Question> },
    /// Receipts for [`Scanned::doubted`] logs.
    Doubt(Scanned),
}

#[derive(Debug)]
pub(crate) struct Cursor {
    rules: Rules,
    history: Option<History>,
    /// Last scanned block, if it is above the last published head.
    ahead: Option<Block>,
    /// Known blocks that were not yet checked twice.
    blocks_ahead: Vec<Block>,
    /// Time of the newest block of the chain, at the last poll.
    newest: Option<UnixSeconds>,
    /// Polls since the last head in which a head was held back.
    held_back: u32,
    /// Polls without news since the last head. After `Rules::idle_polls` of them the last blocks of an idle chain are
    /// checked.
    quiet: u32,
    pub(super) evidence: Evidence,
    /// Height up to which blocks count as final in this step: the endpoint's `finalized` tag, or without one its head
    /// less the reorganisation window.
    final_to: i64,
    range: RangeSize,
    checks: Checks,
    late_watch: LateWatch,
    phase: Phase,
    /// Watches to publish with the next step.
    unannounced: Vec<Announced>,
    /// Refusals since the last scanned range, except for size and timeouts, which shrink the range at once.
    refused: u32,
    /// Searches in a row that found no canonical block at or above the finalized height.
    fruitless: u32,
    /// `true` if every endpoint pruned the next blocks; sent with heads.
    has_gap: bool,
    /// Height up to which an endpoint contradicted itself about unpublished blocks.
    doubted_to: i64,
    #[cfg(test)]
    pub(crate) sabotage: crate::sabotage::Defect,
}

impl Cursor {
    /// Continues where the published records end. The next step publishes `unannounced`.
    pub(crate) fn new(
        rules: Rules,
        mut history: Option<History>,
        unannounced: Vec<Announced>,
    ) -> Self {
        if let Some(history) = &mut history {
            history.prune(rules.reorg_window);
        }
        let phase = if history.is_some() { Phase::Tip } else { Phase::Begin };
        let range = RangeSize::new(rules.range_max);
        let (second, alone) = (rules.has_second, rules.alone_below);
        let evidence = Evidence::new(&rules.policy, second, alone, history.as_ref());
        let checks = Checks::new(history.as_ref(), rules.range_max);
        let has_gap = history.as_ref().is_some_and(|history| history.head().has_gap);
        Self {
            rules,
            history,
            ahead: None,
            blocks_ahead: Vec::new(),
            newest: None,
            held_back: 0,
            quiet: 0,
            evidence,
            final_to: -1,
            range,
            checks,
            late_watch: LateWatch::default(),
            phase,
            unannounced,
            refused: 0,
            fruitless: 0,
            has_gap,
            doubted_to: -1,
            #[cfg(test)]
            sabotage: crate::sabotage::Defect::None,
        }
    }

    /// The history, which every phase after the first head has.
    #[expect(clippy::expect_used, reason = "a cursor that lost its history must not continue")]
    fn known(&self) -> &History {
        self.history.as_ref().expect("a phase after the first head has a history")
    }

    fn last(&self) -> Block {
        self.ahead.unwrap_or_else(|| self.known().last())
    }

    /// The last scanned block; none before the first head.
    pub(crate) fn last_scanned(&self) -> Option<Block> {
        self.history.as_ref().map(|_| self.last())
    }

    /// Returns the known history of the chain; `None` before the first head.
    pub(crate) fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// The height up to which every block was asked for twice, or was old and final when it was scanned.
    pub(crate) fn checked(&self) -> i64 {
        self.evidence.checked()
    }

    /// The newest height at which two endpoints have shown our block; with one endpoint, the last scanned height.
    pub(crate) fn vouched(&self) -> i64 {
        self.evidence.vouched_to().min(self.last().number)
    }

    /// Number of confirmed transfers that only one endpoint has checked.
    pub(crate) fn confirmed_alone(&self) -> usize {
        let (two, any) = (self.evidence.checked(), self.evidence.checked_by_any());
        let transfers = self.known().between(two + 1, any);
        transfers.iter().filter(|(block, seen)| self.known().head().confirms(block, seen)).count()
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.evidence.is_alone()
    }

    pub(crate) fn held(&self) -> &[Held] {
        self.evidence.held()
    }

    pub(crate) fn failed_checks(&self) -> u32 {
        self.checks.failures
    }

    /// Maximum number of blocks in the next range.
    pub(crate) fn range_blocks(&self) -> i64 {
        self.range.blocks()
    }

    /// Returns `true` if the open question begins a step: only then may the first endpoint change.
    pub(crate) fn is_step_start(&self) -> bool {
        matches!(self.phase, Phase::Begin | Phase::Tip)
    }

    /// Takes note of a change of scanner.
    pub(crate) fn switch(&mut self) {
        if self.history.is_some() {
            self.checks.switch(self.evidence.checked(), self.last().number);
            self.evidence.switch();
        }
    }

    /// Drops the tags: another endpoint shows the tip, with its own.
    pub(crate) fn switch_tip(&mut self) {
        self.evidence.switch();
    }

    /// Question for the outcome of a log's transaction.
    fn outcome(&self, log: &EventLog) -> Outcome {
        let (number, block_hash) = (log.block_number, log.block_hash);
        Outcome { transaction: log.tx_hash, number, block_hash, is_final: self.is_final(number) }
    }

    /// Returns `true` if a height is final by the endpoint's own tag, or without one by the reorganisation window. Never
    /// if the policy uses no tags.
    fn is_final(&self, number: i64) -> bool {
        let finalized = self.evidence.own_tags().finalized.unwrap_or(-1).max(self.final_to);
        self.rules.policy.uses_tags() && number <= finalized
    }

    pub(crate) fn ask(&self) -> Ask {
        let last = self.history.as_ref().map(|_| Point::Number(self.last().number));
        let numbers = |blocks: &[Block]| -> Vec<Point> {
            blocks.iter().map(|block| Point::Number(block.number)).collect()
        };
        let blocks = match &self.phase {
            Phase::Begin => vec![Point::Latest],
            Phase::Base { number } => {
                self.base_numbers(*number).into_iter().map(Point::Number).collect()
            }
            Phase::Tip => {
                let mut blocks = vec![Point::Latest];
                blocks.extend(last);
                blocks.extend(self.rules.policy.uses_tags().then_some(Point::Finalized));
                blocks.extend(self.rules.policy.uses(Tag::Safe).then_some(Point::Safe));
                blocks
            }
            Phase::Scan { from, to, .. } => {
                let others = blocks::before_end(*from, *to).map(Point::Number);
                let blocks = std::iter::once(Point::Number(*to)).chain(last).chain(others);
                let logs = vec![Span::Range { from: *from, to: *to }];
                return Ask { blocks: blocks.collect(), logs, ..Ask::default() };
            }
            Phase::Verify(scanned) => {
                let logs = scanned.blocks.iter().map(|block| Span::Block(block.hash)).collect();
                let blocks = last.into_iter().chain(numbers(&scanned.blocks)).collect();
                let receipts = scanned.transactions.clone();
                return Ask { blocks, logs, receipts, ..Ask::default() };
            }
            Phase::Search { below } => numbers(&self.search_page(*below)),
            Phase::Check(check) => return self.ask_check(check),
            Phase::Common { check, blocks, .. } => {
                return Ask { role: check.role, blocks: numbers(blocks), ..Ask::default() };
            }
            Phase::Settle { found, questions } => {
                let is_own = questions.iter().all(|question| question.own.is_none());
                return self.ask_receipts(&found.check, questions, is_own);
            }
            Phase::Doubt(scanned) => return self.ask_doubted(scanned),
        };
        Ask { blocks, ..Ask::default() }
    }

    /// Applies the answer to [`Cursor::ask`]. Assumes that the records of the decision are published
    /// before the next call.
    pub(crate) fn answer(&mut self, answer: Answer, now: UnixMicros) -> Decision {
        let start = if self.history.is_some() { Phase::Tip } else { Phase::Begin };
        let phase = std::mem::replace(&mut self.phase, start);
        match phase {
            Phase::Begin => self.begin(answer.blocks.first().copied().flatten()).into(),
            Phase::Base { number } => self.base(number, answer.blocks, now),
            Phase::Tip => self.tip(answer.blocks, now),
            Phase::Scan { from, to, again } => self.scan((from, to, again), answer).into(),
            Phase::Verify(scanned) => match self.verify(scanned, answer) {
                Ok(verified) if verified.doubted.is_empty() => self.publish_step(&verified, now),
                Ok(verified) => self.doubt(verified),
                Err(next) => next.into(),
            },
            Phase::Search { below } => self.search(below, &answer.blocks, now),
            Phase::Check(check) => self.compare(check, answer, now),
            Phase::Common { check, blocks, why } => self.common((check, blocks, why), &answer, now),
            Phase::Settle { found, questions } => self.receipts(found, questions, &answer, now),
            Phase::Doubt(scanned) => self.resolve(scanned, &answer, now),
        }
    }

    /// Restarts the step after a failed request.
    pub(crate) fn fail(&mut self, refusal: Refusal) -> Next {
        let start = if self.history.is_some() { Phase::Tip } else { Phase::Begin };
        let phase = std::mem::replace(&mut self.phase, start);
        let scanned = match phase {
            Phase::Scan { from, to, .. } => Some((from, to)),
            Phase::Verify(Scanned { to, .. }) | Phase::Doubt(Scanned { to, .. }) => {
                Some((self.last().number + 1, to.number))
            }
            Phase::Begin | Phase::Base { .. } | Phase::Tip | Phase::Search { .. } => None,
            Phase::Check(check)
            | Phase::Common { check, .. }
            | Phase::Settle { found: Found { check, .. }, .. } => {
                return self.check_refused(check, refusal);
            }
        };
        let Some((from, to)) = scanned else { return Self::refused(refusal) };
        let used = to - from + 1;
        match refusal {
            Refusal::Size { .. } => {
                if self.range.shrink(used, refusal.blocks()) {
                    return Next::Ask;
                }
                Next::Retry("a single block is too large for the endpoint")
            }
            Refusal::Timeout => {
                // A large range may have caused the timeout. If not, it grows again.
                self.range.shrink(used, None);
                Next::Retry("the endpoint does not answer in time")
            }
            Refusal::Behind
            | Refusal::Rate
            | Refusal::Transient
            | Refusal::Pruned
            | Refusal::Fatal => {
                // The refusal may be a size error with an unknown message.
                self.refused += 1;
                if used > 1 && self.refused.is_multiple_of(REFUSED_MAX) {
                    self.range.shrink(used, None);
                }
                Self::refused(refusal)
            }
        }
    }

    /// Publishes, once and only after the first head, that every endpoint pruned the next blocks. No deposit opens
    /// until they are scanned.
    pub(crate) fn report_gap(&mut self, now: UnixMicros) -> Decision {
        let next = self.fail(Refusal::Pruned);
        if self.history.is_none() || std::mem::replace(&mut self.has_gap, true) {
            return next.into();
        }
        let (last, epoch) = (self.last(), self.known().epoch());
        let head = ChainBody::Head(self.head(last.number, &[last], &self.blocks_ahead));
        let record = self.record(epoch, last, now, head);
        let notes = vec![Note::Gap { after: last }];
        Decision { notes, ..self.publish(vec![record], next) }
    }

    fn refused(refusal: Refusal) -> Next {
        if refusal == Refusal::Behind { Next::Behind } else { Next::Retry("the endpoint refuses") }
    }

    fn tip(&mut self, blocks: Vec<Option<Header>>, now: UnixMicros) -> Decision {
        let mut blocks = blocks.into_iter();
        let (latest, last) = (blocks.next().flatten(), blocks.next().flatten());
        let Some(latest) = latest else { return Next::Retry("the endpoint has no head").into() };
        let ours = self.last();
        if latest.block.number < ours.number {
            return Next::Behind.into();
        }
        self.newest = Some(latest.block.timestamp);
        match last {
            None => return Next::Behind.into(),
            Some(header) if header.block.number != ours.number => {
                return Next::Retry("the endpoint answered with another block").into();
            }
            // Our last block is not published yet, so it is dropped without a rewind.
            Some(header) if header.block.hash != ours.hash && self.ahead.take().is_some() => {
                let last = self.last().number;
                self.blocks_ahead.retain(|block| block.number <= last);
                self.checks.rewind(last);
                self.evidence.rewind(last);
                self.doubted_to = -1;
                return Next::Ask.into();
            }
            Some(header) if header.block.hash != ours.hash => {
                self.phase = Phase::Search { below: ours.number.saturating_add(1) };
                return Next::Ask.into();
            }
            Some(_) => self.fruitless = 0,
        }
        // Asked in this order: finalized, then safe. A policy without tags asks neither.
        let mut tag = || blocks.next().flatten().map(|header| header.block.number);
        let tags = Tags { finalized: tag(), safe: tag() };
        // Tags are capped at our last block: above it, this endpoint may be on another fork. A higher tag makes the
        // next range follow at once.
        let ahead = tags.finalized.max(tags.safe) > Some(ours.number);
        self.evidence.scanner_says(tags.up_to(ours.number));
        self.checks.is_asked = false;
        let window = latest.block.number.saturating_sub(self.rules.reorg_window);
        self.final_to = tags.finalized.unwrap_or(window);
        let target = latest.block.number - self.rules.lag;
        let mut blocks_max = self.range.blocks();
        if ours.number < self.doubted_to {
            blocks_max = blocks_max.min(blocks::SHORT_RANGE_BLOCKS_MAX);
        }
        let to = target.min(ours.number.saturating_add(blocks_max));
        let range = (ours.number + 1, to, ahead || to < target);
        self.check_or_proceed((target > ours.number).then_some(range), now)
    }

    /// Publishes a head without new blocks, if it or a watch is news, and [`Cursor::hold_back`] does not apply.
    fn publish_tip(&mut self, now: UnixMicros) -> Decision {
        let (last, epoch) = (self.last(), self.known().epoch());
        let head = self.head(last.number, &[last], &self.blocks_ahead);
        let is_new = self.ahead.is_some() || head != *self.known().head();
        if !is_new && self.unannounced.is_empty() {
            self.quiet = self.quiet.saturating_add(1);
            return Next::AtTip.into();
        }
        if self.hold_back() {
            return Next::AtTip.into();
        }
        let record = self.record(epoch, last, now, ChainBody::Head(head));
        self.publish(vec![record], Next::AtTip)
    }
}
