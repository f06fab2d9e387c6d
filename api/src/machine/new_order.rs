//! The body of `POST /orders` (spec 4.1): what makes it valid.

use schemas::record::CreateOrder;
use schemas::{Address, Amount, Blockchain, UnixSeconds};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::json;
use crate::error::Invalid;

/// Most characters of a merchant's reference.
const ORDER_ID_CHARS_MAX: usize = 255;
/// Most characters of an amount: enough for every amount there is, with some zeros.
const AMOUNT_CHARS_MAX: usize = 64;
/// Most bytes of a webhook URL.
const URL_BYTES_MAX: usize = 2048;

#[derive(Deserialize)]
struct Body {
    order_id: Option<Value>,
    amount: Option<Value>,
    webhook_url: Option<Value>,
    expecting_wallet_address: Option<Value>,
    blockchain: Option<Value>,
    stablecoin: Option<Value>,
}

/// The order that a body asks for, valid in itself and without a payment.
///
/// # Errors
/// The first field that is wrong, in the order of spec 4.1, and what is wrong with it.
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
        payment: None,
    })
}

fn merchant_order_id(value: Option<Value>) -> Result<String, Invalid> {
    let text = json::text("order_id", "string", value)?;
    let problem = if text.is_empty() {
        "must not be empty".to_owned()
    } else if text.chars().count() > ORDER_ID_CHARS_MAX {
        format!("must be at most {ORDER_ID_CHARS_MAX} characters")
    } else if text.chars().any(char::is_control) {
        "must not contain control characters".to_owned()
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

/// Where the URL leads is checked when it is called: names change their addresses.
fn webhook_url(value: Option<Value>) -> Result<String, Invalid> {
    let text = json::text("webhook_url", "string", value)?;
    let invalid = |problem: String| Err(Invalid::new("webhook_url", problem));
    if text.len() > URL_BYTES_MAX {
        return invalid(format!("must be at most {URL_BYTES_MAX} characters"));
    }
    // The parser would drop white space and control characters, and then call another URL than
    // shown.
    let clean = !text.chars().any(|c| c.is_control() || c.is_whitespace());
    let parsed = Url::parse(&text).ok().filter(|url| clean && url.has_host());
    let Some(url) = parsed.filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return invalid("must be an http or https URL".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return invalid("must not contain credentials".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(body: &[u8]) -> Result<CreateOrder, Invalid> {
        super::parse(body, UnixSeconds(9))
    }

    fn good() -> Value {
        json!({ "order_id": "A-1", "amount": "10.50", "webhook_url": "https://shop.test/hook" })
    }

    fn with(field: &str, value: Value) -> Value {
        let mut body = good();
        body[field] = value;
        body
    }

    fn complaint(body: &Value) -> String {
        parse(body.to_string().as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn every_complaint_names_its_field() {
        let checksum = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD";
        let url = "webhook_url: must be an http or https URL";
        for (field, value, text) in [
            ("order_id", json!(null), "order_id: is missing"),
            ("order_id", json!(7), "order_id: must be a string"),
            ("order_id", json!(""), "order_id: must not be empty"),
            ("order_id", json!("x".repeat(256)), "order_id: must be at most 255 characters"),
            ("order_id", json!("a\nb"), "order_id: must not contain control characters"),
            ("order_id", json!("a\u{85}b"), "order_id: must not contain control characters"),
            ("amount", json!(null), "amount: is missing"),
            ("amount", json!(10.5), "amount: must be a decimal string"),
            ("amount", json!("0.00"), "amount: must be greater than zero"),
            ("amount", json!("-1"), "amount: must be a decimal number such as \"10.00\""),
            ("amount", json!("1e3"), "amount: must be a decimal number such as \"10.00\""),
            ("amount", json!("1,5"), "amount: must be a decimal number such as \"10.00\""),
            ("amount", json!("1000000001"), "amount: must be at most 1000000000"),
            (
                "amount",
                json!("0.0000000000000000001"),
                "amount: must have at most 18 digits after the point",
            ),
            (
                "amount",
                json!(format!("1.{}", "0".repeat(63))),
                "amount: must be at most 64 characters",
            ),
            ("webhook_url", json!(null), "webhook_url: is missing"),
            ("webhook_url", json!(["x"]), "webhook_url: must be a string"),
            ("webhook_url", json!("shop.test/hook"), url),
            ("webhook_url", json!("ftp://shop.test"), url),
            ("webhook_url", json!("javascript:alert(1)"), url),
            ("webhook_url", json!("https://"), url),
            ("webhook_url", json!(" https://shop.test"), url),
            ("webhook_url", json!("https://shop.test/\nx"), url),
            (
                "webhook_url",
                json!("https://a:b@shop.test"),
                "webhook_url: must not contain credentials",
            ),
            (
                "webhook_url",
                json!("https://a@shop.test"),
                "webhook_url: must not contain credentials",
            ),
            (
                "webhook_url",
                json!(format!("https://shop.test/{}", "x".repeat(2048))),
                "webhook_url: must be at most 2048 characters",
            ),
            (
                "expecting_wallet_address",
                json!(checksum),
                "expecting_wallet_address: has a wrong EIP-55 checksum",
            ),
            (
                "expecting_wallet_address",
                json!("x"),
                "expecting_wallet_address: must be 0x followed by 40 hex digits, or a Tron address \
                 that starts with T",
            ),
            (
                "blockchain",
                json!("bsc"),
                "blockchain: \"bsc\" is not one of eth, polygon, base, arb, op, linea, avaxc, tron",
            ),
            ("blockchain", json!(1), "blockchain: must be a string"),
            ("stablecoin", json!("usdt"), "stablecoin: \"usdt\" is not one of USDT, USDC, DAI"),
        ] {
            assert_eq!(complaint(&with(field, value.clone())), text, "{field} = {value}");
        }
    }

    #[test]
    fn the_longest_texts_are_taken() {
        for (field, text) in [
            ("order_id", "\u{e9}".repeat(255)),
            ("amount", format!("1.{}", "0".repeat(62))),
            ("webhook_url", format!("https://shop.test/{}", "x".repeat(2048 - 18))),
        ] {
            let body = with(field, json!(text)).to_string();
            assert!(parse(body.as_bytes()).is_ok(), "{field}");
            let longer = complaint(&with(field, json!(format!("{text}0"))));
            assert!(longer.contains("must be at most"), "{longer}");
        }
    }

    #[test]
    fn bodies_that_are_not_objects_are_refused() {
        for body in ["", "[]", "\"x\"", "7", "null", "{", "{\"order_id\":}", "\u{1}"] {
            let text = parse(body.as_bytes()).unwrap_err().to_string();
            assert!(text.starts_with("body: "), "{body}: {text}");
        }
        assert!(parse(&[b'{', 0xff, b'}']).is_err());
        let twice = br#"{"order_id":"A","order_id":"B","amount":"1","webhook_url":"http://a.b"}"#;
        let text = parse(twice).unwrap_err().to_string();
        assert!(text.starts_with("body: duplicate field `order_id`"), "{text}");
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn a_sender_must_be_able_to_exist_on_the_chain() {
        let mut body =
            with("expecting_wallet_address", json!("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"));
        assert!(parse(body.to_string().as_bytes()).is_ok());
        body["blockchain"] = json!("eth");
        assert_eq!(complaint(&body), "expecting_wallet_address: is not an address of eth");
    }

    #[test]
    fn null_is_absent_and_unknown_fields_are_passed_over() {
        let mut body = good();
        for field in ["expecting_wallet_address", "blockchain", "stablecoin"] {
            body[field] = Value::Null;
        }
        body["colour"] = json!({ "deep": [1] });
        let plain = parse(good().to_string().as_bytes()).unwrap();
        assert_eq!(parse(body.to_string().as_bytes()), Ok(plain.clone()));
        assert_eq!(plain.amount_text, "10.50");
        assert_eq!(plain.blockchain, None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(parse(&bytes));
        }

        #[test]
        fn accepted_amounts_are_positive_and_kept_as_sent(text in "[0-9]{0,12}(\\.[0-9]{0,20})?") {
            let body = with("amount", json!(text)).to_string();
            if let Ok(order) = parse(body.as_bytes()) {
                prop_assert!(order.amount > Amount::ZERO);
                prop_assert_eq!(Amount::parse(&order.amount_text), Ok(order.amount));
                prop_assert_eq!(order.amount_text, text);
            }
        }
    }
}
