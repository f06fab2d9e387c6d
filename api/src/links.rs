//! Signed links for customers: to the checkout page, and back to the shop with proof of a status.

use std::sync::Arc;

use schemas::record::Order;
use schemas::{Secret, UnixSeconds, sign_checkout, sign_return};

/// Validity of a checkout link after its order's deadline, in seconds, so that the page can show the outcome.
const LINK_SECONDS: i64 = 24 * 3600;

/// Signs links of an installation.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    key: Secret,
    /// Public URL of the service, without a trailing slash.
    public_url: Option<Arc<str>>,
}

impl Links {
    pub(crate) fn new(key: Secret, public_url: Option<&str>) -> Self {
        Self { key, public_url: public_url.map(Arc::from) }
    }

    /// The checkout link of an order; none without a configured public URL.
    pub(crate) fn checkout(&self, order: &Order) -> Option<String> {
        let (url, id) = (self.public_url.as_deref()?, order.order_id);
        let end = order.expires_at.plus(LINK_SECONDS);
        Some(format!("{url}/checkout/{id}?exp={end}&sig={}", sign_checkout(&self.key, id, end)))
    }

    /// Proof of the status that an order has now: the time, and a MAC over order id, status and time.
    pub(crate) fn proof(&self, order: &Order, now: UnixSeconds) -> String {
        format!("{now}.{}", sign_return(&self.key, order.order_id, order.status, now))
    }
}
