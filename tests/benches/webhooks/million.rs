//! A million events for a receiver that is down for a while: memory, latency of healthy ones, and the time until all
//! are delivered after its return.

use std::time::{Duration, Instant};

use testkit::measure::{percent, rate, resident_bytes};

use crate::engine::Engine;
use crate::lag::{Lags, change};
use crate::receivers::{Kind, Receivers};

const EVENTS: usize = 1_000_000;
/// Time that the receiver stays down after all events are written; the first `TAKEN_IN` of it is reported apart, as the
/// others' events then wait behind the million in the log.
const DEAD: Duration = Duration::from_secs(300);
const TAKEN_IN: Duration = Duration::from_secs(20);
/// Maximum time to drain, longer than the longest wait of a delivery.
const DRAIN_MAX: Duration = Duration::from_secs(1500);
const SAMPLE: Duration = Duration::from_secs(10);
const HEALTHY: usize = 100;
const PACE: u32 = 100;
/// Events that are written at once.
const CHUNK: usize = 2000;

pub(crate) async fn run(receivers: &mut Receivers, kind: Kind, how: &str) {
    Story::new(receivers, kind).play(how).await;
    receivers.lull();
}

struct Story<'a> {
    receivers: &'a mut Receivers,
    engine: Engine,
    kind: Kind,
    /// Resident memory of this process, in MiB.
    resident: Vec<u64>,
}

impl<'a> Story<'a> {
    fn new(receivers: &'a mut Receivers, kind: Kind) -> Self {
        receivers.take();
        Self { receivers, engine: Engine::start(), kind, resident: Vec::new() }
    }

    async fn play(mut self, how: &str) {
        let count = EVENTS * percent() / 100;
        let before = self.healthy(SAMPLE).await;
        let started = Instant::now();
        for chunk in (0..count).collect::<Vec<_>>().chunks(CHUNK) {
            let urls = chunk.iter().map(|_| self.receivers.url(self.kind, 0)).collect();
            self.engine.publish(urls).await;
        }
        println!(
            "  {count} events for a receiver that {how}, written in {} s; {} MiB resident",
            started.elapsed().as_secs(),
            self.sample()
        );
        let dead = DEAD * u32::try_from(percent()).expect("small") / 100;
        let (records, started) = (self.engine.records(), Instant::now());
        let first = self.healthy(TAKEN_IN.min(dead)).await;
        let meanwhile = self.healthy(dead.saturating_sub(TAKEN_IN)).await;
        let written = usize::try_from(self.engine.records() - records).expect("more");
        println!(
            "    dead for {} s: {} records a second; the others' event to 200: before {before}; in the \
             first {} s {first}; then {meanwhile}: p99 {} (aim below 10 %); MiB resident every {} s: {:?} (aim: flat)",
            dead.as_secs(),
            rate(written, started.elapsed()),
            TAKEN_IN.as_secs(),
            change(&before, &meanwhile),
            SAMPLE.as_secs(),
            self.resident
        );
        self.drain(count, &before).await;
        self.engine.stop().await;
    }

    /// Wakes the receiver, and prints the time until all its webhooks are delivered, at most [`DRAIN_MAX`].
    async fn drain(&mut self, count: usize, before: &Lags) {
        self.resident.clear();
        self.receivers.wake();
        let started = Instant::now();
        let first = self.engine.events();
        // Number of delivered webhooks at the end of each sample.
        let mut delivered = Vec::new();
        while delivered.last().is_none_or(|last| *last < count) && started.elapsed() < DRAIN_MAX {
            self.pace(SAMPLE).await;
            delivered.push(self.receivers.late());
        }
        let healthy = first..self.engine.events();
        let lags = Lags::of(&self.engine, self.receivers, healthy, |_| true).await;
        println!(
            "    back: {} of {count} delivered after {} s, every {} s: {delivered:?}; the others' {lags}: p99 {}; MiB \
             resident: {:?}",
            delivered.last().unwrap_or(&0),
            started.elapsed().as_secs(),
            SAMPLE.as_secs(),
            change(before, &lags),
            self.resident
        );
    }

    /// Writes events for healthy receivers at a steady pace, and returns their lags.
    async fn healthy(&mut self, duration: Duration) -> Lags {
        let (first, started) = (self.engine.events(), Instant::now());
        while let Some(left) = duration.checked_sub(started.elapsed()) {
            self.pace(SAMPLE.min(left)).await;
        }
        let events = first..self.engine.events();
        Lags::of(&self.engine, self.receivers, events, |_| true).await
    }

    async fn pace(&mut self, duration: Duration) {
        let url = |number: usize| self.receivers.url(Kind::Healthy, number % HEALTHY);
        self.engine.pace(PACE, duration, url).await;
        self.sample();
    }

    fn sample(&mut self) -> u64 {
        let resident = resident_bytes(std::process::id()) / 1024 / 1024;
        self.resident.push(resident);
        resident
    }
}
