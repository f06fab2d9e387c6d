//! Payment by a transfer that an operator attached.

use super::*;

/// Effects of the attach of #8 by command 2 to an expired order.
const PAID: &str =
    "eth w1: A/0 attached #8; A v5 paid! attached by #8 answers 2 [closed w1 #9 10.01]";

#[test]
fn it_pays_from_every_state() {
    ended(OrderStatus::Expired).then(attach('A', 2, 8, "9.00"), PAID);
    ended(OrderStatus::Cancelled).then(
        attach('A', 3, 8, "9.00"),
        "eth w1: A/0 attached #8; eth w1: A/0 close order_paid
         A v5 paid! attached by #8 answers 3 [open w1 #9 10.01]",
    );
    waiting().then(
        attach('A', 2, 8, "9.00"),
        "eth w1: A/0 attached #8; eth w1: A/0 close order_paid
         A v4 paid! attached by #8 answers 2 [open w1 #9 10.01]",
    );
}

#[test]
fn what_was_marked_paid_gets_its_payer() {
    waiting()
        .then(
            mark_paid('A', 2),
            "eth w1: A/0 close order_paid; A v4 paid! marked_paid answers 2 [open w1 #9 10.01]",
        )
        .then(
            attach('A', 3, 8, "9.00"),
            "eth w1: A/0 attached #8; A v5 paid attached by #8 answers 3 [open w1 #9 10.01]",
        );
}

#[test]
fn a_second_transfer_is_refused() {
    ended(OrderStatus::Paid)
        .then(
            attach('A', 2, 8, "9.00"),
            "eth w1: A/0 attach refused #8; A v5 paid attach_refused by #7 answers 2 [closed w1 #9 10.01]",
        )
        // An attach repeated by the lane publishes no order: no api request waits for one.
        .then(attach_again('A', 8, "9.00"), "eth w1: A/0 attach refused #8");
}

#[test]
fn the_same_question_has_the_same_answer() {
    ended(OrderStatus::Expired)
        .then(attach('A', 2, 8, "9.00"), PAID)
        .then(attach_again('A', 8, "9.00"), "eth w1: A/0 attached #8")
        .then(
            attach('A', 3, 8, "9.00"),
            "eth w1: A/0 attached #8; A v6 paid attached by #8 answers 3 [closed w1 #9 10.01]",
        );
}

#[test]
fn what_it_brought_is_the_paid_value() {
    let book = ended(OrderStatus::Expired).then(attach('A', 2, 8, "9.00"), PAID);
    assert_eq!(row(&book).paid_value, Some(amount("9.00")));
}

#[test]
fn a_transfer_that_may_pay_nothing_leaves_it_as_it_is() {
    ended(OrderStatus::Expired)
        .then(attach_refused('A', 2), "A v5 expired attach_refused answers 2 [closed w1 #9 10.01]");
}

/// Without a reply the lane's transfer would wait for ever.
#[test]
fn a_forgotten_order_comes_back_with_its_row() {
    let order = row(&ended(OrderStatus::Expired));
    Book::new().then(attach('A', 2, 8, "9.00"), "eth w1: A/0 attach refused #8");
    Book::new().then(carrying(attach('A', 2, 8, "9.00"), &order), PAID);
}

/// A late payment pays an ended order if its deposit accepts late payments.
#[test]
fn a_late_payment_pays_where_it_is_accepted() {
    for status in [OrderStatus::Expired, OrderStatus::Cancelled] {
        ended(status).then(
            late_settle('A', 0, 8),
            "eth w1: A/0 settled #8; A v5 paid! paid_late by #8 [closed w1 #9 10.01]",
        );
    }
    ended(OrderStatus::Paid).then(late_settle('A', 0, 8), "eth w1: A/0 refused #8 already_paid");
}
