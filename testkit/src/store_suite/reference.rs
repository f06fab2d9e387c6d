//! The tables as plain maps: the reference for the back ends.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemas::record::{Attempt, ChainProgress, Deposit, Order, Transfer};
use schemas::{
    Address, AttemptOutcome, Blockchain, DepositId, DepositState, OrderId, OrderStatus, TransferId,
    TransferStatus, UnixMicros, UnixSeconds,
};
use store::prune::Day;
use store::{
    ChainRow, Change, DepositFilter, DepositRow, OrderFilter, OrderRow, Page, Store, Subject,
    TransferFilter, TransferRow, Within,
};

use super::sample;

#[derive(Debug, Default)]
pub(super) struct Reference {
    orders: BTreeMap<OrderId, Order>,
    deposits: BTreeMap<DepositId, Deposit>,
    transfers: BTreeMap<TransferId, Transfer>,
    attempts: BTreeMap<(String, i32, bool), Attempt>,
    chains: BTreeMap<(Blockchain, Option<i32>), ChainProgress>,
}

impl Reference {
    pub(super) fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::Order(row) => keep(&mut self.orders, row.order_id, row, |r| r.updated_at),
            Change::Deposit(row) => keep(&mut self.deposits, row.deposit_id, row, |r| r.updated_at),
            Change::Transfer(row) => {
                keep(&mut self.transfers, row.transfer_id, row, |r| r.updated_at);
            }
            Change::Chain(row) => {
                keep(&mut self.chains, (row.blockchain, row.lane), row, |r| r.updated_at);
            }
            Change::Attempt(row) => {
                let key = (row.event_id.clone(), row.attempt, row.manual);
                self.attempts.entry(key).or_insert(row);
            }
        }
    }

    fn order_row(&self, order: &Order) -> OrderRow {
        let attempts = self.attempts.values().filter(|a| a.order_id == Some(order.order_id));
        let attempts: Vec<_> = attempts.filter(|a| a.outcome.is_request()).collect();
        let delivered = attempts.iter().filter(|a| a.outcome == AttemptOutcome::Delivered);
        OrderRow {
            order: order.clone(),
            webhook_retry_count: i64::try_from(attempts.len()).unwrap(),
            webhook_success_at: delivered.map(|a| a.attempted_at.seconds()).min(),
            webhook_last_tried_at: attempts.iter().map(|a| a.attempted_at.seconds()).max(),
        }
    }

    pub(super) fn orders(&self, filter: &OrderFilter) -> Vec<OrderRow> {
        let wanted = |order: &&Order| {
            filter.status.is_none_or(|status| order.status == status)
                && filter.merchant_order_id.as_ref().is_none_or(|r| *r == order.merchant_order_id)
                && is_within(filter.within, order.created_at, order.order_id.0.as_u128())
        };
        let mut rows: Vec<_> = self.orders.values().filter(wanted).collect();
        rows.sort_by_key(|order| Reverse((order.created_at, order.order_id)));
        rows.into_iter().map(|order| self.order_row(order)).collect()
    }

    pub(super) fn deposits(&self, filter: &DepositFilter) -> Vec<DepositRow> {
        let wanted = |deposit: &&Deposit| {
            deposit.state == DepositState::Open
                && filter.order_id.is_none_or(|order| deposit.order_id == order)
                && filter.blockchain.is_none_or(|chain| deposit.blockchain == chain)
                && filter.stablecoin.is_none_or(|stablecoin| deposit.stablecoin == stablecoin)
                && is_within(filter.within, deposit.started_at, number(deposit.deposit_id.0))
        };
        let mut rows: Vec<_> = self.deposits.values().filter(wanted).collect();
        rows.sort_by_key(|deposit| Reverse((deposit.started_at, deposit.deposit_id)));
        let scanned = |blockchain| {
            self.chains.get(&(blockchain, None)).map(|chain| chain.updated_at.seconds())
        };
        rows.into_iter()
            .map(|deposit| DepositRow {
                deposit: deposit.clone(),
                last_scanned_at: scanned(deposit.blockchain),
            })
            .collect()
    }

    pub(super) fn transfers(&self, wallet: Address, filter: &TransferFilter) -> Vec<TransferRow> {
        let wanted = |transfer: &&Transfer| {
            transfer.observation.to_address == wallet
                && filter.status.is_none_or(|status| transfer.status == status)
                && filter.blockchain.is_none_or(|chain| transfer.blockchain == chain)
                && filter
                    .stablecoin
                    .is_none_or(|stablecoin| transfer.observation.stablecoin == stablecoin)
                && is_within(filter.within, transfer.created_at, number(transfer.transfer_id.0))
        };
        let mut rows: Vec<_> = self.transfers.values().filter(wanted).cloned().collect();
        rows.sort_by_key(|transfer| Reverse((transfer.created_at, transfer.transfer_id)));
        rows
    }

    pub(super) fn attempts(&self, subject: Subject) -> Vec<Attempt> {
        let wanted = |attempt: &&Attempt| match subject {
            Subject::Order(id) => attempt.order_id == Some(id),
            Subject::Transfer(id) => attempt.transfer_id == Some(id),
        };
        let mut rows: Vec<_> = self.attempts.values().filter(wanted).cloned().collect();
        rows.sort_by_key(|row| Reverse((row.attempted_at, row.event_id.clone(), row.attempt)));
        rows
    }

    pub(super) fn order(&self, id: OrderId) -> Option<OrderRow> {
        self.orders.get(&id).map(|order| self.order_row(order))
    }

    pub(super) fn transfer(&self, id: TransferId) -> Option<TransferRow> {
        self.transfers.get(&id).cloned()
    }

    /// Removes final transfers and ended orders without an open deposit, created before a day, with their deposits and
    /// attempts. Returns all of them.
    pub(super) fn prune(&mut self, before: Day) -> Vec<Change> {
        let is_old = |at: UnixSeconds| at < before.start();
        let deposits: Vec<Deposit> = self.deposits.values().cloned().collect();
        let is_open = |order: OrderId| {
            deposits.iter().any(|d| d.order_id == order && d.state == DepositState::Open)
        };
        let orders = self.orders.extract_if(.., |id, order| {
            is_old(order.created_at) && order.status != OrderStatus::Pending && !is_open(*id)
        });
        let orders: BTreeMap<_, _> = orders.collect();
        let transfers = self.transfers.extract_if(.., |_, transfer| {
            use TransferStatus::{FailedToConfirm, Matched, NoMatchedDeposit};
            is_old(transfer.created_at)
                && matches!(transfer.status, FailedToConfirm | Matched | NoMatchedDeposit)
        });
        let transfers: BTreeMap<_, _> = transfers.collect();
        let deposits = self.deposits.extract_if(.., |_, d| orders.contains_key(&d.order_id));
        let mut gone: Vec<Change> = deposits.map(|(_, row)| Change::Deposit(row)).collect();
        let attempts = self.attempts.extract_if(.., |_, attempt| {
            attempt.order_id.is_some_and(|id| orders.contains_key(&id))
                || attempt.transfer_id.is_some_and(|id| transfers.contains_key(&id))
        });
        gone.extend(attempts.map(|(_, row)| Change::Attempt(row)));
        gone.extend(orders.into_values().map(Change::Order));
        gone.extend(transfers.into_values().map(Change::Transfer));
        gone
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let all = TransferFilter::default();
        let mut chains: Vec<_> = self.chains.values().cloned().collect();
        chains.sort_by_key(|chain| chain.blockchain.index());
        Snapshot {
            orders: self.orders(&OrderFilter::default()),
            deposits: self.deposits(&DepositFilter::default()),
            transfers: sample::WALLETS.iter().flat_map(|w| self.transfers(*w, &all)).collect(),
            attempts: sample::subjects().flat_map(|of| self.attempts(of)).collect(),
            chains,
        }
    }
}

