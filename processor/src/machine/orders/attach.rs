//! Payment of an order by a transfer that an operator attached.

use schemas::record::{Attach, DepositCommandBody, OrderCommand};
use schemas::{OrderCause, OrderStatus};

use super::{Broken, Effect, End, OrderRow, State, to_lane};

impl State {
    /// Accepts the transfer if no other has paid the order, even if the order has ended or was marked paid without a
    /// transfer.
    pub(super) fn attach(
        &mut self,
        mut row: OrderRow,
        command: &OrderCommand,
        attach: &Attach,
    ) -> Result<(), Broken> {
        let (payer, paid_by) = (attach.transfer_id, row.order.paid_by);
        let publishes = command.command_id.is_some();
        if paid_by.is_some_and(|other| other != payer) {
            self.effects.push(answer_attach(command, attach, false));
            return match publishes {
                true => self.reply(row, command, OrderCause::AttachRefused),
                false => Ok(()),
            };
        }
        self.effects.push(answer_attach(command, attach, true));
        if paid_by == Some(payer) && !publishes {
            return Ok(()); // The lane repeats its request: the reply was lost.
        }
        row.order.paid_by = Some(payer);
        row.order.paid_value = Some(attach.value);
        match row.order.status {
            OrderStatus::Paid => {
                row.order.candidates.clear();
                self.reply(row, command, OrderCause::Attached)
            }
            OrderStatus::Pending | OrderStatus::Expired | OrderStatus::Cancelled => {
                self.end(row, command, End::Attached)
            }
        }
    }
}

/// Reply to the requesting lane.
pub(super) fn answer_attach(command: &OrderCommand, attach: &Attach, pays: bool) -> Effect {
    let transfer_id = attach.transfer_id;
    let body = match pays {
        true => DepositCommandBody::Attached { transfer_id },
        false => DepositCommandBody::AttachRefused { transfer_id },
    };
    to_lane(command, (attach.blockchain, attach.wallet_address), 0, body)
}
