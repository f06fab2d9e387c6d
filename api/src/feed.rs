//! The live feed: follows the topic `orders` from its end and passes each record to the requests that
//! wait for a change of that order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use log::{Log, StageContext};
use runtime::task;
use schemas::record::Order;
use schemas::{OrderId, Topic};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{Error, metrics};

/// Requests of customers that may wait at once. One more is refused as busy.
const CUSTOMERS_MAX: usize = 8_000;
/// Number of listeners of one order, of every audience, from which a further request of a customer is refused.
const ORDER_CUSTOMERS_MAX: usize = 16;
/// Live views of customers that may be open at once.
const VIEWERS_MAX: usize = 4_000;
/// Number of listeners of one order, of every audience, from which a further live view is refused. It is below
/// `ORDER_CUSTOMERS_MAX`, so that live views leave room for commands.
const ORDER_VIEWERS_MAX: usize = 8;
const MERCHANTS_MAX: usize = 8_000;
const OPERATORS_MAX: usize = 1_000;
/// Buffered records of one order per listener. Few orders have more than ten in all.
const RECORDS_MAX: usize = 64;
/// Maximum wait of one poll, and therefore maximum delay of an orderly stop by this thread.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// Pause after the log could not be reached.
const BACK_OFF: Duration = Duration::from_millis(250);

/// Kinds of waiting callers. Each has its own permits: no number of customers blocks requests of the merchant or of
/// operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Awaits the answer to a command.
    Customer,
    /// Follows an order as long as its page is shown.
    Viewer,
    Merchant,
    Operator,
}

/// Passes records of `orders` to listeners. Clones share their listeners.
#[derive(Debug, Clone)]
pub struct Feed(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Channels by order; none once the feed has ended.
    channels: Mutex<Option<HashMap<OrderId, broadcast::Sender<Arc<Order>>>>>,
    /// Permits for further listeners, by audience.
    customers: Arc<Semaphore>,
    viewers: Arc<Semaphore>,
    merchants: Arc<Semaphore>,
    operators: Arc<Semaphore>,
    /// `true` once the tail is open: from then on no record is missed.
    following: watch::Sender<bool>,
}

/// A request that waits for records of one order. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    feed: Feed,
    order_id: OrderId,
    /// `None` only while `drop` runs.
    records: Option<broadcast::Receiver<Arc<Order>>>,
    _permit: OwnedSemaphorePermit,
}

