//! Failed transfers that are included again, also if their order did not reply for a day.

use schemas::{Partition, TransferId};

use super::lane::transfer_row;
use super::reorg::{ORPHANED, candidate, orphaned, retracted, stray_orphaned};
use super::*;
use crate::chain::{DAY, FORGETS, attach, attach_refused, attached, candidate_of};

#[test]
fn a_failed_transfer_may_come_back() {
    retracted()
        .then(head(131).epoch(1), "to A: gone #2; failed #2 @110 orphaned")
        .then(pay(1, "10.00").at(132).fork(1), "to A: seen #2; detected #2 @132 for #1")
        // A day after the failure it is not forgotten, as it was included again.
        .then(head(200 + DAY).epoch(1).tiers(&[], 131), "")
        .then(head(201 + DAY).epoch(1), "confirmed #2 @132 for #1; to A: settle #2 /0 #1");
}

#[test]
fn a_failed_transfer_is_forgotten() {
    let lane = retracted()
        .then(head(130).epoch(1), "to A: gone #2; failed #2 @110 orphaned")
        .then(head(130 + DAY).epoch(1), EXPIRED_A);
    assert_eq!(lane.machine().transfer_count(), 1);
    let lane = lane.then(head(FORGETS).epoch(1), "");
    assert_eq!(lane.machine().transfer_count(), 0);
}

/// A transfer that failed, as it was orphaned and its order did not reply for a day.
fn unanswered() -> Lane {
    orphaned().then(head(110 + DAY).epoch(1), "").then(
        head(171 + DAY).epoch(1),
        "to A: gone #2; failed #2 @110 maybe A orphaned
             deposit #1 expired for A/0; to A: closed /0 expired",
    )
}

/// Block that includes it again, and the head that confirms that block.
const BACK: i64 = 172 + DAY;
const CONFIRMED: i64 = BACK + 10;

/// An orphan fails, or it would hold its deposit for ever. Then the reply comes, and the transfer is included again.
#[test]
fn an_orphan_without_an_answer_fails_after_a_day() {
    unanswered()
        .then(settled('A', 2), "alert confirmed_transfer_retracted #2 A")
        .then(pay(1, "10.00").at(BACK).fork(1), "detected #2 @8812 maybe A")
        .then(head(CONFIRMED).epoch(1), "confirmed #2 @8812 maybe A; matched #2 @8812 paid A by #3")
        .ignores(settled('A', 2));
}

#[test]
fn the_answer_comes_when_the_money_is_back() {
    unanswered()
        .then(pay(1, "10.00").at(BACK).fork(1), "detected #2 @8812 maybe A")
        .then(settled('A', 2), "alert confirmed_transfer_retracted #2 A")
        .then(
            head(CONFIRMED).epoch(1),
            "confirmed #2 @8812 maybe A; matched #2 @8812 paid A by #3",
        );
}

/// Its order may count on it, so it pays no other order that has got the amount since.
#[test]
fn what_is_not_answered_pays_no_other() {
    let (back, confirmed) = (BACK + DAY, CONFIRMED + DAY);
    let back_again = || {
        unanswered()
            .then(head(back - 2).epoch(1).tiers(&[], 171 + DAY), "")
            .then(open('B', "10.00").between(back - 2, back + 100), &gets('B', 3, "10.00"))
            .then(pay(1, "10.00").at(back).fork(1), "detected #2 @17452 maybe A")
            .then(head(confirmed).epoch(1), "confirmed #2 @17452 maybe A")
    };
    back_again().then(
        settled('A', 2),
        "alert confirmed_transfer_retracted #2 A; matched #2 @17452 paid A by #4",
    );
    back_again()
        .then(head(confirmed + 51).epoch(1), "unknown #2 @17452 late maybe A")
        // A late acceptance by the order that counts on it still matches it, with an alert.
        .then(
            settled('A', 2),
            "alert confirmed_transfer_retracted #2 A; matched #2 @17452 paid A by #4",
        )
        // Tables may still show it as unknown for a week.
        .then(head(confirmed + 2 * DAY).epoch(1), &ends('B', 3, "expired"))
        .then(settled('B', 2), "alert confirmed_transfer_retracted #2 B");
    // It does not pay B either, which got the amount after the transfer was seen.
    back_again().then(
        refused('A', 2, UnknownReason::AlreadyPaid),
        "unknown #2 @17452 before_deposit maybe B",
    );
}

