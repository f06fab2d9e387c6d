//! Transfers that a head confirms.

use super::*;

#[test]
fn amounts_have_their_own_tier() {
    let tiers = [("100", 110), ("1000", 108)];
    Lane::new()
        .then(pay(1, "99.99"), "detected #1 @110")
        .then(pay(2, "100"), "detected #2 @110")
        .then(pay(3, "1000"), "detected #3 @110")
        .then(head(111).tiers(&[("100", 109), ("1000", 109)], 109), "")
        .then(head(112).tiers(&tiers, 105), "confirmed #1 @110")
        .then(head(113).tiers(&[("100", 112), ("1000", 110)], 109), "confirmed #2 @110")
        .then(head(114).tiers(&[("100", 113), ("1000", 111)], 110), "confirmed #3 @110");
}

#[test]
fn nothing_above_the_head_is_confirmed() {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(head(109).tiers(&[], 500), "")
        .then(head(110).tiers(&[], 500), "confirmed #1 @110");
}

#[test]
fn a_late_find_waits_for_the_next_head() {
    offered().then(head(130), "").then(pay(1, "10.00"), SEEN_A).then(head(131), ASKED_A);
}

/// The transfer's block is in time, but the order has ended: the record names that order as its candidate.
#[test]
fn late_find_after_its_deposits_end_is_unknown() {
    offered()
        .then(head(211), EXPIRED_A)
        .then(pay(1, "10.00"), "detected #2 @110")
        .then(head(212), "confirmed #2 @110; unknown #2 @110 late maybe A");
}

#[test]
fn a_head_that_is_behind_is_ignored_and_reported_once() {
    Lane::new()
        .then(head(130), "")
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(head(129), "alert head_went_back")
        .then(head(110).tiers(&[], 110), "")
        .then(head(130), "confirmed #1 @110")
        .then(head(129), "");
}

/// An ingestor that lags another one writes such heads for ever. An ignored head is noted if the last noted one is at
/// least 600 s old (`NOTED_SECONDS`). The alert stays after 3,590 s without such a head, and ends after 3,600 s
/// (`QUIET_SECONDS`).
#[test]
fn ignored_heads_are_one_alert_until_an_hour_without() {
    Lane::new()
        .then(head(99), "alert head_went_back")
        .then(head(399), "")
        .then(head(398), "")
        .then(head(459), "")
        .then(head(458), "")
        // Heads are accepted, and none was ignored for an hour of chain time.
        .then(head(818), "")
        .then(head(819), "resolved head_went_back")
        .then(head(818), "alert head_went_back")
        .then(head(100_000).at_time_of(820), "alert head_too_far");
}

/// The chain has a block each 12 s. If the head were accepted, all later ones would be behind it.
#[test]
fn impossible_head_is_ignored_and_reported_once() {
    Lane::new()
        .then(head(130), "")
        .then(pay(1, "10.00").at(125), "detected #1 @125")
        .then(head(100_000).at_time_of(131), "alert head_too_far")
        .then(head(100_001).at_time_of(132), "")
        .then(head(247).at_time_of(131).epoch(1), "")
        .then(head(129), "alert head_went_back")
        .then(head(135), "confirmed #1 @125")
        .then(head(100_000).at_time_of(136).epoch(1), "");
}

/// The limit is twenty times the chain's block rate, plus the blocks of twenty minutes at its own rate.
#[test]
fn a_chain_may_be_far_faster_than_it_is() {
    Lane::new()
        .then(head(130), "")
        .then(head(130 + 117).at_time_of(131), "alert head_too_far")
        .then(head(130 + 116).at_time_of(131), "")
        // Block time that goes back does not lower the limit.
        .then(head(130 + 116 + 100).at_time_of(100), "");
}

/// Accepting such a time would expire deposits before their deadline, and would allow the head any height.
#[test]
fn future_head_is_ignored_and_reported_once() {
    offered()
        .then(head(100), "")
        .then(head(101).ahead_by(7201), "alert head_too_far")
        .then(head(100_000).ahead_by(86_400 * 365), "")
        .then(pay(1, "10.00").at(102), "to A: seen #2; detected #2 @102 for #1")
        .then(head(102), "")
        // The ingestor's clock may be up to two hours behind.
        .then(head(103).ahead_by(7200), "resolved head_too_far");
    let mut new = State::new(schemas::Blockchain::Eth, schemas::Partition(0));
    for alerts in [1, 0] {
        assert_eq!(decide(&mut new, &head(100).ahead_by(7201).into()).len(), alerts);
        assert_eq!(new.snapshot().len(), 1, "it is not the first head");
    }
}

/// Each reorganisation has at least one new block, so epochs have the limit of blocks.
#[test]
fn impossible_epoch_is_ignored_and_reported_once() {
    Lane::new()
        .then(head(130), "")
        .then(head(131).epoch(117), "alert head_too_far")
        .then(head(131), "")
        // Heads between two heads may be lost.
        .then(head(132).epoch(116), "")
        .then(head(133).epoch(115), "alert head_went_back");
}

#[test]
fn records_of_another_chain_are_ignored() {
    let mut transfer = pay(1, "10.00").record();
    transfer.blockchain = schemas::Blockchain::Base;
    let mut other_head = head(500).record();
    other_head.blockchain = schemas::Blockchain::Base;
    Lane::new().ignores(Input::Chain(transfer)).ignores(Input::Chain(other_head));
}

#[test]
fn confirmed_at_sight_it_asks_at_once() {
    offered()
        .then(pay(1, "10.00").confirmed(), ASKED_A)
        .ignores(pay(1, "10.00").confirmed())
        .then(head(120), "")
        .then(settled('A', 2), PAID_A);
}

/// An earlier waiting transfer has priority, even if the same head confirms both.
#[test]
fn confirmed_at_sight_it_takes_no_turn_of_another() {
    seen().then(pay(2, "10.00").at(111).confirmed(), "to A: seen #3; detected #3 @111 for #1");
}

/// The head of the transfer's step is misplaced and ignored, so it confirms nothing.
#[test]
fn in_a_wrong_place_nothing_is_confirmed_at_sight() {
    offered()
        .then(head(130), "")
        .then(pay(1, "10.00").at(129).confirmed(), "to A: seen #2; detected #2 @129 for #1")
        .then(head(129).tiers(&[], 129), "alert head_went_back")
        .then(pay(1, "10.00").at(129).retracted(1), "")
        .then(head(139).epoch(1), "detected #2 @129 for #1 orphaned");
    let mut too_far = pay(1, "10.00").at(100_000).confirmed().record();
    too_far.block.timestamp = pay(1, "10.00").at(130).record().block.timestamp;
    offered()
        .then(Input::Chain(too_far), "to A: seen #2; detected #2 @100000 for #1")
        .then(head(100_000).at_time_of(130).tiers(&[], 100_000), "alert head_too_far");
}

/// Without a deposit it waits for the head, and then for the match window.
#[test]
fn confirmed_at_sight_without_deposit_waits_for_head() {
    Lane::new()
        .then(pay(1, "10.00").confirmed(), "detected #1 @110")
        .then(head(120), "confirmed #1 @110");
}

#[test]
fn confirmed_at_sight_then_retracted_is_an_alert() {
    offered().then(pay(1, "10.00").confirmed(), ASKED_A).then(
        pay(1, "10.00").retracted(1),
        "alert confirmed_transfer_retracted #2; detected #2 waiting_for_match @110 for #1 orphaned",
    );
}
