//! Lanes by table, and by what must hold after any moves.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: UnixMicros = UnixMicros(10_000_000);
const LATER: UnixMicros = UnixMicros(NOW.0 + LONG_MICROS);

/// Offers an event as old as its number.
fn offer(lanes: &mut Lanes<i64>, lane: &str, job: i64) -> Option<i64> {
    lanes.offer(lane, UnixMicros(job), false, job, NOW).map(|spilled| spilled.job)
}

fn start(lanes: &mut Lanes<i64>) -> Option<(i64, Permit)> {
    lanes.next(NOW)
}

/// All that starts, without an end.
fn start_all(lanes: &mut Lanes<i64>) -> Vec<(i64, Permit)> {
    std::iter::from_fn(|| start(lanes)).collect()
}

fn late(lanes: &mut Lanes<i64>, now: UnixMicros) -> Vec<i64> {
    lanes.overdue(now).into_iter().map(|spilled| spilled.job).collect()
}

/// The same job for each of some lanes.
fn offer_each(lanes: &mut Lanes<i64>, kind: &str, count: i64, job: i64) {
    for host in 0..count {
        offer(lanes, &format!("{kind}-{host}"), job);
    }
}

/// Makes the lane good, with a window of two.
fn prove(lanes: &mut Lanes<i64>, lane: &str) {
    assert_eq!(offer(lanes, lane, 0), None);
    let (_, permit) = start(lanes).unwrap();
    lanes.ended(&permit, Ending::Answered, NOW);
}

#[test]
fn eight_silent_hosts_leave_room() {
    let mut lanes = Lanes::new(256, 128);
    prove(&mut lanes, "good");
    for host in 0..8 {
        for job in 0..100 {
            offer(&mut lanes, &format!("silent-{host}"), job);
        }
    }
    assert_eq!(start_all(&mut lanes).len(), 8, "one each, for nothing is known of them");
    offer(&mut lanes, "good", 7);
    assert_eq!(start(&mut lanes).unwrap().0, 7);
}

#[test]
fn a_thousand_first_contacts_leave_most_requests_to_the_others() {
    let mut lanes = Lanes::new(100, 50);
    (0..80).for_each(|host| prove(&mut lanes, &format!("good-{host}")));
    offer_each(&mut lanes, "new", 1000, 1);
    let first = start_all(&mut lanes);
    assert_eq!(first.len(), 30);
    offer_each(&mut lanes, "good", 80, 2);
    let good = start_all(&mut lanes);
    assert_eq!(good.iter().filter(|(job, _)| *job == 2).count(), 70);
    for (_, permit) in first {
        lanes.ended(&permit, Ending::Failed, NOW);
    }
    let after = start_all(&mut lanes);
    let fresh = after.iter().filter(|(job, _)| *job == 1).count();
    assert_eq!((fresh, after.len()), (20, 30), "ten good ones had waited");
}

#[test]
fn what_fails_has_less_than_what_is_new() {
    let mut lanes = Lanes::new(100, 50);
    for host in 0..60 {
        let host = format!("dead-{host}");
        offer(&mut lanes, &host, 1);
        let (_, permit) = start(&mut lanes).unwrap();
        lanes.ended(&permit, Ending::Failed, NOW);
    }
    offer_each(&mut lanes, "dead", 60, 2);
    assert_eq!(start_all(&mut lanes).len(), 15);
    offer_each(&mut lanes, "new", 60, 3);
    let new = start_all(&mut lanes);
    assert_eq!(new.len(), 15);
    assert!(new.iter().all(|(job, _)| *job == 3));
}

#[test]
fn a_window_grows_while_it_is_used_and_halves_with_each_failure() {
    let mut lanes = Lanes::new(100, 8);
    for job in 0..200 {
        offer(&mut lanes, "a", job);
    }
    let mut sizes = Vec::new();
    let turn = |lanes: &mut Lanes<i64>| {
        let started = start_all(lanes);
        started.iter().for_each(|(_, permit)| lanes.ended(permit, Ending::Answered, NOW));
        started.len()
    };
    for _ in 0..5 {
        sizes.push(turn(&mut lanes));
    }
    assert_eq!(sizes, [1, 2, 4, 8, 8]);
    let started = start_all(&mut lanes);
    lanes.ended(&started[0].1, Ending::Failed, NOW);
    started[1..].iter().for_each(|(_, permit)| lanes.ended(permit, Ending::Answered, NOW));
    let after: Vec<_> = (0..3).map(|_| turn(&mut lanes)).collect();
    assert_eq!(after, [5, 6, 7], "more carefully from now on");
}