/// An operator attaches it to the order that has not replied: a late acceptance of the settle pays as well.
#[test]
fn an_order_answers_late_while_the_operator_asks_it() {
    let unknown = || {
        let lane =
            unanswered().then(pay(1, "10.00").at(BACK).fork(1), "detected #2 @8812 maybe A").then(
                head(CONFIRMED).epoch(1),
                "confirmed #2 @8812 maybe A; unknown #2 @8812 late maybe A",
            );
        let row = transfer_row(&lane, 2);
        (lane, row)
    };
    let (lane, row) = unknown();
    lane.then(attach('B', 6, &row), "to B: attach refused")
        .then(attach('A', 7, &row), "to A: attach #2 10.00 by 7")
        .then(
            settled('A', 2),
            "alert confirmed_transfer_retracted #2 A; matched #2 @8812 paid A by #3",
        )
        .ignores(attached('A', row.transfer_id));
    let (lane, row) = unknown();
    lane.then(attach('A', 7, &row), "to A: attach #2 10.00 by 7")
        .then(refused('A', 2, UnknownReason::AlreadyPaid), "")
        .then(attach_refused('A', row.transfer_id), "")
        .then(attach('B', 8, &row), "to B: attach #2 10.00 by 8");
}

/// A forgotten order's reply to an earlier settle may be lost: the transfer may pay only this order.
#[test]
fn an_order_that_is_forgotten_may_count_on_it() {
    let lane =
        settling().then(refused('A', 2, UnknownReason::NoDeposit), "unknown #2 @110 late maybe A");
    let row = transfer_row(&lane, 2);
    lane.ignores(refused('A', 2, UnknownReason::NoDeposit))
        .then(attach('B', 6, &row), "to B: attach refused")
        .then(attach('A', 7, &row), "to A: attach #2 10.00 by 7")
        .then(attached('A', row.transfer_id), "matched #2 @110 paid A by #3");
}

/// The transfer settles with its deposit again, as that is still open.
#[test]
fn the_order_that_did_not_answer_is_asked_again() {
    Lane::new()
        .then(open('A', "10.00").between(100, 3 * DAY), OPEN_A)
        .then(pay(1, "10.00"), SEEN_A)
        .then(head(120), ASKED_A)
        .then(pay(1, "10.00").retracted(1), ORPHANED)
        .then(head(109).epoch(1), "")
        .then(head(110 + DAY).epoch(1), "")
        .then(head(171 + DAY).epoch(1), "to A: gone #2; failed #2 @110 maybe A orphaned")
        .then(pay(1, "10.00").at(BACK).fork(1), "to A: seen #2; detected #2 @8812 for #1 maybe A")
        .then(head(CONFIRMED).epoch(1), "confirmed #2 @8812 for #1 maybe A; to A: settle #2 /0 #1")
        .then(settled('A', 2), "matched #2 @8812 for #1 paid A by #3; deposit #1 settled for A/0");
}

/// Block that includes a transfer again, three days after its retract.
const LATER: i64 = 3 * DAY;

/// A transfer that has paid A is orphaned, though its block was final. Then B waits for the same amount.
fn paid_and_gone() -> Lane {
    settling()
        .then(settled('A', 2), PAID_A)
        .then(head(150), "")
        .then(
            pay(1, "10.00").retracted(1),
            "alert confirmed_transfer_retracted #2 A
         detected #2 matched @110 for #1 paid A by #3 orphaned",
        )
        .then(head(109).epoch(1), "")
        .then(head(LATER - 2).epoch(1), "")
        .then(open('B', "10.00").between(LATER - 2, LATER + 100), &gets('B', 4, "10.00"))
}

#[test]
fn paid_transfer_back_days_later_pays_nothing() {
    let lane = paid_and_gone()
        .then(pay(1, "10.00").at(LATER).fork(1), "detected #2 matched @25920 for #1 paid A by #3")
        .then(head(LATER + 10).epoch(1), "")
        // Included again, it is kept for a day, as others are.
        .then(head(LATER + DAY).epoch(1), &ends('B', 4, "expired"));
    assert_eq!(lane.machine().transfer_count(), 1);
    let lane = lane.then(head(LATER + 1 + DAY).epoch(1), "");
    assert_eq!(lane.machine().transfer_count(), 0);
}

/// An unknown transfer may have been refunded.
#[test]
fn unknown_transfer_back_days_later_pays_nothing() {
    stray_orphaned()
        .then(head(LATER - 2).epoch(1), "")
        .then(open('B', "10.00").between(LATER - 2, LATER + 100), &gets('B', 2, "10.00"))
        .then(pay(1, "10.00").at(LATER).fork(1), "detected #1 no_matched_deposit @25920 no_deposit")
        .then(head(LATER + 10).epoch(1), "");
}

