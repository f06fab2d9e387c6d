//! Who sent a request.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use runtime::config::Network;

/// The address of a client: that of the connection or, where a trusted proxy has it, the one that the proxy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client(IpAddr);

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.to_canonical())
    }
}

/// An entry of `X-Forwarded-For`: some proxies add the port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port)
}

impl Client {
    /// Who sent a request over a connection from `peer`. Each proxy appends the address that it saw, so the entries are
    /// read from the last one on, as long as the one after it is trusted: what precedes it is what a client wrote.
    pub(crate) fn of<'a>(
        peer: IpAddr,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
        trusted: &[Network],
    ) -> Self {
        let is_trusted = |of: IpAddr| trusted.iter().any(|network| network.contains(of));
        let mut client = peer;
        let entries = forwarded.rev().flat_map(|value| value.rsplit(','));
        for entry in entries {
            if !is_trusted(client) {
                break;
            }
            let Some(before) = address(entry) else { break };
            client = before;
        }
        Self(client)
    }

    /// What it is limited by: its address, or the network that one customer has all addresses of, of IPv6 the first 64 bits.
    pub(crate) fn network(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & (u128::MAX << 64);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            address @ IpAddr::V4(_) => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUSTED: [&str; 2] = ["10.0.0.0/8", "2001:db8::/32"];

    fn of(peer: &str, forwarded: &[&str]) -> String {
        let trusted = TRUSTED.map(|network| network.parse().unwrap());
        Client::of(peer.parse().unwrap(), forwarded.iter().copied(), &trusted).to_string()
    }

    #[test]
    fn a_trusted_proxy_is_believed_and_nobody_else() {
        for (peer, forwarded, client) in [
            ("192.0.2.1", &[][..], "192.0.2.1"),
            ("192.0.2.1", &["198.51.100.9"], "192.0.2.1"),
            ("10.0.0.1", &["198.51.100.9"], "198.51.100.9"),
            ("::ffff:10.0.0.1", &["198.51.100.9"], "198.51.100.9"),
            ("10.0.0.1", &["127.0.0.1, 198.51.100.9"], "198.51.100.9"),
            ("10.0.0.1", &["198.51.100.9, 10.0.0.2 ,10.0.0.3"], "198.51.100.9"),
            ("10.0.0.1", &["198.51.100.9", "10.0.0.2"], "198.51.100.9"),
            ("10.0.0.1", &["198.51.100.9:4711"], "198.51.100.9"),
            ("2001:db8::1", &["[2001:db9::7]:4711"], "2001:db9::7"),
            ("10.0.0.1", &["10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.9, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.9, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &[""], "10.0.0.1"),
        ] {
            assert_eq!(of(peer, forwarded), client, "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn a_customer_is_limited_by_the_network_they_own() {
        let network = |text: &str| {
            Client::of(text.parse().unwrap(), [].into_iter(), &[]).network().to_string()
        };
        assert_eq!(network("198.51.100.9"), "198.51.100.9");
        assert_eq!(network("::ffff:198.51.100.9"), "198.51.100.9");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    }
}
