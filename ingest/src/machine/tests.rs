//! The rules of the cursor, one by one, against a simulated endpoint.

use schemas::record::{ChainBody, ChainRecord};
use schemas::{Epoch, UnixMicros};

use super::*;
use crate::simulation::{Node, Payment, chain};

const NOW: UnixMicros = UnixMicros(1_000);

fn depth(depth: i64) -> Policy {
    Policy::flat(Some(depth), None)
}

fn finalized() -> Policy {
    Policy::flat(None, Some(Tag::Finalized))
}

/// Rules by which no head is held back.
fn rules(policy: Policy) -> Rules {
    Rules { idle_polls: 0, ..chain(policy).rules() }
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
    match node.answer(&cursor.ask()) {
        Ok(answer) => cursor.answer(answer, NOW),
        Err(refusal) => cursor.fail(refusal).into(),
    }
}

/// Questions until there is a reason to wait; what was published, and the reason.
fn drive(cursor: &mut Cursor, node: &Node) -> (Vec<ChainRecord>, Next) {
    let mut published = Vec::new();
    for _ in 0..100 {
        let decision = turn(cursor, node);
        published.extend(decision.publish);
        if decision.next != Next::Ask {
            return (published, decision.next);
        }
    }
    panic!("the cursor never waits");
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
    while !matches!(cursor.ask().logs.first(), Some(Span::Range { .. })) {
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

/// Confirmed by the first tier, and finalized, by the last record.
fn heights(records: &[ChainRecord]) -> (i64, i64) {
    let Some(ChainBody::Head(head)) = records.last().map(|record| &record.body) else { panic!() };
    (head.confirmed[0].number, head.finalized)
}

#[test]
fn the_first_start_begins_at_the_head_with_anchors_below_it() {
    let node = Node::new(20);
    let (records, next) = drive(&mut cursor(depth(3)), &node);
    assert_eq!(next, Next::AtTip);
    assert_eq!(
        short(&records),
        [('h', 0, 12), ('h', 0, 16), ('h', 0, 18), ('h', 0, 19), ('h', 0, 20)]
    );
    assert_eq!(records[4].block, node.head());
    assert_eq!(heights(&records), (18, 12));
    let short_chain = Node::new(1);
    let (records, _) = drive(&mut cursor(depth(3)), &short_chain);
    assert_eq!(short(&records), [('h', 0, 0), ('h', 0, 1)]);
    assert_eq!(heights(&records), (-1, -1));
}

#[test]
fn a_start_block_is_the_first_one_scanned() {
    let mut node = Node::new(5);
    node.mine(&[pay(1)]); // 6
    node.mine(&[pay(2)]); // 7
    for (start, first) in [(6, vec![6, 7]), (7, vec![7]), (8, vec![]), (0, vec![6, 7])] {
        let mut cursor = cursor_with(|rules| rules.start_block = Some(start));
        let (records, next) = drive(&mut cursor, &node);
        assert_eq!(next, Next::AtTip, "{start}");
        let seen: Vec<_> = short(&records).iter().filter(|r| r.0 == 't').map(|r| r.2).collect();
        assert_eq!(seen, first, "{start}");
    }
    let mut early = scan_from(9, 5);
    assert_eq!(drive(&mut early, &node), (Vec::new(), Next::Behind));
}

#[test]
fn a_transfer_says_whether_the_head_of_its_step_confirms_it() {
    let mut node = Node::new(5);
    (6..=10).for_each(|number| node.mine(&[pay(number)]));
    let (records, _) = drive(&mut scan_from(1, 8), &node);
    let confirmed = |record: &&ChainRecord| record.confirmed;
    let seen = |records: &[ChainRecord]| records.iter().map(|r| r.block.number).collect::<Vec<_>>();
    let transfers: Vec<_> =
        records.iter().filter(|r| matches!(r.body, ChainBody::Transfer(_))).cloned().collect();
    assert_eq!(seen(&transfers), [6, 7, 8, 9, 10]);
    // One step ends at 8 and confirms 6; the next one ends at 10 and confirms no block of its own.
    let confirmed: Vec<_> = records.iter().filter(confirmed).cloned().collect();
    assert_eq!(seen(&confirmed), [6]);
}

#[test]
fn ranges_follow_each_other_and_end_at_the_head() {
    let mut cursor = scan_from(1, 5);
    let node = Node::new(12);
    let mut ranges = Vec::new();
    for _ in 0..100 {
        let ask = cursor.ask();
        ranges.extend(ask.logs.iter().filter_map(|span| match span {
            Span::Range { from, to } => Some((*from, *to)),
            Span::Block(_) => None,
        }));
        if turn(&mut cursor, &node).next == Next::AtTip {
            break;
        }
    }
    assert_eq!(ranges, [(1, 5), (6, 10), (11, 12)]);
}

#[test]
fn a_step_asks_for_our_last_block_before_and_after_the_range() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[pay(1)]);
    assert_eq!(cursor.ask().blocks, [Point::Latest, Point::Number(10)]);
    turn(&mut cursor, &node);
    assert_eq!(cursor.ask().blocks, [Point::Number(11), Point::Number(10)]);
    assert_eq!(cursor.ask().logs, [Span::Range { from: 11, to: 11 }]);
    turn(&mut cursor, &node);
    assert_eq!(cursor.ask().blocks, [Point::Number(10), Point::Number(11)]);
    assert_eq!(cursor.ask().logs, [Span::Block(node.head().hash)]);
    let decision = turn(&mut cursor, &node);
    assert_eq!(short(&decision.publish), [('t', 0, 11), ('h', 0, 11)]);
    assert_eq!(decision.next, Next::AtTip);
}

