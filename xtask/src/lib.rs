//! Real servers for tests and measurements, started from what `cargo xtask services` fetched.
//!
//! A server stops when the value returned for it is dropped, and with the process that started it.

pub mod cassandra;
mod guard;
pub mod kafka;
mod port;
mod server;

pub use guard::Guard;
pub use port::free_port;
pub use server::Server;
