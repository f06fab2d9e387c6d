//! Partitions of topics, and the assignment of records to them.

use crate::{Address, Blockchain};

/// A partition of a topic, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Partition(pub u32);

impl std::fmt::Display for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Partition counts of the topics of one installation. Fixed at its first start: ids contain
/// partitions, and topics that a stage reads together must have equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Lanes of each chain: partitions that share its load by wallet.
    pub lanes: u32,
    /// Partitions of the topics that are keyed by order.
    pub orders: u32,
    /// Partitions of the topics that are keyed by webhook event.
    pub webhooks: u32,
}

impl Layout {
    /// The lane of a wallet: its partition in each topic that has lanes, such as `transfers.raw`.
    #[must_use]
    pub fn lane(&self, blockchain: Blockchain, wallet: &Address) -> Partition {
        let lanes = self.lanes.max(1);
        Partition(blockchain.index() * lanes + murmur2(wallet.bytes()) % lanes)
    }

    /// The lanes of a chain.
    pub fn lanes_of(&self, blockchain: Blockchain) -> impl Iterator<Item = Partition> + use<> {
        let first = blockchain.index() * self.lanes;
        (first..first + self.lanes).map(Partition)
    }

    /// The partition of an order in the topics keyed by order.
    #[must_use]
    pub fn order(&self, key: &str) -> Partition {
        Partition(murmur2(key.as_bytes()) % self.orders.max(1))
    }

    /// The partition of an event in the webhook topics.
    #[must_use]
    pub fn webhook(&self, key: &str) -> Partition {
        Partition(murmur2(key.as_bytes()) % self.webhooks.max(1))
    }
}

/// Kafka's murmur2 as its Java client uses it on keys, without the sign bit, so that a client with that
/// partitioner puts a key where readers expect it.
#[must_use]
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ u32::try_from(data.len()).unwrap_or(u32::MAX);
    let chunks = data.chunks_exact(4);
    let tail = chunks.remainder();
    for chunk in chunks {
        let mut k = chunk.iter().rev().fold(0_u32, |k, byte| (k << 8) | u32::from(*byte));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        hash ^= tail.iter().rev().fold(0_u32, |k, byte| (k << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of Apache Kafka's own `UtilsTest.testMurmur2`, made positive as its partitioner does.
    #[test]
    fn murmur2_agrees_with_kafka() {
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()), (hash & 0x7fff_ffff).cast_unsigned(), "{text}");
        }
    }

    #[test]
    fn lanes_of_chains_do_not_overlap() {
        let layout = Layout { lanes: 3, orders: 4, webhooks: 2 };
        let all: Vec<_> = Blockchain::ALL.iter().flat_map(|c| layout.lanes_of(*c)).collect();
        let count = 3 * u32::try_from(Blockchain::ALL.len()).unwrap();
        assert_eq!(all, (0..count).map(Partition).collect::<Vec<_>>());
        let wallet = Address::parse("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed").unwrap();
        for chain in Blockchain::ALL {
            assert!(layout.lanes_of(*chain).any(|p| p == layout.lane(*chain, &wallet)));
        }
    }
}
