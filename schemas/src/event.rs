//! The bodies of webhooks (spec 6.1, 6.2), written once and sent byte for byte.

use serde::Serialize;

use crate::{AlertKind, AlertState, Blockchain, OrderId, OrderStatus, TransferId, UnixSeconds};

/// `order_status_changed` (spec 6.1).
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "event_type", rename = "order_status_changed")]
pub struct OrderStatusChanged<'a> {
    pub order_id: OrderId,
    pub merchant_order_id: &'a str,
    pub status: OrderStatus,
    /// As the merchant sent it.
    pub amount: &'a str,
    pub timestamp: UnixSeconds,
}

/// `unknown_transfer` (spec 6.2).
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "event_type", rename = "unknown_transfer")]
pub struct UnknownTransfer {
    pub transfer_id: TransferId,
    pub blockchain: Blockchain,
    pub timestamp: UnixSeconds,
}

/// An alert, to an operator's receiver.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "event_type", rename = "alert")]
pub struct AlertEvent<'a> {
    pub alert_id: &'a str,
    pub kind: AlertKind,
    pub state: AlertState,
    pub blockchain: Option<Blockchain>,
    pub transfer_id: Option<TransferId>,
    pub order_id: Option<OrderId>,
    pub message: &'a str,
    pub timestamp: UnixSeconds,
}

macro_rules! bodies {
    ($($event:ty),+) => {$(
        impl $event {
            /// The JSON to sign and send.
            pub fn body(&self) -> String {
                // Strings and integers only: writing them to memory cannot fail.
                serde_json::to_string(self).unwrap_or_default()
            }
        }
    )+};
}

bodies! { OrderStatusChanged<'_>, UnknownTransfer, AlertEvent<'_> }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_fields_of_the_interface() {
        let order = OrderStatusChanged {
            order_id: OrderId(uuid::Uuid::from_u128(7)),
            merchant_order_id: "A \"1\"",
            status: OrderStatus::Paid,
            amount: "10.50",
            timestamp: UnixSeconds(5),
        };
        assert_eq!(
            order.body(),
            r#"{"event_type":"order_status_changed","order_id":"00000000-0000-0000-0000-000000000007","merchant_order_id":"A \"1\"","status":"paid","amount":"10.50","timestamp":5}"#
        );
        let alert = AlertEvent {
            alert_id: "chain_halted/eth",
            kind: AlertKind::ChainHalted,
            state: AlertState::Raised,
            blockchain: Some(Blockchain::Eth),
            transfer_id: None,
            order_id: None,
            message: "\"why\"",
            timestamp: UnixSeconds(7),
        };
        assert_eq!(
            alert.body(),
            r#"{"event_type":"alert","alert_id":"chain_halted/eth","kind":"chain_halted","state":"raised","blockchain":"eth","transfer_id":null,"order_id":null,"message":"\"why\"","timestamp":7}"#
        );
        let unknown = UnknownTransfer {
            transfer_id: TransferId(9),
            blockchain: Blockchain::Avaxc,
            timestamp: UnixSeconds(6),
        };
        assert_eq!(
            unknown.body(),
            r#"{"event_type":"unknown_transfer","transfer_id":9,"blockchain":"avaxc","timestamp":6}"#
        );
    }
}
