//! Likeness of a received amount to a requested one.

use crate::Amount;

/// One cent, in the parts of an amount.
const CENT: u128 = 10_u128.pow(16);

/// Reason why a transfer of another amount may have been meant for a deposit, the strongest first:
/// digits below a cent are drawn to distinguish payers, so equal ones are seldom chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// Equal digits below a cent, not all zero: the difference in whole cents is probably a fee.
    Digits,
    /// The transfer comes from the sender that the order names.
    Sender,
    /// The requested amount, cut or rounded to fewer digits after the point.
    Rounded,
    /// Only the distance of the amounts counts.
    Distance,
}

impl Likeness {
    /// Returns the likeness of the amount `sent` to the amount `asked`. `by_its_sender` is `true`
    /// if the transfer comes from the sender that the order names.
    #[must_use]
    pub fn of(asked: Amount, sent: Amount, by_its_sender: bool) -> Self {
        if has_its_digits(asked, sent) {
            Self::Digits
        } else if by_its_sender {
            Self::Sender
        } else if Self::is_rounded(asked, sent) {
            Self::Rounded
        } else {
            Self::Distance
        }
    }

    /// `true` if `sent` is `asked`, or `asked` cut or rounded to fewer digits, of which two at least
    /// remain after the point.
    #[must_use]
    pub fn is_rounded(asked: Amount, sent: Amount) -> bool {
        let (asked, sent) = (asked.parts(), sent.parts());
        // The coarsest unit is a cent, also for an amount of whole coins.
        let units = std::iter::successors(Some(CENT), |unit| (*unit > 1).then_some(unit / 10));
        let unit = units.into_iter().find(|unit| sent.is_multiple_of(*unit)).unwrap_or(1);
        let cut = asked / unit * unit;
        sent == cut || (asked - cut >= unit.div_ceil(2) && sent == cut + unit)
    }
}

fn has_its_digits(asked: Amount, sent: Amount) -> bool {
    let below_cent = asked.parts() % CENT;
    below_cent > 0 && sent.parts() % CENT == below_cent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_say_more_than_distance() {
        let of = |asked: &str, sent: &str, by_its_sender| {
            let amount = |text| Amount::parse(text).unwrap();
            Likeness::of(amount(asked), amount(sent), by_its_sender)
        };
        for (asked, sent, expected) in [
            ("20.009248", "19.009248", Likeness::Digits),
            ("20.009248", "20.509248", Likeness::Digits),
            ("20.009248", "19.009148", Likeness::Distance),
            ("20.00", "19.00", Likeness::Distance),
            ("20.009248", "20.0092", Likeness::Rounded),
            ("20.009248", "20.00925", Likeness::Rounded),
            ("20.009248", "20.01", Likeness::Rounded),
            ("20.009248", "20", Likeness::Rounded),
            ("20.004", "20.01", Likeness::Distance),
            ("20.49", "20", Likeness::Distance),
            ("20.00", "20.00", Likeness::Rounded),
        ] {
            assert_eq!(of(asked, sent, false), expected, "{sent} for {asked}");
        }
        assert_eq!(of("20.00", "19.00", true), Likeness::Sender);
        assert_eq!(of("20.009248", "19.009248", true), Likeness::Digits);
    }
}
