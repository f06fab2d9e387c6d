//! The eight chains, the three stablecoins and their contracts (spec 2.1), as data.

use alloy_primitives::hex;

use crate::vocabulary::vocabulary;
use crate::{Address, AddressFamily};

vocabulary! {
    /// A chain, by its identifier in the interface (spec 2.1). Partitions follow from the order:
    /// add at the end only.
    Blockchain {
        Eth = "eth",
        Polygon = "polygon",
        Base = "base",
        Arb = "arb",
        Op = "op",
        Linea = "linea",
        Avaxc = "avaxc",
        Tron = "tron",
    }

    /// A stablecoin, by its identifier in the interface (spec 2.1).
    Stablecoin {
        Usdt = "USDT",
        Usdc = "USDC",
        Dai = "DAI",
    }
}

/// How long, in chain time, a settled transfer is remembered: an observation of it that comes again is a
/// duplicate, one that comes later is too old to be acted upon without a person. So a chain that goes back further
/// than that could pay twice.
pub const FORGET_SECONDS: i64 = 24 * 3600;

impl Blockchain {
    /// How many chains there are, followed or not: the lanes' topics have partitions for each.
    pub const COUNT: u32 = Self::ALL.len() as u32;

    /// Name as people write it, EIP-155 chain id as `eth_chainId` answers, form of addresses, and the
    /// time between two blocks at present in milliseconds, rounded down: what depends on it allows for more.
    const fn facts(self) -> (&'static str, u64, AddressFamily, i64) {
        use AddressFamily::{Evm, Tron};
        match self {
            Self::Eth => ("Ethereum", 1, Evm, 12_000),
            Self::Polygon => ("Polygon", 137, Evm, 1_000),
            Self::Base => ("Base", 8453, Evm, 2_000),
            Self::Arb => ("Arbitrum One", 42161, Evm, 250),
            Self::Op => ("Optimism", 10, Evm, 2_000),
            Self::Linea => ("Linea", 59144, Evm, 1_000),
            Self::Avaxc => ("Avalanche C-Chain", 43114, Evm, 1_000),
            Self::Tron => ("Tron (TRC20)", 728_126_428, Tron, 3_000),
        }
    }

    /// Position among the chains: fixed for ever, because partitions follow from it.
    pub const fn index(self) -> u32 {
        self as u32
    }

    /// The chain with this [`Blockchain::index`].
    pub fn at(index: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(index).ok()?).copied()
    }

    pub const fn label(self) -> &'static str {
        self.facts().0
    }

    pub const fn chain_id(self) -> u64 {
        self.facts().1
    }

    pub const fn address_family(self) -> AddressFamily {
        self.facts().2
    }

    /// Far more blocks than the chain makes in this many seconds: twenty times as many, and those of
    /// twenty minutes.
    pub const fn blocks_max(self, seconds: i64) -> i64 {
        let millis = seconds.saturating_add(60).saturating_mul(1_000);
        millis.saturating_mul(20) / self.facts().3
    }
}

/// The contract that is a stablecoin on a chain: an ERC-20 token, on Tron a TRC-20 one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StablecoinContract {
    pub blockchain: Blockchain,
    pub stablecoin: Stablecoin,
    /// Where its Transfer events come from. A symbol identifies nothing: anyone may claim one.
    pub address: Address,
    /// Digits after the point: base units = amount x 10^decimals.
    pub decimals: u8,
}

const fn contract(
    blockchain: Blockchain,
    stablecoin: Stablecoin,
    address: [u8; 20],
    decimals: u8,
) -> StablecoinContract {
    let address = Address::new(blockchain.address_family(), address);
    StablecoinContract { blockchain, stablecoin, address, decimals }
}

