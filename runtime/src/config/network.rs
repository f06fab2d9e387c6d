//! Networks of addresses.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use schemas::parse_network;

/// Addresses with a common prefix, such as `10.0.0.0/8`; without `/` a single one. An IPv4 address
/// is the same as its IPv6 form `::ffff:a.b.c.d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Returns `true` if an address is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let single = text.parse().map(|address: IpAddr| IpNet::from(address.to_canonical()));
        let network = single.or_else(|_| parse_network(text));
        network
            .map(Self)
            .map_err(|_| format!("{text:?} must be an address or a network such as \"10.0.0.0/8\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_shares_its_bits() {
        for (network, inside, outside) in [
            (
                "10.0.0.0/8",
                &["10.0.0.0", "10.255.1.2", "::ffff:10.1.1.1"][..],
                &["11.0.0.0", "::1"][..],
            ),
            ("192.0.2.7", &["192.0.2.7"], &["192.0.2.6", "192.0.2.8"]),
            ("192.0.2.6/31", &["192.0.2.6", "192.0.2.7"], &["192.0.2.5", "192.0.2.8"]),
            ("0.0.0.0/0", &["1.2.3.4"], &["2001:db8::1"]),
            ("::/0", &["2001:db8::1"], &["1.2.3.4"]),
            ("::/64", &["::2"], &["127.0.0.1"]),
            ("2001:db8::/32", &["2001:db8:1::"], &["2001:db9::", "32.1.13.184"]),
            ("::1", &["::1"], &["::2", "127.0.0.1"]),
            ("::ffff:10.0.0.0/104", &["10.1.1.1", "::ffff:10.1.1.1"], &["11.0.0.0", "::1"]),
        ] {
            let of: Network = network.parse().unwrap();
            for address in inside {
                assert!(of.contains(address.parse().unwrap()), "{address} in {network}");
            }
            for address in outside {
                assert!(!of.contains(address.parse().unwrap()), "{address} not in {network}");
            }
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "proxy",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0/8",
            "/8",
            "10.1.2.3/8",
            "::1/64",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text:?}");
        }
    }
}
