//! Configuration of a development chain.

use alloy_primitives::Address;

use crate::Error;

/// Maximum timestamp that a configuration or a command may set: the end of the year 9999, so that arithmetic on
/// timestamps cannot overflow.
pub(crate) const TIMESTAMP_MAX: u64 = 253_402_300_799;

/// A token contract that the chain pretends to have deployed in its genesis block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub address: Address,
    /// Result of `decimals()`.
    pub decimals: u8,
    /// Result of `symbol()`.
    pub symbol: String,
}

/// The constants of one development chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Result of `eth_chainId` and `net_version`.
    pub chain_id: u64,
    /// Timestamp of block 0, in Unix seconds.
    pub genesis_timestamp: u64,
    /// Seconds between the timestamps of two blocks, at least 1.
    pub block_interval_secs: u64,
    /// Distance of the `finalized` tag from the head, in blocks.
    pub finalized_depth: u64,
    /// Distance of the `safe` tag from the head, in blocks; at most `finalized_depth`.
    pub safe_depth: u64,
    /// The contracts with code. Transfers of other contracts are possible too, to imitate counterfeit tokens.
    pub tokens: Vec<Token>,
    /// Part of every hash, so that chains with different seeds have different hashes from genesis on.
    pub seed: u64,
}

/// A chain without tokens, for tests to start from.
impl Default for Config {
    fn default() -> Self {
        Self {
            chain_id: 31_337,
            genesis_timestamp: 1_700_000_000,
            block_interval_secs: 12,
            finalized_depth: 6,
            safe_depth: 2,
            tokens: Vec::new(),
            seed: 1,
        }
    }
}

impl Config {
    /// Refuses values that no chain can have.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.block_interval_secs == 0 || self.block_interval_secs > TIMESTAMP_MAX {
            return Err(Error::Config("block_interval_secs is zero or too large"));
        }
        if self.genesis_timestamp > TIMESTAMP_MAX {
            return Err(Error::Config("genesis_timestamp is too large"));
        }
        if self.safe_depth > self.finalized_depth {
            return Err(Error::Config("safe_depth is greater than finalized_depth"));
        }
        Ok(())
    }

    pub(crate) fn token(&self, address: Address) -> Option<&Token> {
        self.tokens.iter().find(|token| token.address == address)
    }
}
