//! Effects of a reorganisation: retracts, and their limits.

use super::*;

#[test]
fn reorg_retracts_then_rewinds_then_continues() {
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
    assert_eq!(history(&cursor).epoch(), Epoch(1));
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
    // The first head confirmed up to 10: a rewind takes no confirmation back.
    assert_eq!(heights(&decision.publish), (10, 2));
    assert_eq!(decision.next, Next::Ask);
    let [Note::Rewound { from, to, retracted: 1 }] = decision.notes.as_slice() else { panic!() };
    assert_eq!((from.number, to.number), (11, 10));
}

#[test]
fn a_reorg_of_the_same_length_is_seen() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[pay(1)]);
    drive(&mut cursor, &node);
    node.reorg(1, &[None]);
    let same_length = node.without(1);
    let (records, _) = drive(&mut cursor, &same_length);
    assert_eq!(short(&records), [('r', 1, 11), ('h', 1, 10), ('h', 1, 11)]);
}

#[test]
fn an_endpoint_that_is_behind_is_waited_for() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[]);
    drive(&mut cursor, &node);
    assert_eq!(drive(&mut cursor, &node.without(1)), (Vec::new(), Next::Behind));
    // Even if it is on another chain: a lower endpoint proves no reorganisation.
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
fn head_below_ours_is_no_evidence_of_a_reorg() {
    let (mut node, mut cursor) = followed(10);
    node.reorg(1, &[]);
    let mut answer = node.answer(&cursor.ask()).unwrap();
    answer.blocks[0] = node.without(2).answer(&cursor.ask()).unwrap().blocks[0];
    assert_eq!(cursor.answer(answer, now()), Next::Behind.into());
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
fn reorg_below_the_window_halts() {
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
    let rewound = short(&drive(&mut cursor, &node).0);
    assert_eq!(rewound, [('h', 1, 22), ('h', 1, 27), ('h', 1, 31)]);
}

#[test]
fn search_of_many_anchors_takes_several_requests() {
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
fn after_a_rewind_old_tags_confirm_nothing_new() {
    let mut node = Node::new(20);
    let mut cursor = at_tip(Policy::flat(None, Some(Tag::Safe)), &node);
    node.grow(4);
    drive(&mut cursor, &node);
    assert_eq!(history(&cursor).head().confirmed[0].number, 22);
    // The safe block itself is replaced.
    node.reorg(4, &[]);
    let (records, _) = drive(&mut cursor, &node);
    let height = |record| heights(std::slice::from_ref(record)).0;
    let confirmed: Vec<_> = records.iter().map(|r| (r.block.number, height(r))).collect();
    assert_eq!(confirmed[..2], [(20, 20), (25, 20)]);
}

#[test]
fn nothing_finalized_is_rewound() {
    let mut node = Node::new(12);
    let mut records = drive(&mut cursor(depth(3)), &node).0;
    node.grow(5);
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
fn finalized_is_a_height_a_rewind_can_reach() {
    let mut cursor = scan_from(1, 5);
    let (records, _) = drive(&mut cursor, &Node::new(33));
    let heads: Vec<_> = records
        .iter()
        .map(|record| (record.block.number, heights(std::slice::from_ref(record)).1))
        .collect();
    // Steps of five, a window of eight: the newest anchor at or below number - 8.
    let scanned = [(0, -1), (5, -1), (10, 0), (15, 5), (20, 10), (25, 15), (30, 20), (33, 25)];
    assert_eq!(heads[..8], scanned);
}
