//! Runs what the machine decided: loads rows, sends commands, waits for their answers on the feed.

use std::sync::Arc;
use std::time::Duration;

use log::Envelope;
use log::{Log, NewRecord};
use runtime::Clock;
use schemas::record::{Delivery, Order, OrderCommand, OrderCommandBody};
use schemas::{CommandId, OrderId, OrderStatus, Topic, TransferId, UnixMicros};
use store::{Change, OrderRow, Store};
use tokio::time::{Instant, interval_at, sleep_until, timeout};
use uuid::{NoContext, Timestamp, Uuid};

use crate::error::Refusal;
use crate::feed::Subscription;
use crate::machine::catalog::{Catalog, Choice};
use crate::machine::new_order::NewOrder;
use crate::machine::outcome::{Asked, Verdict, consider, open_deposit};
use crate::machine::{creation, resend};
use crate::view::{DepositView, PaymentView};
use crate::{Config, Feed, metrics};

/// How long a request waits for the answer to its command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a repeated create looks into the store for an order whose record it may have missed.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// Name space of the ids of orders with an idempotency key. Fixed for ever: ids follow from it.
const KEY_SPACE: Uuid = Uuid::from_u128(0x7f0c_2d0a_52f1_4f0e_9d53_2c41_7b1e_66aa);

/// The trace that a request belongs to, handed on to the records it causes.
pub(crate) type Trace<'a> = Option<&'a [u8]>;

/// The outside of the api: log, store, clock and feed, with what configuration says.
pub(crate) struct Runner {
    pub(crate) catalog: Catalog,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    feed: Feed,
    /// Name space of this merchant's idempotency keys.
    key_space: Uuid,
    unknown_transfer_url: Option<String>,
}

impl Runner {
    pub(crate) fn new(
        config: &Config,
        log: Arc<dyn Log>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        feed: Feed,
    ) -> Self {
        Self {
            catalog: Catalog::new(config),
            log,
            store,
            clock,
            feed,
            key_space: Uuid::new_v5(&KEY_SPACE, config.merchant.name.as_bytes()),
            unknown_transfer_url: config.merchant.unknown_transfer_webhook_url.clone(),
        }
    }

    /// Creates an order (spec 4.1). Returns when its command is durable and, if the store can, its
    /// row can be read.
    pub(crate) async fn create(&self, new: NewOrder, trace: Trace<'_>) -> Result<Order, Refusal> {
        let now = self.clock.now();
        let (order_id, command_id) = (OrderId(fresh_id(now)), CommandId(fresh_id(now)));
        let made = creation::create(new, order_id, command_id, now, &self.catalog)?;
        self.send(&made.command, trace).await?;
        self.show(&made.order).await;
        Ok(made.order)
    }

    /// Creates an order once for each idempotency key. Which of several concurrent requests made it
    /// is the processor's to say, so its first record is waited for, and no row is written before
    /// that.
    pub(crate) async fn create_once(
        &self,
        new: NewOrder,
        key: &str,
        trace: Trace<'_>,
    ) -> Result<Order, Refusal> {
        let order_id = OrderId(Uuid::new_v5(&self.key_space, key.as_bytes()));
        let mut records = self.listen(order_id)?;
        if let Some(row) = self.store.order(order_id).await? {
            creation::repeat(&new, &row.order)?;
            return Ok(row.order);
        }
        let now = self.clock.now();
        let command_id = CommandId(fresh_id(now));
        let made = creation::create(new.clone(), order_id, command_id, now, &self.catalog)?;
        self.send(&made.command, trace).await?;
        let order = self.first_record(order_id, &mut records).await;
        metrics::command("create", order.is_ok());
        let order = order?;
        creation::repeat(&new, &order)?;
        self.show(&order).await;
        Ok(order)
    }

    /// Any record of an order. The feed may have brought it before this request listened, to a
    /// process that has not written it to the store yet; therefore the store is looked into again
    /// and again.
    async fn first_record(
        &self,
        order_id: OrderId,
        records: &mut Subscription,
    ) -> Result<Order, Refusal> {
        let now = Instant::now();
        let mut look = interval_at(now + LOOK_PERIOD, LOOK_PERIOD);
        loop {
            tokio::select! {
                record = records.next() => {
                    return record.map(Arc::unwrap_or_clone).ok_or(Refusal::Busy);
                }
                _ = look.tick() => {
                    if let Some(row) = self.store.order(order_id).await? {
                        return Ok(row.order);
                    }
                }
                () = sleep_until(now + ANSWER_TIMEOUT) => return Err(Refusal::Busy),
            }
        }
    }

    /// Opens a deposit for the customer's choice, or finds the one that stands.
    pub(crate) async fn choose_payment(
        &self,
        order_id: OrderId,
        choice: Choice,
        trace: Trace<'_>,
    ) -> Result<PaymentView, Refusal> {
        let order = self.pending(order_id).await?;
        let body = OrderCommandBody::ChoosePayment(self.catalog.chosen(&order, choice)?);
        let order = self.command(order_id, Asked::Payment, body, trace).await?;
        let chains = self.store.chains().await?;
        let deposit = open_deposit(&order, choice)
            .and_then(|deposit| DepositView::of_order(&order, deposit, &chains));
        let contract = self.catalog.contract(choice);
        deposit
            .zip(contract)
            .map(|(deposit, contract)| PaymentView::new(&order, deposit, contract.address))
            .ok_or_else(|| {
                tracing::error!(order.id = %order_id, "an open deposit has no id or no value");
                Refusal::Internal
            })
    }

