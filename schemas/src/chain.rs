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

/// Minimum chain time, in seconds, for which a settled transfer is remembered, so that another
/// observation of it is recognised as a duplicate. A transfer first seen in an older block may be a forgotten one: it
/// raises an alert and pays nothing. If a reorganisation deeper than that moves a paid transaction to a new block, it
/// counts as another payment, unless the retracts name it (invariant 13).
pub const FORGET_SECONDS: i64 = 24 * 3600;

impl Blockchain {
    /// Number of chains, configured or not: topics by chain or lane have partitions for each.
    pub const COUNT: u32 = Self::ALL.len() as u32;

    /// Display name, EIP-155 chain id as `eth_chainId` answers, form of addresses, and the current
    /// time between two blocks in milliseconds, rounded down: callers add a margin.
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

    /// The name that people know the chain by.
    pub const fn label(self) -> &'static str {
        self.facts().0
    }

    /// Answer of `eth_chainId` on the chain's main network (EIP-155).
    pub const fn chain_id(self) -> u64 {
        self.facts().1
    }

    /// Notation of its addresses.
    pub const fn address_family(self) -> AddressFamily {
        self.facts().2
    }

    /// Upper bound of the blocks that the chain makes in this time: twenty times the number that is
    /// expected in this time and one more minute.
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
    /// Contract that emits its Transfer events. A symbol identifies nothing: anyone may claim one.
    pub address: Address,
    /// Digits after the point: base units = amount x 10^decimals.
    pub decimals: u8,
}

/// A contract found on a chain under the name of a stablecoin.
#[derive(Debug)]
struct Known {
    contract: StablecoinContract,
    /// Symbol of a bridged contract; none for a contract of the stablecoin's issuer.
    bridged: Option<&'static str>,
}

const fn known(
    blockchain: Blockchain,
    stablecoin: Stablecoin,
    address: [u8; 20],
    decimals: u8,
    bridged: Option<&'static str>,
) -> Known {
    let address = Address::new(blockchain.address_family(), address);
    Known { contract: StablecoinContract { blockchain, stablecoin, address, decimals }, bridged }
}

/// Every contract that is known. Those of the issuer are used unless configuration names others; a bridge's promise
/// to pay is not the issuer's, so the operator chooses bridged ones (decision 73). Tether's USDT0 counts as the
/// issuer's: on Polygon and Arbitrum it took over the bridged contract, on Optimism it is another one. Left out on
/// purpose: `tron` USDC (discontinued) and `tron` DAI (does not exist).
///
/// At least two sources, named by letters below, agree about the address and decimals of each: U the token list of
/// Uniswap 22, S that of SushiSwap 43, A the address book of Aave 4.44, O the token list of Optimism 10, L that of
/// LI.FI 7, D DefiLlama's list of issued and bridged contracts, N the token list of Linea, G the USDC addresses of
/// Gelato.
const KNOWN: &[Known] = {
    use Blockchain::{Arb, Avaxc, Base, Eth, Linea, Op, Polygon, Tron};
    use Stablecoin::{Dai, Usdc, Usdt};
    &[
        // U S A O L D
        known(Eth, Usdt, hex!("dAC17F958D2ee523a2206206994597C13D831ec7"), 6, None),
        // U S A O L D G
        known(Eth, Usdc, hex!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48"), 6, None),
        // U S A O L D
        known(Eth, Dai, hex!("6B175474E89094C44Da98b954EedeAC495271d0F"), 18, None),
        // U S A L D
        known(Polygon, Usdt, hex!("c2132D05D31c914a87C6611C10748AEb04B58e8F"), 6, None),
        // U S A L D G
        known(Polygon, Usdc, hex!("3c499c542cEF5E3811e1192ce70d8cC03d5c3359"), 6, None),
        // U S A L D
        known(Polygon, Usdc, hex!("2791Bca1f2de4661ED88A30C99A7a9449Aa84174"), 6, Some("USDC.e")),
        // U S A L D: the bridge of Polygon's validators
        known(Polygon, Dai, hex!("8f3Cf7ad23Cd3CaDbD9735AFf958023239c6A063"), 18, Some("DAI")),
        // U A O L D G
        known(Base, Usdc, hex!("833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"), 6, None),
        // U A O L D
        known(Base, Usdc, hex!("d9aAEc86B65D86f6A7B5B1b0c42FFA531710b6CA"), 6, Some("USDbC")),
        // O, and one weaker source: a second bridge issues another contract
        known(Base, Usdt, hex!("fde4C96c8593536E31F229EA8f37b2ADa2699bb2"), 6, Some("USDT")),
        // U O L D
        known(Base, Dai, hex!("50c5725949A6F0c72E6C4a641F24049A917DB0Cb"), 18, Some("DAI")),
        // U S A L D
        known(Arb, Usdt, hex!("Fd086bC7CD5C481DCC9C85ebE478A1C0b69FCbb9"), 6, None),
        // U S A L D G
        known(Arb, Usdc, hex!("af88d065e77c8cC2239327C5EDb3A432268e5831"), 6, None),
        // U S A L D
        known(Arb, Usdc, hex!("FF970A61A04b1cA14834A43f5dE4533eBDDB5CC8"), 6, Some("USDC.e")),
        // U S A L D
        known(Arb, Dai, hex!("DA10009cBd5D07dd0CeCc66161FC93D7c9000da1"), 18, Some("DAI")),
        // U O D
        known(Op, Usdt, hex!("01bFF41798a0BcF287b996046Ca68b395DbC1071"), 6, None),
        // U S A O L D
        known(Op, Usdt, hex!("94b008aA00579c1307B0EF2c499aD98a8ce58e58"), 6, Some("USDT")),
        // U S A O L D G
        known(Op, Usdc, hex!("0b2C639c533813f4Aa9D7837CAf62653d097Ff85"), 6, None),
        // U S A O L D
        known(Op, Usdc, hex!("7F5c764cBc14f9669B88837ca1490cCa17c31607"), 6, Some("USDC.e")),
        // U S A O L D
        known(Op, Dai, hex!("DA10009cBd5D07dd0CeCc66161FC93D7c9000da1"), 18, Some("DAI")),
        // A L D N: once bridged, taken over by the issuer in place
        known(Linea, Usdc, hex!("176211869cA2b568f2A7D4EE941E073a821EE1ff"), 6, None),
        // A L D N
        known(Linea, Usdt, hex!("A219439258ca9da29E9Cc4cE5596924745e12B93"), 6, Some("USDT")),
        // D N
        known(Linea, Dai, hex!("4AF15ec2A0BD43Db75dd04E62FAA3B8EF36b00d5"), 18, Some("DAI")),
        // U S D
        known(Avaxc, Usdt, hex!("9702230A8Ea53601f5cD2dc00fDBc13d4dF4A8c7"), 6, None),
        // S A L D
        known(Avaxc, Usdt, hex!("c7198437980c041c805A1EDcbA50c1Ce5db95118"), 6, Some("USDT.e")),
        // U S A L D G
        known(Avaxc, Usdc, hex!("B97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E"), 6, None),
        // S A L D
        known(Avaxc, Usdc, hex!("A7D7079b0FEaD91F3e65f86E8915Cb59c1a4C664"), 6, Some("USDC.e")),
        // U S A L D
        known(Avaxc, Dai, hex!("d586E7F844cEa2F87f50152665BCbc2C279D8d70"), 18, Some("DAI.e")),
        // L D
        known(Tron, Usdt, hex!("a614f803b6fd780986a42c78ec9c7f77e6ded13c"), 6, None),
    ]
};

/// Every known contract of a chain, of issuers and of bridges.
pub fn known_contracts(
    blockchain: Blockchain,
) -> impl Iterator<Item = &'static StablecoinContract> {
    known_on(blockchain).map(|known| &known.contract)
}