#[test]
fn what_takes_long_is_not_good_before_it_has_ended() {
    let mut lanes = Lanes::new(10, 5);
    prove(&mut lanes, "a");
    let health = |lanes: &Lanes<i64>| lanes.lanes["a"].health();
    offer(&mut lanes, "a", 1);
    let (_, slow) = start(&mut lanes).unwrap();
    assert_eq!(health(&lanes), Health::Good);
    assert_eq!(late(&mut lanes, LATER), [0; 0]);
    assert_eq!(health(&lanes), Health::Unproven);
    offer(&mut lanes, "a", 2);
    let (_, quick) = start(&mut lanes).unwrap();
    lanes.ended(&quick, Ending::Answered, NOW);
    assert_eq!(health(&lanes), Health::Unproven, "one still takes long");
    lanes.ended(&slow, Ending::Answered, NOW);
    assert_eq!(health(&lanes), Health::Unproven, "it was slow");
    prove(&mut lanes, "a");
    assert_eq!(health(&lanes), Health::Good);
}

#[test]
fn the_oldest_event_goes_first_and_the_newest_is_given_back() {
    let mut lanes = Lanes::new(10, 5);
    for job in (0..1024).rev() {
        assert_eq!(offer(&mut lanes, "a", 10 + job), None);
    }
    assert_eq!(offer(&mut lanes, "a", 2000), Some(2000));
    assert_eq!(offer(&mut lanes, "a", 5), Some(1033), "it was here before, and is older");
    assert_eq!(start(&mut lanes).unwrap().0, 5);
}

#[test]
fn what_waits_for_a_receiver_that_answers_is_kept() {
    let mut lanes = Lanes::new(10, 1);
    prove(&mut lanes, "a");
    let mut now = NOW;
    for job in 0..100 {
        offer(&mut lanes, "a", job);
    }
    for _ in 0..20 {
        let (_, permit) = lanes.next(now).unwrap();
        now = UnixMicros(now.0 + LONG_MICROS - 1);
        assert_eq!(late(&mut lanes, now), [0; 0]);
        lanes.ended(&permit, Ending::Answered, now);
    }
    assert_eq!(lanes.waiting(), 80);
}

#[test]
fn a_good_lane_wants_what_was_deferred_while_it_has_room() {
    let mut lanes = Lanes::new(10, 5);
    assert!(!lanes.wants("a"), "nobody knows it");
    prove(&mut lanes, "a");
    for job in 0..Health::Good.waiting_max() as i64 / 2 {
        assert!(lanes.wants("a"));
        offer(&mut lanes, "a", job);
    }
    assert!(!lanes.wants("a"));
    let (_, permit) = start(&mut lanes).unwrap();
    assert!(lanes.wants("a"));
    lanes.ended(&permit, Ending::Failed, NOW);
    assert!(!lanes.wants("a"));
}

#[test]
fn one_receiver_is_unreachable_while_others_answer_and_it_never_has() {
    let mut lanes = Lanes::new(10, 5);
    assert!(!lanes.is_unreachable("a", NOW), "nobody answers");
    prove(&mut lanes, "other");
    assert!(lanes.is_unreachable("a", NOW) && !lanes.is_unreachable("other", NOW));
    let after = |micros| UnixMicros(NOW.0 + micros);
    assert!(lanes.is_unreachable("a", after(HOUR_MICROS - 1)));
    assert!(!lanes.is_unreachable("a", after(HOUR_MICROS)), "others may be cut off by now");
    prove(&mut lanes, "a");
    assert!(!lanes.is_unreachable("a", NOW));
}

#[test]
fn what_waited_too_long_is_given_back_unless_its_receiver_is_good() {
    let mut lanes = Lanes::new(2, 2);
    prove(&mut lanes, "good");
    prove(&mut lanes, "busy");
    offer(&mut lanes, "busy", 1);
    offer(&mut lanes, "busy", 2);
    offer(&mut lanes, "busy", 3);
    offer(&mut lanes, "good", 4);
    offer(&mut lanes, "new", 5);
    let running = [start(&mut lanes).unwrap(), start(&mut lanes).unwrap()];
    assert_eq!(running.each_ref().map(|(job, _)| *job), [4, 1], "turn by turn");
    assert_eq!(late(&mut lanes, UnixMicros(LATER.0 - 1)), [0; 0]);
    lanes.ended(&running[1].1, Ending::Answered, NOW);
    offer(&mut lanes, "good", 6);
    let last = start(&mut lanes).unwrap();
    assert_eq!(last.0, 5);
    assert_eq!(late(&mut lanes, LATER), [6], "its own request is slow; of busy none is");
    lanes.ended(&last.1, Ending::Answered, NOW);
    assert_eq!(start(&mut lanes).unwrap().0, 2);
}

