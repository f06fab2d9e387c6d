//! Hosts: examples, and invariants under random moves.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: UnixMicros = UnixMicros(10_000_000);
const LATER: UnixMicros = UnixMicros(NOW.0 + LONG_MICROS);
const ANSWERED: Option<AttemptOutcome> = Some(AttemptOutcome::Status);
const FAILED: Option<AttemptOutcome> = Some(AttemptOutcome::Timeout);

/// Offers a job whose number is also the time of its event.
fn offer(hosts: &mut Hosts<i64>, host: &str, job: i64) -> Option<i64> {
    hosts.offer(host, UnixMicros(job), false, job, NOW).map(|(job, _)| job)
}

fn start(hosts: &mut Hosts<i64>) -> Option<(i64, Permit)> {
    hosts.next(NOW)
}

/// Starts all events that may start, and ends none.
fn start_all(hosts: &mut Hosts<i64>) -> Vec<(i64, Permit)> {
    std::iter::from_fn(|| start(hosts)).collect()
}

fn end(hosts: &mut Hosts<i64>, permit: Permit, outcome: Option<AttemptOutcome>) {
    assert_eq!(hosts.ended(permit, outcome, NOW), []);
}

fn late(hosts: &mut Hosts<i64>, now: UnixMicros) -> Vec<i64> {
    hosts.overdue(now).into_iter().map(|(job, _)| job).collect()
}

/// Offers the same job to each of `count` hosts.
fn offer_each(hosts: &mut Hosts<i64>, kind: &str, count: i64, job: i64) {
    for host in 0..count {
        assert_eq!(offer(hosts, &format!("{kind}-{host}"), job), None);
    }
}

/// Makes the host quick, with a limit of two.
fn prove(hosts: &mut Hosts<i64>, host: &str) {
    assert_eq!(offer(hosts, host, 0), None);
    let (_, permit) = start(hosts).unwrap();
    end(hosts, permit, ANSWERED);
}

#[test]
fn hosts_that_are_not_quick_share_half() {
    let mut hosts = Hosts::new(100, 50);
    (0..80).for_each(|host| prove(&mut hosts, &format!("good-{host}")));
    offer_each(&mut hosts, "silent", 1000, 1);
    for _ in 0..2 {
        let silent = start_all(&mut hosts);
        assert_eq!(silent.len(), 50);
        silent.into_iter().for_each(|(_, permit)| end(&mut hosts, permit, FAILED));
    }
    assert_eq!(start_all(&mut hosts).len(), 50);
    offer_each(&mut hosts, "good", 80, 2);
    let good = start_all(&mut hosts);
    assert_eq!(good.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [2; 50]);
}

#[test]
fn the_host_that_started_longest_ago_is_next() {
    let mut hosts = Hosts::new(2, 2);
    for host in ["a", "b"] {
        prove(&mut hosts, host);
    }
    for (host, job) in [("b", 3), ("b", 4), ("a", 1), ("a", 2)] {
        offer(&mut hosts, host, job);
    }
    assert_eq!(start_all(&mut hosts).iter().map(|(job, _)| *job).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn limit_grows_with_use_and_halves_by_failure() {
    let mut hosts = Hosts::new(100, 8);
    for job in 0..200 {
        offer(&mut hosts, "a", job);
    }
    let turn = |hosts: &mut Hosts<i64>| {
        let started = start_all(hosts);
        let count = started.len();
        started.into_iter().for_each(|(_, permit)| end(hosts, permit, ANSWERED));
        count
    };
    let sizes: Vec<_> = (0..5).map(|_| turn(&mut hosts)).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 8]);
    for (_, permit) in start_all(&mut hosts).into_iter().take(2) {
        end(&mut hosts, permit, FAILED);
    }
    assert_eq!(hosts.hosts["a"].limit, 2);
    prove(&mut hosts, "idle");
    prove(&mut hosts, "idle");
    assert_eq!(hosts.hosts["idle"].limit, 2, "no more than it uses");
}

