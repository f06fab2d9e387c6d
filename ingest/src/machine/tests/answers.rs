//! Reactions of the cursor to answers that contradict each other, are incomplete, or refuse.

use schemas::Hash;

use super::*;

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
        let decision = cursor.answer(answer, now());
        assert_eq!(decision.publish, []);
        // Nothing was lost: receipts settle the difference, or the same step is done again.
        let (records, _) = drive(&mut cursor, &node);
        assert_eq!(short(&records), [('t', 0, 11), ('h', 0, 12)]);
        assert!(history(&cursor).head().held.is_empty());
        decision.next
    };
    assert_eq!(changed(&|answer| answer.logs[0].clear()), Next::Ask);
    assert_eq!(changed(&|answer| answer.logs[0][0].data[31] += 1), Next::Ask);
    let extra = answer.logs[0][0].clone();
    let end = node.head();
    let late = EventLog { block_number: end.number, block_hash: end.hash, ..extra };
    assert_eq!(changed(&|answer| answer.logs[1].push(late.clone())), Next::Ask);

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
    // A log with another index is the same log.
    let mut answer = answer.clone();
    answer.logs[0][0].log_index += 7;
    assert_eq!(short(&scanned().answer(answer, now()).publish), [('t', 0, 11), ('h', 0, 12)]);
}

/// A cursor with the scan of blocks 11 to the head open, and the node: payments in 12 and 14.
fn scanning(blocks: usize) -> (Cursor, Node) {
    let mut node = Node::new(11);
    node.mine(&[pay(1)]);
    node.mine(&[]);
    node.mine(&[pay(2)]);
    node.grow(blocks - 4);
    let mut cursor = scan_from(11, 20);
    open_scan(&mut cursor, &node);
    (cursor, node)
}

