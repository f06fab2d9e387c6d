//! Second check: findings, retracts, and delayed confirmations.

use std::time::Duration;

use schemas::Hash;
use schemas::record::example;

use super::*;
use crate::ChainConfig;
use crate::simulation::FORGED;

/// A cursor at block 10 of two endpoints.
fn two() -> Pair {
    Pair::new(10, |_| ())
}

/// A transfer in block 11 that the first endpoint leaves out for ever.
fn omitted() -> Pair {
    let mut pair = two();
    pair.mine(&[pay(1), pay(3)]);
    pair.a.omitted = vec![pair.a.transfers_after(10)[1].1.tx_hash];
    pair
}

#[test]
fn left_out_transfer_is_found_before_confirmation() {
    let mut pair = omitted();
    let (first, checks) = pair.drive();
    assert_eq!((short(&first.publish), checks), (vec![('t', 0, 11), ('h', 0, 11)], vec![]));
    pair.blocks(1);
    pair.mine(&[]);
    let (found, checks) = pair.drive();
    assert_eq!(checks[0], (11, 11));
    assert_eq!(short(&found.publish), [('t', 0, 11), ('h', 0, 12), ('h', 0, 13)]);
    assert_eq!((kinds(&found), pair.confirmed()), (vec!["late find"], 11));
    // The transfers as the chain has them, each once.
    assert_eq!(pair.live(), pair.b.transfers_after(10));
}

#[test]
fn nothing_is_confirmed_that_was_not_checked_again() {
    let mut pair = two();
    pair.mine(&[pay(1)]);
    let behind = pair.b.without(1);
    for _ in 0..6 {
        pair.mine(&[]);
        // The second endpoint stays behind; the scan continues.
        let (decision, _) = drive_by(&mut pair.cursor, &pair.a, &behind);
        assert_eq!(decision.next, Next::AtTip);
        assert_eq!((history(&pair.cursor).last(), pair.confirmed()), (pair.a.head(), 10));
    }
    pair.blocks(20);
    assert_eq!(pair.confirmed(), pair.a.head().number - 2);
}

#[test]
fn fork_of_one_endpoint_holds_confirmation() {
    let mut pair = two();
    pair.mine(&[pay(1)]);
    pair.b.reorg(1, &[]);
    // Three checks in nine blocks: the second endpoint is asked less and less often.
    assert_eq!(kinds(&pair.blocks(9)), ["fork"; 3]);
    assert_eq!((pair.confirmed(), history(&pair.cursor).epoch()), (10, Epoch(0)));
}

/// A block of another fork, without payments, says nothing about our fork's block.
#[test]
fn outcomes_of_another_fork_check_nothing() {
    let mut pair = omitted();
    pair.mine(&[]);
    pair.mine(&[]);
    while second_check(&pair.cursor).is_none() {
        turn_by(&mut pair.cursor, &pair.a, &pair.b);
    }
    let mut answer = pair.b.answer(&pair.cursor.ask()).unwrap();
    answer.by_receipts = true;
    answer.logs.iter_mut().for_each(Vec::clear);
    answer.read.iter_mut().for_each(|(_, hash)| *hash = Hash([9; 32]));
    assert_eq!(kinds(&pair.cursor.answer(answer, now())), ["contradiction"]);
    pair.blocks(2);
    assert_eq!(pair.live(), pair.b.transfers_after(10));
}

#[test]
fn a_check_that_is_refused_stops_nothing() {
    for refusal in [Refusal::Rate, Refusal::Behind, Refusal::Fatal, Refusal::Size { hint: None }] {
        let (mut node, mut cursor) = followed(10);
        node.mine(&[pay(1)]);
        drive(&mut cursor, &node);
        node.grow(2);
        while second_check(&cursor).is_none() {
            turn(&mut cursor, &node);
        }
        assert_eq!(cursor.fail(refusal), Next::Ask, "{refusal:?}");
        let (records, next) = drive(&mut cursor, &node);
        assert_eq!((short(&records), next), (vec![('h', 0, 13)], Next::AtTip));
        for _ in 0..3 {
            drive(&mut cursor, &node);
        }
        assert_eq!(confirmed(&cursor), 11, "{refusal:?}");
    }
}

