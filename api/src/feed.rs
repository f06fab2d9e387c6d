//! The live feed: follows `orders` from its end and hands each record to the requests that wait for
//! something to happen to that order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use log::{self, Log, StageContext};
use runtime::task;
use schemas::record::Order;
use schemas::{OrderId, Topic};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{Error, metrics};

/// Requests that may wait at once. One more is told to try again.
const LISTENERS_MAX: usize = 10_000;
/// Records of one order that may wait for one listener. An order has a handful in all.
const RECORDS_MAX: usize = 64;
/// How long one poll waits: bounds how late a stop is noticed.
const POLL: Duration = Duration::from_millis(50);
/// Pause after the log could not be reached.
const BACK_OFF: Duration = Duration::from_millis(250);

/// Hands records of `orders` to listeners. Cheap to clone; all clones are one feed.
#[derive(Debug, Clone, Default)]
pub struct Feed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    listeners: Mutex<Listeners>,
    /// Whether the tail is open: from then on no record is missed.
    following: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Listeners {
    by_order: HashMap<OrderId, Vec<Listener>>,
    count: usize,
    last_number: u64,
}

#[derive(Debug)]
struct Listener {
    number: u64,
    records: mpsc::Sender<Arc<Order>>,
}

/// A wait for records of one order. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    feed: Feed,
    order_id: OrderId,
    number: u64,
    records: mpsc::Receiver<Arc<Order>>,
}

impl Subscription {
    /// The next record of the order; none if this listener fell behind and was cut off.
    pub(crate) async fn next(&mut self) -> Option<Arc<Order>> {
        self.records.recv().await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.listeners().remove(self.order_id, |listener| listener.number == self.number);
    }
}

impl Listeners {
    fn remove(&mut self, order_id: OrderId, gone: impl Fn(&Listener) -> bool) {
        let Some(listeners) = self.by_order.get_mut(&order_id) else { return };
        let before = listeners.len();
        listeners.retain(|listener| !gone(listener));
        self.count = self.count.saturating_sub(before - listeners.len());
        if listeners.is_empty() {
            self.by_order.remove(&order_id);
        }
    }
}

impl Feed {
    /// A feed that nobody feeds yet: [`run`] does.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns once records are followed: what is written to the log after that is not missed.
    pub async fn following(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.0.following.subscribe().wait_for(|following| *following).await);
    }

    /// Listens to one order from now on; none if too many listen already.
    pub(crate) fn subscribe(&self, order_id: OrderId) -> Option<Subscription> {
        let mut listeners = self.listeners();
        if listeners.count >= LISTENERS_MAX {
            return None;
        }
        listeners.count += 1;
        listeners.last_number += 1;
        let number = listeners.last_number;
        let (sender, records) = mpsc::channel(RECORDS_MAX);
        let listener = Listener { number, records: sender };
        listeners.by_order.entry(order_id).or_default().push(listener);
        Some(Subscription { feed: self.clone(), order_id, number, records })
    }

    /// Ends every wait: there is nothing to come.
    pub(crate) fn close(&self) {
        let mut listeners = self.listeners();
        listeners.by_order.clear();
        listeners.count = 0;
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on one record. Most are nobody's: the key tells, and only the rest are decoded.
    fn publish(&self, record: &log::Record) {
        let Some(order_id) = std::str::from_utf8(&record.key).ok().and_then(|k| k.parse().ok())
        else {
            return;
        };
        if !self.listeners().by_order.contains_key(&order_id) {
            return;
        }
        let order = match schemas::decode::<Order>(record.value.as_deref().unwrap_or_default()) {
            Ok(order) => Arc::new(order),
            // The projector moves it to the dead letters; whoever waits for it is told to try
            // again.
            Err(error) => {
                tracing::warn!(%error, order.id = %order_id, "the feed skipped a record of orders");
                return;
            }
        };
        self.listeners().remove(order_id, |listener| {
            listener.records.try_send(order.clone()).is_err_and(|error| {
                if matches!(error, mpsc::error::TrySendError::Full(_)) {
                    metrics::listener_cut();
                }
                true
            })
        });
    }
}

