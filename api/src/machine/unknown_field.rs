//! Unknown fields of a create request: whether each may be ignored (decision 80). A misspelt field, or one of an
//! unsupported feature, is refused: if ignored, it would silently have no effect.

use super::json;
use super::new_order::KNOWN;
use crate::error::Invalid;

/// Fields that other payment services have, each with the reason why it is not supported here.
const WISHES: [(&str, &str); 4] = [
    ("currency", "amounts are in whole units of the stablecoin"),
    ("metadata", "order_id is stored as given"),
    ("ttl", "orders.ttl is the same for all orders"),
    ("expires_in", "orders.ttl is the same for all orders"),
];
/// Maximum edits of a typing error in a long name. A short name, which resembles other words, allows one.
const TYPING_ERRORS_MAX: usize = 2;
/// Minimum letters of a long name.
const LONG_MIN: usize = 9;
/// Maximum names reported to the client, and characters of each.
const NAMED_MAX: usize = 20;
const NAME_CHARS_MAX: usize = 64;

/// At most [`NAMED_MAX`] unknown fields of a body, escaped for a header.
///
/// # Errors
/// An unknown field must not be ignored, or the body is not a JSON object.
pub(crate) fn ignored(body: &[u8]) -> Result<Vec<String>, Invalid> {
    let given = json::field_names(body)?;
    let unknown = || given.iter().map(String::as_str).filter(|name| !KNOWN.contains(name));
    for name in unknown() {
        if let Some((wish, why)) = WISHES.iter().find(|(wish, _)| name.eq_ignore_ascii_case(wish)) {
            return Err(Invalid::new("body", format!("{wish:?} is not supported: {why}")));
        }
        if let Some(meant) = meant(name) {
            let problem = format!("{name:?} is not a field, {meant} is");
            return Err(Invalid::new("body", problem));
        }
    }
    Ok(unknown().take(NAMED_MAX).map(printable).collect())
}

/// The known field that a name was most likely meant for.
fn meant(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    if name.starts_with("expected_") || name.starts_with("expecting_") {
        return Some("expecting_wallet_address");
    }
    let most = |known: &str| if known.len() < LONG_MIN { 1 } else { TYPING_ERRORS_MAX };
    KNOWN.iter().copied().find(|known| distance(&name, known) <= most(known))
}

/// Edit distance of two names; large distances need not be exact.
fn distance(one: &str, other: &str) -> usize {
    if one.len().abs_diff(other.len()) > TYPING_ERRORS_MAX {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, letter) in (1..).zip(one.bytes()) {
        let mut before = number;
        let mut next = vec![before];
        for ((above_left, above), of) in row.iter().zip(row.iter().skip(1)).zip(other.bytes()) {
            let changed = above_left + usize::from(letter != of);
            before = changed.min(above + 1).min(before + 1);
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// A name as one element of a list in a header.
fn printable(name: &str) -> String {
    let start: String = name.chars().take(NAME_CHARS_MAX).collect();
    start.escape_default().to_string().replace(',', "\\u{2c}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ignored(names: &[&str]) -> Result<Vec<String>, String> {
        let body: Value = names.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
        super::ignored(body.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn near_misses_of_the_fields_are_refused() {
        for (name, meant) in [
            ("expected_wallet_address", "expecting_wallet_address"),
            ("expected_sender", "expecting_wallet_address"),
            ("expecting_wallet_adress", "expecting_wallet_address"),
            ("expecting_address", "expecting_wallet_address"),
            ("ammount", "amount"),
            ("amounts", "amount"),
            ("Amount", "amount"),
            ("webhookUrl", "webhook_url"),
            ("webhook-uri", "webhook_url"),
            ("orderId", "order_id"),
            ("block_chain", "blockchain"),
            ("stable_coin", "stablecoin"),
        ] {
            let text = format!("body: {name:?} is not a field, {meant} is");
            assert_eq!(ignored(&["order_id", name]), Err(text));
        }
    }

    #[test]
    fn what_nobody_does_is_refused() {
        let text =
            "body: \"currency\" is not supported: amounts are in whole units of the stablecoin";
        assert_eq!(ignored(&["currency"]), Err(text.to_owned()));
        for wish in ["metadata", "ttl", "TTL", "expires_in"] {
            assert!(ignored(&[wish]).is_err(), "{wish}");
        }
    }

    #[test]
    fn others_are_named_and_known_ones_are_not() {
        assert_eq!(ignored(KNOWN), Ok(Vec::new()));
        for name in [
            "colour",
            "order",
            "order_no",
            "account",
            "count",
            "customer_id",
            "merchant_order_id",
            "wallet_address",
            "id",
        ] {
            assert_eq!(ignored(&[name]), Ok(vec![name.to_owned()]));
        }
        assert_eq!(ignored(&["a,b\nü"]), Ok(vec!["a\\u{2c}b\\n\\u{fc}".to_owned()]));
        let many: Vec<_> = (100..200).map(|number| format!("{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(ignored(&many).map(|names| names.len()), Ok(NAMED_MAX));
        assert_eq!(ignored(&[&"x".repeat(999)]), Ok(vec!["x".repeat(NAME_CHARS_MAX)]));
    }

    #[test]
    fn letters_are_counted() {
        for (one, other, expected) in
            [("", "", 0), ("amount", "amount", 0), ("amuont", "amount", 2), ("ab", "cde", 3)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
