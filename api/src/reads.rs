//! Reads for requests: from the tables and the configuration.

use std::sync::Arc;

use runtime::Clock;
use schemas::record::{Attempt, Order, OrderDeposit, Transfer};
use schemas::{
    Address, Blockchain, DepositState, Hash, OrderId, OrderStatus, TransferId, TransferStatus,
    UnixSeconds, Wallet,
};
use store::{ChainRow, Cursor, DepositFilter, DepositRow, OrderFilter, OrderRow, Page};
use store::{Store, Subject, TransferFilter, Within, transfer_cursor};

use crate::error::{Answer, Refusal};
use crate::machine::arrival::{self, Claim};
use crate::machine::candidates::{self, Candidate};
use crate::machine::catalog::Catalog;
use crate::machine::followed::Followed;
use crate::machine::occasions::Occasions;
use crate::machine::seen_transfer::{Checkout, SeenTransfer};
use crate::view::ChainView;

/// Maximum transfers of a wallet, the latest of each status, that are searched for those of an order.
const ARRIVALS: Page = Page { limit: 100, offset: 0 };
const ARRIVED: [TransferStatus; 3] = [
    TransferStatus::WaitingForConfirmation,
    TransferStatus::WaitingForMatch,
    TransferStatus::NoMatchedDeposit,
];
/// Maximum transfers named by an order that are shown with it. At most twice this number of its customer's transfers
/// are shown in all, and at most this number of possible ones.
const SIGHTINGS_MAX: usize = 8;

/// Page size and maximum pages of a search: for a transaction among a wallet's latest transfers, and for orders that a
/// transfer may be meant for.
const SEARCHED: Page = Page { limit: 200, offset: 0 };
const SEARCHED_PAGES_MAX: usize = 10;
/// Clock tolerance, in seconds, by which a transfer's record may precede its order.
const CLOCKS_SECONDS: i64 = 3600;

