//! Policy for receivers of webhooks: keeps their URLs from reaching into the operator's network.
//!
//! Addresses and local names in a URL are checked here, when an order is created and at every
//! attempt; the addresses of a name at each call, with [`ReceiverPolicy::permits`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// Reason why a receiver is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("must be a URL: {0}")]
    Malformed(#[from] url::ParseError),
    #[error("must be an http or https URL")]
    Scheme,
    #[error("must not contain credentials")]
    Credentials,
    #[error("must not have the port {0}: webhooks.allowed_ports has those that are called")]
    Port(u16),
    #[error(
        "must not be the private address {0}: webhooks.allowed_networks has those that are called"
    )]
    Address(IpAddr),
    #[error(
        "must not be the local name {0:?}: webhooks.allowed_networks has what is called beside the internet"
    )]
    Local(String),
}

/// Networks that may be called beside public addresses, and the ports at which calls are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiverPolicy {
    /// Empty for every port.
    ports: Vec<RangeInclusive<u16>>,
    networks: Vec<IpNet>,
}

/// IPv4 ranges that are not public (IANA's special-purpose registry, multicast and the reserved
/// rest), or answer inside a virtual machine of Azure alone.
const SPECIAL_V4: [Ipv4Net; 16] = [
    Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10),
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 88, 99, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15),
    Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(203, 0, 113, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
    Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Ranges within 2000::/3 that are not public: protocol assignments with Teredo, documentation,
/// 6to4 (which carries any IPv4 address). Everything outside 2000::/3 is not public either.
const SPECIAL_V6: [Ipv6Net; 4] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    Ipv6Net::new_assert(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
const GLOBAL_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// `true` if anybody on the internet could call an address.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => !SPECIAL_V4.iter().any(|range| range.contains(&v4)),
        IpAddr::V6(v6) => {
            GLOBAL_V6.contains(&v6) && !SPECIAL_V6.iter().any(|range| range.contains(&v6))
        }
    }
}

/// Parses a port or a range of ports, such as `443` or `8000-8999`.
///
/// # Errors
/// The form it must have.
pub fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, &'static str> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err("must be a port or a range of ports such as \"8000-8999\""),
    }
}

/// Parses a network such as `192.168.7.0/24`.
///
/// An IPv4 network in IPv6 form (`::ffff:10.0.0.0/104`) is the IPv4 network.
///
/// # Errors
/// The form it must have.
pub fn parse_network(text: &str) -> Result<IpNet, &'static str> {
    let network: Option<IpNet> = text.parse().ok().map(|network| match network {
        IpNet::V6(of) => {
            let length = of.prefix_len().checked_sub(96);
            let mapped = of.addr().to_ipv4_mapped().zip(length);
            mapped.map_or(network, |(address, length)| IpNet::new_assert(address.into(), length))
        }
        IpNet::V4(_) => network,
    });
    // Host bits that are set are a mistake.
    let whole = network.filter(|network| network.addr() == network.network());
    whole.ok_or("must be a network such as \"192.168.7.0/24\"")
}

/// Parses the URL of a receiver, which may be at any address.
///
/// # Errors
/// [`Refusal`]: no policy permits it.
pub fn receiver_url(text: &str) -> Result<Url, Refusal> {
    let url = Url::parse(text)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refusal::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Credentials);
    }
    Ok(url)
}

impl ReceiverPolicy {
    /// Permits public addresses and these networks, at these ports; an empty list permits all
    /// ports.
    #[must_use]
    pub fn new(ports: Vec<RangeInclusive<u16>>, networks: Vec<IpNet>) -> Self {
        Self { ports, networks }
    }

    /// Permits every address, public or not, at every port.
    #[must_use]
    pub fn anywhere() -> Self {
        let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        Self::new(Vec::new(), all.map(|first| IpNet::new_assert(first, 0)).to_vec())
    }

    /// Permits the same addresses, at these ports.
    #[must_use]
    pub fn with_ports(self, ports: Vec<RangeInclusive<u16>>) -> Self {
        Self { ports, ..self }
    }

    /// `true` if an address may be called.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address) || self.networks.iter().any(|network| network.contains(&address))
    }

    /// Parses the URL of a receiver, and checks its port and its host. The addresses of a host name
    /// are left to [`ReceiverPolicy::permits`].
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(&self, text: &str) -> Result<Url, Refusal> {
        let url = receiver_url(text)?;
        let port = url.port_or_known_default().unwrap_or_default();
        if !self.ports.is_empty() && !self.ports.iter().any(|range| range.contains(&port)) {
            return Err(Refusal::Port(port));
        }
        let literal = match url.host() {
            Some(Host::Ipv4(v4)) => IpAddr::V4(v4),
            Some(Host::Ipv6(v6)) => IpAddr::V6(v6),
            Some(Host::Domain(name)) if is_local(name) && self.networks.is_empty() => {
                return Err(Refusal::Local(name.to_owned()));
            }
            Some(Host::Domain(_)) | None => return Ok(url),
        };
        if self.permits(literal) { Ok(url) } else { Err(Refusal::Address(literal)) }
    }
}

