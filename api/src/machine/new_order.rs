//! The body of `POST /orders` (spec 4.1) and its validation.

use schemas::record::CreateOrder;
use schemas::{Address, Amount, Blockchain, Refusal, UnixSeconds, receiver_url};
use serde_json::Value;

use super::json;
use crate::error::Invalid;

/// The fields of spec 4.1.
pub(super) const KNOWN: &[&str] = <Body as json::Fields>::NAMES;
/// Maximum characters of a merchant's reference.
const ORDER_ID_CHARS_MAX: usize = 255;
/// Maximum characters of an amount: enough for every valid amount, with some zeros.
const AMOUNT_CHARS_MAX: usize = 64;
const URL_BYTES_MAX: usize = 2048;

json::fields! {
    Body { order_id, amount, webhook_url, expecting_wallet_address, blockchain, stablecoin }
}

/// The order that a body describes; its payment is added later.
///
/// # Errors
/// The first invalid field, in the order of spec 4.1, and its problem.
pub(crate) fn parse(body: &[u8], expires_at: UnixSeconds) -> Result<CreateOrder, Invalid> {
    let body: Body = json::object(body)?;
    let merchant_order_id = merchant_order_id(body.order_id)?;
    let (amount, amount_text) = amount(body.amount)?;
    let webhook_url = webhook_url(body.webhook_url)?;
    let sender: Option<Address> =
        json::optional("expecting_wallet_address", body.expecting_wallet_address)?;
    let blockchain: Option<Blockchain> = json::optional("blockchain", body.blockchain)?;
    let stablecoin = json::optional("stablecoin", body.stablecoin)?;
    if let (Some(sender), Some(blockchain)) = (sender, blockchain)
        && sender.family() != blockchain.address_family()
    {
        let problem = format!("is not an address of {blockchain}");
        return Err(Invalid::new("expecting_wallet_address", problem));
    }
    Ok(CreateOrder {
        merchant_order_id,
        amount,
        amount_text,
        webhook_url,
        expecting_wallet_address: sender,
        blockchain,
        stablecoin,
        expires_at,
        first_version: 1,
        payment: None,
    })
}

/// Any text of 1 to 255 characters: it is the merchant's, stored as given and never interpreted (spec 2.2).
fn merchant_order_id(value: Option<Value>) -> Result<String, Invalid> {
    let text = json::text("order_id", "string", value)?;
    let problem = if text.is_empty() {
        "must not be empty".to_owned()
    } else if text.chars().count() > ORDER_ID_CHARS_MAX {
        format!("must be at most {ORDER_ID_CHARS_MAX} characters")
    } else {
        return Ok(text);
    };
    Err(Invalid::new("order_id", problem))
}

fn amount(value: Option<Value>) -> Result<(Amount, String), Invalid> {
    let text = json::text("amount", "decimal string", value)?;
    let invalid = |problem| Invalid::new("amount", problem);
    if text.len() > AMOUNT_CHARS_MAX {
        return Err(invalid(format!("must be at most {AMOUNT_CHARS_MAX} characters")));
    }
    let amount = Amount::parse_order(&text).map_err(|error| invalid(error.to_string()))?;
    Ok((amount, text))
}

