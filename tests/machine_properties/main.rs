//! Properties of the processor's machines: the invariants of `docs/internals/invariants.md` under an
//! adversary, and the outcomes against an independent model.
//!
//! A case is a list of external events, each with dice for the adversary's next actions. A failing case is shrunk and
//! printed, and its seed kept in `main.regressions`.

mod case;
mod outcome;
mod play;
mod reach;
mod world;

use std::collections::BTreeSet;

use case::{Case, case, fixed_cases};
use oracle::machine_model::driver::Sabotage;
use oracle::machine_model::pipeline::Tricks;
use play::Play;
use proptest::prelude::TestCaseError;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use reach::{ASKED_ABOUT, AT_SIGHT, HELD, REMEMBERED, RETURNS, Reached, STALE};
use schemas::{CloseReason, OrderCause, RefusalReason, TransferStatus, UnknownReason};
use world::World;

/// Number of random cases for each property. `cargo xtask test` draws the same ones in each run, and fewer with
/// `--fast`; `cargo xtask soak` draws others.
fn cases() -> u32 {
    std::env::var_os("TIDEMARK_TEST_CASES").map_or(8_000, |cases| {
        cases.to_str().and_then(|cases| cases.parse().ok()).expect("a number")
    })
}

fn check_all(world: World, test: impl Fn(&Case) -> Result<(), String>) {
    let regressions = FileFailurePersistence::WithSource("regressions");
    let config = Config {
        cases: cases(),
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(regressions)),
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&case(world), |case| test(&case).map_err(TestCaseError::fail))
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn invariants_hold() {
    check_all(World::Wild, |case| {
        let mut play = Play::new(World::Wild, case, Sabotage::None);
        let checked = play.run(case).and_then(|()| play.check());
        checked.map(drop).map_err(|violation| violation.to_string())
    });
}

#[test]
fn outcomes_equal_the_model() {
    check_all(World::Settled, |case| {
        let mut play = Play::new(World::Settled, case, Sabotage::None);
        let checked = play.run(case).and_then(|()| play.check());
        play.compare_with_model(&checked.map_err(|violation| violation.to_string())?)
    });
}

/// Control: the checks find each injected defect.
#[test]
fn sabotage_is_found() {
    let machine = "found by the machine";
    for (sabotage, invariant, part) in [
        (Sabotage::WaitForEver, 1, ""),
        (Sabotage::SettleTwice, 2, machine),
        (Sabotage::MatchTwice, 2, "is paid by"),
        (Sabotage::SwallowReorgs, 3, ""),
        (Sabotage::ConfirmEarly, 3, ""),
        (Sabotage::ConfirmAtSight, 3, ""),
        (Sabotage::ForgetHolds, 3, "holds it"),
        (Sabotage::HideOrphans, 3, "on the chain"),
        (Sabotage::CancelAlways, 4, ""),
        (Sabotage::ForgetEarly, 4, "no answer to"),
        (Sabotage::ReviveStale, 4, "has version"),
        (Sabotage::LoseInBatch, 5, ""),
        (Sabotage::ForgetUndo, 6, ""),
        (Sabotage::KeepRemoved, 6, ""),
        (Sabotage::ExpireEarly, 8, ""),
        (Sabotage::ExpireByTip, 8, ""),
        (Sabotage::AnnounceAsked, 10, ""),
        (Sabotage::WatchAnother, 11, "not watched"),
        (Sabotage::HideWatched, 11, "publishes of itself"),
        (Sabotage::HideUnconfirmed, 11, "publishes of itself"),
        (Sabotage::BelieveOldHeads, 11, "opened at"),
        (Sabotage::IgnoreGaps, 11, "has a gap"),
        (Sabotage::ForgetNewest, 13, "has paid, and is new"),
        (Sabotage::NameTakenBack, 13, "has paid, and is new"),
        (Sabotage::ReuseAtOnce, 10, "share an amount"),
        (Sabotage::ClaimLoose, 10, "was given the amount of"),
        (Sabotage::IgnoreSender, 10, "is not what"),
        (Sabotage::IgnoreOwnWallet, 2, "does not fit"),
        (Sabotage::RaiseBeyondLimit, 10, "is not what"),
        (Sabotage::ForgetAsked, 2, "counts on it"),
        (Sabotage::HideCandidate, 2, "counts on it"),
        (Sabotage::ForgetOrphans, 2, "two ids for"),
        (Sabotage::ForgetCountedOn, 2, "two ids for"),
        (Sabotage::DenyCandidates, 8, "answered as gone"),
        (Sabotage::ForgetReplaced, 8, "expired with"),
        (Sabotage::OpenEarlier, 2, "does not fit"),
        (Sabotage::OpenLater, 1, "without a true reason"),
        (Sabotage::ForgetListed, 2, "does not fit"),
        (Sabotage::HideGone, 3, "not shown so"),
        (Sabotage::ForgetMarked, 11, "on its way"),
        (Sabotage::FailAtOnce, 1, "became failed_to_confirm"),
        (Sabotage::ForgetLateAnswer, 2, "counts on it"),
        (Sabotage::HideLateAnswer, 3, "no alert says"),
        (Sabotage::IgnoreLateRefusal, 1, "without a true reason"),
        (Sabotage::AcceptLate, 2, "does not fit"),
        (Sabotage::AnyContractPays, 14, "is of no contract"),
        (Sabotage::ForgetStop, 14, "is stopped"),
        (Sabotage::StopForEver, 1, "without a true reason"),
        (Sabotage::HideStopped, 11, "publishes of itself"),
        (Sabotage::AttachElsewhere, 2, "no operator attached it"),
        (Sabotage::AttachOwnMoney, 2, "is asked by"),
        (Sabotage::RestartIds, 15, "names"),
    ] {
        let mut violations = BTreeSet::new();
        let found = fixed_cases(World::Wild, 2000).any(|case| {
            let tricks = Tricks { batches: true, losses: true, ..Tricks::NONE };
            let case = Case { tricks, ..case };
            let mut play = Play::new(World::Wild, &case, sabotage);
            let violation = play.run(&case).and_then(|()| play.check()).err();
            violation.is_some_and(|violation| {
                violations.insert(violation.invariant);
                violation.invariant == invariant && violation.text.contains(part)
            })
        });
        assert!(
            found,
            "{sabotage:?} breaks {invariant}, and only {violations:?} were found broken"
        );
    }
}

