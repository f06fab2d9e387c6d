//! Reasons why a transfer pays nothing.

use super::lane::transfer_row;
use super::*;

#[test]
fn another_sender_is_a_mismatch() {
    Lane::new()
        .then(open('A', "10.00").only_from(7), OPEN_A)
        .then(pay(1, "10.00").from(8), "detected #2 @110")
        .then(pay(2, "10.00").from(7), "to A: seen #3; detected #3 @110 for #1")
        .then(head(120), "confirmed #2 @110; confirmed #3 @110 for #1; to A: settle #3 /0 #1")
        // A deposit for that sender could still open.
        .then(head(131), "unknown #2 @110 sender_mismatch maybe A");
}

/// Height decides, not time: by the api's clock the order was created in block 160.
#[test]
fn a_block_above_the_head_is_never_before() {
    Lane::new()
        .then(open('A', "10.00").between(160, 300), OPEN_A)
        .then(pay(1, "10.00").at(101), "to A: seen #2; detected #2 @101 for #1")
        .then(head(111), "confirmed #2 @101 for #1; to A: settle #2 /0 #1");
}

/// Transfers of the block at which the deposit opened count as before it, even if detected later. By the api's clock
/// the order was created in block 50.
#[test]
fn a_block_at_the_head_is_before() {
    Lane::new()
        .then(open('A', "10.00").between(50, 200), OPEN_A)
        .then(pay(1, "10.00").at(100), "detected #2 @100")
        .then(head(110), "confirmed #2 @100; unknown #2 @100 before_deposit maybe A");
}

/// Blocks that replace the head at which the deposit opened count as after it.
#[test]
fn a_block_that_replaced_the_head_is_not_before() {
    offered()
        .then(head(98).epoch(1), "")
        .then(pay(1, "10.00").at(99).fork(1), "to A: seen #2; detected #2 @99 for #1")
        .then(pay(2, "10.00").at(98).fork(1), "detected #3 @98");
}

