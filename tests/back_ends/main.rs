//! Kafka and CQL, on the servers that `cargo xtask test` starts.

mod conformance;
mod cql_tables;
mod rebuild;
mod repair;
mod replay;
