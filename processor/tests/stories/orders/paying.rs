//! Payers of an order.

use super::*;

#[test]
fn the_first_settle_wins() {
    waiting()
        .then(seen('A', 7), "A v4 candidate_seen maybe #7 [open w1 #9 10.01]")
        .then(seen('A', 8), "A v5 candidate_seen maybe #7 maybe #8 [open w1 #9 10.01]")
        .then(
            settle('A', 0, 8),
            "eth w1: A/0 settled #8; A v6 paid! paid by #8 [closed w1 #9 10.01]",
        )
        .then(settle('A', 0, 7), "eth w1: A/0 refused #7 already_paid")
        // A repeated settle gets the same reply.
        .then(settle('A', 0, 8), "eth w1: A/0 settled #8");
}

#[test]
fn a_settle_after_the_end_is_refused() {
    for (status, reason) in [
        (OrderStatus::Paid, UnknownReason::AlreadyPaid),
        (OrderStatus::Expired, UnknownReason::Late),
        (OrderStatus::Cancelled, UnknownReason::OrderCancelled),
    ] {
        ended(status).then(settle('A', 0, 8), &format!("eth w1: A/0 refused #8 {reason}"));
    }
    waiting()
        .then(
            mark_paid('A', 2),
            "eth w1: A/0 close order_paid; A v4 paid! marked_paid answers 2 [open w1 #9 10.01]",
        )
        .then(settle('A', 0, 8), "eth w1: A/0 refused #8 already_paid");
}

#[test]
fn payment_closes_other_deposits() {
    replaced()
        .then(
            choose('A', 3, usdt(Blockchain::Op, &[3])),
            "op w3: A/2 open 10.00 USDT from 1050 to 2000
             A v6 payment_chosen answers 3 \
             [open w1 #9 10.01] [open w2 #12 10.00] [requested w3]",
        )
        .then(
            settle('A', 0, 7),
            "eth w1: A/0 settled #7; base w2: A/1 close order_paid
             A v7 paid! paid by #7 [closed w1 #9 10.01] [open w2 #12 10.00] [requested w3]",
        )
        .then(
            closed('A', 1, CloseReason::OrderPaid),
            "A v8 paid deposit_closed by #7 \
             [closed w1 #9 10.01] [closed w2 #12 10.00] [requested w3]",
        )
        .then(
            opened('A', 2, 15, "10.00"),
            "op w3: A/2 close order_paid
             A v9 paid not_pending by #7 answers 3 \
             [closed w1 #9 10.01] [closed w2 #12 10.00] [open w3 #15 10.00]",
        );
}

#[test]
fn mark_paid_works_from_every_state() {
    created()
        .then(mark_paid('A', 2), "A v2 paid! marked_paid answers 2")
        .then(mark_paid('A', 3), "A v3 paid mark_paid_repeated answers 3");
    ended(OrderStatus::Paid).then(
        mark_paid('A', 2),
        "A v5 paid mark_paid_repeated by #7 answers 2 [closed w1 #9 10.01]",
    );
    ended(OrderStatus::Expired)
        .then(mark_paid('A', 2), "A v5 paid! marked_paid answers 2 [closed w1 #9 10.01]");
    ended(OrderStatus::Cancelled)
        .then(
            closed('A', 0, CloseReason::OrderCancelled),
            "A v5 cancelled deposit_closed [closed w1 #9 10.01]",
        )
        .then(mark_paid('A', 4), "A v6 paid! marked_paid answers 4 [closed w1 #9 10.01]");
}

/// The current status is published again, as a new version.
#[test]
fn a_webhook_is_resent_as_a_version() {
    waiting().then(resend('A', 2), "A v4 resend_refused answers 2 [open w1 #9 10.01]").then(
        settle('A', 0, 7),
        "eth w1: A/0 settled #7; A v5 paid! paid by #7 [closed w1 #9 10.01]",
    );
    for status in [OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled] {
        let mut state = ended(status).machine().clone();
        let effects = decide(&mut state, &resend('A', 2));
        let [Effect::Order(order)] = &effects[..] else { panic!("one version: {effects:?}") };
        assert_eq!((order.version, order.cause), (5, OrderCause::WebhookResent));
        assert_eq!((order.status, order.status_changed), (status, false));
    }
}

/// A candidate of an order that an operator marks paid becomes its payer, and is not a second payment.
#[test]
fn marked_paid_it_takes_what_was_on_its_way() {
    let marked = || {
        waiting()
            .then(seen('A', 7), "A v4 candidate_seen maybe #7 [open w1 #9 10.01]")
            .then(
                mark_paid('A', 2),
                "eth w1: A/0 close order_paid
                 A v5 paid! marked_paid answers 2 maybe #7 [open w1 #9 10.01]",
            )
            .then(
                closed('A', 0, CloseReason::OrderPaid),
                "A v6 paid deposit_closed maybe #7 [closed w1 #9 10.01]",
            )
            // A transfer that is seen later is a second payment.
            .ignores(seen('A', 8))
            .then(settle('A', 0, 8), "eth w1: A/0 refused #8 already_paid")
    };
    marked()
        .then(
            settle('A', 0, 7),
            "eth w1: A/0 settled #7; A v7 paid attached by #7 [closed w1 #9 10.01]",
        )
        .then(settle('A', 0, 8), "eth w1: A/0 refused #8 already_paid");
    marked()
        .then(gone('A', 7), "A v7 paid candidate_gone [closed w1 #9 10.01]")
        .then(settle('A', 0, 7), "eth w1: A/0 refused #7 already_paid");
}

/// The same holds for a candidate that an order read of after it was cancelled.
#[test]
fn marked_after_a_cancel_it_takes_its_candidate() {
    ended(OrderStatus::Cancelled)
        .then(seen('A', 7), "A v5 cancelled candidate_seen maybe #7 [open w1 #9 10.01]")
        .then(
            closed('A', 0, CloseReason::OrderCancelled),
            "A v6 cancelled deposit_closed maybe #7 [closed w1 #9 10.01]",
        )
        .then(mark_paid('A', 3), "A v7 paid! marked_paid answers 3 maybe #7 [closed w1 #9 10.01]")
        .then(
            settle('A', 0, 7),
            "eth w1: A/0 settled #7; A v8 paid attached by #7 [closed w1 #9 10.01]",
        );
}

/// A lane that repeats a settle before it has read the refusal gets the same reply, even if the order was marked paid
/// meanwhile.
#[test]
fn a_refused_candidate_is_refused_again() {
    ended(OrderStatus::Cancelled)
        .then(seen('A', 7), "A v5 cancelled candidate_seen maybe #7 [open w1 #9 10.01]")
        .then(
            settle('A', 0, 7),
            "eth w1: A/0 refused #7 order_cancelled
             A v6 cancelled candidate_gone [open w1 #9 10.01]",
        )
        .then(
            mark_paid('A', 3),
            "eth w1: A/0 close order_paid; A v7 paid! marked_paid answers 3 [open w1 #9 10.01]",
        )
        .then(settle('A', 0, 7), "eth w1: A/0 refused #7 already_paid");
}

/// The changelog has a pending order with a payer: nothing may pay it again.
#[test]
fn a_second_payer_breaks_invariant_2() {
    let (key, mut entry) = waiting().machine().snapshot().remove(0);
    entry.order.paid_by = Some(schemas::TransferId(7));
    let mut state = State::new();
    state.restore(&key, Some(&entry)).unwrap();
    let broken = state.decide(&settle('A', 0, 8), &mut Vec::new()).unwrap_err();
    assert_eq!(broken.invariant, 2, "{broken}");
}
