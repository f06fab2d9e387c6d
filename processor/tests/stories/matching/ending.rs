//! Expiry of deposits and release of their amounts; rejection and forgetting of transfers.

use schemas::record::AmountRule;
use schemas::{CloseReason, UnknownReason};

use super::OPEN_A;
use super::lane::Lane;
use crate::chain::{close, head, open, pay, refused, settled};

mod guarding {
    use super::*;

    /// The amount fits, so `amount_mismatch` would mislead the operator.
    #[test]
    fn a_later_misfit_keeps_its_reason() {
        Lane::new()
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(head(120), "confirmed #1 waiting_for_match @110")
            .then(
                open('A', "10.00").only_from(8),
                "deposit #2 open 10.00 for A/0; to A: opened /0 #2 10.00",
            )
            .then(head(131), "unknown #1 no_matched_deposit @110 sender_mismatch maybe A");
    }

    /// With a match window longer than the deposit's, the deposit is closed when the wrong amount is rejected. Its
    /// order is named nevertheless.
    #[test]
    fn a_wrong_amount_names_who_waited() {
        Lane::new()
            .then(open('A', "10.00").between(100, 115), OPEN_A)
            .then(pay(1, "9.99"), "detected #2 waiting_for_confirmation @110")
            .then(head(120), "confirmed #2 waiting_for_match @110")
            .then(head(126), "deposit #1 closed expired for A/0; to A: closed /0 expired")
            // Nearer by amount, but opened after the transfer.
            .then(
                open('B', "9.98").between(127, 220),
                "deposit #3 open 9.98 for B/0; to B: opened /0 #3 9.98",
            )
            .then(head(131), "unknown #2 no_matched_deposit @110 amount_mismatch maybe A");
    }

    /// A fee of 1.00 was deducted: the nearest amount is the lowest one, of another customer.
    #[test]
    fn digits_name_who_paid_less() {
        let exact = |order, value: &str| open(order, value).amounts(AmountRule::EXACT);
        let opened = |order, id, value| {
            format!("deposit #{id} open {value} for {order}/0; to {order}: opened /0 #{id} {value}")
        };
        Lane::new()
            .then(exact('A', "20.009248"), &opened('A', 1, "20.009248"))
            .then(exact('B', "20.000411"), &opened('B', 2, "20.000411"))
            .then(pay(1, "19.009248"), "detected #3 waiting_for_confirmation @110")
            .then(pay(2, "18.90"), "detected #4 waiting_for_confirmation @110")
            .then(pay(3, "20"), "detected #5 waiting_for_confirmation @110")
            .then(
                head(120),
                "confirmed #3 waiting_for_match @110
                 confirmed #4 waiting_for_match @110
                 confirmed #5 waiting_for_match @110",
            )
            .then(
                head(131),
                "unknown #3 no_matched_deposit @110 amount_mismatch maybe A
                 unknown #4 no_matched_deposit @110 amount_mismatch
                 unknown #5 no_matched_deposit @110 amount_mismatch",
            );
    }

    /// A transfer cannot be meant for an order that did not exist yet.
    #[test]
    fn a_wrong_amount_names_no_later_order() {
        Lane::new()
            .then(pay(1, "9.99"), "detected #1 waiting_for_confirmation @110")
            .then(head(120), "confirmed #1 waiting_for_match @110")
            .then(
                open('B', "9.98").between(121, 220),
                "deposit #2 open 9.98 for B/0; to B: opened /0 #2 9.98",
            )
            .then(head(131), "unknown #1 no_matched_deposit @110 amount_mismatch");
    }

