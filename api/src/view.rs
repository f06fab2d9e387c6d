//! Objects of the interface, with the fields of spec 2.

use std::collections::BTreeSet;

use schemas::record::{Attempt, Order, OrderDeposit, Transfer};
use schemas::{
    Address, AttemptOutcome, Blockchain, DepositId, DepositState, FulfillmentId, Hash, OrderId,
    OrderStatus, Stablecoin, TransferId, TransferStatus, UnixSeconds, UnknownReason, Wallet,
};
use serde::Serialize;
use store::{ChainRow, DepositRow, OrderRow};

use crate::machine::candidates::Candidate;
use crate::machine::seen_transfer::{Checkout, SeenTransfer};

/// Declares an object: each field with its type and value.
macro_rules! view {
    (
        $(#[$doc:meta])*
        $view:ident $(<$life:lifetime>)? of ($($from:ident: $source:ty),+) {
            $($(#[$attribute:meta])* $field:ident: $type:ty = $value:expr,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Serialize)]
        pub(crate) struct $view $(<$life>)? {
            $($(#[$attribute])* pub(crate) $field: $type,)+
        }

        impl $(<$life>)? $view $(<$life>)? {
            pub(crate) fn new($($from: $source),+) -> Self {
                Self { $($field: $value,)+ }
            }
        }
    };
}

view! {
    /// An order (spec 2.2).
    OrderView<'a> of (order: &'a Order) {
        order_id: OrderId = order.order_id,
        merchant_order_id: &'a str = &order.merchant_order_id,
        amount: &'a str = &order.amount_text,
        status: OrderStatus = order.status,
        created_at: UnixSeconds = order.created_at,
    }
}

impl<'a> OrderView<'a> {
    /// The answer to a create request: its status is always pending (spec 3.1). A repeated request gets
    /// the same answer, whatever the status is now.
    pub(crate) fn created(order: &'a Order) -> Self {
        Self { status: OrderStatus::Pending, ..Self::new(order) }
    }
}

view! {
    /// An order as one of its changes left it.
    ChangeView<'a> of (order: &'a Order) {
        #[serde(flatten)]
        view: OrderView<'a> = OrderView::new(order),
        changed_at: UnixSeconds = order.updated_at.seconds(),
    }
}

view! {
    /// An order as operators see it (spec 2.3).
    AdminOrderView<'a> of (row: &'a OrderRow) {
        #[serde(flatten)]
        order: OrderView<'a> = OrderView::new(&row.order),
        webhook_url: &'a str = &row.order.webhook_url,
        webhook_retry_count: i64 = row.webhook_retry_count,
        webhook_success_at: Option<UnixSeconds> = row.webhook_success_at,
        webhook_last_tried_at: Option<UnixSeconds> = row.webhook_last_tried_at,
        // Not in the interface.
        paid_by: Option<TransferId> = row.order.paid_by,
        paid_value: Option<String> = row.order.paid_value.map(|value| value.to_string()),
        // Payments seen and not confirmed, also of an order that an operator has marked paid.
        candidates: &'a [TransferId] = &row.order.candidates,
        waits_for: Vec<Blockchain> = waits_for(&row.order),
    }
}

/// Chains whose confirmed blocks have not passed a pending order's deadline, according to its record. The order expires
/// only after all of them have.
fn waits_for(order: &Order) -> Vec<Blockchain> {
    let waits =
        |of: &&OrderDeposit| !matches!(of.state, DepositState::Closed | DepositState::Refused);
    let is_pending = order.status == OrderStatus::Pending;
    let deposits = order.deposits.iter().filter(waits).filter(|_| is_pending);
    let chains: BTreeSet<_> = deposits.map(|of| of.blockchain).collect();
    chains.into_iter().collect()
}

view! {
    /// A webhook attempt; not in the interface.
    AttemptView<'a> of (attempt: &'a Attempt) {
        event_id: &'a str = &attempt.event_id,
        attempt: i32 = attempt.attempt,
        manual: bool = attempt.manual,
        attempted_at: UnixSeconds = attempt.attempted_at.seconds(),
        outcome: AttemptOutcome = attempt.outcome,
        http_status: Option<i32> = attempt.http_status,
        duration_ms: i64 = attempt.duration_ms,
        cause: &'a str = &attempt.cause,
        answer: &'a str = &attempt.answer,
    }
}

view! {
    /// A deposit (spec 2.4).
    DepositView of (row: &DepositRow) {
        // For operators alone: sequential ids of two orders would show a customer the sales between them.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<DepositId> = Some(row.deposit.deposit_id),
        order_id: OrderId = row.deposit.order_id,
        blockchain: Blockchain = row.deposit.blockchain,
        #[serde(rename = "token")]
        stablecoin: Stablecoin = row.deposit.stablecoin,
        user_address: Option<Address> = row.deposit.user_address,
        wallet_address: Address = row.deposit.wallet_address,
        value: String = row.deposit.value.to_string(),
        started_at: UnixSeconds = row.deposit.started_at,
        // The deposit's start until the chain is first scanned.
        last_scanned_at: UnixSeconds = row.last_scanned_at.unwrap_or(row.deposit.started_at),
    }
}

impl DepositView {
    /// A deposit from its order's record, for its customer; none if it never opened.
    pub(crate) fn of_order(
        order: &Order,
        deposit: &OrderDeposit,
        chains: &[ChainRow],
    ) -> Option<Self> {
        let is_scan = |chain: &&ChainRow| chain.lane.is_none();
        let mut scans = chains.iter().filter(is_scan);
        let scanned = scans.find(|chain| chain.blockchain == deposit.blockchain);
        deposit.deposit_id?;
        Some(Self {
            id: None,
            order_id: order.order_id,
            blockchain: deposit.blockchain,
            stablecoin: deposit.stablecoin,
            user_address: order.expecting_wallet_address,
            wallet_address: deposit.wallet_address,
            value: deposit.value?.to_string(),
            started_at: deposit.started_at,
            last_scanned_at: scanned.map_or(deposit.started_at, |c| c.updated_at.seconds()),
        })
    }
}

view! {
    /// A transfer (spec 2.5).
    TransferView of (transfer: &Transfer) {
        id: TransferId = transfer.transfer_id,
        blockchain: Blockchain = transfer.blockchain,
        #[serde(rename = "token")]
        stablecoin: Stablecoin = transfer.observation.stablecoin,
        from_address: Address = transfer.observation.from_address,
        to_address: Address = transfer.observation.to_address,
        txn_hash: Hash = transfer.observation.tx_hash,
        value: String = transfer.observation.value.to_string(),
        block_number: i64 = transfer.block.number,
        block_timestamp: UnixSeconds = transfer.block.timestamp,
        blockchain_confirmed: bool = transfer.blockchain_confirmed,
        created_at: UnixSeconds = transfer.created_at,
        status: TransferStatus = transfer.status,
        fulfillment_id: Option<FulfillmentId> = transfer.fulfillment_id,
        // Not in the interface.
        order_id: Option<OrderId> = transfer.order_id,
        reason: Option<UnknownReason> = transfer.reason,
        candidate_order_id: Option<OrderId> = transfer.candidate_order_id,
        orphaned_at: Option<UnixSeconds> = transfer.orphaned_at,
    }
}

view! {
    /// An order that a transfer was probably meant for; not in the interface.
    CandidateView<'a> of (candidate: &'a Candidate) {
        #[serde(flatten)]
        order: OrderView<'a> = OrderView::new(&candidate.order),
        expires_at: UnixSeconds = candidate.order.expires_at,
        user_address: Option<Address> = candidate.order.expecting_wallet_address,
        blockchain: Blockchain = candidate.deposit.blockchain,
        #[serde(rename = "token")]
        stablecoin: Stablecoin = candidate.deposit.stablecoin,
        wallet_address: Address = candidate.deposit.wallet_address,
        value: String = candidate.asked.to_string(),
        difference: String = candidate.difference(),
    }
}

view! {
    /// A wallet (spec 2.6).
    WalletView<'a> of (wallet: &'a Wallet) {
        blockchain: Blockchain = wallet.blockchain,
        address: Address = wallet.address,
        enabled_coins: &'a [Stablecoin] = &wallet.stablecoins,
    }
}

