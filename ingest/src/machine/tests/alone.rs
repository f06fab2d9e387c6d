//! An endpoint alone may not prove by replaced blocks, be its own witness, or outrun the other.

use super::checks::holds;
use super::*;
use crate::simulation::FORGED;

fn nodes(height: usize) -> (Node, Node) {
    (Node::new(height), Node::new(height))
}

/// One question, of an endpoint beside which no other answers.
fn turn_alone(cursor: &mut Cursor, node: &Node, now: UnixMicros) -> Decision {
    let ask = cursor.ask();
    let mut answer = node.answer(&ask).unwrap();
    (answer.is_first, answer.is_alone) = (ask.role != Role::First, ask.role != Role::First);
    cursor.answer(answer, now)
}

fn drive_alone(cursor: &mut Cursor, node: &Node) -> Vec<ChainRecord> {
    let (mut published, now) = (Vec::new(), now());
    for _ in 0..200 {
        let decision = turn_alone(cursor, node, now);
        published.extend(decision.publish);
        if decision.next != Next::Ask {
            return published;
        }
    }
    panic!("the cursor never waits");
}

#[test]
fn replaced_blocks_take_their_proofs_along() {
    let (mut a, mut b) = nodes(20);
    let mut cursor = cursor_with(|rules| (rules.policy, rules.idle_polls) = (depth(2), 5));
    drive_by(&mut cursor, &a, &b);
    // Nothing happens for long, and then blocks without anything that waits.
    for _ in 0..8 {
        drive_by(&mut cursor, &a, &b);
    }
    let published = cursor.history().unwrap().last().number;
    while cursor.checked() <= published {
        for _ in 0..3 {
            mine([&mut a, &mut b], &[]);
        }
        drive_by(&mut cursor, &a, &b);
        assert_eq!(cursor.history().unwrap().last().number, published, "a head came first");
    }
    let depth = usize::try_from(a.head().number - published).unwrap();
    a.reorg(depth, &[]);
    turn_by(&mut cursor, &a, &b);
    assert!(cursor.checked() <= published && cursor.vouched() <= published);
}

#[test]
fn an_endpoint_is_not_its_own_witness() {
    let (mut a, mut b) = nodes(10);
    let mut cursor = cursor_with(|_| ());
    drive_by(&mut cursor, &a, &b);
    mine([&mut a, &mut b], &[pay(1)]);
    b.forge(Payment { wallet: 1, value: 9 });
    b.forges_receipts = true;
    for _ in 0..6 {
        mine([&mut a, &mut b], &[]);
        loop {
            let ask = cursor.ask();
            // The first endpoint only scans; the other one answers all else.
            let node = if ask.role == Role::First { &a } else { &b };
            let mut answer = node.answer(&ask).unwrap();
            answer.is_alone = ask.role == Role::Witness;
            if cursor.answer(answer, now()).next != Next::Ask {
                break;
            }
        }
    }
    assert!(confirmed(&cursor) < 11 || holds(&cursor, FORGED), "{}", confirmed(&cursor));
}

#[test]
fn what_one_alone_denies_stays_held() {
    let (mut a, mut b) = nodes(10);
    let mut cursor = cursor_with(|_| ());
    drive_by(&mut cursor, &a, &b);
    mine([&mut a, &mut b], &[]);
    a.forge(Payment { wallet: 1, value: 9 });
    a.forges_receipts = true;
    while !holds(&cursor, FORGED) {
        drive_by(&mut cursor, &a, &b);
        mine([&mut a, &mut b], &[]);
    }
    // The endpoint that forges the transfer is gone.
    let mut published = Vec::new();
    for _ in 0..300 {
        published.extend(drive_alone(&mut cursor, &b));
        b.mine(&[]);
    }
    assert!(short(&published).iter().all(|record| record.0 != 'r'), "{:?}", short(&published));
    assert!(holds(&cursor, FORGED));
}

#[test]
fn one_that_is_always_behind_confirms_all_the_same() {
    for policy in [depth(2), finalized()] {
        let (mut a, mut b) = nodes(20);
        let mut cursor = cursor_with(|rules| rules.policy = policy);
        drive_by(&mut cursor, &a, &b);
        mine([&mut a, &mut b], &[pay(1)]);
        for _ in 0..30 {
            mine([&mut a, &mut b], &[]);
            drive_by(&mut cursor, &a, &b.without(3));
        }
        assert!(confirmed(&cursor) >= 21, "{}", confirmed(&cursor));
    }
}

/// The endpoint that scanned a payment is gone, and the other one has checked it.
#[test]
fn the_one_that_is_left_confirms_what_it_checked() {
    let (mut a, mut b) = nodes(10);
    let mut cursor = cursor_with(|rules| rules.alone_below = Amount::parse("1").unwrap());
    drive_by(&mut cursor, &a, &b);
    mine([&mut a, &mut b], &[pay(1)]);
    drive_by(&mut cursor, &a, &b);
    let scanned_by_a = a.head().number;
    cursor.switch();
    let mut notes = Vec::new();
    for _ in 0..20 {
        b.mine(&[]);
        let now = now();
        loop {
            let ask = cursor.ask();
            let mut answer = b.answer(&ask).unwrap();
            answer.is_first = ask.role != Role::First;
            answer.is_alone = ask.about.is_some_and(|from| from > scanned_by_a);
            let decision = cursor.answer(answer, now);
            notes.extend(kinds(&decision));
            if decision.next != Next::Ask {
                break;
            }
        }
    }
    assert!(confirmed(&cursor) >= scanned_by_a, "{}", confirmed(&cursor));
    assert_eq!(notes, ["alone"]);
}

/// The remaining endpoint scanned a block, and the lost one scanned the next.
#[test]
fn a_check_by_two_above_one_of_one_counts() {
    let (mut a, mut b) = nodes(10);
    let mut cursor = cursor_with(|rules| rules.alone_below = Amount::parse("1").unwrap());
    drive_by(&mut cursor, &a, &b);
    mine([&mut a, &mut b], &[pay(1)]);
    drive_by(&mut cursor, &a, &b);
    cursor.switch();
    mine([&mut a, &mut b], &[pay(1)]);
    drive_by(&mut cursor, &b, &a);
    cursor.switch();
    let scanned_by_b = a.head().number;
    for _ in 0..20 {
        a.mine(&[]);
        let (now, mut questions) = (now(), 0);
        loop {
            let ask = cursor.ask();
            let mut answer = a.answer(&ask).unwrap();
            answer.is_first = ask.role != Role::First;
            answer.is_alone = ask.about.is_some_and(|from| from != scanned_by_b);
            questions += 1;
            assert!(questions < 200, "the cursor never waits");
            if cursor.answer(answer, now).next != Next::Ask {
                break;
            }
        }
    }
    assert!(confirmed(&cursor) > scanned_by_b, "{}", confirmed(&cursor));
}
