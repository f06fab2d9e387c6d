//! The objects of the interface, field by field as spec 2 has them.

use schemas::record::{Order, OrderDeposit, Transfer};
use schemas::{
    Address, Blockchain, DepositId, FulfillmentId, Hash, OrderId, OrderStatus, Stablecoin,
    TransferId, TransferStatus, UnixSeconds, Wallet,
};
use serde::Serialize;
use store::{ChainRow, DepositRow, OrderRow};

use crate::machine::catalog::ChainChoices;

/// Spec 2.2.
#[derive(Debug, Serialize)]
pub(crate) struct OrderView<'a> {
    order_id: OrderId,
    merchant_order_id: &'a str,
    amount: &'a str,
    status: OrderStatus,
    created_at: UnixSeconds,
}

impl<'a> OrderView<'a> {
    pub(crate) fn new(order: &'a Order) -> Self {
        Self {
            order_id: order.order_id,
            merchant_order_id: &order.merchant_order_id,
            amount: &order.amount_text,
            status: order.status,
            created_at: order.created_at,
        }
    }

    /// The answer to a create request: always pending (spec 3.1), when repeated too, because it is
    /// the same answer.
    pub(crate) fn created(order: &'a Order) -> Self {
        Self { status: OrderStatus::Pending, ..Self::new(order) }
    }
}

/// Spec 2.3.
#[derive(Debug, Serialize)]
pub(crate) struct AdminOrderView<'a> {
    #[serde(flatten)]
    order: OrderView<'a>,
    webhook_url: &'a str,
    webhook_retry_count: i64,
    webhook_success_at: Option<UnixSeconds>,
    webhook_last_tried_at: Option<UnixSeconds>,
}

impl<'a> AdminOrderView<'a> {
    pub(crate) fn new(row: &'a OrderRow) -> Self {
        Self {
            order: OrderView::new(&row.order),
            webhook_url: &row.order.webhook_url,
            webhook_retry_count: row.webhook_retry_count,
            webhook_success_at: row.webhook_success_at,
            webhook_last_tried_at: row.webhook_last_tried_at,
        }
    }
}

/// Spec 2.4.
#[derive(Debug, Serialize)]
pub(crate) struct DepositView {
    id: DepositId,
    order_id: OrderId,
    blockchain: Blockchain,
    #[serde(rename = "token")]
    stablecoin: Stablecoin,
    user_address: Option<Address>,
    wallet_address: Address,
    value: String,
    started_at: UnixSeconds,
    last_scanned_at: UnixSeconds,
}

impl DepositView {
    pub(crate) fn new(row: &DepositRow) -> Self {
        let deposit = &row.deposit;
        Self {
            id: deposit.deposit_id,
            order_id: deposit.order_id,
            blockchain: deposit.blockchain,
            stablecoin: deposit.stablecoin,
            user_address: deposit.user_address,
            wallet_address: deposit.wallet_address,
            value: deposit.value.to_string(),
            started_at: deposit.started_at,
            last_scanned_at: row.last_scanned_at.unwrap_or(deposit.started_at),
        }
    }

    /// A deposit as its order knows it; none if it never opened.
    pub(crate) fn of_order(
        order: &Order,
        deposit: &OrderDeposit,
        chains: &[ChainRow],
    ) -> Option<Self> {
        let scanned = chains.iter().find(|chain| chain.blockchain == deposit.blockchain);
        Some(Self {
            id: deposit.deposit_id?,
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

/// Spec 2.5.
#[derive(Debug, Serialize)]
pub(crate) struct TransferView {
    id: TransferId,
    blockchain: Blockchain,
    #[serde(rename = "token")]
    stablecoin: Stablecoin,
    from_address: Address,
    to_address: Address,
    txn_hash: Hash,
    value: String,
    block_number: i64,
    block_timestamp: UnixSeconds,
    blockchain_confirmed: bool,
    created_at: UnixSeconds,
    status: TransferStatus,
    fulfillment_id: Option<FulfillmentId>,
}

impl TransferView {
    pub(crate) fn new(transfer: &Transfer) -> Self {
        let seen = &transfer.observation;
        Self {
            id: transfer.transfer_id,
            blockchain: transfer.blockchain,
            stablecoin: seen.stablecoin,
            from_address: seen.from_address,
            to_address: seen.to_address,
            txn_hash: seen.tx_hash,
            value: seen.value.to_string(),
            block_number: transfer.block.number,
            block_timestamp: transfer.block.timestamp,
            blockchain_confirmed: transfer.blockchain_confirmed,
            created_at: transfer.created_at,
            status: transfer.status,
            fulfillment_id: transfer.fulfillment_id,
        }
    }
}

/// Spec 2.6.
#[derive(Debug, Serialize)]
pub(crate) struct WalletView<'a> {
    blockchain: Blockchain,
    address: Address,
    #[serde(rename = "enabled_coins")]
    stablecoins: &'a [Stablecoin],
}

impl<'a> WalletView<'a> {
    pub(crate) fn new(wallet: &'a Wallet) -> Self {
        Self {
            blockchain: wallet.blockchain,
            address: wallet.address,
            stablecoins: &wallet.stablecoins,
        }
    }
}

/// A chain that an order can be paid on.
#[derive(Debug, Serialize)]
pub(crate) struct ChainView {
    blockchain: Blockchain,
    /// As people write it.
    name: &'static str,
    stablecoins: Vec<Stablecoin>,
}

impl ChainView {
    pub(crate) fn new(choices: ChainChoices) -> Self {
        let ChainChoices { blockchain, stablecoins } = choices;
        Self { blockchain, name: blockchain.label(), stablecoins }
    }
}

/// What a customer is to pay: the deposit, and the same said to a person.
#[derive(Debug, Serialize)]
pub(crate) struct PaymentView {
    blockchain: Blockchain,
    #[serde(rename = "token")]
    stablecoin: Stablecoin,
    /// The contract that is the stablecoin: transfers of any other do not count.
    contract: Address,
    wallet_address: Address,
    /// To be paid exactly; may lie above the order's amount.
    value: String,
    expires_at: UnixSeconds,
    deposit: DepositView,
}

impl PaymentView {
    pub(crate) fn new(order: &Order, deposit: DepositView, contract: Address) -> Self {
        Self {
            blockchain: deposit.blockchain,
            stablecoin: deposit.stablecoin,
            contract,
            wallet_address: deposit.wallet_address,
            value: deposit.value.clone(),
            expires_at: order.expires_at,
            deposit,
        }
    }
}

/// An order as its customer sees it.
#[derive(Debug, Serialize)]
pub(crate) struct CheckoutView<'a> {
    #[serde(flatten)]
    order: OrderView<'a>,
    expires_at: UnixSeconds,
    /// Whether a transfer that fits was seen and is not yet confirmed.
    payment_seen: bool,
    /// Those that are open.
    deposits: Vec<DepositView>,
}

impl<'a> CheckoutView<'a> {
    pub(crate) fn new(order: &'a Order, chains: &[ChainRow]) -> Self {
        let open = |deposit: &&OrderDeposit| deposit.state == schemas::DepositState::Open;
        Self {
            order: OrderView::new(order),
            expires_at: order.expires_at,
            payment_seen: !order.candidates.is_empty(),
            deposits: order
                .deposits
                .iter()
                .filter(open)
                .filter_map(|deposit| DepositView::of_order(order, deposit, chains))
                .collect(),
        }
    }
}

/// Spec 4.2, health check.
#[derive(Debug, Serialize)]
pub(crate) struct HealthView {
    pub(crate) status: &'static str,
    pub(crate) version: &'static str,
}