#[test]
fn nothing_new_publishes_nothing() {
    let node = Node::new(10);
    let mut cursor = at_tip(finalized(), &node);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
}

/// A cursor at the tip of a chain, that holds idle heads back for two polls.
fn idle(node: &Node) -> Cursor {
    let mut cursor = cursor_with(|rules| rules.idle_polls = 2);
    drive(&mut cursor, node);
    cursor
}

#[test]
fn heads_that_bring_nothing_are_held_back_and_the_next_one_covers_their_blocks() {
    let mut node = Node::new(10);
    let mut cursor = idle(&node);
    node.mine(&[]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
    // What was scanned is not asked for again.
    node.mine(&[]);
    turn(&mut cursor, &node);
    assert_eq!(cursor.ask().logs, [Span::Range { from: 12, to: 12 }]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
    assert_eq!(short(&drive(&mut cursor, &node).0), [('h', 0, 12)]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
}

#[test]
fn no_head_is_held_back_while_a_transfer_waits_for_its_confirmation() {
    let mut node = Node::new(10);
    let mut cursor = idle(&node);
    node.mine(&[]);
    drive(&mut cursor, &node);
    node.mine(&[pay(1)]);
    assert_eq!(short(&drive(&mut cursor, &node).0), [('t', 0, 12), ('h', 0, 12)]);
    for number in 13..15 {
        node.mine(&[]);
        assert_eq!(short(&drive(&mut cursor, &node).0), [('h', 0, number)]);
    }
    // Three blocks confirm it.
    node.mine(&[]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
}

#[test]
fn a_reorganisation_of_blocks_without_a_head_takes_nothing_back() {
    let mut node = Node::new(10);
    let mut cursor = idle(&node);
    node.mine(&[]);
    node.mine(&[]);
    drive(&mut cursor, &node);
    node.reorg(2, &[]);
    node.mine(&[pay(3)]);
    let height = node.head().number;
    assert_eq!(short(&drive(&mut cursor, &node).0), [('t', 0, height), ('h', 0, height)]);
}

#[test]
fn transfers_come_in_order_and_before_their_head() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[pay(5), pay(0), [pay(5), pay(5)].concat()]);
    node.mine(&[]);
    node.mine(&[pay(7)]);
    let (records, _) = drive(&mut cursor, &node);
    assert_eq!(
        short(&records),
        [('t', 0, 11), ('t', 0, 11), ('t', 0, 11), ('t', 0, 13), ('h', 0, 13)]
    );
    let seen = node.transfers_after(10);
    for (record, (block, observation)) in records.iter().zip(&seen) {
        assert_eq!(record.block, *block);
        assert_eq!(record.body, ChainBody::Transfer(*observation));
    }
    assert_eq!(seen.iter().map(|s| (s.1.log_index, s.1.ordinal)).nth(2), Some((3, 1)));
}

#[test]
fn a_reorganisation_retracts_then_rewinds_then_continues() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[pay(1)]); // 11 stays
    drive(&mut cursor, &node);
    node.mine(&[pay(2)]); // 12 moves up to 13
    node.mine(&[pay(3)]); // 13 is dropped
    drive(&mut cursor, &node);
    let orphaned = node.transfers_after(11);
    node.reorg(2, &[Some(1), None]);
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!(next, Next::AtTip);
    assert_eq!(
        short(&records),
        [('r', 1, 12), ('r', 1, 13), ('h', 1, 11), ('t', 1, 13), ('h', 1, 14)]
    );
    for (record, (block, observation)) in records.iter().zip(&orphaned) {
        assert_eq!((record.block, &record.body), (*block, &ChainBody::Retract(*observation)));
    }
    // The same payment in another block.
    let (ChainBody::Retract(before), ChainBody::Transfer(after)) =
        (&records[0].body, &records[3].body)
    else {
        panic!()
    };
    assert_eq!(before.payment(), after.payment());
    assert_eq!(cursor.history().unwrap().epoch(), Epoch(1));
}