/// The contracts used unless configuration names others: issuer-native where there is one. Left out on
/// purpose: `base` USDT (two competing bridged contracts), `tron` USDC (discontinued) and `tron` DAI
/// (does not exist).
const CONTRACTS: &[StablecoinContract] = {
    use Blockchain::{Arb, Avaxc, Base, Eth, Linea, Op, Polygon, Tron};
    use Stablecoin::{Dai, Usdc, Usdt};
    &[
        contract(Eth, Usdt, hex!("dAC17F958D2ee523a2206206994597C13D831ec7"), 6),
        contract(Eth, Usdc, hex!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48"), 6),
        contract(Eth, Dai, hex!("6B175474E89094C44Da98b954EedeAC495271d0F"), 18),
        contract(Polygon, Usdt, hex!("c2132D05D31c914a87C6611C10748AEb04B58e8F"), 6),
        contract(Polygon, Usdc, hex!("3c499c542cEF5E3811e1192ce70d8cC03d5c3359"), 6),
        contract(Polygon, Dai, hex!("8f3Cf7ad23Cd3CaDbD9735AFf958023239c6A063"), 18),
        contract(Base, Usdc, hex!("833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"), 6),
        contract(Base, Dai, hex!("50c5725949A6F0c72E6C4a641F24049A917DB0Cb"), 18),
        contract(Arb, Usdt, hex!("Fd086bC7CD5C481DCC9C85ebE478A1C0b69FCbb9"), 6),
        contract(Arb, Usdc, hex!("af88d065e77c8cC2239327C5EDb3A432268e5831"), 6),
        contract(Arb, Dai, hex!("DA10009cBd5D07dd0CeCc66161FC93D7c9000da1"), 18),
        contract(Op, Usdt, hex!("94b008aA00579c1307B0EF2c499aD98a8ce58e58"), 6),
        contract(Op, Usdc, hex!("0b2C639c533813f4Aa9D7837CAf62653d097Ff85"), 6),
        contract(Op, Dai, hex!("DA10009cBd5D07dd0CeCc66161FC93D7c9000da1"), 18),
        contract(Linea, Usdc, hex!("176211869cA2b568f2A7D4EE941E073a821EE1ff"), 6),
        contract(Linea, Usdt, hex!("A219439258ca9da29E9Cc4cE5596924745e12B93"), 6),
        contract(Linea, Dai, hex!("4AF15ec2A0BD43Db75dd04E62FAA3B8EF36b00d5"), 18),
        contract(Avaxc, Usdt, hex!("9702230A8Ea53601f5cD2dc00fDBc13d4dF4A8c7"), 6),
        contract(Avaxc, Usdc, hex!("B97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E"), 6),
        contract(Avaxc, Dai, hex!("d586E7F844cEa2F87f50152665BCbc2C279D8d70"), 18),
        contract(Tron, Usdt, hex!("a614f803b6fd780986a42c78ec9c7f77e6ded13c"), 6),
    ]
};

pub fn stablecoin_contracts(
    blockchain: Blockchain,
) -> impl Iterator<Item = &'static StablecoinContract> {
    CONTRACTS.iter().filter(move |contract| contract.blockchain == blockchain)
}

/// The contract that is `stablecoin` on `blockchain`, if one is known.
#[must_use]
pub fn stablecoin_contract(
    blockchain: Blockchain,
    stablecoin: Stablecoin,
) -> Option<&'static StablecoinContract> {
    stablecoin_contracts(blockchain).find(|contract| contract.stablecoin == stablecoin)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Topics of running installations have partitions by these numbers.
    #[test]
    fn indexes_are_the_positions_in_the_interface() {
        let ids = ["eth", "polygon", "base", "arb", "op", "linea", "avaxc", "tron"];
        for (index, id) in (0..).zip(ids) {
            let chain: Blockchain = id.parse().unwrap();
            assert_eq!((chain.index(), Blockchain::at(index)), (index, Some(chain)));
        }
        assert_eq!(Blockchain::at(8), None);
    }

    /// A public gateway took Avalanche's contract for Polygon's USDT: texts here come from a second
    /// source than the table.
    #[test]
    fn contracts_carry_the_right_checksummed_addresses() {
        for (chain, stablecoin, text) in [
            (Blockchain::Eth, Stablecoin::Usdt, "0xdAC17F958D2ee523a2206206994597C13D831ec7"),
            (Blockchain::Polygon, Stablecoin::Usdt, "0xc2132D05D31c914a87C6611C10748AEb04B58e8F"),
            (Blockchain::Avaxc, Stablecoin::Usdt, "0x9702230A8Ea53601f5cD2dc00fDBc13d4dF4A8c7"),
            (Blockchain::Base, Stablecoin::Usdc, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"),
            (Blockchain::Tron, Stablecoin::Usdt, "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"),
        ] {
            assert_eq!(stablecoin_contract(chain, stablecoin).unwrap().address.to_string(), text);
        }
    }

    #[test]
    fn no_chain_has_two_contracts_for_a_coin_or_one_contract_for_two() {
        for (i, a) in CONTRACTS.iter().enumerate() {
            for b in &CONTRACTS[..i] {
                if a.blockchain == b.blockchain {
                    assert_ne!(a.stablecoin, b.stablecoin);
                    assert_ne!(a.address, b.address);
                }
            }
            let decimals = if a.stablecoin == Stablecoin::Dai { 18 } else { 6 };
            assert_eq!(a.decimals, decimals, "{} {}", a.blockchain, a.stablecoin);
        }
        assert!(stablecoin_contract(Blockchain::Tron, Stablecoin::Dai).is_none());
    }
}
