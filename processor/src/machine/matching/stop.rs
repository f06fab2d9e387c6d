//! The emergency stop: from its record to that of its end nothing that it covers is settled, and no deposit opens
//! there. What is confirmed meanwhile is for a person.

use schemas::record::StopScope;
use schemas::{Address, AlertKind, Stablecoin, UnixMicros};

use super::transfers::TransferRow;
use super::{Broken, Effect, State};

impl State {
    pub(super) fn stop(
        &mut self,
        scope: StopScope,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        if self.lane.stopped.contains(&scope) {
            return Ok(());
        }
        self.lane_mut().stopped.push(scope);
        self.report_stop("an operator stopped", scope, now, effects);
        self.publish_lane(now, effects)
    }

    pub(super) fn resume(
        &mut self,
        scope: StopScope,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        if !self.lane.stopped.contains(&scope) {
            return Ok(());
        }
        self.lane_mut().stopped.retain(|of| *of != scope);
        self.report_stop("an operator ended the stop of", scope, now, effects);
        self.publish_lane(now, effects)
    }

    /// A chain that nobody follows has nothing to report.
    fn report_stop(
        &self,
        what: &str,
        scope: StopScope,
        now: UnixMicros,
        effects: &mut Vec<Effect>,
    ) {
        if self.lane.head.is_none() {
            return;
        }
        let of = scope.subject().unwrap_or_else(|| "all payments".to_owned());
        let (lane, blockchain) = (self.partition, self.blockchain);
        let message = format!("{what} {of} on {blockchain}, lane {lane}");
        self.alert(AlertKind::PaymentsStopped, (None, None), message, now, effects);
    }

    /// Whether payments of this contract of the coin to the wallet are stopped.
    pub(super) fn is_stopped(
        &self,
        wallet: Address,
        stablecoin: Stablecoin,
        contract: Address,
    ) -> bool {
        self.lane.stopped.iter().any(|scope| scope.covers(wallet, stablecoin, contract))
    }

    /// Whether a transfer may not ask an order now.
    pub(super) fn is_held_up(&self, row: &TransferRow) -> bool {
        self.is_stopped(row.seen.to_address, row.seen.stablecoin, row.seen.contract)
    }
}
