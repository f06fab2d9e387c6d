//! How a deposit ends: when it expires, and the late window in which its amount stays reserved.

use schemas::record::OrderCommandBody;
use schemas::{CloseReason, DepositId, UnixMicros, UnixSeconds};

use super::deposits::{Closed, DepositRow};
use super::{Broken, Effect, State};

impl State {
    /// A deposit's time is over: an open one expires, a closed one releases its amount.
    pub(super) fn deposit_due(
        &mut self,
        id: DepositId,
        chain_time: UnixSeconds,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        if self.transfers.holds(id) {
            return Ok(()); // Neither expired nor given to another while a transfer for it waits.
        }
        let row = self.deposits.named(id)?;
        if row.is_open() {
            self.close_deposit(row, CloseReason::Expired, chain_time, now, effects)
        } else {
            self.deposits.remove(id)
        }
    }

    /// Closes a deposit and keeps its amount for the late window.
    pub(super) fn close_deposit(
        &mut self,
        mut row: DepositRow,
        reason: CloseReason,
        chain_time: UnixSeconds,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        let id = row.id;
        // What was replaced may still be paid.
        let closes = row.is_open() || (row.takes() && reason == CloseReason::Settled);
        invariant!(2, closes, "deposit {id} is closed as {reason} a second time");
        let in_time = reason != CloseReason::Expired || row.expires_at < chain_time;
        invariant!(8, in_time, "deposit {id} would expire at {chain_time}, before its deadline");
        let release_at = chain_time.plus(i64::from(row.late_window_seconds));
        row.closed = Some(Closed { reason, release_at });
        row.updated_at = row.updated_at.next(now);
        self.publish_deposit(row, effects)?;
        if reason != CloseReason::Settled {
            let closed = OrderCommandBody::DepositClosed { slot: row.slot, reason };
            Self::command_order(effects, row.order, now, closed);
        }
        Ok(())
    }
}