/// The chain is polled every 12 s, like Ethereum.
#[test]
fn refusals_put_a_check_off_for_half_a_minute() {
    let (poll_interval, wait_max) = (Duration::from_secs(12), Duration::from_secs(30));
    let polled = ChainConfig { poll_interval, ..chain(depth(3)) };
    let rules = Rules { idle_polls: 0, has_second: true, ..polled.rules() };
    let (mut node, mut cursor) = (Node::new(10), Cursor::new(rules, None, Vec::new()));
    drive(&mut cursor, &node);
    let (mut waits, mut polls) = (Vec::new(), 0);
    for _ in 0..60 {
        node.mine(&[pay(1)]);
        loop {
            let next = if second_check(&cursor).is_some() {
                waits.push(std::mem::take(&mut polls));
                cursor.fail(Refusal::Rate)
            } else {
                turn(&mut cursor, &node).next
            };
            if next != Next::Ask {
                break;
            }
        }
        polls += 1;
    }
    let is_short = |polls: &u32| poll_interval * *polls <= wait_max;
    assert!(waits.len() > 20 && waits[1..].iter().all(is_short), "{waits:?}");
}

#[test]
fn a_check_of_a_long_range_is_split() {
    let mut node = Node::new(60);
    node.limit = Some((4, true));
    let mut cursor = scan_from(41, 20);
    drive(&mut cursor, &Node::new(60));
    node.grow(3);
    let mut unlimited = node.clone();
    unlimited.limit = None;
    let (_, checks) = drive_by(&mut cursor, &unlimited, &node);
    assert_eq!(checks[..3], [(41, 60), (41, 44), (45, 50)]);
    drive_by(&mut cursor, &unlimited, &node);
    assert_eq!(confirmed(&cursor), 61);
}

#[test]
fn a_check_refused_in_any_words_shrinks() {
    let mut node = Node::new(60);
    let mut cursor = scan_from(41, 20);
    drive(&mut cursor, &node);
    let (mut asked, often) = (Vec::new(), cursor::REFUSED_MAX as usize);
    while asked.len() < 2 * often + 1 {
        if let Some((from, to)) = second_check(&cursor) {
            asked.push(to - from + 1);
            cursor.fail(Refusal::Rate);
        } else if turn(&mut cursor, &node).next == Next::AtTip {
            node.mine(&[]);
        }
    }
    assert_eq!(asked, [vec![20; often], vec![10; often], vec![5]].concat());
}

#[test]
fn what_the_second_endpoint_leaves_out_stays() {
    let mut pair = two();
    pair.mine(&[pay(1), pay(3)]);
    pair.b.omitted = vec![pair.b.transfers_after(10)[1].1.tx_hash];
    pair.drive();
    pair.mine(&[]);
    let decision = pair.blocks(1);
    assert_eq!((kinds(&decision), pair.confirmed()), (vec!["omitted"], 11));
    assert_eq!(short(&decision.publish), [('h', 0, 13)]);
}

/// A cursor that published a transfer which only the first endpoint shows, in block 12.
fn forged() -> Pair {
    let mut pair = two();
    pair.mine(&[pay(1)]);
    pair.mine(&[]);
    pair.a.forge(Payment { wallet: 1, value: 9 });
    let (decision, _) = pair.drive();
    assert_eq!(short(&decision.publish), [('t', 0, 11), ('t', 0, 12), ('h', 0, 12)]);
    pair.mine(&[]);
    pair
}

fn assert_held(pair: &Pair) {
    assert!(pair.confirmed() < 12 || pair.holds(FORGED));
}

