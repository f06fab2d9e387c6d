//! Tron's witnesses: producers of blocks, and the solidified height.

use std::collections::HashSet;

use crate::block::Block;
use crate::chain::Ledger;

/// Number of witnesses, which take turns, one for each slot.
const WITNESSES: u64 = 27;
/// Number of witnesses that must build on a block, its own one included, to solidify it.
const BUILDERS: usize = 19;

/// The witness in whose slot a block lies.
fn witness(ledger: &Ledger, block: &Block) -> u64 {
    let config = ledger.config();
    let age = block.id.timestamp.saturating_sub(config.genesis_timestamp);
    age / config.block_interval_secs.max(1) % WITNESSES
}

/// Number of the newest block on which [`BUILDERS`] different witnesses have built, its own included; otherwise 0.
pub(crate) fn solidified(ledger: &Ledger) -> u64 {
    let mut builders = HashSet::new();
    for number in (1..=ledger.head().id.number).rev() {
        builders.extend(ledger.block(number).map(|block| witness(ledger, block)));
        if builders.len() == BUILDERS {
            return number;
        }
    }
    0
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::{Chain, Config};

    /// A chain with Tron's id and interval.
    pub(crate) fn chain() -> Chain {
        let config = Config { chain_id: 728_126_428, block_interval_secs: 3, ..Config::default() };
        Chain::new(config).unwrap()
    }

    #[test]
    fn nineteen_witnesses_build_on_a_solidified_block() {
        let chain = chain();
        chain.mine(18).unwrap();
        assert_eq!(chain.solidified(), 0);
        chain.mine(1).unwrap();
        assert_eq!(chain.solidified(), 1);
        chain.mine(100).unwrap();
        assert_eq!(chain.solidified(), 119 - 18);
    }

    #[test]
    fn a_missed_slot_delays_it() {
        let chain = chain();
        chain.mine(30).unwrap();
        let before = chain.head();
        chain.skip_slots(1).unwrap();
        chain.mine(1).unwrap();
        assert_eq!(chain.head().timestamp - before.timestamp, 6);
        assert_eq!(chain.solidified(), 31 - 18);
        // 20 slots are missed: the next witnesses are among those that built last.
        chain.skip_slots(20).unwrap();
        chain.mine(1).unwrap();
        assert_eq!(chain.solidified(), 31 - 18);
        chain.mine(40).unwrap();
        assert_eq!(chain.solidified(), 72 - 18);
    }
}
