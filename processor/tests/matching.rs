//! Matching, told as stories: which transfer fits which deposit, when it is confirmed, what becomes of
//! it (spec 3.2, `design` 5). How waiting ends is in `matching/ending.rs`, reorganisations are in
//! `matching/reorg.rs`.

#[path = "support/chain.rs"]
mod chain;
#[path = "matching/ending.rs"]
mod ending;
#[path = "matching/lane.rs"]
mod lane;
#[path = "support/name.rs"]
mod name;
#[path = "matching/reorg.rs"]
mod reorg;
#[path = "support/story.rs"]
mod story;

use chain::{close, head, open, pay, refused, settled};
use lane::Lane;
use name::{amount, order, wallet};
use schemas::record::MatchingEntry;
use schemas::{CloseReason, Stablecoin, TransferStatus, UnknownReason};
use tidemark_processor::machine::matching::{Effect, Input, State};

/// The first deposit of most stories, opened.
const OPEN_A: &str = "deposit #1 open 10.00 for A/0; tell A opened /0 #1 10.00";

mod opening {
    use super::*;

    #[test]
    fn open_reserves_the_amount_asked() {
        Lane::new().then(open('A', "10.00"), OPEN_A);
    }

    #[test]
    fn a_taken_amount_is_nudged_to_the_nearest_free_step_above() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(open('B', "10.00"), "deposit #2 open 10.01 for B/0; tell B opened /0 #2 10.01")
            .then(open('C', "10.02"), "deposit #3 open 10.02 for C/0; tell C opened /0 #3 10.02")
            // 10.01 and 10.02 are gone, 10.03 is the limit.
            .then(open('D', "10.00"), "deposit #4 open 10.03 for D/0; tell D opened /0 #4 10.03")
            .then(open('E', "10.00"), "tell E refused /0 amounts_taken")
            // An amount between the steps is in nobody's way.
            .then(
                open('F', "10.005"),
                "deposit #5 open 10.005 for F/0; tell F opened /0 #5 10.005",
            );
    }

    #[test]
    fn an_amount_between_the_steps_does_not_end_the_search() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(open('B', "10.01"), "deposit #2 open 10.01 for B/0; tell B opened /0 #2 10.01")
            .then(open('C', "10.005"), "deposit #3 open 10.005 for C/0; tell C opened /0 #3 10.005")
            .then(open('D', "10.00"), "deposit #4 open 10.02 for D/0; tell D opened /0 #4 10.02");
    }

    #[test]
    fn no_step_means_no_nudge() {
        Lane::new()
            .then(open('A', "10.00").nudge("0", "0"), OPEN_A)
            .then(open('B', "10.00").nudge("0", "0"), "tell B refused /0 amounts_taken")
            .then(open('C', "10.00").nudge("0", "5"), "tell C refused /0 amounts_taken")
            .then(open('D', "10.00").nudge("0.02", "0.01"), "tell D refused /0 amounts_taken");
    }

    #[test]
    fn amounts_at_another_wallet_or_in_another_coin_are_free() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                open('B', "10.00").wallet(2),
                "deposit #2 open 10.00 for B/0; tell B opened /0 #2 10.00",
            )
            .then(
                open('C', "10.00").stablecoin(Stablecoin::Usdc),
                "deposit #3 open 10.00 for C/0; tell C opened /0 #3 10.00",
            )
            .then(
                pay(1, "10.00").to(2),
                "tell B seen #4; detected #4 waiting_for_confirmation @110 for #2",
            )
            .then(pay(2, "10.00").to(3), "detected #5 waiting_for_confirmation @110")
            .then(
                pay(3, "10.00").stablecoin(Stablecoin::Usdc),
                "tell C seen #6; detected #6 waiting_for_confirmation @110 for #3",
            );
    }

    #[test]
    fn the_late_window_keeps_an_amount_and_then_lets_it_go() {
        Lane::new()
            .then(head(120), "")
            .then(open('A', "10.00"), OPEN_A)
            .then(
                close('A', CloseReason::OrderCancelled),
                "deposit #1 closed order_cancelled for A/0; tell A closed /0 order_cancelled",
            )
            .then(open('B', "10.00"), "deposit #2 open 10.01 for B/0; tell B opened /0 #2 10.01")
            // 120 + 50 blocks is the last moment of the window.
            .then(head(170), "")
            .then(open('C', "10.00"), "deposit #3 open 10.02 for C/0; tell C opened /0 #3 10.02")
            .then(head(171), "")
            .then(open('D', "10.00"), "deposit #4 open 10.00 for D/0; tell D opened /0 #4 10.00");
    }

    #[test]
    fn without_a_head_the_late_window_counts_from_the_command() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                close('A', CloseReason::OrderPaid),
                "deposit #1 closed order_paid for A/0; tell A closed /0 order_paid",
            )
            .then(head(150), "")
            .then(open('B', "10.00"), "deposit #2 open 10.01 for B/0; tell B opened /0 #2 10.01")
            .then(head(151), "")
            .then(open('C', "10.00"), "deposit #3 open 10.00 for C/0; tell C opened /0 #3 10.00");
    }

    #[test]
    fn when_the_chain_has_passed_the_deadline_nothing_opens() {
        Lane::new()
            .then(head(200), "")
            .then(open('A', "10.00"), OPEN_A)
            .then(head(201), "deposit #1 closed expired for A/0; tell A closed /0 expired")
            .then(open('B', "20.00"), "tell B refused /0 expired");
    }

    #[test]
    fn a_duplicate_open_is_ignored_even_after_the_deposit_closed() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .ignores(open('A', "10.00"))
            .then(
                close('A', CloseReason::OrderCancelled),
                "deposit #1 closed order_cancelled for A/0; tell A closed /0 order_cancelled",
            )
            .ignores(open('A', "10.00"))
            .ignores(close('A', CloseReason::OrderPaid))
            .then(
                open('A', "10.00").slot(1),
                "deposit #2 open 10.01 for A/1; tell A opened /1 #2 10.01",
            );
    }

    #[test]
    fn close_of_what_never_opened_is_ignored() {
        Lane::new().ignores(close('A', CloseReason::OrderCancelled));
    }
}

