//! Candidates and cancel.

use super::*;

#[test]
fn a_candidate_is_noted_once() {
    waiting()
        .then(seen('A', 7), "A v4 candidate_seen maybe #7 [open w1 #9 10.01]")
        .ignores(seen('A', 7))
        .ignores(gone('A', 8))
        .then(gone('A', 7), "A v5 candidate_gone [open w1 #9 10.01]")
        .ignores(gone('A', 7));
}

#[test]
fn what_is_paid_has_no_candidates() {
    ended(OrderStatus::Paid).ignores(seen('A', 8)).ignores(gone('A', 8)).ignores(gone('A', 7));
}

/// While a late payment waits for confirmation, an operator may mark the order paid.
#[test]
fn what_ended_unpaid_has_candidates() {
    let status = OrderStatus::Cancelled;
    ended(status)
        .then(seen('A', 8), &format!("A v5 {status} candidate_seen maybe #8 [open w1 #9 10.01]"));
    ended(OrderStatus::Expired)
        .then(seen('A', 8), "A v5 expired candidate_seen maybe #8 [closed w1 #9 10.01]")
        .then(mark_paid('A', 9), "A v6 paid! marked_paid answers 9 maybe #8 [closed w1 #9 10.01]")
        .then(
            late_settle('A', 0, 8),
            "eth w1: A/0 settled #8; A v7 paid attached by #8 [closed w1 #9 10.01]",
        );
}

#[test]
fn cancel_ends_order_and_deposits() {
    created()
        .then(cancel('A', 2), "A v2 cancelled! cancelled answers 2")
        .then(cancel('A', 3), "A v3 cancelled not_pending answers 3");
    ended(OrderStatus::Cancelled);
}

#[test]
fn a_candidate_refuses_the_cancel() {
    waiting()
        .then(seen('A', 7), "A v4 candidate_seen maybe #7 [open w1 #9 10.01]")
        .then(cancel('A', 2), "A v5 cancel_refused answers 2 maybe #7 [open w1 #9 10.01]")
        .then(gone('A', 7), "A v6 candidate_gone [open w1 #9 10.01]")
        .then(
            cancel('A', 3),
            "eth w1: A/0 close order_cancelled
             A v7 cancelled! cancelled answers 3 [open w1 #9 10.01]",
        );
}
