//! Attaches transfers to orders for operators.

use std::sync::Arc;

use log::NewRecord;
use schemas::record::{
    AttachTransfer, AuditEntry, DepositCommand, DepositCommandBody, EndedOrder, Order,
};
use schemas::{AuditAction, CommandId, OrderStatus, Topic, TransferId};
use store::OrderRow;

use super::{Commands, fresh_id};
use crate::audit::Asker;
use crate::auth::Operator;
use crate::error::{Answer, Refusal};
use crate::machine::attach::{self, Request};
use crate::machine::outcome::Awaited;

impl Commands {
    /// Copy of an ended order, for a processor that has forgotten it; `None` for a pending one. Its version exceeds any
    /// that a restore has lost.
    pub(super) fn ended(&self, order: &Order) -> EndedOrder {
        let version = order.version.max(self.log.incarnation().0);
        let has_ended = order.status != OrderStatus::Pending;
        has_ended.then(|| Box::new(Order { version, ..order.clone() }))
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
}
