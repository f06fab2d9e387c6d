//! Limits of one endpoint's word: replaced blocks lose their proofs, no endpoint is its own witness, and what one alone
//! denies stays held.

use super::*;
use crate::simulation::FORGED;

/// Asks the only node that answers, until there is a reason to wait. `is_alone` selects the questions whose answers
/// come from the scanner itself. Returns all decisions in one.
fn drive_one(cursor: &mut Cursor, node: &Node, is_alone: impl Fn(&Ask) -> bool) -> Decision {
    let (mut whole, now) = (Decision::from(Next::Ask), now());
    for _ in 0..200 {
        let ask = cursor.ask();
        let mut answer = node.answer(&ask).unwrap();
        (answer.is_first, answer.is_alone) = (ask.role != Role::First, is_alone(&ask));
        let decision = cursor.answer(answer, now);
        let next = decision.next.clone();
        add(&mut whole, decision);
        if next != Next::Ask {
            return Decision { next, ..whole };
        }
    }
    panic!("the cursor never waits");
}

#[test]
fn replaced_blocks_take_their_proofs_along() {
    let mut pair = Pair::new(20, |rules| (rules.policy, rules.idle_polls) = (depth(2), 5));
    // An idle time, then empty blocks: checks advance beyond the last published head.
    for _ in 0..8 {
        pair.drive();
    }
    let published = history(&pair.cursor).last().number;
    while pair.cursor.checked() <= published {
        for _ in 0..3 {
            pair.mine(&[]);
        }
        pair.drive();
        assert_eq!(history(&pair.cursor).last().number, published, "a head came first");
    }
    let depth = usize::try_from(pair.a.head().number - published).unwrap();
    pair.a.reorg(depth, &[]);
    turn_by(&mut pair.cursor, &pair.a, &pair.b);
    assert!(pair.cursor.checked() <= published && pair.cursor.vouched() <= published);
}

#[test]
fn an_endpoint_is_not_its_own_witness() {
    let mut pair = Pair::new(10, |_| ());
    pair.mine(&[pay(1)]);
    pair.b.forge(Payment { wallet: 1, value: 9 });
    pair.b.forges_receipts = true;
    for _ in 0..6 {
        pair.mine(&[]);
        loop {
            let ask = pair.cursor.ask();
            // The first endpoint only scans; the other one answers all else.
            let node = if ask.role == Role::First { &pair.a } else { &pair.b };
            let mut answer = node.answer(&ask).unwrap();
            answer.is_alone = ask.role == Role::Witness;
            if pair.cursor.answer(answer, now()).next != Next::Ask {
                break;
            }
        }
    }
    assert!(pair.confirmed() < 11 || pair.holds(FORGED), "{}", pair.confirmed());
}

#[test]
fn what_one_alone_denies_stays_held() {
    let mut pair = Pair::new(10, |_| ());
    pair.mine(&[]);
    pair.a.forge(Payment { wallet: 1, value: 9 });
    pair.a.forges_receipts = true;
    pair.drive();
    while !pair.holds(FORGED) {
        pair.blocks(1);
    }
    // The endpoint that forges the transfer is gone.
    let Pair { mut b, mut cursor, .. } = pair;
    let mut published = Vec::new();
    for _ in 0..300 {
        published.extend(drive_one(&mut cursor, &b, |ask| ask.role != Role::First).publish);
        b.mine(&[]);
    }
    assert!(short(&published).iter().all(|record| record.0 != 'r'), "{:?}", short(&published));
    assert!(holds(&cursor, FORGED));
}

#[test]
fn one_that_is_always_behind_confirms_all_the_same() {
    for policy in [depth(2), finalized()] {
        let mut pair = Pair::new(20, |rules| rules.policy = policy);
        pair.mine(&[pay(1)]);
        for _ in 0..30 {
            pair.mine(&[]);
            drive_by(&mut pair.cursor, &pair.a, &pair.b.without(3));
        }
        assert!(pair.confirmed() >= 21, "{}", pair.confirmed());
    }
}

#[test]
fn only_small_payments_count_as_confirmed_alone() {
    let mut pair = Pair::new(10, |rules| rules.alone_below = Amount::parse("1").unwrap());
    pair.mine(&[pay(1)]);
    pair.mine(&[pay(1_000_000)]);
    let Pair { mut a, mut cursor, .. } = pair;
    for _ in 0..20 {
        a.mine(&[]);
        drive_one(&mut cursor, &a, |ask| ask.role != Role::First);
    }
    assert_eq!(cursor.confirmed_alone(), 1);
}

/// A payment that both endpoints have, small enough for one to confirm it alone, scanned before a change of the
/// scanner.
fn switched() -> Pair {
    let mut pair = Pair::new(10, |rules| rules.alone_below = Amount::parse("1").unwrap());
    pair.mine(&[pay(1)]);
    pair.drive();
    pair.cursor.switch();
    pair
}

/// The endpoint that scanned a payment is gone, and the other one has checked it.
#[test]
fn the_one_that_is_left_confirms_what_it_checked() {
    let Pair { a, mut b, mut cursor } = switched();
    let scanned_by_a = a.head().number;
    let is_alone = |ask: &Ask| ask.about.is_some_and(|from| from > scanned_by_a);
    let mut notes = Vec::new();
    for _ in 0..20 {
        b.mine(&[]);
        notes.extend(kinds(&drive_one(&mut cursor, &b, is_alone)));
    }
    assert!(confirmed(&cursor) >= scanned_by_a, "{}", confirmed(&cursor));
    assert_eq!(notes, ["alone"]);
}

/// The remaining endpoint scanned a block, and the lost one scanned the next.
#[test]
fn a_check_by_two_above_one_of_one_counts() {
    let mut pair = switched();
    pair.mine(&[pay(1)]);
    let Pair { mut a, b, mut cursor } = pair;
    drive_by(&mut cursor, &b, &a);
    cursor.switch();
    let scanned_by_b = a.head().number;
    for _ in 0..20 {
        a.mine(&[]);
        drive_one(&mut cursor, &a, |ask| ask.about.is_some_and(|from| from != scanned_by_b));
    }
    assert!(confirmed(&cursor) > scanned_by_b, "{}", confirmed(&cursor));
}