#[test]
fn a_rewind_is_one_step_of_its_own() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[pay(1)]);
    drive(&mut cursor, &node);
    node.reorg(1, &[None]);
    turn(&mut cursor, &node);
    let decision = turn(&mut cursor, &node);
    assert_eq!(short(&decision.publish), [('r', 1, 11), ('h', 1, 10)]);
    assert_eq!(heights(&decision.publish), (8, 2));
    assert_eq!(decision.next, Next::Ask);
    let [Note::Rewound { from, to, retracted: 1 }] = decision.notes.as_slice() else { panic!() };
    assert_eq!((from.number, to.number), (11, 10));
}

#[test]
fn a_reorganisation_of_the_same_length_is_seen() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[pay(1)]);
    drive(&mut cursor, &node);
    node.reorg(1, &[None]);
    let same_length = node.without(1);
    let (records, _) = drive(&mut cursor, &same_length);
    assert_eq!(short(&records), [('r', 1, 11), ('h', 1, 10), ('h', 1, 11)]);
}

#[test]
fn a_reorganisation_below_the_first_scanned_block_is_no_end() {
    let (mut node, mut cursor) = followed(20);
    node.reorg(3, &[]);
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!(next, Next::AtTip);
    assert_eq!(short(&records), [('h', 1, 16), ('h', 1, 21)]);
}

#[test]
fn an_endpoint_that_is_behind_is_waited_for() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[]);
    drive(&mut cursor, &node);
    assert_eq!(drive(&mut cursor, &node.without(1)), (Vec::new(), Next::Behind));
    // Even if it is on another chain: its height is no evidence.
    let mut other = node.clone();
    other.reorg(2, &[]);
    assert_eq!(drive(&mut cursor, &other.without(2)), (Vec::new(), Next::Behind));
    node.mine(&[]);
    // Behind in the middle of a step.
    turn(&mut cursor, &node);
    assert_eq!(turn(&mut cursor, &node.without(1)).next, Next::Behind);
    assert_eq!(short(&drive(&mut cursor, &node).0), [('h', 0, 12)]);
}

