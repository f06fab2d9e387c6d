//! Tests of the choice of an endpoint: the ones asked, put aside and gone.

use super::*;

const TRANSIENT: Fault = Fault::Refused(Refusal::Transient, None);
const RATE: Fault = Fault::Refused(Refusal::Rate, None);
const FATAL: Fault = Fault::Refused(Refusal::Fatal, None);

/// A failure, a step that ended well, or the expected choice: the endpoint to ask, and the wait in milliseconds.
enum Event {
    Fails(usize, Fault),
    Serves(usize),
    Asked(usize, u64),
}
use Event::{Asked, Fails, Serves};

#[track_caller]
fn play(weights: &[u64], events: &[(u64, Event)]) {
    let start = Instant::now();
    let mut health = Health::new(weights.iter().copied(), Pauses::default());
    for (position, (millis, event)) in events.iter().enumerate() {
        let now = start + Duration::from_millis(*millis);
        match event {
            Fails(index, fault) => drop(health.failed(*index, *fault, now)),
            Serves(index) => drop(health.served(*index)),
            Asked(index, wait) => {
                let expected = (*index, Duration::from_millis(*wait));
                assert_eq!(health.first(now), expected, "event {position}");
            }
        }
    }
}

#[test]
fn the_greatest_weight_then_the_first() {
    play(&[100, 100, 100], &[(0, Asked(0, 0))]);
    play(&[100, 200, 200], &[(0, Asked(1, 0))]);
}

#[test]
fn one_failure_may_be_chance_and_two_are_not() {
    for fault in [
        TRANSIENT,
        Fault::Refused(Refusal::Timeout, None),
        Fault::Refused(Refusal::Size { hint: None }, None),
        Fault::Contradiction,
    ] {
        play(
            &[100, 100],
            &[
                (0, Fails(0, fault)),
                (0, Asked(0, 500)),
                (500, Fails(0, fault)),
                (500, Asked(1, 0)),
                // Asked again after a second, and paused for longer at its next failure.
                (1500, Asked(0, 0)),
                (1500, Fails(0, fault)),
                (3400, Asked(1, 0)),
                (3500, Asked(0, 0)),
                (3500, Serves(0)),
                (3500, Fails(0, fault)),
                (3500, Asked(0, 500)),
            ],
        );
    }
}

#[test]
fn a_rate_or_a_plan_puts_aside_at_once() {
    play(&[100, 100], &[(0, Fails(0, RATE)), (0, Asked(1, 0)), (500, Asked(0, 0))]);
    let pause = Some(Duration::from_secs(45));
    let asked = Fault::Refused(Refusal::Rate, pause);
    play(&[100, 100], &[(0, Fails(0, asked)), (44_000, Asked(1, 0)), (45_000, Asked(0, 0))]);
    for fault in [FATAL, Fault::Wrong] {
        play(&[100, 100], &[(0, Fails(0, fault)), (299_000, Asked(1, 0)), (300_000, Asked(0, 0))]);
    }
    play(
        &[100, 100],
        &[(0, Fails(0, Fault::Forked)), (29_000, Asked(1, 0)), (30_000, Asked(0, 0))],
    );
}

#[test]
fn when_all_are_aside_the_first_free_one_is_asked() {
    play(
        &[100, 100],
        &[
            (0, Fails(0, FATAL)),
            (0, Fails(1, RATE)),
            (0, Asked(1, 500)),
            (100, Fails(1, Fault::Wrong)),
            (100, Asked(0, 29_900)),
        ],
    );
    // The only endpoint keeps the pause that it asked for; otherwise it is asked within half a minute.
    let asked = Fault::Refused(Refusal::Rate, Some(Duration::from_secs(50)));
    play(&[100], &[(0, Fails(0, asked)), (0, Asked(0, 50_000))]);
    play(&[100], &[(0, Fails(0, FATAL)), (0, Asked(0, 30_000))]);
    let mut storm: Vec<_> = (0..12).map(|_| (0, Fails(0, TRANSIENT))).collect();
    storm.push((0, Asked(0, 30_000)));
    play(&[100], &storm);
}

#[test]
fn behind_counts_only_where_another_is_up() {
    let behind = || Fails(0, Fault::Behind);
    play(
        &[100, 100],
        &[
            (0, behind()),
            (0, behind()),
            (0, Asked(0, 0)),
            (0, Fails(0, Fault::Refused(Refusal::Behind, None))),
            (0, Asked(1, 0)),
            (0, Fails(1, Fault::Behind)),
            (0, Fails(1, Fault::Behind)),
            (0, Fails(1, Fault::Behind)),
            (0, Asked(1, 0)),
            (500, Asked(0, 0)),
        ],
    );
    play(&[100], &[(0, behind()), (0, behind()), (0, behind()), (0, Asked(0, 0))]);
}

#[test]
fn the_second_answer_comes_from_one_that_did_not_scan() {
    let now = Instant::now();
    let mut health = Health::new([100, 200, 100, 300], Pauses::default());
    assert_eq!(health.second(3, 10, now), Some(1));
    for (index, number) in [(1, 10), (3, 12), (3, 13)] {
        health.scanned(index, number);
    }
    assert_eq!(health.second(3, 11, now), Some(1));
    assert_eq!(health.second(3, 10, now), Some(3), "the first did not scan it");
    assert_eq!((health.witness(3, 3, now), health.witness(1, 3, now)), (1, 3));
    for index in [1, 0, 2] {
        health.failed(index, RATE, now);
    }
    assert_eq!(health.second(3, 11, now), None, "they may answer again soon");
    let later = now + Pauses::default().alone;
    assert_eq!(health.second(3, 11, later), Some(1), "they are asked again");
    for index in 0..3 {
        health.failed(index, FATAL, later);
    }
    assert_eq!(health.second(3, 11, later), Some(3), "no other has answered for long");
}