#[test]
fn busy_good_lanes_leave_room_for_others() {
    let mut lanes = Lanes::new(3, 2);
    let hosts = ["a", "b", "c"];
    hosts.iter().for_each(|host| prove(&mut lanes, host));
    for host in hosts {
        for job in 0..WAITING_MAX as i64 / 3 + 1 {
            assert_eq!(offer(&mut lanes, host, job), None);
        }
    }
    while lanes.next(UnixMicros(LATER.0 - 1)).is_some() {}
    assert_eq!(lanes.running(), 3, "each may start one more, but nothing is free");
    assert!(!late(&mut lanes, LATER).is_empty());
    assert_eq!(lanes.arrivals.len(), WAITING_MAX / 2 - 1);
}

#[test]
fn one_lost_answer_does_not_make_a_receiver_down() {
    let mut lanes = Lanes::new(10, 5);
    offer(&mut lanes, "a", 1);
    let (_, permit) = start(&mut lanes).unwrap();
    lanes.ended(&permit, Ending::Failed, NOW);
    offer(&mut lanes, "a", 2);
    assert_eq!(lanes.overdue(LATER), [Spilled { job: 2, reason: Reason::Busy }]);
}

#[test]
fn many_slow_lanes_keep_no_new_one_out() {
    let mut lanes = Lanes::new(10, 5);
    for host in 0..5 {
        for job in 0..1000 {
            offer(&mut lanes, &format!("slow-{host}"), job);
        }
    }
    assert_eq!(lanes.doubtful(), WAITING_MAX / 2);
    assert_eq!(offer(&mut lanes, "new", 1), None);
    assert_eq!(offer(&mut lanes, "new", 2), Some(2), "that is as much as it may have");
}

#[test]
fn a_clock_that_went_back_holds_nothing() {
    let mut lanes = Lanes::new(10, 5);
    offer(&mut lanes, "a", 1);
    offer(&mut lanes, "a", 2);
    let (_, _permit) = start(&mut lanes).unwrap();
    assert_eq!(late(&mut lanes, UnixMicros(NOW.0 - 3_600_000_000)), [2]);
    assert_eq!(lanes.lanes["a"].slow, 1);
}

/// A lane with an open breaker, and when it lets a probe through.
fn opened() -> (Lanes<i64>, UnixMicros) {
    let mut lanes = Lanes::new(100, 50);
    for job in 0..5 {
        assert_eq!(offer(&mut lanes, "a", job), None);
        let (_, permit) = start(&mut lanes).unwrap();
        lanes.ended(&permit, Ending::Failed, NOW);
    }
    (lanes, UnixMicros(NOW.0 + 5_000_000))
}

#[test]
fn one_probe_goes_to_a_receiver_that_is_down() {
    let (mut lanes, then) = opened();
    assert_eq!((lanes.breakers_open(), lanes.waiting(), lanes.oldest()), (1, 0, None));
    let mut offer = |job, now| lanes.offer("a", UnixMicros(job), false, job, now);
    let spilled = |job| Some(Spilled { job, reason: Reason::Down });
    assert_eq!(offer(10, NOW), spilled(10));
    assert_eq!(offer(11, then), None);
    assert_eq!(offer(12, then), spilled(12));
    let (job, probe) = lanes.next(then).unwrap();
    assert_eq!(job, 11);
    assert_eq!(lanes.offer("a", UnixMicros(13), false, 13, then), spilled(13));
    lanes.ended(&probe, Ending::Answered, then);
    assert_eq!(lanes.breakers_open(), 0);
    assert_eq!(lanes.offer("a", UnixMicros(14), false, 14, then), None);
    assert_eq!(lanes.next(then).unwrap().0, 14);
}

#[test]
fn what_waits_when_a_receiver_goes_down_does_not_start() {
    let mut lanes = Lanes::new(100, 50);
    for job in 0..9 {
        offer(&mut lanes, "a", job);
    }
    for _ in 0..5 {
        let (_, permit) = start(&mut lanes).unwrap();
        lanes.ended(&permit, Ending::Failed, NOW);
    }
    assert_eq!(start_all(&mut lanes), []);
    assert_eq!(late(&mut lanes, LATER), [5, 6, 7, 8]);
}

#[test]
fn a_manual_job_is_never_given_back_but_of_very_many() {
    let (mut lanes, _) = opened();
    let mut offer = |job| lanes.offer("a", UnixMicros(job), true, job, NOW);
    for job in 0..16 {
        assert_eq!(offer(job), None);
    }
    assert_eq!(offer(16), Some(Spilled { job: 16, reason: Reason::Down }));
    assert_eq!(late(&mut lanes, LATER), [0; 0]);
    assert_eq!(start_all(&mut lanes).len(), 1 + MANUAL_RUNNING_MAX);
}