#[test]
fn a_head_below_ours_is_no_evidence_even_with_a_block_at_our_height() {
    let (mut node, mut cursor) = followed(10);
    node.reorg(1, &[]);
    let mut answer = node.answer(&cursor.ask()).unwrap();
    answer.blocks[0] = node.without(2).answer(&cursor.ask()).unwrap().blocks[0];
    assert_eq!(cursor.answer(answer, NOW), Next::Behind.into());
}

#[test]
fn one_answer_from_another_chain_makes_no_rewind() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[pay(1)]);
    drive(&mut cursor, &node);
    let mut other = node.clone();
    other.reorg(1, &[]);
    assert_eq!(turn(&mut cursor, &other).next, Next::Ask);
    let decision = turn(&mut cursor, &node);
    assert!(matches!(decision.next, Next::Retry(_)));
    assert_eq!(decision.publish, []);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
}

#[test]
fn a_reorganisation_below_the_window_halts_and_never_guesses() {
    let (mut node, mut cursor) = followed(20);
    for _ in 0..10 {
        node.mine(&[]);
        drive(&mut cursor, &node);
    }
    let ours = node.clone();
    node.reorg(9, &[]);
    let search_in_vain = |cursor: &mut Cursor| {
        for _ in 0..4 {
            let (records, next) = drive(cursor, &node);
            assert_eq!(records, []);
            assert!(matches!(next, Next::Retry(_)), "{next:?}");
        }
    };
    search_in_vain(&mut cursor);
    // An answer from our chain: the searches before it no longer count.
    assert_eq!(drive(&mut cursor, &ours), (Vec::new(), Next::AtTip));
    search_in_vain(&mut cursor);
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!(records, []);
    assert_eq!(next, Next::Halt("scanned up to 30, but no block from 22 on is canonical".into()));
    // One block less is within the window.
    let (mut node, mut cursor) = followed(30);
    node.reorg(8, &[]);
    assert_eq!(short(&drive(&mut cursor, &node).0), [('h', 1, 22), ('h', 1, 27), ('h', 1, 31)]);
}

#[test]
fn a_search_through_many_anchors_takes_several_questions() {
    let mut cursor = cursor_with(|rules| rules.reorg_window = 100);
    let mut node = Node::new(5);
    for _ in 0..90 {
        drive(&mut cursor, &node);
        node.mine(&[]);
    }
    drive(&mut cursor, &node);
    node.reorg(80, &[]);
    turn(&mut cursor, &node);
    let mut asked = Vec::new();
    loop {
        asked.push(cursor.ask().blocks.len());
        let decision = turn(&mut cursor, &node);
        if !decision.publish.is_empty() {
            assert_eq!(short(&decision.publish), [('h', 1, 15)]);
            break;
        }
    }
    // The last page ends where the anchors do.
    assert_eq!(asked, [32, 32, 30]);
}

#[test]
fn what_differs_between_two_answers_is_not_published() {
    let mut node = Node::new(10);
    node.mine(&[pay(1)]);
    node.mine(&[]);
    let mut later = node.clone();
    later.reorg(2, &[Some(0)]);
    let scanned = || {
        let mut cursor = scan_from(11, 5);
        open_scan(&mut cursor, &node);
        turn(&mut cursor, &node);
        cursor
    };
    let answer = node.answer(&scanned().ask()).unwrap();
    let changed = |change: &dyn Fn(&mut Answer)| {
        let mut answer = answer.clone();
        change(&mut answer);
        let mut cursor = scanned();
        let decision = cursor.answer(answer, NOW);
        assert_eq!(decision.publish, []);
        // Nothing was lost: the same step is done again.
        let (records, _) = drive(&mut cursor, &node);
        assert_eq!(short(&records), [('t', 0, 11), ('h', 0, 12)]);
        decision.next
    };
    let retry = Next::Retry("the logs of a block differ between two answers");
    assert_eq!(changed(&|answer| answer.logs[0].clear()), retry);
    assert_eq!(changed(&|answer| answer.logs[0][0].data[31] += 1), retry);
    let extra = answer.logs[0][0].clone();
    let end = node.head();
    let late = EventLog { block_number: end.number, block_hash: end.hash, ..extra };
    assert_eq!(changed(&|answer| answer.logs[1].push(late.clone())), retry);
    let orphan = later.answer(&Ask { blocks: vec![Point::Number(11)], ..Ask::default() }).unwrap();
    assert_eq!(
        changed(&|answer| answer.blocks[1] = orphan.blocks[0]),
        Next::Retry("a block changed during the step")
    );
    let other = later.answer(&Ask { blocks: vec![Point::Number(12)], ..Ask::default() }).unwrap();
    assert_eq!(
        changed(&|answer| answer.blocks[0] = other.blocks[0]),
        Next::Retry("the last scanned block changed during the step")
    );
    assert_eq!(changed(&|answer| answer.blocks[2] = None), Next::Behind);
    assert_eq!(changed(&|answer| drop(answer.logs.pop())), Next::Retry("the answer is incomplete"));
}

