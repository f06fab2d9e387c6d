//! Changes that requests make. A command is written to the log. For a command about an order, its answer is awaited on
//! the feed, and the order's row written to the tables.

mod operators;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use log::{Log, NewRecord};
use runtime::Clock;
use runtime::traces::Kind;
use schemas::record::{CreateOrder, Order, OrderCommand, OrderCommandBody};
use schemas::{CommandId, OrderId, OrderStatus, Topic, UnixMicros};
use store::{Change, Store};
use tokio::time::{Instant, interval_at, sleep_until, timeout};
use uuid::Uuid;

use crate::error::{Answer, Refusal};
use crate::extract::Trace;
use crate::feed::{Audience, Subscription};
use crate::machine::catalog::{Catalog, Choice};
use crate::machine::creation::{Created, fresh_id};
use crate::machine::followed::{self, Followed};
use crate::machine::limit::{Limits, Rate};
use crate::machine::occasions::Occasions;
use crate::machine::outcome::{Awaited, Verdict, consider, open_deposit, payable};
use crate::machine::{creation, new_order};
use crate::view::{DepositView, PaymentView};
use crate::{Feed, Merchant, metrics};

/// Maximum wait for the log to accept a record, and for the answer to its command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait for the write of the row that the caller reads next; the write continues afterwards, and the projector
/// repeats it.
const ROW_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum wait for the tables to report the chains on which an order can be paid.
const OFFER_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which a create that awaits its first record also polls the tables, in case the record preceded the wait.
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Name space of installations. It can never change: ids of orders with an idempotency key follow from it.
const KEY_SPACE: Uuid = Uuid::from_u128(0x7f0c_2d0a_52f1_4f0e_9d53_2c41_7b1e_66aa);

/// Commands of one request. Their records carry its trace context.
#[derive(Clone)]
pub(crate) struct Commands {
    log: Arc<dyn Log>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    feed: Feed,
    catalog: Arc<Catalog>,
    /// Name space of this installation's idempotency keys.
    key_space: Uuid,
    unknown_url: Option<Arc<str>>,
    limits: Arc<Limits<OrderId>>,
    /// Create requests with unknown fields since the last log line.
    ignored: Arc<Occasions>,
    trace: Trace,
}

impl<S: Sync> FromRequestParts<S> for Commands
where
    Self: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let trace = parts.extensions.get().cloned().unwrap_or_default();
        Ok(Self { trace, ..Self::from_ref(state) })
    }
}

impl Commands {
    pub(crate) fn new(
        log: Arc<dyn Log>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        feed: Feed,
        catalog: Arc<Catalog>,
        merchant: &Merchant,
        installation: &str,
    ) -> Self {
        let key_space = Uuid::new_v5(&KEY_SPACE, installation.as_bytes());
        let unknown_url = merchant.unknown_transfer_webhook_url.as_deref().map(Arc::from);
        let limits = Arc::new(Limits::new(Rate::LINK));
        let ignored = Arc::default();
        let trace = Trace::default();
        Self { log, store, clock, feed, catalog, key_space, unknown_url, limits, ignored, trace }
    }

    /// Creates an order (spec 4.1). Returns when its command is durable and, unless the tables are
    /// slow or away, its row can be read.
    ///
    /// Requests with the same idempotency key and body get the same order; another body is refused. The processor
    /// decides which of several concurrent ones created it, so its first record is awaited before its row is written.
    pub(crate) async fn create(&self, body: &[u8], key: Option<&str>) -> Answer<Created> {
        let now = self.clock.now();
        let expires_at = now.seconds().plus(self.catalog.ttl_seconds());
        let create = new_order::parse(body, expires_at)?;
        let _span = self.trace.begin("create", Kind::Internal);
        if let Some(choice) = creation::fixed(&create) {
            return self.create_fixed(create, choice, key, now).await;
        }
        let order = if let Some(key) = key {
            let order_id = self.keyed_id(key);
            let mut records = self.listen(order_id, Audience::Merchant)?;
            if let Some(row) = self.store.order(order_id).await? {
                creation::repeat(&create, &row.order)?;
                return Ok(Created::before(row.order));
            }
            self.catalog.check_new(&create)?;
            self.send_create(create.clone(), order_id, now).await?;
            let order = self.first_record(order_id, &mut records, |_| Verdict::Done).await;
            metrics::command("create", order.is_ok());
            let order = order?;
            creation::repeat(&create, &order)?;
            order
        } else {
            self.catalog.check_new(&create)?;
            self.send_create(create, OrderId(fresh_id(now)), now).await?
        };
        self.write_row(&order).await;
        Ok(Created::now(order))
    }