/// The order that counts on it replies late, or never.
#[test]
fn what_an_order_counts_on_pays_no_other_days_later() {
    let back_again = |answer| {
        let mut lane = unanswered();
        if answer {
            lane = lane.then(settled('A', 2), "alert confirmed_transfer_retracted #2 A");
        }
        lane.then(head(LATER - 2).epoch(1), "")
            .then(open('B', "10.00").between(LATER - 2, LATER + 100), &gets('B', 3, "10.00"))
            .then(pay(1, "10.00").at(LATER).fork(1), "detected #2 @25920 maybe A")
    };
    back_again(true).then(
        head(LATER + 10).epoch(1),
        "confirmed #2 @25920 maybe A; matched #2 @25920 paid A by #4",
    );
    back_again(false).then(head(LATER + 10).epoch(1), "confirmed #2 @25920 maybe A").then(
        settled('A', 2),
        "alert confirmed_transfer_retracted #2 A; matched #2 @25920 paid A by #4",
    );
}

/// After the refusal no order counts on it.
#[test]
fn what_no_order_counts_on_is_forgotten_after_a_day() {
    let lane = unanswered().then(head(LATER).epoch(1), "");
    assert_eq!(lane.machine().transfer_count(), 1);
    let lane = lane
        .then(refused('A', 2, UnknownReason::AlreadyPaid), "")
        .then(head(LATER + 1).epoch(1), "");
    assert_eq!(lane.machine().transfer_count(), 0);
}

#[test]
fn what_never_comes_back_is_forgotten_after_a_month() {
    let lane = paid_and_gone().then(head(110 + 30 * DAY).epoch(1), &ends('B', 4, "expired"));
    assert_eq!(lane.machine().transfer_count(), 1);
    let lane = lane.then(head(111 + 30 * DAY).epoch(1), "");
    assert_eq!(lane.machine().transfer_count(), 0);
}

/// A `CandidateGone` may have been lost.
#[test]
fn an_order_asks_whether_a_payment_may_still_come() {
    let (asks, gone) = (|id| candidate_of('A', TransferId(id)), "to A: gone #2");
    candidate()
        .then(asks(2), "to A: seen #2")
        .then(candidate_of('B', TransferId(2)), "to B: gone #2")
        .then(asks(9), "to A: gone #9")
        .ignores(candidate_of('A', TransferId::from_parts(Partition(1), 2)))
        .then(pay(1, "10.00").retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(asks(2), "to A: seen #2")
        .then(head(131).epoch(1), "to A: gone #2; failed #2 @110 orphaned")
        .then(asks(2), gone);
    settling()
        .then(asks(2), "to A: seen #2")
        .then(refused('A', 2, UnknownReason::AlreadyPaid), "unknown #2 @110 already_paid maybe A");
}

/// A deposit of order A, and the transfer that paid it, until the transfer is forgotten.
fn forgotten() -> Lane {
    let lane = settling().then(settled('A', 2), PAID_A).then(head(200 + 2 * DAY), "");
    assert_eq!(lane.machine().transfer_count(), 0);
    lane
}

/// Block after a rewind of two days that has the lane's newest time.
const AFTER: i64 = 201 + 2 * DAY;

/// The rewind takes the lane's time back, and another order waits for the same amount.
#[test]
fn scanned_again_after_two_days_it_pays_no_other() {
    let lane = forgotten()
        .then(head(109).epoch(1), "")
        .then(open('B', "10.00").between(105, 300), &gets('B', 4, "10.00"))
        .then(pay(1, "10.00").epoch(1).log(77), "alert stale_transfer")
        .then(head(130).epoch(1), "");
    assert_eq!(lane.machine().transfer_count(), 0);
}

/// A payment known only by its retract may be included again in a new block.
#[test]
fn retracted_after_two_days_it_pays_no_other() {
    let rival = || open('B', "10.00").between(AFTER, AFTER + 100);
    let lane = forgotten()
        .then(pay(1, "10.00").retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(head(AFTER).epoch(1), "")
        .then(rival(), &gets('B', 4, "10.00"))
        .then(pay(1, "10.00").at(AFTER + 1).fork(1).log(77), "alert stale_transfer")
        .then(head(AFTER + 20).epoch(1), "")
        .then(pay(2, "10.00").at(AFTER + 21).epoch(1), "to B: seen #5; detected #5 @17502 for #4");
    assert_eq!(lane.machine().transfer_count(), 2);
    // The month counts from the youngest block that included it.
    let lane = lane
        .then(head(111 + 30 * DAY).epoch(1).tiers(&[], 110), "")
        .then(pay(1, "10.00").at(AFTER + 1).fork(1).log(77), "alert stale_transfer");
    assert_eq!(lane.machine().transfer_count(), 2);
    let lane = lane.then(head(AFTER + 2 + 30 * DAY).epoch(1).tiers(&[], 110), "");
    assert_eq!(lane.machine().transfer_count(), 1, "it was forgotten after a month");
}
