//! A chain's records, dealt to another number of lanes. Every lane has every head, so the heads synchronize the lanes:
//! records between two heads stay between them.

use anyhow::{Context, bail};
use log::{NewRecord, Record, TopicPartition};
use schemas::record::{ChainBody, ChainRecord};
use schemas::{Address, Blockchain, Layout, Partition, Topic};

use super::dealing::Records;
use super::line::put_time;

/// Deals a chain's records to new lanes by `take`.
///
/// # Errors
/// A lane has another head than the others or an unreadable record; or an error of `take`.
pub(super) fn deal(
    blockchain: Blockchain,
    mut lanes: Vec<Lane>,
    to: &Layout,
    take: &mut dyn FnMut(NewRecord) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    align(blockchain, &mut lanes)?;
    loop {
        let mut head: Option<Record> = None;
        for (number, lane) in lanes.iter_mut().enumerate() {
            while let Some((old, wallet)) = lane.before_head()? {
                take(new(old, to.lane(blockchain, &wallet)))?;
            }
            let next = lane.head.take();
            let is_same = match (&head, &next) {
                (Some(head), Some(next)) => head.value == next.value,
                (None, None) => true,
                (None, Some(_)) => number == 0,
                (Some(_), None) => false,
            };
            if !is_same {
                bail!("{blockchain}: its lanes are not equally far, or have other heads");
            }
            head = head.or(next);
        }
        let Some(head) = head else { return Ok(()) };
        for lane in to.lanes_of(blockchain) {
            take(new(head.clone(), lane))?;
        }
    }
}

/// Skips to the first head that all lanes have, as retention may have removed different numbers of records.
fn align(blockchain: Blockchain, lanes: &mut [Lane]) -> anyhow::Result<()> {
    let forgotten = lanes.iter().any(|lane| lane.has_expired);
    if !forgotten {
        return Ok(());
    }
    let mut latest: Option<Record> = None;
    for lane in lanes.iter_mut() {
        while lane.before_head()?.is_some() {}
        let Some(head) = &lane.head else { return Ok(()) };
        if latest.as_ref().is_none_or(|latest| latest.appended_at < head.appended_at) {
            latest = Some(head.clone());
        }
    }
    let Some(latest) = latest else { return Ok(()) };
    for lane in lanes {
        while lane.head.as_ref().is_some_and(|head| head.value != latest.value) {
            lane.head = None;
            while lane.before_head()?.is_some() {}
        }
        if lane.head.is_none() {
            bail!("{blockchain}: its lanes have no head in common");
        }
    }
    Ok(())
}

fn new(old: Record, lane: Partition) -> NewRecord {
    let Record { appended_at, key, value, mut headers, .. } = old;
    put_time(&mut headers, appended_at);
    let to = TopicPartition { topic: Topic::TransfersRaw, partition: lane };
    NewRecord { to, key, value, headers }
}

pub(super) struct Lane {
    records: Records,
    has_expired: bool,
    /// Next head, read and not dealt yet. The lane is read no further until it is dealt.
    head: Option<Record>,
}

impl Lane {
    pub(super) fn new(records: Records, has_expired: bool) -> Self {
        Self { records, has_expired, head: None }
    }

    /// The next record before the next head, with its wallet; `None` at a head and at the end of the lane.
    fn before_head(&mut self) -> anyhow::Result<Option<(Record, Address)>> {
        if self.head.is_some() {
            return Ok(None);
        }
        let Some(old) = self.records.next().transpose()? else { return Ok(None) };
        let value = old.value.as_deref().unwrap_or_default();
        let record: ChainRecord = schemas::decode(value)
            .with_context(|| format!("{}@{} cannot be read", old.from, old.offset))?;
        let wallet = match record.body {
            ChainBody::Head(_) => {
                self.head = Some(old);
                return Ok(None);
            }
            ChainBody::Transfer(seen) | ChainBody::Retract(seen) => seen.to_address,
            ChainBody::Watch(watch) => watch.wallet_address,
        };
        Ok(Some((old, wallet)))
    }
}

