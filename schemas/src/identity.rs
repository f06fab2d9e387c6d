//! What makes an order, a deposit, a transfer the same one twice (design: identity).

use std::fmt;
use std::str::FromStr;

use alloy_primitives::hex::{self, Buffer, FromHexError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::scalar::text_scalar;
use crate::{Address, Amount, Partition, Stablecoin};

/// Low bits of an integer id that count; the partition is above them. 2^13 partitions stay below
/// 2^53, so JSON keeps every id exactly.
pub const SEQUENCE_BITS: u32 = 40;

/// How much of a digest names a payment among those of its transaction.
const DIGEST_BYTES: usize = 8;

/// The text is no UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a UUID")]
pub struct NotAUuid;

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl FromStr for $name {
            type Err = NotAUuid;
            fn from_str(text: &str) -> Result<Self, NotAUuid> {
                Uuid::try_parse(text).map(Self).map_err(|_| NotAUuid)
            }
        }

        text_scalar!($name, |id| id.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()), str::parse);
    )+};
}

text_id! {
    /// The service's own id of an order (spec 2.2): UUIDv7, or UUIDv5 of an idempotency key.
    OrderId

    /// One command to the processor; the record that answers it carries the same id.
    CommandId
}

macro_rules! integer_id {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl $name {
            /// The id numbered `sequence` by the machine that owns `partition`.
            #[must_use]
            pub fn from_parts(partition: Partition, sequence: u64) -> Self {
                debug_assert!(sequence < 1 << SEQUENCE_BITS, "sequence overflows its bits");
                Self((i64::from(partition.0) << SEQUENCE_BITS) | sequence.cast_signed())
            }

            /// The partition whose machine gave this id.
            pub fn partition(self) -> Partition {
                Partition(u32::try_from(self.0 >> SEQUENCE_BITS).unwrap_or(u32::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

integer_id! {
    /// Internal deposit id (spec 2.4).
    DepositId

    /// Internal transfer id (spec 2.5).
    TransferId

    /// Id of the fulfillment record that joins a transfer with a deposit (spec 2.5).
    FulfillmentId
}

/// 32 bytes that name a block or a transaction, written as `0x` and 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

/// The hash of a block: the only thing that identifies one, a number does not.
pub type BlockHash = Hash;
/// The hash of a transaction: survives re-inclusion in another block.
pub type TxHash = Hash;

text_scalar!(Hash, |hash| Buffer::<32, true>::new().format(&hash.0), str::parse);

impl FromStr for Hash {
    type Err = FromHexError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map(|()| Self(bytes))
    }
}

/// How often the chain was rewound when something was observed: later epochs correct earlier ones.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub i64);

/// One payment (the chain is implied): what stays the same when its transaction is included again in
/// another block. Two equal transfers in one transaction differ in `ordinal`. The position in the block is no part of it:
/// nodes number logs differently, and correct their numbers later. In a block a transfer is its payment and the block's
/// hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaymentKey {
    pub tx_hash: TxHash,
    pub contract: Address,
    pub stablecoin: Stablecoin,
    pub from: Address,
    pub to: Address,
    pub value: Amount,
    /// Position among the equal transfers of the transaction, from 0.
    pub ordinal: u32,
}

impl PaymentKey {
    /// The payment in the key of a record, as 16 hex digits: the first 8 bytes of a SHA-256 of its fields
    /// other than its transaction.
    #[must_use]
    pub fn digest(&self) -> String {
        let Self { contract, from, to, value, ordinal, .. } = self;
        let text = format!("{contract}/{from}/{to}/{value}/{ordinal}");
        hex::encode(&Sha256::digest(text)[..DIGEST_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_ids_carry_their_partition_and_fit_json() {
        let id = TransferId::from_parts(Partition(8191), (1 << SEQUENCE_BITS) - 1);
        assert_eq!(id.partition(), Partition(8191));
        assert!(id.0 < 1 << 53);
        assert_eq!(TransferId::from_parts(Partition(0), 1).0, 1);
    }

    #[test]
    fn hashes_read_back() {
        let hash = Hash([0xab; 32]);
        assert_eq!(hash.to_string().parse::<Hash>().unwrap(), hash);
        assert!("0x12".parse::<Hash>().is_err());
    }
}
