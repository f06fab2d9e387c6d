//! The two worlds in which cases are played, and their configuration.

use oracle::machine_model::chain::{CONTRACT, OTHER_CONTRACT, Policy, WALLETS, account};
use schemas::record::StopScope;
use schemas::{Address, Blockchain, Stablecoin, UnixSeconds};

pub(crate) const START: UnixSeconds = UnixSeconds(1_790_000_000);
pub(crate) const DAY: i64 = 24 * 3600;
/// Maximum difference between a chain's own time and the shop's, in seconds.
pub(crate) const CLOCKS: i64 = 600;
pub(crate) const CHAINS: [Blockchain; 2] = [Blockchain::Eth, Blockchain::Polygon];
pub(crate) const TOKENS: [Stablecoin; 2] = [Stablecoin::Usdt, Stablecoin::Usdc];
/// The third is the sender of a mint: the zero address.
pub(crate) const SENDERS: [Address; 3] = [account(0x21), account(0x22), account(0)];

/// Every tenth sender is a wallet of the shop.
pub(crate) fn sender_of(number: usize) -> Address {
    if number == 9 { WALLETS[0] } else { SENDERS[number % 3] }
}

const EVERYTHING: StopScope = StopScope { blockchain: None, stablecoin: None, address: None };
/// Scopes that an operator may stop on a chain.
pub(crate) const STOPS: [StopScope; 5] = [
    EVERYTHING,
    StopScope { stablecoin: Some(TOKENS[0]), ..EVERYTHING },
    StopScope { address: Some(CONTRACT), ..EVERYTHING },
    StopScope { address: Some(WALLETS[0]), ..EVERYTHING },
    StopScope { address: Some(OTHER_CONTRACT), ..EVERYTHING },
];

/// Few adjacent prices and a large one, so that amounts collide, also when raised.
pub(crate) const PRICES: [u128; 3] = [1_000, 1_001, 6_000];

/// Seconds of a leap in time. In the settled world all other blocks take one second, and windows end between leaps.
pub(crate) const LEAP: i64 = 1000;

/// The two worlds: one with all races, and one with a determined outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    Wild,
    /// Deadlines are passed only by leaps of a [`LEAP`], with all queues read before and after, and confirmed blocks
    /// and the configuration are fixed. While a payment reserves a closed deposit's amount beyond its late window, each
    /// block is read with all replies: the next head releases it.
    Settled,
}

/// Parts of the configuration that the api writes into its commands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) late_window_seconds: u32,
    pub(crate) head_age_max_seconds: u32,
    /// Maximum raise of an amount that is fixed at creation, in cents.
    pub(crate) cents_most: u128,
}

impl World {
    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::Wild => Policy {
                depth: 2,
                depth_large: 4,
                finality: 6,
                rewind_max: 6,
                match_window_seconds: 600,
            },
            Self::Settled => Policy {
                depth: 3,
                depth_large: 5,
                finality: 7,
                rewind_max: 2,
                match_window_seconds: LEAP + 250,
            },
        }
    }

    /// Configuration that ingest gets later; in the settled world, the same.
    pub(crate) fn other_policy(self) -> Policy {
        let small = Policy { depth: 3, depth_large: 3, match_window_seconds: 60, ..self.policy() };
        match self {
            Self::Wild => small,
            Self::Settled => self.policy(),
        }
    }

    pub(crate) fn terms(self) -> Terms {
        match self {
            Self::Wild => Terms {
                // Longer than a full wallet reserves a closed deposit's amount.
                late_window_seconds: 7200,
                head_age_max_seconds: 1_500,
                cents_most: 1,
            },
            Self::Settled => Terms {
                // Transfers are decided before the late window ends: how long they reserve an amount
                // is undetermined.
                late_window_seconds: u32::try_from(9 * LEAP + 500).unwrap(),
                // No head is too old: a choice may be read before blocks that were mined earlier.
                head_age_max_seconds: 100 * LEAP as u32,
                cents_most: 1,
            },
        }
    }

    /// Configuration that the api gets later; in the settled world, the same.
    pub(crate) fn other_terms(self) -> Terms {
        match self {
            Self::Wild => {
                Terms { late_window_seconds: 300, head_age_max_seconds: 400, cents_most: 0 }
            }
            Self::Settled => self.terms(),
        }
    }

    pub(crate) fn ttl_seconds(self, long: bool) -> i64 {
        match (self, long) {
            (Self::Wild, false) => 300,
            (Self::Wild, true) => 3600,
            (Self::Settled, false) => LEAP + 750,
            (Self::Settled, true) => 4 * LEAP + 750,
        }
    }

    /// The wallets that are watched from the start.
    pub(crate) fn watched(self) -> &'static [Address] {
        match self {
            Self::Wild => &WALLETS[..1],
            Self::Settled => &WALLETS,
        }
    }
}
