//! Contracts of a coin that pay: those that a deposit was offered with.

use super::*;

#[test]
fn invariant_14_another_contract_pays_nothing() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(pay(1, "10.00").contract(OTHER_CONTRACT), "detected #2 waiting_for_confirmation @110")
        .then(
            head(120),
            "confirmed #2 waiting_for_match @110
             unknown #2 no_matched_deposit @110 other_contract maybe A",
        )
        // A transfer of the offered contract still pays.
        .then(
            pay(2, "10.00").at(121),
            "to A: seen #3; detected #3 waiting_for_confirmation @121 for #1",
        )
        .then(head(131), "confirmed #3 waiting_for_match @121 for #1; to A: settle #3 /0 #1");
}

#[test]
fn confirmed_at_sight_it_pays_nothing_either() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(
            pay(1, "10.00").contract(OTHER_CONTRACT).confirmed(),
            "detected #2 waiting_for_confirmation @110",
        )
        .then(
            head(120),
            "confirmed #2 waiting_for_match @110
             unknown #2 no_matched_deposit @110 other_contract maybe A",
        );
}

#[test]
fn every_contract_that_was_offered_pays() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00").paid_in(&[CONTRACT, OTHER_CONTRACT]), OPEN_A)
        .then(
            pay(1, "10.00").contract(OTHER_CONTRACT),
            "to A: seen #2; detected #2 waiting_for_confirmation @110 for #1",
        )
        .then(head(120), "confirmed #2 waiting_for_match @110 for #1; to A: settle #2 /0 #1");
}

/// A transfer of another contract is no payment before the deposit either, and does not block the amount.
#[test]
fn another_contract_claims_no_amount() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(
            pay(1, "10.00").at(90).contract(OTHER_CONTRACT),
            "detected #1 waiting_for_confirmation @90",
        )
        .then(open('A', "10.00"), "deposit #2 open 10.00 for A/0; to A: opened /0 #2 10.00")
        .then(
            head(101),
            "confirmed #1 waiting_for_match @90
             unknown #1 no_matched_deposit @90 before_deposit maybe A",
        );
}

#[test]
fn of_another_amount_it_is_still_another_contract() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(pay(1, "9.00").contract(OTHER_CONTRACT), "detected #2 waiting_for_confirmation @110")
        .then(head(120), "confirmed #2 waiting_for_match @110")
        .then(head(131), "unknown #2 no_matched_deposit @110 other_contract maybe A");
}

/// The customer repeats his choice when the first contract is no longer offered: payments in it still count.
#[test]
fn a_contract_of_an_earlier_choice_pays_still() {
    let replaced = "deposit #1 closed replaced for A/0; to A: closed /0 replaced";
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00").paid_in(&[CONTRACT, OTHER_CONTRACT]), OPEN_A)
        .then(close('A', CloseReason::Replaced), replaced)
        .then(open('A', "10.00").slot(1), "deposit #2 open 10.01 for A/1; to A: opened /1 #2 10.01")
        .then(
            pay(1, "10.00").contract(OTHER_CONTRACT),
            "to A: seen #3; detected #3 waiting_for_confirmation @110 for #1",
        )
        .then(head(120), "confirmed #3 waiting_for_match @110 for #1; to A: settle #3 /0 #1");
}
