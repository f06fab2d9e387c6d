//! Origins whose pages may use the checkout's API, by headers of browsers.

use axum::http::{HeaderMap, HeaderValue, header};

const SITE: &str = "sec-fetch-site";

/// `true` if the request comes from a page of an origin that is neither allowed nor this host's. A proxy may rewrite
/// `Host`, so `Sec-Fetch-Site` takes precedence; it also classifies `Origin: null`. Old browsers, and all browsers on
/// plain HTTP, do not send it.
pub(crate) fn is_foreign(headers: &HeaderMap, allowed: &[String]) -> bool {
    let origin = headers.get(header::ORIGIN);
    if origin.is_some_and(|origin| is_allowed(origin, allowed)) {
        return false;
    }
    if let Some(site) = headers.get(SITE) {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = origin else { return false };
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let named = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    named.is_none_or(|(_, name)| host != Some(name.as_bytes()))
}

/// Origins are compared byte by byte, as browsers write them.
pub(crate) fn is_allowed(origin: &HeaderValue, allowed: &[String]) -> bool {
    allowed.iter().any(|known| known.as_bytes() == origin.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_foreign_unless_allowed_or_of_this_host() {
        let allowed = ["https://shop.test".to_owned()];
        for (origin, site, host, expected) in [
            ("", "", "pay.test", false),
            ("", "same-site", "pay.test", true),
            ("https://shop.test", "cross-site", "pay.test", false),
            ("https://pay.test", "same-origin", "pay.test", false),
            ("https://pay.test", "same-origin", "127.0.0.1:8080", false),
            ("null", "same-origin", "pay.test", false),
            ("https://pay.test", "", "pay.test", false),
            ("http://pay.test:8080", "", "pay.test:8080", false),
            ("https://pay.test", "", "127.0.0.1:8080", true),
            ("https://evil.test", "", "pay.test", true),
            ("https://evil.test", "cross-site", "evil.test", true),
            ("http://pay.test", "cross-site", "pay.test", true),
            ("https://other.pay.test", "same-site", "pay.test", true),
            ("https://shop.test.evil.test", "", "pay.test", true),
            ("null", "", "pay.test", true),
            ("null", "cross-site", "null", true),
            ("pay.test", "", "pay.test", true),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [("origin", origin), (SITE, site), ("host", host)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            assert_eq!(is_foreign(&headers, &allowed), expected, "{origin} {site} {host}");
        }
    }
}
