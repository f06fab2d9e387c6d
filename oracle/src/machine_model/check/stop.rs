//! Emergency stops in force, and the transfers that they cover.

use schemas::record::{DepositCommand, DepositCommandBody, Transfer};

use crate::machine_model::ledger::Ledger;

impl Ledger<'_> {
    pub(super) fn note_stop(&mut self, command: &DepositCommand) {
        let lane = self.lanes.get_mut(&command.blockchain).expect("a lane of one of the chains");
        match command.body {
            DepositCommandBody::Stop(scope) if !lane.stopped.contains(&scope) => {
                lane.stopped.push(scope);
            }
            DepositCommandBody::Resume(scope) => lane.stopped.retain(|of| *of != scope),
            _ => {}
        }
    }

    /// `true` if an emergency stop covers the transfer.
    pub(super) fn is_stopped(&self, transfer: &Transfer) -> bool {
        let seen = &transfer.observation;
        let covers = |scope: &schemas::record::StopScope| {
            scope.covers(seen.to_address, seen.stablecoin, seen.contract)
        };
        self.lane(transfer.blockchain).stopped.iter().any(covers)
    }
}
