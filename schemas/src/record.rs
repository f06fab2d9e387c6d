//! The records of the topics as Rust types.
//!
//! Records with several kinds are enums here and, on the wire, a `kind` with one nullable part for each
//! kind: that form can grow without breaking old readers. Each field is described in its schema, in
//! `schemas/avro`; comments here add what only code needs.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::SchemaName;

mod alert;
mod amount_rule;
mod audit;
mod author;
mod chain;
mod changelog;
mod command;
mod dead_letter;
mod deposit;
pub mod example;
mod order;
mod step;
mod stop;
mod transfer;
mod webhook;

pub use alert::Alert;
pub use amount_rule::AmountRule;
pub use audit::{AuditEntry, COMMAND_LINE};
pub use author::Author;
pub use chain::{
    Block, ChainBody, ChainProgress, ChainRecord, ConfirmedTier, Head, Held, Observation, Watch,
};
pub use changelog::{
    DepositEntry, LaneEntry, MatchingEntry, OrdersEntry, PendingChoice, TransferEntry,
};
pub use command::{
    Attach, AttachTransfer, CreateOrder, DepositCommand, DepositCommandBody, EndedOrder,
    OpenDeposit, OrderCommand, OrderCommandBody, PaymentRequest, Settle,
};
pub use dead_letter::DeadLetter;
pub use deposit::Deposit;
pub use order::{KEPT_SECONDS, Order, OrderDeposit};
pub use step::{InputRun, ProcessorStep};
pub use stop::StopScope;
pub use transfer::Transfer;
pub use webhook::{Attempt, Delivery, WebhookEntry};

/// A value of a topic.
pub trait Record: Sized {
    /// The schema that its values are written with.
    const SCHEMA: SchemaName;
    /// The shape of the schema in serde's terms.
    type Wire: DeserializeOwned;

    /// The record in its schema's form: a [`Record::Wire`], or a value serialized like one.
    fn to_wire(&self) -> impl Serialize;

    /// Builds a record from its wire form.
    ///
    /// # Errors
    /// The wire form contradicts itself, for example a `kind` without its part; the text says how.
    fn from_wire(wire: Self::Wire) -> Result<Self, &'static str>;
}

/// Records whose Rust type has the shape of the schema already.
macro_rules! plain_record {
    ($name:ident) => {
        impl crate::record::Record for $name {
            const SCHEMA: crate::SchemaName = crate::SchemaName::$name;
            type Wire = Self;
            fn to_wire(&self) -> impl serde::Serialize {
                self
            }
            fn from_wire(wire: Self) -> Result<Self, &'static str> {
                Ok(wire)
            }
        }
    };
}
use plain_record;
