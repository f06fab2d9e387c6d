//! Ids and addresses as bytes, for fields that only this program reads: half the size of the text, and no
//! checksum to compute.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::scalar::from_bytes;
use crate::{Address, AddressFamily, Hash, OrderId};

/// The byte before the 20 bytes of a Tron account, as on Tron itself.
const TRON_PREFIX: u8 = 0x41;

/// A value with a binary form.
pub(crate) trait Binary: Sized {
    const WHAT: &'static str;
    fn bytes(&self) -> Cow<'_, [u8]>;
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl Binary for Hash {
    const WHAT: &'static str = "the 32 bytes of a hash";
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0)
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl Binary for OrderId {
    const WHAT: &'static str = "the 16 bytes of an order's id";
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.0.as_bytes())
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        uuid::Uuid::from_slice(bytes).ok().map(Self)
    }
}

/// 20 bytes on an EVM chain; on Tron 21, as its nodes write them.
impl Binary for Address {
    const WHAT: &'static str = "the 20 or 21 bytes of an address";
    fn bytes(&self) -> Cow<'_, [u8]> {
        match self.family() {
            AddressFamily::Evm => Cow::Borrowed(self.bytes()),
            AddressFamily::Tron => Cow::Owned([&[TRON_PREFIX], self.bytes().as_slice()].concat()),
        }
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first() {
            Some((&TRON_PREFIX, account)) if bytes.len() == 21 => {
                account.try_into().ok().map(|account| Self::new(AddressFamily::Tron, account))
            }
            _ => bytes.try_into().ok().map(|account| Self::new(AddressFamily::Evm, account)),
        }
    }
}

pub(crate) fn serialize<T: Binary, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(&value.bytes())
}

pub(crate) fn deserialize<'de, T: Binary, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    from_bytes(deserializer, T::WHAT, T::read)
}

/// A value in its binary form, for serde.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "T: Binary")]
struct Item<T>(#[serde(with = "self")] T);

/// `serialize` and `deserialize` for lists of such values.
pub(crate) mod list {
    use super::{Binary, Deserialize, Deserializer, Item, Serializer};

    pub(crate) fn serialize<T: Binary + Copy, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().copied().map(Item))
    }

    pub(crate) fn deserialize<'de, T: Binary, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let items = Vec::<Item<T>>::deserialize(deserializer)?;
        Ok(items.into_iter().map(|item| item.0).collect())
    }
}

/// `serialize` and `deserialize` for values that may be missing.
pub(crate) mod option {
    use super::{Binary, Deserialize, Deserializer, Item, Serialize, Serializer};

    pub(crate) fn serialize<T: Binary + Copy, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Item).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Binary, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<Item<T>>::deserialize(deserializer)?.map(|item| item.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_and_other_lengths_do_not() {
        for family in [AddressFamily::Evm, AddressFamily::Tron] {
            // The first byte of an account may be Tron's prefix.
            for first in [0, TRON_PREFIX] {
                let mut account = [7; 20];
                account[0] = first;
                let address = Address::new(family, account);
                assert_eq!(Address::read(&Binary::bytes(&address)), Some(address));
            }
        }
        let hash = Hash([9; 32]);
        assert_eq!(Hash::read(&hash.bytes()), Some(hash));
        let order = OrderId(uuid::Uuid::from_u128(7));
        assert_eq!(OrderId::read(&order.bytes()), Some(order));
        for length in (0..40).filter(|length| ![16, 20, 32].contains(length)) {
            let bytes = vec![1; length];
            assert_eq!((Hash::read(&bytes), Address::read(&bytes)), (None, None), "{length}");
            assert_eq!(OrderId::read(&bytes), None, "{length}");
        }
    }
}
