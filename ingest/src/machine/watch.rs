//! Selection of payments to us. Every log is checked again, whatever filter was sent.

use std::collections::{BTreeSet, HashMap};

use alloy_primitives::B256;
use alloy_sol_types::SolEvent as _;
use schemas::record::Observation;
use schemas::{Address, Amount, Blockchain, PaymentKey, StablecoinContract, TxHash};

use super::question::EventLog;

mod abi {
    //! The one event that is read.
    alloy_sol_types::sol! {
        event Transfer(address indexed from, address indexed to, uint256 value);
    }
}

/// Reason for refusing an answer with logs of orphaned blocks.
const REMOVED: &str = "a log is marked removed: the endpoint reorganises its chain, or keeps a log of a block that is gone";
/// First topic of every Transfer event.
pub(crate) const TRANSFER_TOPIC: [u8; 32] = abi::Transfer::SIGNATURE_HASH.0;

/// An event of a trusted contract to one of our wallets that no record can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) contract: Address,
    pub(crate) tx_hash: TxHash,
    pub(crate) log_index: i32,
}

/// Direction of transfers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flow {
    /// Transfers to a wallet.
    Received,
    /// Transfers from a wallet.
    Sent,
}

/// The contracts and wallets of one chain.
#[derive(Debug)]
pub(crate) struct Watch {
    blockchain: Blockchain,
    contracts: Vec<StablecoinContract>,
    wallets: BTreeSet<[u8; 32]>,
    /// Our own wallets: a transfer from one of them pays nothing.
    own: BTreeSet<[u8; 32]>,
}

/// An address as a topic, which is the form of an indexed argument.
pub(crate) fn topic(address: &Address) -> [u8; 32] {
    alloy_primitives::Address::new(*address.bytes()).into_word().0
}

impl Watch {
    pub(crate) fn new(
        blockchain: Blockchain,
        contracts: Vec<StablecoinContract>,
        wallets: &[Address],
        own: &[Address],
    ) -> Self {
        let topics = |addresses: &[Address]| addresses.iter().map(topic).collect();
        Self { blockchain, contracts, wallets: topics(wallets), own: topics(own) }
    }

