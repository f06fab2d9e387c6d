//! Orders that change before their webhooks are delivered.

use std::collections::BTreeMap;

use reqwest::{Method, StatusCode};
use runtime::{Clock, SystemClock};
use schemas::{OrderId, Secret, sign_checkout};
use serde_json::json;
use testkit::harness::{ADMIN_SECRET, Client, MERCHANT_SECRET, Receiver, Reply, eventually};

use super::verdict::{Evidence, is_request, text};

/// Action on an order.
#[derive(Debug, Clone, Copy)]
enum Act {
    Cancel,
    MarkPaid,
    Resend,
}

const PLANS: [&[Act]; 5] = [
    &[Act::MarkPaid],
    &[Act::Cancel, Act::MarkPaid],
    &[Act::MarkPaid, Act::Resend],
    &[Act::Cancel],
    &[Act::Cancel, Act::Resend, Act::MarkPaid],
];
/// Receivers, each with a separate address.
const RECEIVERS: usize = 16;

struct Order {
    id: Option<String>,
    plan: &'static [Act],
    /// Acts that have happened.
    done: usize,
}

pub(super) struct Shop {
    orders: Vec<Order>,
    /// Maximum number of orders to create.
    pub(super) orders_max: usize,
    receiver: Receiver,
}

/// Reply of a receiver to an attempt, derived from the name of the event.
pub(super) fn script(event_id: &str, attempt: i32) -> Reply {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = event_id.bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 16;
    let failures = i32::try_from(hash / 8 % 4 + 1).unwrap();
    match hash % 8 {
        3 | 4 if attempt <= failures => Reply::Status(500),
        5 if attempt == 1 => Reply::Silence,
        6 if attempt <= 2 => Reply::Loss,
        7 if failures <= 2 || attempt <= 3 => Reply::Status(503),
        _ => Reply::Status(200),
    }
}

impl Shop {
    pub(super) fn new(receiver: Receiver) -> Self {
        Self { orders: Vec::new(), orders_max: 0, receiver }
    }

    pub(super) fn orders(&self) -> usize {
        self.orders.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.orders.iter().all(|order| order.id.is_some() && order.done == order.plan.len())
    }

    /// Minimum number of webhooks: one for each act.
    pub(super) fn events(&self) -> usize {
        self.orders.iter().map(|order| order.done).sum()
    }

    /// Creates an order if allowed, and performs the next act of each order. A kill may interrupt any request, which is
    /// then retried in another round.
    pub(super) async fn round(&mut self, client: &Client, creates: bool) -> reqwest::Result<()> {
        let is_complete = self.orders.last().is_none_or(|order| order.id.is_some());
        if creates && is_complete && self.orders.len() < self.orders_max {
            let plan = PLANS[self.orders.len() % PLANS.len()];
            self.orders.push(Order { id: None, plan, done: 0 });
        }
        let number = self.orders.len();
        let url = self.receiver.url(number % RECEIVERS + 1);
        if let Some(order) = self.orders.last_mut().filter(|order| order.id.is_none()) {
            let reference = format!("webhook-{number}");
            let body = json!({ "order_id": reference, "amount": "5", "webhook_url": url });
            order.id = client.try_order(&body).await?;
        }
        for order in &mut self.orders {
            let Some(id) = &order.id else { continue };
            let Some(act) = order.plan.get(order.done) else { continue };
            order.done += usize::from(happens(client, id, *act).await?);
        }
        Ok(())
    }

    /// Compares the counters that the operator sees with the log.
    pub(super) async fn check_counters(&self, client: &Client, evidence: &Evidence) -> Vec<String> {
        let mut recorded: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
        for attempt in evidence.attempts.iter().filter(|attempt| is_request(attempt)) {
            let entry = recorded.entry(text(attempt, "order_id")).or_default();
            entry.0 += 1;
            entry.1 |= attempt["outcome"] == "delivered";
        }
        let mut flaws = Vec::new();
        for (number, order) in (1..).zip(&self.orders) {
            let path = format!("/orders?merchant_order_id=webhook-{number}");
            let id = order.id.as_deref().unwrap();
            let wanted = recorded.get(id).copied().unwrap_or_default();
            let shown = eventually("the row of an order", || async {
                let shown = client.admin(&path).await.ok()?[0].clone();
                // The tables lag behind the log: a low count grows.
                (shown["webhook_retry_count"].as_u64()? >= wanted.0 as u64).then_some(shown)
            })
            .await;
            let is_shown = !shown["webhook_success_at"].is_null();
            if shown["webhook_retry_count"] != wanted.0 || is_shown != wanted.1 {
                flaws.push(format!("{id}: {wanted:?} are recorded and this is shown: {shown}"));
            }
        }
        flaws
    }
}

/// Performs the act; `true` if it took effect, now or before a lost response.
async fn happens(client: &Client, id: &str, act: Act) -> reqwest::Result<bool> {
    let admin = [("Service-Admin-Authorization", ADMIN_SECRET)];
    let (path, headers) = match act {
        Act::Cancel => {
            let expires = SystemClock.now().seconds().plus(3600);
            let order = OrderId(id.parse().unwrap());
            let signature = sign_checkout(&Secret::new(MERCHANT_SECRET), order, expires);
            let query = format!("exp={expires}&sig={signature}");
            (format!("/api/v1/user/orders/{id}/cancel?{query}"), &[][..])
        }
        Act::MarkPaid => (format!("/api/v1/admin/orders/{id}/mark-paid"), &admin[..]),
        Act::Resend => (format!("/api/v1/admin/orders/{id}/resend-webhook"), &admin[..]),
    };
    let (status, text) = client.send(Method::POST, &path, headers, None).await?;
    let is_repeated = matches!(act, Act::Cancel) && status == StatusCode::CONFLICT;
    let is_known = status != StatusCode::NOT_FOUND && status != StatusCode::SERVICE_UNAVAILABLE;
    assert!(
        status == StatusCode::OK || is_repeated || !is_known,
        "{act:?} of {id}: {status} {text}"
    );
    Ok(is_known)
}