/// Follows `orders` until the process stops. Blocks: belongs on a thread of its own, started before the
/// server.
///
/// # Errors
/// [`Error::Feed`] if the topic cannot be followed any more.
pub fn run(feed: &Feed, context: &StageContext) -> Result<(), Error> {
    let ended = follow(&*context.log, feed, &context.stop);
    feed.close();
    ended
}

fn follow(log: &dyn Log, feed: &Feed, stop: &CancellationToken) -> Result<(), Error> {
    let opened = log::retry(stop, "the feed of orders", || log.tail(&[Topic::Orders]))?;
    let Some(mut tail) = opened else { return Ok(()) };
    feed.0.following.send_replace(true);
    while !stop.is_cancelled() {
        match tail.poll(POLL) {
            Ok(records) => records.iter().for_each(|record| feed.publish(record)),
            Err(log::Error::Transient(cause)) => {
                tracing::debug!(%cause, "the feed of orders is interrupted");
                task::wait(stop, BACK_OFF);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::{Offset, TopicPartition};
    use schemas::record::example;
    use schemas::{Partition, UnixMicros};

    fn record(order: &Order) -> log::Record {
        log::Record {
            from: TopicPartition { topic: Topic::Orders, partition: Partition(0) },
            offset: Offset(0),
            appended_at: UnixMicros(0),
            key: order.order_id.to_string().into_bytes(),
            value: Some(schemas::encode(order).unwrap()),
            headers: schemas::Headers::default(),
        }
    }

    #[tokio::test]
    async fn following_waits_for_the_tail() {
        let feed = Feed::new();
        tokio::select! {
            biased;
            () = feed.following() => panic!("nobody follows yet"),
            () = std::future::ready(()) => {}
        }
        feed.0.following.send_replace(true);
        feed.following().await;
    }

    #[tokio::test]
    async fn every_listener_of_the_order_hears_it_and_no_other() {
        let feed = Feed::new();
        let order = example::order();
        let mut first = feed.subscribe(order.order_id).unwrap();
        let mut second = feed.subscribe(order.order_id).unwrap();
        let mut other = feed.subscribe(OrderId(uuid::Uuid::from_u128(1))).unwrap();
        feed.publish(&record(&order));
        assert_eq!(*first.next().await.unwrap(), order);
        assert_eq!(*second.next().await.unwrap(), order);
        assert!(other.records.try_recv().is_err());
    }

    #[test]
    fn dropped_subscriptions_leave_nothing_behind() {
        let feed = Feed::new();
        let order = example::order();
        let first = feed.subscribe(order.order_id).unwrap();
        let second = feed.subscribe(order.order_id).unwrap();
        drop(first);
        assert_eq!(feed.listeners().count, 1);
        drop(second);
        assert_eq!(feed.listeners().count, 0);
        assert!(feed.listeners().by_order.is_empty());
    }

    #[tokio::test]
    async fn a_listener_that_falls_behind_is_cut_off_and_the_feed_goes_on() {
        let feed = Feed::new();
        let order = example::order();
        let mut slow = feed.subscribe(order.order_id).unwrap();
        for _ in 0..=RECORDS_MAX {
            feed.publish(&record(&order));
        }
        assert_eq!(feed.listeners().count, 0);
        for _ in 0..RECORDS_MAX {
            assert!(slow.next().await.is_some());
        }
        assert!(slow.next().await.is_none());
    }

    #[test]
    fn listeners_are_bounded() {
        let feed = Feed::new();
        let subscribe = |n: usize| feed.subscribe(OrderId(uuid::Uuid::from_u128(n as u128)));
        let all: Vec<_> = (0..LISTENERS_MAX).map(subscribe).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(subscribe(LISTENERS_MAX).is_none());
        drop(all);
        assert!(subscribe(LISTENERS_MAX).is_some());
    }

    #[test]
    fn records_that_are_not_orders_are_passed_over() {
        let feed = Feed::new();
        let order = example::order();
        let mut waiting = feed.subscribe(order.order_id).unwrap();
        feed.publish(&log::Record { key: vec![0xff], ..record(&order) });
        feed.publish(&log::Record { value: Some(vec![1, 2]), ..record(&order) });
        feed.publish(&log::Record { value: None, ..record(&order) });
        assert!(waiting.records.try_recv().is_err());
        assert_eq!(feed.listeners().count, 1);
    }
}