#[test]
fn forged_transfer_is_retracted_never_confirmed() {
    let mut pair = forged();
    let mut published = Vec::new();
    for _ in 0..30 {
        let decision = pair.blocks(1);
        published.extend(decision.publish.clone());
        if !kinds(&decision).is_empty() {
            assert_eq!(kinds(&decision), ["forged"]);
            break;
        }
        assert_held(&pair);
    }
    let taken: Vec<_> = published.iter().filter(|r| r.epoch == Epoch(1)).cloned().collect();
    let ChainBody::Retract(seen) = &taken[0].body else { panic!("{taken:?}") };
    assert_eq!((seen.tx_hash, taken[0].block.number), (FORGED, 12));
    assert_eq!(short(&taken)[1], ('h', 1, taken[1].block.number));
    // The endpoint still invents the transfer; the blocks above are confirmed.
    pair.blocks(20);
    assert_eq!(history(&pair.cursor).epoch(), Epoch(1));
    assert_eq!(pair.confirmed(), pair.a.head().number - 2);
}

#[test]
fn dispute_holds_the_transfer_and_is_reported_once() {
    let mut pair = forged();
    pair.a.forges_receipts = true;
    assert_eq!(kinds(&pair.each_block(40, assert_held)), ["disputed"]);
    // All other transfers are confirmed.
    assert_eq!(pair.confirmed(), pair.a.head().number - 2);
    pair.a.forges_receipts = false;
    let published = pair.blocks(60).publish;
    assert!(short(&published).contains(&('r', 1, 12)));
    assert!(history(&pair.cursor).head().held.is_empty());
    assert_eq!(pair.confirmed(), pair.a.head().number - 2);
}

/// The clock is a day ahead for one poll.
#[test]
fn clock_set_back_puts_no_question_off() {
    let mut pair = forged();
    pair.a.forges_receipts = true;
    pair.blocks(10);
    assert!(pair.holds(FORGED));
    pair.a.forges_receipts = false;
    poll(&mut pair.cursor, &pair.a, 86_400_000_000);
    let published = pair.blocks(60).publish;
    assert!(short(&published).contains(&('r', 1, 12)));
}

/// Two payments of one transaction differ only in their log index; the published one keeps its ordinal.
#[test]
fn a_late_find_takes_no_position_of_another() {
    let mut pair = two();
    pair.mine(&[[pay(5), pay(5)].concat()]);
    pair.a.hidden_index = Some(0);
    let (first, _) = pair.drive();
    assert_eq!(short(&first.publish), [('t', 0, 11), ('h', 0, 11)]);
    pair.mine(&[]);
    pair.blocks(1);
    let live: Vec<_> = pair.live().iter().map(|(_, seen)| (seen.log_index, seen.ordinal)).collect();
    assert_eq!(live, [(0, 1), (1, 0)]);
}

/// Every log has the index 0, and the scan has only one of two equal logs, as logs trail their blocks.
#[test]
fn late_copies_under_one_number_are_found() {
    for by_receipts in [false, true] {
        let (mut node, mut cursor) = followed(10);
        node.mine(&[[pay(5), pay(5)].concat()]);
        node.grow(2);
        let mut published = Vec::new();
        for _ in 0..30 {
            let ask = cursor.ask();
            let mut answer = node.answer(&ask).unwrap();
            answer.by_receipts &= by_receipts;
            answer.is_first = ask.role == Role::Witness;
            answer.logs.iter_mut().flatten().for_each(|log| log.log_index = 0);
            if ask.role == Role::First {
                answer.logs.iter_mut().for_each(|logs| logs.truncate(1));
            }
            published.extend(cursor.answer(answer, now()).publish);
        }
        let seen = published.iter().filter_map(|record| match record.body {
            ChainBody::Transfer(seen) => Some(seen.ordinal),
            _ => None,
        });
        assert_eq!(seen.collect::<Vec<_>>(), [0, 1], "{by_receipts}");
        assert!(confirmed(&cursor) >= 11 && history(&cursor).head().held.is_empty());
    }
}

