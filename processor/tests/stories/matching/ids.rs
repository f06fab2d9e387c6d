//! Ids of transfers, deposits and fulfillments: none is ever given twice.

use std::collections::HashMap;

use schemas::record::Transfer;
use schemas::{DepositId, Incarnation, Partition, SEQUENCE_BITS, TransferId};
use tidemark_processor::machine::matching::lane_anew;

use super::*;
use crate::chain::{Pay, attach};

/// The transfer that this machine detects for a payment.
fn seen(state: &mut State, pay: Pay) -> Transfer {
    let effects = decide(state, &pay.into());
    state.commit();
    let detected = effects.into_iter().find_map(|effect| match effect {
        Effect::Transfer(_, transfer) => Some(transfer),
        Effect::Deposit(_) | Effect::Command(_) | Effect::Alert(_) | Effect::Progress(_) => None,
    });
    detected.unwrap()
}

fn deposit(state: &mut State, order_letter: char, value: &str) -> DepositId {
    let effects = decide(state, &open(order_letter, value).into());
    state.commit();
    let opened = effects.into_iter().find_map(|effect| match effect {
        Effect::Deposit(deposit) => Some(deposit.deposit_id),
        Effect::Transfer(..) | Effect::Command(_) | Effect::Alert(_) | Effect::Progress(_) => None,
    });
    opened.unwrap()
}

/// Two payments with the same id.
fn alike() -> [Pay; 2] {
    let mut ids = HashMap::new();
    for ordinal in 0.. {
        let pay = pay(1, "10.00").ordinal(ordinal);
        let record = pay.record();
        let ChainBody::Transfer(seen) = record.body else { panic!("{record:?}") };
        let id = TransferId::of_payment(Partition(0), &seen.payment(), record.block.timestamp);
        if let Some(other) = ids.insert(id, pay) {
            return [other, pay];
        }
    }
    unreachable!("ids are few")
}

#[test]
fn a_payment_has_its_id_in_any_copy() {
    let (mut one, mut other) = (Lane::new().machine().clone(), Lane::new().machine().clone());
    deposit(&mut other, 'A', "7.00");
    seen(&mut other, pay(9, "99.00"));
    let first = seen(&mut one, pay(1, "10.00"));
    assert_eq!(first.transfer_id, seen(&mut other, pay(1, "10.00")).transfer_id);
    let moved = pay(1, "10.00").at(111).log(5);
    let fresh = seen(&mut Lane::new().machine().clone(), moved);
    assert_eq!(fresh.transfer_id, first.transfer_id, "in another block as well");
}

/// The first payment keeps the id.
#[test]
fn an_id_that_is_taken_is_not_given_again() {
    let [first, second] = alike();
    let lane = Lane::new().then(first, "detected #1 @110").then(second, "detected #2 @110");
    let [first, second] = [1, 2].map(|number| lane.numbers().transfer(number));
    assert_eq!(second, first.next());
}

/// An operator's tables may be of another state than the log.
#[test]
fn a_payment_under_the_id_of_another_is_not_attached() {
    let [first, second] = alike();
    let lane = Lane::new()
        .then(first, "detected #1 @110")
        .then(head(120), "confirmed #1 @110")
        .then(head(131), "unknown #1 @110 no_deposit");
    let shown = seen(&mut Lane::new().machine().clone(), second);
    assert_eq!(shown.transfer_id, lane.numbers().transfer(1));
    let shown = Transfer { status: TransferStatus::NoMatchedDeposit, ..shown };
    lane.then(attach('A', 5, &shown), "to A: attach refused");
}

#[test]
fn a_restored_lane_gives_no_id_a_second_time() {
    let mut lane = Lane::new().machine().clone();
    let backup = lane.snapshot();
    let lost = deposit(&mut lane, 'A', "7.00");
    let mut restored = Lane::new().machine().clone();
    let entry = backup.into_iter().find_map(|(_, entry)| match entry {
        MatchingEntry::Lane(lane) => Some(lane),
        _ => None,
    });
    let (key, entry) = lane_anew(entry, Incarnation(1_795_309_568));
    restored.restore(&key, Some(&entry)).unwrap();
    let given = deposit(&mut restored, 'B', "7.00");
    assert!(given > lost, "{given} after {lost}");
    assert_eq!(given.partition(), Partition(0));
    assert!(given.0 < 1 << SEQUENCE_BITS);
}