    /// Logs that a create request had unknown fields; once a minute at most.
    pub(crate) fn note_ignored(&self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        if let Some(count) = self.ignored.occurred(self.clock.now().seconds()) {
            let fields = names.join(", ");
            tracing::warn!(
                count,
                fields,
                "requests to create an order have fields that are ignored"
            );
        }
    }

    /// Creates an order with one fixed chain and coin. Returns when its deposit is open. If the wallet's lane opens
    /// none, the request is refused, although the order exists; a repeat with its key asks again while it is pending.
    async fn create_fixed(
        &self,
        mut create: CreateOrder,
        choice: Choice,
        key: Option<&str>,
        now: UnixMicros,
    ) -> Answer<Created> {
        let id = key.map_or_else(|| OrderId(fresh_id(now)), |key| self.keyed_id(key));
        let mut records = self.listen(id, Audience::Merchant)?;
        let known = match key {
            Some(_) => self.store.order(id).await?.map(|row| row.order),
            None => None,
        };
        if let Some(order) = known {
            creation::repeat(&create, &order)?;
            match payable(&order, choice) {
                Verdict::Done => return Ok(Created::before(order)),
                Verdict::Refused(refusal @ Refusal::NotPending) => return Err(refusal),
                // A deposit that was refused earlier may open now.
                Verdict::Refused(_) | Verdict::Wait => {}
            }
            // Not as a customer's choice, whose amount is raised: the shop shows the price itself.
            let request = self.catalog.payment(id, choice, order.amount, &self.followed().await)?;
            let body = OrderCommandBody::ChoosePayment(request);
            let order = self.command(id, Awaited::Payment, body).await?;
            return Ok(Created::before(Arc::unwrap_or_clone(order)));
        }
        self.catalog.check_ends(&create)?;
        let request = self.catalog.payment(id, choice, create.amount, &self.followed().await)?;
        create.payment = Some(request);
        self.send_create(create.clone(), id, now).await?;
        let order = self.first_record(id, &mut records, |order| payable(order, choice)).await;
        metrics::command("create", !matches!(order, Err(Refusal::MaybeCreated)));
        let order = order?;
        creation::repeat(&create, &order)?;
        self.write_row(&order).await;
        Ok(Created::now(order))
    }

    fn keyed_id(&self, key: &str) -> OrderId {
        OrderId(Uuid::new_v5(&self.key_space, key.as_bytes()))
    }

    /// Chains to offer, from the tables. If they fail or do not answer in time, every chain is offered: the wallet's
    /// lane checks again before it opens a deposit.
    async fn followed(&self) -> Followed {
        match timeout(OFFER_TIMEOUT, self.store.chains()).await {
            Ok(Ok(chains)) => Followed::new(chains, self.clock.now().seconds()),
            Ok(Err(_)) | Err(_) => Followed::Unknown,
        }
    }

