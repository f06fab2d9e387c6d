//! Account addresses: 20 bytes, written as EIP-55 hex on EVM chains and base58check on Tron; and wallets.

use std::cell::RefCell;
use std::str::FromStr;

use crate::scalar::text_scalar;
use crate::{Blockchain, Stablecoin};

/// Tron's address version byte, before the 20 bytes of the account.
const TRON_VERSION: u8 = 0x41;

/// Number of cached texts. The last byte of an address gives its index.
const RECENT_COUNT: usize = 64;

/// Notation of an address. Seven of the chains share one; Tron has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressFamily {
    /// `0x` and 40 hex digits, upper and lower case by EIP-55.
    Evm,
    /// base58check of `0x41` and 20 bytes: 34 characters that start with `T`.
    Tron,
}

/// An account or contract address, always valid: right length, right checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    family: AddressFamily,
    bytes: [u8; 20],
}

/// A wallet of the merchant (spec 2.6): the recipient of payments at an address on one chain. An address on
/// several chains is several wallets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wallet {
    pub blockchain: Blockchain,
    pub address: Address,
    pub stablecoins: Vec<Stablecoin>,
    /// Still watched and listed, and no longer offered.
    pub retired: bool,
}

/// Reason why a text is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither `0x` with 40 hex digits nor a base58 text of 34 characters that starts with `T`.
    #[error("must be 0x followed by 40 hex digits, or a Tron address that starts with T")]
    Syntax,
    /// Upper and lower case are mixed, but not as EIP-55 asks: a digit is probably wrong.
    #[error("has a wrong EIP-55 checksum")]
    Eip55,
    /// Wrong checksum in the last four bytes, or wrong version byte: a character is probably wrong.
    #[error("has a wrong base58check checksum")]
    Base58Check,
}

impl Address {
    /// The address with these 20 bytes; on Tron without the prefix `0x41`.
    pub const fn new(family: AddressFamily, bytes: [u8; 20]) -> Self {
        Self { family, bytes }
    }

    /// Its family: EVM or Tron.
    pub fn family(&self) -> AddressFamily {
        self.family
    }

    /// The 20 bytes that identify the account, as Transfer topics carry them.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 20] {
        &self.bytes
    }

    /// Reads an address that a person or a merchant wrote. All-lower and all-upper hex carry no
    /// checksum and are accepted, as EIP-55 allows; mixed case must match the checksum.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let address = Self::parse_own(text)?;
        let digits = text.get(2..).unwrap_or_default();
        let mixed = digits.bytes().any(|b| b.is_ascii_lowercase())
            && digits.bytes().any(|b| b.is_ascii_uppercase());
        if address.family == AddressFamily::Evm && mixed && address.to_string() != text {
            return Err(AddressError::Eip55);
        }
        Ok(address)
    }

    /// Reads an address that this project wrote: EIP-55 case is not checked again, because a hash for
    /// each address of each record would cost more than the rest of decoding.
    fn parse_own(text: &str) -> Result<Self, AddressError> {
        if let Some(digits) = text.strip_prefix("0x") {
            let mut bytes = [0; 20];
            alloy_primitives::hex::decode_to_slice(digits, &mut bytes)
                .map_err(|_| AddressError::Syntax)?;
            return Ok(Self::new(AddressFamily::Evm, bytes));
        }
        if !text.starts_with('T') || text.len() != 34 {
            return Err(AddressError::Syntax);
        }
        let decoded =
            bs58::decode(text).with_check(Some(TRON_VERSION)).into_vec().map_err(|error| {
                use bs58::decode::Error::{InvalidChecksum, InvalidVersion};
                let is_checksum = matches!(error, InvalidChecksum { .. } | InvalidVersion { .. });
                if is_checksum { AddressError::Base58Check } else { AddressError::Syntax }
            })?;
        let bytes = decoded.get(1..).and_then(|b| b.try_into().ok()).ok_or(AddressError::Syntax)?;
        Ok(Self::new(AddressFamily::Tron, bytes))
    }
}

/// Text of an address.
#[derive(Debug, Clone, Copy)]
struct Text {
    bytes: [u8; 42],
    length: usize,
}

impl Text {
    fn of(address: &Address) -> Self {
        let mut text = Self { bytes: [0; 42], length: 0 };
        match address.family {
            AddressFamily::Evm => {
                let bytes = alloy_primitives::Address::new(address.bytes);
                text.length = bytes.to_checksum_raw(&mut text.bytes, None).len();
            }
            AddressFamily::Tron => {
                let encoded = bs58::encode(address.bytes).with_check_version(TRON_VERSION);
                // Base58 of 25 bytes has 35 characters at most: there is room.
                text.length = encoded.onto(text.bytes.as_mut_slice()).unwrap_or_default();
            }
        }
        text
    }

    fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

thread_local! {
    /// Cache of texts: both notations need a hash for each text, and a stage writes the same few
    /// wallets and contracts into every record.
    static RECENT: RefCell<[Option<(Address, Text)>; RECENT_COUNT]> =
        const { RefCell::new([None; RECENT_COUNT]) };
}

impl Address {
    fn text(&self) -> Text {
        RECENT.with_borrow_mut(|recent| {
            let slot = &mut recent[usize::from(self.bytes[19]) % RECENT_COUNT];
            match slot {
                Some((address, text)) if address == self => *text,
                _ => slot.insert((*self, Text::of(self))).1,
            }
        })
    }
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

text_scalar!(Address, |address| address.text().as_str(), Address::parse_own);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eip55_vectors_of_the_standard() {
        for text in [
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
            "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(Address::parse(&text.to_lowercase()), Ok(address));
        }
    }

    #[test]
    fn addresses_of_one_cache_slot_keep_their_text() {
        let (mut one, mut other) = ([0; 20], [0xff; 20]);
        (one[19], other[19]) = (7, 7 + 64);
        let texts = |bytes| Address::new(AddressFamily::Evm, bytes).to_string();
        let expected = |bytes| alloy_primitives::Address::new(bytes).to_checksum(None);
        for _ in 0..2 {
            assert_eq!(texts(one), expected(one));
            assert_eq!(texts(other), expected(other));
            assert_eq!(texts([0; 20]), expected([0; 20]));
        }
    }

    #[test]
    fn tron_vectors() {
        let usdt = Address::parse("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t").unwrap();
        let bytes = alloy_primitives::hex::encode(usdt.bytes());
        assert_eq!(bytes, "a614f803b6fd780986a42c78ec9c7f77e6ded13c");
        assert_eq!(usdt.to_string(), "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t");
    }

    #[test]
    fn forms_that_are_not_addresses() {
        for (text, error) in [
            ("", AddressError::Syntax),
            ("0x", AddressError::Syntax),
            ("0x123", AddressError::Syntax),
            ("5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", AddressError::Syntax),
            ("T", AddressError::Syntax),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAez", AddressError::Syntax),
            ("é0x", AddressError::Syntax),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD", AddressError::Eip55),
            ("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6u", AddressError::Base58Check),
        ] {
            assert_eq!(Address::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_same_account_on_two_families_is_two_addresses() {
        let [evm, tron] =
            [AddressFamily::Evm, AddressFamily::Tron].map(|of| Address::new(of, [7; 20]));
        assert_ne!(evm, tron);
    }
}
