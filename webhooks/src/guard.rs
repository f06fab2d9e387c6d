//! Which addresses may be called: keeps receivers' URLs from reaching into the operator's network.
//!
//! A name is resolved and its addresses are checked in one step, by the resolver that the HTTP
//! client dials with, so no second resolution can return another address. Addresses written into a URL
//! never reach a resolver and are judged in [`check_url`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Why a receiver is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("not a URL: {0}")]
    Malformed(#[from] url::ParseError),
    #[error("only http and https are called")]
    Scheme,
    #[error("a URL with a user name or password is not called")]
    Credentials,
    #[error("{0} is not a public address")]
    Address(IpAddr),
}

/// First address and prefix length of what is not public in IPv4 (IANA's special-purpose registry,
/// multicast and the reserved rest).
const SPECIAL_V4: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// What is not public within 2000::/3: protocol assignments with Teredo, documentation, 6to4 (which
/// carries any IPv4 address). Everything outside 2000::/3 is not public either.
const SPECIAL_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Whether an address is one that anybody on the internet could call.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => !SPECIAL_V4.iter().any(|range| is_within_v4(v4, *range)),
        IpAddr::V6(v6) => {
            is_within_v6(v6, GLOBAL_V6) && !SPECIAL_V6.iter().any(|range| is_within_v6(v6, *range))
        }
    }
}

fn is_within_v4(address: Ipv4Addr, (first, prefix): (Ipv4Addr, u32)) -> bool {
    (address.to_bits() ^ first.to_bits()).leading_zeros() >= prefix
}

fn is_within_v6(address: Ipv6Addr, (first, prefix): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ first.to_bits()).leading_zeros() >= prefix
}

/// The URL of a receiver whose text alone does not forbid the call.
///
/// # Errors
/// [`Refusal`].
pub(crate) fn check_url(text: &str, allow_private_addresses: bool) -> Result<Url, Refusal> {
    let url = Url::parse(text)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refusal::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Credentials);
    }
    let literal = match url.host() {
        Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
        Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
        Some(Host::Domain(_)) | None => None,
    };
    match literal {
        Some(address) if !allow_private_addresses && !is_public(address) => {
            Err(Refusal::Address(address))
        }
        _ => Ok(url),
    }
}

/// What requests are counted by: host and port. Texts that are no URL share one count; they fail
/// without a request.
pub(crate) fn host_key(text: &str) -> String {
    Url::parse(text).map_or_else(
        |_| String::new(),
        |url| {
            let port = url.port_or_known_default().unwrap_or_default();
            format!("{}:{port}", url.host_str().unwrap_or_default())
        },
    )
}

/// Resolves names and refuses a name as a whole if one of its addresses may not be called.
#[derive(Debug)]
pub(crate) struct GuardedResolver {
    pub(crate) allow_private_addresses: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private_addresses = self.allow_private_addresses;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let permitted = permit(found, allow_private_addresses)?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// The addresses of a name, unless one of them may not be called.
fn permit(
    found: Vec<SocketAddr>,
    allow_private_addresses: bool,
) -> Result<Vec<SocketAddr>, Refusal> {
    match found.iter().map(SocketAddr::ip).find(|ip| !is_public(*ip)) {
        Some(address) if !allow_private_addresses => Err(Refusal::Address(address)),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_any_network_are_not_public() {
        let addresses = "
            0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1
            127.255.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1
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
            169.253.0.1 172.15.255.255 172.32.0.0 192.0.1.1 192.167.1.1 198.17.0.1 198.20.0.0
            223.255.255.255 ::ffff:8.8.8.8 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1
            2003::1";
        for text in addresses.split_whitespace() {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn one_forbidden_address_refuses_the_name() {
        let of =
            |ips: &[[u8; 4]]| -> Vec<SocketAddr> { ips.iter().map(|ip| (*ip, 0).into()).collect() };
        let (public, own) = ([1, 1, 1, 1], [10, 0, 0, 1]);
        let refused = Err(Refusal::Address(own.into()));
        assert_eq!(permit(of(&[public, public]), false), Ok(of(&[public, public])));
        for found in [of(&[own]), of(&[own, public]), of(&[public, own])] {
            assert_eq!(permit(found.clone(), false), refused);
            assert_eq!(permit(found.clone(), true), Ok(found));
        }
    }

    #[test]
    fn urls_that_name_a_forbidden_address_in_any_form_are_refused() {
        for text in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "https://[::1]:8443/",
            "http://0/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://169.254.169.254/x",
            "http://\u{ff11}27.0.0.1/",
        ] {
            assert!(matches!(check_url(text, false), Err(Refusal::Address(_))), "{text}");
            assert!(check_url(text, true).is_ok(), "{text}");
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
            assert_eq!(check_url(text, true), Err(refusal), "{text}");
        }
        assert!(check_url("https://shop.example/hooks?a=b", false).is_ok());
    }

    #[test]
    fn hosts_are_counted_by_name_and_port() {
        assert_eq!(host_key("https://Shop.example/a"), "shop.example:443");
        assert_eq!(host_key("https://shop.example:443/b"), "shop.example:443");
        assert_eq!(host_key("http://shop.example/"), "shop.example:80");
        assert_eq!(host_key("nonsense"), "");
    }
}