/// A transfer failed after a reorganisation. Then a deposit got its amount.
#[test]
fn what_was_seen_before_never_pays() {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(pay(1, "10.00").retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(head(130).epoch(1), "failed #1 @110 orphaned")
        .then(open('A', "10.00"), &gets('A', 2, "10.00"))
        .then(pay(1, "10.00").at(131).fork(1), "detected #1 @131")
        .then(head(141).epoch(1), "confirmed #1 @131; unknown #1 @131 before_deposit maybe A");
}

/// The customer knows the amount since his first choice, and pays it after another choice.
#[test]
fn an_amount_that_is_kept_over_is_known_before() {
    let replaced = CloseReason::Replaced;
    offered()
        .then(close('A', replaced), &ends('A', 1, "replaced"))
        .then(head(105), "")
        .then(open('A', "10.00").slot(1), "deposit #2 open 10.00 for A/1; to A: opened /1 #2 10.00")
        .then(pay(1, "10.00").at(104), "to A: seen #3; detected #3 @104 for #2")
        .then(pay(2, "10.00").at(100), "detected #4 @100");
}

#[test]
fn the_block_at_the_deadline_pays() {
    offered()
        .then(open('B', "20.00"), &gets('B', 2, "20.00"))
        .then(pay(1, "10.00").at(200), "to A: seen #3; detected #3 @200 for #1")
        .then(pay(2, "20.00").at(201), "detected #4 @201")
        .then(head(201), "")
        .then(head(210), "confirmed #3 @200 for #1; to A: settle #3 /0 #1")
        .then(
            head(211),
            "confirmed #4 @201
             unknown #4 @201 late maybe B
             deposit #2 expired for B/0; to B: closed /0 expired",
        )
        .then(settled('A', 3), "matched #3 @200 for #1 paid A by #5; deposit #1 settled for A/0");
}

#[test]
fn late_although_the_deposit_is_open() {
    // Confirmed in its own block: one head confirms it and ends the deposit.
    offered().then(pay(1, "10.00").at(201), "detected #2 @201").then(
        head(201).tiers(&[], 201),
        "confirmed #2 @201
             unknown #2 @201 late maybe A
             deposit #1 expired for A/0; to A: closed /0 expired",
    );
}

#[test]
fn a_second_payment_is_already_paid() {
    settling()
        .then(settled('A', 2), PAID_A)
        .then(pay(2, "10.00").at(121), "detected #4 @121")
        .then(head(131), "confirmed #4 @121; unknown #4 @121 already_paid maybe A");
}

#[test]
fn a_closed_deposit_gives_its_reason() {
    for (closed, reason) in [
        (CloseReason::OrderCancelled, UnknownReason::OrderCancelled),
        (CloseReason::OrderPaid, UnknownReason::AlreadyPaid),
        (CloseReason::OrderExpired, UnknownReason::Late),
    ] {
        seen()
            .then(
                close('A', closed),
                &format!("deposit #1 {closed} for A/0; to A: closed /0 {closed}"),
            )
            .then(pay(2, "10.00").at(111), "detected #3 @111")
            .then(
                head(121),
                // The order decides about what was on its way: it may have been marked paid since.
                &format!(
                    "confirmed #2 @110 for #1; to A: settle #2 /0 #1
                     confirmed #3 @111
                     unknown #3 @111 {reason} maybe A"
                ),
            )
            .then(refused('A', 2, reason), &format!("unknown #2 @110 {reason} maybe A"));
    }
}

/// A transfer of a wrong amount names the nearest order only if it clearly is the nearest.
#[test]
fn a_wrong_amount_names_the_nearest() {
    offered()
        .then(open('B', "12.00"), &gets('B', 2, "12.00"))
        .then(pay(1, "10.20"), "detected #3 @110")
        .then(pay(2, "11.80"), "detected #4 @110")
        .then(pay(3, "11.00"), "detected #5 @110")
        .then(pay(4, "99.00"), "detected #6 @110")
        .then(pay(5, "0.01"), "detected #7 @110")
        .then(
            head(120),
            "confirmed #3 @110; confirmed #4 @110
             confirmed #5 @110; confirmed #6 @110
             confirmed #7 @110",
        )
        .then(head(130), "")
        .then(
            head(131),
            "unknown #3 @110 amount_mismatch maybe A
             unknown #4 @110 amount_mismatch maybe B
             unknown #5 @110 amount_mismatch
             unknown #6 @110 amount_mismatch
             unknown #7 @110 amount_mismatch",
        )
        // Likely orders keep their deposits open: the exact amount still pays.
        .then(pay(6, "10.00").at(132), "to A: seen #8; detected #8 @132 for #1");
}

#[test]
fn without_any_deposit() {
    let lane = Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(open('A', "10.00").wallet(2), &gets('A', 2, "10.00"))
        .then(open('B', "10.00").stablecoin(Stablecoin::Dai), &gets('B', 3, "10.00"))
        .then(head(120), "confirmed #1 @110")
        .then(head(131), "unknown #1 @110 no_deposit");
    assert_eq!(transfer_row(&lane, 1).status.to_string(), "no_matched_deposit");
}

#[test]
fn the_nearest_that_fits_is_named() {
    Lane::new()
        .then(open('A', "10.00").only_from(7), OPEN_A)
        .then(open('B', "10.50").only_from(9), &gets('B', 2, "10.50"))
        .then(pay(1, "10.90"), "detected #3 @110")
        .then(head(120), "confirmed #3 @110")
        .then(head(131), "unknown #3 @110 amount_mismatch maybe A");
}

/// Own money does not keep the customer's payment from its deposit.
#[test]
fn the_merchants_own_money_pays_nothing() {
    offered()
        .then(pay(1, "10.00").swept(), "detected #2 @110")
        .then(pay(2, "10.00").swept().to(2), "detected #3 @110")
        .then(pay(3, "10.00").swept().confirmed(), "detected #4 @110")
        .then(
            head(120),
            "confirmed #2 @110; unknown #2 @110 own_wallet
             confirmed #3 @110; unknown #3 @110 own_wallet
             confirmed #4 @110; unknown #4 @110 own_wallet",
        )
        .then(
            pay(4, "10.00").at(121).confirmed(),
            "confirmed #5 @121 for #1; to A: settle #5 /0 #1",
        );
}

#[test]
fn merchants_own_transfer_reserves_no_amount() {
    Lane::new()
        .then(pay(1, "10.00").swept(), "detected #1 @110")
        .then(open('A', "10.00"), &gets('A', 2, "10.00"))
        .then(head(120), "confirmed #1 @110; unknown #1 @110 own_wallet");
}

/// The transfer was detected before its sender was configured as an own wallet.
#[test]
fn merchants_own_transfer_releases_its_deposit() {
    let paid = || pay(1, "10.00").from(2);
    offered()
        .then(paid(), SEEN_A)
        .then(paid().retracted(1), "")
        .then(head(105).epoch(1), "")
        .then(paid().swept().fork(1), "to A: gone #2; detected #2 @110")
        .then(head(120).epoch(1), "confirmed #2 @110; unknown #2 @110 own_wallet");
}