impl Subscription {
    /// Next record of the order, skipping those that overflowed this listener's buffer; none once the feed has ended.
    pub(crate) async fn next(&mut self) -> Option<Arc<Order>> {
        loop {
            match self.records.as_mut()?.recv().await {
                Ok(record) => return Some(record),
                Err(RecvError::Lagged(_)) => metrics::listener_lagged(),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.feed.channels();
        // Dropped under the lock, so that the last of several concurrent drops removes the channel.
        drop(self.records.take());
        let Some(channels) = &mut *channels else { return };
        let has_no_receiver = |channel: &broadcast::Sender<_>| channel.receiver_count() == 0;
        if channels.get(&self.order_id).is_some_and(has_no_receiver) {
            channels.remove(&self.order_id);
        }
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self(Arc::new(Shared {
            channels: Mutex::new(Some(HashMap::new())),
            customers: Arc::new(Semaphore::new(CUSTOMERS_MAX)),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            merchants: Arc::new(Semaphore::new(MERCHANTS_MAX)),
            operators: Arc::new(Semaphore::new(OPERATORS_MAX)),
            following: watch::Sender::default(),
        }))
    }
}

impl Feed {
    /// Returns once [`run`] follows the topic: no record that is written after that is missed.
    pub async fn following(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.0.following.subscribe().wait_for(|following| *following).await);
    }

    /// Listens to one order from now on; none if too many listen already, or the feed has ended.
    pub(crate) fn subscribe(&self, order_id: OrderId, audience: Audience) -> Option<Subscription> {
        let places = match audience {
            Audience::Customer => &self.0.customers,
            Audience::Viewer => &self.0.viewers,
            Audience::Merchant => &self.0.merchants,
            Audience::Operator => &self.0.operators,
        };
        let permit = places.clone().try_acquire_owned().ok()?;
        let mut channels = self.channels();
        let channel = channels.as_mut()?.entry(order_id);
        let channel = channel.or_insert_with(|| broadcast::Sender::new(RECORDS_MAX));
        let most = match audience {
            Audience::Customer => ORDER_CUSTOMERS_MAX,
            Audience::Viewer => ORDER_VIEWERS_MAX,
            Audience::Merchant | Audience::Operator => usize::MAX,
        };
        if channel.receiver_count() >= most {
            return None;
        }
        let records = channel.subscribe();
        Some(Subscription { feed: self.clone(), order_id, records: Some(records), _permit: permit })
    }

    /// Ends every wait.
    pub(crate) fn close(&self) {
        *self.channels() = None;
    }

    fn channels(&self) -> MutexGuard<'_, Option<HashMap<OrderId, broadcast::Sender<Arc<Order>>>>> {
        self.0.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes one record on. Only records of orders that a request waits for are decoded.
    fn publish(&self, record: &log::Record) {
        let key = std::str::from_utf8(&record.key).ok();
        let Some(order_id) = key.and_then(|key| key.parse().ok()) else { return };
        let channel = self.channels().as_ref().and_then(|all| all.get(&order_id).cloned());
        let Some(channel) = channel else { return };
        match schemas::decode::<Order>(record.value.as_deref().unwrap_or_default()) {
            // Fails if the last listener has just ended.
            Ok(order) => drop(channel.send(Arc::new(order))),
            // A command that awaits this record times out.
            Err(error) => {
                tracing::warn!(%error, order.id = %order_id, "the feed skipped a record of orders");
            }
        }
    }
}

/// Follows `orders` until the process stops. Blocks: runs on a thread of its own, started before the
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
        match tail.poll(POLL_TIMEOUT) {
            Ok(records) => records.iter().for_each(|record| feed.publish(record)),
            Err(log::Error::Transient(cause)) => {
                tracing::debug!(%cause, "cannot read the topic orders; will retry");
                task::wait(stop, BACK_OFF);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Audience::{Customer, Merchant, Operator, Viewer};
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

    fn listeners(feed: &Feed) -> usize {
        CUSTOMERS_MAX - feed.0.customers.available_permits()
    }

    #[tokio::test]
    async fn following_waits_for_the_tail() {
        let feed = Feed::default();
        tokio::select! {
            biased;
            () = feed.following() => panic!("the tail is not open yet"),
            () = std::future::ready(()) => {}
        }
        feed.0.following.send_replace(true);
        feed.following().await;
    }

    #[tokio::test]
    async fn each_listener_gets_the_records_of_its_order() {
        let feed = Feed::default();
        let order = example::order();
        let mut first = feed.subscribe(order.order_id, Customer).unwrap();
        let mut second = feed.subscribe(order.order_id, Customer).unwrap();
        let mut other = feed.subscribe(OrderId(uuid::Uuid::from_u128(1)), Customer).unwrap();
        feed.publish(&record(&order));
        assert_eq!(*first.next().await.unwrap(), order);
        assert_eq!(*second.next().await.unwrap(), order);
        assert!(other.records.as_mut().unwrap().try_recv().is_err());
    }

    #[tokio::test]
    async fn dropped_subscriptions_leave_nothing_behind() {
        let feed = Feed::default();
        let order = example::order();
        let first = feed.subscribe(order.order_id, Customer).unwrap();
        let mut second = feed.subscribe(order.order_id, Customer).unwrap();
        drop(first);
        assert_eq!(listeners(&feed), 1);
        feed.publish(&record(&order));
        assert!(second.next().await.is_some());
        drop(second);
        assert_eq!(listeners(&feed), 0);
        assert_eq!(feed.channels().as_ref().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn slow_listener_gets_the_newest_records() {
        let feed = Feed::default();
        let mut slow = feed.subscribe(example::order().order_id, Customer).unwrap();
        let versions: Vec<_> = (1..).take(RECORDS_MAX + 1).collect();
        for &version in &versions {
            feed.publish(&record(&Order { version, ..example::order() }));
        }
        for &version in &versions[1..] {
            assert_eq!(slow.next().await.unwrap().version, version);
        }
    }

    #[test]
    fn listeners_are_bounded_in_all_and_for_each_order() {
        let feed = Feed::default();
        let subscribe = |order: usize, audience| {
            feed.subscribe(OrderId(uuid::Uuid::from_u128(order as u128)), audience)
        };
        let of_one: Vec<_> = (0..16).map(|_| subscribe(0, Customer)).collect();
        assert!(of_one.iter().all(Option::is_some));
        assert!(subscribe(0, Customer).is_none());
        assert!(subscribe(0, Operator).is_some() && subscribe(0, Merchant).is_some());
        let others = CUSTOMERS_MAX - of_one.len();
        let others: Vec<_> = (1..=others).map(|order| subscribe(order, Customer)).collect();
        assert!(others.iter().all(Option::is_some));
        assert!(subscribe(CUSTOMERS_MAX, Customer).is_none());
        for (audience, max) in [(Merchant, MERCHANTS_MAX), (Operator, OPERATORS_MAX)] {
            let all: Vec<_> = (0..max).map(|_| subscribe(0, audience)).collect();
            assert!(all.iter().all(Option::is_some));
            assert!(subscribe(0, audience).is_none());
        }
        let views: Vec<_> = (1..=VIEWERS_MAX).map(|order| subscribe(order, Viewer)).collect();
        assert!(views.iter().all(Option::is_some));
        assert!(subscribe(VIEWERS_MAX + 1, Viewer).is_none());
        drop(views);
        drop((of_one, others));
        assert!(subscribe(0, Customer).is_some());
        assert_eq!(feed.channels().as_ref().unwrap().len(), 0, "what is refused leaves nothing");
    }

    #[test]
    fn views_leave_places_for_the_commands_of_their_order() {
        let feed = Feed::default();
        let subscribe = |audience| feed.subscribe(example::order().order_id, audience);
        let views: Vec<_> = (0..ORDER_VIEWERS_MAX).map(|_| subscribe(Viewer)).collect();
        assert!(views.iter().all(Option::is_some));
        assert!(subscribe(Viewer).is_none());
        let rest = ORDER_CUSTOMERS_MAX - ORDER_VIEWERS_MAX;
        let commands: Vec<_> = (0..rest).map(|_| subscribe(Customer)).collect();
        assert!(commands.iter().all(Option::is_some));
        drop(views);
        assert!(subscribe(Viewer).is_none(), "commands count too");
        drop(commands);
        assert!(subscribe(Viewer).is_some());
        assert_eq!(feed.channels().as_ref().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn a_closed_feed_ends_every_wait() {
        let feed = Feed::default();
        let mut waiting = feed.subscribe(example::order().order_id, Customer).unwrap();
        feed.close();
        assert!(waiting.next().await.is_none());
        assert!(feed.subscribe(example::order().order_id, Customer).is_none());
    }

    #[test]
    fn records_that_are_not_orders_are_skipped() {
        let feed = Feed::default();
        let order = example::order();
        let mut waiting = feed.subscribe(order.order_id, Customer).unwrap();
        feed.publish(&log::Record { key: vec![0xff], ..record(&order) });
        feed.publish(&log::Record { value: Some(vec![1, 2]), ..record(&order) });
        feed.publish(&log::Record { value: None, ..record(&order) });
        assert!(waiting.records.as_mut().unwrap().try_recv().is_err());
        assert_eq!(listeners(&feed), 1);
    }
}