#[test]
fn short_ranges_fetch_each_block_long_ones_each_hit() {
    let points = |numbers: &[i64]| numbers.iter().copied().map(Point::Number).collect::<Vec<_>>();
    for (blocks, scan, verify) in [
        (4, vec![14, 10, 11, 12, 13], vec![10, 11, 12, 13, 14]),
        (16, [vec![26, 10], (11..26).collect()].concat(), (10..=26).collect()),
        (17, vec![27, 10, 11], vec![10, 12, 14, 27]),
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
    for left_out in [&[12][..], &[14], &[12, 14]] {
        for blocks in [4, 16] {
            let (mut cursor, node) = scanning(blocks);
            let mut answer = node.answer(&cursor.ask()).unwrap();
            answer.logs[0].retain(|log| !left_out.contains(&log.block_number));
            assert_eq!(cursor.answer(answer, now()), Next::Ask.into());
            let decision = turn(&mut cursor, &node);
            assert_eq!(kinds(&decision), ["contradiction"], "{left_out:?} {blocks}");
            // Nothing was lost: receipts prove the logs.
            let mut published = drive(&mut cursor, &node).0;
            published.extend(drive(&mut cursor, &node).0);
            let end = node.head().number;
            // The last head comes after the second check.
            let whole = [('t', 0, 12), ('t', 0, 14), ('h', 0, end), ('h', 0, end)];
            assert_eq!(short(&published), whole);
        }
    }
    // The documented limit: in a longer range a block without any log is not fetched again.
    let (mut cursor, node) = scanning(17);
    let mut answer = node.answer(&cursor.ask()).unwrap();
    answer.logs[0].retain(|log| log.block_number != 12);
    cursor.answer(answer, now());
    assert_eq!(short(&turn(&mut cursor, &node).publish), [('t', 0, 14), ('h', 0, 27)]);
}

/// Reactions to a changed scan of [`scanning`], after which both payments and a head are published all the same.
fn scanned(blocks: usize, change: &dyn Fn(&mut Answer)) -> (Cursor, Node, Next) {
    let (mut cursor, node) = scanning(blocks);
    let mut answer = node.answer(&cursor.ask()).unwrap();
    change(&mut answer);
    let next = cursor.answer(answer, now()).next;
    assert_eq!(drive(&mut cursor, &node).0.len(), 3);
    (cursor, node, next)
}

#[test]
fn the_headers_of_a_short_range_are_one_chain() {
    let changed = |change: &dyn Fn(&mut Answer)| {
        let (mut cursor, node, next) = scanned(4, change);
        assert_eq!(drive(&mut cursor, &node).0.len(), 1, "the head after the second check");
        next
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
fn a_long_range_begins_after_our_last_block() {
    let changed = |change: &dyn Fn(&mut Answer)| scanned(17, change).2;
    assert_eq!(changed(&|_| {}), Next::Ask);
    let parent = Next::Retry("the next block has another parent");
    let other = |answer: &mut Answer| answer.blocks[2].as_mut().unwrap().parent = Hash([9; 32]);
    assert_eq!(changed(&other), parent);
    assert_eq!(changed(&|answer| answer.blocks[2] = None), Next::Behind);
    let forks = Next::Retry("logs and headers are of two forks");
    assert_eq!(changed(&|answer| answer.logs[0][0].block_number = 11), forks);
}

#[test]
fn end_must_descend_from_our_last_block() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[]);
    turn(&mut cursor, &node);
    let mut answer = node.answer(&cursor.ask()).unwrap();
    if let Some(end) = &mut answer.blocks[0] {
        end.parent = node.head().hash;
    }
    let decision = cursor.answer(answer, now());
    assert_eq!(decision.next, Next::Retry("the next block has another parent"));
    assert_eq!(short(&drive(&mut cursor, &node).0), [('h', 0, 11)]);
}

#[test]
fn empty_answers_never_panic_and_publish_nothing() {
    let mut node = Node::new(10);
    let mut cursor = cursor(finalized());
    for _ in 0..12 {
        let decision = cursor.answer(Answer::default(), now());
        assert_eq!(decision.publish, []);
        assert!(matches!(decision.next, Next::Retry(_) | Next::Behind | Next::Ask));
        turn(&mut cursor, &node);
        turn(&mut cursor, &node);
        let decision = cursor.answer(Answer::default(), now());
        assert_eq!(decision.publish, []);
        drive(&mut cursor, &node);
        node.mine(&[pay(1)]);
        turn(&mut cursor, &node);
    }
}

#[test]
fn failed_transactions_pay_nothing() {
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
        cursor.answer(answer, now())
    };
    let check = |decision: &Decision| {
        assert_eq!(short(&decision.publish), [('t', 0, 11), ('t', 0, 12), ('h', 0, 12)]);
    };
    check(&changed(&|_| {}));
    assert_eq!(changed(&|answer| answer.receipts[1] = Proof::Unknown), Next::Behind.into());
    assert_eq!(
        changed(&|answer| answer.receipts.truncate(2)),
        Next::Retry("the answer is incomplete").into()
    );
    let moved = changed(&|answer| {
        let block_hash = node.head().hash;
        let receipt = Receipt { block_hash, succeeded: true, logs: Vec::new() };
        answer.receipts[0] = Proof::Receipt(receipt);
    });
    assert_eq!(moved, Next::Retry("a transaction moved during the step").into());
    let lacking = changed(&|answer| {
        let Proof::Receipt(receipt) = &mut answer.receipts[1] else { panic!() };
        receipt.logs.clear();
    });
    assert_eq!(lacking, Next::Retry("a receipt lacks a log of its transaction").into());
    check(&turn(&mut cursor, &node));
}

#[test]
fn size_refusals_shrink_the_range_success_widens_it() {
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
fn refusals_lead_to_waits_and_a_block_cannot_shrink() {
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
fn range_refused_in_any_words_shrinks() {
    let hint = |hint| Refusal::Size { hint };
    for (refusal, ranges) in [
        (Refusal::Behind, [100, 100, 50, 50]),
        (Refusal::Rate, [100, 100, 50, 50]),
        (Refusal::Transient, [100, 100, 50, 50]),
        (Refusal::Fatal, [100, 100, 50, 50]),
        (Refusal::Timeout, [50, 25, 12, 6]),
        (hint(None), [50, 25, 12, 6]),
        // The hint begins elsewhere, so only its length counts.
        (hint(Some((500, 509))), [10, 5, 2, 1]),
    ] {
        let mut cursor = scan_from(1, 100);
        let node = Node::new(120);
        let refused = [(); 4].map(|()| {
            open_scan(&mut cursor, &node);
            cursor.fail(refusal);
            cursor.range_blocks()
        });
        assert_eq!(refused, ranges, "{refusal:?}");
    }
    // A single block cannot shrink, and its refusals do not shrink later ranges.
    let (mut node, mut cursor) = followed(10);
    node.mine(&[]);
    for _ in 0..6 {
        open_scan(&mut cursor, &node);
        cursor.fail(Refusal::Rate);
    }
    assert_eq!(cursor.range_blocks(), 5);
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