view! {
    /// A chain that an order can be paid on.
    #[derive(PartialEq, Eq)]
    ChainView of (chain: Blockchain, coins: Vec<Stablecoin>) {
        blockchain: Blockchain = chain,
        name: &'static str = chain.label(),
        stablecoins: Vec<Stablecoin> = coins,
    }
}

view! {
    /// Payment that a customer has to make.
    PaymentView of (order: &Order, open: DepositView, asked: &OrderDeposit) {
        blockchain: Blockchain = open.blockchain,
        #[serde(rename = "token")]
        stablecoin: Stablecoin = open.stablecoin,
        // Displayed contract; transfers of the coin's other accepted contracts pay, too.
        contract: Address = asked.contract,
        decimals: u8 = asked.decimals,
        wallet_address: Address = open.wallet_address,
        // To be paid exactly; may lie above the order's amount.
        value: String = open.value.clone(),
        expires_at: UnixSeconds = order.expires_at,
        deposit: DepositView = open,
    }
}

view! {
    /// A transfer as the customer of an order sees it.
    SeenTransferView of (seen: &SeenTransfer) {
        blockchain: Blockchain = seen.transfer.blockchain,
        #[serde(rename = "token")]
        stablecoin: Stablecoin = seen.transfer.observation.stablecoin,
        txn_hash: Hash = seen.transfer.observation.tx_hash,
        value: String = seen.transfer.observation.value.to_string(),
        status: TransferStatus = seen.transfer.status,
        reason: Option<UnknownReason> = seen.transfer.reason,
        confirmations: i64 = seen.confirmations,
        confirmations_required: Option<i64> = seen.required,
        checked_by: Option<UnixSeconds> = seen.checked_by,
    }
}

view! {
    /// An order as its customer sees it, with its open deposits.
    CheckoutView<'a> of (checkout: &'a Checkout) {
        #[serde(flatten)]
        view: OrderView<'a> = OrderView::new(&checkout.order),
        expires_at: UnixSeconds = checkout.order.expires_at,
        // Whether a transfer that fits was seen and is not yet confirmed.
        payment_seen: bool = !checkout.order.candidates.is_empty(),
        // Whether a transfer arrived that may be the customer's.
        payment_possible: bool = !checkout.possible.is_empty(),
        // Whether an operator has stopped payments of its last open deposit: nothing is to be sent.
        stopped: bool = checkout.is_stopped(),
        deposits: Vec<DepositView> = {
            let Checkout { order, chains, .. } = checkout;
            let open = order.deposits.iter().filter(|of| of.state == DepositState::Open);
            open.filter_map(|of| DepositView::of_order(order, of, chains)).collect()
        },
        transfers: Vec<SeenTransferView> = checkout.transfers.iter().map(SeenTransferView::new).collect(),
    }
}