#[test]
fn each_contract_of_a_coin_has_positions_of_its_own() {
    let (_, cursor) = followed(10);
    let history = history(&cursor);
    let (block, seen) = (history.last(), example::transfer().observation);
    let bridged = Observation { contract: seen.to_address, log_index: seen.log_index + 1, ..seen };
    let ordinal = |new: &Observation| next_ordinal(history, block.number, new, &[(block, seen)]);
    assert_eq!((ordinal(&seen), ordinal(&bridged)), (seen.ordinal + 1, 0));
}

/// A wrong block time would let deposits expire too early, or too late.
#[test]
fn denied_block_time_ends_nothing() {
    let mut pair = two();
    let time = pair.a.head().timestamp;
    pair.a.mine_at(time.plus(3600));
    pair.b.mine_at(time.plus(12));
    let is_undenied = |pair: &Pair| {
        let shown = history(&pair.cursor).head().confirmed[0].timestamp;
        assert!(shown <= Some(pair.b.head().timestamp), "{shown:?}");
    };
    let mut notes = kinds(&pair.drive().0);
    is_undenied(&pair);
    let followed = pair.each_block(5, |pair| is_undenied(pair));
    notes.extend(kinds(&followed));
    assert_eq!(notes, ["fork"]);
    // Later blocks are shown by both endpoints, with times before the denied one.
    assert!(pair.confirmed() > 11, "{}", pair.confirmed());
}

#[test]
fn failed_transactions_are_no_late_finds() {
    let mut node = Node::new(10);
    let mut cursor = cursor_with(|rules| rules.needs_receipts = true);
    drive(&mut cursor, &node);
    node.mine(&[pay(1), pay(3)]);
    node.failed = vec![node.transfers_after(10)[0].1.tx_hash];
    let mut published = Vec::new();
    for _ in 0..4 {
        let (decision, _) = drive_by(&mut cursor, &node, &node);
        assert_eq!(kinds(&decision), [""; 0]);
        published.extend(short(&decision.publish).into_iter().filter(|record| record.0 == 't'));
        node.mine(&[]);
    }
    assert_eq!((published, confirmed(&cursor)), (vec![('t', 0, 11)], 12));
}

/// Polls some microseconds after `NOW`, and returns what is confirmed then.
fn poll(cursor: &mut Cursor, node: &Node, micros: i64) -> i64 {
    loop {
        let answer = node.answer(&cursor.ask()).unwrap();
        if cursor.answer(answer, UnixMicros(NOW.0 + micros)).next == Next::AtTip {
            return confirmed(cursor);
        }
    }
}

#[test]
fn newest_block_is_checked_after_six_seconds() {
    let mut node = Node::new(10);
    let mut cursor = at_tip(depth(1), &node);
    node.mine(&[pay(1)]);
    let polls = [0, 5_999_999, 6_000_000].map(|micros| poll(&mut cursor, &node, micros));
    assert_eq!(polls, [10, 10, 11]);
}

/// A block dated a minute ago may have come a moment ago, before its logs, as after a
/// reorganisation.
#[test]
fn late_block_is_checked_six_seconds_after_its_scan() {
    let mut node = Node::new(10);
    let mut cursor = at_tip(depth(1), &node);
    let time = node.head().timestamp;
    node.mine_at(time.plus(1));
    node.mine_at(time.plus(60));
    let polls = [0, 5_999_999, 6_000_000].map(|micros| poll(&mut cursor, &node, micros));
    assert_eq!(polls, [10, 10, 12]);
}

/// Deposits expire by the time of confirmed blocks, also on a chain without payments whose last
/// block has no successor.
#[test]
fn stopped_idle_chain_is_checked_to_its_end() {
    let mut node = Node::new(10);
    let mut cursor = cursor_with(|rules| rules.idle_polls = 3);
    drive(&mut cursor, &node);
    for seconds in 0..16 {
        if seconds == 1 {
            for _ in 0..4 {
                let next = node.head().timestamp.plus(1);
                node.mine_at(next);
            }
        }
        poll(&mut cursor, &node, seconds * 1_000_000);
    }
    assert_eq!(confirmed(&cursor), 12);
    let tier = history(&cursor).head().confirmed[0];
    assert_eq!(tier.timestamp, Some(crate::simulation::time(10).plus(2)));
}