/// Wallets and chains where the customer of an order was asked to pay, each pair once.
fn places(order: &Order) -> Vec<(Address, Blockchain)> {
    let mut places = Vec::new();
    for deposit in order.deposits.iter().filter(|deposit| deposit.deposit_id.is_some()) {
        let place = (deposit.wallet_address, deposit.blockchain);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn is_same(one: &Transfer, other: &Transfer) -> bool {
    one.transfer_id == other.transfer_id
}

/// The newest transfers to these wallets.
pub(crate) async fn transfers_to(
    store: &dyn Store,
    wallets: &[Wallet],
    of: TransferFilter,
    page: Page,
) -> Result<Vec<Transfer>, store::Error> {
    let mut found = Vec::new();
    for wallet in wallets {
        let of = TransferFilter { blockchain: Some(wallet.blockchain), ..of };
        found.extend(store.transfers(wallet.address, of, page).await?);
    }
    found.sort_by_key(|transfer| std::cmp::Reverse(transfer_cursor(transfer)));
    found.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
    Ok(found)
}

#[derive(Clone)]
pub(crate) struct Reads {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    catalog: Arc<Catalog>,
    /// Reads, since the last log line, of orders that can never be paid.
    stranded: Arc<Occasions>,
}

impl Reads {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, catalog: Arc<Catalog>) -> Self {
        Self { store, clock, catalog, stranded: Arc::default() }
    }

    pub(crate) async fn order(&self, order_id: OrderId) -> Answer<Order> {
        self.store.order_record(order_id).await?.ok_or(Refusal::OrderNotFound)
    }

    pub(crate) async fn order_row(&self, order_id: OrderId) -> Answer<OrderRow> {
        self.store.order(order_id).await?.ok_or(Refusal::ResourceNotFound)
    }

    pub(crate) async fn transfer(&self, id: TransferId) -> Answer<Transfer> {
        self.store.transfer(id).await?.ok_or(Refusal::ResourceNotFound)
    }

    /// The orders that a transfer was probably meant for: among the newest created up to an hour after its block, and
    /// the one that matching named. Empty unless [`candidates::is_stray`] holds for the transfer.
    pub(crate) async fn candidates(&self, id: TransferId) -> Answer<Vec<Candidate>> {
        let transfer = self.transfer(id).await?;
        if !candidates::is_stray(&transfer) {
            return Ok(Vec::new());
        }
        let mut orders = Vec::new();
        if let Some(named) = transfer.candidate_order_id {
            orders.extend(self.store.order(named).await?.map(|row| row.order));
        }
        let latest = Cursor { at: transfer.block.timestamp.plus(CLOCKS_SECONDS), id: u128::MAX };
        let mut of = OrderFilter::default();
        of.within.before = Some(latest);
        for _ in 0..SEARCHED_PAGES_MAX {
            let rows = self.store.orders(of.clone(), SEARCHED).await?;
            let is_full = SEARCHED.is_full(&rows);
            of.within.before = rows.last().map(OrderRow::cursor);
            orders.extend(rows.into_iter().map(|row| row.order));
            if !is_full {
                break;
            }
        }
        Ok(candidates::rank(&transfer, &orders))
    }

    /// An order with everything that its customer sees.
    pub(crate) async fn checkout(&self, order_id: OrderId) -> Answer<Checkout> {
        let (order, chains) = (self.order(order_id).await?, self.chains().await?);
        let (mut transfers, mut possible) = (Vec::new(), Vec::new());
        for id in arrival::named(&order).take(SIGHTINGS_MAX) {
            // The transfer's row may not be written yet.
            transfers.extend(self.store.transfer(id).await?);
        }
        for found in self.arrivals(&order).await? {
            match arrival::claim(&order, &found) {
                // A transfer is found twice if its row changes between two reads.
                Some(Claim::Own) if transfers.iter().all(|of| !is_same(of, &found)) => {
                    transfers.push(found);
                }
                Some(Claim::Possible) if possible.iter().all(|of| !is_same(of, &found)) => {
                    possible.push(found);
                }
                Some(Claim::Own | Claim::Possible) | None => {}
            }
        }
        transfers.truncate(2 * SIGHTINGS_MAX);
        possible.truncate(SIGHTINGS_MAX);
        let seen =
            |found: Vec<_>| found.into_iter().map(|of| self.seen_transfer(of, &chains)).collect();
        let (transfers, possible) = (seen(transfers), seen(possible));
        Ok(Checkout { order, chains, transfers, possible })
    }

    /// Waiting and unknown transfers to the wallets of an order, since an hour before its creation.
    async fn arrivals(&self, order: &Order) -> Answer<Vec<Transfer>> {
        let within = Within { from: Some(order.created_at.plus(-CLOCKS_SECONDS)), before: None };
        let mut found = Vec::new();
        for (wallet, blockchain) in places(order) {
            for status in ARRIVED {
                let (status, blockchain) = (Some(status), Some(blockchain));
                let of = TransferFilter { status, blockchain, within, ..TransferFilter::default() };
                found.extend(self.store.transfers(wallet, of, ARRIVALS).await?);
            }
        }
        Ok(found)
    }

    fn seen_transfer(&self, transfer: Transfer, chains: &[ChainRow]) -> SeenTransfer {
        let terms = self.catalog.terms(transfer.blockchain);
        SeenTransfer::new(transfer, chains, terms, self.catalog.match_window_seconds())
    }

    /// The transfers of a transaction to the wallets of an order's deposits, since the order's creation.
    pub(crate) async fn transaction(
        &self,
        order_id: OrderId,
        hash: Hash,
    ) -> Answer<Vec<SeenTransfer>> {
        let (order, chains) = (self.order(order_id).await?, self.chains().await?);
        let from = Some(order.created_at.plus(-CLOCKS_SECONDS));
        let mut transfers = Vec::new();
        for place in places(&order) {
            transfers.extend(self.transaction_at(place, from, hash).await?);
        }
        Ok(transfers.into_iter().map(|of| self.seen_transfer(of, &chains)).collect())
    }

    /// The transfers of a transaction to one wallet, among the latest since a time.
    pub(crate) async fn transaction_at(
        &self,
        (wallet, blockchain): (Address, Blockchain),
        from: Option<UnixSeconds>,
        hash: Hash,
    ) -> Answer<Vec<Transfer>> {
        let (blockchain, within) = (Some(blockchain), Within { from, before: None });
        let mut of = TransferFilter { blockchain, within, ..TransferFilter::default() };
        let mut transfers = Vec::new();
        for _ in 0..SEARCHED_PAGES_MAX {
            let rows = self.store.transfers(wallet, of, SEARCHED).await?;
            let is_full = SEARCHED.is_full(&rows);
            of.within.before = rows.last().map(transfer_cursor);
            transfers.extend(rows.into_iter().filter(|row| row.observation.tx_hash == hash));
            if !is_full {
                break;
            }
        }
        Ok(transfers)
    }

    /// Progress of each chain and of its lanes.
    pub(crate) async fn chains(&self) -> Answer<Vec<ChainRow>> {
        Ok(self.store.chains().await?)
    }

    /// Chains and coins that an order can be paid with.
    pub(crate) async fn choices(&self, order_id: OrderId) -> Answer<Vec<ChainView>> {
        let order = self.order(order_id).await?;
        Ok(self.choices_among(&order, &self.followed().await?))
    }

    /// [`Self::choices`] of a checkout already read.
    pub(crate) fn choices_of(&self, Checkout { order, chains, .. }: &Checkout) -> Vec<ChainView> {
        self.choices_among(order, &Followed::new(chains.clone(), self.clock.now().seconds()))
    }

    fn choices_among(&self, order: &Order, followed: &Followed) -> Vec<ChainView> {
        let choices = self.catalog.choices(order, followed);
        if choices.is_empty() {
            self.report_stranded(order);
        }
        choices
    }

    /// Logs that an accepted order can never be paid; once a minute at most.
    fn report_stranded(&self, order: &Order) {
        let is_open = |of: &OrderDeposit| of.state == DepositState::Open;
        let is_pending = order.status == OrderStatus::Pending;
        if !is_pending || order.deposits.iter().any(is_open) || self.catalog.has_way(order) {
            return;
        }
        if let Some(count) = self.stranded.occurred(self.clock.now().seconds()) {
            tracing::warn!(
                count,
                order.id = %order.order_id,
                "an order can never be paid: since it was created the wallets, coins or chains that it needs were taken \
                 out of the configuration"
            );
        }
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Chains and coins that the shop offers.
    pub(crate) async fn offer(&self) -> Answer<Vec<ChainView>> {
        Ok(self.catalog.offer(&self.followed().await?))
    }

    async fn followed(&self) -> Answer<Followed> {
        Ok(Followed::new(self.chains().await?, self.clock.now().seconds()))
    }

    pub(crate) async fn orders(&self, of: OrderFilter, page: Page) -> Answer<Vec<OrderRow>> {
        Ok(self.store.orders(of, page).await?)
    }

    pub(crate) async fn deposits(&self, of: DepositFilter, page: Page) -> Answer<Vec<DepositRow>> {
        Ok(self.store.deposits(of, page).await?)
    }

    /// The address of a configured wallet. Its hex digits may have any case, because explorers and spreadsheets
    /// change the case. A mistyped digit finds no wallet, so the checksum need not be verified.
    pub(crate) fn wallet(&self, wallet: &str) -> Answer<Address> {
        let lower = wallet.to_ascii_lowercase();
        let address = Address::parse(if lower.starts_with("0x") { &lower } else { wallet }).ok();
        let is_configured = |of: &Address| self.wallets().iter().any(|w| w.address == *of);
        address.filter(is_configured).ok_or(Refusal::ResourceNotFound)
    }

    pub(crate) async fn transfers(
        &self,
        wallet: Address,
        of: TransferFilter,
        page: Page,
    ) -> Answer<Vec<Transfer>> {
        Ok(self.store.transfers(wallet, of, page).await?)
    }

    /// The newest transfers to all wallets.
    pub(crate) async fn all_transfers(
        &self,
        of: TransferFilter,
        page: Page,
    ) -> Answer<Vec<Transfer>> {
        Ok(transfers_to(&*self.store, self.wallets(), of, page).await?)
    }

    /// The webhook attempts for an order or a transfer.
    pub(crate) async fn attempts(&self, of: Subject, page: Page) -> Answer<Vec<Attempt>> {
        match of {
            Subject::Order(id) => drop(self.order_row(id).await?),
            Subject::Transfer(id) => drop(self.transfer(id).await?),
        }
        Ok(self.store.attempts(of, page).await?)
    }

    /// The configured wallets, in the order of the file (spec 2.6).
    pub(crate) fn wallets(&self) -> &[Wallet] {
        self.catalog.wallets()
    }
}
