//! Queues by table, and by what must hold after any moves.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: UnixMicros = UnixMicros(10_000_000);
const LATER: UnixMicros = UnixMicros(NOW.0 + LONG_MICROS);

/// Offers an event that is as old as its number says.
fn offer(queues: &mut Queues<i64>, queue: &str, job: i64) -> Option<i64> {
    queues.offer(queue, UnixMicros(job), false, job, NOW).map(|spilled| spilled.job)
}

fn start(queues: &mut Queues<i64>) -> Option<(i64, Permit)> {
    queues.next(NOW)
}

/// Starts all events that may start, and ends none.
fn start_all(queues: &mut Queues<i64>) -> Vec<(i64, Permit)> {
    std::iter::from_fn(|| start(queues)).collect()
}

fn late(queues: &mut Queues<i64>, now: UnixMicros) -> Vec<i64> {
    queues.overdue(now).into_iter().map(|spilled| spilled.job).collect()
}

/// Offers the same job to each of `count` queues.
fn offer_each(queues: &mut Queues<i64>, kind: &str, count: i64, job: i64) {
    for host in 0..count {
        offer(queues, &format!("{kind}-{host}"), job);
    }
}

/// Makes the queue good, with a window of two.
fn prove(queues: &mut Queues<i64>, queue: &str) {
    assert_eq!(offer(queues, queue, 0), None);
    let (_, permit) = start(queues).unwrap();
    queues.ended(&permit, Ending::Answered, NOW);
}

#[test]
fn eight_silent_hosts_leave_room() {
    let mut queues = Queues::new(256, 128);
    prove(&mut queues, "good");
    for host in 0..8 {
        for job in 0..100 {
            offer(&mut queues, &format!("silent-{host}"), job);
        }
    }
    assert_eq!(start_all(&mut queues).len(), 8, "one each, for nothing is known of them");
    offer(&mut queues, "good", 7);
    assert_eq!(start(&mut queues).unwrap().0, 7);
}

#[test]
fn first_contacts_leave_most_requests_to_others() {
    let mut queues = Queues::new(100, 50);
    (0..80).for_each(|host| prove(&mut queues, &format!("good-{host}")));
    offer_each(&mut queues, "new", 1000, 1);
    let first = start_all(&mut queues);
    assert_eq!(first.len(), 30);
    offer_each(&mut queues, "good", 80, 2);
    let good = start_all(&mut queues);
    assert_eq!(good.iter().filter(|(job, _)| *job == 2).count(), 70);
    for (_, permit) in first {
        queues.ended(&permit, Ending::Failed, NOW);
    }
    let after = start_all(&mut queues);
    let fresh = after.iter().filter(|(job, _)| *job == 1).count();
    assert_eq!((fresh, after.len()), (20, 30), "ten good ones had waited");
}

#[test]
fn what_fails_has_less_than_what_is_new() {
    let mut queues = Queues::new(100, 50);
    for host in 0..60 {
        let host = format!("dead-{host}");
        offer(&mut queues, &host, 1);
        let (_, permit) = start(&mut queues).unwrap();
        queues.ended(&permit, Ending::Failed, NOW);
    }
    offer_each(&mut queues, "dead", 60, 2);
    assert_eq!(start_all(&mut queues).len(), 15);
    offer_each(&mut queues, "new", 60, 3);
    let new = start_all(&mut queues);
    assert_eq!(new.len(), 15);
    assert!(new.iter().all(|(job, _)| *job == 3));
}

#[test]
fn window_grows_with_use_and_halves_by_failure() {
    let mut queues = Queues::new(100, 8);
    for job in 0..200 {
        offer(&mut queues, "a", job);
    }
    let mut sizes = Vec::new();
    let turn = |queues: &mut Queues<i64>| {
        let started = start_all(queues);
        started.iter().for_each(|(_, permit)| queues.ended(permit, Ending::Answered, NOW));
        started.len()
    };
    for _ in 0..5 {
        sizes.push(turn(&mut queues));
    }
    assert_eq!(sizes, [1, 2, 4, 8, 8]);
    let started = start_all(&mut queues);
    queues.ended(&started[0].1, Ending::Failed, NOW);
    started[1..].iter().for_each(|(_, permit)| queues.ended(permit, Ending::Answered, NOW));
    let after: Vec<_> = (0..3).map(|_| turn(&mut queues)).collect();
    assert_eq!(after, [5, 6, 7], "more carefully from now on");
}

