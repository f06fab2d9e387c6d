//! Wallets and contracts that ingest watches, as read by this lane: deposits open nowhere else.

use std::collections::BTreeMap;

use schemas::record::{DepositCommand, OpenDeposit, Watch};
use schemas::{Address, RefusalReason, UnixSeconds};

use super::State;

/// The contracts that are watched at each wallet. Never shrinks: a wallet that is no longer offered is watched for
/// ever.
#[derive(Debug, Clone, Default)]
pub(super) struct Watches {
    wallets: BTreeMap<Address, Vec<Address>>,
    /// Previous values of what the step changed.
    before: BTreeMap<Address, Option<Vec<Address>>>,
}

impl Watches {
    fn is_watched(&self, wallet: Address, contract: Address) -> bool {
        self.wallets.get(&wallet).is_some_and(|contracts| contracts.contains(&contract))
    }

    /// `true` if the address is a watched wallet of this lane.
    pub(super) fn has(&self, wallet: Address) -> bool {
        self.wallets.contains_key(&wallet)
    }

    /// Adds a watch. Returns `true` if it is new.
    pub(super) fn add(&mut self, watch: &Watch) -> bool {
        let Watch { wallet_address: wallet, contracts } = watch;
        let known = self.wallets.get(wallet).cloned();
        let mut all = known.clone().unwrap_or_default();
        all.extend(contracts);
        all.sort_unstable();
        all.dedup();
        let is_new = known.as_ref() != Some(&all);
        if is_new {
            self.before.entry(*wallet).or_insert(known);
            self.wallets.insert(*wallet, all);
        }
        is_new
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Watch> {
        self.wallets.iter().map(|(wallet, contracts)| Watch {
            wallet_address: *wallet,
            contracts: contracts.clone(),
        })
    }

    pub(super) fn touched(&self) -> impl Iterator<Item = Watch> {
        self.all().filter(|watch| self.before.contains_key(&watch.wallet_address))
    }

    pub(super) fn commit(&mut self) {
        self.before.clear();
    }

    pub(super) fn undo(&mut self) {
        for (wallet, contracts) in std::mem::take(&mut self.before) {
            match contracts {
                Some(contracts) => self.wallets.insert(wallet, contracts),
                None => self.wallets.remove(&wallet),
            };
        }
    }
}

impl State {
    /// Checks that a payment to the deposit would be seen and not be stopped. Otherwise returns the reason to refuse
    /// the deposit.
    pub(super) fn unseen(
        &self,
        command: &DepositCommand,
        open: &OpenDeposit,
    ) -> Result<(), RefusalReason> {
        let wallet = command.wallet_address;
        if self.is_stopped(wallet, open.stablecoin, open.contract) {
            return Err(RefusalReason::Stopped);
        }
        let is_watched = |contract: &_| self.watches.is_watched(wallet, *contract);
        if !(open.contracts.contains(&open.contract) && open.contracts.iter().all(is_watched)) {
            return Err(RefusalReason::NotWatched);
        }
        // A payment may be in blocks that no endpoint has any more.
        if self.lane.has_gap {
            return Err(RefusalReason::ChainBehind);
        }
        let limit = i64::from(open.head_age_max_seconds);
        let fresh = |time: UnixSeconds| time.plus(limit) >= command.issued_at.seconds();
        if self.chain_time().is_some_and(fresh) { Ok(()) } else { Err(RefusalReason::ChainBehind) }
    }
}
