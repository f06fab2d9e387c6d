//! `merchant.return_url`: where the checkout page sends its customer back to, and `merchant.allowed_origins`.

use std::str::FromStr;

use schemas::record::Order;
use url::Url;

/// Placeholders of a template.
const NAMES: [&str; 4] = ["{order_id}", "{merchant_order_id}", "{status}", "{proof}"];

/// URL of the shop, with placeholders after its host only: no order leads to another site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnUrl(String);

impl FromStr for ReturnUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let filled =
            |value: &str| NAMES.iter().fold(text.to_owned(), |url, n| url.replace(n, value));
        // The URL is filled with two values. If the origins differ, a placeholder is before the path.
        let [one, other] = ["a", "b/c"].map(|value| Url::parse(&filled(value)));
        let url = one.map_err(
            |_| "must be a URL such as \"https://shop.example/orders/{merchant_order_id}\"",
        )?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must be an http or https URL");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not contain credentials");
        }
        if !other.is_ok_and(|other| other.origin() == url.origin()) {
            return Err("must not have a hole before its path");
        }
        if filled("").contains(['{', '}']) {
            return Err(
                "may have the holes {order_id}, {merchant_order_id}, {status} and {proof} only",
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl ReturnUrl {
    /// The URL for an order, with the proof of its status.
    pub(crate) fn of(&self, order: &Order, proof: &str) -> String {
        let id = order.order_id.to_string();
        let values = [&*id, &*order.merchant_order_id, order.status.as_str(), proof];
        // Braces in a value are percent-encoded, so that no value adds a placeholder.
        let filled = |url: String, (name, value): (&&str, &str)| url.replace(name, &encoded(value));
        NAMES.iter().zip(values).fold(self.0.clone(), filled)
    }
}

/// Percent-encodes all but unreserved characters (RFC 3986).
fn encoded(value: &str) -> String {
    let byte = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'~' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    value.bytes().map(byte).collect()
}

/// Reason why a text is not an origin exactly as browsers write it: origins are compared byte by byte.
pub(crate) fn origin_problem(text: &str) -> Option<&'static str> {
    if text.contains('*') || text == "null" {
        return Some(
            "must name one origin: a link may command, so no page may use those of all others",
        );
    }
    let origin = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(origin) = origin.map(|url| url.origin().ascii_serialization()) else {
        return Some("must be an http or https origin such as \"https://shop.example\"");
    };
    (origin != text).then_some(
        "must be written as browsers send it: scheme and host in lower case, no default port, no path, no slash at the end",
    )
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    #[test]
    fn no_order_leads_to_another_site() {
        let url: ReturnUrl =
            "https://shop.example/done/{merchant_order_id}?o={order_id}&s={status}&p={proof}"
                .parse()
                .unwrap();
        for hostile in [
            "/../x",
            "@evil.example",
            "?a#b&s=paid",
            "\r\nX: y",
            "{status}",
            "ü\0",
            "//evil.example",
        ] {
            let order = Order { merchant_order_id: hostile.to_owned(), ..example::order() };
            let made = Url::parse(&url.of(&order, "7.A-b_")).unwrap();
            assert_eq!(made.origin().ascii_serialization(), "https://shop.example", "{hostile}");
            assert_eq!(made.fragment(), None, "{hostile}");
            let pairs: Vec<_> = made.query_pairs().collect();
            assert_eq!(pairs.len(), 3, "{made}");
            assert_eq!(pairs[2].1, "7.A-b_");
            assert_eq!(pairs[1].1, order.status.as_str());
            assert!(made.path().starts_with("/done/"), "{made}");
        }
    }

    #[test]
    fn templates_that_could_lead_elsewhere_are_refused() {
        for (text, expected) in [
            ("https://shop.example", None),
            ("http://127.0.0.1:3000/{order_id}", None),
            ("https://{merchant_order_id}/", Some("hole before")),
            ("https://shop.example{merchant_order_id}", Some("hole before")),
            ("https://shop.example:{merchant_order_id}/", Some("must be a URL")),
            ("https://{status}@shop.example/", Some("credentials")),
            ("{merchant_order_id}", Some("must be a URL")),
            ("{status}://shop.example/", Some("must be an http")),
            ("javascript:alert(1)", Some("must be an http")),
            ("/orders", Some("must be a URL")),
            ("https://shop.example/{order}", Some("may have")),
            ("https://shop.example/{{order_id}}", Some("may have")),
        ] {
            let problem = text.parse::<ReturnUrl>().err();
            let same = match expected {
                None => problem.is_none(),
                Some(expected) => problem.is_some_and(|problem| problem.contains(expected)),
            };
            assert!(same, "{text}: {problem:?}");
        }
    }

    #[test]
    fn origins_are_as_browsers_write_them() {
        for text in
            ["https://shop.example", "http://localhost:3000", "https://xn--bcher-kva.example"]
        {
            assert_eq!(origin_problem(text), None, "{text}");
        }
        for text in [
            "*",
            "null",
            "",
            "shop.example",
            "https://shop.example/",
            "https://shop.example/checkout",
            "https://Shop.example",
            "https://shop.example:443",
            "https://u@shop.example",
            "ftp://shop.example",
            "https://bücher.example",
            "https://*.shop.example",
            "https://shop.example https://other.example",
        ] {
            assert!(origin_problem(text).is_some(), "{text}");
        }
    }
}
