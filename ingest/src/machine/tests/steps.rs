//! Content of a step: ranges, heads, and what they confirm.

use super::*;

#[test]
fn first_start_is_at_the_head_with_anchors_below() {
    let node = Node::new(20);
    let (records, next) = drive(&mut cursor(depth(3)), &node);
    assert_eq!(next, Next::AtTip);
    assert_eq!(
        short(&records),
        [('h', 0, 12), ('h', 0, 16), ('h', 0, 18), ('h', 0, 19), ('h', 0, 20)]
    );
    assert_eq!(records[4].block, node.head());
    // The head is confirmed: without known transfers nothing can be unconfirmed.
    assert_eq!(heights(&records), (20, 12));
    let short_chain = Node::new(1);
    let (records, _) = drive(&mut cursor(depth(3)), &short_chain);
    assert_eq!(short(&records), [('h', 0, 0), ('h', 0, 1)]);
    assert_eq!(heights(&records), (1, -1));
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
fn transfer_says_if_its_steps_head_confirms_it() {
    let mut node = Node::new(5);
    (6..=10).for_each(|number| node.mine(&[pay(number)]));
    (11..=18).for_each(|_| node.mine(&[]));
    let mut cursor = cursor_with(|rules| {
        (rules.start_block, rules.range_max, rules.has_second) = (Some(1), 8, false);
    });
    let (records, _) = drive(&mut cursor, &node);
    let confirmed = |record: &&ChainRecord| record.confirmed;
    let seen = |records: &[ChainRecord]| records.iter().map(|r| r.block.number).collect::<Vec<_>>();
    let transfers: Vec<_> =
        records.iter().filter(|r| matches!(r.body, ChainBody::Transfer(_))).cloned().collect();
    assert_eq!(seen(&transfers), [6, 7, 8, 9, 10]);
    // The first step ends at 8, which is final, and confirms 6. The next one ends at 16, which is not: its blocks wait
    // for the second check.
    let confirmed: Vec<_> = records.iter().filter(confirmed).cloned().collect();
    assert_eq!(seen(&confirmed), [6]);
}

#[test]
fn step_asks_for_our_last_block_before_and_after() {
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
fn idle_heads_are_held_back_and_covered_by_the_next() {
    let mut node = Node::new(10);
    let mut cursor = idle(&node);
    node.mine(&[]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
    // Scanned blocks are not asked for again.
    node.mine(&[]);
    turn(&mut cursor, &node);
    assert_eq!(cursor.ask().logs, [Span::Range { from: 12, to: 12 }]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
    assert_eq!(short(&drive(&mut cursor, &node).0), [('h', 0, 12)]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
}

#[test]
fn no_head_is_held_back_while_a_transfer_waits() {
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
    // Three blocks confirm the transfer.
    node.mine(&[]);
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
}

#[test]
fn reorg_of_blocks_without_a_head_retracts_nothing() {
    let mut node = Node::new(10);
    let mut cursor = idle(&node);
    node.grow(2);
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
fn tags_confirm_without_a_new_block() {
    let mut node = Node::new(20);
    let mut cursor = cursor(finalized());
    node.tags = false;
    let (records, _) = drive(&mut cursor, &node);
    assert_eq!(heights(&records), (20, 12));
    for _ in 0..10 {
        node.mine(&[]);
        assert_eq!(heights(&drive(&mut cursor, &node).0).0, 20);
    }
    node.tags = true;
    let (records, _) = drive(&mut cursor, &node);
    assert_eq!(short(&records), [('h', 0, 30)]);
    assert_eq!(heights(&records), (23, 23));
    // The tag vanishes: what it confirmed stays confirmed, also after a restart.
    node.tags = false;
    assert_eq!(drive(&mut cursor, &node), (Vec::new(), Next::AtTip));
    for _ in 0..2 {
        node.mine(&[]);
        assert_eq!(heights(&drive(&mut cursor, &node).0), (23, 23));
        cursor = Cursor::new(rules(finalized()), cursor.history().cloned(), Vec::new());
    }
}

/// A head that comes before the endpoints have refused again must not end the gap: deposits would open.
#[test]
fn restart_within_a_gap_keeps_it() {
    let (node, mut cursor) = (Node::new(10), cursor(depth(3)));
    drive(&mut cursor, &node);
    assert_eq!(kinds(&cursor.report_gap(now())), ["gap"]);
    let mut restarted = Cursor::new(rules(depth(3)), cursor.history().cloned(), Vec::new());
    assert_eq!(restarted.report_gap(now()).publish, [], "it is known");
}

#[test]
fn tag_confirms_only_what_was_scanned_before_it() {
    let mut node = Node::new(10);
    let mut cursor = at_tip(finalized(), &node);
    assert_eq!(history(&cursor).head().confirmed[0].number, 10);
    node.grow(20);
    // The tag is at 23. A step may use it only up to the last block scanned before the step.
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!(next, Next::AtTip);
    let height = |record| heights(std::slice::from_ref(record)).0;
    let confirmed: Vec<_> = records.iter().map(|r| (r.block.number, height(r))).collect();
    assert_eq!(confirmed, [(15, 10), (20, 15), (25, 20), (30, 23)]);
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

/// Record times never decrease: without a bound a clock that jumped a year ahead would set the time of every later
/// record.
#[test]
fn a_clock_is_bounded_by_the_chain() {
    let (mut node, mut cursor) = followed(12);
    let mut publish = |node: &Node, now| loop {
        let answer = node.answer(&cursor.ask()).unwrap();
        let published = cursor.answer(answer, now).publish;
        if let Some(record) = published.last() {
            break record.observed_at;
        }
    };
    for (ahead, counted) in [(599, 599), (600, 600), (601, 600), (365 * 86_400, 600), (300, 300)] {
        // The blocks are farther apart than the maximum lead: so the previous record's time does not raise this
        // one's.
        node.mine_at(node.head().timestamp.plus(1000));
        let head = node.head().timestamp;
        let observed_at = publish(&node, head.plus(ahead).micros());
        assert_eq!(observed_at, head.plus(counted).micros(), "AHEAD_MAX_SECONDS: {ahead}");
    }
}

#[test]
fn short_chain_begins_at_its_first_block() {
    let mut node = Node::new(0);
    let mut cursor = cursor_with(|rules| rules.lag = 8);
    let (records, next) = drive(&mut cursor, &node);
    assert_eq!((short(&records), next), (vec![('h', 0, 0)], Next::AtTip));
    node.mine(&[pay(1)]);
    node.grow(8);
    assert_eq!(short(&drive(&mut cursor, &node).0), [('t', 0, 1), ('h', 0, 1)]);
}

/// Returns the number of questions until there is a reason to wait.
fn questions(cursor: &mut Cursor, node: &Node) -> usize {
    (1..100).find(|_| turn(cursor, node).next != Next::Ask).unwrap()
}

#[test]
fn live_block_costs_three_questions_idle_poll_one() {
    let mut node = Node::new(20);
    let mut cursor = cursor_with(|rules| (rules.policy, rules.idle_polls) = (depth(12), 5));
    drive(&mut cursor, &node);
    while questions(&mut cursor, &node) > 1 {}
    assert_eq!(questions(&mut cursor, &node), 1);
    node.mine(&[pay(1)]);
    assert_eq!(questions(&mut cursor, &node), 3);
    // The payment waits for its depth: nothing is asked about it before that.
    for _ in 0..3 {
        assert_eq!(questions(&mut cursor, &node), 1);
    }
    // Without anything that waits, another endpoint is asked with every fifth poll at most.
    let mut node = Node::new(60);
    let mut cursor = cursor_with(|rules| rules.idle_polls = 5);
    drive(&mut cursor, &node);
    let polls: Vec<_> = (0..12)
        .map(|_| {
            node.mine(&[]);
            questions(&mut cursor, &node)
        })
        .collect();
    assert!(polls.iter().filter(|count| **count > 3).count() <= 3, "{polls:?}");
}
