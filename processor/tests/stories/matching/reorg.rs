//! Reorganisations: a rewind retracts transfers. The new branch includes them again, moves them or lacks them.

use super::lane::transfer_row;
use super::*;
use crate::chain::{DAY, FORGETS};

/// Effects of the retract of a transfer whose settle was sent.
pub(super) const ORPHANED: &str = "alert confirmed_transfer_retracted #2
    detected #2 waiting_for_match @110 for #1 orphaned";

/// Effects once the chain has the old height again, without the transfer.
const GONE: &str = "detected #2 @110 for #1 orphaned";

/// A deposit of order A and, in block 110, an unconfirmed transfer for it.
pub(super) fn candidate() -> Lane {
    seen().then(head(112), "")
}

/// A [`candidate`] that a rewind has retracted.
pub(super) fn retracted() -> Lane {
    candidate().then(pay(1, "10.00").retracted(1), "").then(head(109).epoch(1), "")
}

/// A transfer that a rewind has retracted while it was settling.
pub(super) fn orphaned() -> Lane {
    settling().then(pay(1, "10.00").retracted(1), ORPHANED).then(head(109).epoch(1), "")
}

/// An unknown transfer that a rewind has retracted.
pub(super) fn stray_orphaned() -> Lane {
    stray()
        .then(
            pay(1, "10.00").retracted(1),
            "alert confirmed_transfer_retracted #1
             detected #1 no_matched_deposit @110 no_deposit orphaned",
        )
        .then(head(109).epoch(1), "")
}

#[test]
fn what_never_returns_fails_at_finality() {
    let lane = retracted()
        // The deposit stays open although overdue: the transaction may still be included again.
        .then(head(215).epoch(1).finalized(109), GONE)
        .then(
            head(216).epoch(1).finalized(110),
            "to A: gone #2; failed #2 @110 orphaned
             deposit #1 expired for A/0; to A: closed /0 expired",
        );
    assert_eq!(transfer_row(&lane, 2).status.to_string(), "failed_to_confirm");
}

#[test]
fn nothing_retracted_is_confirmed() {
    retracted()
        .then(head(125).epoch(1).finalized(109), GONE)
        .then(head(126).epoch(1).tiers(&[], 126).finalized(109), "");
}

/// Ingest may have forgotten a transfer: then it writes no retract.
#[test]
fn new_epoch_orphans_what_is_above_its_head() {
    candidate()
        .then(head(109).epoch(1), "")
        .then(head(125).epoch(1).finalized(109), GONE)
        .then(head(126).epoch(1).finalized(110), "to A: gone #2; failed #2 @110 orphaned");
    candidate()
        .then(head(109).epoch(1), "")
        .then(pay(1, "10.00").at(113).fork(1), "detected #2 @113 for #1");
    // A transfer at or below the head stays.
    candidate().then(head(110).epoch(1), "").then(head(120).epoch(1), ASKED_A);
    settling().then(
        head(109).epoch(1),
        "alert confirmed_transfer_retracted #2; detected #2 waiting_for_match @110 for #1 orphaned",
    );
}

#[test]
fn in_another_block_it_still_pays() {
    retracted()
        .then(pay(1, "10.00").at(113).fork(1), "detected #2 @113 for #1")
        .then(head(122).epoch(1), "")
        .then(head(123).epoch(1), "confirmed #2 @113 for #1; to A: settle #2 /0 #1")
        .then(settled('A', 2), "matched #2 @113 for #1 paid A by #3; deposit #1 settled for A/0");
}

