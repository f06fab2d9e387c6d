//! Contracts of a coin that pay: those that a deposit was offered with.

use super::*;

/// Also if the head of the transfer's own step could confirm it.
#[test]
fn invariant_14_another_contract_pays_nothing() {
    let elsewhere = pay(1, "10.00").contract(OTHER_CONTRACT);
    for payment in [elsewhere, elsewhere.confirmed()] {
        Lane::new()
            .then(watch(100, 1, OTHER_CONTRACT), "")
            .then(open('A', "10.00"), OPEN_A)
            .then(payment, "detected #2 @110")
            .then(head(120), "confirmed #2 @110; unknown #2 @110 other_contract maybe A")
            // A transfer of the offered contract still pays.
            .then(pay(2, "10.00").at(121), "to A: seen #3; detected #3 @121 for #1")
            .then(head(131), "confirmed #3 @121 for #1; to A: settle #3 /0 #1");
    }
}

#[test]
fn every_contract_that_was_offered_pays() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00").paid_in(&[CONTRACT, OTHER_CONTRACT]), OPEN_A)
        .then(pay(1, "10.00").contract(OTHER_CONTRACT), SEEN_A)
        .then(head(120), ASKED_A);
}

/// A transfer of another contract waits without a deposit: its amount is free for a new deposit.
#[test]
fn another_contract_claims_no_amount() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(pay(1, "10.00").at(90).contract(OTHER_CONTRACT), "detected #1 @90")
        .then(open('A', "10.00"), &gets('A', 2, "10.00"))
        .then(head(101), "confirmed #1 @90; unknown #1 @90 before_deposit maybe A");
}

#[test]
fn of_another_amount_it_is_still_another_contract() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(pay(1, "9.00").contract(OTHER_CONTRACT), "detected #2 @110")
        .then(head(120), "confirmed #2 @110")
        .then(head(131), "unknown #2 @110 other_contract maybe A");
}

/// The customer repeats his choice when the first contract is no longer offered: payments in it still count.
#[test]
fn a_contract_of_an_earlier_choice_pays_still() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00").paid_in(&[CONTRACT, OTHER_CONTRACT]), OPEN_A)
        .then(close('A', CloseReason::Replaced), &ends('A', 1, "replaced"))
        .then(open('A', "10.00").slot(1), "deposit #2 open 10.01 for A/1; to A: opened /1 #2 10.01")
        .then(pay(1, "10.00").contract(OTHER_CONTRACT), "to A: seen #3; detected #3 @110 for #1")
        .then(head(120), "confirmed #3 @110 for #1; to A: settle #3 /0 #1");
}
