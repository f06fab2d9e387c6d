//! The emergency stop.

use schemas::Blockchain;
use schemas::record::StopScope;

use super::lane::progress;
use super::*;

const EVERYTHING: StopScope = StopScope { blockchain: None, stablecoin: None, address: None };
const COIN: StopScope = StopScope { stablecoin: Some(Stablecoin::Usdt), ..EVERYTHING };
const OF_CONTRACT: StopScope = StopScope { address: Some(CONTRACT), ..EVERYTHING };

/// Effects of the beginning and of the end of a stop.
const ALERT: &str = "alert payments_stopped";
const RESOLVED: &str = "resolved payments_stopped";

#[test]
fn invariant_14_what_is_stopped_pays_nothing() {
    let of_wallet = StopScope { address: Some(wallet(1)), ..EVERYTHING };
    for scope in [EVERYTHING, COIN, OF_CONTRACT, of_wallet] {
        offered()
            .then(stop(scope), ALERT)
            .then(pay(1, "10.00"), SEEN_A)
            .then(
                head(120),
                "confirmed #2 @110 for #1; to A: gone #2; unknown #2 @110 stopped maybe A",
            )
            // It stays unknown after the stop.
            .then(resume(scope), RESOLVED)
            .then(head(121), "")
            .then(
                pay(2, "10.00").at(122).confirmed(),
                "confirmed #3 @122 for #1; to A: settle #3 /0 #1",
            );
    }
}

#[test]
fn what_is_not_covered_pays() {
    let other = StopScope { address: Some(OTHER_CONTRACT), ..EVERYTHING };
    let dai = StopScope { stablecoin: Some(Stablecoin::Dai), ..EVERYTHING };
    // All fields have to match.
    let both = StopScope { address: Some(CONTRACT), ..dai };
    Lane::new()
        .then(stop(other), ALERT)
        .then(stop(dai), ALERT)
        .then(stop(both), ALERT)
        .then(open('A', "10.00"), OPEN_A)
        .then(pay(1, "10.00").confirmed(), ASKED_A);
}

#[test]
fn no_deposit_opens_where_it_is_stopped() {
    Lane::new()
        .then(stop(COIN), ALERT)
        .then(open('A', "10.00"), "to A: refused /0 stopped")
        .then(resume(COIN), RESOLVED)
        .then(open('A', "10.00"), OPEN_A);
}

/// Without the stop it would settle at sight.
#[test]
fn at_sight_it_is_stopped_too() {
    offered().then(stop(OF_CONTRACT), ALERT).then(pay(1, "10.00").confirmed(), SEEN_A).then(
        head(120),
        "confirmed #2 @110 for #1; to A: gone #2; unknown #2 @110 stopped maybe A",
    );
}

/// A settle without a reply is not repeated during a stop. The reply to a settle from before the stop still counts.
#[test]
fn a_question_is_not_put_again_while_it_is_stopped() {
    offered()
        .then(pay(1, "10.00").confirmed(), ASKED_A)
        .then(stop(EVERYTHING), ALERT)
        .then(head(190), "")
        .then(head(260), "")
        .then(resume(EVERYTHING), RESOLVED)
        .then(head(330), "to A: settle #2 /0 #1")
        .then(settled('A', 2), PAID_A);
}

/// A transfer without a deposit keeps its amount from new deposits, and does not settle.
#[test]
fn a_loose_transfer_does_not_ask_while_it_is_stopped() {
    let other = StopScope { address: Some(OTHER_CONTRACT), ..EVERYTHING };
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(pay(1, "10.00").contract(OTHER_CONTRACT), "detected #1 @110")
        .then(head(120), "confirmed #1 @110")
        .then(stop(other), ALERT)
        .then(open('A', "10.00").paid_in(&[CONTRACT, OTHER_CONTRACT]), &gets('A', 2, "10.01"))
        .then(head(131), "unknown #1 @110 amount_mismatch");
}

/// Stops are published at once, without a new head.
#[test]
fn a_lane_publishes_what_is_stopped() {
    let mut state = Lane::new().machine().clone();
    let stopped = |found: Option<schemas::record::ChainProgress>| {
        found.map(|progress| (progress.head.number, progress.confirmed, progress.stopped))
    };
    assert_eq!(stopped(progress(&mut state, stop(COIN))), Some((100, 90, vec![COIN])));
    assert_eq!(stopped(progress(&mut state, stop(COIN))), None);
    let both = vec![COIN, OF_CONTRACT];
    assert_eq!(stopped(progress(&mut state, stop(OF_CONTRACT))), Some((100, 90, both)));
    assert_eq!(stopped(progress(&mut state, resume(COIN))), Some((100, 90, vec![OF_CONTRACT])));
    assert_eq!(stopped(progress(&mut state, resume(COIN))), None);
}

/// A stop of a coin on this chain stays when a stop of it on all chains ends.
#[test]
fn each_stop_ends_by_itself() {
    let here = StopScope { blockchain: Some(Blockchain::Eth), ..COIN };
    offered()
        .then(stop(here), ALERT)
        .then(stop(COIN), ALERT)
        .then(resume(COIN), RESOLVED)
        .then(pay(1, "10.00"), SEEN_A)
        .then(head(120), "confirmed #2 @110 for #1; to A: gone #2; unknown #2 @110 stopped maybe A")
        .then(resume(here), RESOLVED)
        .then(
            pay(2, "10.00").at(122).confirmed(),
            "confirmed #3 @122 for #1; to A: settle #3 /0 #1",
        );
}

/// A transfer that fits no deposit keeps its own reason: `stopped` would suggest attaching it.
#[test]
fn what_never_fits_is_not_called_stopped() {
    Lane::new()
        .then(watch(100, 1, OTHER_CONTRACT), "")
        .then(open('A', "10.00"), OPEN_A)
        .then(stop(EVERYTHING), ALERT)
        .then(pay(1, "10.00").contract(OTHER_CONTRACT), "detected #2 @110")
        .then(head(120), "confirmed #2 @110; unknown #2 @110 other_contract maybe A");
}