fn number(id: i64) -> u128 {
    u128::try_from(id).unwrap()
}

fn is_within(within: Within, at: UnixSeconds, id: u128) -> bool {
    within.from.is_none_or(|from| at >= from)
        && within.before.is_none_or(|before| (at, id) < (before.at, before.id))
}

fn keep<K: Ord, R>(rows: &mut BTreeMap<K, R>, key: K, row: R, version: impl Fn(&R) -> UnixMicros) {
    if rows.get(&key).is_none_or(|kept| version(kept) < version(&row)) {
        rows.insert(key, row);
    }
}

/// Results of all queries of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub orders: Vec<OrderRow>,
    pub deposits: Vec<DepositRow>,
    /// The transfers of each sample wallet.
    pub transfers: Vec<TransferRow>,
    /// The attempts for each order and transfer of the samples.
    pub attempts: Vec<Attempt>,
    pub chains: Vec<ChainRow>,
}

impl Snapshot {
    /// Takes a snapshot of a store whose rows are samples.
    pub async fn of(store: &dyn Store) -> Self {
        let page = Page { limit: 10_000, offset: 0 };
        let mut transfers = Vec::new();
        for wallet in sample::WALLETS {
            let filter = TransferFilter::default();
            transfers.extend(store.transfers(wallet, filter, page).await.unwrap());
        }
        let mut attempts = Vec::new();
        for subject in sample::subjects() {
            attempts.extend(store.attempts(subject, page).await.unwrap());
        }
        Self {
            orders: store.orders(OrderFilter::default(), page).await.unwrap(),
            deposits: store.deposits(DepositFilter::default(), page).await.unwrap(),
            transfers,
            attempts,
            chains: store.chains().await.unwrap(),
        }
    }
}