#[test]
fn what_takes_long_is_not_good_before_it_has_ended() {
    let mut queues = Queues::new(10, 5);
    prove(&mut queues, "a");
    let health = |queues: &Queues<i64>| queues.queues["a"].health();
    offer(&mut queues, "a", 1);
    let (_, slow) = start(&mut queues).unwrap();
    assert_eq!(health(&queues), Health::Good);
    assert_eq!(late(&mut queues, LATER), [0; 0]);
    assert_eq!(health(&queues), Health::Unproven);
    offer(&mut queues, "a", 2);
    let (_, quick) = start(&mut queues).unwrap();
    queues.ended(&quick, Ending::Answered, NOW);
    assert_eq!(health(&queues), Health::Unproven, "one still takes long");
    queues.ended(&slow, Ending::Answered, NOW);
    assert_eq!(health(&queues), Health::Unproven, "it was slow");
    prove(&mut queues, "a");
    assert_eq!(health(&queues), Health::Good);
}

#[test]
fn oldest_event_first_newest_given_back() {
    let mut queues = Queues::new(10, 5);
    for job in (0..1024).rev() {
        assert_eq!(offer(&mut queues, "a", 10 + job), None);
    }
    assert_eq!(offer(&mut queues, "a", 2000), Some(2000));
    assert_eq!(offer(&mut queues, "a", 5), Some(1033), "it was here before, and is older");
    assert_eq!(start(&mut queues).unwrap().0, 5);
}

#[test]
fn what_waits_for_a_receiver_that_answers_is_kept() {
    let mut queues = Queues::new(10, 1);
    prove(&mut queues, "a");
    let mut now = NOW;
    for job in 0..100 {
        offer(&mut queues, "a", job);
    }
    for _ in 0..20 {
        let (_, permit) = queues.next(now).unwrap();
        now = UnixMicros(now.0 + LONG_MICROS - 1);
        assert_eq!(late(&mut queues, now), [0; 0]);
        queues.ended(&permit, Ending::Answered, now);
    }
    assert_eq!(queues.waiting(), 80);
}

#[test]
fn good_queue_takes_deferred_while_it_has_room() {
    let mut queues = Queues::new(10, 5);
    assert!(!queues.wants("a"), "nobody knows it");
    prove(&mut queues, "a");
    for job in 0..Health::Good.waiting_max() as i64 / 2 {
        assert!(queues.wants("a"));
        offer(&mut queues, "a", job);
    }
    assert!(!queues.wants("a"));
    let (_, permit) = start(&mut queues).unwrap();
    assert!(queues.wants("a"));
    queues.ended(&permit, Ending::Failed, NOW);
    assert!(!queues.wants("a"));
}

#[test]
fn unreachable_has_never_answered_while_others_do() {
    let mut queues = Queues::new(10, 5);
    assert!(!queues.is_unreachable("a", NOW), "nobody answers");
    prove(&mut queues, "other");
    assert!(queues.is_unreachable("a", NOW) && !queues.is_unreachable("other", NOW));
    let after = |micros| UnixMicros(NOW.0 + micros);
    assert!(queues.is_unreachable("a", after(HOUR_MICROS - 1)));
    assert!(!queues.is_unreachable("a", after(HOUR_MICROS)), "others may be cut off by now");
    prove(&mut queues, "a");
    assert!(!queues.is_unreachable("a", NOW));
}

#[test]
fn late_jobs_are_given_back_unless_receiver_is_good() {
    let mut queues = Queues::new(2, 2);
    prove(&mut queues, "good");
    prove(&mut queues, "busy");
    offer(&mut queues, "busy", 1);
    offer(&mut queues, "busy", 2);
    offer(&mut queues, "busy", 3);
    offer(&mut queues, "good", 4);
    offer(&mut queues, "new", 5);
    let running = [start(&mut queues).unwrap(), start(&mut queues).unwrap()];
    assert_eq!(running.each_ref().map(|(job, _)| *job), [4, 1], "turn by turn");
    assert_eq!(late(&mut queues, UnixMicros(LATER.0 - 1)), [0; 0]);
    queues.ended(&running[1].1, Ending::Answered, NOW);
    offer(&mut queues, "good", 6);
    let last = start(&mut queues).unwrap();
    assert_eq!(last.0, 5);
    assert_eq!(late(&mut queues, LATER), [6], "its own request is slow; of busy none is");
    queues.ended(&last.1, Ending::Answered, NOW);
    assert_eq!(start(&mut queues).unwrap().0, 2);
}

