//! The tables of lists, and the statements of each. Pure.

use scylla::value::CqlValue::{self, Int, Text};

use super::list_partition::{self, ListPartition};
use super::statement::Statement::{self, *};

/// The table of a list.
#[derive(Debug)]
pub(super) struct Table {
    /// Reads a partition.
    pub(super) select: Statement,
    /// Reads a partition after a position.
    pub(super) before: Statement,
    /// Reads the rows of some seconds; only for tables whose rows leave one by one until none is left.
    pub(super) within: Option<Statement>,
    pub(super) insert: Statement,
    /// Deletes a row whose record moved to another list; none where a record never moves.
    pub(super) leave: Option<Statement>,
    /// Deletes a partition; only for tables whose days are removed.
    pub(super) delete_partition: Option<Statement>,
}

impl ListPartition {
    /// The table that has this partition.
    pub(super) fn table(&self) -> &'static Table {
        match (self.list.as_str(), self.stage.as_str()) {
            (list_partition::ORDERS, list_partition::LIVE) => &ORDERS_PENDING,
            (list_partition::ORDERS, list_partition::ALL) => &ORDERS_BY_DAY,
            (list_partition::ORDERS, _) => &ORDERS_ENDED,
            (list_partition::REFERENCES, _) => &ORDERS_BY_REFERENCE,
            (list_partition::DEPOSITS, _) => &DEPOSITS_OPEN,
            (_, list_partition::LIVE) => &TRANSFERS_WAITING,
            (_, list_partition::ALL) => &TRANSFERS_BY_DAY,
            (_, _) => &TRANSFERS_ENDED,
        }
    }

    /// Key of the partition in that table; for references, the part after the reference.
    pub(super) fn key(&self) -> Vec<CqlValue> {
        let Self { list, stage, blockchain, stablecoin, bucket, shard } = self;
        let texts: &[&String] = match (list.as_str(), stage.as_str()) {
            (list_partition::REFERENCES, _) => return vec![Int(*bucket)],
            (
                list_partition::ORDERS | list_partition::DEPOSITS,
                list_partition::LIVE | list_partition::ALL,
            ) => &[],
            (list_partition::ORDERS | list_partition::DEPOSITS, _) => &[stage],
            (_, list_partition::LIVE) => &[list],
            (_, list_partition::ALL) => &[list, blockchain, stablecoin],
            (_, _) => &[list, stage, blockchain, stablecoin],
        };
        let texts = texts.iter().map(|text| Text((*text).clone()));
        texts.chain([Int(*bucket), Int(*shard)]).collect()
    }
}

static ORDERS_BY_DAY: Table = Table {
    select: SelectOrdersByDay,
    before: SelectOrdersByDayBefore,
    within: None,
    insert: InsertOrderByDay,
    leave: None,
    delete_partition: Some(DeleteOrdersByDay),
};

static ORDERS_PENDING: Table = Table {
    select: SelectOrdersPending,
    before: SelectOrdersPendingBefore,
    within: Some(SelectOrdersPendingWithin),
    insert: InsertOrderPending,
    leave: Some(DeleteOrderPending),
    delete_partition: None,
};

static ORDERS_ENDED: Table = Table {
    select: SelectOrdersEnded,
    before: SelectOrdersEndedBefore,
    within: None,
    insert: InsertOrderEnded,
    leave: Some(DeleteOrderEnded),
    delete_partition: Some(DeleteOrdersEnded),
};

/// Orders of a merchant's reference. A row has the status of its order beside the key.
static ORDERS_BY_REFERENCE: Table = Table {
    select: SelectOrdersByReference,
    before: SelectOrdersByReferenceBefore,
    within: None,
    insert: InsertOrderByReference,
    leave: None,
    delete_partition: None,
};

static DEPOSITS_OPEN: Table = Table {
    select: SelectDepositsOpen,
    before: SelectDepositsOpenBefore,
    within: Some(SelectDepositsOpenWithin),
    insert: InsertDepositOpen,
    leave: Some(DeleteDepositOpen),
    delete_partition: None,
};

/// Open deposits, one partition for each order: the directory does not list these.
pub(super) static DEPOSITS_OPEN_BY_ORDER: Table = Table {
    select: SelectDepositsByOrder,
    before: SelectDepositsByOrderBefore,
    within: None,
    insert: InsertDepositByOrder,
    leave: Some(DeleteDepositByOrder),
    delete_partition: None,
};

static TRANSFERS_BY_DAY: Table = Table {
    select: SelectTransfersByDay,
    before: SelectTransfersByDayBefore,
    within: None,
    insert: InsertTransferByDay,
    leave: None,
    delete_partition: Some(DeleteTransfersByDay),
};

static TRANSFERS_WAITING: Table = Table {
    select: SelectTransfersWaiting,
    before: SelectTransfersWaitingBefore,
    within: Some(SelectTransfersWaitingWithin),
    insert: InsertTransferWaiting,
    leave: Some(DeleteTransferWaiting),
    delete_partition: None,
};

static TRANSFERS_ENDED: Table = Table {
    select: SelectTransfersEnded,
    before: SelectTransfersEndedBefore,
    within: None,
    insert: InsertTransferEnded,
    leave: Some(DeleteTransferEnded),
    delete_partition: Some(DeleteTransfersEnded),
};
