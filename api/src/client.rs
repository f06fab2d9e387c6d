//! Client of a request: its address and its listener.

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::extract::OptionalFromRequestParts;
use axum::http::request::Parts;
use runtime::config::Network;

/// Listener that received a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Entrance {
    /// Listener of merchants and customers, and of operators unless they have their own.
    Public,
    Operators,
}

/// Rate-limit key of a client.
pub(crate) type Key = (Entrance, IpAddr);

/// Address of a client: that of the connection or, behind a trusted proxy, the one that the proxy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    address: IpAddr,
    entrance: Entrance,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address.to_canonical())
    }
}

pub(crate) fn is_trusted(proxies: &[Network], address: IpAddr) -> bool {
    proxies.iter().any(|network| network.contains(address))
}

/// An entry of `X-Forwarded-For`: some proxies add the port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port)
}

impl Client {
    /// Returns the client of a request from `peer`. Each proxy appends the address of its own peer. So entries are read
    /// from the last one, as long as a trusted proxy appended them; earlier entries are client input.
    pub(crate) fn of<'a>(
        entrance: Entrance,
        peer: IpAddr,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
        trusted: &[Network],
    ) -> Self {
        let mut client = peer;
        let entries = forwarded.rev().flat_map(|value| value.rsplit(','));
        for entry in entries {
            if !is_trusted(trusted, client) {
                break;
            }
            let Some(before) = address(entry) else { break };
            client = before;
        }
        Self { address: client, entrance }
    }

    /// Rate-limit key: the listener, and the IPv4 address or the /64 network of IPv6, because one customer owns all
    /// addresses of such a network.
    pub(crate) fn key(self) -> Key {
        let network = match self.address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & (u128::MAX << 64);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            address @ IpAddr::V4(_) => address,
        };
        (self.entrance, network)
    }
}

/// `None` if the listener did not set it.
impl<S: Sync> OptionalFromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUSTED: [&str; 2] = ["10.0.0.0/8", "2001:db8::/32"];

    fn of(peer: &str, forwarded: &[&str]) -> String {
        let trusted = TRUSTED.map(|network| network.parse().unwrap());
        let forwarded = forwarded.iter().copied();
        Client::of(Entrance::Public, peer.parse().unwrap(), forwarded, &trusted).to_string()
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
            let peer = text.parse().unwrap();
            Client::of(Entrance::Public, peer, [].into_iter(), &[]).key().1.to_string()
        };
        assert_eq!(network("198.51.100.9"), "198.51.100.9");
        assert_eq!(network("::ffff:198.51.100.9"), "198.51.100.9");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    }
}