#[test]
fn at_another_index_it_is_the_same() {
    // A retract of another transaction in the same block is of another transfer.
    let lane = candidate().ignores(pay(2, "10.00").retracted(1));
    let moved = pay(1, "10.00").fork(1).log(9);
    lane.then(pay(1, "10.00").retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(moved, "detected #2 @110 for #1")
        .ignores(moved)
        .ignores(pay(1, "10.00").retracted(2));
}

#[test]
fn moved_past_the_deadline_it_misfits() {
    candidate()
        .then(head(195).tiers(&[], 100).finalized(90), "")
        .then(pay(1, "10.00").retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(pay(1, "10.00").at(201).fork(1), "to A: gone #2; detected #2 @201")
        .then(
            head(211).epoch(1),
            "confirmed #2 @201; unknown #2 @201 late maybe A
             deposit #1 expired for A/0; to A: closed /0 expired",
        );
}

/// Invariant 11: the transfer's block is in time, although a later block was scanned before.
#[test]
fn moved_into_time_after_the_deadline_it_pays() {
    offered()
        .then(head(203), "")
        .then(head(198).epoch(1), "")
        .then(pay(1, "10.00").at(199).fork(1), "to A: seen #2; detected #2 @199 for #1")
        .then(head(211).epoch(1), "confirmed #2 @199 for #1; to A: settle #2 /0 #1")
        .then(settled('A', 2), "matched #2 @199 for #1 paid A by #3; deposit #1 settled for A/0");
}

#[test]
fn moved_into_the_window_it_fits() {
    offered()
        .then(pay(1, "10.00").at(95), "detected #2 @95")
        .then(head(100), "")
        .then(pay(1, "10.00").at(95).retracted(1), "")
        .then(head(94).epoch(1), "")
        .then(pay(1, "10.00").at(98).fork(1), "to A: seen #2; detected #2 @98 for #1");
}

#[test]
fn an_older_epoch_is_ignored() {
    offered()
        .then(head(112), "")
        .then(head(105).epoch(1), "")
        .ignores(pay(1, "10.00"))
        .then(pay(1, "10.00").at(106).fork(1), "to A: seen #2; detected #2 @106 for #1");
}

#[test]
fn a_branch_may_come_back() {
    retracted()
        .then(head(111).epoch(1), GONE)
        // The first branch again: the same inclusion, observed in epoch 2.
        .then(head(109).epoch(2), "")
        .then(pay(1, "10.00").epoch(2), "detected #2 @110 for #1")
        .ignores(pay(1, "10.00").retracted(1))
        .ignores(pay(1, "10.00").epoch(2))
        .then(head(120).epoch(2), ASKED_A);
}

/// An endpoint that changes its branch twice shows the block again, in the epoch of the retract.
#[test]
fn a_repeated_retract_counts_once() {
    retracted()
        .then(pay(1, "10.00").epoch(1), "detected #2 @110 for #1")
        .ignores(pay(1, "10.00").retracted(1))
        .then(head(120).epoch(1), ASKED_A);
}

#[test]
fn there_and_back_through_another_block() {
    let here = pay(1, "10.00");
    let there = here.at(111).fork(1);
    candidate()
        .then(here.retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(there, "detected #2 @111 for #1")
        .then(there.retracted(2), "")
        .then(head(109).epoch(2), "")
        .then(here.epoch(2), "detected #2 @110 for #1")
        .ignores(there.retracted(2))
        .ignores(here.retracted(1))
        .ignores(there)
        .then(head(120).epoch(2), ASKED_A);
}

/// An ingestor that repeats its last records repeats the transfer before the retract.
#[test]
fn a_duplicate_revives_no_orphan() {
    candidate()
        .then(pay(1, "10.00").retracted(1), "")
        .ignores(pay(1, "10.00"))
        .ignores(pay(1, "10.00").retracted(1))
        .then(head(109).epoch(1), "")
        .then(head(125).epoch(1).finalized(109), GONE);
}

#[test]
fn an_orphan_keeps_its_amount_from_others() {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(pay(1, "10.00").retracted(1), "")
        .then(head(109).epoch(1), "")
        .then(open('A', "10.00"), &gets('A', 2, "10.01"));
}

/// A chain includes a transaction once: a move within one epoch is a false answer of an endpoint.
#[test]
fn within_an_epoch_nothing_moves() {
    candidate().ignores(pay(1, "10.00").at(111)).ignores(pay(1, "10.00").log(9));
}

#[test]
fn an_unknown_retract_is_ignored() {
    candidate().ignores(pay(9, "10.00").retracted(1));
}

#[test]
fn below_the_ancestor_it_stays() {
    candidate()
        .then(head(110).epoch(1), "")
        .ignores(pay(1, "10.00").epoch(1))
        .then(head(120).epoch(1), ASKED_A);
}

#[test]
fn a_rewind_lowers_the_time() {
    Lane::new()
        .then(head(205), "")
        .then(open('A', "10.00"), "to A: refused /0 expired")
        .then(head(190).epoch(1), "")
        .then(open('B', "10.00"), &gets('B', 1, "10.00"))
        .then(head(206), "alert head_went_back")
        .then(head(189).epoch(1), "")
        .then(head(200).epoch(1), "")
        .then(head(211).epoch(1), &ends('B', 1, "expired"));
}

#[test]
fn finality_never_goes_back() {
    candidate()
        .then(head(118).finalized(110), "")
        .then(pay(1, "10.00").retracted(1), "")
        // Its block was final: the transaction will not be included again.
        .then(head(109).epoch(1).finalized(89), "to A: gone #2; failed #2 @110 orphaned");
}

#[test]
fn a_confirmed_one_waits_again() {
    Lane::new()
        .then(pay(1, "10.00"), "detected #1 @110")
        .then(head(120), "confirmed #1 @110")
        .then(
            pay(1, "10.00").retracted(1),
            "alert confirmed_transfer_retracted #1; detected #1 @110 orphaned",
        )
        .then(head(109).epoch(1), "")
        // The match window does not run while the transfer is orphaned.
        .then(head(129).epoch(1).finalized(109), "")
        .then(pay(1, "10.00").at(130).fork(1), "detected #1 @130")
        .then(head(140).epoch(1), "confirmed #1 @130")
        .then(head(150).epoch(1), "")
        .then(head(151).epoch(1), "unknown #1 @130 no_deposit");
}

#[test]
fn an_asked_transfer_is_never_unpaid() {
    orphaned()
        .then(
            settled('A', 2),
            "matched #2 @110 for #1 paid A by #3 orphaned; deposit #1 settled for A/0",
        )
        .then(pay(1, "10.00").at(112).fork(1), "detected #2 matched @112 for #1 paid A by #3")
        .then(head(125).epoch(1), "");
}

#[test]
fn an_asked_orphan_can_be_refused() {
    settling().then(pay(1, "10.00").retracted(1), ORPHANED).then(
        refused('A', 2, UnknownReason::OrderCancelled),
        "unknown #2 @110 order_cancelled maybe A orphaned",
    );
}

#[test]
fn a_matched_orphan_stays_matched() {
    settling()
        .then(settled('A', 2), PAID_A)
        .then(
            pay(1, "10.00").retracted(1),
            "alert confirmed_transfer_retracted #2 A
             detected #2 matched @110 for #1 paid A by #3 orphaned",
        )
        .ignores(pay(1, "10.00").retracted(1))
        .then(head(109).epoch(1), "")
        .then(head(150).epoch(1), "")
        // The transfer is already retracted: a second retract has no effect.
        .ignores(pay(1, "10.00").retracted(2));
}

#[test]
fn an_unknown_orphan_stays_unknown() {
    stray_orphaned()
        .then(pay(1, "10.00").at(111).fork(1), "detected #1 no_matched_deposit @111 no_deposit")
        .then(head(140).epoch(1), "");
}

/// The settle of an orphan is not repeated.
#[test]
fn an_orphan_is_not_asked_about_again() {
    orphaned()
        .then(head(181).epoch(1), "")
        .then(pay(1, "10.00").at(182).fork(1), "detected #2 waiting_for_match @182 for #1")
        .then(head(242).epoch(1), "to A: settle #2 /0 #1");
}

/// For a reply read during a rewind, the day of retention starts at an earlier time. The transfer must be kept as long
/// as it could be taken for a new one.
#[test]
fn what_is_forgotten_is_stale() {
    settling()
        .then(pay(1, "10.00").retracted(1), ORPHANED)
        .then(head(105).epoch(1), "")
        .then(
            settled('A', 2),
            "matched #2 @110 for #1 paid A by #3 orphaned; deposit #1 settled for A/0",
        )
        .then(pay(1, "10.00").at(112).fork(1), "detected #2 matched @112 for #1 paid A by #3")
        .then(head(106 + DAY).epoch(1), "")
        .ignores(pay(1, "10.00").at(112).fork(1))
        .then(head(FORGETS).epoch(1), "")
        .then(pay(1, "10.00").at(112).fork(1), "alert stale_transfer");
}

/// A candidate settles with an order that ended without it, even after a move to another block.
#[test]
fn moved_it_asks_an_order_that_has_ended() {
    for reason in [CloseReason::OrderPaid, CloseReason::OrderCancelled] {
        candidate()
            .then(close('A', reason), &ends('A', 1, reason))
            .then(pay(1, "10.00").retracted(1), "")
            .then(head(109).epoch(1), "")
            .then(pay(1, "10.00").at(111).fork(1), "detected #2 @111 for #1")
            .then(head(121).epoch(1), "confirmed #2 @111 for #1; to A: settle #2 /0 #1");
    }
}

/// A transfer that moves to another block is no longer the candidate of a deposit that another one has paid.
#[test]
fn moved_off_a_paid_deposit() {
    let second = pay(2, "10.00");
    candidate()
        .then(second.at(113), "to A: seen #3; detected #3 @113 for #1")
        .then(head(120), ASKED_A)
        .then(settled('A', 2), "matched #2 @110 for #1 paid A by #4; deposit #1 settled for A/0")
        .then(second.at(113).retracted(1), "")
        .then(head(112).epoch(1), "")
        .then(second.at(114).fork(1), "to A: gone #3; detected #3 @114")
        .then(head(124).epoch(1), "confirmed #3 @114; unknown #3 @114 already_paid maybe A");
}

/// An orphan is published once the chain has the old height again, long before that height is final.
#[test]
fn what_left_the_chain_shows_so() {
    retracted()
        .then(head(110).epoch(1), GONE)
        .then(head(111).epoch(1), "")
        .then(pay(1, "10.00").at(112).fork(1), "detected #2 @112 for #1");
}
