//! Real servers for tests and measurements, started from what `cargo xtask services` fetched.
//!
//! Whoever starts one stops exactly that process: each ends with the value that stands for it.

mod cassandra;
mod kafka;
mod port;
mod process;

pub use cassandra::Cassandra;
pub use kafka::Kafka;
pub use port::free_port;