/// A cursor with the scan of blocks 11 to the head open, and the node: payments in 12 and 14.
fn scanning(blocks: usize) -> (Cursor, Node) {
    let mut node = Node::new(11);
    node.mine(&[pay(1)]);
    node.mine(&[]);
    node.mine(&[pay(2)]);
    for _ in 4..blocks {
        node.mine(&[]);
    }
    let mut cursor = scan_from(11, 20);
    open_scan(&mut cursor, &node);
    (cursor, node)
}

#[test]
fn each_block_of_a_short_range_and_each_hit_of_a_long_one_is_fetched() {
    let points = |numbers: &[i64]| numbers.iter().copied().map(Point::Number).collect::<Vec<_>>();
    for (blocks, scan, verify) in [
        (4, vec![14, 10, 11, 12, 13], vec![10, 11, 12, 13, 14]),
        (16, [vec![26, 10], (11..26).collect()].concat(), (10..=26).collect()),
        (17, vec![27, 10], vec![10, 12, 14, 27]),
    ] {
        let (mut cursor, node) = scanning(blocks);
        assert_eq!(cursor.ask().blocks, points(&scan), "{blocks}");
        turn(&mut cursor, &node);
        assert_eq!(cursor.ask().blocks, points(&verify), "{blocks}");
        assert_eq!(cursor.ask().logs.len(), verify.len() - 1, "{blocks}");
        let end = node.head().number;
        let published = short(&turn(&mut cursor, &node).publish);
        assert_eq!(published, [('t', 0, 12), ('t', 0, 14), ('h', 0, end)], "{blocks}");
    }
}

#[test]
fn logs_left_out_of_a_short_range_are_found_by_hash() {
    let retry = Next::Retry("the logs of a block differ between two answers");
    for left_out in [&[12][..], &[14], &[12, 14]] {
        for blocks in [4, 16] {
            let (mut cursor, node) = scanning(blocks);
            let mut answer = node.answer(&cursor.ask()).unwrap();
            answer.logs[0].retain(|log| !left_out.contains(&log.block_number));
            assert_eq!(cursor.answer(answer, NOW), Next::Ask.into());
            assert_eq!(turn(&mut cursor, &node), retry.clone().into(), "{left_out:?} {blocks}");
            // Nothing was lost: the same step is done again.
            let published = short(&drive(&mut cursor, &node).0);
            assert_eq!(published, [('t', 0, 12), ('t', 0, 14), ('h', 0, node.head().number)]);
        }
    }
    // The documented limit: in a longer range a block without any log is not fetched again.
    let (mut cursor, node) = scanning(17);
    let mut answer = node.answer(&cursor.ask()).unwrap();
    answer.logs[0].retain(|log| log.block_number != 12);
    cursor.answer(answer, NOW);
    assert_eq!(short(&turn(&mut cursor, &node).publish), [('t', 0, 14), ('h', 0, 27)]);
}

