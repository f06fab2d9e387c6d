//! Query strings (spec 4.2, 8): paging, filters, and the signature of a checkout link.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use schemas::{CheckoutSignature, OrderId, Secret, UnixSeconds, verify_checkout};
use store::Page;

use crate::error::{Invalid, Refusal};

/// Spec 8.
const LIMIT_DEFAULT: u32 = 20;
/// Spec 8.
const LIMIT_MAX: u32 = 200;
/// Spec 8.
const OFFSET_MAX: u32 = 100_000;

/// A query string, decoded. Names that nobody asks for are passed over.
#[derive(Debug)]
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(crate) fn parse(raw: &'a str) -> Self {
        Self(url::form_urlencoded::parse(raw.as_bytes()).collect())
    }

    /// The value of a name, if it is given.
    ///
    /// # Errors
    /// It is given twice: then it is not known which is meant.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<&str>, Invalid> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| &**value);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Invalid::new(name, "is given twice")),
            (value, None) => Ok(value),
        }
    }

    /// A filter by a word of a vocabulary.
    ///
    /// # Errors
    /// The value is not in it.
    pub(crate) fn word<T>(&self, name: &'static str) -> Result<Option<T>, Invalid>
    where
        T: FromStr<Err: Display>,
    {
        self.text(name)?.map(|text| super::json::parsed(name, text)).transpose()
    }

    /// A filter by order.
    ///
    /// # Errors
    /// The value is not a UUID.
    pub(crate) fn order_id(&self) -> Result<Option<OrderId>, Invalid> {
        self.text("order_id")?.map(order_id).transpose()
    }

    /// The part of the list that is asked for.
    ///
    /// # Errors
    /// A number outside the bounds of spec 8.
    pub(crate) fn page(&self) -> Result<Page, Invalid> {
        Ok(Page {
            limit: self.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)?,
            offset: self.number("offset", 0, 0, OFFSET_MAX)?,
        })
    }

    fn number(&self, name: &'static str, default: u32, min: u32, max: u32) -> Result<u32, Invalid> {
        let Some(text) = self.text(name)? else { return Ok(default) };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|n| digits && (min..=max).contains(n));
        number.ok_or_else(|| {
            Invalid::new(name, format!("must be a whole number from {min} to {max}"))
        })
    }

    /// Checks that `exp` and `sig` are a checkout link for the order that still holds.
    ///
    /// # Errors
    /// [`Refusal::SignatureFailed`], whatever is wrong.
    pub(crate) fn verify_link(
        &self,
        secrets: &[Secret],
        order_id: OrderId,
        now: UnixSeconds,
    ) -> Result<(), Refusal> {
        let text = |name| self.text(name).ok().flatten().ok_or(Refusal::SignatureFailed);
        let expires_at = text("exp")?.parse().map_err(|_| Refusal::SignatureFailed)?;
        let given =
            CheckoutSignature { expires_at: UnixSeconds(expires_at), signature: text("sig")? };
        verify_checkout(secrets, order_id, given, now).map_err(|_| Refusal::SignatureFailed)
    }
}

/// The order that a text names.
///
/// # Errors
/// It is not a UUID.
pub(crate) fn order_id(text: &str) -> Result<OrderId, Invalid> {
    text.parse().map_err(|_| Invalid::new("order_id", "must be a UUID"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::{OrderStatus, sign_checkout};

    #[test]
    fn pages_within_the_bounds_of_spec_8() {
        for (raw, limit, offset) in [
            ("", 20, 0),
            ("limit=1", 1, 0),
            ("limit=200&offset=100000", 200, 100_000),
            ("offset=00&x=y&limit=0020", 20, 0),
        ] {
            assert_eq!(Query::parse(raw).page(), Ok(Page { limit, offset }), "{raw}");
        }
        let limit = "limit: must be a whole number from 1 to 200";
        let offset = "offset: must be a whole number from 0 to 100000";
        for (raw, text) in [
            ("limit=0", limit),
            ("limit=201", limit),
            ("limit=-1", limit),
            ("limit=%2B5", limit),
            ("limit=", limit),
            ("limit=ten", limit),
            ("limit=99999999999999999999", limit),
            ("offset=100001", offset),
            ("offset=1.5", offset),
            ("limit=1&limit=2", "limit: is given twice"),
        ] {
            assert_eq!(Query::parse(raw).page().unwrap_err().to_string(), text, "{raw}");
        }
    }

    #[test]
    fn filters_name_their_field() {
        let query = Query::parse("status=payed&order_id=7&blockchain=");
        assert_eq!(
            query.word::<OrderStatus>("status").unwrap_err().to_string(),
            "status: \"payed\" is not one of pending, paid, expired, cancelled"
        );
        assert_eq!(query.order_id().unwrap_err().to_string(), "order_id: must be a UUID");
        assert_eq!(Query::parse("status=paid").word("status"), Ok(Some(OrderStatus::Paid)));
        assert_eq!(Query::parse("a=b%20c%2B").text("a"), Ok(Some("b c+")));
    }

    #[test]
    fn links_hold_for_their_order_until_their_end() {
        let secrets = [Secret::new("m")];
        let order = OrderId(uuid::Uuid::from_u128(7));
        let signature = sign_checkout(&secrets[0], order, UnixSeconds(100));
        let verify = |raw: &str, order, now| {
            Query::parse(raw).verify_link(&secrets, order, UnixSeconds(now)).is_ok()
        };
        let link = format!("exp=100&sig={signature}");
        assert!(verify(&link, order, 100));
        assert!(!verify(&link, order, 101));
        assert!(!verify(&link, OrderId(uuid::Uuid::from_u128(8)), 100));
        for raw in [
            String::new(),
            "exp=100".to_owned(),
            format!("sig={signature}"),
            format!("exp=101&sig={signature}"),
            format!("exp=x&sig={signature}"),
            format!("{link}&sig={signature}"),
            "exp=100&sig=%00".to_owned(),
        ] {
            assert!(!verify(&raw, order, 100), "{raw}");
        }
    }
}
