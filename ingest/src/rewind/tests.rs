//! How far back a chain can be taken.

use schemas::{BlockHash, Hash, UnixSeconds};

use super::*;
use crate::machine::Policy;
use crate::simulation::{Shelf, chain};

fn block(number: i64, timestamp: i64) -> Block {
    let hash: BlockHash = Hash([5; 32]);
    Block { number, hash, timestamp: UnixSeconds(timestamp) }
}

/// A log with the heads of some blocks.
fn scanned(chain: &ChainConfig, blocks: &[Block]) -> Shelf {
    let mut shelf = Shelf::new();
    for block in blocks {
        let record = ChainRecord {
            blockchain: chain.blockchain,
            epoch: Epoch(0),
            block: *block,
            observed_at: UnixMicros(block.number),
            body: ChainBody::Head(Head { finalized: -1, ..first_head(chain, *block) }),
            confirmed: false,
        };
        shelf.commit(publish::step(&[record], Vec::new(), &shelf.layout).unwrap());
    }
    shelf
}

#[test]
fn what_lanes_have_forgotten_is_not_taken_back() {
    let chain = chain(Policy::flat(Some(3), None));
    let now = UnixMicros(1);
    let last = block(30, FORGET_SECONDS + 1000);
    let (old, young) = (block(10, 999), block(20, 1000));
    let shelf = scanned(&chain, &[old, young, last]);
    let plan = |target| Rewind::plan(&shelf, &chain, target, now);
    for target in [Target::Published(10), Target::Published(19), Target::Shown(old)] {
        let refused = plan(target);
        let is_old = matches!(&refused, Err(RewindError::TooOld(to)) if *to == old);
        assert!(is_old, "{target:?}: {refused:?}");
    }
    for target in [Target::Published(20), Target::Published(29), Target::Shown(young)] {
        assert_eq!(plan(target).unwrap().to, young, "{target:?}");
    }
}