mod paying {
    use super::*;

    #[test]
    fn a_transfer_is_a_candidate_then_confirmed_then_settled_then_matched() {
        Lane::new()
            .then(head(100), "")
            .then(open('A', "10.00"), OPEN_A)
            .then(
                pay(1, "10.00"),
                "tell A seen #2; detected #2 waiting_for_confirmation @110 for #1",
            )
            .then(head(119), "")
            .then(head(120), "confirmed #2 waiting_for_match @110 for #1; tell A settle #2 /0 #1")
            .then(
                settled('A', 2),
                "matched #2 matched @110 for #1 paid A by #3; deposit #1 closed settled for A/0",
            )
            .ignores(settled('A', 2))
            .ignores(refused('A', 2, UnknownReason::AlreadyPaid));
    }

    #[test]
    fn a_transfer_before_its_deposit_is_adopted_while_it_waits_for_confirmation() {
        Lane::new()
            .then(head(100), "")
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(
                open('A', "10.00"),
                "deposit #2 open 10.00 for A/0; tell A opened /0 #2 10.00
                 tell A seen #1; detected #1 waiting_for_confirmation @110 for #2",
            )
            .then(head(120), "confirmed #1 waiting_for_match @110 for #2; tell A settle #1 /0 #2")
            .then(
                settled('A', 1),
                "matched #1 matched @110 for #2 paid A by #3; deposit #2 closed settled for A/0",
            );
    }

    #[test]
    fn a_transfer_before_its_deposit_is_adopted_after_confirmation() {
        Lane::new()
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(head(120), "confirmed #1 waiting_for_match @110")
            .then(
                open('A', "10.00"),
                "deposit #2 open 10.00 for A/0; tell A opened /0 #2 10.00; tell A settle #1 /0 #2",
            )
            .then(
                settled('A', 1),
                "matched #1 matched @110 for #2 paid A by #3; deposit #2 closed settled for A/0",
            );
    }

    #[test]
    fn adoption_takes_only_what_fits() {
        Lane::new()
            .then(pay(1, "10.00").from(8), "detected #1 waiting_for_confirmation @110")
            .then(pay(2, "10.01").from(7), "detected #2 waiting_for_confirmation @110")
            .then(pay(3, "10.00").at(96), "detected #3 waiting_for_confirmation @96")
            .then(
                pay(4, "10.00").stablecoin(Stablecoin::Dai),
                "detected #4 waiting_for_confirmation @110",
            )
            .then(head(106), "confirmed #3 waiting_for_match @96")
            .then(
                open('A', "10.00").only_from(7),
                "deposit #5 open 10.00 for A/0; tell A opened /0 #5 10.00",
            );
    }

