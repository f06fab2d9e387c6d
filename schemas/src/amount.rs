//! Exact amounts: whole-currency decimals with up to 18 digits after the point, never a float.

use std::str::FromStr;

use alloy_primitives::U256;
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::scalar::from_bytes;

/// Digits after the point that an amount can hold: `decimal(38,18)` in every schema.
const SCALE: u32 = 18;
/// 10^18: one whole unit of a stablecoin in an [`Amount`].
const ONE: u128 = 1_000_000_000_000_000_000;
/// The largest value of `decimal(38,18)`, without its point.
const MAX: u128 = 10_u128.pow(38) - 1;
/// Maximum amount of an order, in parts of 10^-18; bounds the damage of a merchant's typo.
const ORDER_AMOUNT_MAX: u128 = 1_000_000_000 * ONE;

/// A non-negative amount of a stablecoin in whole-currency units (spec 2), held exactly as an integer
/// of 10^-18 parts. Two amounts of one contract are equal exactly when their base units are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(u128);

/// Reason why a text or a number is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Anything but digits with at most one point between them.
    #[error("must be a decimal number such as \"10.00\"")]
    Syntax,
    #[error("must be greater than zero")]
    Zero,
    /// More digits after the point than any stablecoin has.
    #[error("must have at most 18 digits after the point")]
    TooPrecise,
    /// Above one thousand million whole units for an order, above `decimal(38,18)`, or of more digits
    /// than [`Decimal`] holds: 28, sometimes 29.
    #[error("must be at most 1000000000")]
    TooLarge,
}

impl Amount {
    /// The amount zero.
    pub const ZERO: Self = Self(0);

    /// Reads the amount of an order as a merchant sends it (spec 4.1).
    pub fn parse_order(text: &str) -> Result<Self, AmountError> {
        let amount = Self::parse(text)?;
        match amount {
            Self::ZERO => Err(AmountError::Zero),
            Self(parts) if parts > ORDER_AMOUNT_MAX => Err(AmountError::TooLarge),
            amount => Ok(amount),
        }
    }

    /// Reads a plain decimal: digits, optionally a point and digits. No sign, exponent or separator.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !fraction.is_none_or(digits) {
            return Err(AmountError::Syntax);
        }
        let significant = fraction.unwrap_or_default().trim_end_matches('0').len();
        if significant > SCALE as usize {
            return Err(AmountError::TooPrecise);
        }
        let trimmed = text.trim_start_matches('0');
        let kept = fraction.map_or(trimmed.len(), |f| trimmed.len() - (f.len() - significant));
        let (trimmed, _) = trimmed.split_at(kept);
        let normal = format!("0{}", trimmed.trim_end_matches('.'));
        let mut decimal = Decimal::from_str_exact(&normal).map_err(|_| AmountError::TooLarge)?;
        let scale = decimal.scale();
        decimal.set_scale(0).map_err(|_| AmountError::TooPrecise)?;
        u128::try_from(decimal.mantissa())
            .ok()
            .zip(SCALE.checked_sub(scale))
            .and_then(|(mantissa, missing)| mantissa.checked_mul(10_u128.pow(missing)))
            .and_then(Self::from_parts)
            .ok_or(AmountError::TooLarge)
    }

    /// The amount that `parts` of 10^-18 make; none above `decimal(38,18)`.
    pub fn from_parts(parts: u128) -> Option<Self> {
        (parts <= MAX).then_some(Self(parts))
    }

    /// The amount in parts of 10^-18 of a whole unit.
    pub fn parts(self) -> u128 {
        self.0
    }

    /// The amount of `units` in a contract with `decimals` digits, as read from a Transfer event.
    /// None if it does not fit `decimal(38,18)`, or for more than 18 `decimals`.
    #[must_use]
    pub fn from_units(units: U256, decimals: u8) -> Option<Self> {
        let factor = 10_u128.pow(SCALE.checked_sub(u32::from(decimals))?);
        u128::try_from(units).ok()?.checked_mul(factor).and_then(Self::from_parts)
    }

    /// The base units in a contract with `decimals` digits; none if the amount is finer than that, or
    /// for more than 18 `decimals`.
    #[must_use]
    pub fn to_units(self, decimals: u8) -> Option<u128> {
        let factor = 10_u128.pow(SCALE.checked_sub(u32::from(decimals))?);
        self.0.is_multiple_of(factor).then(|| self.0 / factor)
    }

    /// Sum, or none beyond `decimal(38,18)`.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).and_then(Self::from_parts)
    }

    /// Number of leading bytes, of the 16 in big-endian order, that Avro's `decimal` omits: its
    /// two's complement is minimal, with one bit for the sign. An amount has at most 127 bits.
    fn superfluous_bytes(self) -> usize {
        (self.0.leading_zeros().saturating_sub(1) / 8) as usize
    }

    pub(crate) fn from_decimal_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.first().is_some_and(|b| b & 0x80 != 0) {
            return None;
        }
        let mut value = 0_u128;
        for byte in bytes {
            value = value.checked_mul(256)?.checked_add(u128::from(*byte))?;
        }
        Self::from_parts(value)
    }
}