#[test]
fn the_headers_of_a_short_range_are_one_chain() {
    let changed = |change: &dyn Fn(&mut Answer)| {
        let (mut cursor, node) = scanning(4);
        let mut answer = node.answer(&cursor.ask()).unwrap();
        change(&mut answer);
        let decision = cursor.answer(answer, NOW);
        assert_eq!(drive(&mut cursor, &node).0.len(), 3);
        decision.next
    };
    assert_eq!(changed(&|_| {}), Next::Ask);
    assert_eq!(changed(&|answer| answer.blocks[3] = None), Next::Behind);
    assert_eq!(changed(&|answer| answer.blocks.truncate(4)), Next::Behind);
    let other = Next::Retry("the endpoint answered with another block");
    assert_eq!(changed(&|answer| answer.blocks.swap(2, 3)), other);
    let mut fork = scanning(4).1;
    fork.reorg(3, &[]);
    let header = |number| {
        let ask = Ask { blocks: vec![Point::Number(number)], ..Ask::default() };
        fork.answer(&ask).unwrap().blocks[0]
    };
    let parent = Next::Retry("the next block has another parent");
    assert_eq!(changed(&|answer| answer.blocks[3] = header(12)), parent);
    let forks = Next::Retry("logs and headers are of two forks");
    let hash = header(12).unwrap().block.hash;
    assert_eq!(changed(&|answer| answer.logs[0][0].block_hash = hash), forks);
}

#[test]
fn an_end_that_does_not_descend_from_our_last_block_is_refused() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[]);
    turn(&mut cursor, &node);
    let mut answer = node.answer(&cursor.ask()).unwrap();
    if let Some(end) = &mut answer.blocks[0] {
        end.parent = node.head().hash;
    }
    let decision = cursor.answer(answer, NOW);
    assert_eq!(decision.next, Next::Retry("the next block has another parent"));
    assert_eq!(short(&drive(&mut cursor, &node).0), [('h', 0, 11)]);
}

#[test]
fn empty_answers_never_panic_and_publish_nothing() {
    let mut node = Node::new(10);
    let mut cursor = cursor(finalized());
    for _ in 0..12 {
        let decision = cursor.answer(Answer::default(), NOW);
        assert_eq!(decision.publish, []);
        assert!(matches!(decision.next, Next::Retry(_) | Next::Behind | Next::Ask));
        turn(&mut cursor, &node);
        turn(&mut cursor, &node);
        let decision = cursor.answer(Answer::default(), NOW);
        assert_eq!(decision.publish, []);
        drive(&mut cursor, &node);
        node.mine(&[pay(1)]);
        turn(&mut cursor, &node);
    }
}

#[test]
fn failed_transactions_pay_nothing_where_they_keep_their_logs() {
    let mut node = Node::new(10);
    let mut cursor = cursor_with(|rules| rules.needs_receipts = true);
    drive(&mut cursor, &node);
    node.mine(&[[pay(1), pay(2)].concat(), pay(3)]);
    node.failed = vec![node.transfers_after(10)[0].1.tx_hash];
    node.mine(&[pay(4)]);
    while cursor.ask().receipts.is_empty() {
        turn(&mut cursor, &node);
    }
    let ask = cursor.ask();
    assert_eq!(ask.receipts.len(), 3);
    let answer = node.answer(&ask).unwrap();
    let changed = |change: &dyn Fn(&mut Answer)| {
        let mut cursor = cursor_with(|rules| {
            rules.needs_receipts = true;
            rules.start_block = Some(11);
        });
        while cursor.ask() != ask {
            turn(&mut cursor, &node);
        }
        let mut answer = answer.clone();
        change(&mut answer);
        cursor.answer(answer, NOW)
    };
    let check = |decision: &Decision| {
        assert_eq!(short(&decision.publish), [('t', 0, 11), ('t', 0, 12), ('h', 0, 12)]);
    };
    check(&changed(&|_| {}));
    assert_eq!(changed(&|answer| answer.receipts[1] = None), Next::Behind.into());
    assert_eq!(
        changed(&|answer| answer.receipts.truncate(2)),
        Next::Retry("the answer is incomplete").into()
    );
    let moved = changed(&|answer| {
        let block_hash = node.head().hash;
        answer.receipts[0] = Some(Receipt { block_hash, succeeded: true });
    });
    assert_eq!(moved, Next::Retry("a transaction moved during the step").into());
    check(&turn(&mut cursor, &node));
}

