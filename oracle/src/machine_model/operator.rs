//! Commands of operators to lanes.

use schemas::record::{
    AttachTransfer, DepositCommand, DepositCommandBody, EndedOrder, StopScope, Transfer,
};
use schemas::{Blockchain, CommandId, OrderId, UnixMicros};
use uuid::Uuid;

/// The command that stops the payments in the scope on a chain, or ends that stop.
pub fn stop_command(
    blockchain: Blockchain,
    scope: StopScope,
    begins: bool,
    issued_at: UnixMicros,
) -> DepositCommand {
    let body = if begins { DepositCommandBody::Stop } else { DepositCommandBody::Resume };
    DepositCommand::to_lane(blockchain, issued_at, body(scope))
}

/// The command with this number that attaches a transfer to an order. It carries the rows of both.
pub fn attach_command(
    (order_id, order): (OrderId, EndedOrder),
    transfer: Transfer,
    number: u128,
    issued_at: UnixMicros,
) -> DepositCommand {
    let (blockchain, wallet_address) = (transfer.blockchain, transfer.observation.to_address);
    let command_id = CommandId(Uuid::from_u128(number));
    let attach = AttachTransfer { command_id, transfer, order };
    let body = DepositCommandBody::Attach(attach.into());
    DepositCommand { order_id, slot: 0, blockchain, wallet_address, issued_at, body }
}
