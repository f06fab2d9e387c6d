//! Commands of operators. Each has an audit entry, which is written first: no action goes unrecorded.

use std::sync::Arc;

use log::{NewRecord, OpenAlerts};
use schemas::record::{
    AttachTransfer, AuditEntry, DepositCommand, DepositCommandBody, EndedOrder, Order,
    OrderCommandBody,
};
use schemas::{AuditAction, CommandId, OrderId, OrderStatus, Topic, TransferId};
use store::OrderRow;

use super::{Commands, fresh_id};
use crate::alerts::AlertEnd;
use crate::audit::{self, Asker};
use crate::auth::Operator;
use crate::error::{Answer, Invalid, Refusal};
use crate::letters::{Draft, letter_at};
use crate::machine::attach::{self, Request};
use crate::machine::outcome::Awaited;
use crate::machine::resend;
use crate::stops::StopRequest;

impl Commands {
    async fn row(&self, order_id: OrderId) -> Answer<OrderRow> {
        self.store.order(order_id).await?.ok_or(Refusal::ResourceNotFound)
    }

    /// Copy of an ended order, for a processor that has forgotten it; `None` for a pending one. Its version is at
    /// least every version that a restore of the log has lost.
    fn ended(&self, order: &Order) -> EndedOrder {
        let version = order.version.max(self.log.incarnation().0);
        let has_ended = order.status != OrderStatus::Pending;
        has_ended.then(|| Box::new(Order { version, ..order.clone() }))
    }

    /// Cancels a pending order for an operator, under the customer's condition: no payment for it is seen.
    pub(crate) async fn cancel_by(&self, by: &Operator, order_id: OrderId) -> Answer<OrderRow> {
        let row = self.row(order_id).await?;
        // An ended order never becomes pending again, and the processor may have forgotten it.
        if row.order.status != OrderStatus::Pending {
            return Err(Refusal::NotPending);
        }
        let (action, body) = (AuditAction::CancelOrder, OrderCommandBody::Cancel);
        let order = self.operate(by, action, order_id, Awaited::AdminCancel, body).await?;
        tracing::info!(order.id = %order_id, operator = %by.name, "an operator cancelled the order");
        Ok(OrderRow { order: Arc::unwrap_or_clone(order), ..row })
    }

    /// Forces an order paid (spec 4.2).
    pub(crate) async fn mark_paid(&self, by: &Operator, order_id: OrderId) -> Answer<OrderRow> {
        let row = self.row(order_id).await?;
        let (action, body) =
            (AuditAction::MarkPaid, OrderCommandBody::MarkPaid(self.ended(&row.order)));
        let order = self.operate(by, action, order_id, Awaited::MarkPaid, body).await?;
        let operator = &by.name;
        tracing::info!(order.id = %order_id, %operator, "an operator marked the order paid");
        Ok(OrderRow { order: Arc::unwrap_or_clone(order), ..row })
    }

    /// Sends an order's status to the merchant again (spec 4.2).
    pub(crate) async fn resend_order(&self, by: &Operator, order_id: OrderId) -> Answer<()> {
        let row = self.row(order_id).await?;
        let body = OrderCommandBody::ResendWebhook(self.ended(&row.order));
        self.operate(by, AuditAction::ResendOrder, order_id, Awaited::Resend, body).await?;
        let operator = &by.name;
        tracing::info!(order.id = %order_id, %operator, "an operator resent the order's webhook");
        Ok(())
    }

    /// Resends the webhook of an unknown transfer (spec 4.2).
    pub(crate) async fn resend_transfer(&self, by: &Operator, id: TransferId) -> Answer<()> {
        let transfer = self.store.transfer(id).await?.ok_or(Refusal::ResourceNotFound)?;
        let now = self.clock.now();
        let url = self.unknown_url.as_deref();
        let delivery = resend::of_transfer(&transfer, url, fresh_id(now), now)?;
        let operator = &by.name;
        let entry = Asker::from(by).entry(AuditAction::ResendTransfer, now);
        self.audit(AuditEntry { transfer_id: Some(id), ..entry }).await?;
        let key = delivery.key();
        let partition = self.log.layout().webhook(&key);
        let record = NewRecord::encode(Topic::WebhooksDispatch, partition, key, &delivery)?;
        self.produce(vec![record]).await?;
        tracing::info!(transfer.id = %id, %operator, "an operator resent the transfer's webhook");
        Ok(())
    }

