//! Reservation of an amount.

use super::*;

#[test]
fn open_reserves_the_amount() {
    offered();
}

#[test]
fn a_taken_amount_is_raised() {
    offered()
        .then(open('B', "10.00"), &gets('B', 2, "10.01"))
        .then(open('C', "10.02"), &gets('C', 3, "10.02"))
        // 10.01 and 10.02 are taken, 10.03 is the limit.
        .then(open('D', "10.00"), &gets('D', 4, "10.03"))
        .then(open('E', "10.00"), "to E: refused /0 amounts_taken; alert amounts_taken E")
        // An amount between the cents does not collide.
        .then(open('F', "10.005"), &gets('F', 5, "10.005"));
}

#[test]
fn amounts_between_cents_are_skipped() {
    offered()
        .then(open('B', "10.01"), &gets('B', 2, "10.01"))
        .then(open('C', "10.005"), &gets('C', 3, "10.005"))
        .then(open('D', "10.00"), &gets('D', 4, "10.02"));
}

#[test]
fn no_limit_means_no_raise() {
    let exact = |order| open(order, "10.00").amounts(AmountRule::EXACT);
    Lane::new()
        .then(exact('A'), OPEN_A)
        .then(exact('B'), "to B: refused /0 amounts_taken; alert amounts_taken B");
}

#[test]
fn other_wallets_and_coins_are_free() {
    offered()
        .then(open('B', "10.00").wallet(2), &gets('B', 2, "10.00"))
        .then(open('C', "10.00").stablecoin(Stablecoin::Usdc), &gets('C', 3, "10.00"))
        .then(pay(1, "10.00").to(2), "to B: seen #4; detected #4 @110 for #2")
        .then(pay(2, "10.00").to(3), "detected #5 @110")
        .then(
            pay(3, "10.00").stablecoin(Stablecoin::Usdc),
            "to C: seen #6; detected #6 @110 for #3",
        );
}

#[test]
fn the_late_window_keeps_the_amount() {
    Lane::new()
        .then(head(120), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(close('A', CloseReason::OrderCancelled), &ends('A', 1, "order_cancelled"))
        .then(open('B', "10.00"), &gets('B', 2, "10.01"))
        // 120 + 50 blocks is the last second of the window.
        .then(head(170), "")
        .then(open('C', "10.00"), &gets('C', 3, "10.02"))
        .then(head(171), "")
        .then(open('D', "10.00"), &gets('D', 4, "10.00"));
}

#[test]
fn nothing_opens_past_the_deadline() {
    Lane::new()
        .then(head(200), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(head(201), "")
        .then(open('B', "20.00"), "to B: refused /0 expired");
}

/// A duplicate reserves nothing. The reply is repeated, as the order may have missed it.
#[test]
fn a_duplicate_open_is_answered_again() {
    offered()
        .then(open('A', "10.00"), "to A: opened /0 #1 10.00")
        .then(close('A', CloseReason::OrderCancelled), &ends('A', 1, "order_cancelled"))
        .then(open('A', "10.00"), "to A: opened /0 #1 10.00; to A: closed /0 order_cancelled")
        .then(
            open('A', "10.00").slot(1),
            "deposit #2 open 10.01 for A/1; to A: opened /1 #2 10.01",
        );
}

/// The order may have missed the reply: it is repeated, also when the deposit is forgotten.
#[test]
fn a_duplicate_close_is_answered_again() {
    Lane::new()
        .then(head(120), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(close('A', CloseReason::OrderCancelled), &ends('A', 1, "order_cancelled"))
        .then(close('A', CloseReason::OrderPaid), "to A: closed /0 order_cancelled")
        .then(head(171), "")
        .then(close('A', CloseReason::OrderPaid), "to A: closed /0 order_paid");
}

/// A lane keeps a deposit open that an order asks it to expire: only chain time expires it.
#[test]
fn an_open_deposit_says_so_until_it_expires() {
    offered()
        .then(head(210), "")
        .then(close('A', CloseReason::Expired), "to A: opened /0 #1 10.00")
        .then(head(211), EXPIRED_A)
        .then(close('A', CloseReason::Expired), "to A: closed /0 expired");
}
