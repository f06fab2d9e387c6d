//! End of a deposit: its expiry, and the late window in which its amount stays reserved.

use schemas::record::{Head, OrderCommandBody};
use schemas::{CloseReason, DepositId};

use super::deposits::{Closed, DepositRow};
use super::{Broken, State};

impl State {
    /// Handles a deposit that is due: an awaited one expires once the confirmed time has passed its deadline, any other
    /// releases its amount.
    pub(super) fn deposit_due(&mut self, id: DepositId, head: &Head) -> Result<(), Broken> {
        if self.transfers.holds(id) {
            return Ok(()); // Neither expired nor given to another while a transfer for it waits.
        }
        let row = self.deposits.named(id)?;
        if !row.is_awaited() {
            return self.deposits.remove(id);
        }
        // A reorganisation of unconfirmed blocks may still bring a transfer in time.
        let confirmed = head.confirmed_time(row.value);
        if confirmed.is_none_or(|time| time <= row.expires_at) {
            return Ok(());
        }
        self.close_deposit(row, CloseReason::Expired)
    }

    /// Closes a deposit. Its amount stays reserved for the late window, that of a replaced one until its deadline.
    pub(super) fn close_deposit(
        &mut self,
        mut row: DepositRow,
        reason: CloseReason,
    ) -> Result<(), Broken> {
        let id = row.id;
        let closes = row.is_open()
            || (row.is_replaced() && reason != CloseReason::Replaced)
            // A settle that the order accepted after the close: a late payment, or a candidate of an order marked paid.
            || (reason == CloseReason::Settled && !row.is_settled());
        invariant!(2, closes, "deposit {id} is closed as {reason} a second time");
        let chain_time = self.time();
        let is_over = reason != CloseReason::Expired || row.expires_at < chain_time;
        invariant!(8, is_over, "deposit {id} expires at {chain_time}, before its end");
        let released_at = chain_time.plus(i64::from(row.late_window_seconds));
        let is_replaced = reason == CloseReason::Replaced;
        let release_at = if is_replaced { row.expires_at } else { released_at };
        row.closed = Some(Closed { reason, release_at });
        row.updated_at = row.updated_at.next(self.now);
        self.publish_deposit(row)?;
        if reason != CloseReason::Settled {
            let closed = OrderCommandBody::DepositClosed { slot: row.slot, reason };
            self.command_order(row.order, closed);
        }
        Ok(())
    }
}
