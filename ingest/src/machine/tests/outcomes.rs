//! Chains whose logs alone prove nothing, such as Tron: a failed transaction may keep them.

use super::*;

#[test]
fn what_failed_at_one_endpoint_is_not_confirmed() {
    let (mut a, mut b) = (Node::new(10), Node::new(10));
    let mut cursor = cursor_with(|rules| {
        (rules.needs_receipts, rules.has_second) = (true, true);
    });
    drive_by(&mut cursor, &a, &b);
    mine([&mut a, &mut b], &[pay(1)]);
    b.failed = vec![a.transfers_after(10)[0].1.tx_hash];
    let mut play = |a: &mut Node, b: &mut Node, rounds: u32| {
        let mut decided = Decision::from(Next::Ask);
        for _ in 0..rounds {
            let (decision, _) = drive_by(&mut cursor, a, b);
            decided.publish.extend(decision.publish);
            decided.notes.extend(decision.notes);
            mine([a, b], &[]);
        }
        (short(&decided.publish), kinds(&decided), confirmed(&cursor))
    };
    let (published, notes, to) = play(&mut a, &mut b, 20);
    // A held transfer is confirmed at no height.
    assert_eq!((published[0], notes, to), (('t', 0, 11), vec!["disputed"], a.head().number - 3));
    b.failed.clear();
    let (published, notes, to) = play(&mut a, &mut b, 20);
    assert!(published.iter().all(|record| record.0 == 'h'), "{published:?}");
    assert_eq!((notes, to), (vec![""; 0], a.head().number - 3));
    // A transaction that failed at both endpoints was no payment.
    mine([&mut a, &mut b], &[pay(2)]);
    let (paid, block) = (a.transfers_after(10)[1].1.tx_hash, a.head().number);
    play(&mut a, &mut b, 1);
    (a.failed, b.failed) = (vec![paid], vec![paid]);
    let (published, notes, _) = play(&mut a, &mut b, 20);
    assert!(published.contains(&('r', 1, block)), "{published:?}");
    assert_eq!(notes, ["forged"]);
}

#[test]
fn second_check_asks_for_outcomes_of_few_blocks() {
    let mut node = Node::new(60);
    let mut cursor = cursor_with(|rules| {
        rules.policy = finalized();
        (rules.needs_receipts, rules.has_second, rules.range_max) = (true, true, 100);
    });
    drive(&mut cursor, &node);
    node.mine(&[pay(1)]);
    let mut asked: Vec<(Role, Vec<Outcome>)> = Vec::new();
    for round in 0..60 {
        loop {
            let ask = cursor.ask();
            if !ask.receipts.is_empty() {
                asked.push((ask.role, ask.receipts));
            }
            if turn(&mut cursor, &node).next != Next::Ask {
                break;
            }
        }
        // After the first round many blocks come at once, as after an outage.
        for _ in 0..24 {
            let payments = if round == 0 { pay(1) } else { Vec::new() };
            node.mine(&[payments]);
        }
    }
    let (first, second): (Vec<_>, Vec<_>) =
        asked.into_iter().partition(|(role, _)| *role == Role::First);
    assert!(!first[0].1[0].is_final, "at the tip nothing is");
    assert!(second.iter().flat_map(|(_, asked)| asked).all(|outcome| outcome.is_final));
    let counts: Vec<_> = second.iter().map(|(_, asked)| asked.len()).collect();
    assert!(
        counts.iter().all(|count| *count <= 20) && counts.iter().sum::<usize>() == 25,
        "{counts:?}"
    );
}

/// The scanner before a restart is unknown: both must prove what waits.
#[test]
fn after_a_restart_two_endpoints_prove_what_waits() {
    let rules = || {
        let rules = rules(depth(3));
        Rules { needs_receipts: true, has_second: true, ..rules }
    };
    let (mut a, mut b) = (Node::new(10), Node::new(10));
    let mut cursor = Cursor::new(rules(), None, Vec::new());
    drive(&mut cursor, &a);
    mine([&mut a, &mut b], &[pay(1)]);
    drive_by(&mut cursor, &a, &b);
    let paid = a.transfers_after(10)[0].1.tx_hash;
    let mut cursor = Cursor::new(rules(), cursor.history().cloned(), Vec::new());
    a.failed = vec![paid];
    let (mut asked, mut notes) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        mine([&mut a, &mut b], &[]);
        loop {
            let ask = cursor.ask();
            let asks = ask.receipts.iter().any(|outcome| outcome.transaction == paid);
            asked.extend(asks.then_some(ask.role));
            let decision = turn_by(&mut cursor, &a, &b);
            notes.extend(kinds(&decision));
            if decision.next != Next::Ask {
                break;
            }
        }
    }
    assert_eq!(asked[..2], [Role::Second, Role::Witness]);
    assert_eq!(notes, ["disputed"]);
    assert!(checks::holds(&cursor, paid));
    a.failed.clear();
    for _ in 0..20 {
        mine([&mut a, &mut b], &[]);
        drive_by(&mut cursor, &a, &b);
    }
    assert_eq!(confirmed(&cursor), a.head().number - 2);
}
