//! Real servers for tests and measurements, started from what `cargo xtask services` fetched.
//!
//! Each ends with the value that was returned for it, and with the process that started it.

pub mod cassandra;
mod guard;
pub mod kafka;
mod port;
mod server;

pub use guard::Guard;
pub use port::free_port;
pub use server::Server;