#[test]
fn rewind_keeps_the_scanner_of_blocks_below() {
    let now = Instant::now();
    let mut health = Health::new([100, 100], Pauses::default());
    for (index, number) in [(0, 37), (0, 43)] {
        health.scanned(index, number);
    }
    // The second endpoint shows that the chain was reorganised above 40, and scans from there.
    health.rewound(40);
    health.scanned(1, 44);
    assert_eq!([38, 40, 41, 44].map(|number| health.scanner(number)), [0, 0, 1, 1].map(Some));
    assert_eq!(health.second(0, 38, now), Some(1), "the first scanned it and cannot confirm it");
    assert_eq!(health.second(0, 41, now), Some(0));
    health.rewound(39);
    assert_eq!((health.scanner(39), health.scanner(40)), (Some(0), None));
}

#[test]
fn only_the_latest_changes_of_the_scanner_are_kept() {
    let mut health = Health::new([100, 100], Pauses::default());
    let changes = SCANS_MAX + 3;
    for number in 0..changes {
        health.scanned(number % 2, number as i64);
    }
    assert_eq!(health.scans.len(), SCANS_MAX);
    let kept = (changes - SCANS_MAX..changes).map(|number| health.scanner(number as i64));
    assert!(kept.eq((changes - SCANS_MAX..changes).map(|number| Some(number % 2))));
}

/// An endpoint that is behind or on a fork is not gone: otherwise one that invents blocks above the others' heads
/// could confirm them alone.
#[test]
fn only_refusals_or_a_stuck_head_are_gone() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut health = Health::new([100; 2], Pauses::default());
    let behind = Fault::Refused(Refusal::Behind, None);
    for second in 0..240 {
        let fault = if second % 3 == 0 { Fault::Forked } else { behind };
        health.head(1, i64::try_from(second / 12).unwrap(), at(second));
        health.failed(1, fault, at(second));
        assert_ne!(health.second(0, 10, at(second)), Some(0), "second {second}");
    }
    // It shows the same head for five minutes.
    for second in 240..600 {
        health.head(1, 19, at(second));
        health.failed(1, Fault::Forked, at(second));
        let gone = second >= 228 + 300;
        assert_eq!(health.second(0, 10, at(second)) == Some(0), gone, "second {second}");
    }
    health.served(1);
    health.head(1, 20, at(600));
    for second in 600..640 {
        health.failed(1, RATE, at(second));
        let gone = second >= 630;
        assert_eq!(health.second(0, 10, at(second)) == Some(0), gone, "second {second}");
    }
}

/// A chain may make no block for hours: the others are asked only from time to time.
#[test]
fn a_frozen_head_is_noticed_once_in_its_time() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut health = Health::new([100; 2], Pauses::default());
    assert!(!health.is_frozen(0, 10, at(0)), "its head is not known yet");
    health.head(0, 10, at(0));
    let frozen = [59, 60, 61, 119, 120].map(|second| health.is_frozen(0, 10, at(second)));
    assert_eq!(frozen, [false, true, false, false, true]);
    assert!(!health.is_frozen(0, 11, at(200)), "it advances");
    health.head(0, 11, at(200));
    assert!(!health.is_frozen(0, 11, at(259)) && health.is_frozen(0, 10, at(260)));
    assert!(health.failed(0, Fault::Frozen, at(260)));
    assert_eq!(health.first(at(260)), (1, Duration::ZERO));
}

/// The endpoint is gone even if its pauses are shorter than the time between two checks, so that it is up at each.
#[test]
fn one_that_refuses_every_check_is_gone() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut health = Health::new([100; 2], Pauses::default());
    let rate = Some(Refusal::Rate);
    for second in [0, 12, 24] {
        assert_eq!(health.second(0, 10, at(second)), Some(1), "second {second}");
        assert!(!health.note_check(1, rate, at(second)));
        health.failed(1, RATE, at(second));
        // Its other requests succeed: the head, and receipts of single transactions.
        health.served(1);
    }
    assert!(!health.note_check(1, Some(Refusal::Size { hint: None }), at(36)));
    assert!(health.note_check(1, Some(Refusal::Transient), at(36)));
    health.failed(1, TRANSIENT, at(36));
    assert_eq!(health.second(0, 10, at(36)), Some(0));
    assert_eq!(health.second(0, 10, at(48)), Some(1), "it is asked again");
    for answered in [None, Some(Refusal::Behind)] {
        assert!(!health.note_check(1, answered, at(48)));
        health.served(1);
        assert!(!health.note_check(1, rate, at(60)));
        health.failed(1, RATE, at(60));
        assert_eq!(health.second(0, 10, at(60)), None, "it may answer again soon");
    }
    assert!(!health.note_check(1, rate, at(1000)), "the refusal before was long ago");
}

#[test]
fn chain_id_is_checked_first_and_after_silence() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut health = Health::new([100], Pauses::default());
    assert!(health.must_check(0, at(0)));
    health.checked(0);
    assert!(!health.must_check(0, at(1000)));
    health.failed(0, RATE, at(0));
    // A second failure does not begin the minute anew.
    health.failed(0, RATE, at(50));
    assert!(!health.must_check(0, at(60)) && health.must_check(0, at(61)));
    assert!(health.served(0) && !health.must_check(0, at(1000)));
}
