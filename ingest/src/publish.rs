//! Destinations of a step's records: transfers, retracts and watches go to their wallet's lane, heads to every lane,
//! and the chain's progress to `chains`. A reorganisation arrives as retracts and a head
//! (`machine/cursor/reorg.rs`).

use log::NewRecord;
use schemas::record::{Block, ChainBody, ChainProgress, ChainRecord, Watch};
use schemas::{Epoch, Layout, Partition, Topic, UnixMicros};

use crate::{ChainConfig, Error};

impl ChainConfig {
    /// A record of the chain that is not marked as confirmed.
    pub(crate) fn record(
        &self,
        epoch: Epoch,
        observed_at: UnixMicros,
        block: Block,
        body: ChainBody,
    ) -> ChainRecord {
        let blockchain = self.blockchain;
        ChainRecord { blockchain, epoch, block, observed_at, body, confirmed: false }
    }
}

/// The atomic step of some records, in their order. `watched` are all watches after the step.
///
/// # Errors
/// [`Error::Encode`] if a record does not fit its schema, which is a defect of this program.
pub(crate) fn step(
    records: &[ChainRecord],
    watched: Vec<Watch>,
    layout: &Layout,
) -> Result<Vec<NewRecord>, Error> {
    let Some(last) = records.last() else { return Ok(Vec::new()) };
    let mut step = Vec::with_capacity(records.len() + layout.lanes as usize + 1);
    for record in records {
        let chain = record.blockchain;
        let mut add = |lane, key: String| -> Result<(), Error> {
            step.push(NewRecord::encode(Topic::TransfersRaw, lane, key, record)?);
            Ok(())
        };
        match &record.body {
            ChainBody::Transfer(seen) | ChainBody::Retract(seen) => {
                let (block, payment) = (record.block.hash, seen.payment());
                let key = format!("{chain}/{block}/{}/{}", payment.tx_hash, payment.digest());
                add(layout.lane(chain, &seen.to_address), key)?;
            }
            ChainBody::Watch(watch) => {
                add(layout.lane(chain, &watch.wallet_address), chain.to_string())?;
            }
            ChainBody::Head(_) => {
                for lane in layout.lanes_of(chain) {
                    add(lane, chain.to_string())?;
                }
            }
        }
    }
    if let Some(progress) = progress(last, watched) {
        let chain = last.blockchain;
        let partition = Partition(chain.index());
        step.push(NewRecord::encode(Topic::Chains, partition, chain.as_str(), &progress)?);
    }
    Ok(step)
}

/// Progress for `chains`, from the head that ends every step. The head's first tier holds the smallest amounts.
fn progress(last: &ChainRecord, watched: Vec<Watch>) -> Option<ChainProgress> {
    let ChainBody::Head(head) = &last.body else { return None };
    Some(ChainProgress {
        blockchain: last.blockchain,
        epoch: last.epoch,
        head: last.block,
        confirmed: head.confirmed.first().map_or(-1, |tier| tier.number),
        finalized: head.finalized,
        watched,
        updated_at: last.observed_at,
        lane: None,
        oldest_unconfirmed: None,
        stopped: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use log::TopicPartition;
    use schemas::record::example;

    use super::*;

    #[test]
    fn transfers_go_to_one_lane_and_heads_to_all() {
        let layout = Layout { lanes: 3, orders: 1, webhooks: 1 };
        let (transfer, head) = (example::chain_record(), example::chain_head());
        let watch = example::chain_watch();
        let ChainBody::Watch(watched) = watch.body.clone() else { panic!() };
        let ChainBody::Transfer(seen) = transfer.body else { panic!() };
        let records = [watch, transfer.clone(), head.clone()];
        let step = step(&records, vec![watched.clone()], &layout).unwrap();
        let raw = |partition| TopicPartition { topic: Topic::TransfersRaw, partition };
        let to: Vec<_> = step.iter().map(|record| record.to).collect();
        let lanes: Vec<_> = layout.lanes_of(head.blockchain).map(raw).collect();
        let lane = |wallet| raw(layout.lane(transfer.blockchain, wallet));
        assert_eq!(to[..2], [lane(&watched.wallet_address), lane(&seen.to_address)]);
        assert_eq!(to[2..5], lanes);
        assert_eq!(to[5], TopicPartition { topic: Topic::Chains, partition: Partition(0) });
        assert_eq!(step[5].key, b"eth");
        let decoded: ChainProgress = schemas::decode(step[5].value.as_deref().unwrap()).unwrap();
        assert_eq!((decoded.confirmed, decoded.watched), (20_999_988, vec![watched]));
        assert_eq!(step.len(), 6);
        assert_eq!(super::step(&[], Vec::new(), &layout).unwrap(), []);
    }
}
