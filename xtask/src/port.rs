//! Ports for servers.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// First port to give. All are below those that Linux gives to clients (`ip_local_port_range`) and to listeners that
/// ask for any port: such a port may be taken while a server restarts on it.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// UDP sockets with the numbers of the given ports. They are held until the process ends, and reserve the ports also
/// while no server listens on them.
static HELD: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// A free port. Other processes do not get it from this function until this process ends.
///
/// # Errors
/// If none is free.
pub fn free_port() -> Result<u16> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    for _ in 0..COUNT {
        let given = u64::from(GIVEN.fetch_add(1, Ordering::Relaxed));
        // Spreads processes with consecutive ids.
        let start = u64::from(std::process::id()) * 7_919;
        let port = u16::try_from((start + given) % u64::from(COUNT)).unwrap_or_default() + FIRST;
        let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            HELD.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
            return Ok(port);
        }
    }
    bail!("no port from {FIRST} to {} is free", FIRST + COUNT - 1)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_given_port_is_claimed_until_the_process_ends() {
        let (one, other) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(one, other);
        assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, one)).is_err());
        // A process that another test has forked holds every socket of this one until it executes its
        // program, and among them the listener by which the port was probed.
        let started = Instant::now();
        while let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, one)) {
            assert!(started.elapsed() < Duration::from_secs(30), "{error}");
            std::thread::yield_now();
        }
    }
}
