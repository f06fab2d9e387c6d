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

    /// The value of a name, if it is given. Given twice it is an error, because it is ambiguous.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<&str>, Invalid> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| &**value);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Invalid::new(name, "is given twice")),
            (value, None) => Ok(value),
        }
    }

    /// The value of a name, parsed, if it is given.
    pub(crate) fn parsed<T>(&self, name: &'static str) -> Result<Option<T>, Invalid>
    where
        T: FromStr<Err: Display>,
    {
        self.text(name)?.map(|text| super::json::parsed(name, text)).transpose()
    }

    /// The requested part of a list, within the bounds of spec 8.
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
        let problem = || format!("must be a whole number from {min} to {max}");
        number.ok_or_else(|| Invalid::new(name, problem()))
    }
}
