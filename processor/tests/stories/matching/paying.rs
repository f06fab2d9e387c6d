//! A transfer from its detection to its match.

use super::lane::transfer_row;
use super::*;

#[test]
fn seen_confirmed_settled_matched() {
    let status = |lane: &Lane| transfer_row(lane, 2).status.to_string();
    let lane = Lane::new()
        .then(head(100), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(pay(1, "10.00"), SEEN_A)
        .then(head(119), "");
    assert_eq!(status(&lane), "waiting_for_confirmation");
    let lane = lane.then(head(120), ASKED_A);
    assert_eq!(status(&lane), "waiting_for_match");
    let lane = lane.then(settled('A', 2), PAID_A);
    assert_eq!(status(&lane), "matched");
    lane.ignores(settled('A', 2)).ignores(refused('A', 2, UnknownReason::AlreadyPaid));
}

/// The settle or its reply was lost: it is repeated every ten minutes.
#[test]
fn an_unanswered_order_is_asked_again() {
    let settle = "to A: settle #2 /0 #1";
    Lane::new()
        .then(head(100), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(pay(1, "10.00"), SEEN_A)
        .then(head(120), &format!("confirmed #2 @110 for #1; {settle}"))
        .then(head(180), "")
        .then(head(181), settle)
        .then(head(241), "")
        // Its deposit neither expires nor releases its amount meanwhile.
        .then(head(242), settle)
        .then(settled('A', 2), PAID_A)
        .then(head(310), "");
}

/// The transfer was seen before its deposit opened, so the sender cannot have known the amount. The deposit's
/// `started_at`, which the order sets, is nevertheless earlier than the transfer's block.
#[test]
fn what_came_before_its_deposit_pays_nothing() {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(open('A', "10.00"), &gets('A', 2, "10.01"))
        .then(head(120), "confirmed #1 @110")
        .then(open('B', "10.00"), &gets('B', 3, "10.02"))
        .then(head(131), "unknown #1 @110 amount_mismatch");
}

#[test]
fn what_does_not_fit_keeps_no_amount() {
    Lane::new()
        .then(pay(1, "10.00").from(8), "detected #1 @110")
        .then(pay(2, "10.01").from(7), "detected #2 @110")
        .then(pay(3, "10.00").at(96).from(8), "detected #3 @96")
        .then(pay(4, "10.00").stablecoin(Stablecoin::Dai), "detected #4 @110")
        .then(head(106), "confirmed #3 @96")
        .then(open('A', "10.00").only_from(7), &gets('A', 5, "10.00"));
}

#[test]
fn two_ask_and_the_order_takes_one() {
    seen()
        .then(pay(2, "10.00").at(111), "to A: seen #3; detected #3 @111 for #1")
        .then(head(120), ASKED_A)
        .then(head(121), "confirmed #3 @111 for #1; to A: settle #3 /0 #1")
        .then(settled('A', 2), "matched #2 @110 for #1 paid A by #4; deposit #1 settled for A/0")
        .then(refused('A', 3, UnknownReason::AlreadyPaid), "unknown #3 @111 already_paid maybe A");
}

#[test]
fn two_in_a_transaction_are_two_payments() {
    let second = pay(1, "10.00").ordinal(1).log(3);
    offered()
        .then(open('B', "12.00"), &gets('B', 2, "12.00"))
        .then(pay(1, "10.00"), "to A: seen #3; detected #3 @110 for #1")
        .then(pay(1, "12.00").log(2), "to B: seen #4; detected #4 @110 for #2")
        .then(second, "to A: seen #5; detected #5 @110 for #1")
        .then(
            head(120),
            "confirmed #3 @110 for #1; to A: settle #3 /0 #1
             confirmed #4 @110 for #2; to B: settle #4 /0 #2
             confirmed #5 @110 for #1; to A: settle #5 /0 #1",
        )
        .then(settled('A', 3), "matched #3 @110 for #1 paid A by #6; deposit #1 settled for A/0")
        .then(settled('B', 4), "matched #4 @110 for #2 paid B by #7; deposit #2 settled for B/0")
        .then(refused('A', 5, UnknownReason::AlreadyPaid), "unknown #5 @110 already_paid maybe A");
}

#[test]
fn a_refusal_is_the_reason() {
    for reason in UnknownReason::ALL {
        // A forgotten order ended long ago, so the reason is `late`.
        let shown = match reason {
            UnknownReason::NoDeposit => UnknownReason::Late,
            of => *of,
        };
        settling()
            .then(refused('A', 2, *reason), &format!("unknown #2 @110 {shown} maybe A"))
            // An order never sends both replies: alert.
            .then(
                settled('A', 2),
                "alert confirmed_transfer_retracted #2 A; matched #2 @110 paid A by #3",
            )
            // The deposit stays open, for another transfer or its expiry.
            .then(head(211), EXPIRED_A);
    }
}

#[test]
fn an_unexpected_answer_is_ignored() {
    Lane::new()
        .ignores(settled('A', 7))
        .then(open('A', "10.00"), OPEN_A)
        .then(pay(1, "10.00"), SEEN_A)
        .ignores(settled('A', 2))
        .ignores(refused('A', 2, UnknownReason::Late));
}

/// A lane whose order an operator marked paid while it had a candidate.
fn marked() -> Lane {
    seen().then(close('A', CloseReason::OrderPaid), &ends('A', 1, "order_paid"))
}

/// The order decides about its former candidate.
#[test]
fn what_was_on_its_way_asks_a_marked_order() {
    marked()
        // Detected after the mark: a second payment.
        .then(pay(2, "10.00"), "detected #3 @110")
        .then(
            head(120),
            "confirmed #2 @110 for #1; to A: settle #2 /0 #1
             confirmed #3 @110
             unknown #3 @110 already_paid maybe A",
        )
        .then(settled('A', 2), "matched #2 @110 for #1 paid A by #4; deposit #1 settled for A/0");
}

/// An order may be cancelled before it reads of its candidate, and be marked paid until the candidate is confirmed.
#[test]
fn what_was_on_its_way_asks_a_cancelled_order() {
    let cancelled = CloseReason::OrderCancelled;
    let asked =
        || seen().then(close('A', cancelled), &ends('A', 1, cancelled)).then(head(120), ASKED_A);
    asked().then(settled('A', 2), PAID_A);
    asked().then(
        refused('A', 2, UnknownReason::OrderCancelled),
        "unknown #2 @110 order_cancelled maybe A",
    );
}

/// A reorganisation moves a payment of a marked order to a block after the deadline. The payment is then no candidate,
/// and another reorganisation that moves it back does not make it one again.
#[test]
fn a_marked_order_lets_go_of_what_fits_no_more() {
    marked()
        .then(pay(1, "10.00").retracted(1), "")
        .then(pay(1, "10.00").at(201).fork(1), "to A: gone #2; detected #2 @201")
        .then(pay(1, "10.00").at(201).fork(1).retracted(2), "")
        .then(pay(1, "10.00").fork(2), "detected #2 @110")
        .then(head(120).epoch(2), "confirmed #2 @110; unknown #2 @110 already_paid maybe A");
}
