//! What every log and every store must do, on all of them.

mod cql_tables;
mod log_conformance;
mod replay;
mod store_conformance;
