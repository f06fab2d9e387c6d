//! Deliveries a second and their latency, by the number of destinations.

use std::time::{Duration, Instant};

use testkit::measure::{percent, rate};

use crate::ceiling;
use crate::engine::Engine;
use crate::lag::Lags;
use crate::receivers::{Kind, Receivers};

const DURATION: Duration = Duration::from_secs(10);
/// Warm-up from the first delivery on: at its end partitions are assigned and connections made.
const WARM_UP: Duration = Duration::from_secs(3);
/// Number of events that wait for their 200 at the maximum rate: an event takes about 100 ms on a
/// busy Kafka, so fewer would limit the rate.
const WAITING: usize = 5000;
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
        // The first part is the warm-up: partitions are assigned and connections made.
        let mut lags = None;
        for duration in [WARM_UP, duration] {
            let url = |number: usize| receivers.url(Kind::Healthy, number % destinations);
            let events = engine.pace(PACE, duration, url).await;
            lags = Some(Lags::of(&engine, receivers, events, |_| true).await);
        }
        let lags = lags.expect("the second part's");
        engine.stop().await;
        let share = 100 * reached / ceiling.max(1);
        println!(
            "  {destinations:>5} destinations: {reached} deliveries a second, {share} % of {ceiling} bare requests \
             (aim 50 %); at {PACE} a second, event to 200: {lags}"
        );
    }
}

/// Deliveries a second with a constant backlog.
async fn saturate(
    receivers: &mut Receivers,
    mut engine: Engine,
    destinations: usize,
    duration: Duration,
) -> u64 {
    receivers.take();
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    // Time of the first delivery.
    let mut started = None;
    // End of the warm-up, and the number delivered by then.
    let mut begun = None;
    loop {
        ticks.tick().await;
        let (events, delivered) = (engine.events(), receivers.count());
        if delivered > 0 && started.get_or_insert_with(Instant::now).elapsed() > WARM_UP {
            let (at, before) = *begun.get_or_insert((Instant::now(), delivered));
            if at.elapsed() > duration {
                let reached = rate(delivered - before, at.elapsed());
                engine.stop().await;
                return reached;
            }
        }
        let numbers = events..(delivered + WAITING).max(events);
        let url = |number: usize| receivers.url(Kind::Healthy, number % destinations);
        engine.publish(numbers.map(url).collect()).await;
    }
}