    /// The logs that are Transfer events of our contracts to our wallets, in order. Copies are kept: each is a
    /// duplicate, or an equal transfer with the same log index. Foreign logs, which were not requested, are ignored.
    ///
    /// # Errors
    /// The answer contradicts the question or itself, so that none of it can be used.
    pub(crate) fn sift(
        &self,
        logs: impl IntoIterator<Item = EventLog>,
        from: i64,
        to: i64,
    ) -> Result<Vec<EventLog>, &'static str> {
        self.sift_flow(Flow::Received, logs, (from, to))
    }

    /// As [`Watch::sift`], of the events to or from our wallets.
    pub(crate) fn sift_flow(
        &self,
        flow: Flow,
        logs: impl IntoIterator<Item = EventLog>,
        (from, to): (i64, i64),
    ) -> Result<Vec<EventLog>, &'static str> {
        let mut ours = Vec::new();
        for log in logs {
            if log.removed {
                return Err(REMOVED);
            }
            if !self.is_ours(flow, &log) {
                continue;
            }
            if log.block_number < from || log.block_number > to {
                return Err("a log lies outside the range");
            }
            ours.push(log);
        }
        ours.sort_by_key(|log| (log.block_number, log.log_index, log.tx_hash));
        // Two logs with one index are a fault of the node's numbering, and both count.
        let mut neighbours = ours.iter().zip(ours.iter().skip(1));
        if neighbours.any(|(a, b)| a.block_number == b.block_number && a.block_hash != b.block_hash)
        {
            return Err("logs of two forks are in one answer");
        }
        Ok(ours)
    }

    /// The payments among the sifted logs of one block, and unreadable events. Zero values are
    /// dropped: anyone can emit them for free in anyone's name.
    pub(crate) fn observe(&self, logs: &[EventLog]) -> (Vec<Observation>, Vec<Skipped>) {
        let (mut seen, mut skipped) = (Vec::new(), Vec::new());
        let mut equal: HashMap<PaymentKey, i32> = HashMap::new();
        for log in logs {
            let Some(mut observation) = self.read(log) else {
                skipped.push(Skipped {
                    contract: self.address(log.address),
                    tx_hash: log.tx_hash,
                    log_index: log.log_index,
                });
                continue;
            };
            if observation.value == Amount::ZERO {
                continue;
            }
            let count = equal.entry(observation.payment()).or_default();
            observation.ordinal = *count;
            *count = count.saturating_add(1);
            seen.push(observation);
        }
        (seen, skipped)
    }

    /// Returns `true` for a Transfer event of our contracts to one of our wallets, whatever topics follow.
    pub(crate) fn may_pay(&self, log: &EventLog) -> bool {
        self.has_party(Flow::Received, log)
    }

    fn is_ours(&self, flow: Flow, log: &EventLog) -> bool {
        log.topics.len() == 3 && self.has_party(flow, log)
    }

    fn has_party(&self, flow: Flow, log: &EventLog) -> bool {
        let party = match flow {
            Flow::Sent => 1,
            Flow::Received => 2,
        };
        log.topics.first() == Some(&TRANSFER_TOPIC)
            && self.contract(log.address).is_some()
            && log.topics.get(party).is_some_and(|wallet| self.wallets.contains(wallet))
    }

    fn read(&self, log: &EventLog) -> Option<Observation> {
        let contract = self.contract(log.address)?;
        let [_, from, _] = log.topics.as_slice() else { return None };
        let topics = log.topics.iter().copied().map(B256::new);
        let event = abi::Transfer::decode_raw_log(topics, &log.data).ok()?;
        Some(Observation {
            stablecoin: contract.stablecoin,
            contract: contract.address,
            from_address: self.address(event.from.0.0),
            to_address: self.address(event.to.0.0),
            tx_hash: log.tx_hash,
            log_index: log.log_index,
            ordinal: 0,
            value: Amount::from_units(event.value, contract.decimals)?,
            from_own_wallet: self.own.contains(from),
        })
    }

    fn contract(&self, address: [u8; 20]) -> Option<&StablecoinContract> {
        self.contracts.iter().find(|contract| *contract.address.bytes() == address)
    }

    fn address(&self, bytes: [u8; 20]) -> Address {
        Address::new(self.blockchain.address_family(), bytes)
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::U256;
    use schemas::{AddressFamily, Hash, Stablecoin};

    use super::*;

    const TOKEN: [u8; 20] = [0xaa; 20];
    const WALLET: Address = Address::new(AddressFamily::Evm, [0x11; 20]);
    const PAYER: Address = Address::new(AddressFamily::Evm, [0x22; 20]);

    fn watch() -> Watch {
        let contract = StablecoinContract {
            blockchain: Blockchain::Eth,
            stablecoin: Stablecoin::Usdc,
            address: Address::new(AddressFamily::Evm, TOKEN),
            decimals: 6,
        };
        Watch::new(Blockchain::Eth, vec![contract], &[WALLET], &[WALLET])
    }

    fn log(number: i64, index: i32, value: U256) -> EventLog {
        EventLog {
            address: TOKEN,
            topics: vec![TRANSFER_TOPIC, topic(&PAYER), topic(&WALLET)],
            data: value.to_be_bytes::<32>().to_vec(),
            block_number: number,
            block_hash: Hash([number.to_be_bytes()[7]; 32]),
            tx_hash: Hash([7; 32]),
            log_index: index,
            removed: false,
        }
    }

    fn one(number: i64, index: i32) -> EventLog {
        log(number, index, U256::from(1_500_000))
    }

    #[test]
    fn the_signature_is_the_one_of_erc20() {
        let text = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
        assert_eq!(Hash(TRANSFER_TOPIC).to_string(), text);
    }

    #[test]
    fn foreign_logs_are_ignored_and_copies_are_kept() {
        let other_contract = EventLog { address: [0xbb; 20], ..one(5, 7) };
        let other_wallet =
            EventLog { topics: vec![TRANSFER_TOPIC, topic(&PAYER), topic(&PAYER)], ..one(5, 8) };
        let other_event =
            EventLog { topics: vec![[9; 32], topic(&PAYER), topic(&WALLET)], ..one(5, 9) };
        let nft = EventLog {
            topics: vec![TRANSFER_TOPIC, topic(&PAYER), topic(&WALLET), [1; 32]],
            ..one(5, 10)
        };
        let mut dirty = topic(&WALLET);
        dirty[0] = 1;
        let dirty = EventLog { topics: vec![TRANSFER_TOPIC, topic(&PAYER), dirty], ..one(5, 11) };
        let logs = [
            one(6, 0),
            other_contract,
            one(5, 3),
            other_wallet,
            one(5, 2),
            other_event,
            nft,
            dirty,
            one(6, 0),
        ];
        let ours = watch().sift(logs, 5, 6).unwrap();
        assert_eq!(ours, [one(5, 2), one(5, 3), one(6, 0), one(6, 0)]);
    }

    #[test]
    fn what_our_own_wallets_send_is_marked() {
        let other = Address::new(AddressFamily::Evm, [0x12; 20]);
        let contracts = watch().contracts;
        // `other` is our wallet on another chain.
        let watch = Watch::new(Blockchain::Eth, contracts, &[WALLET], &[WALLET, other]);
        let sent = |from: &Address, index| EventLog {
            topics: vec![TRANSFER_TOPIC, topic(from), topic(&WALLET)],
            ..one(5, index)
        };
        let logs = [sent(&PAYER, 0), sent(&other, 1), sent(&WALLET, 2)];
        let (seen, _) = watch.observe(&logs);
        let marked: Vec<_> = seen.iter().map(|seen| seen.from_own_wallet).collect();
        assert_eq!(marked, [false, true, true]);
    }

    #[test]
    fn answers_that_contradict_are_refused() {
        let fork = EventLog { block_hash: Hash([0xff; 32]), ..one(5, 4) };
        let removed = EventLog { removed: true, ..one(5, 4) };
        for (logs, reason) in [
            (vec![one(5, 3), fork], "logs of two forks are in one answer"),
            (vec![one(5, 3), removed], REMOVED),
            (vec![one(4, 3)], "a log lies outside the range"),
            (vec![one(7, 3)], "a log lies outside the range"),
        ] {
            assert_eq!(watch().sift(logs, 5, 6), Err(reason));
        }
    }

    /// Some nodes give two logs of a block the same index.
    #[test]
    fn two_logs_under_one_number_both_count() {
        let twice = EventLog { tx_hash: Hash([8; 32]), ..one(5, 3) };
        let ours = watch().sift([twice.clone(), one(5, 3), one(5, 3)], 5, 6).unwrap();
        assert_eq!(ours, [one(5, 3), one(5, 3), twice]);
    }

    #[test]
    fn equal_transfers_are_numbered_in_log_order() {
        let other_amount = log(5, 3, U256::from(2));
        let other_tx = EventLog { tx_hash: Hash([8; 32]), ..one(5, 4) };
        let (seen, skipped) =
            watch().observe(&[one(5, 1), one(5, 2), other_amount, other_tx, one(5, 9)]);
        let ordinals: Vec<_> = seen.iter().map(|o| (o.log_index, o.ordinal)).collect();
        assert_eq!(ordinals, [(1, 0), (2, 1), (3, 0), (4, 0), (9, 2)]);
        assert_eq!(skipped, []);
        assert_eq!(seen[0].value, Amount::parse("1.5").unwrap());
        assert_eq!((seen[0].from_address, seen[0].to_address), (PAYER, WALLET));
        assert_eq!(seen[0].stablecoin, Stablecoin::Usdc);
    }

    #[test]
    fn zero_is_dropped_and_the_unreadable_is_reported() {
        let broken = EventLog { data: vec![1, 2], ..one(5, 2) };
        let (seen, skipped) = watch().observe(&[
            log(5, 0, U256::ZERO),
            log(5, 1, U256::MAX),
            broken,
            log(5, 3, U256::from(1)),
        ]);
        assert_eq!(seen.iter().map(|o| o.log_index).collect::<Vec<_>>(), [3]);
        assert_eq!(skipped.iter().map(|s| s.log_index).collect::<Vec<_>>(), [1, 2]);
    }
}