#[cfg(test)]
mod tests {
    use log::Offset;
    use schemas::record::{Watch, example};
    use schemas::{AddressFamily, Headers, UnixMicros};

    use super::*;

    const CHAIN: Blockchain = Blockchain::Eth;

    fn wallet(last: u8) -> Address {
        Address::new(AddressFamily::Evm, [last; 20])
    }

    fn watch(last: u8) -> ChainRecord {
        let watch = Watch { wallet_address: wallet(last), contracts: Vec::new() };
        ChainRecord { body: ChainBody::Watch(watch), ..example::chain_watch() }
    }

    fn head(number: i64) -> ChainRecord {
        let head = example::chain_head();
        let block = schemas::record::Block { number, ..head.block };
        ChainRecord { block, ..head }
    }

    fn lane(records: &[ChainRecord], has_expired: bool) -> Lane {
        let from = TopicPartition { topic: Topic::TransfersRaw, partition: Partition(0) };
        let record = move |(offset, record): (i64, ChainRecord)| {
            Ok(Record {
                from,
                offset: Offset(offset),
                appended_at: UnixMicros(record.block.number),
                key: b"eth".to_vec(),
                value: Some(schemas::encode(&record)?),
                headers: Headers::default(),
            })
        };
        let records: Records = Box::new((0..).zip(records.to_vec()).map(record));
        Lane::new(records, has_expired)
    }

    /// Returns the content of each new lane: wallets, and heads by height.
    fn dealt(lanes: Vec<Lane>, to: &Layout) -> anyhow::Result<Vec<Vec<String>>> {
        let mut found = vec![Vec::new(); to.lanes as usize];
        deal(CHAIN, lanes, to, &mut |record| {
            let body: ChainRecord = schemas::decode(record.value.as_deref().unwrap()).unwrap();
            let text = match body.body {
                ChainBody::Watch(watch) => watch.wallet_address.to_string(),
                _ => body.block.number.to_string(),
            };
            found[record.to.partition.0 as usize].push(text);
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn what_is_between_two_heads_stays_there() {
        let to = Layout { lanes: 3, orders: 1, webhooks: 1 };
        let lanes = vec![
            lane(&[watch(1), head(5), watch(2), head(6)], false),
            lane(&[head(5), watch(3), watch(4), head(6)], false),
        ];
        for (number, records) in dealt(lanes, &to).unwrap().into_iter().enumerate() {
            let mut expected = Vec::new();
            for (wallets, height) in [(vec![1], 5), (vec![2, 3, 4], 6)] {
                let here = wallets.into_iter().map(wallet);
                let here = here.filter(|wallet| to.lane(CHAIN, wallet).0 as usize == number);
                expected.extend(here.map(|wallet| wallet.to_string()));
                expected.push(height.to_string());
            }
            assert_eq!(records, expected, "lane {number}");
        }
    }

    #[test]
    fn lanes_that_differ_are_refused() {
        let to = Layout { lanes: 1, orders: 1, webhooks: 1 };
        for other in [vec![head(5)], vec![head(5), head(7)], vec![]] {
            let lanes = vec![lane(&[head(5), head(6)], false), lane(&other, false)];
            assert!(dealt(lanes, &to).is_err(), "{} heads", other.len());
        }
        let lanes = vec![lane(&[head(5), head(6)], true), lane(&[head(9)], true)];
        assert!(dealt(lanes, &to).is_err());
    }

    #[test]
    fn what_not_all_lanes_have_any_more_is_left_out() {
        let to = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let lanes = vec![
            lane(&[watch(1), head(5), watch(2), head(6), watch(3)], true),
            lane(&[watch(4), head(6)], true),
        ];
        let found = dealt(lanes, &to).unwrap();
        assert_eq!(found, [["6".to_owned(), wallet(3).to_string()]]);
    }
}
