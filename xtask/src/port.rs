//! Ports for servers.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below the ports that Linux gives to clients (`ip_local_port_range`) and to whoever asks for any: one of
/// those may be taken by a stranger, or by a client that reaches for its server, while a server that is
/// to come back on it is away.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port that is free now, and that this process has not been given yet.
///
/// # Errors
/// If none is free.
pub fn free_port() -> Result<u16> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    for _ in 0..COUNT {
        let given = u64::from(GIVEN.fetch_add(1, Ordering::Relaxed));
        // Processes that begin one after another are far apart.
        let start = u64::from(std::process::id()) * 7_919;
        let port = u16::try_from((start + given) % u64::from(COUNT)).unwrap_or_default() + FIRST;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port from {FIRST} to {} is free", FIRST + COUNT - 1)
}
