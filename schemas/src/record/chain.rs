//! Records of `transfers.raw` (transfers, retracts, heads, watches) and of `chains` (progress).

use serde::{Deserialize, Serialize, Serializer};

use super::StopScope;
use crate::{
    Address, Amount, BlockHash, Blockchain, ChainRecordKind, Epoch, PaymentKey, Stablecoin, TxHash,
    UnixMicros, UnixSeconds,
};

/// A block, by everything that orders and identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Height. Orders blocks; does not identify one.
    pub number: i64,
    pub hash: BlockHash,
    pub timestamp: UnixSeconds,
}

/// A record of `transfers.raw`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ChainRecordWire")]
pub struct ChainRecord {
    pub blockchain: Blockchain,
    pub epoch: Epoch,
    /// The transfer's block, the head, or the last block before a watch.
    pub block: Block,
    pub observed_at: UnixMicros,
    pub body: ChainBody,
    /// `true` if the head at the end of the step that publishes this transfer confirms it.
    pub confirmed: bool,
}

/// The kinds of [`ChainRecord`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainBody {
    Transfer(Observation),
    /// The same event, now orphaned: a full copy, so that readers need no state.
    Retract(Observation),
    /// All blocks up to this one are scanned.
    Head(Head),
    /// Payments to this wallet are seen in all blocks after this one.
    Watch(Watch),
}

/// A wallet and the contracts whose events are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    pub wallet_address: Address,
    #[serde(default)]
    pub contracts: Vec<Address>,
}

/// A transfer to a watched wallet, as a log of a block has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    pub contract: Address,
    pub from_address: Address,
    pub to_address: Address,
    pub tx_hash: TxHash,
    /// Index of the log in its block, according to an endpoint. It identifies nothing.
    pub log_index: i32,
    /// Position among the equal transfers of its transaction.
    pub ordinal: i32,
    pub value: Amount,
    /// `true` if the sender is a configured wallet, retired or not, of any chain with the same kind
    /// of addresses.
    #[serde(default)]
    pub from_own_wallet: bool,
}

impl Observation {
    /// The identity that survives re-inclusion.
    #[must_use]
    pub fn payment(&self) -> PaymentKey {
        PaymentKey {
            tx_hash: self.tx_hash,
            contract: self.contract,
            stablecoin: self.stablecoin,
            from: self.from_address,
            to: self.to_address,
            value: self.value,
            ordinal: self.ordinal.unsigned_abs(),
        }
    }

    /// `true` if both are of one transaction, contract, sender, receiver and value: only the
    /// `ordinal` distinguishes their payments.
    #[must_use]
    pub fn is_equal(&self, other: &Self) -> bool {
        let plain = |seen: &Self| Self { ordinal: 0, ..*seen }.payment();
        plain(self) == plain(other)
    }
}

/// Content of a head beside its block. Everything that depends on configuration is in here, so that
/// a replay under another configuration repeats history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Heights confirmed by policy, for each amount tier; the first tier that fits counts.
    #[serde(default)]
    pub confirmed: Vec<ConfirmedTier>,
    /// The chain does not go back below this height.
    pub finalized: i64,
    /// Seconds of chain time, from its block, that a confirmed transfer waits for its deposit.
    pub match_window_seconds: i64,
    /// Transfers that endpoints disagree about: they stay unconfirmed at any height.
    #[serde(default)]
    pub held: Vec<Held>,
    /// `true` if blocks that were never scanned are gone from every endpoint: no deposit opens
    /// meanwhile.
    #[serde(default)]
    pub has_gap: bool,
}

/// A transfer that is not confirmed, whatever its height.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub block: Block,
    pub transfer: Observation,
}

/// The confirmed height for one amount tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmedTier {
    /// The tier holds amounts below this; none for the last one, which holds all.
    pub below: Option<Amount>,
    /// Transfers up to this height are confirmed; -1 for none yet.
    pub number: i64,
    /// Time of the newest known block that is confirmed for this tier, or final: no further transfer of
    /// the tier can appear in a block with an earlier time. None if there is none yet.
    pub timestamp: Option<UnixSeconds>,
}

impl Head {
    /// `true` if a transfer in a scanned block is confirmed: the block is deep enough for its amount, and the transfer
    /// is not held.
    #[must_use]
    pub fn confirms(&self, block: &Block, transfer: &Observation) -> bool {
        let tier = self.tier_of(transfer.value);
        tier.is_some_and(|tier| block.number <= tier.number) && !self.holds(block, transfer)
    }