#[test]
fn size_refusals_shrink_the_range_and_success_widens_it() {
    let mut cursor = scan_from(1, 100);
    let mut node = Node::new(120);
    node.limit = Some((10, true));
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!(next, Next::AtTip);
    assert_eq!(records.last().map(|record| record.block), Some(node.head()));
    assert!(cursor.range_blocks() >= 10 && cursor.range_blocks() <= 13);
    // Without a hint it halves: 100, 50, 25, 12, 6.
    let mut cursor = scan_from(1, 100);
    node.limit = Some((10, false));
    open_scan(&mut cursor, &node);
    for expected in [50, 25, 12, 6] {
        assert_eq!(turn(&mut cursor, &node).next, Next::Ask);
        assert_eq!(cursor.range_blocks(), expected);
        turn(&mut cursor, &node);
    }
    let step = turn(&mut cursor, &node);
    assert_eq!(step.next, Next::Ask);
}

#[test]
fn refusals_lead_to_waits_and_a_single_block_cannot_shrink() {
    for (refusal, expected) in [
        (Refusal::Behind, Next::Behind),
        (Refusal::Rate, Next::Retry("the endpoint refuses")),
        (Refusal::Transient, Next::Retry("the endpoint refuses")),
        (Refusal::Fatal, Next::Retry("the endpoint refuses")),
        (Refusal::Timeout, Next::Retry("the endpoint does not answer in time")),
        (Refusal::Size { hint: None }, Next::Retry("a single block is too large for the endpoint")),
    ] {
        let (mut node, mut cursor) = followed(10);
        node.mine(&[pay(1)]);
        turn(&mut cursor, &node);
        assert_eq!(cursor.fail(refusal), expected);
        assert_eq!(short(&drive(&mut cursor, &node).0), [('t', 0, 11), ('h', 0, 11)]);
    }
}

#[test]
fn a_range_with_too_many_hits_is_split() {
    let mut cursor = scan_from(1, 1000);
    let mut node = Node::new(0);
    for _ in 0..300 {
        node.mine(&[pay(1)]);
    }
    let mut steps = Vec::new();
    loop {
        let decision = turn(&mut cursor, &node);
        if decision.publish.iter().any(|record| matches!(record.body, ChainBody::Transfer(_))) {
            steps.push(decision.publish.len() - 1);
        }
        if decision.next == Next::AtTip {
            break;
        }
    }
    assert_eq!(steps.iter().sum::<usize>(), 300);
    assert!(steps.iter().all(|transfers| *transfers <= 200), "{steps:?}");
}

#[test]
fn tags_confirm_without_a_new_block_and_never_take_back() {
    let mut node = Node::new(20);
    let mut cursor = cursor(finalized());
    node.tags = false;
    let (records, _) = drive(&mut cursor, &node);
    assert_eq!(heights(&records), (-1, 12));
    node.tags = true;
    let (records, _) = drive(&mut cursor, &node);
    assert_eq!(short(&records), [('h', 0, 20)]);
    assert_eq!(heights(&records), (13, 12));
    // The tag vanishes: what it confirmed stays confirmed.
    node.tags = false;
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
    node.mine(&[]);
    assert_eq!(heights(&drive(&mut cursor, &node).0), (13, 12));
}