fn known_on(blockchain: Blockchain) -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(move |known| known.contract.blockchain == blockchain)
}

/// The contracts of issuers on a chain: one for each of its stablecoins at most.
pub fn stablecoin_contracts(
    blockchain: Blockchain,
) -> impl Iterator<Item = &'static StablecoinContract> {
    known_on(blockchain).filter(|known| known.bridged.is_none()).map(|known| &known.contract)
}

/// The contracts that bridges issued on a chain, by their symbols.
pub fn bridged_contracts(
    blockchain: Blockchain,
) -> impl Iterator<Item = (&'static str, &'static StablecoinContract)> {
    known_on(blockchain).filter_map(|known| Some((known.bridged?, &known.contract)))
}

/// The known contract at an address, of an issuer or a bridge. If two chains share it, that of the first.
pub fn known_contract(address: Address) -> Option<&'static StablecoinContract> {
    KNOWN.iter().map(|known| &known.contract).find(|contract| contract.address == address)
}

/// The contract of the issuer of `stablecoin` on `blockchain`, if one is known.
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

    /// A public payment gateway used Avalanche's contract of USDT for Polygon. So the texts here
    /// come from another source than the table.
    #[test]
    fn contracts_carry_the_right_checksummed_addresses() {
        for (chain, stablecoin, text) in [
            (Blockchain::Eth, Stablecoin::Usdt, "0xdAC17F958D2ee523a2206206994597C13D831ec7"),
            (Blockchain::Polygon, Stablecoin::Usdt, "0xc2132D05D31c914a87C6611C10748AEb04B58e8F"),
            (Blockchain::Avaxc, Stablecoin::Usdt, "0x9702230A8Ea53601f5cD2dc00fDBc13d4dF4A8c7"),
            (Blockchain::Base, Stablecoin::Usdc, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"),
            (Blockchain::Op, Stablecoin::Usdt, "0x01bFF41798a0BcF287b996046Ca68b395DbC1071"),
            (Blockchain::Tron, Stablecoin::Usdt, "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"),
        ] {
            assert_eq!(stablecoin_contract(chain, stablecoin).unwrap().address.to_string(), text);
        }
        // The case of the digits in the table is that of EIP-55.
        let source = include_str!("chain.rs");
        for Known { contract, .. } in KNOWN {
            let text = contract.address.to_string();
            let digits = text.trim_start_matches("0x");
            let is_tron = contract.blockchain == Blockchain::Tron;
            assert!(is_tron || source.contains(&format!("hex!(\"{digits}\")")), "{text}");
        }
    }

    #[test]
    fn each_issuer_and_coin_has_one_contract_on_a_chain() {
        for (i, a) in KNOWN.iter().enumerate() {
            for b in &KNOWN[..i] {
                if a.contract.blockchain == b.contract.blockchain {
                    assert_ne!(a.contract.address, b.contract.address);
                    let (one, other) = (a.contract.stablecoin, b.contract.stablecoin);
                    assert_ne!((one, a.bridged), (other, b.bridged));
                    assert!(a.bridged.is_none() || a.bridged != b.bridged, "{a:?}");
                }
            }
            let decimals = if a.contract.stablecoin == Stablecoin::Dai { 18 } else { 6 };
            assert_eq!(a.contract.decimals, decimals, "{a:?}");
        }
        assert_eq!(bridged_contracts(Blockchain::Tron).count(), 0);
    }
}