    /// `true` if a transfer is held in a block.
    #[must_use]
    pub fn holds(&self, block: &Block, transfer: &Observation) -> bool {
        let is = |held: &Held| {
            held.block.hash == block.hash && held.transfer.payment() == transfer.payment()
        };
        self.held.iter().any(is)
    }

    /// The [`ConfirmedTier::timestamp`] for a transfer of this amount.
    #[must_use]
    pub fn confirmed_time(&self, value: Amount) -> Option<UnixSeconds> {
        self.tier_of(value)?.timestamp
    }

    fn tier_of(&self, value: Amount) -> Option<&ConfirmedTier> {
        self.confirmed.iter().find(|tier| tier.below.is_none_or(|below| value < below))
    }

    /// The greatest height confirmed for any amount.
    pub fn confirmed_max(&self) -> i64 {
        self.confirmed.iter().map(|tier| tier.number).max().unwrap_or(-1)
    }
}

/// A [`ChainRecord`] as its schema has it: the bodies of all kinds side by side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename = "ChainRecord")]
struct ChainRecordWire {
    kind: ChainRecordKind,
    blockchain: Blockchain,
    epoch: Epoch,
    block: Block,
    observed_at: UnixMicros,
    transfer: Option<Observation>,
    value_text: Option<String>,
    head: Option<Head>,
    watch: Option<Watch>,
    #[serde(default)]
    confirmed: bool,
}

impl Serialize for ChainRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use ChainRecordKind as Kind;
        let (kind, transfer, head, watch) = match &self.body {
            ChainBody::Transfer(seen) => (Kind::Transfer, Some(*seen), None, None),
            ChainBody::Retract(seen) => (Kind::Retract, Some(*seen), None, None),
            ChainBody::Head(head) => (Kind::Head, None, Some(head.clone()), None),
            ChainBody::Watch(watch) => (Kind::Watch, None, None, Some(watch.clone())),
        };
        let wire = ChainRecordWire {
            kind,
            blockchain: self.blockchain,
            epoch: self.epoch,
            block: self.block,
            observed_at: self.observed_at,
            value_text: transfer.map(|seen| seen.value.to_string()),
            transfer,
            head,
            watch,
            confirmed: self.confirmed,
        };
        wire.serialize(serializer)
    }
}

impl TryFrom<ChainRecordWire> for ChainRecord {
    type Error = &'static str;
    fn try_from(wire: ChainRecordWire) -> Result<Self, &'static str> {
        use ChainRecordKind as Kind;
        let body = match (wire.kind, wire.transfer, wire.head, wire.watch) {
            (Kind::Transfer, Some(seen), None, None) => ChainBody::Transfer(seen),
            (Kind::Retract, Some(seen), None, None) => ChainBody::Retract(seen),
            (Kind::Head, None, Some(head), None) => ChainBody::Head(head),
            (Kind::Watch, None, None, Some(watch)) => ChainBody::Watch(watch),
            _ => return Err("kind and parts do not agree"),
        };
        let family = wire.blockchain.address_family();
        if let ChainBody::Transfer(seen) | ChainBody::Retract(seen) = &body {
            if seen.to_address.family() != family || seen.from_address.family() != family {
                return Err("addresses are not of the chain");
            }
            if seen.log_index < 0 || seen.ordinal < 0 {
                return Err("log_index and ordinal are not negative");
            }
        }
        if let ChainBody::Watch(watch) = &body
            && watch.wallet_address.family() != family
        {
            return Err("the wallet is not of the chain");
        }
        Ok(Self {
            blockchain: wire.blockchain,
            epoch: wire.epoch,
            block: wire.block,
            observed_at: wire.observed_at,
            body,
            confirmed: wire.confirmed,
        })
    }
}

/// A record of `chains`: scan progress of a chain, or processing progress of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainProgress {
    pub blockchain: Blockchain,
    pub epoch: Epoch,
    pub head: Block,
    /// Height confirmed for the smallest amounts; -1 for none yet.
    pub confirmed: i64,
    /// Height below which the chain does not go back.
    pub finalized: i64,
    /// Watched wallets and contracts, as configured.
    #[serde(default)]
    pub watched: Vec<Watch>,
    /// Version clock: strictly increasing per chain and per lane.
    pub updated_at: UnixMicros,
    /// Partition of the processor's lane. None for the progress of ingest's scan.
    pub lane: Option<i32>,
    /// Block time of the lane's oldest unconfirmed transfer.
    pub oldest_unconfirmed: Option<UnixSeconds>,
    /// Stops of operators in the lane.
    #[serde(default)]
    pub stopped: Vec<StopScope>,
}
