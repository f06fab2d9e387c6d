//! History of a payment or an order: its events by time, and their meaning. Plain values, made of records alone: no
//! log, no tables, no printing.

pub mod meaning;
pub mod words;

use schemas::record::{
    Alert, Attempt, AuditEntry, Block, ChainBody, ChainRecord, Delivery, Deposit, Order, Record,
    Transfer,
};
use schemas::{Blockchain, CodecError, TransferId, UnixMicros, decode_json, encode};
use serde_json::{Value, json};

/// The head by which a transfer counts as confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmation {
    pub transfer_id: TransferId,
    pub blockchain: Blockchain,
    /// The block of the transfer.
    pub number: i64,
    /// The newest block that was scanned then.
    pub head: Block,
    /// Last final block at that time.
    pub finalized: i64,
    pub at: UnixMicros,
}

impl Confirmation {
    /// Confirmation of a transfer by a record of its lane; none if the record does not confirm it.
    pub fn by(record: &ChainRecord, transfer: &Transfer) -> Option<Self> {
        let ChainBody::Head(head) = &record.body else { return None };
        let Transfer { block, observation, blockchain, transfer_id, .. } = transfer;
        let confirms = record.blockchain == *blockchain && head.confirms(block, observation);
        confirms.then_some(Self {
            transfer_id: *transfer_id,
            blockchain: *blockchain,
            number: block.number,
            head: record.block,
            finalized: head.finalized,
            at: record.observed_at,
        })
    }
}

/// Event of a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The state of the order after a change.
    Order(Order),
    /// The state of a deposit after a change.
    Deposit(Deposit),
    /// The state of a transfer after a change.
    Transfer(Transfer),
    Confirmed(Confirmation),
    Attempt(Attempt),
    /// A webhook that was given up.
    Dead(Delivery, UnixMicros),
    Alert(Alert),
    /// A command of an operator.
    Operator(AuditEntry),
}

impl Event {
    /// The time of the event, by the clock of the process that wrote it.
    pub const fn at(&self) -> UnixMicros {
        self.place().0
    }

    /// Its kind, in a word.
    pub const fn kind(&self) -> &'static str {
        self.place().2
    }

    /// Its time, its rank and its kind. At equal times, causes precede effects.
    const fn place(&self) -> (UnixMicros, u8, &'static str) {
        match self {
            Self::Operator(entry) => (entry.requested_at, 0, "operator"),
            Self::Confirmed(by) => (by.at, 1, "head"),
            Self::Transfer(transfer) => (transfer.updated_at, 2, "transfer"),
            Self::Deposit(deposit) => (deposit.updated_at, 3, "deposit"),
            Self::Order(order) => (order.updated_at, 4, "order"),
            Self::Attempt(attempt) => (attempt.attempted_at, 5, "webhook"),
            Self::Dead(_, at) => (*at, 6, "webhook"),
            Self::Alert(alert) => (alert.raised_at, 7, "alert"),
        }
    }

    /// The event as an object: its time, its kind and its record as `tidemark tail` shows it; a head in brief.
    ///
    /// # Errors
    /// The record cannot be encoded, which no record from a log can cause.
    pub fn json(&self) -> Result<Value, CodecError> {
        let record = match self {
            Self::Order(order) => record(order)?,
            Self::Deposit(deposit) => record(deposit)?,
            Self::Transfer(transfer) => record(transfer)?,
            Self::Confirmed(by) => json!({
                "transfer_id": by.transfer_id,
                "blockchain": by.blockchain,
                "block": by.number,
                "head": by.head.number,
                "finalized": by.finalized,
            }),
            Self::Attempt(attempt) => record(attempt)?,
            Self::Dead(delivery, _) => record(delivery)?,
            Self::Alert(alert) => record(alert)?,
            Self::Operator(entry) => record(entry)?,
        };
        Ok(json!({ "time": self.at().to_rfc3339(), "kind": self.kind(), "record": record }))
    }
}

fn record<R: Record>(record: &R) -> Result<Value, CodecError> {
    decode_json(R::SCHEMA, &encode(record)?)
}

/// Events, and the newest state of the order and the transfers in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Story {
    /// The order in its newest state; in the story of a transfer, the order that it was probably meant for, if any.
    pub order: Option<Order>,
    /// The newest state of each transfer.
    pub transfers: Vec<Transfer>,
    /// The oldest first.
    pub events: Vec<Event>,
    /// `true` while an alert of a restored backup is open: orders may be lost.
    pub is_restored: bool,
}

impl Story {
    /// Sorts events and removes duplicates.
    pub fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(Event::place);
        events.dedup();
        let (mut order, mut transfers): (Option<Order>, Vec<Transfer>) = (None, Vec::new());
        for event in &events {
            if let Event::Order(of) = event
                && order.as_ref().is_none_or(|old| old.version <= of.version)
            {
                order = Some(of.clone());
            }
            if let Event::Transfer(of) = event {
                transfers.retain(|old| old.transfer_id != of.transfer_id);
                transfers.push(of.clone());
            }
        }
        Self { order, transfers, events, is_restored: false }
    }
}

#[cfg(test)]
mod tests;