#[test]
fn a_host_is_quick_after_a_quick_answer() {
    let mut hosts = Hosts::new(10, 5);
    let mut after = |ending: UnixMicros, outcome| {
        offer(&mut hosts, "a", 1);
        let (_, permit) = start(&mut hosts).unwrap();
        hosts.ended(permit, outcome, ending);
        hosts.hosts["a"].is_quick
    };
    assert!(!after(NOW, FAILED));
    assert!(after(UnixMicros(LATER.0 - 1), ANSWERED));
    assert!(after(LATER, None), "not sent");
    assert!(!after(LATER, ANSWERED));
    assert!(after(NOW, ANSWERED) && !after(NOW, FAILED));
}

#[test]
fn oldest_event_first_newest_given_back() {
    let mut hosts = Hosts::new(10, 5);
    let most = i64::try_from(WAITING_MAX / 2).unwrap();
    for job in (0..most).rev() {
        assert_eq!(offer(&mut hosts, "a", 10 + job), None);
    }
    assert_eq!(offer(&mut hosts, "a", 5000), Some(5000));
    assert_eq!(offer(&mut hosts, "a", 5), Some(9 + most), "it was here before, and is older");
    assert_eq!(start(&mut hosts).unwrap().0, 5);
}

#[test]
fn busy_hosts_leave_room_for_another() {
    let mut hosts = Hosts::new(1, 1);
    for host in ["a", "b", "c"] {
        while offer(&mut hosts, host, 1).is_none() {}
    }
    assert!(hosts.waiting() > WAITING_MAX / 4 * 3 && hosts.has_room());
    for job in 0..500 {
        assert_eq!(offer(&mut hosts, "d", job), None);
    }
    let before = hosts.waiting();
    offer_each(&mut hosts, "e", i64::try_from(WAITING_MAX - before).unwrap(), 1);
    assert!(!hosts.has_room());
    assert_eq!(offer(&mut hosts, "f", 2), Some(2));
}

#[test]
fn quick_host_takes_deferred_while_it_has_room() {
    let mut hosts = Hosts::new(10, 5);
    assert!(!hosts.wants("a"), "nobody knows it");
    prove(&mut hosts, "a");
    let mut waiting = 0;
    while hosts.wants("a") {
        offer(&mut hosts, "a", waiting);
        waiting += 1;
    }
    assert!((2000..3000).contains(&waiting), "{waiting}");
    let (_, permit) = start(&mut hosts).unwrap();
    assert!(hosts.wants("a"));
    end(&mut hosts, permit, FAILED);
    assert!(!hosts.wants("a"));
}

#[test]
fn unreachable_has_never_answered_while_others_do() {
    let mut hosts = Hosts::new(10, 5);
    assert!(!hosts.is_unreachable("a", NOW), "nobody answers");
    prove(&mut hosts, "other");
    assert!(hosts.is_unreachable("a", NOW) && !hosts.is_unreachable("other", NOW));
    let after = |micros| UnixMicros(NOW.0 + micros);
    assert!(hosts.is_unreachable("a", after(HOUR_MICROS - 1)));
    assert!(!hosts.is_unreachable("a", after(HOUR_MICROS)), "others may be cut off by now");
    prove(&mut hosts, "a");
    assert!(!hosts.is_unreachable("a", NOW));
}

