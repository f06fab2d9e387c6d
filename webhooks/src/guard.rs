//! The resolver of the HTTP client: a name is resolved and its addresses are checked in one step, so no second
//! resolution can return another address. Addresses written into a URL never reach a resolver and are judged
//! with the URL ([`ReceiverPolicy::check`]).

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use schemas::{ReceiverPolicy, Refusal};
use url::Url;

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
    pub(crate) receivers: ReceiverPolicy,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let receivers = self.receivers.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let permitted = permit(found, &receivers)?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// The addresses of a name, unless one of them may not be called.
fn permit(found: Vec<SocketAddr>, receivers: &ReceiverPolicy) -> Result<Vec<SocketAddr>, Refusal> {
    match found.iter().map(SocketAddr::ip).find(|ip| !receivers.permits(*ip)) {
        Some(address) => Err(Refusal::Address(address)),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_forbidden_address_refuses_the_name() {
        let of =
            |ips: &[[u8; 4]]| -> Vec<SocketAddr> { ips.iter().map(|ip| (*ip, 0).into()).collect() };
        let (public, own) = ([1, 1, 1, 1], [10, 0, 0, 1]);
        let internet = ReceiverPolicy::default();
        let refused = Err(Refusal::Address(own.into()));
        assert_eq!(permit(of(&[public, public]), &internet), Ok(of(&[public, public])));
        for found in [of(&[own]), of(&[own, public]), of(&[public, own])] {
            assert_eq!(permit(found.clone(), &internet), refused);
            assert_eq!(permit(found.clone(), &ReceiverPolicy::anywhere()), Ok(found));
        }
    }

    #[test]
    fn hosts_are_counted_by_name_and_port() {
        assert_eq!(host_key("https://Shop.example/a"), "shop.example:443");
        assert_eq!(host_key("https://shop.example:443/b"), "shop.example:443");
        assert_eq!(host_key("http://shop.example/"), "shop.example:80");
        assert_eq!(host_key("nonsense"), "");
    }
}