    /// While a second payment waits for confirmation, its amount is not reassigned.
    #[test]
    fn a_waiting_transfer_holds_its_amount() {
        Lane::new()
            .then(head(100), "")
            .then(open('A', "10.00").late_window(20), OPEN_A)
            .then(
                pay(1, "10.00"),
                "to A: seen #2; detected #2 waiting_for_confirmation @110 for #1",
            )
            .then(
                close('A', CloseReason::OrderPaid),
                "deposit #1 closed order_paid for A/0; to A: closed /0 order_paid",
            )
            // The late window is over at block 102.
            .then(head(111), "")
            .then(open('B', "10.00"), "deposit #3 open 10.01 for B/0; to B: opened /0 #3 10.01")
            .then(head(120), "confirmed #2 waiting_for_match @110 for #1; to A: settle #2 /0 #1")
            .then(
                refused('A', 2, UnknownReason::AlreadyPaid),
                "unknown #2 no_matched_deposit @110 already_paid maybe A",
            )
            .then(head(121), "")
            .then(open('C', "10.00"), "deposit #4 open 10.00 for C/0; to C: opened /0 #4 10.00");
    }
}

mod expiring {
    use super::*;

    #[test]
    fn a_deposit_expires_by_chain_time() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                open('B', "20.00").between(100, 300),
                "deposit #2 open 20.00 for B/0; to B: opened /0 #2 20.00",
            )
            .then(open('C', "30.00"), "deposit #3 open 30.00 for C/0; to C: opened /0 #3 30.00")
            .then(head(201), "")
            .then(head(210), "")
            .then(
                head(211),
                "deposit #1 closed expired for A/0; to A: closed /0 expired
                 deposit #3 closed expired for C/0; to C: closed /0 expired",
            )
            .then(
                pay(1, "20.00").at(212),
                "to B: seen #4; detected #4 waiting_for_confirmation @212 for #2",
            );
    }

    /// The order waits for a replaced deposit as for an open one, and requests its outcome.
    #[test]
    fn a_replaced_deposit_expires_by_chain_time() {
        let closed =
            |reason| format!("deposit #1 closed {reason} for A/0; to A: closed /0 {reason}");
        let replaced = || {
            let mut lane = Lane::new();
            lane.then(open('A', "10.00").late_window(20), OPEN_A)
                .then(close('A', CloseReason::Replaced), &closed("replaced"))
                .then(head(210), "")
                .then(close('A', CloseReason::Expired), "to A: closed /0 replaced");
            lane
        };
        replaced()
            .then(head(211), &closed("expired"))
            .then(close('A', CloseReason::Expired), "to A: closed /0 expired")
            .then(pay(1, "10.00").at(212), "detected #2 waiting_for_confirmation @212");
        replaced().then(close('A', CloseReason::OrderPaid), &closed("order_paid"));
    }

    #[test]
    fn a_replaced_deposit_waits_for_its_candidate() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                close('A', CloseReason::Replaced),
                "deposit #1 closed replaced for A/0; to A: closed /0 replaced",
            )
            .then(
                pay(1, "10.00").at(199),
                "to A: seen #2; detected #2 waiting_for_confirmation @199 for #1",
            )
            .then(head(230).tiers(&[], 198), "")
            .then(head(231), "confirmed #2 waiting_for_match @199 for #1; to A: settle #2 /0 #1")
            .then(
                settled('A', 2),
                "matched #2 matched @199 for #1 paid A by #3; deposit #1 closed settled for A/0",
            );
    }

    #[test]
    fn a_large_amount_waits_for_its_own_tier() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                open('B', "2000.00"),
                "deposit #2 open 2000.00 for B/0; to B: opened /0 #2 2000.00",
            )
            .then(
                head(211).tiers(&[("1000", 201)], 200),
                "deposit #1 closed expired for A/0; to A: closed /0 expired",
            )
            .then(
                head(212).tiers(&[("1000", 202)], 201),
                "deposit #2 closed expired for B/0; to B: closed /0 expired",
            );
    }

    #[test]
    fn a_candidate_holds_its_deposit() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                pay(1, "10.00").at(199),
                "to A: seen #2; detected #2 waiting_for_confirmation @199 for #1",
            )
            .then(head(205), "")
            .then(head(209), "confirmed #2 waiting_for_match @199 for #1; to A: settle #2 /0 #1")
            // Nor does it expire while its settle is in flight.
            .then(head(220), "")
            .then(
                settled('A', 2),
                "matched #2 matched @199 for #1 paid A by #3; deposit #1 closed settled for A/0",
            );
    }

    #[test]
    fn the_last_candidate_gone_it_expires() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                pay(1, "10.00").at(195),
                "to A: seen #2; detected #2 waiting_for_confirmation @195 for #1",
            )
            .then(
                pay(2, "10.00").at(199),
                "to A: seen #3; detected #3 waiting_for_confirmation @199 for #1",
            )
            .then(head(205), "confirmed #2 waiting_for_match @195 for #1; to A: settle #2 /0 #1")
            .then(
                refused('A', 2, UnknownReason::Late),
                "unknown #2 no_matched_deposit @195 late maybe A",
            )
            .then(head(208), "")
            .then(head(209), "confirmed #3 waiting_for_match @199 for #1; to A: settle #3 /0 #1")
            .then(
                refused('A', 3, UnknownReason::Late),
                "unknown #3 no_matched_deposit @199 late maybe A",
            )
            .then(head(210), "")
            .then(head(211), "deposit #1 closed expired for A/0; to A: closed /0 expired");
    }

    #[test]
    fn an_outage_expires_nothing() {
        Lane::new()
            .then(head(150), "")
            .then(open('A', "10.00"), OPEN_A)
            // By the wall clock this command comes much later.
            .then(
                open('B', "10.00").between(5000, 6000),
                "deposit #2 open 10.01 for B/0; to B: opened /0 #2 10.01",
            )
            .then(head(151), "")
            .then(
                pay(1, "10.00").at(152),
                "to A: seen #3; detected #3 waiting_for_confirmation @152 for #1",
            );
    }
}