/// Control: the model finds defects whose records keep the invariants.
#[test]
fn the_model_finds_wrong_outcomes() {
    for sabotage in [
        Sabotage::WaitForEver,
        Sabotage::ExpireEarly,
        Sabotage::ReuseAtOnce,
        Sabotage::ClaimLoose,
        Sabotage::IgnoreOwnWallet,
        Sabotage::WatchAnother,
        Sabotage::LoseInBatch,
    ] {
        let tricks = Tricks { batches: true, ..Tricks::NONE };
        let found = fixed_cases(World::Settled, 1000).any(|case| {
            let case = Case { tricks, ..case };
            let mut play = Play::new(World::Settled, &case, sabotage);
            let has_run = play.run(&case).is_ok();
            has_run && play.ledger().is_ok_and(|ledger| play.compare_with_model(&ledger).is_err())
        });
        assert!(found, "{sabotage:?}");
    }
}

/// Outcomes that only races cause.
const WILD: [&str; 4] = ["not_watched", "payment_unavailable", ASKED_ABOUT, STALE];
/// The cases cover every way in which an order or a transfer can end.
#[test]
fn cases_reach_every_outcome() {
    for world in [World::Wild, World::Settled] {
        let mut reached = Reached::default();
        for case in fixed_cases(world, 3000) {
            let mut play = Play::new(world, &case, Sabotage::None);
            play.run(&case).unwrap_or_else(|violation| panic!("{violation}"));
            reached.add(&play.pipeline.delivered);
        }
        let statuses = TransferStatus::ALL.iter().map(|status| status.as_str());
        let reasons = UnknownReason::ALL.iter().map(|reason| reason.as_str());
        let refusals = RefusalReason::ALL.iter().map(|reason| reason.as_str());
        // In the settled world every wallet is watched, and nothing races.
        let elsewhere = |what: &&str| {
            world == World::Settled && (WILD.contains(what) || RETURNS.contains(what))
        };
        let causes = OrderCause::ALL.iter().map(|cause| cause.as_str());
        // An order expires only after its deposits have ended, so no deposit is closed for this reason.
        let closes = CloseReason::ALL.iter().filter(|r| **r != CloseReason::OrderExpired);
        let closes = closes.map(|reason| reason.as_str());
        let all = statuses.chain(reasons).chain(refusals).chain(causes).chain(closes);
        let missed: Vec<_> = all
            .chain([AT_SIGHT, REMEMBERED, ASKED_ABOUT, STALE])
            .chain(HELD)
            .chain(RETURNS)
            .filter(|what| !elsewhere(what) && !reached.has(what))
            .collect();
        assert!(missed.is_empty(), "{world:?} misses {missed:?}, reaches {reached:?}");
    }
}
