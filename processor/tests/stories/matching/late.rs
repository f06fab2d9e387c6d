//! Payments after the end of their order, where the shop accepts them.

use super::*;

/// A lane whose deposit has expired, and keeps its amount.
fn expired() -> Lane {
    Lane::new().then(open('A', "10.00").accepts_late(), OPEN_A).then(head(211), EXPIRED_A)
}

/// A lane with a settle of a late payment in flight.
fn asks() -> Lane {
    expired()
        .then(pay(1, "10.00").at(212), "to A: seen #2; detected #2 @212 for #1")
        .then(head(222), "confirmed #2 @212 for #1; to A: settle #2 /0 #1 late too")
}

#[test]
fn it_pays_while_its_amount_is_kept() {
    asks().then(settled('A', 2), "matched #2 @212 for #1 paid A by #3; deposit #1 settled for A/0");
}

#[test]
fn the_order_may_refuse_it() {
    asks().then(
        refused('A', 2, UnknownReason::OrderCancelled),
        "unknown #2 @212 order_cancelled maybe A",
    );
}

#[test]
fn seen_before_the_end_it_holds_its_deposit() {
    Lane::new()
        .then(open('A', "10.00").accepts_late(), OPEN_A)
        .then(pay(1, "10.00").at(205), "to A: seen #2; detected #2 @205 for #1")
        .then(head(211), "")
        .then(head(215), "confirmed #2 @205 for #1; to A: settle #2 /0 #1 late too")
        .then(settled('A', 2), "matched #2 @205 for #1 paid A by #3; deposit #1 settled for A/0");
}

#[test]
fn after_the_late_window_it_is_unknown() {
    expired()
        .then(head(262), "")
        .then(pay(1, "10.00").at(263), "detected #2 @263")
        .then(head(273), "confirmed #2 @263")
        .then(head(284), "unknown #2 @263 no_deposit");
}

#[test]
fn another_sender_and_another_amount_stay_unknown() {
    Lane::new()
        .then(open('A', "10.00").only_from(7).accepts_late(), OPEN_A)
        .then(head(211), EXPIRED_A)
        .then(pay(1, "10.00").from(8).at(212), "detected #2 @212")
        .then(pay(2, "9.99").from(7).at(212), "detected #3 @212")
        .then(head(222), "confirmed #2 @212; confirmed #3 @212")
        .then(
            head(233),
            "unknown #2 @212 sender_mismatch maybe A; unknown #3 @212 amount_mismatch maybe A",
        );
}

#[test]
fn one_that_was_cancelled_takes_what_was_under_way() {
    Lane::new()
        .then(open('A', "10.00").accepts_late(), OPEN_A)
        .then(close('A', CloseReason::OrderCancelled), &ends('A', 1, "order_cancelled"))
        .then(pay(1, "10.00").at(112), "to A: seen #2; detected #2 @112 for #1")
        .then(head(122), "confirmed #2 @112 for #1; to A: settle #2 /0 #1 late too")
        .then(settled('A', 2), "matched #2 @112 for #1 paid A by #3; deposit #1 settled for A/0");
}
