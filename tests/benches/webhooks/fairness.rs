//! Effect of a part of the receivers on the others: silent ones, and one larger than all others.

use std::time::Duration;

use testkit::measure::percent;

use crate::engine::Engine;
use crate::lag::{Lags, change};
use crate::receivers::{Kind, Receivers};

const DURATION: Duration = Duration::from_secs(60);
const HEALTHY: usize = 100;
/// Events a second to the healthy receivers; the silent ones get the same number.
const PACE: u32 = 100;
const SILENT: [usize; 2] = [8, 1000];
/// Events a second to the small receivers together. One large receiver gets the same number, so it is a hundred times
/// larger than each of them.
const LARGE_PACE: u32 = 500;

pub(crate) async fn run(receivers: &mut Receivers) {
    let duration = DURATION * u32::try_from(percent()).expect("small") / 100;
    for silent in SILENT {
        let other = |url: &Receivers, number: usize| url.url(Kind::Silent, number % silent);
        let [before, cold, warm] = compare(receivers, PACE, duration, other).await;
        println!(
            "  half of {} events a second to {silent} silent receivers, the others' event to 200: before {before}; in the \
             first {} s {cold}; then {warm}: p99 {} (aim below 10 %)",
            2 * PACE,
            duration.as_secs(),
            change(&before, &warm)
        );
    }
    let large = |url: &Receivers, _: usize| url.url(Kind::Healthy, HEALTHY);
    let [before, cold, warm] = compare(receivers, LARGE_PACE, duration, large).await;
    println!(
        "  half of {} events a second to one receiver, the others' event to 200: before {before}; in the first {} s \
         {cold}; then {warm}: p99 {} (aim below 10 %)",
        2 * LARGE_PACE,
        duration.as_secs(),
        change(&before, &warm)
    );
}

/// Lags of healthy receivers alone, then in two periods beside the same number of events for others.
async fn compare(
    receivers: &mut Receivers,
    pace: u32,
    duration: Duration,
    other: impl Fn(&Receivers, usize) -> String,
) -> [Lags; 3] {
    let mut engine = Engine::start();
    receivers.take();
    let healthy = |number: usize| receivers.url(Kind::Healthy, number % HEALTHY);
    let events = engine.pace(pace, duration, healthy).await;
    let before = Lags::of(&engine, receivers, events, |_| true).await;
    let is_healthy = |number: usize| number.is_multiple_of(2);
    let mut beside = Vec::new();
    for _ in 0..2 {
        let url = |number: usize| {
            let half = number / 2;
            if is_healthy(number) {
                receivers.url(Kind::Healthy, half % HEALTHY)
            } else {
                other(receivers, half)
            }
        };
        let events = engine.pace(2 * pace, duration, url).await;
        beside.push(Lags::of(&engine, receivers, events, is_healthy).await);
    }
    engine.stop().await;
    let [cold, warm] = beside.try_into().ok().expect("two");
    [before, cold, warm]
}