    /// Pays an order with an unknown transfer, and returns the order. The transfer's lane and the order both have to
    /// accept.
    pub(crate) async fn attach(
        &self,
        by: &Operator,
        id: TransferId,
        body: &[u8],
    ) -> Answer<OrderRow> {
        let transfer = self.store.transfer(id).await?.ok_or(Refusal::ResourceNotFound)?;
        let Request { order_id, accept_less } = attach::parse(body)?;
        let row = self.row(order_id).await?;
        attach::check(&transfer, &row.order, accept_less)?;
        let now = self.clock.now();
        let command_id = CommandId(fresh_id(now));
        let wallet_address = transfer.observation.to_address;
        let blockchain = transfer.blockchain;
        let order = self.ended(&row.order);
        let attach = AttachTransfer { command_id, transfer, order };
        let body = DepositCommandBody::Attach(attach.into());
        let command =
            DepositCommand { order_id, slot: 0, blockchain, wallet_address, issued_at: now, body };
        let lane = self.log.layout().lane(blockchain, &wallet_address);
        let key = wallet_address.to_string();
        let record = NewRecord::encode(Topic::DepositsCommands, lane, key, &command)?;
        self.audit(AuditEntry {
            order_id: Some(order_id),
            transfer_id: Some(id),
            command_id: Some(command_id),
            ..Asker::from(by).entry(AuditAction::AttachTransfer, now)
        })
        .await?;
        let order = self.answered(command_id, order_id, Awaited::Attach, record).await?;
        let operator = &by.name;
        tracing::info!(
            order.id = %order_id, transfer.id = %id, %operator, "an operator attached the transfer to the order"
        );
        Ok(OrderRow { order: Arc::unwrap_or_clone(order), ..row })
    }

    pub(crate) async fn resolve_alert(
        &self,
        by: &Operator,
        alert_id: &str,
        reason: Option<String>,
    ) -> Answer<()> {
        if let Some(reason) = &reason {
            AlertEnd::check_reason(reason).map_err(|problem| Invalid::new("reason", problem))?;
        }
        let log = self.log.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut open = OpenAlerts::default();
            open.refresh(&*log).map(|()| open)
        });
        let open = read.await.map_err(|_| Refusal::Internal)??;
        let end = AlertEnd::of(&open, alert_id, reason).ok_or(Refusal::ResourceNotFound)?;
        let now = self.clock.now();
        let asker = by.into();
        self.produce(vec![end.audit(&asker, now)?]).await?;
        self.produce(vec![end.record(&asker, now)?]).await?;
        tracing::info!(alert.id = alert_id, operator = %by.name, "an operator resolved an alert");
        Ok(())
    }

    /// Stops payments, or ends a stop: sends the command to each lane concerned. It is in force once the lanes have
    /// read it.
    pub(crate) async fn stop(&self, by: &Operator, request: &StopRequest) -> Answer<()> {
        if let Some(address) = request.address_to_stop() {
            let chains = self.store.chains().await?;
            let covered: Vec<_> = request.blockchains().collect();
            let lanes = chains.iter().filter(|lane| covered.contains(&lane.blockchain));
            let mut watched = lanes.flat_map(|lane| &lane.watched);
            let is_watched =
                watched.any(|of| of.wallet_address == address || of.contracts.contains(&address));
            if !is_watched {
                let on = request.chain().map_or("any chain".to_owned(), |of| of.to_string());
                return Err(Invalid::new("subject", format!("is not watched on {on}")).into());
            }
        }
        let now = self.clock.now();
        self.produce(vec![request.audit(&by.into(), now)?]).await?;
        self.produce(request.commands(&self.log.layout(), now)?).await?;
        let (subject, operator) = (request.subject(), &by.name);
        if request.to_end().is_none() {
            tracing::warn!(subject, %operator, "an operator stopped payments");
        } else {
            tracing::warn!(subject, %operator, "an operator ended a stop of payments");
        }
        Ok(())
    }

    /// Appends a dead letter's record again, if the log has it at the letter's position.
    pub(crate) async fn replay_letter(&self, by: &Operator, number: i64) -> Answer<()> {
        let (log, asker, now) = (self.log.clone(), Asker::from(by), self.clock.now());
        let read = move || -> Answer<Draft> {
            let letter = letter_at(&*log, number)?.ok_or(Refusal::ResourceNotFound)?;
            let draft = Draft::of(letter, &asker, now).map_err(Refusal::NotPutBack)?;
            draft.compared(&*log, false)?.map_err(Refusal::NotPutBack)
        };
        let draft = tokio::task::spawn_blocking(read).await.map_err(|_| Refusal::Internal)??;
        for record in draft.records() {
            self.produce(vec![record]).await?;
        }
        tracing::info!(letter = number, operator = %by.name, "an operator put a dead letter back");
        Ok(())
    }

    /// Sends an operator's command and waits for the record that answers it.
    async fn operate(
        &self,
        by: &Operator,
        action: AuditAction,
        order_id: OrderId,
        awaited: Awaited,
        body: OrderCommandBody,
    ) -> Answer<Arc<Order>> {
        let now = self.clock.now();
        let command_id = CommandId(fresh_id(now));
        let entry = Asker::from(by).entry(action, now);
        let entry = AuditEntry { order_id: Some(order_id), command_id: Some(command_id), ..entry };
        self.audit(entry).await?;
        self.command_as(command_id, order_id, awaited, body).await
    }

    async fn audit(&self, entry: AuditEntry) -> Answer<()> {
        self.produce(vec![audit::record(&entry)?]).await
    }
}
