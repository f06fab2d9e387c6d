//! Eviction of ended orders from memory and changelog, and their return. They stay in the tables: a
//! command for an order that may be forgotten carries the row read there.

pub use schemas::record::KEPT_SECONDS;
use schemas::record::{Order, OrderCommand};
use schemas::{DepositState, UnixSeconds};

use super::{Broken, OrderRow, State, is_awaited, past};

/// Maximum number of orders that one tick forgets: each is a record of the changelog.
const LEAVING_MAX: usize = 1000;

impl OrderRow {
    /// Time at which the order is forgotten; none while it is pending, or a lane has not reported the
    /// outcome of a deposit or a candidate.
    pub(super) fn leaves_at(&self) -> Option<UnixSeconds> {
        let waits = self.has_awaited_deposit() || self.may_be_paid_by_candidates();
        let has_ended = !self.is_pending() && !waits;
        let kept = KEPT_SECONDS.saturating_add(self.late_window_seconds.into());
        has_ended.then(|| self.order.updated_at.seconds().plus(kept))
    }

    /// The order that a command carries, if it is one that may have been forgotten.
    pub(super) fn remembered(command: &OrderCommand, order: &Order) -> Option<Self> {
        let mut row = Self::new(order.clone());
        // The order left memory after its last deposit was closed; its row in the tables may be older.
        for deposit in row.order.deposits.iter_mut().filter(|deposit| is_awaited(deposit)) {
            deposit.state = DepositState::Closed;
        }
        (!row.is_pending() && order.order_id == command.order_id).then_some(row)
    }
}

impl State {
    /// `true` if an order that this command created may be forgotten: another one ended more than a week after the
    /// command, and none is left that is due to leave before it. Without the second condition one end by a clock that
    /// was weeks ahead would stop every create for weeks.
    pub(super) fn may_be_forgotten(&self, create: &OrderCommand) -> bool {
        let leaving = &self.orders.index.leaving;
        let kept_until = create.issued_at.seconds().plus(KEPT_SECONDS);
        let latest = leaving.last().and_then(|(_, id)| self.orders.get(*id));
        let first = leaving.first().map(|(at, _)| *at);
        latest.is_some_and(|row| kept_until < row.order.updated_at.seconds())
            && first >= Some(kept_until)
    }

    /// Forgets ended orders whose time is past, at most [`LEAVING_MAX`].
    pub(super) fn forget(&mut self, now: UnixSeconds) -> Result<(), Broken> {
        let due: Vec<_> = past(&self.orders.index.leaving, now).take(LEAVING_MAX).collect();
        due.into_iter().try_for_each(|id| self.orders.remove(id))
    }
}
