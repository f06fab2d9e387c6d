//! Expiry of deposits and release of their amounts; rejection and forgetting of transfers.

use super::*;
use crate::chain::{DAY, FORGETS};

/// The amount fits, so `amount_mismatch` would mislead the operator.
#[test]
fn a_later_misfit_keeps_its_reason() {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(head(120), "confirmed #1 @110")
        .then(open('A', "10.00").only_from(8), &gets('A', 2, "10.00"))
        .then(head(131), "unknown #1 @110 sender_mismatch maybe A");
}

/// The match window outlasts the deposit, which is closed when the wrong amount is rejected: the record still names its
/// order.
#[test]
fn a_wrong_amount_names_who_waited() {
    Lane::new()
        .then(open('A', "10.00").between(100, 115), OPEN_A)
        .then(pay(1, "9.99"), "detected #2 @110")
        .then(head(120), "confirmed #2 @110")
        .then(head(126), EXPIRED_A)
        // Nearer by amount, but opened after the transfer.
        .then(open('B', "9.98").between(127, 220), &gets('B', 3, "9.98"))
        .then(head(131), "unknown #2 @110 amount_mismatch maybe A");
}

/// A fee of 1.00 was deducted: the nearest amount is the lowest one, of another customer.
#[test]
fn digits_name_who_paid_less() {
    let exact = |order, value: &str| open(order, value).amounts(AmountRule::EXACT);
    Lane::new()
        .then(exact('A', "20.009248"), &gets('A', 1, "20.009248"))
        .then(exact('B', "20.000411"), &gets('B', 2, "20.000411"))
        .then(pay(1, "19.009248"), "detected #3 @110")
        .then(pay(2, "18.90"), "detected #4 @110")
        .then(pay(3, "20"), "detected #5 @110")
        .then(head(120), "confirmed #3 @110; confirmed #4 @110; confirmed #5 @110")
        .then(
            head(131),
            "unknown #3 @110 amount_mismatch maybe A
             unknown #4 @110 amount_mismatch
             unknown #5 @110 amount_mismatch",
        );
}

/// A transfer cannot be meant for an order that did not exist yet.
#[test]
fn a_wrong_amount_names_no_later_order() {
    Lane::new()
        .then(pay(1, "9.99"), "detected #1 @110")
        .then(head(120), "confirmed #1 @110")
        .then(open('B', "9.98").between(121, 220), &gets('B', 2, "9.98"))
        .then(head(131), "unknown #1 @110 amount_mismatch");
}

/// While a second payment waits for confirmation, its amount is not reassigned.
#[test]
fn a_waiting_transfer_holds_its_amount() {
    Lane::new()
        .then(head(100), "")
        .then(open('A', "10.00").late_window(20), OPEN_A)
        .then(pay(1, "10.00"), SEEN_A)
        .then(close('A', CloseReason::OrderPaid), &ends('A', 1, "order_paid"))
        // The late window is over at block 102.
        .then(head(111), "")
        .then(open('B', "10.00"), &gets('B', 3, "10.01"))
        .then(head(120), ASKED_A)
        .then(refused('A', 2, UnknownReason::AlreadyPaid), "unknown #2 @110 already_paid maybe A")
        .then(head(121), "")
        .then(open('C', "10.00"), &gets('C', 4, "10.00"));
}

#[test]
fn a_deposit_expires_by_chain_time() {
    offered()
        .then(open('B', "20.00").between(100, 300), &gets('B', 2, "20.00"))
        .then(open('C', "30.00"), &gets('C', 3, "30.00"))
        .then(head(201), "")
        .then(head(210), "")
        .then(
            head(211),
            "deposit #1 expired for A/0; to A: closed /0 expired
             deposit #3 expired for C/0; to C: closed /0 expired",
        )
        .then(pay(1, "20.00").at(212), "to B: seen #4; detected #4 @212 for #2");
}

/// The order waits for a replaced deposit as for an open one, and requests its outcome.
#[test]
fn a_replaced_deposit_expires_by_chain_time() {
    let replaced = || {
        Lane::new()
            .then(open('A', "10.00").late_window(20), OPEN_A)
            .then(close('A', CloseReason::Replaced), &ends('A', 1, "replaced"))
            .then(head(210), "")
            .then(close('A', CloseReason::Expired), "to A: closed /0 replaced")
    };
    replaced()
        .then(head(211), &ends('A', 1, "expired"))
        .then(close('A', CloseReason::Expired), "to A: closed /0 expired")
        .then(pay(1, "10.00").at(212), "detected #2 @212");
    replaced().then(close('A', CloseReason::OrderPaid), &ends('A', 1, "order_paid"));
}

