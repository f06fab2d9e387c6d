//! Operators attach transfers to orders.

use schemas::record::{Block, DepositCommand, Observation, Transfer, example};
use schemas::{Blockchain, TransferId, UnixSeconds};

use super::lane::transfer_row;
use super::*;
use crate::chain::{DAY, attach, attach_refused, attached};

/// A transfer of 9.00 to the wallet of A's deposit of 10.00, which became unknown, and its row in the tables.
fn underpaid() -> (Lane, Transfer) {
    let lane = offered()
        .then(pay(1, "9.00"), "detected #2 @110")
        .then(head(120), "confirmed #2 @110")
        .then(head(131), "unknown #2 @110 amount_mismatch maybe A");
    let row = transfer_row(&lane, 2);
    (lane, row)
}

/// The same command at this time.
fn at(seconds: i64, input: Input) -> Input {
    let issued_at = UnixSeconds(seconds).micros();
    match input {
        Input::Command(command) => Input::Command(DepositCommand { issued_at, ..command }),
        Input::Chain(_) => panic!("a record of the chain has no command's time"),
    }
}

const ASKS: &str = "to A: attach #2 9.00 by 7";

#[test]
fn it_asks_the_order_and_pays_it() {
    let (lane, row) = underpaid();
    lane.then(attach('A', 7, &row), ASKS)
        .then(attached('A', row.transfer_id), "matched #2 @110 paid A by #3")
        // The request has its reply: later ones have no effect.
        .then(attached('A', row.transfer_id), "")
        .then(attach_refused('A', row.transfer_id), "")
        // Two orders count on it: alert.
        .then(attached('B', row.transfer_id), "alert confirmed_transfer_retracted #2 B")
        .then(settled('B', 2), "alert confirmed_transfer_retracted #2 B");
}

#[test]
fn an_order_that_is_paid_leaves_it_as_it_was() {
    let (lane, row) = underpaid();
    lane.then(attach('A', 7, &row), ASKS)
        .then(attach_refused('A', row.transfer_id), "")
        .then(attach('B', 8, &row), "to B: attach #2 9.00 by 8")
        .then(attached('B', row.transfer_id), "matched #2 @110 paid B by #3");
}

/// Invariant 5: a repeated refusal does not end the next request, whether that is later or has the time of the refusal.
#[test]
fn a_refusal_answers_no_later_question() {
    for seconds in [2000, 1000] {
        let (lane, row) = underpaid();
        let refusal = attach_refused('A', row.transfer_id);
        lane.then(attach('A', 7, &row), ASKS)
            .then(refusal.clone(), "")
            .then(at(seconds, attach('A', 8, &row)), "to A: attach #2 9.00 by 8")
            .ignores(refusal.clone())
            .then(attach('B', 9, &row), "to B: attach refused")
            .then(at(2000, refusal), "")
            .then(attach('B', 10, &row), "to B: attach #2 9.00 by 10");
    }
}

#[test]
fn while_one_order_is_asked_no_other_is() {
    let (lane, row) = underpaid();
    lane.then(attach('A', 7, &row), ASKS)
        .then(attach('B', 8, &row), "to B: attach refused")
        .then(attach('A', 9, &row), "to A: attach #2 9.00 by 9")
        .then(attached('A', row.transfer_id), "matched #2 @110 paid A by #3")
        .then(attach('B', 10, &row), "to B: attach refused")
        // The operator missed the reply.
        .then(attach('A', 11, &row), "to A: attach #2 9.00 by 11");
}

#[test]
fn without_an_answer_it_asks_again() {
    let (lane, row) = underpaid();
    lane.then(attach('A', 7, &row), ASKS)
        .then(head(191), "")
        .then(head(192), "to A: attach #2 9.00")
        .then(attached('A', row.transfer_id), "matched #2 @110 paid A by #3");
}

