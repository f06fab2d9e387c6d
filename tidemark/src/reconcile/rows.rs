//! Compares the newest records of orders and transfers with their rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::inspect::search::TRANSFERS;
use log::{Offset, TopicPartition};
use reconcile::{Period, Row, RowState};
use schemas::record::{Order, Transfer};
use schemas::{Partition, Topic, UnixSeconds};
use store::cql::CqlStore;
use store::embedded::ReadOnlyTables;
use store::{Change, Defect, Position, Store as _, stored};
use tokio::task::JoinSet;

use super::Logged;
use super::records::Reader;
use crate::output::progress;
use crate::settings::Settings;
use crate::tail::Source;

/// Maximum number of rows read at the same time.
const READS_MAX: usize = 64;

#[derive(Clone)]
enum Tables {
    Embedded(Arc<std::sync::Mutex<ReadOnlyTables>>),
    Cql(CqlStore),
}

impl Tables {
    async fn open(settings: &Settings) -> anyhow::Result<Self> {
        Ok(match &settings.store {
            store::config::BackEnd::Embedded => {
                let tables = ReadOnlyTables::open(&settings.process.data_dir)?;
                Self::Embedded(Arc::new(std::sync::Mutex::new(tables)))
            }
            store::config::BackEnd::Cql(config) => Self::Cql(CqlStore::open(config).await?),
        })
    }

    async fn extent(&self) -> Result<(Vec<Position>, Option<UnixSeconds>), store::Error> {
        match self {
            Self::Embedded(tables) => {
                let tables = tables.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                Ok((tables.positions()?, tables.pruned_before()?))
            }
            Self::Cql(tables) => Ok((tables.positions().await?, tables.pruned_before().await?)),
        }
    }

    async fn compare(&self, record: &Change) -> Result<Option<Defect>, store::Error> {
        match self {
            Self::Embedded(tables) => {
                let tables = tables.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                tables.compare(record)
            }
            Self::Cql(tables) => {
                let row = stored(tables, record).await?;
                Ok(Defect::of(record, row.as_ref()))
            }
        }
    }
}

/// A record to compare with its row.
struct Record {
    change: Change,
    partition: Partition,
    /// `true` if the projector has applied it.
    is_applied: bool,
}

/// Compares each order and each transfer with its row, and leaves out those pruned as final.
pub(super) async fn read(settings: &Settings, log: &Logged) -> anyhow::Result<Vec<Row>> {
    let tables = Tables::open(settings).await?;
    // Read before the rows: a row must include every record before its position.
    let (positions, pruned) = tables.extent().await?;
    let positions: BTreeMap<TopicPartition, i64> = positions
        .into_iter()
        .map(|Position { topic, partition, next }| (TopicPartition { topic, partition }, next))
        .collect();
    let mut records = records(log, &positions);
    let (mut rows, mut reads, all) = (Vec::new(), JoinSet::new(), records.len());
    let pruned = pruned.unwrap_or_default();
    while !records.is_empty() || !reads.is_empty() {
        while reads.len() < READS_MAX
            && let Some(record) = records.pop()
        {
            let tables = tables.clone();
            reads.spawn(async move {
                let defect = tables.compare(&record.change).await?;
                Ok::<_, store::Error>((record, defect))
            });
        }
        let Some(read) = reads.join_next().await else { continue };
        let (record, defect) = read??;
        let is_applied = record.is_applied;
        let state = match defect {
            None => RowState::Same,
            // The row may be that of a record appended after the log was read.
            Some(Defect::Newer) if again(settings, &tables, &record).await? => RowState::Same,
            Some(Defect::Newer) => RowState::Newer,
            Some(Defect::Missing | Defect::Older | Defect::Changed) if !is_applied => {
                RowState::NotYet
            }
            Some(Defect::Missing) if record.change.was_final_before(pruned) => continue,
            Some(Defect::Missing) => RowState::Missing,
            Some(Defect::Older) => RowState::Older,
            Some(Defect::Changed) => RowState::Other,
        };
        rows.push(Row { table: record.change.table(), id: record.change.id(), state });
        progress(&format!("compared {} of {all} rows", rows.len()));
    }
    rows.sort_by(|a, b| (a.table, &a.id).cmp(&(b.table, &b.id)));
    Ok(rows)
}

/// Reads an object's records again. Returns `true` if the newest one agrees with its row.
async fn again(settings: &Settings, tables: &Tables, record: &Record) -> anyhow::Result<bool> {
    let source = Source::open(settings)?;
    let from = record.change.written_at().seconds();
    let period = Period { from, to: from.plus(1) };
    let mut reader = Reader::new(&source, settings.log.layout, period);
    let mut newest: Option<Change> = None;
    let mut take = |change: Change| {
        let known = newest.as_ref().map(Change::written_at);
        if known.is_none_or(|known| known < change.written_at()) {
            newest = Some(change);
        }
    };
    let partition = record.partition;
    match &record.change {
        Change::Order(order) => {
            let of = TopicPartition { topic: Topic::Orders, partition };
            reader.partition(of, |_, found: Order| {
                if found.order_id == order.order_id {
                    take(Change::Order(found));
                }
            })?;
        }
        Change::Transfer(transfer) => {
            for topic in TRANSFERS {
                reader.partition(TopicPartition { topic, partition }, |_, found: Transfer| {
                    if found.transfer_id == transfer.transfer_id {
                        take(Change::Transfer(found));
                    }
                })?;
            }
        }
        Change::Deposit(_) | Change::Attempt(_) | Change::Chain(_) => {}
    }
    let Some(newest) = newest else { return Ok(false) };
    Ok(tables.compare(&newest).await?.is_none())
}

fn records(log: &Logged, positions: &BTreeMap<TopicPartition, i64>) -> Vec<Record> {
    let record = |change, at: TopicPartition, offset: Offset| {
        let is_applied = positions.get(&at).is_some_and(|next| offset.0 < *next);
        Record { change, partition: at.partition, is_applied }
    };
    let orders = log.orders.newest.values();
    let orders = orders.map(|one| record(Change::Order(one.value.clone()), one.at, one.offset));
    let transfers = log.chains.iter().flat_map(|(_, transfers)| transfers.values());
    let transfers =
        transfers.map(|one| record(Change::Transfer(one.value.clone()), one.at, one.offset));
    orders.chain(transfers).collect()
}
