//! Reads the JSON of a request field by field, so that every error names its field.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::error::Invalid;

/// Declares the body of a request: its fields, each read by a function of this file.
macro_rules! fields {
    ($(#[$doc:meta])* $body:ident { $($field:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(serde::Deserialize)]
        struct $body {
            $($field: Option<serde_json::Value>,)+
        }

        impl crate::machine::json::Fields for $body {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];
        }
    };
}
pub(crate) use fields;

/// A body whose fields are declared.
pub(crate) trait Fields {
    const NAMES: &'static [&'static str];
}

/// Parses a JSON object. Unknown fields are ignored; null is the same as absent.
pub(crate) fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Invalid> {
    // serde would also read a struct from an array, by position.
    if body.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Err(Invalid::new("body", "must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| Invalid::new("body", error.to_string()))
}

/// [`object`] that refuses unknown fields: for a body whose meaning a misspelt field would change.
pub(crate) fn only<'a, T: Deserialize<'a> + Fields>(body: &'a [u8]) -> Result<T, Invalid> {
    let read = object(body)?;
    known("body", field_names(body)?.iter().map(String::as_str), T::NAMES)?;
    Ok(read)
}

pub(super) fn field_names(body: &[u8]) -> Result<Vec<String>, Invalid> {
    let given: BTreeMap<String, IgnoredAny> = object(body)?;
    Ok(given.into_keys().collect())
}

/// Refuses names that are not among `names`.
pub(super) fn known<'a>(
    place: &'static str,
    given: impl Iterator<Item = &'a str>,
    names: &[&str],
) -> Result<(), Invalid> {
    let unknown = given.filter(|name| !names.contains(name)).map(|name| format!("{name:?}"));
    let unknown = unknown.collect::<Vec<_>>().join(", ");
    if unknown.is_empty() {
        return Ok(());
    }
    let problem = match names {
        [] => format!("{unknown} is not known here, nothing is"),
        names => format!("{unknown} is not one of {}", names.join(", ")),
    };
    Err(Invalid::new(place, problem))
}

type Field<T> = Result<T, Invalid>;

/// A required text. `kind` names what it should contain.
pub(crate) fn text(field: &'static str, kind: &str, value: Option<Value>) -> Field<String> {
    match value {
        None => Err(Invalid::new(field, "is missing")),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Invalid::new(field, format!("must be a {kind}"))),
    }
}

/// A required text, parsed.
pub(crate) fn required<T: FromStr<Err: Display>>(
    field: &'static str,
    value: Option<Value>,
) -> Field<T> {
    parsed(field, &text(field, "string", value)?)
}

/// An optional text, parsed.
pub(crate) fn optional<T: FromStr<Err: Display>>(
    field: &'static str,
    value: Option<Value>,
) -> Field<Option<T>> {
    value.map(|value| required(field, Some(value))).transpose()
}

/// An optional whole number within bounds.
pub(crate) fn integer(
    field: &'static str,
    value: Option<Value>,
    bounds: RangeInclusive<i64>,
) -> Field<Option<i64>> {
    let Some(value) = value else { return Ok(None) };
    let number = value.as_i64().filter(|number| bounds.contains(number));
    let (least, most) = (bounds.start(), bounds.end());
    let problem = match *most {
        i64::MAX => format!("must be a whole number of at least {least}"),
        _ => format!("must be a whole number from {least} to {most}"),
    };
    number.map(Some).ok_or_else(|| Invalid::new(field, problem))
}

pub(crate) fn parsed<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Field<T> {
    text.parse().map_err(|error: T::Err| Invalid::new(field, error.to_string()))
}
