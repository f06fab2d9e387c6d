//! Transfers that operators attach to orders.

use schemas::TransferStatus;
use schemas::record::{DepositCommand, DepositCommandBody, OrderCommand, OrderCommandBody};

use crate::machine_model::chain::WALLETS;
use crate::machine_model::ledger::Ledger;
use crate::machine_model::violation::{Violation, holds};

impl Ledger<'_> {
    pub(super) fn note_attach(&mut self, command: &DepositCommand) {
        if let DepositCommandBody::Attach(attach) = &command.body {
            self.attached.insert((attach.transfer.transfer_id, command.order_id));
        }
    }

    /// Invariant 2: the transfer was attached to this order by an operator; it is unknown and not from an own wallet,
    /// or already pays the order. Invariant 3: it is in the chain, unless this is a repetition.
    pub(super) fn check_attach(&mut self, command: &OrderCommand) -> Result<(), Violation> {
        let OrderCommandBody::Attach(attach, _) = &command.body else { return Ok(()) };
        let (id, order) = (attach.transfer_id, command.order_id);
        let by_operator = self.attached.contains(&(id, order));
        holds!(2, by_operator, "{attach:?} asks {order}, and no operator attached it");
        let payment = self.payments.get(&id);
        let Some(transfer) = payment.and_then(|payment| self.transfers.get(payment)) else {
            return Err(Violation { invariant: 2, text: format!("never seen: {attach:?}") });
        };
        let seen = &transfer.observation;
        let is_unknown = transfer.status == TransferStatus::NoMatchedDeposit
            && !WALLETS.contains(&seen.from_address)
            && self.is_free_for(transfer, order);
        // A lane may repeat the request until the reply is read, an operator even later.
        let is_paid_by_it = transfer.order_id == Some(order);
        holds!(2, is_unknown || is_paid_by_it, "{order} is asked by {transfer:?}");
        let is_same = (attach.value, attach.wallet_address) == (seen.value, seen.to_address);
        holds!(2, is_same, "{attach:?} is not {transfer:?}");
        let block = self.included.get(&seen.payment()).copied().flatten();
        let is_new = self.attaching.insert(id, order) != Some(order);
        let changes_nothing = is_paid_by_it || !is_new;
        holds!(3, block.is_some() || changes_nothing, "{attach:?} asks to pay, and is in no block");
        Ok(())
    }
}
