//! Data that travels between the stages and to the outside: topics, Avro records, ids, addresses,
//! amounts and signatures.
//!
//! Reads and writes nothing. **Invariants:** every value that can be built here is valid (an
//! [`Address`] has the right length and checksum, an [`Amount`] fits `decimal(38,18)`), encoding is a
//! function of the value alone, and nothing rounds.
//!
//! Deliberately not here: I/O, clocks, configuration, and any rule about which order is paid.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod address;
mod amount;
pub mod asyncapi;
mod binary;
mod chain;
mod codec;
mod event;
mod header;
mod identity;
mod json;
mod likeness;
mod partition;
mod receiver;
pub mod record;
mod scalar;
mod schema;
mod secret;
mod signature;
mod time;
mod topic;
mod vocabulary;
mod words;

pub use address::{Address, AddressError, AddressFamily, Wallet};
pub use amount::{Amount, AmountError};
pub use chain::{
    Blockchain, FORGET_SECONDS, Stablecoin, StablecoinContract, bridged_contracts, known_contract,
    known_contracts, stablecoin_contract, stablecoin_contracts,
};
pub use codec::{CodecError, check, decode, encode, resembles};
pub use event::{AlertEvent, OrderStatusChanged, UnknownTransfer};
pub use header::{HEADER_APPENDED_AT, HEADER_EARLIER, HEADER_TRACEPARENT, Headers};
pub use identity::{
    BlockHash, CommandId, DepositId, Epoch, FulfillmentId, Hash, Incarnation, NotAUuid, OrderId,
    PaymentKey, SEQUENCE_BITS, TransferId, TxHash,
};
pub use json::decode_json;
pub use likeness::Likeness;
pub use partition::{Layout, Partition, murmur2};
pub use receiver::{ReceiverPolicy, Refusal, parse_network, parse_ports, receiver_url};
pub use schema::{Schema, SchemaName};
pub use secret::Secret;
pub use signature::{
    CheckoutSignature, Draws, SIGNATURE_AGE_MAX, SignatureError, check_service_header, draw_digits,
    sign_checkout, sign_return, sign_service, sign_standard, verify_checkout, verify_service,
};
pub use time::{NotATime, UnixMicros, UnixSeconds};
pub use topic::{Cleanup, DeferLevel, Guide, KeyKind, RetryLevel, Stage, Topic, TopicSpec};
pub use vocabulary::{
    AlertKind, AlertState, AttemptOutcome, AuditAction, ChainRecordKind, CloseReason, DeliveryKind,
    DepositCommandKind, DepositState, OrderCause, OrderCommandKind, OrderStatus, RefusalReason,
    TransferStatus, UnknownName, UnknownReason,
};
