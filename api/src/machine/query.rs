//! Query strings (spec 4.2, 8): paging, filters and time ranges.

use std::fmt::Display;
use std::str::FromStr;

use schemas::UnixSeconds;
use store::{Cursor, Page, Within};

use crate::error::Invalid;

// Spec 8.
pub(crate) const LIMIT_DEFAULT: u32 = 20;
pub(crate) const LIMIT_MAX: u32 = 200;
const OFFSET_MAX: u32 = 100_000;

/// Paging parameters of every list.
pub(crate) const PAGING: [&str; 2] = ["limit", "offset"];

/// A query string, decoded. Unknown names are ignored, except by [`Query::only`].
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(raw: &str) -> Self {
        Self(url::form_urlencoded::parse(raw.as_bytes()).into_owned().collect())
    }

    /// The value of a name, if it is given. A name given twice is ambiguous, and an error.
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

    /// Refuses unknown names: a misspelt filter would list everything.
    pub(crate) fn only(&self, known: &[&[&str]]) -> Result<(), Invalid> {
        super::json::known("query", self.0.iter().map(|(name, _)| &**name), &known.concat())
    }

    pub(crate) fn is_csv(&self) -> Result<bool, Invalid> {
        match self.text("format")? {
            None | Some("json") => Ok(false),
            Some("csv") => Ok(true),
            Some(_) => Err(Invalid::new("format", "must be json or csv")),
        }
    }

    /// The requested time range of a list: from a second on, before another, and after the row of a cursor.
    pub(crate) fn within(
        &self,
        from: &'static str,
        before: &'static str,
    ) -> Result<Within, Invalid> {
        within(self.second(from)?, self.second(before)?, self.text("cursor")?)
    }

    fn second(&self, name: &'static str) -> Result<Option<UnixSeconds>, Invalid> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let invalid = || Invalid::new(name, "must be a Unix time in seconds, such as 1790000000");
        number(text).map(UnixSeconds).ok_or_else(invalid).map(Some)
    }

    /// The requested page of a list, within the bounds of spec 8.
    pub(crate) fn page(&self) -> Result<Page, Invalid> {
        Ok(Page {
            limit: self.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)?,
            offset: self.number("offset", 0, 0, OFFSET_MAX)?,
        })
    }

    fn number(&self, name: &'static str, default: u32, min: u32, max: u32) -> Result<u32, Invalid> {
        let Some(text) = self.text(name)? else { return Ok(default) };
        let problem = || format!("must be a whole number from {min} to {max}");
        number(text)
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| Invalid::new(name, problem()))
    }
}

/// A number of digits alone, without a sign.
pub(super) fn number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Time range of a list from a second on, before another, and after the row of a cursor.
pub(crate) fn within(
    from: Option<UnixSeconds>,
    before: Option<UnixSeconds>,
    cursor: Option<&str>,
) -> Result<Within, Invalid> {
    let behind = cursor.map(parse_cursor).transpose()?;
    let before = before.map(|at| Cursor { at, id: 0 });
    Ok(Within { from, before: behind.into_iter().chain(before).min() })
}

/// Text of a cursor for clients.
pub(crate) fn cursor_text(cursor: Cursor) -> String {
    format!("{}-{:x}", cursor.at.0, cursor.id)
}

fn parse_cursor(text: &str) -> Result<Cursor, Invalid> {
    let parse = || {
        let (at, id) = text.split_once('-')?;
        let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (at, id) = (number(at)?, u128::from_str_radix(id, 16).ok()?);
        is_hex.then_some(Cursor { at: UnixSeconds(at), id })
    };
    parse().ok_or_else(|| Invalid::new("cursor", "must be the cursor of an earlier answer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(query: &str) -> Result<Within, String> {
        let query = Query::parse(query);
        query.within("created_from", "created_before").map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn the_earlier_of_a_cursor_and_an_end_counts() {
        let before = |at, id| Some(Cursor { at: UnixSeconds(at), id });
        for (query, from, expected) in [
            ("", None, None),
            ("created_from=5", Some(5), None),
            ("created_before=9", None, before(9, 0)),
            ("created_before=9&cursor=8-ff", None, before(8, 255)),
            ("created_before=8&cursor=9-1", None, before(8, 0)),
            ("created_before=9&cursor=9-1&created_from=0", Some(0), before(9, 0)),
        ] {
            let from = from.map(UnixSeconds);
            assert_eq!(part(query), Ok(Within { from, before: expected }), "{query}");
        }
        let position = Cursor { at: UnixSeconds(1_790_000_000), id: u128::MAX };
        assert_eq!(parse_cursor(&cursor_text(position)).ok(), Some(position));
    }

    #[test]
    fn what_is_no_time_or_position_is_refused() {
        for time in ["", "-1", "+1", "1.5", "now", "99999999999999999999"] {
            for name in ["created_from", "created_before"] {
                let text = part(&format!("{name}={}", time.replace('+', "%2B"))).unwrap_err();
                assert!(text.starts_with(&format!("{name}: must be a Unix time")), "{text}");
            }
        }
        for cursor in ["", "-", "1", "1-", "-1-1", "1-g", "1-+1", "x-1", &"1-1".repeat(50)] {
            let text = part(&format!("cursor={}", cursor.replace('+', "%2B"))).unwrap_err();
            assert_eq!(text, "cursor: must be the cursor of an earlier answer", "{cursor}");
        }
        assert_eq!(part("cursor=1-1&cursor=1-1").unwrap_err(), "cursor: is given twice");
    }

    #[test]
    fn unknown_names_are_all_named() {
        let only = |query, known: &[&[&str]]| {
            Query::parse(query).only(known).map_err(|invalid| invalid.to_string())
        };
        assert_eq!(only("limit=1&status=x", &[&PAGING, &["status"]]), Ok(()));
        assert_eq!(only("", &[]), Ok(()));
        let text = only("state=x&Limit=2&limit=3", &[&PAGING, &["status"]]).unwrap_err();
        assert_eq!(text, r#"query: "state", "Limit" is not one of limit, offset, status"#);
        let text = only("x%0A=1", &[]).unwrap_err();
        assert_eq!(text, r#"query: "x\n" is not known here, nothing is"#);
    }
}
