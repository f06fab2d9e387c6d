//! JSON-RPC parameters and errors: strict where Ethereum nodes are strict.

use std::str::FromStr;

use alloy_primitives::{Address, B256, U256, hex};
use serde_json::{Value, json};

use crate::chain::Ledger;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Error for parameters that do not fit the method.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }
}

impl From<crate::Error> for RpcError {
    fn from(error: crate::Error) -> Self {
        Self::new(-32000, error.to_string())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Params<'a>(&'a [Value]);

impl<'a> Params<'a> {
    pub(crate) fn parse(value: Option<&'a Value>) -> Result<Self, RpcError> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(Self(&[])) };
        let values = value.as_array().map(Vec::as_slice).map(Self);
        values.ok_or_else(|| RpcError::invalid_params("non-array args"))
    }

    /// A parameter that may be absent or null.
    pub(crate) fn optional(self, index: usize) -> Option<&'a Value> {
        self.0.get(index).filter(|value| !value.is_null())
    }

    pub(crate) fn required(self, index: usize) -> Result<&'a Value, RpcError> {
        self.optional(index).ok_or_else(|| {
            RpcError::invalid_params(format!("missing value for required argument {index}"))
        })
    }
}

fn parse_text(value: &Value) -> Result<&str, RpcError> {
    value.as_str().ok_or_else(|| RpcError::invalid_params(format!("expected a string: {value}")))
}

/// Parses a value of `0x` and hexadecimal digits in either case.
fn parse_prefixed<T: FromStr>(value: &Value, what: &str) -> Result<T, RpcError> {
    let text = parse_text(value)?;
    let parsed = text.starts_with("0x").then(|| text.parse().ok()).flatten();
    parsed.ok_or_else(|| RpcError::invalid_params(format!("invalid {what}: {text}")))
}

pub(crate) fn parse_address(value: &Value) -> Result<Address, RpcError> {
    parse_prefixed(value, "address")
}

pub(crate) fn parse_hash(value: &Value) -> Result<B256, RpcError> {
    parse_prefixed(value, "hash")
}

pub(crate) fn parse_bytes(value: &Value) -> Result<Vec<u8>, RpcError> {
    let text = parse_text(value)?;
    hex::decode(text).map_err(|_| RpcError::invalid_params(format!("invalid hex: {text}")))
}

/// A hexadecimal quantity without leading zeros, as geth demands.
fn parse_quantity(text: &str) -> Result<u64, RpcError> {
    let refuse = |why| RpcError::invalid_params(format!("invalid hex number {text}: {why}"));
    let digits = text.strip_prefix("0x").ok_or_else(|| refuse("no 0x prefix"))?;
    if digits.starts_with('0') && digits.len() > 1 {
        return Err(refuse("leading zero digits"));
    }
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refuse("not hexadecimal"));
    }
    u64::from_str_radix(digits, 16).map_err(|_| refuse("empty or over 64 bits"))
}

/// A number of a control method: a JSON number, or hexadecimal or decimal text.
pub(crate) fn parse_count(value: &Value) -> Result<u64, RpcError> {
    if let Some(number) = value.as_u64() {
        return Ok(number);
    }
    let text = parse_text(value)?;
    if text.starts_with("0x") {
        return parse_quantity(text);
    }
    text.parse().map_err(|_| RpcError::invalid_params(format!("invalid number: {text}")))
}

/// An amount of a control method: a JSON number, or hexadecimal or decimal text of up to 256 bits.
pub(crate) fn parse_value(value: &Value) -> Result<U256, RpcError> {
    if let Some(number) = value.as_u64() {
        return Ok(U256::from(number));
    }
    let text = parse_text(value)?;
    U256::from_str(text).map_err(|_| RpcError::invalid_params(format!("invalid value: {text}")))
}

/// A block named by number or tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockTag {
    Number(u64),
    Earliest,
    Latest,
    Safe,
    Finalized,
    Pending,
}

impl BlockTag {
    pub(crate) fn parse(value: &Value) -> Result<Self, RpcError> {
        match parse_text(value)? {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            "safe" => Ok(Self::Safe),
            "finalized" => Ok(Self::Finalized),
            "pending" => Ok(Self::Pending),
            text => parse_quantity(text).map(Self::Number),
        }
    }

    /// The number of the block, which may be beyond the head. `Pending` is the head.
    pub(crate) fn number(self, ledger: &Ledger) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Earliest => 0,
            Self::Latest | Self::Pending => ledger.head().id.number,
            Self::Safe => ledger.safe(),
            Self::Finalized => ledger.finalized(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_strict() {
        assert_eq!(parse_quantity("0x0"), Ok(0));
        assert_eq!(parse_quantity("0xff"), Ok(255));
        for text in ["", "0x", "12", "0x01", "0xg", "0x+1", "0x10000000000000000"] {
            assert!(parse_quantity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn control_numbers_are_lenient() {
        assert_eq!(parse_count(&json!(12)), Ok(12));
        assert_eq!(parse_count(&json!("12")), Ok(12));
        assert_eq!(parse_count(&json!("0xc")), Ok(12));
        assert!(parse_count(&json!(-1)).is_err());
        assert_eq!(parse_value(&json!("0xc")), Ok(U256::from(12)));
        assert_eq!(parse_value(&json!("12")), Ok(U256::from(12)));
        assert!(parse_value(&json!("twelve")).is_err());
    }
}
