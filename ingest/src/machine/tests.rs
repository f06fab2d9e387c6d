//! The rules of the cursor, one by one, against a simulated endpoint.

mod alone;
mod answers;
mod checks;
mod outcomes;
mod reorg;
mod steps;

use std::cell::Cell;

use schemas::record::{ChainBody, ChainRecord, Observation};
use schemas::{Epoch, UnixMicros};

use super::*;
use crate::simulation::{Node, Payment, chain};

const NOW: UnixMicros = UnixMicros(1_000);

/// The time of an answer: each is six seconds after the last one of its test, so that earlier scans are old.
fn now() -> UnixMicros {
    thread_local!(static SECONDS: Cell<i64> = const { Cell::new(0) });
    UnixMicros(NOW.0 + SECONDS.replace(SECONDS.get() + 6) * 1_000_000)
}

fn depth(depth: i64) -> Policy {
    Policy::flat(Some(depth), None)
}

fn finalized() -> Policy {
    Policy::flat(None, Some(Tag::Finalized))
}

/// Rules by which no head is held back, and a failed check waits for at most 16 polls.
fn rules(policy: Policy) -> Rules {
    Rules { idle_polls: 0, check_wait_polls: 16, has_second: true, ..chain(policy).rules() }
}

fn cursor(policy: Policy) -> Cursor {
    Cursor::new(rules(policy), None, Vec::new())
}

fn cursor_with(change: impl FnOnce(&mut Rules)) -> Cursor {
    let mut rules = rules(depth(3));
    change(&mut rules);
    Cursor::new(rules, None, Vec::new())
}

/// A cursor that scans from a block, `range_max` blocks at most at once.
fn scan_from(start: i64, range_max: i64) -> Cursor {
    cursor_with(|rules| {
        rules.start_block = Some(start);
        rules.range_max = range_max;
    })
}

fn pay(value: u128) -> Vec<Payment> {
    vec![Payment { wallet: 0, value }]
}

/// One question, answered by the node.
fn turn(cursor: &mut Cursor, node: &Node) -> Decision {
    turn_by(cursor, node, node)
}

/// One question, answered by its role's node.
fn turn_by(cursor: &mut Cursor, first: &Node, second: &Node) -> Decision {
    let ask = cursor.ask();
    let node = match ask.role {
        Role::First | Role::Witness => first,
        Role::Second => second,
    };
    match node.answer(&ask) {
        Ok(mut answer) => {
            answer.is_first = ask.role == Role::Witness;
            cursor.answer(answer, now())
        }
        Err(refusal) => cursor.fail(refusal).into(),
    }
}

/// Asks until there is a reason to wait; returns the published records and the reason.
fn drive(cursor: &mut Cursor, node: &Node) -> (Vec<ChainRecord>, Next) {
    let (decision, _) = drive_by(cursor, node, node);
    (decision.publish, decision.next)
}

/// The same with a second endpoint: all decisions in one, and the ranges it was asked for.
fn drive_by(cursor: &mut Cursor, first: &Node, second: &Node) -> (Decision, Vec<(i64, i64)>) {
    let (mut whole, mut checks) = (Decision::from(Next::Ask), Vec::new());
    for _ in 0..200 {
        checks.extend(second_check(cursor));
        let decision = turn_by(cursor, first, second);
        let next = decision.next.clone();
        add(&mut whole, decision);
        if next != Next::Ask {
            return (Decision { next, ..whole }, checks);
        }
    }
    panic!("the cursor never waits");
}

fn add(whole: &mut Decision, decision: Decision) {
    whole.publish.extend(decision.publish);
    whole.notes.extend(decision.notes);
}

/// The range that the open question checks again.
fn second_check(cursor: &Cursor) -> Option<(i64, i64)> {
    let ask = cursor.ask();
    match ask.logs.first() {
        Some(Span::Range { from, to } | Span::Receipts { from, to })
            if ask.role == Role::Second =>
        {
            Some((*from, *to))
        }
        _ => None,
    }
}

/// A cursor that has caught up with the node.
fn at_tip(policy: Policy, node: &Node) -> Cursor {
    let mut cursor = cursor(policy);
    assert_eq!(drive(&mut cursor, node).1, Next::AtTip);
    cursor
}

