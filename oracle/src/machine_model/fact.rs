//! Events outside the processor.

use schemas::record::{Block, Head, PaymentRequest, StopScope};
use schemas::{Address, Amount, Blockchain, OrderId, PaymentKey, UnixSeconds};

/// An event outside the processor, in the order in which events take effect.
#[derive(Debug, Clone)]
pub enum Fact {
    /// A merchant created an order.
    Created {
        order: OrderId,
        amount: Amount,
        /// The only sender that counts, if restricted.
        sender: Option<Address>,
        expires_at: UnixSeconds,
    },
    /// Its customer chose how to pay.
    Chosen { order: OrderId, request: PaymentRequest, at: UnixSeconds },
    /// The order was cancelled.
    Cancelled { order: OrderId },
    /// An operator marked the order paid.
    MarkedPaid { order: OrderId },
    /// An operator attached this payment to the order.
    Attached { order: OrderId, payment: PaymentKey },
    /// The timers of all orders were checked.
    TimersDue { now: UnixSeconds },
    /// A transfer was seen in a block.
    Included {
        blockchain: Blockchain,
        payment: PaymentKey,
        block: Block,
        /// Its place in the block.
        log_index: i32,
        /// `true` if the next head confirms it.
        confirmed: bool,
    },
    /// The payment's block left the chain.
    Orphaned { payment: PaymentKey },
    /// Payments to this wallet are seen from the next block on.
    Watched { blockchain: Blockchain, wallet: Address },
    /// An operator stopped the payments in the scope, or ended that stop.
    Stopped { blockchain: Blockchain, scope: StopScope, begins: bool },
    /// The chain was scanned up to here.
    Scanned {
        blockchain: Blockchain,
        block: Block,
        /// Confirmed and final heights, held transfers, gap.
        head: Head,
    },
}