#[test]
fn an_idle_chain_is_checked_when_its_head_is_due() {
    let mut node = Node::new(10);
    let mut cursor = cursor_with(|rules| rules.idle_polls = 5);
    drive(&mut cursor, &node);
    let mut checks = Vec::new();
    for _ in 0..18 {
        node.mine(&[]);
        checks.push(drive_by(&mut cursor, &node, &node).1.len());
    }
    // Blocks that become final are checked as well, in two ranges of five blocks.
    assert_eq!(checks, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 2]);
    assert_eq!(confirmed(&cursor), node.head().number - 2);
}

#[test]
fn old_and_final_ranges_are_asked_for_once() {
    let mut node = Node::new(5);
    (0..50).for_each(|_| node.mine(&[pay(1)]));
    let mut cursor = cursor_with(|rules| {
        (rules.start_block, rules.range_max, rules.has_second) = (Some(1), 10, false);
    });
    let (decision, checks) = drive_by(&mut cursor, &node, &node);
    assert_eq!(decision.next, Next::AtTip);
    assert_eq!(checks, [(41, 50)], "only what is not final");
    // The last range was scanned a moment ago.
    assert_eq!(drive_by(&mut cursor, &node, &node).1, [(51, 53)]);
}

/// An endpoint can call final a block that it invented.
#[test]
fn first_of_two_endpoints_confirms_nothing_alone() {
    let mut node = Node::new(5);
    (0..50).for_each(|_| node.mine(&[pay(1)]));
    let mut cursor = cursor_with(|rules| {
        (rules.start_block, rules.range_max, rules.has_second) = (Some(1), 10, true);
    });
    let behind = node.without(50);
    drive_by(&mut cursor, &node, &behind);
    assert_eq!(confirmed(&cursor), 0);
    for _ in 0..40 {
        drive_by(&mut cursor, &node, &node);
    }
    assert_eq!(confirmed(&cursor), 53);
}

/// An endpoint that invents blocks dates them as it likes, so another one is behind only if its head is lower.
#[test]
fn only_an_endpoint_that_is_lower_is_behind() {
    for (height, seconds, why) in [
        (10, 0, "behind"),
        (10, 6000, "behind"),
        (11, -6000, "contradiction"),
        (12, 0, "contradiction"),
    ] {
        let (mut node, mut cursor) = followed(10);
        node.mine(&[pay(1)]);
        drive(&mut cursor, &node);
        node.grow(2);
        while second_check(&cursor).is_none() {
            turn(&mut cursor, &node);
        }
        let (anchor, _) = node.transfers_after(10)[0];
        let newest = Block { number: height, timestamp: anchor.timestamp.plus(seconds), ..anchor };
        let newest = Header { block: newest, parent: anchor.hash };
        let answer =
            Answer { blocks: vec![None, Some(newest)], logs: vec![vec![]], ..Answer::default() };
        assert_eq!(kinds(&cursor.answer(answer, now())), [why], "{height} {seconds}");
    }
}

/// The cursor of a new process, which has what was published.
fn restart(pair: &mut Pair) {
    let known = pair.cursor.history().cloned();
    pair.cursor = Cursor::new(rules(depth(3)), known, Vec::new());
}

#[test]
fn restart_checks_from_the_last_confirmed_block() {
    let mut pair = omitted();
    pair.drive();
    pair.blocks(1);
    restart(&mut pair);
    // After a restart the first endpoint is asked too, and it still leaves the transfer out.
    assert_eq!(kinds(&pair.blocks(1)), ["late find", "omitted"]);
    assert_eq!(pair.confirmed(), 11);
}