#[test]
fn a_tag_counts_only_for_blocks_that_were_scanned_before_it_was_asked() {
    let mut node = Node::new(10);
    let mut cursor = at_tip(finalized(), &node);
    assert_eq!(cursor.history().unwrap().head().confirmed[0].number, 3);
    for _ in 0..20 {
        node.mine(&[]);
    }
    // The tag is at 23; each step may only use what it said of blocks known by then.
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!(next, Next::AtTip);
    let height = |record| heights(std::slice::from_ref(record)).0;
    let confirmed: Vec<_> = records.iter().map(|r| (r.block.number, height(r))).collect();
    assert_eq!(confirmed, [(15, 10), (20, 15), (25, 20), (30, 23)]);
}

#[test]
fn after_a_rewind_old_tags_confirm_nothing_new() {
    let mut node = Node::new(20);
    let mut cursor = at_tip(Policy::flat(None, Some(Tag::Safe)), &node);
    assert_eq!(cursor.history().unwrap().head().confirmed[0].number, 18);
    // The safe block itself is replaced.
    node.reorg(4, &[]);
    let (records, _) = drive(&mut cursor, &node);
    let height = |record| heights(std::slice::from_ref(record)).0;
    let confirmed: Vec<_> = records.iter().map(|r| (r.block.number, height(r))).collect();
    assert_eq!(confirmed, [(16, 16), (21, 16), (21, 19)]);
}

#[test]
fn nothing_is_rewound_below_what_was_published_as_finalized() {
    let mut node = Node::new(12);
    let mut records = drive(&mut cursor(depth(3)), &node).0;
    for _ in 0..5 {
        node.mine(&[]);
    }
    // A finalized height between two anchors.
    let mut last = records[records.len() - 1].clone();
    last.block = node.head();
    let ChainBody::Head(head) = &mut last.body else { panic!() };
    head.finalized = 15;
    records.push(last);
    let history = records.iter().fold(None, History::fold);
    let mut cursor = Cursor::new(rules(depth(3)), history, Vec::new());
    node.reorg(3, &[]);
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!(records, []);
    let reason = "the endpoint is on a chain that leaves ours below finality";
    assert_eq!(next, Next::Retry(reason));
}

#[test]
fn finalized_is_always_a_height_that_a_rewind_can_reach() {
    let mut cursor = scan_from(1, 5);
    let (records, _) = drive(&mut cursor, &Node::new(33));
    let heads: Vec<_> = records
        .iter()
        .map(|record| (record.block.number, heights(std::slice::from_ref(record)).1))
        .collect();
    // Steps of five, a window of eight: the newest anchor at or below number - 8.
    assert_eq!(heads, [(0, -1), (5, -1), (10, 0), (15, 5), (20, 10), (25, 15), (30, 20), (33, 25)]);
}

#[test]
fn a_lag_keeps_clear_of_logs_that_trail_their_headers() {
    // Silently truncated answers: a single endpoint cannot be seen through, except by distance.
    for (lag, published) in [(0, 0), (1, 1)] {
        let mut node = Node::new(10);
        node.logs_lag = 1;
        let mut cursor = cursor_with(|rules| rules.lag = lag);
        drive(&mut cursor, &node);
        node.mine(&[pay(1)]);
        drive(&mut cursor, &node);
        node.mine(&[]);
        drive(&mut cursor, &node);
        let history = cursor.history().unwrap();
        assert_eq!(history.last().number, 12 - lag);
        assert_eq!(history.above(0).count(), published, "lag {lag}");
    }
}

#[test]
fn a_head_has_the_time_of_what_is_confirmed() {
    let (mut node, mut cursor) = (Node::new(12), cursor(depth(3)));
    for _ in 0..5 {
        drive(&mut cursor, &node);
        node.mine(&[]);
    }
    let ChainBody::Head(head) = &drive(&mut cursor, &node).0[0].body else { panic!() };
    assert_eq!(head.confirmed[0].timestamp, Some(node.head().timestamp.plus(-24)), "two blocks");
}