    #[test]
    fn a_transfer_in_the_very_block_of_its_deposit_pays_whichever_comes_first() {
        Lane::new()
            .then(pay(1, "10.00").at(100), "detected #1 waiting_for_confirmation @100")
            .then(head(100), "")
            .then(
                open('A', "10.00"),
                "deposit #2 open 10.00 for A/0; tell A opened /0 #2 10.00
                 tell A seen #1; detected #1 waiting_for_confirmation @100 for #2",
            );
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                pay(1, "10.00").at(100),
                "tell A seen #2; detected #2 waiting_for_confirmation @100 for #1",
            )
            .then(
                head(100).tiers(&[], 100),
                "confirmed #2 waiting_for_match @100 for #1; tell A settle #2 /0 #1",
            );
    }

    #[test]
    fn two_that_wait_for_the_same_amount_both_ask_and_the_order_takes_one() {
        Lane::new()
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(pay(2, "10.00").at(111), "detected #2 waiting_for_confirmation @111")
            .then(head(120), "confirmed #1 waiting_for_match @110")
            .then(
                open('A', "10.00"),
                "deposit #3 open 10.00 for A/0; tell A opened /0 #3 10.00; tell A settle #1 /0 #3
                 tell A seen #2; detected #2 waiting_for_confirmation @111 for #3",
            )
            .then(head(121), "confirmed #2 waiting_for_match @111 for #3; tell A settle #2 /0 #3")
            .then(
                settled('A', 1),
                "matched #1 matched @110 for #3 paid A by #4; deposit #3 closed settled for A/0",
            )
            .then(
                refused('A', 2, UnknownReason::AlreadyPaid),
                "unknown #2 no_matched_deposit @111 already_paid maybe A",
            );
    }

    /// Found late, by a second look at the chain, it is still the earlier one.
    #[test]
    fn adoption_asks_in_the_order_of_the_chain_not_of_discovery() {
        Lane::new()
            .then(pay(1, "10.00").at(112), "detected #1 waiting_for_confirmation @112")
            .then(pay(2, "10.00").at(111), "detected #2 waiting_for_confirmation @111")
            .then(
                head(122),
                "confirmed #2 waiting_for_match @111; confirmed #1 waiting_for_match @112",
            )
            .then(
                open('A', "10.00"),
                "deposit #3 open 10.00 for A/0; tell A opened /0 #3 10.00
                 tell A settle #2 /0 #3; tell A settle #1 /0 #3",
            );
    }

    #[test]
    fn two_transfers_of_one_transaction_are_two_payments() {
        let second = pay(1, "10.00").ordinal(1);
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(open('B', "12.00"), "deposit #2 open 12.00 for B/0; tell B opened /0 #2 12.00")
            .then(
                pay(1, "10.00"),
                "tell A seen #3; detected #3 waiting_for_confirmation @110 for #1",
            )
            .then(
                pay(1, "12.00"),
                "tell B seen #4; detected #4 waiting_for_confirmation @110 for #2",
            )
            .then(second, "tell A seen #5; detected #5 waiting_for_confirmation @110 for #1")
            .then(
                head(120),
                "confirmed #3 waiting_for_match @110 for #1; tell A settle #3 /0 #1
                 confirmed #4 waiting_for_match @110 for #2; tell B settle #4 /0 #2
                 confirmed #5 waiting_for_match @110 for #1; tell A settle #5 /0 #1",
            )
            .then(
                settled('A', 3),
                "matched #3 matched @110 for #1 paid A by #6; deposit #1 closed settled for A/0",
            )
            .then(
                settled('B', 4),
                "matched #4 matched @110 for #2 paid B by #7; deposit #2 closed settled for B/0",
            )
            .then(
                refused('A', 5, UnknownReason::AlreadyPaid),
                "unknown #5 no_matched_deposit @110 already_paid maybe A",
            );
    }

    #[test]
    fn every_refusal_of_the_order_is_the_reason_of_the_transfer() {
        for reason in UnknownReason::ALL {
            Lane::new()
                .then(open('A', "10.00"), OPEN_A)
                .then(
                    pay(1, "10.00"),
                    "tell A seen #2; detected #2 waiting_for_confirmation @110 for #1",
                )
                .then(
                    head(120),
                    "confirmed #2 waiting_for_match @110 for #1; tell A settle #2 /0 #1",
                )
                .then(
                    refused('A', 2, *reason),
                    &format!("unknown #2 no_matched_deposit @110 {reason} maybe A"),
                )
                .ignores(settled('A', 2))
                // The deposit did not close by it: it waits for a better one, or its end.
                .then(head(201), "deposit #1 closed expired for A/0; tell A closed /0 expired");
        }
    }

    #[test]
    fn an_answer_nobody_waits_for_is_ignored() {
        Lane::new()
            .ignores(settled('A', 7))
            .then(open('A', "10.00"), OPEN_A)
            .then(
                pay(1, "10.00"),
                "tell A seen #2; detected #2 waiting_for_confirmation @110 for #1",
            )
            .ignores(settled('A', 2))
            .ignores(refused('A', 2, UnknownReason::Late));
    }
}