    /// Sends the create command and returns the order as the processor will record it. The api may write that row
    /// first, because both rows are equal. After a failed write the order may exist nevertheless.
    async fn send_create(
        &self,
        create: CreateOrder,
        id: OrderId,
        now: UnixMicros,
    ) -> Answer<Order> {
        let first_version = self.log.incarnation().0.max(create.first_version);
        let create = CreateOrder { first_version, ..create };
        let command_id = Some(CommandId(fresh_id(now)));
        let body = OrderCommandBody::Create(create.clone());
        let command = OrderCommand { order_id: id, command_id, issued_at: now, body };
        let order = create.first_record(&command);
        match self.produce(vec![self.order_record(&command)?]).await {
            Ok(()) => Ok(order),
            Err(_) => Err(Refusal::MaybeCreated),
        }
    }

    /// Waits for the first record of an order that answers its create. The feed may have passed the record before this
    /// request subscribed, and its row may not be written yet, so the tables are polled too.
    async fn first_record(
        &self,
        id: OrderId,
        records: &mut Subscription,
        consider: impl Fn(&Order) -> Verdict,
    ) -> Answer<Order> {
        let now = Instant::now();
        let mut poll = interval_at(now + STORE_POLL_INTERVAL, STORE_POLL_INTERVAL);
        loop {
            let order = tokio::select! {
                record = records.next() => {
                    record.map(Arc::unwrap_or_clone).ok_or(Refusal::MaybeCreated)?
                }
                // A failed read does not end the wait for the record.
                _ = poll.tick() => match self.store.order(id).await {
                    Ok(Some(row)) => row.order,
                    Ok(None) | Err(_) => continue,
                },
                () = sleep_until(now + ANSWER_TIMEOUT) => return Err(Refusal::MaybeCreated),
            };
            match consider(&order) {
                Verdict::Wait => {}
                Verdict::Done => return Ok(order),
                Verdict::Refused(refusal) => {
                    // So that a repeated request finds the order in the tables.
                    self.write_row(&order).await;
                    return Err(refusal);
                }
            }
        }
    }

    /// Opens a deposit for the customer's choice, or finds the one that is open.
    pub(crate) async fn choose_payment(&self, id: OrderId, choice: Choice) -> Answer<PaymentView> {
        let mut order = self.pending_order(id).await?;
        // The order ends once a chain confirms this. Nobody is asked for a payment that would be late.
        if self.clock.now().seconds() > order.expires_at {
            return Err(Refusal::NotPending);
        }
        // An open deposit is returned without a command: a page that repeats its request must not fill the log.
        if open_deposit(&order, choice).is_none() {
            let request = self.catalog.chosen(&order, choice, &self.followed().await)?;
            let body = OrderCommandBody::ChoosePayment(request);
            self.limit(id)?;
            order = self.command(id, Awaited::Payment, body).await?;
        }
        let chains = self.store.chains().await?;
        let deposit = open_deposit(&order, choice);
        if deposit.is_some_and(|deposit| followed::is_stopped(&chains, deposit)) {
            return Err(Refusal::NotFollowed);
        }
        let view = deposit.and_then(|deposit| {
            let view = DepositView::of_order(&order, deposit, &chains)?;
            Some(PaymentView::new(&order, view, deposit))
        });
        view.ok_or_else(|| {
            tracing::error!(order.id = %id, "an open deposit has no id or no value");
            Refusal::Internal
        })
    }

    /// Cancels a pending order for its customer, unless a payment for it was seen.
    pub(crate) async fn cancel(&self, order_id: OrderId) -> Answer<Arc<Order>> {
        if !self.pending_order(order_id).await?.candidates.is_empty() {
            return Err(Refusal::PaymentSeen);
        }
        self.limit(order_id)?;
        self.command(order_id, Awaited::Cancel, OrderCommandBody::Cancel).await
    }

    /// The order of a checkout link, if it is pending. No status reverts to pending, so a stale row with another status
    /// is reliable too.
    async fn pending_order(&self, order_id: OrderId) -> Answer<Arc<Order>> {
        let order = self.store.order(order_id).await?.ok_or(Refusal::OrderNotFound)?.order;
        let is_pending = order.status == OrderStatus::Pending;
        if is_pending { Ok(Arc::new(order)) } else { Err(Refusal::NotPending) }
    }

