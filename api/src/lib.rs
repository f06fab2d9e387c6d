//! The HTTP server: the APIs of merchants (`/api/v1/service`), operators (`/api/v1/admin`) and customers
//! (`/api/v1/user`), the page that customers pay on (`/checkout`), the operators' console (`/console`), and the schemas
//! of the topics (`/registry`).
//!
//! **Reads** the tables through `store::Store`, the topic `orders` from its end ([`feed`]) and for changes since a
//! cursor, the open alerts, and the topics that the console shows. **Writes** commands to `orders.commands` and
//! `deposits.commands`, manual deliveries to `webhooks.dispatch`, operators' actions to `audit`, resolutions to
//! `alerts`, replayed dead letters to the topics they came from, and rows that follow from the log: the pending row
//! of a new order, the record that answered a command. The projector writes the same rows with the same version clock,
//! so either may be first.
//!
//! **Invariants:** a request is authenticated before its content is used (health, schemas, the documentation, files of
//! pages and the list of chains are public); no new order is answered with 201 before its command is durable; a row is
//! never visible before its command is durable; a checkout link gives access to the one order it was signed for; errors
//! are the short texts of `error::Refusal`, and causes are only in log lines.
//!
//! Deliberately not here: any decision about an order's status (the processor's), the delivery of
//! webhooks, TLS.

#![warn(clippy::wildcard_enum_match_arm)]

mod alerts;
pub mod audit;
mod auth;
mod bodies;
mod buyer;
mod changes;
mod client;
mod commands;
mod config;
mod console;
mod customers;
mod error;
mod events;
mod extract;
pub mod feed;
pub mod inspect;
pub mod letters;
mod links;
mod list_gate;
mod listener;
mod machine;
pub mod metrics;
mod origins;
mod page;
mod reads;
pub mod redrive;
mod reference;
mod router;
mod routes;
mod server;
mod stops;
mod terms;
mod view;

pub use alerts::AlertEnd;
pub use buyer::{TestBuyer, TestPayment};
pub use config::{
    AdminSecret, Amounts, Config, LatePayments, Matching, Merchant, Orders, Percent, Scope,
};
pub use error::Error;
pub use feed::Feed;
pub use machine::return_url::ReturnUrl;
pub use machine::{csv, judge, story, survey};
pub use server::{Server, Sockets};
pub use stops::StopRequest;
pub use terms::ChainTerms;
