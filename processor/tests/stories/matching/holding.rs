//! Held transfers, about which endpoints disagree; and gaps of a chain.

use super::lane::progress;
use super::*;
use crate::chain::{DAY, HeadAt, candidate_of};

/// A head that holds the transfer of transaction 1 in block 110.
fn holding(number: i64) -> HeadAt {
    head(number).holding(&[pay(1, "10.00")])
}

/// A deposit of order A, and a transfer for it that is held.
fn held() -> Lane {
    seen().then(holding(120), "")
}

#[test]
fn a_held_transfer_is_confirmed_once_it_is_released() {
    // At any height, even a final one, and after the match window.
    held().then(holding(500), "").then(head(500), ASKED_A).then(settled('A', 2), PAID_A);
    held().then(head(121), ASKED_A);
}

#[test]
fn another_transfer_of_its_block_is_confirmed() {
    let second = || pay(1, "10.00").ordinal(1).to(2);
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(second(), "detected #2 @110")
        .then(holding(120), "confirmed #2 @110");
}

/// Log indexes differ between endpoints.
#[test]
fn it_is_held_whatever_its_log_index() {
    let renumbered = || head(120).holding(&[pay(1, "10.00").log(9)]);
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(renumbered(), "")
        .then(head(121), "confirmed #1 @110");
}

/// Another contract, ordinal or block is another transfer.
#[test]
fn only_the_same_transfer_is_held() {
    for others in [
        pay(1, "10.00").contract(OTHER_CONTRACT),
        pay(1, "10.00").ordinal(1),
        pay(1, "10.00").fork(1),
        pay(1, "10.00").at(111),
        pay(2, "10.00"),
    ] {
        Lane::new()
            .then(pay(1, "10.00"), "detected #1 @110")
            .then(head(120).holding(&[others]), "confirmed #1 @110");
    }
}

#[test]
fn retracted_it_fails_and_frees_its_deposit() {
    held()
        .then(holding(300), "")
        .then(pay(1, "10.00").retracted(1), "")
        .then(
            head(300).epoch(1),
            "to A: gone #2; failed #2 @110 orphaned
             deposit #1 expired for A/0; to A: closed /0 expired",
        )
        // An endpoint that disagrees again changes nothing.
        .then(holding(301).epoch(1), "");
}

/// A hold covers one inclusion: in another block the transfer is not held.
#[test]
fn in_another_block_it_is_confirmed() {
    held()
        .then(pay(1, "10.00").retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(pay(1, "10.00").at(121).fork(1), "detected #2 @121 for #1")
        .then(holding(131).epoch(1), "confirmed #2 @121 for #1; to A: settle #2 /0 #1");
}

/// A second, undisputed transfer of the amount may pay.
#[test]
fn another_payment_pays_the_order_meanwhile() {
    held()
        .then(pay(2, "10.00").at(121), "to A: seen #3; detected #3 @121 for #1")
        .then(holding(131), "confirmed #3 @121 for #1; to A: settle #3 /0 #1")
        .then(settled('A', 3), "matched #3 @121 for #1 paid A by #4; deposit #1 settled for A/0")
        // Its amount stays reserved long after the late window.
        .then(holding(400), "")
        .then(open('B', "10.00").between(400, 500), &gets('B', 5, "10.01"))
        .then(
            head(401),
            "confirmed #2 @110 for #1; to A: gone #2; unknown #2 @110 already_paid maybe A",
        );
}

/// The order requests the outcome of its candidate.
#[test]
fn its_order_is_answered_that_it_waits() {
    held()
        .then(holding(300), "")
        .then(candidate_of('A', schemas::TransferId(2)), "to A: seen #2")
        .then(head(301), ASKED_A)
        .then(
            refused('A', 2, UnknownReason::OrderCancelled),
            "unknown #2 @110 order_cancelled maybe A",
        );
}

/// Without a deposit it becomes unknown, but only once it is released.
#[test]
fn a_stray_one_is_given_up_when_released() {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(holding(500), "")
        .then(head(501), "confirmed #1 @110; unknown #1 @110 no_deposit");
}

/// A dispute delays one customer only.
#[test]
fn a_hundred_orders_are_paid_past_its_deadline() {
    let mut lane = held();
    let mut next = 3;
    for number in 1..=100_u8 {
        let letter = char::from_u32(u32::from('A') + u32::from(number)).unwrap();
        let value = format!("{}.00", 20 + u32::from(number));
        let at = 200 + i64::from(number) * 20;
        let (deposit, transfer, fulfillment, block) = (next, next + 1, next + 2, at + 1);
        let seen = format!("seen #{transfer}; detected #{transfer} @{block} for #{deposit}");
        let confirmed = format!("confirmed #{transfer} @{block} for #{deposit}");
        let matched = format!("matched #{transfer} @{block} for #{deposit}");
        let pays = format!("paid {letter} by #{fulfillment}");
        lane = lane
            .then(open(letter, &value).between(at, at + 100), &gets(letter, deposit, &value))
            .then(pay(number + 1, &value).at(block), &format!("to {letter}: {seen}"))
            .then(
                holding(at + 11),
                &format!("{confirmed}; to {letter}: settle #{transfer} /0 #{deposit}"),
            )
            .then(
                settled(letter, transfer),
                &format!("{matched} {pays}; deposit #{deposit} settled for {letter}/0"),
            );
        next += 3;
    }
    lane.then(head(2300), ASKED_A);
}

/// Progress shows an operator the time since which the held transfer waits; all others are confirmed.
#[test]
fn progress_says_since_when_it_waits() {
    let mut state = held().machine().clone();
    let found = progress(&mut state, holding(300)).unwrap();
    assert_eq!((found.oldest_unconfirmed.map(|time| time.0), found.confirmed), (Some(1100), 290));
    let found = progress(&mut state, head(303)).unwrap();
    assert_eq!(found.oldest_unconfirmed, None);
}

/// A transfer that was held for more than a day is still known: the same payment again is a duplicate.
#[test]
fn held_for_days_it_is_not_forgotten() {
    held()
        .then(holding(200 + DAY), "")
        .then(holding(200 + 2 * DAY), "")
        .ignores(pay(1, "10.00"))
        .then(pay(1, "10.00").retracted(1), "")
        .then(
            head(200 + 2 * DAY).epoch(1),
            "to A: gone #2; failed #2 @110 orphaned
             deposit #1 expired for A/0; to A: closed /0 expired",
        )
        .then(pay(1, "10.00").fork(1), "detected #2 @110");
}

/// A payment made meanwhile may be in the missing blocks.
#[test]
fn no_deposit_opens_while_there_is_a_gap() {
    let b = || open('B', "20.00");
    offered()
        .then(head(101).with_gap(), "")
        .then(b(), "to B: refused /0 chain_behind")
        // Open deposits stay, are paid and expire as usual.
        .then(open('A', "10.00"), "to A: opened /0 #1 10.00")
        .then(pay(1, "10.00"), SEEN_A)
        .then(head(120).with_gap(), ASKED_A)
        .then(b(), "to B: refused /0 chain_behind")
        .then(head(121), "")
        .then(b(), &gets('B', 3, "20.00"))
        .then(head(122).with_gap(), "")
        .then(open('C', "30.00"), "to C: refused /0 chain_behind");
}

#[test]
fn an_ignored_head_closes_no_gap() {
    Lane::new()
        .then(head(130).with_gap(), "")
        .then(head(129), "alert head_went_back")
        .then(open('A', "10.00"), "to A: refused /0 chain_behind");
}
