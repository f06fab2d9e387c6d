//! Transfer events of a chain against `transfers.raw` without retracted transfers.

use std::collections::BTreeMap;

use schemas::record::Observation;
use schemas::{BlockHash, Blockchain, PaymentKey};

use crate::sum::Sums;
use crate::{Difference, Join, Joined, Kind};

/// A transfer in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inclusion {
    pub number: i64,
    pub hash: BlockHash,
    pub seen: Observation,
}

impl Inclusion {
    /// Returns a key without the ordinal, so that equal transfers of a transaction are counted.
    fn place(&self) -> (i64, BlockHash, PaymentKey) {
        let plain = Observation { ordinal: 0, ..self.seen };
        (self.number, self.hash, plain.payment())
    }

    fn words(&self) -> String {
        let Observation { value, stablecoin, to_address, tx_hash, .. } = self.seen;
        format!("block {}: {value} {stablecoin} to {to_address} in {tx_hash}", self.number)
    }
}

/// Compares the transfers of some blocks as shown by endpoints with those on the log.
#[must_use]
pub fn compare_chain(chain: Blockchain, shown: &[Inclusion], raw: &[Inclusion]) -> Joined {
    let mut places: BTreeMap<_, (Vec<&Inclusion>, Vec<&Inclusion>)> = BTreeMap::new();
    for inclusion in shown {
        places.entry(inclusion.place()).or_default().0.push(inclusion);
    }
    for inclusion in raw {
        places.entry(inclusion.place()).or_default().1.push(inclusion);
    }
    let (mut sums, mut differences) = (Sums::default(), Vec::new());
    for (shown, raw) in places.values() {
        for (inclusion, _) in shown.iter().zip(raw) {
            sums.add(Some(inclusion.seen.stablecoin), "transfers", inclusion.seen.value);
        }
        let difference = |kind, what, cure| Difference {
            join: Join::Chain,
            kind,
            blockchain: Some(chain),
            what,
            cure,
        };
        for extra in shown.iter().skip(raw.len()) {
            let what = format!("{chain}: {}: on the chain, not in transfers.raw", extra.words());
            let cure = format!("tidemark rescan {chain} {0} {0}", extra.number);
            differences.push(difference(Kind::NotInLog, what, cure));
        }
        for extra in raw.iter().skip(shown.len()) {
            let what =
                format!("{chain}: {}: in transfers.raw, shown by no endpoint", extra.words());
            let cure = format!("tidemark chain rewind {chain} {}", extra.number - 1);
            differences.push(difference(Kind::NotOnChain, what, cure));
        }
    }
    Joined { totals: sums.totals(Join::Chain, Some(chain)), differences, waiting: 0 }
}

#[cfg(test)]
mod tests {
    use schemas::record::{ChainBody, example};

    use super::*;

    fn inclusion(number: i64, ordinal: i32) -> Inclusion {
        let ChainBody::Transfer(seen) = example::chain_record().body else { panic!() };
        let hash = example::chain_record().block.hash;
        Inclusion { number, hash, seen: Observation { ordinal, ..seen } }
    }

    #[test]
    fn what_only_one_side_has_is_found() {
        let eth = Blockchain::Eth;
        let both = [inclusion(5, 0), inclusion(7, 0)];
        let agreed = compare_chain(eth, &both, &both);
        assert_eq!((agreed.differences.len(), agreed.totals[0].sum.count), (0, 2));
        assert_eq!(agreed.totals[0].sum.value.unwrap().to_string(), "21.00");
        let missing = compare_chain(eth, &both, &both[..1]);
        let [difference] = &missing.differences[..] else { panic!("{missing:?}") };
        assert_eq!(
            (difference.kind, &*difference.cure),
            (Kind::NotInLog, "tidemark rescan eth 7 7")
        );
        let invented = compare_chain(eth, &both[1..], &both);
        let [difference] = &invented.differences[..] else { panic!("{invented:?}") };
        assert_eq!(difference.kind, Kind::NotOnChain);
        assert_eq!(difference.cure, "tidemark chain rewind eth 4");
    }

    #[test]
    fn equal_transfers_are_counted_not_numbered() {
        let eth = Blockchain::Eth;
        let (two, odd) = ([inclusion(5, 0), inclusion(5, 1)], [inclusion(5, 1), inclusion(5, 4)]);
        assert_eq!(compare_chain(eth, &two, &odd).differences, []);
        assert_eq!(compare_chain(eth, &two, &odd[1..]).differences.len(), 1);
        let other = Inclusion { hash: schemas::Hash([9; 32]), ..two[0] };
        assert_eq!(compare_chain(eth, &two[..1], &[other]).differences.len(), 2, "another fork");
    }
}