fn webhook_url(value: Option<Value>) -> Result<String, Invalid> {
    let text = json::text("webhook_url", "string", value)?;
    let invalid = |problem: String| Err(Invalid::new("webhook_url", problem));
    if text.len() > URL_BYTES_MAX {
        return invalid(format!("must be at most {URL_BYTES_MAX} characters"));
    }
    // The parser would drop white space and control characters: another URL than the one that is shown
    // would be called.
    let clean = !text.chars().any(|c| c.is_control() || c.is_whitespace());
    match receiver_url(&text) {
        Ok(_) if clean => Ok(text),
        Err(Refusal::Credentials) if clean => invalid(Refusal::Credentials.to_string()),
        Ok(_) | Err(_) => invalid(Refusal::Scheme.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(body: impl ToString) -> Result<CreateOrder, Invalid> {
        super::parse(body.to_string().as_bytes(), UnixSeconds(9))
    }

    fn with(field: &str, value: impl Into<Value>) -> Value {
        let url = "https://shop.test/hook";
        let mut body = json!({ "order_id": "A-1", "amount": "10.50", "webhook_url": url });
        body[field] = value.into();
        body
    }

    fn error(field: &str, value: impl Into<Value>) -> String {
        parse(with(field, value)).unwrap_err().to_string()
    }

    #[test]
    fn every_error_names_its_field() {
        let decimal = "must be a decimal number such as \"10.00\"";
        let precise = "must have at most 18 digits after the point";
        let (url, credentials) = ("must be an http or https URL", "must not contain credentials");
        let address = "must be 0x followed by 40 hex digits, or a Tron address that starts with T";
        let checksum = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD";
        let chains = "is not one of eth, polygon, base, arb, op, linea, avaxc, tron";
        for (field, value, problem) in [
            ("order_id", Value::Null, "is missing"),
            ("order_id", json!(7), "must be a string"),
            ("order_id", json!(""), "must not be empty"),
            ("amount", Value::Null, "is missing"),
            ("amount", json!(10.5), "must be a decimal string"),
            ("amount", json!("0.00"), "must be greater than zero"),
            ("amount", json!("-1"), decimal),
            ("amount", json!("1e3"), decimal),
            ("amount", json!("1,5"), decimal),
            ("amount", json!("1000000001"), "must be at most 1000000000"),
            ("amount", json!("0.0000000000000000001"), precise),
            ("webhook_url", Value::Null, "is missing"),
            ("webhook_url", json!(["x"]), "must be a string"),
            ("webhook_url", json!("shop.test/hook"), url),
            ("webhook_url", json!("ftp://shop.test"), url),
            ("webhook_url", json!("javascript:alert(1)"), url),
            ("webhook_url", json!("https://"), url),
            ("webhook_url", json!(" https://shop.test"), url),
            ("webhook_url", json!("https://shop.test/\nx"), url),
            ("webhook_url", json!("https://a:b@shop.test"), credentials),
            ("webhook_url", json!("https://a@shop.test"), credentials),
            ("expecting_wallet_address", json!(checksum), "has a wrong EIP-55 checksum"),
            ("expecting_wallet_address", json!("x"), address),
            ("blockchain", json!("bsc"), &format!("\"bsc\" {chains}")),
            ("blockchain", json!(1), "must be a string"),
            ("stablecoin", json!("usdt"), "\"usdt\" is not one of USDT, USDC, DAI"),
        ] {
            assert_eq!(error(field, value.clone()), format!("{field}: {problem}"), "{value}");
        }
    }

    #[test]
    fn the_longest_texts_are_accepted() {
        for (field, text, length_max) in [
            ("order_id", "\u{e9}".repeat(255), 255),
            ("amount", format!("1.{}", "0".repeat(62)), 64),
            ("webhook_url", format!("https://shop.test/{}", "x".repeat(2048 - 18)), 2048),
        ] {
            assert!(parse(with(field, text.clone())).is_ok(), "{field}");
            let problem = format!("{field}: must be at most {length_max} characters");
            assert_eq!(error(field, text + "0"), problem);
        }
    }

    #[test]
    fn a_reference_is_any_text() {
        for text in [" ", "a\nb", "\0", "a\u{85}\u{202e}b", "=1+1", "{status}", "\u{10ffff}"] {
            let parsed = parse(with("order_id", text)).map(|order| order.merchant_order_id);
            assert_eq!(parsed.as_deref(), Ok(text), "{text:?}");
        }
    }

    #[test]
    fn bodies_that_are_not_objects_are_refused() {
        for body in ["", "[]", "\"x\"", "7", "null", "{", "{\"order_id\":}", "\u{1}"] {
            let text = parse(body).unwrap_err().to_string();
            assert!(text.starts_with("body: "), "{body}: {text}");
        }
        assert!(super::parse(&[b'{', 0xff, b'}'], UnixSeconds(9)).is_err());
        let twice = r#"{"order_id":"A","order_id":"B","amount":"1","webhook_url":"http://a.b"}"#;
        let text = parse(twice).unwrap_err().to_string();
        assert!(text.starts_with("body: duplicate field `order_id`"), "{text}");
        assert!(parse("[".repeat(100_000)).is_err());
    }

    #[test]
    fn a_sender_must_be_possible_on_the_chain() {
        let mut body = with("expecting_wallet_address", "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t");
        assert!(parse(&body).is_ok());
        body["blockchain"] = json!("eth");
        let text = parse(body).unwrap_err().to_string();
        assert_eq!(text, "expecting_wallet_address: is not an address of eth");
    }

    #[test]
    fn null_is_absent_and_unknown_fields_are_ignored() {
        let mut body = with("colour", json!({ "deep": [1] }));
        for field in ["expecting_wallet_address", "blockchain", "stablecoin"] {
            body[field] = Value::Null;
        }
        let plain = parse(with("amount", "10.50")).unwrap();
        assert_eq!((&*plain.amount_text, plain.blockchain), ("10.50", None));
        assert_eq!(parse(body), Ok(plain));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(super::parse(&bytes, UnixSeconds(9)));
        }

        #[test]
        fn accepted_amounts_are_positive_and_kept_as_sent(text in "[0-9]{0,12}(\\.[0-9]{0,20})?") {
            if let Ok(order) = parse(with("amount", text.clone())) {
                prop_assert!(order.amount > Amount::ZERO);
                prop_assert_eq!(Amount::parse(&order.amount_text), Ok(order.amount));
                prop_assert_eq!(order.amount_text, text);
            }
        }
    }
}