/// At least two digits after the point, as the interface shows amounts, and no trailing zeros beyond.
impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The fraction is below 10^18, so 64 bits hold it: they divide faster than 128.
        let (whole, mut fraction) = (self.0 / ONE, (self.0 % ONE) as u64);
        let mut width = SCALE as usize;
        while width > 2 && fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        write!(f, "{whole}.{fraction:0width$}")
    }
}

impl FromStr for Amount {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        Self::parse(text)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.to_be_bytes();
        serializer.serialize_bytes(bytes.get(self.superfluous_bytes()..).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_bytes(deserializer, "a non-negative decimal(38,18)", Self::from_decimal_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_amounts() {
        for (text, parts, shown) in [
            ("10", 10 * ONE, "10.00"),
            ("10.00", 10 * ONE, "10.00"),
            ("0.000001", ONE / 1_000_000, "0.000001"),
            ("007.5", 7 * ONE + ONE / 2, "7.50"),
            ("0.000000000000000001", 1, "0.000000000000000001"),
            ("1.1000000000000000000000000", ONE + ONE / 10, "1.10"),
            (
                "1000000000.000000000000000001",
                ORDER_AMOUNT_MAX + 1,
                "1000000000.000000000000000001",
            ),
            ("0", 0, "0.00"),
            ("0.0", 0, "0.00"),
            ("10000", 10_000 * ONE, "10000.00"),
        ] {
            let amount = Amount::parse(text).unwrap();
            assert_eq!(amount.parts(), parts, "{text}");
            assert_eq!(amount.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn texts_that_are_not() {
        for text in
            ["", ".", "1.", ".5", "-1", "+1", "1e3", "1_000", "1,5", " 1", "1 ", "0x1", "NaN"]
        {
            assert_eq!(Amount::parse(text), Err(AmountError::Syntax), "{text:?}");
        }
        assert_eq!(Amount::parse("0.0000000000000000001"), Err(AmountError::TooPrecise));
        assert_eq!(Amount::parse(&"9".repeat(60)), Err(AmountError::TooLarge));
        assert_eq!(Amount::parse_order("0.00"), Err(AmountError::Zero));
        assert_eq!(Amount::parse_order("1000000001"), Err(AmountError::TooLarge));
        assert!(Amount::parse_order("1000000000").is_ok());
    }

    #[test]
    fn base_units_convert_exactly_or_not_at_all() {
        let amount = Amount::parse("12.345678").unwrap();
        assert_eq!(amount.to_units(6), Some(12_345_678));
        assert_eq!(Amount::from_units(U256::from(12_345_678), 6), Some(amount));
        assert_eq!(amount.to_units(2), None);
        assert_eq!(Amount::from_units(U256::MAX, 18), None);
        assert_eq!(Amount::from_units(U256::from(1), 19), None);
    }

    #[test]
    fn decimal_bytes_are_minimal_twos_complement() {
        for (parts, bytes) in
            [(0_u128, vec![0]), (127, vec![127]), (128, vec![0, 128]), (256, vec![1, 0])]
        {
            let amount = Amount::from_parts(parts).unwrap();
            assert_eq!(parts.to_be_bytes()[amount.superfluous_bytes()..], bytes);
            assert_eq!(Amount::from_decimal_bytes(&bytes), Some(amount));
        }
        assert_eq!(Amount::from_decimal_bytes(&[0x80]), None, "negative");
        assert_eq!(Amount::from_decimal_bytes(&[]), None);
        assert_eq!(Amount::from_decimal_bytes(&[0x7f; 17]), None, "too large");
    }
}
