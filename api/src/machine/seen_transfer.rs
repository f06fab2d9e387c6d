//! Transfers shown to an order's customer, with their confirmations.

use schemas::record::{Order, Transfer};
use schemas::{DepositState, UnixSeconds};
use store::ChainRow;

use super::{arrival, followed};
use crate::terms::ChainTerms;

/// Transfer and its confirmation progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenTransfer {
    pub(crate) transfer: Transfer,
    /// Confirmations, at most the required number; 0 while no block contains it.
    pub(crate) confirmations: i64,
    /// `None` where the network's own finality is awaited, or the chain is not followed any more.
    pub(crate) required: Option<i64>,
    /// End of its wait for a deposit, while none fits.
    pub(crate) checked_by: Option<UnixSeconds>,
}

/// An order as its customer sees it.
#[derive(Debug, Clone)]
pub(crate) struct Checkout {
    pub(crate) order: Order,
    pub(crate) chains: Vec<ChainRow>,
    /// Transfers that the order names, and others of its customer.
    pub(crate) transfers: Vec<SeenTransfer>,
    /// Transfers possibly of its customer: shown without details.
    pub(crate) possible: Vec<SeenTransfer>,
}

impl Checkout {
    /// `true` if an operator has stopped payments of the open deposit.
    pub(crate) fn is_stopped(&self) -> bool {
        let mut deposits = self.order.deposits.iter().rev();
        let asked = deposits.find(|deposit| deposit.state == DepositState::Open);
        asked.is_some_and(|deposit| followed::is_stopped(&self.chains, deposit))
    }
}

impl SeenTransfer {
    pub(crate) fn new(
        transfer: Transfer,
        chains: &[ChainRow],
        terms: Option<&ChainTerms>,
        match_window_seconds: i64,
    ) -> Self {
        let blockchain = transfer.blockchain;
        let required = terms.and_then(|terms| terms.required(transfer.observation.value));
        let is_scan = |row: &&ChainRow| row.blockchain == blockchain && row.lane.is_none();
        let head = chains.iter().find(is_scan).map_or(transfer.block.number, |row| row.head.number);
        let blocks = head.saturating_sub(transfer.block.number).saturating_add(1).max(1);
        let confirmations = match transfer.orphaned_at {
            Some(_) => 0,
            None => blocks.min(required.unwrap_or(i64::MAX)),
        };
        let checked_by = arrival::checked_by(&transfer, match_window_seconds);
        Self { transfer, confirmations, required, checked_by }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        arrival::is_waiting(&self.transfer)
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::{Block, example};
    use schemas::{Blockchain, UnixSeconds};

    use super::*;

    #[test]
    fn confirmations_count_up_to_those_required() {
        let transfer = example::transfer();
        let scan = |above: i64| {
            let mut row = example::chain_progress();
            row.head.number = transfer.block.number + above;
            row
        };
        let terms = |depth| ChainTerms {
            blockchain: Blockchain::Eth,
            chain_id: 1,
            depths: vec![(None, depth)],
        };
        let lane =
            ChainRow { lane: Some(0), head: Block { number: 0, ..transfer.block }, ..scan(0) };
        for (above, depth, expected) in
            [(-1, Some(3), 1), (0, Some(3), 1), (1, Some(3), 2), (9, Some(3), 3), (9, None, 10)]
        {
            let rows = [lane.clone(), scan(above)];
            let seen = SeenTransfer::new(transfer.clone(), &rows, Some(&terms(depth)), 600);
            assert_eq!((seen.confirmations, seen.required), (expected, depth), "{above} above");
        }
        let orphan = Transfer { orphaned_at: Some(UnixSeconds(1)), ..transfer.clone() };
        assert_eq!(
            SeenTransfer::new(orphan, &[scan(9)], Some(&terms(Some(3))), 600).confirmations,
            0
        );
        assert_eq!(SeenTransfer::new(transfer, &[], None, 600).required, None);
    }
}