    /// Ends a pending order for its customer.
    pub(crate) async fn cancel(
        &self,
        order_id: OrderId,
        trace: Trace<'_>,
    ) -> Result<Arc<Order>, Refusal> {
        self.pending(order_id).await?;
        self.command(order_id, Asked::Cancel, OrderCommandBody::Cancel, trace).await
    }

    /// Forces an order paid (spec 4.2).
    pub(crate) async fn mark_paid(
        &self,
        order_id: OrderId,
        trace: Trace<'_>,
    ) -> Result<OrderRow, Refusal> {
        let row = self.store.order(order_id).await?.ok_or(Refusal::ResourceNotFound)?;
        let order = self.command(order_id, Asked::MarkPaid, OrderCommandBody::MarkPaid, trace);
        let order = Arc::unwrap_or_clone(order.await?);
        tracing::info!(order.id = %order_id, "an operator marked the order paid");
        Ok(OrderRow { order, ..row })
    }

    /// Sends an order's status to the merchant again (spec 4.2).
    pub(crate) async fn resend_order(
        &self,
        order_id: OrderId,
        trace: Trace<'_>,
    ) -> Result<(), Refusal> {
        let row = self.store.order(order_id).await?.ok_or(Refusal::ResourceNotFound)?;
        let now = self.clock.now();
        let delivery = resend::of_order(&row.order, fresh_id(now), now)?;
        self.dispatch(&delivery, trace).await?;
        tracing::info!(order.id = %order_id, "an operator resent the order's webhook");
        Ok(())
    }

    /// Tells the merchant of a transfer that pays nothing again (spec 4.2).
    pub(crate) async fn resend_transfer(
        &self,
        transfer_id: TransferId,
        trace: Trace<'_>,
    ) -> Result<(), Refusal> {
        let transfer = self.store.transfer(transfer_id).await?.ok_or(Refusal::ResourceNotFound)?;
        let now = self.clock.now();
        let url = self.unknown_transfer_url.as_deref();
        let delivery = resend::of_transfer(&transfer, url, fresh_id(now), now)?;
        self.dispatch(&delivery, trace).await?;
        tracing::info!(transfer.id = %transfer_id, "an operator resent the transfer's webhook");
        Ok(())
    }

    /// The order of a checkout link, while it can still change. Terminal states stay, so a row that
    /// shows one is right, however old it is.
    async fn pending(&self, order_id: OrderId) -> Result<Order, Refusal> {
        let row = self.store.order(order_id).await?.ok_or(Refusal::OrderNotFound)?;
        if row.order.status == OrderStatus::Pending {
            Ok(row.order)
        } else {
            Err(Refusal::NotPending)
        }
    }

    /// Sends a command and waits for the record that answers it.
    async fn command(
        &self,
        order_id: OrderId,
        asked: Asked,
        body: OrderCommandBody,
        trace: Trace<'_>,
    ) -> Result<Arc<Order>, Refusal> {
        let mut records = self.listen(order_id)?;
        let now = self.clock.now();
        let command_id = CommandId(fresh_id(now));
        let command = OrderCommand { order_id, command_id: Some(command_id), issued_at: now, body };
        self.send(&command, trace).await?;
        let answer = timeout(ANSWER_TIMEOUT, async {
            while let Some(record) = records.next().await {
                match consider(asked, command_id, &record) {
                    Verdict::Wait => {}
                    Verdict::Done => return Some(Ok(record)),
                    Verdict::Refused(refusal) => return Some(Err(refusal)),
                }
            }
            None
        });
        let answer = answer.await.ok().flatten();
        metrics::command(asked.name(), answer.is_some());
        let order = answer.unwrap_or(Err(Refusal::Busy))?;
        self.show(&order).await;
        Ok(order)
    }

    fn listen(&self, order_id: OrderId) -> Result<Subscription, Refusal> {
        self.feed.subscribe(order_id).ok_or(Refusal::Busy)
    }

    async fn send(&self, command: &OrderCommand, trace: Trace<'_>) -> Result<(), Refusal> {
        let key = command.order_id.to_string();
        let origin = command.command_id.map(|id| format!("api/{id}")).unwrap_or_default();
        let partition = self.log.layout().order(&key);
        let mut envelope = Envelope::from_outside(origin, command.issued_at, trace);
        let record = envelope.wrap(Topic::OrdersCommands, partition, key, command)?;
        self.produce(record).await
    }

    async fn dispatch(&self, delivery: &Delivery, trace: Trace<'_>) -> Result<(), Refusal> {
        let key = delivery.key();
        let origin = delivery.event_id.clone();
        let partition = self.log.layout().webhook(&key);
        let mut envelope = Envelope::from_outside(origin, delivery.emitted_at, trace);
        let record = envelope.wrap(Topic::WebhooksDispatch, partition, key, delivery)?;
        self.produce(record).await
    }

    async fn produce(&self, record: NewRecord) -> Result<(), Refusal> {
        Ok(self.log.produce(vec![record]).await?)
    }

    /// Lets the caller read its own write. The projector writes the same later, so a store that
    /// cannot write now is no reason to call what is on the log a failure.
    async fn show(&self, order: &Order) {
        if let Err(error) = self.store.apply(vec![Change::Order(order.clone())]).await {
            tracing::warn!(%error, order.id = %order.order_id, "the order is shown later");
        }
    }
}

/// A UUIDv7 of this moment.
fn fresh_id(now: UnixMicros) -> Uuid {
    let seconds = u64::try_from(now.seconds().0).unwrap_or_default();
    let nanos = u32::try_from(now.0.rem_euclid(1_000_000) * 1_000).unwrap_or_default();
    Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, nanos))
}

#[cfg(test)]
mod tests;
