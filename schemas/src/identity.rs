//! Identity of orders, deposits and transfers.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::hex::{self, Buffer, FromHexError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::scalar::text_scalar;
use crate::{Address, Amount, Partition, Stablecoin, UnixSeconds};

/// Number of low bits of an integer id that its machine chooses; the partition is above them. With 2^13
/// partitions at most, ids stay below 2^53, so JSON keeps each exactly.
pub const SEQUENCE_BITS: u32 = 40;
/// Number of low bits of a transfer's id that distinguish the payments of one window of time; the window is
/// above them.
const PAYMENT_BITS: u32 = 21;
/// Exponent of a window's length: 2^13 seconds. The 2^19 windows reach until 2106.
const WINDOW_BITS: u32 = 13;

/// Number of low bits below the incarnation in the start of an id sequence. The incarnation, in
/// seconds, fits above them until 2106.
const INCARNATION_BITS: u32 = 8;

/// Number of bytes of a digest that distinguish the payments of one transaction.
const DIGEST_BYTES: usize = 8;

/// A text that is not a UUID.
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

    /// Internal transfer id (spec 2.5): made from the payment and the time of the block in which it
    /// was seen first, so that a transfer that is read again keeps its id.
    TransferId

    /// Id of the fulfillment record that joins a transfer with a deposit (spec 2.5).
    FulfillmentId
}

impl TransferId {
    /// The id of a payment first seen in a block of this time.
    #[must_use]
    pub fn of_payment(partition: Partition, payment: &PaymentKey, seen_in: UnixSeconds) -> Self {
        let window = (seen_in.0.cast_unsigned() >> WINDOW_BITS) << PAYMENT_BITS;
        let name = payment.number() % (1 << PAYMENT_BITS);
        Self::from_parts(partition, (window | name) % (1 << SEQUENCE_BITS))
    }

    /// Next id to try on a collision within a window.
    #[must_use]
    pub fn next(self) -> Self {
        let mask = (1 << PAYMENT_BITS) - 1;
        Self((self.0 & !mask) | (self.0.wrapping_add(1) & mask))
    }

    /// The end of its window: no payment in a block from then on gets this id.
    #[must_use]
    pub fn window_end(self) -> UnixSeconds {
        let window = (self.0 % (1 << SEQUENCE_BITS)) >> PAYMENT_BITS;
        UnixSeconds((window.saturating_add(1)) << WINDOW_BITS)
    }
}

/// 32 bytes that name a block or a transaction, written as `0x` and 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

/// The hash of a block: it alone identifies the block, its number does not.
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

/// Number of rewinds of the chain before an observation: later epochs correct earlier ones.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub i64);

/// Start of a copy restored from a backup, in Unix seconds; 0 for an installation that was never
/// restored. The copy lacks everything after the backup, so ids assigned after it must not be
/// assigned again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub i64);

impl Incarnation {
    /// Start of the copy's id sequence. No machine has reached it before, if it gave at most 256 ids a second since
    /// 1970.
    #[must_use]
    pub fn sequence(self) -> i64 {
        self.0.saturating_mul(1 << INCARNATION_BITS)
    }

    /// The incarnation of a copy that begins at this time: the second, or the next one if it is taken. `None` if
    /// the clock is before the present incarnation.
    #[must_use]
    pub fn next(self, now: UnixSeconds) -> Option<Self> {
        let next = if now.0 == self.0 { now.0 + 1 } else { now.0 };
        (next > self.0).then_some(Self(next))
    }
}

/// One payment (the chain is implied): what stays the same when its transaction is included again in another
/// block. Two equal transfers in one transaction differ in `ordinal`. The position in the block is not part of
/// it: nodes number logs differently, and correct their numbers later. The payment and the block's hash
/// identify a transfer in a block.
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
    /// without the transaction and the stablecoin, which follows from the contract.
    #[must_use]
    pub fn digest(&self) -> String {
        let Self { contract, from, to, value, ordinal, .. } = self;
        let text = format!("{contract}/{from}/{to}/{value}/{ordinal}");
        hex::encode(&Sha256::digest(text)[..DIGEST_BYTES])
    }

    /// The payment as a number: the first 8 bytes of a SHA-256 of the transaction's hash and
    /// [`PaymentKey::digest`].
    fn number(&self) -> u64 {
        let digest = Sha256::digest(format!("{}/{}", self.tx_hash, self.digest()));
        digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
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
    fn two_incarnations_of_a_second_differ() {
        let next = |last, now| Incarnation(last).next(UnixSeconds(now)).map(|next| next.0);
        assert_eq!((next(0, 5), next(5, 5), next(4, 9)), (Some(5), Some(6), Some(9)));
        assert_eq!(next(6, 5), None);
    }

    fn payment(ordinal: u32) -> PaymentKey {
        let account = |byte| Address::new(crate::AddressFamily::Evm, [byte; 20]);
        PaymentKey {
            tx_hash: Hash([7; 32]),
            contract: account(1),
            stablecoin: Stablecoin::Usdc,
            from: account(2),
            to: account(3),
            value: Amount::parse("12.5").unwrap(),
            ordinal,
        }
    }

    #[test]
    fn a_payment_has_one_id_in_a_window_of_time() {
        let id = |seconds| TransferId::of_payment(Partition(3), &payment(0), UnixSeconds(seconds));
        let begin = 1_795_309_568;
        // Fixed for ever: receivers keep it.
        assert_eq!(id(begin), TransferId(3_758_134_830_464));
        assert_eq!(id(begin + 8191), id(begin));
        assert_ne!(id(begin + 8192), id(begin));
        assert_ne!(id(begin - 1), id(begin));
        assert_eq!(id(begin).window_end(), UnixSeconds(begin + 8192));
        assert_eq!(id(begin).partition(), Partition(3));
        let other = TransferId::of_payment(Partition(3), &payment(1), UnixSeconds(begin));
        assert_ne!(other, id(begin), "its ordinal is part of it");
    }

    #[test]
    fn the_next_id_stays_in_its_window() {
        let first = TransferId::from_parts(Partition(5), 9 << PAYMENT_BITS);
        let last = TransferId(first.0 + (1 << PAYMENT_BITS) - 1);
        assert_eq!(first.next(), TransferId(first.0 + 1));
        assert_eq!(last.next(), first);
        let latest =
            TransferId::of_payment(Partition(8191), &payment(0), UnixSeconds(u32::MAX.into()));
        assert!(latest.0 < 1 << 53, "JSON keeps it exactly");
    }

    #[test]
    fn a_later_incarnation_gives_ids_above_all_before() {
        assert_eq!(Incarnation::default().sequence(), 0);
        let begin = Incarnation(1_795_309_568);
        assert!(Incarnation(begin.0 + 1).sequence() > begin.sequence() + 255);
        assert!(Incarnation(u32::MAX.into()).sequence() < 1 << SEQUENCE_BITS);
    }
}
