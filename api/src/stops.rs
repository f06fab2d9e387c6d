//! Emergency stops by operators: requests and their commands to lanes.

use log::NewRecord;
use schemas::record::{AuditEntry, DepositCommand, DepositCommandBody, StopScope};
use schemas::{
    Address, AuditAction, Blockchain, CodecError, Layout, Stablecoin, Topic, UnixMicros,
};

use crate::audit::{self, Asker};
use crate::error::Invalid;

/// Key of the commands of a stop, which concern a whole lane.
const KEY: &str = "lane";

/// [`StopRequest::parse`], with a defect reported as one of the field `subject`.
pub(crate) fn request(
    subject: &str,
    on: Option<Blockchain>,
    begins: bool,
) -> Result<StopRequest, Invalid> {
    let request = StopRequest::parse(subject, on, begins);
    request.map_err(|problem| Invalid::new("subject", problem))
}

/// Request to begin or to end a stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRequest {
    scope: StopScope,
    subject: String,
    begins: bool,
}

impl StopRequest {
    /// Parses a subject: a wallet, a coin, a contract or a chain; `on` limits the first three to one chain. Returns the
    /// defect of any other subject.
    pub fn parse(
        subject: &str,
        on: Option<Blockchain>,
        begins: bool,
    ) -> Result<Self, &'static str> {
        let mut scope = StopScope { blockchain: on, stablecoin: None, address: None };
        if let Ok(chain) = subject.parse::<Blockchain>() {
            if on.is_some_and(|on| on != chain) {
                return Err("is another chain");
            }
            scope.blockchain = Some(chain);
        } else if let Ok(stablecoin) = subject.parse::<Stablecoin>() {
            scope.stablecoin = Some(stablecoin);
        } else if let Ok(address) = subject.parse::<Address>() {
            if on.is_some_and(|on| on.address_family() != address.family()) {
                return Err("is not an address of the chain");
            }
            scope.address = Some(address);
        } else {
            return Err("is no wallet, no coin, no contract and no chain");
        }
        let on = on.map(|on| format!(" on {on}")).unwrap_or_default();
        Ok(Self { scope, subject: format!("{subject}{on}"), begins })
    }

    /// The wallet or contract to stop. Callers refuse an address that is not watched: its stop would have no effect.
    #[must_use]
    pub fn address_to_stop(&self) -> Option<Address> {
        self.scope.address.filter(|_| self.begins)
    }

    /// The chain to which the stop is limited, if any.
    #[must_use]
    pub fn chain(&self) -> Option<Blockchain> {
        self.scope.blockchain
    }

    /// Scope of the stop to end; `None` if this begins one.
    #[must_use]
    pub fn to_end(&self) -> Option<StopScope> {
        (!self.begins).then_some(self.scope)
    }

    /// The chains whose lanes get a command.
    pub fn blockchains(&self) -> impl Iterator<Item = Blockchain> {
        let family = self.scope.address.map(|address| address.family());
        Blockchain::ALL.iter().copied().filter(move |chain| {
            self.scope.blockchain.is_none_or(|only| only == *chain)
                && family.is_none_or(|family| family == chain.address_family())
        })
    }

    /// Subject that is stopped or resumed.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Audit record of the request; written before [`Self::commands`].
    pub fn audit(&self, by: &Asker, now: UnixMicros) -> Result<NewRecord, CodecError> {
        let action = if self.begins { AuditAction::Stop } else { AuditAction::Resume };
        audit::record(&AuditEntry { subject: Some(self.subject.clone()), ..by.entry(action, now) })
    }

    /// One command for each lane of [`Self::blockchains`].
    pub fn commands(&self, layout: &Layout, now: UnixMicros) -> Result<Vec<NewRecord>, CodecError> {
        let body = if self.begins { DepositCommandBody::Stop } else { DepositCommandBody::Resume };
        let to_lanes = self.blockchains().flat_map(|blockchain| {
            let command = DepositCommand::to_lane(blockchain, now, body(self.scope));
            let lanes = layout.lanes_of(blockchain);
            lanes.map(move |lane| NewRecord::encode(Topic::DepositsCommands, lane, KEY, &command))
        });
        to_lanes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALLET: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

    #[test]
    fn each_lane_that_may_be_covered_gets_a_command() {
        let layout = Layout { lanes: 2, orders: 1, webhooks: 1 };
        let count = |subject: &str, on| {
            let request = StopRequest::parse(subject, on, true).unwrap();
            request.commands(&layout, UnixMicros(1)).unwrap().len()
        };
        let chains = Blockchain::ALL.len();
        assert_eq!(count("polygon", None), 2);
        assert_eq!(count("USDC", None), 2 * chains);
        assert_eq!(count("USDC", Some(Blockchain::Tron)), 2);
        assert_eq!(count(WALLET, None), 2 * (chains - 1));
        let request = StopRequest::parse(WALLET, Some(Blockchain::Op), false).unwrap();
        assert_eq!(request.subject(), format!("{WALLET} on op"));
        assert_eq!(request.address_to_stop(), None);
    }

    #[test]
    fn what_is_nothing_is_refused() {
        let refused = |subject, on| StopRequest::parse(subject, on, true).unwrap_err();
        for subject in ["", "usdc", "USDC ", "bsc", "0x12"] {
            assert_eq!(refused(subject, None), "is no wallet, no coin, no contract and no chain");
        }
        assert_eq!(refused("op", Some(Blockchain::Eth)), "is another chain");
        assert_eq!(refused(WALLET, Some(Blockchain::Tron)), "is not an address of the chain");
    }
}