mod confirming {
    use super::*;

    #[test]
    fn amounts_are_confirmed_by_their_own_tier() {
        let tiers = [("100", 110), ("1000", 108)];
        Lane::new()
            .then(pay(1, "99.99"), "detected #1 waiting_for_confirmation @110")
            .then(pay(2, "100"), "detected #2 waiting_for_confirmation @110")
            .then(pay(3, "1000"), "detected #3 waiting_for_confirmation @110")
            .then(head(111).tiers(&[("100", 109), ("1000", 109)], 109), "")
            .then(head(112).tiers(&tiers, 105), "confirmed #1 waiting_for_match @110")
            .then(
                head(113).tiers(&[("100", 112), ("1000", 110)], 109),
                "confirmed #2 waiting_for_match @110",
            )
            .then(
                head(114).tiers(&[("100", 113), ("1000", 111)], 110),
                "confirmed #3 waiting_for_match @110",
            );
    }

    #[test]
    fn nothing_above_the_scanned_head_is_confirmed_whatever_the_head_claims() {
        Lane::new()
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(head(109).tiers(&[], 500), "")
            .then(head(110).tiers(&[], 500), "confirmed #1 waiting_for_match @110");
    }

    #[test]
    fn a_transfer_found_below_the_confirmed_height_waits_for_the_next_head() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(head(130), "")
            .then(
                pay(1, "10.00"),
                "tell A seen #2; detected #2 waiting_for_confirmation @110 for #1",
            )
            .then(head(131), "confirmed #2 waiting_for_match @110 for #1; tell A settle #2 /0 #1");
    }

    #[test]
    fn a_head_that_is_behind_is_ignored() {
        Lane::new()
            .then(head(130), "")
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .ignores(head(129))
            .ignores(head(110).tiers(&[], 110))
            .then(head(130), "confirmed #1 waiting_for_match @110");
    }

    #[test]
    fn records_of_another_chain_are_ignored() {
        let mut transfer = pay(1, "10.00").record();
        transfer.blockchain = schemas::Blockchain::Base;
        let mut other_head = head(500).record();
        other_head.blockchain = schemas::Blockchain::Base;
        Lane::new().ignores(Input::Chain(transfer)).ignores(Input::Chain(other_head));
    }
}

mod refusing {
    use super::*;

    #[test]
    fn a_transfer_from_another_sender_names_the_order_it_was_meant_for() {
        Lane::new()
            .then(open('A', "10.00").only_from(7), OPEN_A)
            .then(pay(1, "10.00").from(8), "detected #2 waiting_for_confirmation @110")
            .then(
                pay(2, "10.00").from(7),
                "tell A seen #3; detected #3 waiting_for_confirmation @110 for #1",
            )
            .then(
                head(120),
                "confirmed #2 waiting_for_match @110
                 unknown #2 no_matched_deposit @110 sender_mismatch maybe A
                 confirmed #3 waiting_for_match @110 for #1; tell A settle #3 /0 #1",
            );
    }

