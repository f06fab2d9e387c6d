//! The records of the topics as Rust types.
//!
//! Records with several kinds are enums here and, on the wire, a `kind` with one nullable part for each
//! kind: that form can grow without breaking old readers. Each field is described in its schema, in
//! `schemas/avro`; comments here add what only code needs.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::SchemaName;

mod author;
mod chain;
mod changelog;
mod command;
mod deposit;
pub mod example;
mod operator;
mod order;
mod transfer;
mod webhook;

pub use author::Author;
pub use chain::{
    Block, ChainBody, ChainProgress, ChainRecord, ConfirmedTier, Head, Held, Observation, Watch,
};
pub use changelog::{
    DepositEntry, InputRun, LaneEntry, MatchingEntry, OrdersEntry, PendingChoice, ProcessorStep,
    TransferEntry,
};
pub use command::{
    Attach, AttachTransfer, CreateOrder, DepositCommand, DepositCommandBody, EndedOrder,
    OpenDeposit, OrderCommand, OrderCommandBody, PaymentRequest, Settle,
};
pub use deposit::{AmountRule, Deposit};
pub use operator::{Alert, AuditEntry, COMMAND_LINE, DeadLetter, StopScope};
pub use order::{KEPT_SECONDS, Order, OrderDeposit};
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
    ChainRecord OrderCommand DepositCommand Order Deposit Transfer MatchingEntry OrdersEntry
    ProcessorStep Delivery Attempt WebhookEntry ChainProgress Alert AuditEntry DeadLetter
}
