//! Choice of a deposit's amount: drawn digits, senders, loose transfers, closed deposits.

use super::*;

/// Rule of three digits: the nine raises below a cent, starting with the drawn one, then those with cents.
fn drawn(first: u8, limit: &str) -> AmountRule {
    let draws = Draws([[first, 0]; 16].concat().try_into().unwrap_or_default());
    AmountRule { exact_first: false, digits: 3, limit: amount(limit), draws }
}

#[test]
fn digits_are_drawn_and_the_plain_amount_is_nobodys() {
    let mut lane = Lane::new();
    let drawn = drawn(7, "0.02");
    let values = ["10.008", "10.009", "10.001", "10.002", "10.003", "10.004", "10.005", "10.006"];
    let more = ["10.007", "10.018", "10.019", "10.011", "10.012", "10.013", "10.014", "10.015"];
    let last = ["10.016", "10.017"];
    let mut number = 0;
    for value in values.into_iter().chain(more).chain(last) {
        number += 1;
        let order_letter = char::from(b'A' + number - 1);
        lane = lane.then(
            open(order_letter, "10.00").amounts(drawn),
            &gets(order_letter, number.into(), value),
        );
    }
    lane.then(
        open('Z', "10.00").amounts(drawn),
        "to Z: refused /0 amounts_taken; alert amounts_taken Z",
    )
    // A rounded amount pays no order.
    .then(pay(1, "10.00"), "detected #19 @110")
    .then(pay(2, "10.01"), "detected #20 @110");
}

#[test]
fn an_exact_amount_that_is_taken_gets_digits() {
    let rule = AmountRule { exact_first: true, ..drawn(3, "0.01") };
    Lane::new()
        .then(open('A', "10.00").amounts(rule), &gets('A', 1, "10.00"))
        .then(open('B', "10.00").amounts(rule), &gets('B', 2, "10.004"));
}

#[test]
fn amount_itself_first_without_digits_below_a_cent() {
    let rule = AmountRule { exact_first: false, ..AmountRule::EXACT };
    Lane::new().then(open('A', "10.00").amounts(rule), OPEN_A);
}

#[test]
fn an_amount_is_unique_for_its_sender() {
    Lane::new()
        .then(open('A', "10.00").only_from(7), OPEN_A)
        .then(open('B', "10.00").only_from(8), &gets('B', 2, "10.00"))
        .then(open('C', "10.00").only_from(7), &gets('C', 3, "10.01"))
        // A deposit without a sender would match the payments of the senders above.
        .then(open('D', "10.00"), &gets('D', 4, "10.02"))
        .then(open('E', "10.02").only_from(9), &gets('E', 5, "10.03"))
        .then(pay(1, "10.00").from(8), "to B: seen #6; detected #6 @110 for #2")
        .then(pay(2, "10.00").from(7), "to A: seen #7; detected #7 @110 for #1")
        .then(pay(3, "10.02").from(9), "to D: seen #8; detected #8 @110 for #4");
}

/// The transfer was seen before the choice, so the customer of that choice cannot have sent it.
#[test]
fn the_amount_of_a_waiting_transfer_is_not_given_out() {
    Lane::new()
        .then(pay(1, "10.00").at(99), "detected #1 @99")
        .then(open('A', "10.00"), &gets('A', 2, "10.01"))
        // The transfer is from another sender than the order's.
        .then(open('B', "10.00").only_from(8), &gets('B', 3, "10.00"))
        .then(open('C', "10.00").only_from(7), &gets('C', 4, "10.02"));
}

/// A customer does not know the amount before it is assigned, even if it is the plain price.
#[test]
fn nobody_pays_before_he_knows() {
    offered()
        .then(pay(1, "10.01"), "detected #2 @110")
        .then(open('B', "10.00"), &gets('B', 3, "10.02"))
        .then(pay(2, "20.00"), "detected #4 @110")
        .then(open('C', "20.00"), &gets('C', 5, "20.01"));
}

/// An order whose deposit is open from block 100 to block 10,000, and keeps its amount for a day.
fn kept(order_letter: char) -> crate::chain::Open {
    let rule = AmountRule { limit: amount("0.01"), ..AmountRule::EXACT };
    open(order_letter, "10.00").between(100, 10_000).late_window(86_400).amounts(rule)
}