#[test]
fn manual_jobs_for_very_many_lanes_are_like_any() {
    let mut lanes = Lanes::new(10, 5);
    offer_each(&mut lanes, "new", WAITING_MAX as i64 / 4, 1);
    let offered = lanes.offer("manual", UnixMicros(2), true, 2, NOW);
    assert_eq!(offered, None);
    assert!(late(&mut lanes, LATER).contains(&2));
}

#[test]
fn unwanted_jobs_are_forgotten() {
    let mut lanes = Lanes::new(1, 1);
    for job in 1..4 {
        offer(&mut lanes, "a", job);
    }
    lanes.retain_waiting(|job| *job != 1);
    assert_eq!(start_all(&mut lanes).iter().map(|(job, _)| *job).collect::<Vec<_>>(), [2]);
    lanes.retain_waiting(|_| false);
    assert!(lanes.has_room() && lanes.arrivals.is_empty());
    assert_eq!(lanes.running(), 1);
}

#[test]
fn lanes_used_longest_ago_are_forgotten() {
    let mut lanes = Lanes::new(10, 5);
    for job in 0..5 {
        offer(&mut lanes, "down", job);
        let (_, permit) = start(&mut lanes).unwrap();
        lanes.ended(&permit, Ending::Failed, NOW);
    }
    (1..LANES_MAX).for_each(|host| prove(&mut lanes, &host.to_string()));
    assert_eq!(lanes.breakers_open(), 1);
    prove(&mut lanes, "one more");
    assert!(lanes.lanes.len() < LANES_MAX);
    let last = (LANES_MAX - 1).to_string();
    assert_eq!(lanes.lanes[last.as_str()].health(), Health::Good);
    assert!(!lanes.lanes.contains_key("1"));
    assert_eq!(lanes.breakers_open(), 0, "it was forgotten");
}

proptest! {
    /// No limit is passed by a start, no job is lost or given out twice, each lane starts its oldest, and a
    /// good lane waits only while most requests are those of good ones.
    #[test]
    fn limits_hold_and_jobs_are_conserved(
        moves in vec((0_u8..8, 0_usize..6, 0_i64..50), 1..400)
    ) {
        const HOSTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let mut lanes = Lanes::new(10, 4);
        let mut running: Vec<((usize, i64), Permit)> = Vec::new();
        let (mut given, mut gone) = (0_usize, 0_usize);
        let mut now = NOW;
        for (kind, host, number) in moves {
            match kind {
                0..4 => {
                    given += 1;
                    let spilled =
                        lanes.offer(HOSTS[host], UnixMicros(number), number == 49, (host, number), now);
                    gone += usize::from(spilled.is_some());
                }
                4 | 5 if !running.is_empty() => {
                    let at = usize::try_from(number).unwrap() % running.len();
                    let (_, permit) = running.swap_remove(at);
                    let failed = host % 2 == 0;
                    let ending = if failed { Ending::Failed } else { Ending::Answered };
                    lanes.ended(&permit, ending, now);
                    gone += 1;
                }
                6 => now = UnixMicros(now.0 + 20_000 * number),
                _ => gone += lanes.overdue(now).len(),
            }
            if kind % 2 == 1 {
                let before = lanes.loads;
                if let Some(((of, age), permit)) = lanes.next(now) {
                    let lane = &lanes.lanes[HOSTS[of]];
                    let [good, unproven, failing] = lanes.loads.map(|load| load.running);
                    prop_assert!(good + unproven + failing <= 10 && lane.running <= lane.window + MANUAL_RUNNING_MAX);
                    prop_assert!(lane.health() == Health::Good || unproven + failing <= 3);
                    prop_assert!(lane.health() != Health::Failing || failing <= 1);
                    let is_later = |place: &Place| place.emitted_at.0 >= age || age == 49;
                    prop_assert!(lane.waiting.keys().all(is_later));
                    running.push(((of, age), permit));
                } else {
                    prop_assert!(lanes.ready[0].is_empty() || before.map(|l| l.running).iter().sum::<usize>() == 10);
                }
            }
            prop_assert_eq!(given, gone + running.len() + lanes.arrivals.len());
            let waiting: usize = lanes.lanes.values().map(|lane| lane.waiting.len()).sum();
            prop_assert_eq!(waiting, lanes.arrivals.len());
            prop_assert_eq!(running.len(), lanes.running());
            let all = || lanes.lanes.values();
            let open = all().filter(|lane| lane.breaker.is_open()).count();
            prop_assert_eq!(open, lanes.breakers_open());
            let places = all().flat_map(|lane| lane.waiting.keys());
            prop_assert_eq!(places.map(|place| place.emitted_at).min(), lanes.oldest());
        }
    }
}