mod forgetting {
    use super::*;
    use crate::chain::{DAY, FORGETS};

    #[test]
    fn forgotten_after_a_day_then_stale() {
        let mut lane = Lane::new();
        lane.then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(head(120), "confirmed #1 waiting_for_match @110")
            .then(head(131), "unknown #1 no_matched_deposit @110 no_deposit")
            .then(head(FORGETS - 1), "")
            .ignores(pay(1, "10.00"));
        assert_eq!(lane.machine().transfer_count(), 1);
        lane.then(head(FORGETS), "").then(pay(1, "10.00"), "alert stale_transfer");
        assert_eq!(lane.machine().transfer_count(), 0);
    }

    #[test]
    fn what_is_not_final_is_kept() {
        let mut lane = Lane::new();
        lane.then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(head(120).finalized(90), "confirmed #1 waiting_for_match @110")
            .then(head(131).finalized(90), "unknown #1 no_matched_deposit @110 no_deposit")
            .then(head(FORGETS).finalized(109), "");
        assert_eq!(lane.machine().transfer_count(), 1);
        lane.then(head(FORGETS + 1).finalized(110), "");
        assert_eq!(lane.machine().transfer_count(), 0);
    }

    #[test]
    fn a_day_late_is_an_alert() {
        Lane::new()
            .then(open('A', "10.00").between(100, 9999), OPEN_A)
            .then(
                open('B', "20.00").between(100, 9999),
                "deposit #2 open 20.00 for B/0; to B: opened /0 #2 20.00",
            )
            .then(head(110 + DAY), "")
            .then(
                pay(1, "10.00").at(110),
                "to A: seen #3; detected #3 waiting_for_confirmation @110 for #1",
            )
            .then(pay(2, "20.00").at(109), "alert stale_transfer");
    }

    #[test]
    fn deposits_end_with_their_late_window() {
        let mut lane = Lane::new();
        lane.then(open('A', "10.00"), OPEN_A)
            .then(head(211), "deposit #1 closed expired for A/0; to A: closed /0 expired")
            .then(head(261), "");
        assert_eq!(lane.machine().deposit_count(), 1);
        lane.then(head(262), "");
        assert_eq!(lane.machine().deposit_count(), 0);
    }
}
