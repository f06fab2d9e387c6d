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

/// A value of a topic, in the shape of its schema for serde.
pub trait Record: Serialize + DeserializeOwned {
    /// The schema that its values are written with.
    const SCHEMA: SchemaName;
}

macro_rules! records {
    ($($name:ident)+) => {$(
        impl Record for $name {
            const SCHEMA: SchemaName = SchemaName::$name;
        }
    )+};
}

records! {
    ChainRecord OrderCommand DepositCommand Order Deposit Transfer MatchingEntry OrdersEntry ProcessorStep
    Delivery Attempt WebhookEntry ChainProgress Alert AuditEntry DeadLetter
}
