//! Terms of the followed chains for the API; set by the executable from `[chains]`.

use schemas::{Amount, Blockchain};

/// A followed chain as its customers see it.
#[derive(Debug, Clone)]
pub struct ChainTerms {
    pub blockchain: Blockchain,
    /// Chain id for the customer's wallet; differs from the chain's own on a development or test network.
    pub chain_id: u64,
    /// Required confirmations by amount: each entry is for amounts below its bound, in ascending order; the last has no
    /// bound. `None` where the network's own finality is awaited.
    pub depths: Vec<(Option<Amount>, Option<i64>)>,
}

impl ChainTerms {
    /// `true` on a development or test network, whose coins are worth nothing.
    pub(crate) fn is_test(&self) -> bool {
        self.chain_id != self.blockchain.chain_id()
    }

    /// The confirmations that a transfer of this amount needs, its own block counted as the first.
    pub(crate) fn required(&self, value: Amount) -> Option<i64> {
        let fits = |below: Option<Amount>| below.is_none_or(|below| value < below);
        self.depths.iter().find(|(below, _)| fits(*below)).and_then(|(_, depth)| *depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_amounts_may_need_more() {
        let amount = |text| Amount::parse(text).unwrap();
        let depths =
            vec![(Some(amount("100")), Some(3)), (Some(amount("1000")), Some(12)), (None, None)];
        let terms = ChainTerms { blockchain: Blockchain::Eth, chain_id: 1, depths };
        for (value, required) in
            [("99.999999", Some(3)), ("100", Some(12)), ("999", Some(12)), ("1000", None)]
        {
            assert_eq!(terms.required(amount(value)), required, "{value}");
        }
        assert!(!terms.is_test());
        assert!(ChainTerms { chain_id: 31337, ..terms }.is_test());
    }
}
