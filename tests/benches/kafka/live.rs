//! Latency of a steady trickle: from the call that produces a transfer to the committed record of its confirmation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::kafka::KafkaLog;
use log::{Log, Record};
use schemas::Topic;
use testkit::measure::percentile;
use tokio_util::sync::CancellationToken;

use crate::workload::{CHAINS, Form, heading, payment};

/// Interval at which transfers are produced, with a head for each chain, and their number.
const TICK: Duration = Duration::from_millis(10);
pub(crate) const TRANSFERS_A_TICK: usize = 10;
const POLL: Duration = Duration::from_millis(100);
/// Far longer than any record in flight takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Percentiles of the latency of transfers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
    pub(crate) transfers: usize,
}

/// A steady load: the first deposit to pay, the next height, and the number of ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trickle {
    pub(crate) first: usize,
    pub(crate) height: usize,
    pub(crate) ticks: usize,
    pub(crate) form: Form,
}

impl Trickle {
    /// Deposits that it pays, including one before it begins, whose confirmation shows that all parts run.
    pub(crate) fn transfers(&self) -> usize {
        self.ticks * TRANSFERS_A_TICK + 1
    }

    /// Heights that it uses.
    pub(crate) fn heights(&self) -> usize {
        self.ticks + 1
    }
}

/// Sends transfers while they are processed, and records confirmation times. `number` finds a deposit's number in a
/// record of `transfers.confirmed`.
pub(crate) async fn measure(
    log: &KafkaLog,
    trickle: Trickle,
    number: fn(&[u8]) -> usize,
) -> Latency {
    let stop = CancellationToken::new();
    let (seen, mut arrivals) = tokio::sync::watch::channel(0);
    let mut tail = log.tail(&[Topic::TransfersConfirmed]).expect("a tail");
    let stopped = stop.clone();
    let reader = std::thread::spawn(move || {
        let mut arrived: Vec<(Instant, Arc<Record>)> = Vec::new();
        while !stopped.is_cancelled() {
            let records = tail.poll(POLL).expect("readable");
            let now = Instant::now();
            arrived.extend(records.into_iter().map(|record| (now, record)));
            seen.send_replace(arrived.len());
        }
        arrived
    });
    let Trickle { first: lead, height, ticks, form } = trickle;
    send(log, lead..lead + 1, height, form).await;
    arrivals.wait_for(|seen| *seen > 0).await.expect("a reader");

    let mut sent = Vec::with_capacity(ticks);
    let mut sending = tokio::task::JoinSet::new();
    let mut clock = tokio::time::interval(TICK);
    for tick in 0..ticks {
        clock.tick().await;
        let begin = lead + 1 + tick * TRANSFERS_A_TICK;
        let log = log.clone();
        sent.push(Instant::now());
        sending.spawn(async move {
            send(&log, begin..begin + TRANSFERS_A_TICK, height + 1 + tick, form).await;
        });
    }
    sending.join_all().await;
    let all = arrivals.wait_for(|seen| *seen >= trickle.transfers());
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("every transfer is confirmed")
        .expect("a reader");
    stop.cancel();
    let arrived = reader.join().expect("a reader");
    let mut times = Vec::new();
    for (at, record) in arrived {
        let number = number(record.value.as_deref().unwrap_or_default());
        let tick = number.checked_sub(lead + 1).map(|number| number / TRANSFERS_A_TICK);
        times.extend(tick.and_then(|tick| sent.get(tick)).map(|sent| at - *sent));
    }
    assert_eq!(times.len(), ticks * TRANSFERS_A_TICK, "every transfer is confirmed, and once");
    times.sort_unstable();
    let [p50, p99, max] = [50, 99, 100].map(|part| percentile(&times, part));
    Latency { p50, p99, max, transfers: times.len() }
}

async fn send(log: &KafkaLog, numbers: std::ops::Range<usize>, height: usize, form: Form) {
    let heads = CHAINS.iter().map(|chain| heading(*chain, height, form));
    let records = numbers.map(|number| payment(number, height, false, form)).chain(heads).collect();
    log.produce(records).await.expect("written");
}