fn followed(height: usize) -> (Node, Cursor) {
    let node = Node::new(height);
    let cursor = at_tip(depth(3), &node);
    (node, cursor)
}

/// Polls until the scan of a range is open.
fn open_scan(cursor: &mut Cursor, node: &Node) {
    while second_check(cursor).is_some()
        || !matches!(cursor.ask().logs.first(), Some(Span::Range { .. }))
    {
        turn(cursor, node);
    }
}

/// Records in short: kind, epoch, block.
fn short(records: &[ChainRecord]) -> Vec<(char, i64, i64)> {
    let kind = |record: &ChainRecord| match record.body {
        ChainBody::Watch(_) => 'w',
        ChainBody::Transfer(_) => 't',
        ChainBody::Retract(_) => 'r',
        ChainBody::Head(_) => 'h',
    };
    records.iter().map(|r| (kind(r), r.epoch.0, r.block.number)).collect()
}

/// Heights in the last record: confirmed for the first tier, and finalized.
fn heights(records: &[ChainRecord]) -> (i64, i64) {
    let Some(ChainBody::Head(head)) = records.last().map(|record| &record.body) else { panic!() };
    (head.confirmed[0].number, head.finalized)
}

/// A cursor and two endpoints, of which the first scans.
struct Pair {
    a: Node,
    b: Node,
    cursor: Cursor,
}

impl Pair {
    /// Equal endpoints, and a cursor at their head.
    fn new(height: usize, change: impl FnOnce(&mut Rules)) -> Self {
        let (a, b, cursor) = (Node::new(height), Node::new(height), cursor_with(change));
        let mut pair = Self { a, b, cursor };
        assert_eq!(pair.drive().0.next, Next::AtTip);
        pair
    }

    /// Mines the same block at both.
    fn mine(&mut self, transactions: &[Vec<Payment>]) {
        for node in [&mut self.a, &mut self.b] {
            node.mine(transactions);
        }
    }

    fn drive(&mut self) -> (Decision, Vec<(i64, i64)>) {
        drive_by(&mut self.cursor, &self.a, &self.b)
    }

    /// Mines empty blocks, and drives the cursor after each. Returns all decisions in one.
    fn blocks(&mut self, count: usize) -> Decision {
        self.each_block(count, |_| ())
    }

    fn each_block(&mut self, count: usize, check: impl Fn(&Self)) -> Decision {
        let mut whole = Decision::from(Next::Ask);
        for _ in 0..count {
            self.mine(&[]);
            add(&mut whole, self.drive().0);
            check(self);
        }
        whole
    }

    fn confirmed(&self) -> i64 {
        confirmed(&self.cursor)
    }

    fn holds(&self, transaction: TxHash) -> bool {
        holds(&self.cursor, transaction)
    }

    /// The published transfers above block 10.
    fn live(&self) -> Vec<(Block, Observation)> {
        history(&self.cursor).above(10).collect()
    }
}

fn kinds(decision: &Decision) -> Vec<&'static str> {
    let kind = |note: &Note| match note {
        Note::Skipped(_) => "skipped",
        Note::Rewound { .. } => "rewound",
        Note::LateFind { .. } => "late find",
        Note::Omitted { .. } => "omitted",
        Note::Disputed { .. } => "disputed",
        Note::Forged { .. } => "forged",
        Note::Contradiction { .. } => "contradiction",
        Note::Gap { .. } => "gap",
        Note::Alone { begins: true } => "alone",
        Note::Alone { begins: false } => "not alone",
        Note::Check { why, .. } => why.kind(),
    };
    decision.notes.iter().map(kind).collect()
}

fn history(cursor: &Cursor) -> &History {
    cursor.history().unwrap()
}

fn confirmed(cursor: &Cursor) -> i64 {
    history(cursor).head().confirmed[0].number
}

/// Returns `true` if the last head holds transfers of a transaction.
fn holds(cursor: &Cursor, transaction: TxHash) -> bool {
    let held = &history(cursor).head().held;
    held.iter().any(|held| held.transfer.tx_hash == transaction)
}