    #[test]
    fn a_block_may_be_older_than_its_deposit_by_the_skew_and_no_more() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(open('B', "20.00"), "deposit #2 open 20.00 for B/0; tell B opened /0 #2 20.00")
            .then(pay(1, "10.00").at(96), "detected #3 waiting_for_confirmation @96")
            .then(
                pay(2, "20.00").at(97),
                "tell B seen #4; detected #4 waiting_for_confirmation @97 for #2",
            )
            .then(
                head(107),
                "confirmed #3 waiting_for_match @96
                 unknown #3 no_matched_deposit @96 before_deposit maybe A
                 confirmed #4 waiting_for_match @97 for #2; tell B settle #4 /0 #2",
            );
    }

    #[test]
    fn the_block_at_the_deadline_pays_and_the_next_is_late() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(open('B', "20.00"), "deposit #2 open 20.00 for B/0; tell B opened /0 #2 20.00")
            .then(
                pay(1, "10.00").at(200),
                "tell A seen #3; detected #3 waiting_for_confirmation @200 for #1",
            )
            .then(pay(2, "20.00").at(201), "detected #4 waiting_for_confirmation @201")
            .then(head(201), "deposit #2 closed expired for B/0; tell B closed /0 expired")
            .then(head(210), "confirmed #3 waiting_for_match @200 for #1; tell A settle #3 /0 #1")
            .then(
                head(211),
                "confirmed #4 waiting_for_match @201
                 unknown #4 no_matched_deposit @201 late maybe B",
            )
            .then(
                settled('A', 3),
                "matched #3 matched @200 for #1 paid A by #5; deposit #1 closed settled for A/0",
            );
    }

    #[test]
    fn late_is_told_even_where_the_deposit_is_still_open() {
        // Confirmed in its own block: the same head that confirms it also ends the deposit.
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(pay(1, "10.00").at(201), "detected #2 waiting_for_confirmation @201")
            .then(
                head(201).tiers(&[], 201),
                "confirmed #2 waiting_for_match @201
                 unknown #2 no_matched_deposit @201 late maybe A
                 deposit #1 closed expired for A/0; tell A closed /0 expired",
            );
    }

    #[test]
    fn a_second_payment_is_already_paid() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                pay(1, "10.00"),
                "tell A seen #2; detected #2 waiting_for_confirmation @110 for #1",
            )
            .then(head(120), "confirmed #2 waiting_for_match @110 for #1; tell A settle #2 /0 #1")
            .then(
                settled('A', 2),
                "matched #2 matched @110 for #1 paid A by #3; deposit #1 closed settled for A/0",
            )
            .then(pay(2, "10.00").at(121), "detected #4 waiting_for_confirmation @121")
            .then(
                head(131),
                "confirmed #4 waiting_for_match @121
                 unknown #4 no_matched_deposit @121 already_paid maybe A",
            );
    }

    #[test]
    fn a_closed_deposit_gives_its_own_reason() {
        for (closed, reason) in [
            (CloseReason::OrderCancelled, UnknownReason::OrderCancelled),
            (CloseReason::OrderPaid, UnknownReason::AlreadyPaid),
            (CloseReason::OrderExpired, UnknownReason::Late),
        ] {
            Lane::new()
                .then(open('A', "10.00"), OPEN_A)
                .then(
                    pay(1, "10.00"),
                    "tell A seen #2; detected #2 waiting_for_confirmation @110 for #1",
                )
                .then(
                    close('A', closed),
                    &format!("deposit #1 closed {closed} for A/0; tell A closed /0 {closed}"),
                )
                .then(pay(2, "10.00").at(111), "detected #3 waiting_for_confirmation @111")
                .then(
                    head(121),
                    &format!(
                        "confirmed #2 waiting_for_match @110 for #1; tell A gone #2
                         unknown #2 no_matched_deposit @110 {reason} maybe A
                         confirmed #3 waiting_for_match @111
                         unknown #3 no_matched_deposit @111 {reason} maybe A"
                    ),
                );
        }
    }

    #[test]
    fn a_wrong_amount_waits_for_the_match_window_and_then_names_the_nearest_order() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(open('B', "12.00"), "deposit #2 open 12.00 for B/0; tell B opened /0 #2 12.00")
            .then(pay(1, "10.90"), "detected #3 waiting_for_confirmation @110")
            .then(pay(2, "11.10"), "detected #4 waiting_for_confirmation @110")
            .then(pay(3, "11.00"), "detected #5 waiting_for_confirmation @110")
            .then(pay(4, "99.00"), "detected #6 waiting_for_confirmation @110")
            .then(pay(5, "0.01"), "detected #7 waiting_for_confirmation @110")
            .then(
                head(120),
                "confirmed #3 waiting_for_match @110; confirmed #4 waiting_for_match @110
                 confirmed #5 waiting_for_match @110; confirmed #6 waiting_for_match @110
                 confirmed #7 waiting_for_match @110",
            )
            .then(head(130), "")
            .then(
                head(131),
                "unknown #3 no_matched_deposit @110 amount_mismatch maybe A
                 unknown #4 no_matched_deposit @110 amount_mismatch maybe B
                 unknown #5 no_matched_deposit @110 amount_mismatch maybe A
                 unknown #6 no_matched_deposit @110 amount_mismatch maybe B
                 unknown #7 no_matched_deposit @110 amount_mismatch maybe A",
            )
            // Nothing was taken from the orders by it.
            .then(
                pay(6, "10.00").at(132),
                "tell A seen #8; detected #8 waiting_for_confirmation @132 for #1",
            );
    }

    #[test]
    fn the_nearest_order_that_fits_is_named_before_a_nearer_one() {
        Lane::new()
            .then(open('A', "10.00"), OPEN_A)
            .then(
                open('B', "10.50").only_from(9),
                "deposit #2 open 10.50 for B/0; tell B opened /0 #2 10.50",
            )
            .then(pay(1, "10.90"), "detected #3 waiting_for_confirmation @110")
            .then(head(120), "confirmed #3 waiting_for_match @110")
            .then(head(131), "unknown #3 no_matched_deposit @110 amount_mismatch maybe A");
    }

    #[test]
    fn nobody_waits_for_it() {
        Lane::new()
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(
                open('A', "10.00").wallet(2),
                "deposit #2 open 10.00 for A/0; tell A opened /0 #2 10.00",
            )
            .then(
                open('B', "10.00").stablecoin(Stablecoin::Dai),
                "deposit #3 open 10.00 for B/0; tell B opened /0 #3 10.00",
            )
            .then(head(120), "confirmed #1 waiting_for_match @110")
            .then(head(131), "unknown #1 no_matched_deposit @110 no_deposit");
    }

    #[test]
    fn a_deposit_that_opens_within_the_match_window_is_not_too_late() {
        Lane::new()
            .then(pay(1, "10.00"), "detected #1 waiting_for_confirmation @110")
            .then(head(120), "confirmed #1 waiting_for_match @110")
            .then(head(130), "")
            .then(
                open('A', "10.00"),
                "deposit #2 open 10.00 for A/0; tell A opened /0 #2 10.00; tell A settle #1 /0 #2",
            )
            .then(head(131), "")
            .then(
                settled('A', 1),
                "matched #1 matched @110 for #2 paid A by #3; deposit #2 closed settled for A/0",
            );
    }
}

