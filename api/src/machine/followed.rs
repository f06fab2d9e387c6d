//! Wallets whose payments are seen at present, according to the tables. A wallet's lane decides whether a deposit
//! opens, so the lane's position counts, not ingest's. Wallets that their lane would refuse are not offered, except in
//! case of a gap in the chain's blocks, which the tables do not show.

use schemas::record::OrderDeposit;
use schemas::{Address, Blockchain, Stablecoin, StablecoinContract, UnixSeconds};
use store::ChainRow;

/// The chains that are followed.
#[derive(Debug)]
pub(crate) enum Followed {
    Known {
        chains: Vec<ChainRow>,
        now: UnixSeconds,
    },
    /// The tables did not answer: every wallet is offered.
    Unknown,
}

impl Followed {
    pub(crate) fn new(chains: Vec<ChainRow>, now: UnixSeconds) -> Self {
        Self::Known { chains, now }
    }

    /// `true` if payments of all these contracts to a wallet are seen by a lane whose last head is recent enough, and
    /// are not stopped for the contract that is shown.
    pub(crate) fn sees(
        &self,
        wallet: Address,
        shown: &StablecoinContract,
        contracts: &[Address],
        head_age_max_seconds: u32,
    ) -> bool {
        let Self::Known { chains, now } = self else { return true };
        let StablecoinContract { blockchain, stablecoin, address, .. } = *shown;
        if stops(chains, blockchain, (wallet, stablecoin, address)) {
            return false;
        }
        let is_fresh = |lane: &&ChainRow| {
            let until = lane.head.timestamp.plus(i64::from(head_age_max_seconds));
            lane.blockchain == blockchain && lane.lane.is_some() && *now <= until
        };
        let mut watched = chains.iter().filter(is_fresh).flat_map(|lane| &lane.watched);
        watched.any(|of| {
            let is_read = |contract: &Address| of.contracts.contains(contract);
            of.wallet_address == wallet && contracts.iter().all(is_read)
        })
    }
}

/// `true` if an operator has stopped payments of this deposit, so that the customer must not pay it.
pub(crate) fn is_stopped(chains: &[ChainRow], deposit: &OrderDeposit) -> bool {
    let of = (deposit.wallet_address, deposit.stablecoin, deposit.contract);
    stops(chains, deposit.blockchain, of)
}

/// `true` if a stop covers such a payment. The lanes of a chain have the same stops.
fn stops(
    chains: &[ChainRow],
    blockchain: Blockchain,
    (wallet, stablecoin, contract): (Address, Stablecoin, Address),
) -> bool {
    let of_chain = chains.iter().filter(|row| row.blockchain == blockchain);
    of_chain.flat_map(|row| &row.stopped).any(|scope| scope.covers(wallet, stablecoin, contract))
}

#[cfg(test)]
mod tests {
    use schemas::record::{StopScope, Watch, example};

    use super::*;

    /// A contract of USDT on Ethereum.
    fn usdt(address: Address) -> StablecoinContract {
        let known = schemas::stablecoin_contract(Blockchain::Eth, Stablecoin::Usdt).unwrap();
        StablecoinContract { address, ..*known }
    }

    #[test]
    fn what_is_stopped_is_not_offered() {
        let lane = example::lane_progress();
        let deposit = example::order().deposits[0].clone();
        let nothing = StopScope { blockchain: None, stablecoin: None, address: None };
        let of_coin = |coin| StopScope { stablecoin: Some(coin), ..nothing };
        let of = |address| StopScope { address: Some(address), ..nothing };
        for (scope, expected) in [
            (nothing, true),
            (of_coin(Stablecoin::Usdt), true),
            (of_coin(Stablecoin::Usdc), false),
            (of(deposit.wallet_address), true),
            (of(deposit.contract), true),
            (of(Address::new(schemas::AddressFamily::Evm, [9; 20])), false),
        ] {
            let rows = [ChainRow { stopped: vec![scope], ..lane.clone() }];
            assert_eq!(is_stopped(&rows, &deposit), expected, "{scope:?}");
            let elsewhere = [ChainRow { blockchain: Blockchain::Op, ..rows[0].clone() }];
            assert!(!is_stopped(&elsewhere, &deposit));
            let shown = usdt(deposit.contract);
            let followed = Followed::new(rows.to_vec(), lane.head.timestamp);
            let wallet = lane.watched[0].wallet_address;
            assert_eq!(followed.sees(wallet, &shown, &[deposit.contract], 60), !expected);
        }
    }

    /// Ingest is fresh and the processor is not: the lane would refuse the deposit.
    #[test]
    fn a_wallet_is_offered_by_how_far_its_lane_is() {
        let scan = example::chain_progress();
        let Watch { wallet_address, contracts } = scan.watched[0].clone();
        let shown = usdt(contracts[0]);
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
            let sees = |contracts: &[_]| followed.sees(wallet_address, &shown, contracts, 60);
            assert_eq!(sees(&contracts), offered, "{rows:?}");
            assert!(!sees(&[contracts[0], wallet_address]), "one that is not watched");
        }
    }
}