#[test]
fn busy_good_queues_leave_room_for_others() {
    let mut queues = Queues::new(3, 2);
    let hosts = ["a", "b", "c"];
    hosts.iter().for_each(|host| prove(&mut queues, host));
    for host in hosts {
        for job in 0..WAITING_MAX as i64 / 3 + 1 {
            assert_eq!(offer(&mut queues, host, job), None);
        }
    }
    while queues.next(UnixMicros(LATER.0 - 1)).is_some() {}
    assert_eq!(queues.running(), 3, "each may start one more, but nothing is free");
    assert!(!late(&mut queues, LATER).is_empty());
    assert_eq!(queues.arrivals.len(), WAITING_MAX / 2 - 1);
}

#[test]
fn one_lost_answer_does_not_make_a_receiver_down() {
    let mut queues = Queues::new(10, 5);
    offer(&mut queues, "a", 1);
    let (_, permit) = start(&mut queues).unwrap();
    queues.ended(&permit, Ending::Failed, NOW);
    offer(&mut queues, "a", 2);
    assert_eq!(queues.overdue(LATER), [Spilled { job: 2, reason: Reason::Busy }]);
}

#[test]
fn many_slow_queues_keep_no_new_one_out() {
    let mut queues = Queues::new(10, 5);
    for host in 0..5 {
        for job in 0..1000 {
            offer(&mut queues, &format!("slow-{host}"), job);
        }
    }
    assert_eq!(queues.doubtful(), WAITING_MAX / 2);
    assert_eq!(offer(&mut queues, "new", 1), None);
    assert_eq!(offer(&mut queues, "new", 2), Some(2), "that is as much as it may have");
}

#[test]
fn a_clock_that_went_back_holds_nothing() {
    let mut queues = Queues::new(10, 5);
    offer(&mut queues, "a", 1);
    offer(&mut queues, "a", 2);
    let (_, _permit) = start(&mut queues).unwrap();
    assert_eq!(late(&mut queues, UnixMicros(NOW.0 - 3_600_000_000)), [2]);
    assert_eq!(queues.queues["a"].slow, 1);
}

/// A queue with an open breaker, and when it lets a probe through.
fn opened() -> (Queues<i64>, UnixMicros) {
    let mut queues = Queues::new(100, 50);
    for job in 0..5 {
        assert_eq!(offer(&mut queues, "a", job), None);
        let (_, permit) = start(&mut queues).unwrap();
        queues.ended(&permit, Ending::Failed, NOW);
    }
    (queues, UnixMicros(NOW.0 + 5_000_000))
}

#[test]
fn one_probe_goes_to_a_receiver_that_is_down() {
    let (mut queues, then) = opened();
    assert_eq!((queues.breakers_open(), queues.waiting(), queues.oldest()), (1, 0, None));
    let mut offer = |job, now| queues.offer("a", UnixMicros(job), false, job, now);
    let spilled = |job| Some(Spilled { job, reason: Reason::Down });
    assert_eq!(offer(10, NOW), spilled(10));
    assert_eq!(offer(11, then), None);
    assert_eq!(offer(12, then), spilled(12));
    let (job, probe) = queues.next(then).unwrap();
    assert_eq!(job, 11);
    assert_eq!(queues.offer("a", UnixMicros(13), false, 13, then), spilled(13));
    queues.ended(&probe, Ending::Answered, then);
    assert_eq!(queues.breakers_open(), 0);
    assert_eq!(queues.offer("a", UnixMicros(14), false, 14, then), None);
    assert_eq!(queues.next(then).unwrap().0, 14);
}

#[test]
fn nothing_starts_after_its_receiver_went_down() {
    let mut queues = Queues::new(100, 50);
    for job in 0..9 {
        offer(&mut queues, "a", job);
    }
    for _ in 0..5 {
        let (_, permit) = start(&mut queues).unwrap();
        queues.ended(&permit, Ending::Failed, NOW);
    }
    assert_eq!(start_all(&mut queues), []);
    assert_eq!(late(&mut queues, LATER), [5, 6, 7, 8]);
}

#[test]
fn a_manual_job_is_never_given_back_but_of_very_many() {
    let (mut queues, _) = opened();
    let mut offer = |job| queues.offer("a", UnixMicros(job), true, job, NOW);
    for job in 0..16 {
        assert_eq!(offer(job), None);
    }
    assert_eq!(offer(16), Some(Spilled { job: 16, reason: Reason::Down }));
    assert_eq!(late(&mut queues, LATER), [0; 0]);
    assert_eq!(start_all(&mut queues).len(), 1 + MANUAL_RUNNING_MAX);
}