mod entries {
    use super::*;

    #[test]
    fn an_unknown_changelog_entry_is_told_by_its_key() {
        for key in ["x/1", "d/one", "t/", "lane-of-nobody"] {
            let mut state = Lane::new().machine().clone();
            assert_eq!(state.restore(key, None), Err(key.to_owned()));
        }
    }

    #[test]
    fn a_removed_entry_is_gone_after_restore() {
        let mut lane = Lane::new();
        lane.then(open('A', "10.00"), OPEN_A)
            .then(pay(1, "5.00"), "detected #2 waiting_for_confirmation @110");
        let mut state: State = lane.machine().clone();
        assert_eq!((state.deposit_count(), state.transfer_count()), (1, 1));
        state.restore("d/1", None).unwrap();
        state.restore("t/2", None).unwrap();
        let left: Vec<String> = state.snapshot().into_iter().map(|(key, _)| key).collect();
        assert_eq!(left, ["lane"]);
        assert!(state.changes().is_empty());
    }

    /// What readers see of a transfer and a deposit, whole (spec 2.4, 2.5).
    #[test]
    fn records_carry_everything_a_reader_needs() {
        let mut lane = Lane::new();
        lane.then(open('A', "10.00").only_from(7), OPEN_A);
        let entries = lane.machine().snapshot();
        let deposit = entries.iter().find_map(|(_, entry)| match entry {
            MatchingEntry::Deposit(entry) => Some(entry.deposit.clone()),
            _ => None,
        });
        let deposit = deposit.unwrap();
        assert_eq!(deposit.order_id, order('A'));
        assert_eq!((deposit.wallet_address, deposit.user_address), (wallet(1), Some(wallet(7))));
        assert_eq!((deposit.started_at.0, deposit.expires_at.0), (1000, 2000));

        let effects = story::decide(&mut lane.machine().clone(), &pay(1, "10.00").into());
        let [Effect::Command(_), Effect::Transfer(_, seen)] = effects.as_slice() else {
            panic!("{effects:?}");
        };
        assert_eq!(seen.status, TransferStatus::WaitingForConfirmation);
        assert_eq!(
            (seen.block.number, seen.block.timestamp.0, seen.created_at.0),
            (110, 1100, 1102)
        );
        assert_eq!(seen.observation.value, amount("10.00"));
        assert_eq!(
            (seen.observation.from_address, seen.observation.to_address),
            (wallet(7), wallet(1))
        );
    }
}