/// After a restart it is not known which endpoint scanned: it may be the one now asked second.
#[test]
fn restart_asks_two_endpoints_for_what_waits() {
    let mut pair = two();
    pair.mine(&[pay(1)]);
    pair.a.omitted = vec![pair.b.transfers_after(10)[0].1.tx_hash];
    pair.drive();
    assert_eq!((history(&pair.cursor).last().number, pair.confirmed()), (11, 10));
    restart(&mut pair);
    std::mem::swap(&mut pair.a, &mut pair.b);
    pair.blocks(4);
    assert_eq!(pair.live(), pair.a.transfers_after(10));
    assert!(pair.confirmed() >= 11);
}

#[test]
fn what_the_second_endpoint_alone_has_is_held() {
    let mut pair = two();
    pair.mine(&[pay(1)]);
    pair.mine(&[]);
    pair.b.forge(Payment { wallet: 1, value: 9 });
    pair.b.forges_receipts = true;
    let notes = kinds(&pair.each_block(30, assert_held));
    let head = pair.a.head().number;
    assert_eq!((notes, pair.confirmed()), (vec!["late find", "disputed"], head - 2));
    pair.b.forges_receipts = false;
    pair.b.forged.clear();
    pair.blocks(20);
    assert_eq!(pair.confirmed(), pair.a.head().number - 2);
}

#[test]
fn late_find_waits_for_the_first_endpoints_receipt() {
    let mut pair = two();
    pair.mine(&[pay(1)]);
    pair.a.omitted = vec![pair.b.transfers_after(10)[0].1.tx_hash];
    pair.mine(&[]);
    pair.mine(&[]);
    let mut asked = Vec::new();
    while pair.live().is_empty() {
        let ask = pair.cursor.ask();
        let transactions = ask.receipts.iter().map(|outcome| outcome.transaction);
        let asks = (ask.role, transactions.collect::<Vec<_>>());
        asked.extend((!ask.receipts.is_empty()).then_some(asks));
        turn_by(&mut pair.cursor, &pair.a, &pair.b);
    }
    assert_eq!(asked, [Role::Second, Role::Witness].map(|role| (role, pair.a.omitted.clone())));
    assert_eq!(pair.live(), pair.b.transfers_after(10));
    assert_eq!(pair.confirmed(), 11);
}

#[test]
fn check_ends_where_another_endpoint_took_over() {
    let (mut node, mut cursor) = followed(10);
    node.grow(4);
    cursor.fail(Refusal::Rate);
    let behind = node.without(4);
    drive_by(&mut cursor, &behind, &behind);
    node.mine(&[pay(1)]);
    drive_by(&mut cursor, &node, &node.without(9));
    cursor.switch();
    let mut checks = Vec::new();
    for _ in 0..20 {
        node.mine(&[pay(1)]);
        checks.extend(drive_by(&mut cursor, &node, &node).1);
    }
    let first = checks.iter().find(|(from, to)| (*from..=*to).contains(&15)).unwrap();
    assert_eq!(first.1, 15, "{checks:?}");
}

/// A node has the blocks of another fork at once, with their old times, and their logs a moment later.
#[test]
fn after_a_reorg_logs_may_trail_again() {
    let (mut node, mut cursor) = followed(10);
    node.mine(&[]);
    node.mine(&[pay(7)]);
    node.mine(&[]);
    drive(&mut cursor, &node);
    node.reorg(2, &[Some(0)]);
    let moved = node.transfers_after(11);
    node.omitted = vec![moved[0].1.tx_hash];
    drive(&mut cursor, &node);
    assert_eq!(history(&cursor).last(), node.head());
    assert!(confirmed(&cursor) < 12);
    node.omitted.clear();
    (0..2).for_each(|_| {
        node.mine(&[]);
        drive(&mut cursor, &node);
    });
    assert_eq!(history(&cursor).above(11).collect::<Vec<_>>(), moved);
    assert!(confirmed(&cursor) >= 12);
}