#[test]
fn manual_jobs_for_very_many_queues_are_like_any() {
    let mut queues = Queues::new(10, 5);
    offer_each(&mut queues, "new", WAITING_MAX as i64 / 4, 1);
    let offered = queues.offer("manual", UnixMicros(2), true, 2, NOW);
    assert_eq!(offered, None);
    assert!(late(&mut queues, LATER).contains(&2));
}

#[test]
fn unwanted_jobs_are_forgotten() {
    let mut queues = Queues::new(1, 1);
    for job in 1..4 {
        offer(&mut queues, "a", job);
    }
    queues.retain_waiting(|job| *job != 1);
    assert_eq!(start_all(&mut queues).iter().map(|(job, _)| *job).collect::<Vec<_>>(), [2]);
    queues.retain_waiting(|_| false);
    assert!(queues.has_room() && queues.arrivals.is_empty());
    assert_eq!(queues.running(), 1);
}

#[test]
fn queues_used_longest_ago_are_forgotten() {
    let mut queues = Queues::new(10, 5);
    for job in 0..5 {
        offer(&mut queues, "down", job);
        let (_, permit) = start(&mut queues).unwrap();
        queues.ended(&permit, Ending::Failed, NOW);
    }
    (1..QUEUES_MAX).for_each(|host| prove(&mut queues, &host.to_string()));
    assert_eq!(queues.breakers_open(), 1);
    prove(&mut queues, "one more");
    assert!(queues.queues.len() < QUEUES_MAX);
    let last = (QUEUES_MAX - 1).to_string();
    assert_eq!(queues.queues[last.as_str()].health(), Health::Good);
    assert!(!queues.queues.contains_key("1"));
    assert_eq!(queues.breakers_open(), 0, "it was forgotten");
}

proptest! {
    /// No limit is passed by a start, no job is lost or given out twice, each queue starts its oldest, and a
    /// good queue waits only while most requests are those of good ones.
    #[test]
    fn limits_hold_and_jobs_are_conserved(
        moves in vec((0_u8..8, 0_usize..6, 0_i64..50), 1..400)
    ) {
        const HOSTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let mut queues = Queues::new(10, 4);
        let mut running: Vec<((usize, i64), Permit)> = Vec::new();
        let (mut given, mut gone) = (0_usize, 0_usize);
        let mut now = NOW;
        for (kind, host, number) in moves {
            match kind {
                0..4 => {
                    given += 1;
                    let spilled =
                        queues.offer(HOSTS[host], UnixMicros(number), number == 49, (host, number), now);
                    gone += usize::from(spilled.is_some());
                }
                4 | 5 if !running.is_empty() => {
                    let at = usize::try_from(number).unwrap() % running.len();
                    let (_, permit) = running.swap_remove(at);
                    let failed = host % 2 == 0;
                    let ending = if failed { Ending::Failed } else { Ending::Answered };
                    queues.ended(&permit, ending, now);
                    gone += 1;
                }
                6 => now = UnixMicros(now.0 + 20_000 * number),
                _ => gone += queues.overdue(now).len(),
            }
            if kind % 2 == 1 {
                let before = queues.loads;
                if let Some(((of, age), permit)) = queues.next(now) {
                    let queue = &queues.queues[HOSTS[of]];
                    let [good, unproven, failing] = queues.loads.map(|load| load.running);
                    prop_assert!(good + unproven + failing <= 10 && queue.running <= queue.window + MANUAL_RUNNING_MAX);
                    prop_assert!(queue.health() == Health::Good || unproven + failing <= 3);
                    prop_assert!(queue.health() != Health::Failing || failing <= 1);
                    let is_later = |priority: &Priority| priority.emitted_at.0 >= age || age == 49;
                    prop_assert!(queue.waiting.keys().all(is_later));
                    running.push(((of, age), permit));
                } else {
                    prop_assert!(queues.ready[0].is_empty() || before.map(|l| l.running).iter().sum::<usize>() == 10);
                }
            }
            prop_assert_eq!(given, gone + running.len() + queues.arrivals.len());
            let waiting: usize = queues.queues.values().map(|queue| queue.waiting.len()).sum();
            prop_assert_eq!(waiting, queues.arrivals.len());
            prop_assert_eq!(running.len(), queues.running());
            let all = || queues.queues.values();
            let open = all().filter(|queue| queue.breaker.is_open()).count();
            prop_assert_eq!(open, queues.breakers_open());
            let places = all().flat_map(|queue| queue.waiting.keys());
            prop_assert_eq!(places.map(|priority| priority.emitted_at).min(), queues.oldest());
        }
    }
}
