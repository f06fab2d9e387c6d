//! Where payments are seen at present, as the tables have it. The lane of a wallet decides; what is not
//! offered saves the customer its refusal. So what counts is how far the lane is, not how far ingest is.

use schemas::{Address, Blockchain, UnixSeconds};
use store::ChainRow;

/// The chains that are followed.
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

    /// Whether payments to a wallet are seen, by a lane whose last head is at most this old.
    pub(crate) fn sees(
        &self,
        blockchain: Blockchain,
        wallet: Address,
        contract: Address,
        head_age_max_seconds: u32,
    ) -> bool {
        let Self::Known { chains, now } = self else { return true };
        let is_fresh = |lane: &&ChainRow| {
            let until = lane.head.timestamp.plus(i64::from(head_age_max_seconds));
            lane.blockchain == blockchain && lane.lane.is_some() && *now <= until
        };
        let mut watched = chains.iter().filter(is_fresh).flat_map(|lane| &lane.watched);
        watched.any(|of| of.wallet_address == wallet && of.contracts.contains(&contract))
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::{Watch, example};

    use super::*;

    /// Ingest is fresh and the processor is not: the lane would refuse the deposit.
    #[test]
    fn a_wallet_is_offered_by_how_far_its_lane_is() {
        let scan = example::chain_progress();
        let Watch { wallet_address, contracts } = scan.watched[0].clone();
        let now = scan.head.timestamp.plus(60);
        let lane = |age: i64| {
            let mut lane = example::lane_progress();
            lane.head.timestamp = now.plus(-age);
            lane
        };
        let other = ChainRow { lane: Some(1), watched: Vec::new(), ..lane(0) };
        for (rows, offered) in [
            (vec![scan.clone()], false),
            (vec![scan.clone(), lane(61)], false),
            (vec![scan.clone(), lane(60)], true),
            (vec![scan.clone(), other.clone()], false),
            (vec![scan, other, lane(0)], true),
        ] {
            let followed = Followed::new(rows.clone(), now);
            let sees = followed.sees(Blockchain::Eth, wallet_address, contracts[0], 60);
            assert_eq!(sees, offered, "{rows:?}");
        }
    }
}
