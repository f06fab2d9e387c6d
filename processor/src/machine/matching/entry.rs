//! Conversion of a lane's rows to published records and changelog entries.

use schemas::record::{
    Block, Deposit, DepositEntry, MatchingEntry, Observation, Transfer, TransferEntry,
};
use schemas::{Address, Blockchain, DepositId, TransferId, TransferStatus};

use super::deposits::{Closed, ContractsNumber, DepositRow, Opening};
use super::transfers::TransferRow;

/// Key of a lane's own entry.
pub const LANE_KEY: &str = "lane";

/// A key of the changelog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Lane,
    Deposit(DepositId),
    Transfer(TransferId),
    Watch(Address),
}

impl Key {
    pub(super) fn of(entry: &MatchingEntry) -> Self {
        match entry {
            MatchingEntry::Lane(_) => Self::Lane,
            MatchingEntry::Deposit(entry) => Self::Deposit(entry.deposit_id),
            MatchingEntry::Transfer(entry) => Self::Transfer(entry.transfer_id),
            MatchingEntry::Watch(watch) => Self::Watch(watch.wallet_address),
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == LANE_KEY {
            return Some(Self::Lane);
        }
        let (kind, name) = text.split_once('/')?;
        match kind {
            "d" => name.parse().ok().map(|id| Self::Deposit(DepositId(id))),
            "t" => name.parse().ok().map(|id| Self::Transfer(TransferId(id))),
            "w" => Address::parse(name).ok().map(Self::Watch),
            _ => None,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lane => f.write_str(LANE_KEY),
            Self::Deposit(id) => write!(f, "d/{id}"),
            Self::Transfer(id) => write!(f, "t/{id}"),
            Self::Watch(wallet) => write!(f, "w/{wallet}"),
        }
    }
}

impl DepositRow {
    pub(super) fn record(&self, blockchain: Blockchain, contracts: &[Address]) -> Deposit {
        Deposit {
            deposit_id: self.id,
            updated_at: self.updated_at,
            order_id: self.order,
            slot: self.slot,
            state: self.state(),
            close_reason: self.closed.map(|closed| closed.reason),
            blockchain,
            stablecoin: self.stablecoin,
            contracts: contracts.to_vec(),
            user_address: self.user_address,
            wallet_address: self.wallet,
            value: self.value,
            value_text: self.value.to_string(),
            started_at: self.started_at,
            expires_at: self.expires_at,
        }
    }

    pub(super) fn entry(&self, contracts: &[Address]) -> MatchingEntry {
        MatchingEntry::Deposit(DepositEntry {
            deposit_id: self.id,
            updated_at: self.updated_at,
            order_id: self.order,
            slot: self.slot,
            close_reason: self.closed.map(|closed| closed.reason),
            stablecoin: self.stablecoin,
            contracts: contracts.to_vec(),
            user_address: self.user_address,
            wallet_address: self.wallet,
            value: self.value,
            started_at: self.started_at,
            expires_at: self.expires_at,
            opened_above: self.opening.above,
            opened_at: self.opening.position,
            late_window_seconds: self.late_window_seconds,
            accepts_late: self.accepts_late,
            release_at: self.closed.map(|closed| closed.release_at),
        })
    }

    pub(super) fn of(entry: &DepositEntry, contracts: ContractsNumber) -> Option<Self> {
        let closed = match (entry.close_reason, entry.release_at) {
            (Some(reason), Some(release_at)) => Some(Closed { reason, release_at }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return None,
        };
        Some(Self {
            id: entry.deposit_id,
            order: entry.order_id,
            slot: entry.slot,
            stablecoin: entry.stablecoin,
            contracts,
            wallet: entry.wallet_address,
            user_address: entry.user_address,
            value: entry.value,
            started_at: entry.started_at,
            expires_at: entry.expires_at,
            updated_at: entry.updated_at,
            opening: Opening { above: entry.opened_above, position: entry.opened_at },
            late_window_seconds: entry.late_window_seconds,
            accepts_late: entry.accepts_late,
            closed,
        })
    }
}

impl TransferRow {
    pub(super) fn record(&self, blockchain: Blockchain) -> Transfer {
        Transfer {
            transfer_id: self.id,
            updated_at: self.updated_at,
            blockchain,
            block: self.block,
            observation: self.seen,
            value_text: self.seen.value.to_string(),
            blockchain_confirmed: self.is_confirmed(),
            created_at: self.created_at,
            status: self.status,
            fulfillment_id: self.fulfillment,
            order_id: self.order.filter(|_| self.status == TransferStatus::Matched),
            deposit_id: self.deposit,
            reason: self.reason,
            candidate_order_id: self.candidate_order,
            orphaned_at: self.orphaned_at,
        }
    }

    pub(super) fn entry(&self) -> MatchingEntry {
        let (block, seen) = (&self.block, &self.seen);
        MatchingEntry::Transfer(TransferEntry {
            transfer_id: self.id,
            updated_at: self.updated_at,
            block_number: block.number,
            block_hash: block.hash,
            block_timestamp: block.timestamp,
            stablecoin: seen.stablecoin,
            contract: seen.contract,
            from_address: seen.from_address,
            to_address: seen.to_address,
            tx_hash: seen.tx_hash,
            log_index: seen.log_index,
            ordinal: seen.ordinal,
            value: seen.value,
            created_at: self.created_at,
            listed_at: self.listed_at,
            status: self.status,
            fulfillment_id: self.fulfillment,
            order_id: self.order,
            deposit_id: self.deposit,
            reason: self.reason,
            candidate_order_id: self.candidate_order,
            epoch: self.epoch,
            orphaned_at: self.orphaned_at,
            orphan_due: self.orphan_due,
            settling: self.settling,
            unanswered: self.unanswered,
            asked_at: self.asked_at,
            match_deadline: self.match_deadline,
            forget_at: self.forget_at,
            from_own_wallet: seen.from_own_wallet,
        })
    }

    pub(super) fn of(entry: &TransferEntry) -> Self {
        Self {
            id: entry.transfer_id,
            updated_at: entry.updated_at,
            block: Block {
                number: entry.block_number,
                hash: entry.block_hash,
                timestamp: entry.block_timestamp,
            },
            seen: Observation {
                stablecoin: entry.stablecoin,
                contract: entry.contract,
                from_address: entry.from_address,
                to_address: entry.to_address,
                tx_hash: entry.tx_hash,
                log_index: entry.log_index,
                ordinal: entry.ordinal,
                value: entry.value,
                from_own_wallet: entry.from_own_wallet,
            },
            created_at: entry.created_at,
            listed_at: entry.listed_at,
            status: entry.status,
            fulfillment: entry.fulfillment_id,
            order: entry.order_id,
            deposit: entry.deposit_id,
            reason: entry.reason,
            candidate_order: entry.candidate_order_id,
            epoch: entry.epoch,
            orphaned_at: entry.orphaned_at,
            orphan_due: entry.orphan_due,
            settling: entry.settling,
            unanswered: entry.unanswered,
            asked_at: entry.asked_at,
            match_deadline: entry.match_deadline,
            forget_at: entry.forget_at,
        }
    }
}
