//! Counts and exact sums.

use std::collections::BTreeMap;

use schemas::{Amount, Blockchain, Stablecoin};

use crate::{Difference, Join};

/// A number of payments, and their total value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    pub count: u64,
    /// `None` beyond the maximum of an amount.
    pub value: Option<Amount>,
}

impl Default for Sum {
    fn default() -> Self {
        Self { count: 0, value: Some(Amount::ZERO) }
    }
}

impl Sum {
    /// Adds one payment.
    pub fn add(&mut self, value: Amount) {
        *self = self.plus(Self { count: 1, value: Some(value) });
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let value = self.value.zip(other.value).and_then(|(a, b)| a.checked_add(b));
        Self { count: self.count.saturating_add(other.count), value }
    }
}

/// The items of one kind that do not differ in a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    pub join: Join,
    pub blockchain: Option<Blockchain>,
    pub coin: Option<Stablecoin>,
    /// Name of the items, such as `matched` or `delivered`.
    pub item: &'static str,
    pub sum: Sum,
}

/// The result of a join.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joined {
    pub totals: Vec<Total>,
    pub differences: Vec<Difference>,
    /// Items that cannot be judged before another stage has caught up.
    pub waiting: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Sums(BTreeMap<(Option<Stablecoin>, &'static str), Sum>);

impl Sums {
    pub(crate) fn add(&mut self, coin: Option<Stablecoin>, item: &'static str, value: Amount) {
        self.0.entry((coin, item)).or_default().add(value);
    }

    pub(crate) fn totals(self, join: Join, blockchain: Option<Blockchain>) -> Vec<Total> {
        let total = |((coin, item), sum)| Total { join, blockchain, coin, item, sum };
        self.0.into_iter().map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_exact_or_not_known() {
        let mut sum = Sum::default();
        for value in ["0.000000000000000001", "9.999999999999999999"] {
            sum.add(Amount::parse(value).unwrap());
        }
        assert_eq!((sum.count, sum.value), (2, Amount::parse("10").ok()));
        let most = Amount::from_parts(10_u128.pow(38) - 1).unwrap();
        sum.add(most);
        assert_eq!((sum.count, sum.value), (3, None), "not a smaller one");
    }
}
