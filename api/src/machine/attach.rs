//! Check of an operator's request to attach a transfer to an order, against the tables. Only
//! amounts, which never change, are decided here alone; the processor decides the rest.

use schemas::record::{Order, Transfer};
use schemas::{OrderId, TransferStatus};
use serde_json::Value;

use super::json;
use crate::error::{Answer, Invalid, Refusal};

const LESS: &str = "transfer brings less than the order's amount: with \"accept_less\": true it pays the order in full";

json::fields! {
    /// The body of `POST /transfers/{transfer_id}/attach`.
    Body { order_id, accept_less }
}

/// Attach request of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) order_id: OrderId,
    /// `true` if less than the order's amount pays it in full.
    pub(crate) accept_less: bool,
}

pub(crate) fn parse(body: &[u8]) -> Result<Request, Invalid> {
    let body: Body = json::object(body)?;
    let order_id = json::required("order_id", body.order_id)?;
    let accept_less = match body.accept_less {
        None => false,
        Some(Value::Bool(accept_less)) => accept_less,
        Some(_) => return Err(Invalid::new("accept_less", "must be true or false")),
    };
    Ok(Request { order_id, accept_less })
}

/// Returns the reason why the transfer may not pay the order; none if it pays that order already.
pub(crate) fn check(transfer: &Transfer, order: &Order, accept_less: bool) -> Answer<()> {
    let id = transfer.transfer_id;
    if order.paid_by.is_some_and(|payer| payer != id) {
        return Err(Refusal::NotAttachable("order is paid by another transfer"));
    }
    // The same request was executed before.
    if transfer.order_id == Some(order.order_id) && order.paid_by == Some(id) {
        return Ok(());
    }
    let why = if transfer.status != TransferStatus::NoMatchedDeposit {
        "only a transfer that is no_matched_deposit can be attached"
    } else if transfer.orphaned_at.is_some() {
        "transfer is no longer in the chain"
    } else if transfer.observation.from_own_wallet {
        "transfer comes from a configured wallet: it is no payment"
    } else if transfer.observation.value < order.amount && !accept_less {
        LESS
    } else {
        return Ok(());
    };
    Err(Refusal::NotAttachable(why))
}

#[cfg(test)]
mod tests {
    use schemas::record::{Observation, example};
    use schemas::{Amount, TransferId, UnixSeconds};

    use super::*;

    fn unknown() -> Transfer {
        let status = TransferStatus::NoMatchedDeposit;
        Transfer { status, order_id: None, fulfillment_id: None, ..example::transfer() }
    }

    fn of_value(text: &str) -> Transfer {
        let value = Amount::parse(text).unwrap();
        let observation = Observation { value, ..example::transfer().observation };
        Transfer { observation, value_text: text.to_owned(), ..unknown() }
    }

    #[test]
    fn a_body_names_an_order() {
        let id = "01996d3c-5b00-7abc-8def-0123456789ab";
        let order_id = id.parse().unwrap();
        for (body, accept_less) in [
            (format!(r#"{{"order_id":"{id}"}}"#), false),
            (format!(r#"{{"order_id":"{id}","accept_less":null}}"#), false),
            (format!(r#"{{"order_id":"{id}","accept_less":true}}"#), true),
        ] {
            assert_eq!(parse(body.as_bytes()), Ok(Request { order_id, accept_less }), "{body}");
        }
        let flag = "accept_less: must be true or false";
        for (body, problem) in [
            ("{}".to_owned(), "order_id: is missing"),
            ("[]".to_owned(), "body: must be a JSON object"),
            (format!(r#"{{"order_id":"{id}","accept_less":"yes"}}"#), flag),
        ] {
            assert_eq!(parse(body.as_bytes()).unwrap_err().to_string(), problem, "{body}");
        }
    }

    #[test]
    fn each_hindrance_has_its_text() {
        let order = Order { paid_by: None, ..example::order() };
        let paid = |by| Order { paid_by: Some(by), ..order.clone() };
        let matched =
            Transfer { order_id: Some(OrderId(uuid::Uuid::nil())), ..example::transfer() };
        let known = "only a transfer that is no_matched_deposit can be attached";
        let gone = Transfer { orphaned_at: Some(UnixSeconds(1)), ..unknown() };
        let observation = Observation { from_own_wallet: true, ..unknown().observation };
        let own = Transfer { observation, ..unknown() };
        let no_payment = "transfer comes from a configured wallet: it is no payment";
        for (transfer, order, accept_less, text) in [
            (unknown(), paid(TransferId(8)), false, "order is paid by another transfer"),
            (matched, order.clone(), false, known),
            (gone, order.clone(), true, "transfer is no longer in the chain"),
            (own, order.clone(), true, no_payment),
            (of_value("10.49"), order.clone(), false, LESS),
        ] {
            let refusal = check(&transfer, &order, accept_less).unwrap_err();
            assert_eq!(refusal, Refusal::NotAttachable(text));
        }
        for (transfer, order, accept_less) in [
            (unknown(), order.clone(), false),
            (of_value("11"), order.clone(), false),
            (of_value("10.49"), order.clone(), true),
            (example::transfer(), paid(example::transfer().transfer_id), false),
        ] {
            assert_eq!(check(&transfer, &order, accept_less), Ok(()), "{transfer:?}");
        }
    }
}
