//! Entries of the changelog, and complete records.

use super::*;

#[test]
fn an_unknown_key_is_refused() {
    for key in ["x/1", "d/one", "t/", "lane-of-nobody"] {
        let mut state = Lane::new().machine().clone();
        assert!(matches!(state.restore(key, None), Err(RestoreError::Key(found)) if found == key));
    }
}

#[test]
fn a_removed_entry_is_gone() {
    let lane = offered().then(pay(1, "5.00"), "detected #2 @110");
    let mut state: State = lane.machine().clone();
    assert_eq!((state.deposit_count(), state.transfer_count()), (1, 1));
    state.restore("d/1", None).unwrap();
    let transfer = format!("t/{}", lane.numbers().transfer(2));
    state.restore(&transfer, None).unwrap();
    let left: Vec<String> = state.snapshot().into_iter().map(|(key, _)| key).collect();
    let watched = [1, 2, 3].map(|number| format!("w/{}", wallet(number)));
    assert_eq!(left, [&["lane".to_owned()], watched.as_slice()].concat());
    assert!(state.changes().is_empty());
}

/// The complete records of a transfer and a deposit, as readers see them (spec 2.4, 2.5).
#[test]
fn records_carry_what_readers_need() {
    let lane = Lane::new().then(open('A', "10.00").only_from(7), OPEN_A);
    let entries = lane.machine().snapshot();
    let deposit = entries.iter().find_map(|(_, entry)| match entry {
        MatchingEntry::Deposit(entry) => Some(entry.clone()),
        _ => None,
    });
    let deposit = deposit.unwrap();
    assert_eq!(deposit.order_id, order('A'));
    assert_eq!((deposit.wallet_address, deposit.user_address), (wallet(1), Some(wallet(7))));
    assert_eq!((deposit.started_at.0, deposit.expires_at.0), (1000, 2000));

    let effects = decide(&mut lane.machine().clone(), &pay(1, "10.00").into());
    let [Effect::Command(_), Effect::Transfer(_, seen)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(seen.status, TransferStatus::WaitingForConfirmation);
    assert_eq!((seen.block.number, seen.block.timestamp.0, seen.created_at.0), (110, 1100, 1102));
    assert_eq!(seen.observation.value, amount("10.00"));
    assert_eq!(
        (seen.observation.from_address, seen.observation.to_address),
        (wallet(7), wallet(1))
    );
}

/// The changelog has a second deposit with the amount of the first.
#[test]
fn a_second_reservation_breaks_invariant_10() {
    let lane = offered();
    let mut state: State = lane.machine().clone();
    for (_, entry) in lane.machine().snapshot() {
        let MatchingEntry::Deposit(mut entry) = entry else { continue };
        entry.deposit_id = schemas::DepositId(2);
        entry.order_id = order('B');
        let restored = state.restore("d/2", Some(&MatchingEntry::Deposit(entry)));
        let Err(RestoreError::Broken(broken)) = restored else { panic!("{restored:?}") };
        assert_eq!(broken.invariant, 10, "{broken}");
    }
}
