//! Watches of a chain on the log, compared with the configuration. Orders may have deposits at each
//! of them, so none may be removed.

use log::{Log, Offset, TopicPartition};
use schemas::record::{ChainProgress, Watch};
use schemas::{Address, Blockchain, Partition, Topic, UnixMicros};

use crate::{ChainConfig, Error, restore};

const PAGE: i64 = 100;

/// Returns the watches in ingest's last record of the chain's progress, if any. Blocks the thread.
pub(crate) fn known(log: &dyn Log, blockchain: Blockchain) -> Result<Vec<Watch>, log::Error> {
    Ok(progress(log, blockchain)?.map_or_else(Vec::new, |progress| progress.watched))
}

/// Ingest's last record of the chain's progress. Blocks the thread.
pub(crate) fn progress(
    log: &dyn Log,
    blockchain: Blockchain,
) -> Result<Option<ChainProgress>, log::Error> {
    Ok(last(log, blockchain)?.map(|(progress, _)| progress))
}

/// As [`progress`], with the record's append time.
pub(crate) fn last(
    log: &dyn Log,
    blockchain: Blockchain,
) -> Result<Option<(ChainProgress, UnixMicros)>, log::Error> {
    let of = TopicPartition { topic: Topic::Chains, partition: Partition(blockchain.index()) };
    let bounds = log.bounds(of)?;
    let mut end = bounds.end;
    while end > bounds.start {
        let start = Offset(end.0.saturating_sub(PAGE)).max(bounds.start);
        for record in restore::read_between(log, of, start, end)?.iter().rev() {
            let progress = record.unless_garbage::<ChainProgress>()?;
            if let Some(progress) = progress.filter(|progress| progress.lane.is_none()) {
                return Ok(Some((progress, record.appended_at)));
            }
        }
        end = start;
    }
    Ok(None)
}

/// Fails if a chain's configuration lacks a watch of the log.
///
/// # Errors
/// [`Error::Vanished`], with the remedy.
pub(crate) fn check(
    blockchain: Blockchain,
    chain: Option<&ChainConfig>,
    known: &[Watch],
) -> Result<(), Error> {
    let vanished = |what: String, remedy| Err(Error::Vanished { blockchain, what, remedy });
    for Watch { wallet_address, contracts } in known {
        let Some(chain) = chain else {
            let remedy = "put it and its wallets back, with `retired = true` to stop offering them";
            return vanished(format!("section [chains.{blockchain}]"), remedy);
        };
        if !chain.wallets.contains(wallet_address) {
            let remedy = "put it back, with `retired = true` to stop offering it";
            return vanished(format!("wallet {wallet_address}"), remedy);
        }
        let is_there = |address: &Address| chain.read_contracts().any(|c| c.address == *address);
        if let Some(contract) = contracts.iter().find(|address| !is_there(address)) {
            let remedy = "put it back into tokens, with `retired = true` to stop offering it";
            return vanished(format!("token contract {contract}"), remedy);
        }
    }
    Ok(())
}

/// Fails if a configuration lacks a watch of the log: ingest would not start with it. Blocks the thread.
///
/// # Errors
/// [`Error::Vanished`], or [`Error::Log`].
pub fn check_all(log: &dyn Log, chains: &[ChainConfig]) -> Result<(), Error> {
    for blockchain in Blockchain::ALL {
        let chain = chains.iter().find(|chain| chain.blockchain == *blockchain);
        check(*blockchain, chain, &known(log, *blockchain)?)?;
    }
    Ok(())
}

impl ChainConfig {
    /// Name of the chain's writer on the log. Opening it fences the previous one.
    pub(crate) fn writer(&self) -> String {
        format!("ingest-{}", self.blockchain)
    }

    /// Returns the configured watches that are not `known`.
    pub(crate) fn unannounced(&self, known: &[Watch]) -> Vec<Watch> {
        self.watched().into_iter().filter(|watch| !known.contains(watch)).collect()
    }

    /// Each pair of wallet and contract without a known watch.
    pub(crate) fn added(&self, known: &[Watch]) -> Vec<(Address, Address)> {
        let is_known = |wallet: &Address, contract: &Address| {
            known.iter().any(|w| w.wallet_address == *wallet && w.contracts.contains(contract))
        };
        let pairs = self.watched().into_iter().flat_map(|watch| {
            watch.contracts.into_iter().map(move |contract| (watch.wallet_address, contract))
        });
        pairs.filter(|(wallet, contract)| !is_known(wallet, contract)).collect()
    }

    pub(crate) fn watched(&self) -> Vec<Watch> {
        let contracts: Vec<_> = self.read_contracts().map(|contract| contract.address).collect();
        let watch = |wallet_address| Watch { wallet_address, contracts: contracts.clone() };
        self.wallets.iter().copied().map(watch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::{Block, example};

    use crate::machine::Policy;
    use crate::simulation::{MemoryLog, chain, wallet};

    fn text(chain: Option<&ChainConfig>, known: &[Watch]) -> String {
        match check(Blockchain::Eth, chain, known) {
            Ok(()) => String::new(),
            Err(vanished @ Error::Vanished { .. }) => vanished.to_string(),
            Err(other) => panic!("{other}"),
        }
    }

    /// A wallet that is only in the newer list must not be lost.
    #[test]
    fn an_older_list_is_not_believed_under_a_newer_one() {
        let of = TopicPartition { topic: Topic::Chains, partition: Partition(0) };
        let list = schemas::encode(&example::chain_progress()).unwrap();
        let mut memory = MemoryLog::new();
        memory.put(of, list.clone());
        memory.spoil(of);
        assert_eq!(known(&memory, Blockchain::Eth).unwrap(), example::chain_progress().watched);
        let mut newer = list;
        newer[1] ^= 1;
        memory.put(of, newer);
        let refused = known(&memory, Blockchain::Eth).unwrap_err().to_string();
        assert!(refused.contains("Start the newer version"), "{refused}");
    }

    /// The progress of a chain with many wallets is long, so that a read returns only some of the newest records.
    #[test]
    fn newest_progress_is_found_behind_short_reads() {
        let of = TopicPartition { topic: Topic::Chains, partition: Partition(0) };
        let mut memory = MemoryLog::new();
        memory.read_max = 2;
        for number in 1..=5 {
            let head = Block { number, ..example::chain_head().block };
            let progress = ChainProgress { head, ..example::chain_progress() };
            memory.put(of, schemas::encode(&progress).unwrap());
        }
        let newest = progress(&memory, Blockchain::Eth).unwrap();
        assert_eq!(newest.map(|newest| newest.head.number), Some(5));
    }

    #[test]
    fn what_is_watched_may_not_vanish() {
        let whole = chain(Policy::flat(Some(3), None));
        let known = whole.watched();
        assert_eq!(text(Some(&whole), &known), "");
        assert_eq!(text(None, &[]), "");
        assert!(text(None, &known).contains("section [chains.eth]"), "{}", text(None, &known));
        let mut less = whole.clone();
        less.wallets.remove(1);
        let found = text(Some(&less), &known);
        assert!(found.contains(&format!("wallet {}", wallet(1))), "{found}");
        assert!(found.contains("`retired = true`"), "{found}");
        let mut less = whole.clone();
        less.contracts.clear();
        assert!(text(Some(&less), &known).contains("token contract"));
        // Additional watches are allowed.
        assert_eq!(text(Some(&whole), &known[1..]), "");
    }
}