    /// Counts a request of a link's holder that costs more than one read, and refuses it over the limit.
    pub(crate) fn limit(&self, order_id: OrderId) -> Answer<()> {
        let admitted = self.limits.admit(order_id, self.clock.now());
        if admitted { Ok(()) } else { Err(Refusal::TooMany) }
    }

    /// Sends a command and waits for the record that answers it.
    async fn command(
        &self,
        order_id: OrderId,
        awaited: Awaited,
        body: OrderCommandBody,
    ) -> Answer<Arc<Order>> {
        let command_id = CommandId(fresh_id(self.clock.now()));
        self.command_as(command_id, order_id, awaited, body).await
    }

    async fn command_as(
        &self,
        command_id: CommandId,
        order_id: OrderId,
        awaited: Awaited,
        body: OrderCommandBody,
    ) -> Answer<Arc<Order>> {
        let issued_at = self.clock.now();
        let command = OrderCommand { order_id, command_id: Some(command_id), issued_at, body };
        self.answered(command_id, order_id, awaited, self.order_record(&command)?).await
    }

    /// Writes the record of a command and waits for the record of its order that answers it.
    async fn answered(
        &self,
        command_id: CommandId,
        order_id: OrderId,
        awaited: Awaited,
        command: NewRecord,
    ) -> Answer<Arc<Order>> {
        let _span = self.trace.begin(awaited.name(), Kind::Internal);
        let mut records = self.listen(order_id, awaited.audience())?;
        self.produce(vec![command]).await?;
        let answer = timeout(ANSWER_TIMEOUT, async {
            while let Some(record) = records.next().await {
                match consider(awaited, command_id, &record) {
                    Verdict::Wait => {}
                    Verdict::Done => return Some(Ok(record)),
                    Verdict::Refused(refusal) => return Some(Err(refusal)),
                }
            }
            None
        });
        let answer = answer.await.ok().flatten();
        metrics::command(awaited.name(), answer.is_some());
        let order = answer.unwrap_or(Err(Refusal::Busy))?;
        self.write_row(&order).await;
        Ok(order)
    }

    fn listen(&self, order_id: OrderId, audience: Audience) -> Answer<Subscription> {
        self.feed.subscribe(order_id, audience).ok_or(Refusal::Busy)
    }

    fn order_record(&self, command: &OrderCommand) -> Answer<NewRecord> {
        let key = command.order_id.to_string();
        let partition = self.log.layout().order(&key);
        Ok(NewRecord::encode(Topic::OrdersCommands, partition, key, command)?)
    }

    /// Writes records. After a timeout they may be on the log nevertheless.
    async fn produce(&self, records: Vec<NewRecord>) -> Answer<()> {
        let traced = records.into_iter().map(|record| record.traced(self.trace.parent()));
        let written = self.log.produce(traced.collect());
        match timeout(ANSWER_TIMEOUT, written).await {
            Ok(written) => Ok(written?),
            Err(_) => {
                tracing::warn!(timeout = ?ANSWER_TIMEOUT, "a request failed: the log did not answer in time");
                Err(Refusal::Internal)
            }
        }
    }

    /// Lets the caller read its own write. The order is on the log and the projector writes the same
    /// row, so no request fails because the store cannot be written.
    async fn write_row(&self, order: &Order) {
        let (store, order) = (self.store.clone(), order.clone());
        // A slow write continues after the answer, because the customer may follow the checkout link at once and needs
        // the row.
        let written = tokio::spawn(async move {
            let order_id = order.order_id;
            if let Err(error) = store.apply(vec![Change::Order(order)]).await {
                tracing::warn!(%error, order.id = %order_id, "cannot write the row of an order; the projector will");
            }
        });
        // The answer does not depend on the write, which logs failures.
        drop(timeout(ROW_TIMEOUT, written).await);
    }
}

#[cfg(test)]
mod tests;
