//! Records for operators: alerts, the audit trail of their commands, their stops, dead letters.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::{
    Address, AlertKind, AlertState, AuditAction, Blockchain, CommandId, OrderId, Stablecoin,
    TransferId, UnixMicros,
};

/// [`AuditEntry::operator`] of a command that was given on the command line.
pub const COMMAND_LINE: &str = "command line";

/// A condition for an operator, or its end (`alert.avsc`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub kind: AlertKind,
    #[serde(default)]
    pub blockchain: Option<Blockchain>,
    pub transfer_id: Option<TransferId>,
    pub order_id: Option<OrderId>,
    pub message: String,
    /// Time when it was seen; for a resolved one, when it ended.
    pub raised_at: UnixMicros,
    /// Identifies the alert: see [`Alert::id`].
    #[serde(default)]
    pub alert_id: String,
    #[serde(default = "raised")]
    pub state: AlertState,
}

/// State of a record without the field.
const fn raised() -> AlertState {
    AlertState::Raised
}

impl Alert {
    /// Raises an alert. `subject` distinguishes it within its kind and chain, such as by a
    /// transaction; "" if none is needed.
    #[must_use]
    pub fn raise(
        kind: AlertKind,
        blockchain: Option<Blockchain>,
        subject: &dyn Display,
        message: String,
        at: UnixMicros,
    ) -> Self {
        Self {
            kind,
            blockchain,
            transfer_id: None,
            order_id: None,
            message,
            raised_at: at,
            alert_id: Self::id(kind, blockchain, subject),
            state: AlertState::Raised,
        }
    }

    /// Ends this alert, with the reason.
    #[must_use]
    pub fn resolve(self, message: String, at: UnixMicros) -> Self {
        Self { message, raised_at: at, state: AlertState::Resolved, ..self }
    }

    /// The name of an alert: its kind, then its chain and its subject where there are any. Equal names are one alert,
    /// whichever process writes them.
    #[must_use]
    pub fn id(kind: AlertKind, blockchain: Option<Blockchain>, subject: &dyn Display) -> String {
        let parts = [blockchain.map_or("", Blockchain::as_str).to_owned(), subject.to_string()];
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.fold(kind.to_string(), |id, part| format!("{id}/{part}"))
    }
}

/// A command of an operator, written before it is carried out (`audit_entry.avsc`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The name of the secret that was given, never the secret; or [`COMMAND_LINE`].
    pub operator: String,
    /// Address of the client, also behind `server.trusted_proxies`; none on the command line.
    pub client: Option<String>,
    pub action: AuditAction,
    pub order_id: Option<OrderId>,
    pub transfer_id: Option<TransferId>,
    /// The command on `orders.commands` or `deposits.commands`, if the action sends one with an id.
    pub command_id: Option<CommandId>,
    /// The scope that is stopped or resumed, as it was given; the position of a record that is
    /// skipped or put back; the name of an alert.
    pub subject: Option<String>,
    pub requested_at: UnixMicros,
}

/// Scope of an emergency stop: payments that match all given fields. A stop on all chains and a stop
/// on one are distinct: each is ended separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StopScope {
    /// The chain to stop; `None` for all chains.
    pub blockchain: Option<Blockchain>,
    #[serde(rename = "token")]
    pub stablecoin: Option<Stablecoin>,
    /// A wallet or a contract.
    pub address: Option<Address>,
}

impl StopScope {
    /// The coin and the address, in words; `None` if the scope has neither.
    #[must_use]
    pub fn subject(&self) -> Option<String> {
        match (self.stablecoin, self.address) {
            (None, None) => None,
            (Some(coin), None) => Some(coin.to_string()),
            (None, Some(address)) => Some(address.to_string()),
            (Some(coin), Some(address)) => Some(format!("{coin} at {address}")),
        }
    }

    /// `true` if it covers a payment of this contract of the coin to this wallet, on any chain.
    #[must_use]
    pub fn covers(&self, wallet: Address, stablecoin: Stablecoin, contract: Address) -> bool {
        self.stablecoin.is_none_or(|of| of == stablecoin)
            && self.address.is_none_or(|of| of == wallet || of == contract)
    }
}

/// A record of `dead-letters`: another record, as it was, that could not be processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// Consumer group that rejected it.
    pub group: String,
    pub reason: String,
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    pub failed_at: UnixMicros,
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: UnixMicros = UnixMicros(7);

    #[test]
    fn an_alert_is_named_by_what_it_is_about() {
        let eth = Some(Blockchain::Eth);
        for (kind, blockchain, subject, id) in [
            (AlertKind::ChainHalted, eth, "", "chain_halted/eth"),
            (AlertKind::LateFind, eth, "0x12", "late_find/eth/0x12"),
            (AlertKind::EndpointFailing, None, "shop:443", "endpoint_failing/shop:443"),
        ] {
            let alert = Alert::raise(kind, blockchain, &subject, String::new(), AT);
            assert_eq!((alert.alert_id.as_str(), alert.state), (id, AlertState::Raised));
            let end = alert.clone().resolve("over".to_owned(), UnixMicros(9));
            assert_eq!((end.alert_id.as_str(), end.state), (id, AlertState::Resolved));
            assert_eq!((end.message.as_str(), end.raised_at), ("over", UnixMicros(9)));
        }
    }

    #[test]
    fn conditions_end_by_themselves_and_events_do_not() {
        let events = AlertKind::ALL.iter().filter(|kind| !kind.is_condition());
        let events: Vec<_> = events.map(|kind| kind.as_str()).collect();
        let expected = "confirmed_transfer_retracted stale_transfer amounts_taken late_find \
                        forged_transfer restored dead_letter dead_webhook";
        assert_eq!(events.join(" "), expected);
    }
}
