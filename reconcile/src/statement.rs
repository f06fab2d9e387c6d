//! Received, sent, and balances: one line for each chain, coin and day.

use std::collections::BTreeMap;

use schemas::{Amount, Blockchain, Stablecoin, TransferStatus, UnixSeconds};

use crate::{Difference, Join, Joined, Kind, Period, Sum, rfc3339};

/// Sums and balances of one coin on one chain, for a day or the part of it that is in the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub blockchain: Blockchain,
    pub coin: Stablecoin,
    pub period: Period,
    /// Balance of the wallets at the beginning; none if no endpoint has the state of that block.
    pub opening: Option<Amount>,
    /// Received transfers that paid an order.
    pub matched: Sum,
    /// Received transfers that pay nothing.
    pub unknown: Sum,
    /// Received transfers without a verdict.
    pub other: Sum,
    /// Transfers out of the wallets.
    pub sent: Sum,
    /// Balance of the wallets at the end; none as for `opening`.
    pub closing: Option<Amount>,
}

impl Line {
    /// Sum of all received transfers.
    #[must_use]
    pub fn received(&self) -> Sum {
        self.matched.plus(self.unknown).plus(self.other)
    }

    /// `true` if there are no transfers and no balance above zero.
    fn is_empty(&self) -> bool {
        let is_zero = |balance: Option<Amount>| balance.is_none_or(|value| value == Amount::ZERO);
        let moved = self.received().plus(self.sent).count;
        moved == 0 && is_zero(self.opening) && is_zero(self.closing)
    }

    /// `true` if the balances follow from the transfers; `None` if a balance is not known or a sum overflows.
    #[must_use]
    pub fn is_balanced(&self) -> Option<bool> {
        let (opening, closing) = self.opening.zip(self.closing)?;
        let came = opening.checked_add(self.received().value?)?;
        let went = closing.checked_add(self.sent.value?)?;
        Some(came == went)
    }
}

/// The lines of a chain.
#[derive(Debug)]
pub struct Statement {
    blockchain: Blockchain,
    /// The beginning of each day, and the end of the last one.
    bounds: Vec<UnixSeconds>,
    lines: BTreeMap<(usize, Stablecoin), Line>,
}

impl Statement {
    /// Returns an empty statement. The bounds are those of [`Period::bounds`].
    #[must_use]
    pub fn new(blockchain: Blockchain, bounds: Vec<UnixSeconds>) -> Self {
        Self { blockchain, bounds, lines: BTreeMap::new() }
    }

    fn line(&mut self, day: usize, coin: Stablecoin) -> Option<&mut Line> {
        let (from, to) = (*self.bounds.get(day)?, *self.bounds.get(day + 1)?);
        let line = Line {
            blockchain: self.blockchain,
            coin,
            period: Period { from, to },
            opening: None,
            matched: Sum::default(),
            unknown: Sum::default(),
            other: Sum::default(),
            sent: Sum::default(),
            closing: None,
        };
        Some(self.lines.entry((day, coin)).or_insert(line))
    }

    /// Adds a received transfer on a day, counted from 0. A transfer without a status has no verdict.
    pub fn receive(
        &mut self,
        day: usize,
        coin: Stablecoin,
        value: Amount,
        status: Option<TransferStatus>,
    ) {
        let Some(line) = self.line(day, coin) else { return };
        match status {
            Some(TransferStatus::Matched) => line.matched.add(value),
            Some(TransferStatus::NoMatchedDeposit) => line.unknown.add(value),
            Some(
                TransferStatus::WaitingForConfirmation
                | TransferStatus::WaitingForMatch
                | TransferStatus::FailedToConfirm,
            )
            | None => line.other.add(value),
        }
    }

    /// Adds a transfer out of a wallet on a day.
    pub fn send(&mut self, day: usize, coin: Stablecoin, value: Amount) {
        if let Some(line) = self.line(day, coin) {
            line.sent.add(value);
        }
    }

    /// Sets the balance of all wallets in a coin at a bound, counted from 0.
    pub fn balance(&mut self, bound: usize, coin: Stablecoin, value: Amount) {
        if let Some(line) = self.line(bound, coin) {
            line.opening = Some(value);
        }
        if let Some(line) = bound.checked_sub(1).and_then(|day| self.line(day, coin)) {
            line.closing = Some(value);
        }
    }

    /// The lines by day and coin, without empty ones, and the differences of balances from transfers.
    #[must_use]
    pub fn finish(self) -> (Vec<Line>, Joined) {
        let lines: Vec<Line> = self.lines.into_values().filter(|line| !line.is_empty()).collect();
        let wrong = lines.iter().filter(|line| line.is_balanced() == Some(false));
        let differences = wrong.map(difference).collect();
        (lines, Joined { differences, ..Joined::default() })
    }
}

fn difference(line: &Line) -> Difference {
    let shown = |value: Option<Amount>| value.map_or_else(String::new, |value| value.to_string());
    let Line { blockchain, coin, period, .. } = line;
    let what = format!(
        "{blockchain} {coin} from {}: opening {} + received {} - sent {} is not closing {}",
        rfc3339(period.from),
        shown(line.opening),
        shown(line.received().value),
        shown(line.sent.value),
        shown(line.closing)
    );
    Difference {
        join: Join::Balances,
        kind: Kind::Balance,
        blockchain: Some(*blockchain),
        what,
        cure: format!(
            "tidemark doctor; the endpoints of chains.{blockchain}.rpc leave out transfers: replace one of them"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balances_follow_from_what_came_and_went() {
        let bounds = [0, 100, 200].map(UnixSeconds).to_vec();
        let amount = |text| Amount::parse(text).unwrap();
        let usdt = Stablecoin::Usdt;
        for (closing, expected) in [("17.5", Some(true)), ("17.500001", Some(false))] {
            let mut statement = Statement::new(Blockchain::Eth, bounds.clone());
            statement.receive(0, usdt, amount("10"), Some(TransferStatus::Matched));
            statement.receive(0, usdt, amount("2.5"), Some(TransferStatus::NoMatchedDeposit));
            statement.receive(0, usdt, amount("1"), None);
            statement.send(0, usdt, amount("6"));
            statement.balance(0, usdt, amount("10"));
            statement.balance(1, usdt, amount(closing));
            statement.balance(0, Stablecoin::Dai, Amount::ZERO);
            statement.balance(1, Stablecoin::Dai, Amount::ZERO);
            let (lines, joined) = statement.finish();
            let [first, second] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!(first.is_balanced(), expected);
            assert_eq!(joined.differences.len(), usize::from(expected == Some(false)));
            assert_eq!((first.matched.count, first.unknown.count, first.other.count), (1, 1, 1));
            assert_eq!(first.received().value, Some(amount("13.5")));
            assert_eq!(second.opening, Some(amount(closing)), "of the next day");
            assert_eq!((second.closing, second.is_balanced()), (None, None), "not known");
        }
    }
}