/// `true` if a name resolves in the operator's network alone: a single label, or one of the domains
/// reserved for that (RFC 6761, RFC 6762, ICANN's `.internal`).
fn is_local(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or(name);
    last == name || ["localhost", "local", "internal"].contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_any_network_are_not_public() {
        let addresses = "
            0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1
            127.255.0.1 168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1
            192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1
            239.1.1.1 240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1
            ::ffff:169.254.169.254 fc00::1 fd12::1 fe80::1 febf::1 fec0::1 ff02::1 2001:db8::1
            3fff::1 2002:7f00:1:: 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:10::1 5f00::1";
        for text in addresses.split_whitespace() {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn neighbours_of_special_ranges_are_public() {
        let addresses = "
            1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.0.0.1 128.0.0.1
            168.63.129.15 168.63.129.17 169.253.0.1 172.15.255.255 172.32.0.0 192.0.1.1 192.167.1.1 198.17.0.1 198.20.0.0
            223.255.255.255 ::ffff:8.8.8.8 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1
            2003::1";
        for text in addresses.split_whitespace() {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn other_schemes_and_credentials_are_refused_always() {
        for (text, refusal) in [
            ("ftp://shop.example/", Refusal::Scheme),
            ("file:///etc/passwd", Refusal::Scheme),
            ("https://user@shop.example/", Refusal::Credentials),
            ("https://:pw@shop.example/", Refusal::Credentials),
            ("shop.example/hooks", Refusal::Malformed(url::ParseError::RelativeUrlWithoutBase)),
            ("https://", Refusal::Malformed(url::ParseError::EmptyHost)),
            ("", Refusal::Malformed(url::ParseError::RelativeUrlWithoutBase)),
        ] {
            assert_eq!(ReceiverPolicy::anywhere().check(text), Err(refusal), "{text}");
        }
        assert!(ReceiverPolicy::default().check("https://shop.example/hooks?a=b").is_ok());
    }

    #[test]
    fn local_names_are_refused_where_no_lan_is_allowed() {
        let lan = ReceiverPolicy::new(vec![], vec![parse_network("192.168.7.0/24").unwrap()]);
        for name in ["localhost", "LOCALHOST.", "a.localhost", "shop", "nas.local", "x.internal"] {
            let url = format!("http://{name}:8080/hooks");
            let refused = ReceiverPolicy::default().check(&url);
            assert!(matches!(refused, Err(Refusal::Local(_))), "{url}: {refused:?}");
            // With an allowed network, the addresses that the name resolves to decide.
            assert!(lan.check(&url).is_ok(), "{url}");
        }
        assert!(ReceiverPolicy::default().check("https://shop.example./").is_ok());
    }

    #[test]
    fn networks_are_allowed_one_by_one() {
        let networks = ["192.168.7.0/24", "fd12::/16"].map(|text| parse_network(text).unwrap());
        let policy = ReceiverPolicy::new(vec![], networks.to_vec());
        for (url, allowed) in [
            ("http://192.168.7.9/", true),
            ("http://[::ffff:192.168.7.9]/", true),
            ("http://192.168.8.9/", false),
            ("http://127.0.0.1/", false),
            ("http://[fd12::1]/", true),
            ("http://[fd13::1]/", false),
            ("http://8.8.8.8/", true),
        ] {
            assert_eq!(policy.check(url).is_ok(), allowed, "{url}");
        }
        for text in ["192.168.7.1/24", "192.168.7.0", "192.168.7.0/33", "", "lan"] {
            assert!(parse_network(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ports_are_allowed_one_by_one() {
        let ports = ["443", "8000-8999"].map(|text| parse_ports(text).unwrap());
        let policy = ReceiverPolicy::new(ports.to_vec(), vec![]);
        for (url, refused) in [
            ("https://shop.example/", None),
            ("https://shop.example:443/", None),
            ("http://shop.example/", Some(80)),
            ("http://shop.example:7999/", Some(7999)),
            ("http://shop.example:8000/", None),
            ("http://shop.example:8999/", None),
            ("http://shop.example:9000/", Some(9000)),
        ] {
            assert_eq!(policy.check(url).err(), refused.map(Refusal::Port), "{url}");
        }
        for text in ["0", "65536", "8-7", "", "-", "http", "1-2-3"] {
            assert!(parse_ports(text).is_err(), "{text:?}");
        }
    }
}