/// A wallet with both amounts of this rule reserved.
fn full() -> Lane {
    Lane::new()
        .then(head(100), "")
        .then(kept('A'), &gets('A', 1, "10.00"))
        .then(kept('B'), &gets('B', 2, "10.01"))
}

/// The same, where the first deposit was replaced.
fn replaced() -> Lane {
    Lane::new()
        .then(head(100), "")
        .then(kept('A'), &gets('A', 1, "10.00"))
        .then(close('A', CloseReason::Replaced), &ends('A', 1, "replaced"))
        .then(kept('B'), &gets('B', 2, "10.01"))
}

#[test]
fn a_full_wallet_reuses_what_closed_an_hour_ago() {
    let cancelled = CloseReason::OrderCancelled;
    let refused =
        |order| format!("to {order}: refused /0 amounts_taken; alert amounts_taken {order}");
    full()
        .then(close('B', cancelled), &ends('B', 2, cancelled))
        .then(head(110), "")
        .then(close('A', cancelled), &ends('A', 1, cancelled))
        .then(head(459), "")
        .then(kept('C'), &refused('C'))
        .then(head(460), "")
        .then(kept('D'), &gets('D', 3, "10.01"))
        .then(kept('E'), &refused('E'))
        .then(head(470), "")
        .then(kept('F'), &gets('F', 4, "10.00"))
        .then(head(2_000), "")
        .then(kept('G'), &refused('G'));
}

#[test]
fn paid_then_longest_closed_amount_is_reused_first() {
    let cancelled = CloseReason::OrderCancelled;
    full()
        .then(close('B', cancelled), &ends('B', 2, cancelled))
        .then(head(110), "")
        .then(close('A', cancelled), &ends('A', 1, cancelled))
        .then(head(600), "")
        .then(kept('C'), &gets('C', 3, "10.01"));
    full()
        .then(close('B', cancelled), &ends('B', 2, cancelled))
        .then(pay(1, "10.00"), "to A: seen #3; detected #3 @110 for #1")
        .then(head(120), "confirmed #3 @110 for #1; to A: settle #3 /0 #1")
        .then(settled('A', 3), "matched #3 @110 for #1 paid A by #4; deposit #1 settled for A/0")
        .then(head(600), "")
        .then(kept('C'), &gets('C', 5, "10.00"))
        .then(kept('D'), &gets('D', 6, "10.01"));
}

/// Late payments: one seen while the deposit is open, and one seen after its close.
#[test]
fn the_amount_of_a_payment_under_way_is_not_reused() {
    let cancelled = CloseReason::OrderCancelled;
    full()
        .then(pay(1, "10.00").at(105), "to A: seen #3; detected #3 @105 for #1")
        .then(close('A', cancelled), &ends('A', 1, cancelled))
        .then(close('B', cancelled), &ends('B', 2, cancelled))
        .then(pay(2, "10.01").at(461), "detected #4 @461")
        .then(head(465).tiers(&[], 100), "")
        .then(kept('C'), "to C: refused /0 amounts_taken; alert amounts_taken C");
}

#[test]
fn another_choice_reserves_the_amount_for_its_order() {
    replaced().then(kept('A').slot(1), "deposit #3 open 10.00 for A/1; to A: opened /1 #3 10.00");
}

/// The order waits for a replaced deposit until its deadline: no other order gets the amount before, even in a full
/// wallet.
#[test]
fn a_replaced_amount_is_not_reused() {
    replaced()
        .then(head(1_800).tiers(&[], 100), "")
        .then(kept('C'), "to C: refused /0 amounts_taken; alert amounts_taken C");
}

/// A payment to a replaced deposit pays its order.
#[test]
fn a_replaced_deposit_is_still_paid() {
    let replaced = CloseReason::Replaced;
    offered()
        .then(close('A', replaced), &ends('A', 1, replaced))
        .then(pay(1, "10.00"), SEEN_A)
        .then(head(120), ASKED_A)
        .then(settled('A', 2), PAID_A)
        .then(pay(2, "10.00").at(121), "detected #4 @121")
        .then(head(131), "confirmed #4 @121; unknown #4 @121 already_paid maybe A");
    seen()
        .then(close('A', replaced), "to A: opened /0 #1 10.00")
        .then(head(120), ASKED_A)
        .then(refused('A', 2, UnknownReason::AlreadyPaid), "unknown #2 @110 already_paid maybe A");
}
