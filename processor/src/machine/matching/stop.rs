//! The emergency stop: until it ends no transfer in its scope settles, and no deposit opens there. Transfers confirmed
//! meanwhile become unknown: a person decides.

use schemas::record::StopScope;
use schemas::{Address, AlertKind, Stablecoin};

use super::transfers::TransferRow;
use super::{Broken, Effect, State};

impl State {
    /// Begins or ends a stop, unless that was done before.
    pub(super) fn stop(&mut self, scope: StopScope, begins: bool) -> Result<(), Broken> {
        if self.lane.stopped.contains(&scope) == begins {
            return Ok(());
        }
        let stopped = &mut self.lane_mut().stopped;
        if begins {
            stopped.push(scope);
        } else {
            stopped.retain(|of| *of != scope);
        }
        self.report_stop(scope, begins);
        self.publish_lane()
    }

    /// Raises or resolves the alert of a stop, except before the lane's first head. All lanes of the chain raise the
    /// same alert.
    fn report_stop(&mut self, scope: StopScope, begins: bool) {
        if self.lane.head.is_none() {
            return;
        }
        let of = scope.subject();
        // A stop on this chain alone has another alert than one on all chains.
        let alone = if of.is_some() && scope.blockchain.is_some() { "/alone" } else { "" };
        let subject = format!("{}{alone}", of.as_deref().unwrap_or_default());
        let place = format!(
            "{} on {}, lane {}",
            of.as_deref().unwrap_or("all payments"),
            self.blockchain,
            self.partition
        );
        let message = format!("an operator stopped {place}");
        let alert = self.alert(AlertKind::PaymentsStopped, &subject, message);
        self.effects.push(Effect::Alert(if begins {
            alert
        } else {
            alert.resolve(format!("an operator ended the stop of {place}"), self.now)
        }));
    }

    /// `true` if payments of this contract of the coin to the wallet are stopped.
    pub(super) fn is_stopped(
        &self,
        wallet: Address,
        stablecoin: Stablecoin,
        contract: Address,
    ) -> bool {
        self.lane.stopped.iter().any(|scope| scope.covers(wallet, stablecoin, contract))
    }

    /// `true` if an emergency stop keeps a transfer from settling.
    pub(super) fn is_held_up(&self, row: &TransferRow) -> bool {
        self.is_stopped(row.seen.to_address, row.seen.stablecoin, row.seen.contract)
    }
}
