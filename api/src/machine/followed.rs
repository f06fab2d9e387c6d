//! Where payments are seen at present, as the tables have it. The lane of a wallet decides; what is not
//! offered saves the customer its refusal.

use schemas::{Address, Blockchain, UnixSeconds};
use store::ChainRow;

/// The chains that ingest follows.
#[derive(Debug)]
pub(crate) enum Followed {
    Known {
        chains: Vec<ChainRow>,
        now: UnixSeconds,
    },
    /// Nothing is ruled out.
    Unknown,
}

impl Followed {
    pub(crate) fn new(chains: Vec<ChainRow>, now: UnixSeconds) -> Self {
        Self::Known { chains, now }
    }

    /// Whether payments to a wallet are seen, on a chain whose last scanned block is at most this old.
    pub(crate) fn sees(
        &self,
        blockchain: Blockchain,
        wallet: Address,
        contract: Address,
        head_age_max_seconds: u32,
    ) -> bool {
        let Self::Known { chains, now } = self else { return true };
        let is_fresh = |chain: &&ChainRow| {
            let until = chain.head.timestamp.plus(i64::from(head_age_max_seconds));
            chain.blockchain == blockchain && *now <= until
        };
        let chain = chains.iter().find(is_fresh);
        let mut watched = chain.into_iter().flat_map(|chain| &chain.watched);
        watched.any(|of| of.wallet_address == wallet && of.contracts.contains(&contract))
    }
}