#[test]
fn a_replaced_deposit_waits_for_its_candidate() {
    offered()
        .then(close('A', CloseReason::Replaced), &ends('A', 1, "replaced"))
        .then(pay(1, "10.00").at(199), "to A: seen #2; detected #2 @199 for #1")
        .then(head(230).tiers(&[], 198), "")
        .then(head(231), "confirmed #2 @199 for #1; to A: settle #2 /0 #1")
        .then(settled('A', 2), "matched #2 @199 for #1 paid A by #3; deposit #1 settled for A/0");
}

#[test]
fn a_large_amount_waits_for_its_own_tier() {
    offered()
        .then(open('B', "2000.00"), &gets('B', 2, "2000.00"))
        .then(head(211).tiers(&[("1000", 201)], 200), EXPIRED_A)
        .then(head(212).tiers(&[("1000", 202)], 201), &ends('B', 2, "expired"));
}

#[test]
fn a_candidate_holds_its_deposit() {
    offered()
        .then(pay(1, "10.00").at(199), "to A: seen #2; detected #2 @199 for #1")
        .then(head(205), "")
        .then(head(209), "confirmed #2 @199 for #1; to A: settle #2 /0 #1")
        // Nor does it expire while its settle is in flight.
        .then(head(220), "")
        .then(settled('A', 2), "matched #2 @199 for #1 paid A by #3; deposit #1 settled for A/0");
}

#[test]
fn the_last_candidate_gone_it_expires() {
    offered()
        .then(pay(1, "10.00").at(195), "to A: seen #2; detected #2 @195 for #1")
        .then(pay(2, "10.00").at(199), "to A: seen #3; detected #3 @199 for #1")
        .then(head(205), "confirmed #2 @195 for #1; to A: settle #2 /0 #1")
        .then(refused('A', 2, UnknownReason::Late), "unknown #2 @195 late maybe A")
        .then(head(208), "")
        .then(head(209), "confirmed #3 @199 for #1; to A: settle #3 /0 #1")
        .then(refused('A', 3, UnknownReason::Late), "unknown #3 @199 late maybe A")
        .then(head(210), "")
        .then(head(211), EXPIRED_A);
}

#[test]
fn an_outage_expires_nothing() {
    Lane::new()
        .then(head(150), "")
        .then(open('A', "10.00"), OPEN_A)
        // By the wall clock this command comes much later.
        .then(open('B', "10.00").between(5000, 6000), &gets('B', 2, "10.01"))
        .then(head(151), "")
        .then(pay(1, "10.00").at(152), "to A: seen #3; detected #3 @152 for #1");
}

#[test]
fn forgotten_after_a_day_then_stale() {
    let lane = stray().then(head(FORGETS - 1), "").ignores(pay(1, "10.00"));
    assert_eq!(lane.machine().transfer_count(), 1);
    let lane = lane.then(head(FORGETS), "").then(pay(1, "10.00"), "alert stale_transfer");
    assert_eq!(lane.machine().transfer_count(), 0);
}

#[test]
fn what_is_not_final_is_kept() {
    let lane = Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(head(120).finalized(90), "confirmed #1 @110")
        .then(head(131).finalized(90), "unknown #1 @110 no_deposit")
        .then(head(FORGETS).finalized(109), "");
    assert_eq!(lane.machine().transfer_count(), 1);
    let lane = lane.then(head(FORGETS + 1).finalized(110), "");
    assert_eq!(lane.machine().transfer_count(), 0);
}

#[test]
fn a_day_late_is_an_alert() {
    Lane::new()
        .then(open('A', "10.00").between(100, 9999), OPEN_A)
        .then(open('B', "20.00").between(100, 9999), &gets('B', 2, "20.00"))
        .then(head(110 + DAY), "")
        .then(pay(1, "10.00").at(110), "to A: seen #3; detected #3 @110 for #1")
        .then(pay(2, "20.00").at(109), "alert stale_transfer");
}

#[test]
fn deposits_end_with_their_late_window() {
    let lane = offered().then(head(211), EXPIRED_A).then(head(261), "");
    assert_eq!(lane.machine().deposit_count(), 1);
    let lane = lane.then(head(262), "");
    assert_eq!(lane.machine().deposit_count(), 0);
}
