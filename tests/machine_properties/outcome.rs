//! Conditions at the end of a play.

use oracle::machine_model::ledger::Ledger;
use oracle::machine_model::prediction::predict;
use oracle::machine_model::violation::Violation;
use schemas::TransferStatus;

use crate::play::Play;

impl Play {
    pub(crate) fn ledger(&self) -> Result<Ledger<'_>, Violation> {
        Ledger::of(&self.chains, &self.pipeline.delivered)
    }

    /// Checks the invariants over all outputs.
    pub(crate) fn check(&self) -> Result<Ledger<'_>, Violation> {
        let ledger = self.ledger()?;
        ledger.check_end()?;
        self.names.clone().add(&self.pipeline.delivered)?;
        self.pipeline.compare_with_undisturbed()?;
        let (deposits, transfers, orders) = self.pipeline.rows();
        if (deposits, transfers, orders) != (0, 0, 0) {
            let text = format!("{deposits} deposits, {transfers} transfers, {orders} orders kept");
            return Err(Violation { invariant: 6, text });
        }
        Ok(ledger)
    }

    /// Compares the outcomes with the model's prediction.
    pub(crate) fn compare_with_model(&self, ledger: &Ledger<'_>) -> Result<(), String> {
        let prediction = predict(&self.facts);
        let payment_of = |id| {
            ledger.transfers.iter().find(|(_, t)| t.transfer_id == id).map(|(payment, _)| *payment)
        };
        for (id, predicted) in &prediction.orders {
            let Some(order) = ledger.orders.get(id) else { return Err(format!("no order {id}")) };
            let payer = order.paid_by.and_then(payment_of);
            let mut deposits: Vec<_> =
                ledger.deposits.values().filter(|d| d.order_id == *id).collect();
            deposits.sort_by_key(|d| d.slot);
            let reserved: Vec<_> = deposits
                .iter()
                .map(|d| (d.blockchain, d.stablecoin, d.wallet_address, d.value))
                .collect();
            if (order.status, payer, &reserved)
                != (predicted.status, predicted.payer, &predicted.reserved)
            {
                return Err(format!("predicted {predicted:?}\nfor {order:?}\nwith {deposits:?}"));
            }
        }
        if prediction.transfers.len() != ledger.transfers.len() {
            return Err("another number of transfers".to_owned());
        }
        for (payment, predicted) in &prediction.transfers {
            let Some(transfer) = ledger.transfers.get(payment) else {
                return Err(format!("no transfer {payment:?}"));
            };
            let unknown = transfer.status == TransferStatus::NoMatchedDeposit;
            let reason = transfer.reason.filter(|_| unknown);
            if (transfer.status, transfer.order_id) != (predicted.status, predicted.order)
                || !reason.is_none_or(|reason| predicted.reasons.contains(&reason))
            {
                return Err(format!("predicted {predicted:?}\nfor {transfer:?}"));
            }
        }
        Ok(())
    }
}
