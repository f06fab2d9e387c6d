//! Chains whose logs alone prove nothing, such as Tron: a failed transaction may keep them.

use super::*;

#[test]
fn what_failed_at_one_endpoint_is_not_confirmed() {
    let mut pair = Pair::new(10, |rules| rules.needs_receipts = true);
    pair.mine(&[pay(1)]);
    pair.b.failed = vec![pair.a.transfers_after(10)[0].1.tx_hash];
    let play = |pair: &mut Pair| {
        let decided = pair.blocks(20);
        let below = pair.a.head().number - pair.confirmed();
        (short(&decided.publish), kinds(&decided), below)
    };
    let (published, notes, below) = play(&mut pair);
    // A held transfer is confirmed at no height.
    assert_eq!((published[0], notes, below), (('t', 0, 11), vec!["disputed"], 2));
    pair.b.failed.clear();
    let (published, notes, below) = play(&mut pair);
    assert!(published.iter().all(|record| record.0 == 'h'), "{published:?}");
    assert_eq!((notes, below), (vec![""; 0], 2));
    // A transaction that failed at both endpoints paid nothing.
    pair.mine(&[pay(2)]);
    let (paid, block) = (pair.a.transfers_after(10)[1].1.tx_hash, pair.a.head().number);
    pair.drive();
    (pair.a.failed, pair.b.failed) = (vec![paid], vec![paid]);
    let (published, notes, _) = play(&mut pair);
    assert!(published.contains(&('r', 1, block)), "{published:?}");
    assert_eq!(notes, ["forged"]);
}

#[test]
fn second_check_asks_for_outcomes_of_few_blocks() {
    let mut node = Node::new(60);
    let mut cursor = cursor_with(|rules| {
        rules.policy = finalized();
        (rules.needs_receipts, rules.range_max) = (true, 100);
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
    let mut pair = Pair::new(10, |rules| rules.needs_receipts = true);
    pair.mine(&[pay(1)]);
    pair.drive();
    let paid = pair.a.transfers_after(10)[0].1.tx_hash;
    let rules = Rules { needs_receipts: true, ..rules(depth(3)) };
    pair.cursor = Cursor::new(rules, pair.cursor.history().cloned(), Vec::new());
    pair.a.failed = vec![paid];
    let (mut asked, mut notes) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        pair.mine(&[]);
        loop {
            let ask = pair.cursor.ask();
            let asks = ask.receipts.iter().any(|outcome| outcome.transaction == paid);
            asked.extend(asks.then_some(ask.role));
            let decision = turn_by(&mut pair.cursor, &pair.a, &pair.b);
            notes.extend(kinds(&decision));
            if decision.next != Next::Ask {
                break;
            }
        }
    }
    assert_eq!(asked[..2], [Role::Second, Role::Witness]);
    assert_eq!(notes, ["disputed"]);
    assert!(pair.holds(paid));
    pair.a.failed.clear();
    pair.blocks(20);
    assert_eq!(pair.confirmed(), pair.a.head().number - 2);
}
