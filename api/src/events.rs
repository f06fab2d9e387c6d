//! Live updates for the customer of an order, as server-sent events: the status, after each displayed change.

pub(crate) mod views;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use runtime::Clock;
use schemas::{OrderId, OrderStatus, UnixSeconds};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::Feed;
use crate::client::Client;
use crate::error::{Answer, Refusal};
use crate::feed::{Audience, Subscription};
use crate::machine::seen_transfer::{Checkout, SeenTransfer};
use crate::reads::Reads;
use crate::view::CheckoutView;

use views::{View, Views};

/// Read interval of the tables after a record of the order: the projector writes them shortly after the log.
const EAGER_INTERVAL: Duration = Duration::from_millis(200);
/// Duration of the frequent reads after a record of the order.
const EAGER_PERIOD: Duration = Duration::from_secs(5);
/// Read interval while a payment is confirmed or checked.
const CONFIRMING_INTERVAL: Duration = Duration::from_secs(2);
/// Read interval while a payment may arrive that causes no record of the order, such as one of another amount.
const WATCHING_INTERVAL: Duration = Duration::from_secs(5);
/// Time after the deadline of an unpaid order during which a late payment is watched for.
const WATCHED_AFTERWARDS_SECONDS: i64 = 600;
/// Read interval otherwise, and maximum time between two events: proxies end a silent stream.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// Opens live views.
#[derive(Clone)]
pub(crate) struct Events {
    pub(crate) reads: Reads,
    pub(crate) feed: Feed,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop: CancellationToken,
    pub(crate) views: Views,
}

struct Live {
    events: Events,
    view: View,
    records: Subscription,
    /// Expiry of the link.
    end: UnixSeconds,
    /// State last sent to the customer.
    shown: String,
    /// End of the frequent reads.
    eager_until: Instant,
    /// Read interval afterwards.
    interval: Duration,
    sent_at: Instant,
}

impl Events {
    /// A stream of `status` events. The first one has the present status, so that a client that reconnects misses
    /// nothing. The stream ends with the link, or with the process.
    ///
    /// # Errors
    /// The order cannot be read. [`Refusal::Busy`] if too many views are open, or too many requests wait for the order.
    /// [`Refusal::TooManyOfAddress`] if too many views of the client's address are open.
    pub(crate) async fn follow(
        self,
        order_id: OrderId,
        end: UnixSeconds,
        client: Option<Client>,
    ) -> Answer {
        let view = self.views.open(order_id, client).ok_or(Refusal::TooManyOfAddress)?;
        let records = self.feed.subscribe(order_id, Audience::Viewer).ok_or(Refusal::Busy)?;
        self.reads.order(order_id).await?;
        let (shown, interval, sent_at) = (String::new(), HEARTBEAT_INTERVAL, Instant::now());
        let eager_until = sent_at;
        let live = Live { events: self, view, records, end, shown, eager_until, interval, sent_at };
        let changes = stream::unfold(live, |mut live| async move {
            let event = live.next().await?;
            Some((Ok::<_, Infallible>(event), live))
        });
        let mut response: Response = Sse::new(changes).into_response();
        // Without this header, a buffering proxy would hold the events back.
        response
            .headers_mut()
            .insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
        Ok(response)
    }
}

impl Live {
    /// Next change, or a heartbeat comment; none at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.events.clock.now().seconds() > self.end {
                return None;
            }
            if let Ok(checkout) = self.view.checkout(&self.events.reads).await {
                let now = essence(&checkout);
                self.interval = interval(&checkout, self.events.clock.now().seconds());
                if now != self.shown {
                    self.shown = now;
                    self.sent_at = Instant::now();
                    return Event::default()
                        .event("status")
                        .json_data(CheckoutView::new(&checkout))
                        .ok();
                }
            }
            if self.sent_at.elapsed() >= HEARTBEAT_INTERVAL {
                self.sent_at = Instant::now();
                return Some(Event::default().comment(""));
            }
            let wake_at = self.wake_at();
            tokio::select! {
                record = self.records.next() => {
                    record?;
                    self.eager_until = Instant::now() + EAGER_PERIOD;
                }
                () = sleep_until(wake_at) => {}
                () = self.events.stop.cancelled() => return None,
            }
        }
    }

    fn wake_at(&self) -> Instant {
        let now = Instant::now();
        let interval = if now < self.eager_until { EAGER_INTERVAL } else { self.interval };
        (now + interval).min(self.sent_at + HEARTBEAT_INTERVAL)
    }
}

/// Read interval of the tables for this order.
fn interval(Checkout { order, transfers, possible, .. }: &Checkout, now: UnixSeconds) -> Duration {
    let mut arrived = transfers.iter().chain(possible);
    let is_confirming = !order.candidates.is_empty() || arrived.any(SeenTransfer::is_waiting);
    let was_asked = order.deposits.iter().any(|deposit| deposit.value.is_some());
    let is_watched = order.status != OrderStatus::Paid
        && now <= order.expires_at.plus(WATCHED_AFTERWARDS_SECONDS);
    match (is_confirming, was_asked && is_watched) {
        (true, _) => CONFIRMING_INTERVAL,
        (false, true) => WATCHING_INTERVAL,
        (false, false) => HEARTBEAT_INTERVAL,
    }
}

/// Text that changes with everything that the customer sees, except the time of the last scan.
fn essence(checkout: &Checkout) -> String {
    let Checkout { order, transfers, possible, .. } = checkout;
    let mut text = format!("{} {}", order.version, checkout.is_stopped());
    for seen in transfers.iter().chain(possible) {
        let transfer = &seen.transfer;
        text += &format!(" {} {} {}", transfer.transfer_id, transfer.status, seen.confirmations);
    }
    text
}
