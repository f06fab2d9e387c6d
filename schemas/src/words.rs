//! Fields that hold a word of a closed vocabulary.
//!
//! A word is a string for Avro, so a new one changes no schema. The list of the words that a release reads
//! is therefore kept with its schemas (`tests/compatibility.rs`), and a reader that meets another one knows
//! that a newer program wrote it.

use apache_avro::types::Value;

use crate::{
    AlertKind, AlertState, AttemptOutcome, AuditAction, Blockchain, ChainRecordKind, CloseReason,
    DeliveryKind, DepositCommandKind, DepositState, OrderCause, OrderCommandKind, OrderStatus,
    RefusalReason, SchemaName, Stablecoin, TransferStatus, UnknownReason,
};

/// A field and the words that it may hold.
type Words = (&'static str, &'static [&'static str]);

/// Declares the fields of each record, at any depth. Within a record a name may have several vocabularies, such as
/// `status` in a command that carries a transfer and an order.
macro_rules! fields {
    ($($($schema:ident)|+ { $($field:literal: $vocabulary:ident,)* })+) => {
        impl SchemaName {
            /// The fields that hold a word, at any depth, with the words that this program reads.
            #[must_use]
            pub fn words(self) -> Vec<Words> {
                match self {
                    $($(Self::$schema)|+ => vec![$(($field, $vocabulary::WORDS),)*],)+
                }
            }
        }
    };
}

fields! {
    ChainRecord { "kind": ChainRecordKind, "blockchain": Blockchain, "token": Stablecoin, }
    OrderCommand {
        "kind": OrderCommandKind,
        "blockchain": Blockchain,
        "stablecoin": Stablecoin,
        "token": Stablecoin,
        "refusal_reason": RefusalReason,
        "close_reason": CloseReason,
        "cause": OrderCause,
        "status": OrderStatus,
        "state": DepositState,
    }
    DepositCommand {
        "kind": DepositCommandKind,
        "blockchain": Blockchain,
        "token": Stablecoin,
        "close_reason": CloseReason,
        "refused_reason": UnknownReason,
        "status": TransferStatus,
        "reason": UnknownReason,
        "cause": OrderCause,
        "status": OrderStatus,
        "stablecoin": Stablecoin,
        "state": DepositState,
    }
    Order | OrdersEntry {
        "cause": OrderCause,
        "status": OrderStatus,
        "blockchain": Blockchain,
        "stablecoin": Stablecoin,
        "token": Stablecoin,
        "state": DepositState,
    }
    Deposit {
        "state": DepositState,
        "close_reason": CloseReason,
        "blockchain": Blockchain,
        "token": Stablecoin,
    }
    Transfer {
        "blockchain": Blockchain,
        "token": Stablecoin,
        "status": TransferStatus,
        "reason": UnknownReason,
    }
    MatchingEntry {
        "close_reason": CloseReason,
        "token": Stablecoin,
        "status": TransferStatus,
        "reason": UnknownReason,
    }
    Delivery { "kind": DeliveryKind, "last_outcome": AttemptOutcome, }
    Attempt { "kind": DeliveryKind, "outcome": AttemptOutcome, }
    ProcessorStep | WebhookEntry {}
    ChainProgress { "blockchain": Blockchain, "token": Stablecoin, }
    Alert { "kind": AlertKind, "state": AlertState, "blockchain": Blockchain, }
    AuditEntry { "action": AuditAction, }
    DeadLetter {}
}

/// The first word of a record that this program does not have, and its field.
pub(crate) fn unknown(name: SchemaName, record: &Value) -> Option<(&'static str, String)> {
    let Value::Record(fields) = record else { return None };
    search(&name.words(), fields)
}

fn search(known: &[Words], in_fields: &[(String, Value)]) -> Option<(&'static str, String)> {
    in_fields.iter().find_map(|(field, value)| {
        let vocabularies = || known.iter().filter(|(name, _)| name == field);
        let is_unknown = |word: &str| !vocabularies().any(|(_, words)| words.contains(&word));
        nested(value).into_iter().find_map(|value| match (value, vocabularies().next()) {
            (Value::Record(fields), _) => search(known, fields),
            (Value::String(word), Some((field, _))) if is_unknown(word) => {
                Some((*field, word.clone()))
            }
            _ => None,
        })
    })
}

/// Returns the values inside unions and lists.
#[expect(clippy::wildcard_enum_match_arm, reason = "schemas use few of Avro's types")]
fn nested(value: &Value) -> Vec<&Value> {
    match value {
        Value::Union(_, inner) => nested(inner),
        Value::Array(items) => items.iter().flat_map(nested).collect(),
        other => vec![other],
    }
}
