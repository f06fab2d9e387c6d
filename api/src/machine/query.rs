//! Query strings (spec 4.2, 8): paging and filters.

use std::fmt::Display;
use std::str::FromStr;

use store::Page;

use crate::error::Invalid;

// Spec 8.
const LIMIT_DEFAULT: u32 = 20;
const LIMIT_MAX: u32 = 200;
const OFFSET_MAX: u32 = 100_000;

/// A query string, decoded. Unknown names are ignored.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(raw: &str) -> Self {
        Self(url::form_urlencoded::parse(raw.as_bytes()).into_owned().collect())
    }

    /// The value of a name, if it is given.
    ///
    /// # Errors
    /// It is given twice, which is ambiguous.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<&str>, Invalid> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| &**value);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Invalid::new(name, "is given twice")),
            (value, None) => Ok(value),
        }
    }

    /// What the value of a name stands for, if it is given.
    ///
    /// # Errors
    /// It is given twice, or cannot be read.
    pub(crate) fn parsed<T>(&self, name: &'static str) -> Result<Option<T>, Invalid>
    where
        T: FromStr<Err: Display>,
    {
        self.text(name)?.map(|text| super::json::parsed(name, text)).transpose()
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::{OrderId, OrderStatus};

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
            query.parsed::<OrderStatus>("status").unwrap_err().to_string(),
            "status: \"payed\" is not one of pending, paid, expired, cancelled"
        );
        assert_eq!(
            query.parsed::<OrderId>("order_id").unwrap_err().to_string(),
            "order_id: must be a UUID"
        );
        assert_eq!(Query::parse("status=paid").parsed("status"), Ok(Some(OrderStatus::Paid)));
        assert_eq!(Query::parse("a=b%20c%2B").text("a"), Ok(Some("b c+")));
    }
}
