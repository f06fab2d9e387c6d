//! Real servers for tests and measurements, started from what `cargo xtask services` fetched.
//!
//! Each ends with the value that was returned for it, and with the process that started it.

mod cassandra;
mod guard;
mod kafka;
mod port;
mod process;

pub use cassandra::Cassandra;
pub use guard::Guard;
pub use kafka::Kafka;
pub use port::free_port;
