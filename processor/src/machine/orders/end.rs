//! End of an order, and the changes that its state allows.

use schemas::record::Order;
use schemas::{OrderCause, OrderStatus};

use super::{Broken, OrderRow};

/// Checks that an order may become `after`: its status, its payer and its deposits agree.
pub(super) fn check_change(
    before: &Order,
    after: &OrderRow,
    cause: OrderCause,
) -> Result<(), Broken> {
    use OrderStatus as Status;
    let (id, order) = (before.order_id, &after.order);
    let kept = before.paid_by.is_none() || before.paid_by == order.paid_by;
    invariant!(2, kept, "order {id} was paid by {:?}, now by {:?}", before.paid_by, order.paid_by);
    let has_payer = order.paid_by.is_some();
    let by_operator = (cause == OrderCause::MarkedPaid && !has_payer)
        || (cause == OrderCause::Attached && has_payer);
    let by_transfer = |expected| cause == expected && has_payer;
    let allowed = match (before.status, order.status) {
        (before, after) if before == after => true,
        (Status::Pending, Status::Paid) => by_operator || by_transfer(OrderCause::Paid),
        (Status::Pending, Status::Expired | Status::Cancelled) => !has_payer,
        (Status::Expired | Status::Cancelled, Status::Paid) => {
            by_operator || by_transfer(OrderCause::PaidLate)
        }
        (_, Status::Pending | Status::Expired | Status::Cancelled) | (Status::Paid, _) => false,
    };
    invariant!(4, allowed, "order {id} was {}, now {} by {cause}", before.status, order.status);
    let expires = before.status != order.status && order.status == Status::Expired;
    let may_be_paid = expires && after.has_awaited_deposit();
    invariant!(8, !may_be_paid, "order {id} would expire with a deposit that may be paid");
    Ok(())
}

/// Ways in which an order ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Paid,
    PaidLate,
    Attached,
    MarkedPaid,
    Expired,
    Cancelled,
}

impl End {
    pub(super) fn status(self) -> OrderStatus {
        match self {
            Self::Paid | Self::PaidLate | Self::Attached | Self::MarkedPaid => OrderStatus::Paid,
            Self::Expired => OrderStatus::Expired,
            Self::Cancelled => OrderStatus::Cancelled,
        }
    }

    pub(super) fn cause(self) -> OrderCause {
        match self {
            Self::Paid => OrderCause::Paid,
            Self::PaidLate => OrderCause::PaidLate,
            Self::Attached => OrderCause::Attached,
            Self::MarkedPaid => OrderCause::MarkedPaid,
            Self::Expired => OrderCause::Expired,
            Self::Cancelled => OrderCause::Cancelled,
        }
    }
}