#[test]
fn what_may_pay_its_deposit_or_none_is_not_attached() {
    let lane = seen();
    let row = transfer_row(&lane, 2);
    lane.then(attach('B', 7, &row), "to B: attach refused")
        .then(head(120), ASKED_A)
        .then(attach('B', 8, &row), "to B: attach refused")
        .then(settled('A', 2), PAID_A)
        .then(attach('B', 9, &row), "to B: attach refused");
}

#[test]
fn money_that_left_the_chain_is_not_attached() {
    let (lane, row) = underpaid();
    lane.then(
        pay(1, "9.00").retracted(1),
        "alert confirmed_transfer_retracted #2
         detected #2 no_matched_deposit @110 amount_mismatch maybe A orphaned",
    )
    .then(attach('A', 7, &row), "to A: attach refused");
}

#[test]
fn the_merchants_own_money_is_not_attached() {
    let lane = Lane::new()
        .then(pay(1, "9.00").swept(), "detected #1 @110")
        .then(head(120), "confirmed #1 @110; unknown #1 @110 own_wallet");
    let row = transfer_row(&lane, 1);
    lane.then(attach('A', 7, &row), "to A: attach refused");
}

/// A transfer is forgotten a day after its end: then the command's row replaces it.
#[test]
fn a_forgotten_one_comes_back_with_its_row() {
    let (lane, row) = underpaid();
    let later = 131 + 2 * DAY;
    lane.then(head(211), EXPIRED_A)
        .then(head(later), "")
        .then(attach('A', 7, &row), ASKS)
        .then(attached('A', row.transfer_id), "matched #2 @110 paid A by #3")
        // Lagging tables still show it as unknown.
        .then(head(later + DAY), "")
        .then(attach('B', 8, &row), "to B: attach refused");
}

#[test]
fn what_is_of_another_lane_is_refused() {
    let foreign = Transfer { transfer_id: TransferId(1 << 41), ..unknown() };
    let of_other_chain = Transfer { blockchain: Blockchain::Base, ..unknown() };
    for row in [foreign, of_other_chain] {
        Lane::new().then(attach('A', 7, &row), "to A: attach refused");
    }
}

fn unknown() -> Transfer {
    let example = example::transfer();
    let block = Block { timestamp: UnixSeconds(1000), ..example.block };
    let observation = Observation { to_address: wallet(1), ..example.observation };
    let status = TransferStatus::NoMatchedDeposit;
    Transfer { status, block, observation, order_id: None, fulfillment_id: None, ..example }
}

/// Tables may lag by a week, counted from the later of two clocks: here the chain is three days behind the operator.
#[test]
fn the_later_clock_says_how_long_it_is_remembered() {
    let (lane, row) = underpaid();
    let ahead = (131 + 3 * DAY) * 10;
    let lane = lane
        .then(at(ahead, attach('A', 7, &row)), ASKS)
        .then(at(ahead, attached('A', row.transfer_id)), "matched #2 @110 paid A by #3")
        .then(head(130 + 9 * DAY), EXPIRED_A);
    assert_eq!(lane.machine().transfer_count(), 1, "the chain alone would have forgotten it");
    // ATTACHED_KEPT_SECONDS are eight days: it is forgotten exactly then.
    let lane = lane
        .then(at(ahead, attach('B', 8, &row)), "to B: attach refused")
        .then(head(131 + 11 * DAY), "");
    assert_eq!(lane.machine().transfer_count(), 1);
    let lane = lane.then(head(132 + 11 * DAY), "");
    assert_eq!(lane.machine().transfer_count(), 0);
}

/// A forgotten transfer was scanned again after a rewind, in another block. Lagging tables show it with its first id.
#[test]
fn attached_by_its_id_of_before_a_rewind() {
    let (lane, row) = underpaid();
    lane.then(head(820 + DAY), EXPIRED_A)
        .then(head(109).epoch(1), "")
        .then(pay(1, "9.00").at(821 + DAY).fork(1), "detected #3 @9461")
        .then(attach('A', 7, &row), "to A: attach refused");
}
