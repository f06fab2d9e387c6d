//! Deliveries a second and their latency, by the number of destinations.

use std::time::{Duration, Instant};

use testkit::measure::{percent, rate};

use crate::ceiling;
use crate::engine::Engine;
use crate::lag::Lags;
use crate::receivers::{Kind, Receivers};

const DURATION: Duration = Duration::from_secs(10);
/// Connections are made and the destinations known after that.
const WARM_UP: Duration = Duration::from_secs(2);
/// How many events wait for their 200 when as many as possible are delivered.
const WAITING: usize = 1000;
const PACE: u32 = 200;

/// Measures `start`ed engines, one after another.
pub(crate) async fn run(
    receivers: &mut Receivers,
    destinations: &[usize],
    mut start: impl FnMut() -> Engine,
) {
    let duration = DURATION * u32::try_from(percent()).expect("small") / 100;
    for &destinations in destinations {
        let urls = (0..destinations).map(|number| receivers.url(Kind::Healthy, number)).collect();
        let ceiling = ceiling::measure(urls, duration).await;
        let reached = saturate(receivers, start(), destinations, duration).await;
        let mut engine = start();
        receivers.take();
        let url = |number: usize| receivers.url(Kind::Healthy, number % destinations);
        let events = engine.pace(PACE, duration, url).await;
        let lags = Lags::of(&engine, receivers, events, |_| true).await;
        engine.stop().await;
        let share = 100 * reached / ceiling.max(1);
        println!(
            "  {destinations:>5} destinations: {reached} deliveries a second, {share} % of {ceiling} bare requests \
             (aim 50 %); at {PACE} a second, event to 200: {lags}"
        );
    }
}

/// Deliveries a second while there is always something to deliver.
async fn saturate(
    receivers: &mut Receivers,
    mut engine: Engine,
    destinations: usize,
    duration: Duration,
) -> u64 {
    receivers.take();
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    let started = Instant::now();
    // When the warm-up was over, and how many had been delivered.
    let mut begun = None;
    loop {
        ticks.tick().await;
        let delivered = receivers.count();
        let (events, elapsed) = (engine.events(), started.elapsed());
        if elapsed > WARM_UP {
            let (at, before) = *begun.get_or_insert((elapsed, delivered));
            if elapsed > WARM_UP + duration {
                engine.stop().await;
                return rate(delivered - before, elapsed - at);
            }
        }
        let numbers = events..(delivered + WAITING).max(events);
        let url = |number: usize| receivers.url(Kind::Healthy, number % destinations);
        engine.publish(numbers.map(url).collect()).await;
    }
}