#[test]
fn late_jobs_are_given_back_unless_host_is_quick() {
    let mut hosts = Hosts::new(2, 2);
    prove(&mut hosts, "quick");
    for (host, job) in [("quick", 1), ("quick", 2), ("quick", 3), ("new", 4), ("new", 5)] {
        offer(&mut hosts, host, job);
    }
    assert_eq!(start_all(&mut hosts).iter().map(|(job, _)| *job).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(late(&mut hosts, UnixMicros(LATER.0 - SEARCHED_EVERY_MICROS)), [0; 0]);
    assert_eq!(hosts.overdue(LATER), [(5, Reason::Busy)]);
    assert_eq!(hosts.waiting(), 2);
}

#[test]
fn a_clock_that_went_back_holds_nothing() {
    let mut hosts = Hosts::new(10, 5);
    offer(&mut hosts, "a", 1);
    assert_eq!(late(&mut hosts, NOW), [0; 0]);
    assert_eq!(late(&mut hosts, UnixMicros(NOW.0 - HOUR_MICROS)), [1]);
}

/// A host with an open breaker, and the time of its probe.
fn opened() -> (Hosts<i64>, UnixMicros) {
    let mut hosts = Hosts::new(100, 50);
    for job in 0..5 {
        assert_eq!(offer(&mut hosts, "a", job), None);
        let (_, permit) = start(&mut hosts).unwrap();
        end(&mut hosts, permit, FAILED);
    }
    (hosts, UnixMicros(NOW.0 + 5_000_000))
}

#[test]
fn one_probe_goes_to_a_host_that_is_down() {
    let (mut hosts, then) = opened();
    assert_eq!((hosts.breakers_open(), hosts.waiting(), hosts.oldest()), (1, 0, None));
    let mut offer = |job, now| hosts.offer("a", UnixMicros(job), false, job, now);
    let down = |job| Some((job, Reason::Down));
    assert_eq!(offer(10, NOW), down(10));
    assert_eq!(offer(11, then), None);
    assert_eq!(offer(12, then), down(12));
    assert_eq!(hosts.oldest(), Some(UnixMicros(11)));
    let (job, probe) = hosts.next(then).unwrap();
    assert_eq!(job, 11);
    assert_eq!(hosts.offer("a", UnixMicros(13), false, 13, then), down(13));
    assert_eq!(hosts.ended(probe, ANSWERED, then), []);
    assert_eq!(hosts.breakers_open(), 0);
    assert_eq!(hosts.offer("a", UnixMicros(14), false, 14, then), None);
    assert_eq!(hosts.next(then).unwrap().0, 14);
}

#[test]
fn what_waits_is_given_back_when_its_host_goes_down() {
    let mut hosts = Hosts::new(100, 50);
    for job in 0..9 {
        offer(&mut hosts, "a", job);
    }
    for _ in 0..4 {
        let (_, permit) = start(&mut hosts).unwrap();
        end(&mut hosts, permit, FAILED);
    }
    let (_, permit) = start(&mut hosts).unwrap();
    let given_back = hosts.ended(permit, FAILED, NOW);
    assert_eq!(given_back, [5, 6, 7, 8].map(|job| (job, Reason::Down)));
    assert_eq!((hosts.waiting(), start(&mut hosts)), (0, None));
}

#[test]
fn manual_jobs_go_first_and_pass_an_open_breaker() {
    let (mut hosts, _) = opened();
    let mut offer = |host, job, is_manual| hosts.offer(host, UnixMicros(job), is_manual, job, NOW);
    assert_eq!(offer("a", 10, true), None);
    assert_eq!(offer("a", 11, true), Some((11, Reason::Down)), "one at a time");
    for (job, is_manual) in [(12, false), (13, true)] {
        assert_eq!(offer("b", job, is_manual), None);
    }
    assert_eq!(start_all(&mut hosts).iter().map(|(job, _)| *job).collect::<Vec<_>>(), [10, 13]);
}

/// As after an outage, when an operator sends a day's events again.
#[test]
fn many_manual_jobs_wait_by_age_like_all_others() {
    let mut hosts = Hosts::new(1000, 500);
    offer(&mut hosts, "a", 50);
    for job in 100..140 {
        assert_eq!(hosts.offer("a", UnixMicros(job), true, job, NOW), None);
    }
    let mut jobs = Vec::new();
    while let Some((job, permit)) = start(&mut hosts) {
        end(&mut hosts, permit, ANSWERED);
        jobs.push(job);
    }
    let most = i64::try_from(MANUAL_MAX).unwrap();
    let (first, others) = (100..100 + most, 100 + most..140);
    assert_eq!(jobs, first.chain([50]).chain(others).collect::<Vec<_>>());
}

#[test]
fn one_slow_answer_gives_nothing_back() {
    let mut hosts = Hosts::new(2, 2);
    prove(&mut hosts, "a");
    for job in 1..=3 {
        assert_eq!(offer(&mut hosts, "a", job), None);
    }
    let (_, slow) = start(&mut hosts).unwrap();
    let (_, quick) = start(&mut hosts).unwrap();
    let just_before = UnixMicros(LATER.0 - 1);
    hosts.ended(quick, ANSWERED, just_before);
    hosts.ended(slow, ANSWERED, LATER);
    assert!(!hosts.hosts["a"].is_quick);
    assert_eq!(late(&mut hosts, LATER), [0; 0]);
    assert_eq!(late(&mut hosts, UnixMicros(LATER.0 + LONG_MICROS)), [3]);
}

#[test]
fn idle_hosts_beyond_the_limit_are_forgotten() {
    let (mut hosts, _) = opened();
    offer(&mut hosts, "busy", 1);
    (2..HOSTS_MAX).for_each(|host| drop(hosts.remembered(&host.to_string())));
    assert_eq!((hosts.hosts.len(), hosts.breakers_open()), (HOSTS_MAX, 1));
    offer(&mut hosts, "one more", 2);
    assert_eq!(hosts.breakers_open(), 0, "it was forgotten");
    assert_eq!((hosts.hosts.len(), hosts.waiting()), (2, 2));
}

proptest! {
    /// No start exceeds a limit, no job is lost or given out twice, each host starts a manual job or else its
    /// oldest, and a quick host below its own limit waits only while all requests are in flight.
    #[test]
    fn limits_hold_and_jobs_are_conserved(
        moves in vec((0_u8..8, 0_usize..6, 0_i64..50), 1..400)
    ) {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let mut hosts = Hosts::new(10, 4);
        let mut running: Vec<Permit> = Vec::new();
        let (mut given, mut gone) = (0_usize, 0_usize);
        let mut now = NOW;
        for (kind, host, number) in moves {
            match kind {
                0..4 => {
                    given += 1;
                    let job = (host, number);
                    let back = hosts.offer(NAMES[host], UnixMicros(number), number == 49, job, now);
                    gone += usize::from(back.is_some());
                }
                4 | 5 if !running.is_empty() => {
                    let at = usize::try_from(number).unwrap() % running.len();
                    let outcome = if host % 2 == 0 { FAILED } else { ANSWERED };
                    gone += 1 + hosts.ended(running.swap_remove(at), outcome, now).len();
                }
                6 => now = UnixMicros(now.0 + 20_000 * number),
                _ => gone += hosts.overdue(now).len(),
            }
            if kind % 2 == 1 {
                if let Some(((of, age), permit)) = hosts.next(now) {
                    let host = &hosts.hosts[NAMES[of]];
                    prop_assert!(hosts.running() <= 10 && host.running <= host.limit);
                    prop_assert!(host.is_quick || hosts.shares[0].running <= 5);
                    let is_later = |priority: &Priority| priority.emitted_at.0 >= age || age == 49;
                    prop_assert!(host.waiting.keys().all(is_later));
                    running.push(permit);
                } else {
                    prop_assert!(hosts.shares[1].ready.is_empty() || hosts.running() == 10);
                }
            }
            prop_assert_eq!(given, gone + running.len() + hosts.waiting());
            let all = || hosts.hosts.values();
            prop_assert_eq!(all().map(|host| host.waiting.len()).sum::<usize>(), hosts.waiting());
            prop_assert_eq!(running.len(), hosts.running());
            prop_assert!(all().all(|host| !host.breaker.is_open() || host.waiting.len() <= 1));
        }
    }
}
