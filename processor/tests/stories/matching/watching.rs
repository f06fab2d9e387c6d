//! Deposits open only where payments are seen.

use super::lane::progress;
use super::*;
use schemas::record::{ChainProgress, OrderCommandBody};
use schemas::{Blockchain, Partition, RefusalReason};

#[test]
fn unwatched_wallet_takes_no_deposit() {
    Lane::new()
        .then(open('A', "10.00").wallet(4), "to A: refused /0 not_watched")
        .then(watch(100, 4, CONTRACT), "")
        .then(open('A', "10.00").wallet(4), OPEN_A)
        .ignores(watch(100, 4, CONTRACT));
}

#[test]
fn contract_shown_to_customers_must_be_watched() {
    let other = || open('A', "10.00").contract(OTHER_CONTRACT);
    Lane::new()
        .then(other(), "to A: refused /0 not_watched")
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(other(), OPEN_A)
        // The contract that was watched first still is.
        .then(open('B', "20.00"), &gets('B', 2, "20.00"));
}

#[test]
fn every_contract_that_pays_must_be_watched() {
    let both = || open('A', "10.00").paid_in(&[CONTRACT, OTHER_CONTRACT]);
    Lane::new()
        .then(both(), "to A: refused /0 not_watched")
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(both(), OPEN_A)
        .then(open('B', "20.00").paid_in(&[OTHER_CONTRACT]), "to B: refused /0 not_watched");
}

#[test]
fn a_chain_that_is_behind_takes_no_deposit() {
    // The head is of second 1000.
    let late = |first| open('A', "10.00").between(first, 200).head_age(50);
    Lane::new()
        .then(late(106), "to A: refused /0 chain_behind")
        .then(late(105), OPEN_A)
        .then(open('B', "20.00").between(106, 200).head_age(50), "to B: refused /0 chain_behind")
        .then(head(101), "")
        .then(open('B', "20.00").between(106, 200).head_age(50), &gets('B', 2, "20.00"));
}

#[test]
fn a_chain_without_a_head_takes_no_deposit() {
    let mut lane = State::new(Blockchain::Eth, Partition(0));
    decide(&mut lane, &watch(100, 1, CONTRACT));
    let refused = decide(&mut lane, &open('A', "10.00").into());
    let [Effect::Command(command)] = refused.as_slice() else { panic!("{refused:?}") };
    let (wallet_address, reason) = (wallet(1), RefusalReason::ChainBehind);
    let expected = OrderCommandBody::DepositRefused { slot: 0, wallet_address, reason };
    assert_eq!(command.body, expected);
    assert_eq!(lane.deposit_count(), 0);
}

/// Blocks are ten seconds apart, and the lane has published its progress at block 100.
#[test]
fn a_lane_publishes_how_far_it_is_each_half_minute() {
    let mut state = Lane::new().machine().clone();
    assert_eq!(progress(&mut state, head(102)), None);
    let at = |found: Option<ChainProgress>| {
        let found = found.unwrap();
        (found.head.number, found.oldest_unconfirmed.map(|time| time.0), found.lane)
    };
    assert_eq!(at(progress(&mut state, head(103))), (103, None, Some(0)));
    assert_eq!(progress(&mut state, pay(1, "1.00").at(104)), None);
    assert_eq!(progress(&mut state, pay(2, "1.00").at(105)), None);
    assert_eq!(progress(&mut state, head(105)), None);
    assert_eq!(at(progress(&mut state, head(106))), (106, Some(1040), Some(0)));
    assert_eq!(at(progress(&mut state, head(114))), (114, Some(1050), Some(0)));
    assert_eq!(at(progress(&mut state, head(117))), (117, None, Some(0)));
}

/// The api offers the wallets of this record.
#[test]
fn lane_publishes_watched_with_the_next_head() {
    let mut state = Lane::new().machine().clone();
    let wallets = |found: Option<ChainProgress>| {
        found.map(|found| found.watched.iter().map(|of| of.wallet_address).collect::<Vec<_>>())
    };
    assert_eq!(progress(&mut state, watch(100, 1, CONTRACT)), None);
    assert_eq!(progress(&mut state, head(101)), None, "it was known");
    assert_eq!(progress(&mut state, watch(101, 4, CONTRACT)), None);
    let all = [1, 2, 3, 4].map(wallet);
    assert_eq!(wallets(progress(&mut state, head(101))), Some(all.to_vec()));
    assert_eq!(progress(&mut state, head(102)), None);
}

/// After a jump of ingest's clock, `updated_at` continues from there, a microsecond at a time.
#[test]
fn a_clock_that_jumped_ahead_stops_no_progress() {
    let mut state = Lane::new().machine().clone();
    let mut ahead = head(103).record();
    ahead.observed_at = ahead.observed_at.seconds().plus(365 * 86_400).micros();
    let first = progress(&mut state, Input::Chain(ahead)).unwrap();
    let second = progress(&mut state, head(106)).unwrap();
    assert!(second.updated_at > first.updated_at, "{second:?}");
}
