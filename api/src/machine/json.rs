//! Reads the JSON of a request field by field, so that every complaint names its field.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

use crate::error::Invalid;

/// The object that a body is. Unknown fields are ignored; null is the same as absent.
pub(crate) fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Invalid> {
    // serde reads a struct from an array too, by position: nobody means that.
    if body.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Err(Invalid::new("body", "must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| Invalid::new("body", error.to_string()))
}

/// A text that must be there. `kind` says what should be in it.
pub(crate) fn text(
    field: &'static str,
    kind: &str,
    value: Option<Value>,
) -> Result<String, Invalid> {
    match value {
        None => Err(Invalid::new(field, "is missing")),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Invalid::new(field, format!("must be a {kind}"))),
    }
}

/// A text that must be there, as what it stands for.
pub(crate) fn required<T>(field: &'static str, value: Option<Value>) -> Result<T, Invalid>
where
    T: FromStr<Err: Display>,
{
    parsed(field, &text(field, "string", value)?)
}

/// A text that may be there, as what it stands for.
pub(crate) fn optional<T>(field: &'static str, value: Option<Value>) -> Result<Option<T>, Invalid>
where
    T: FromStr<Err: Display>,
{
    value.map(|value| required(field, Some(value))).transpose()
}

/// What a text stands for.
pub(crate) fn parsed<T>(field: &'static str, text: &str) -> Result<T, Invalid>
where
    T: FromStr<Err: Display>,
{
    text.parse().map_err(|error: T::Err| Invalid::new(field, error.to_string()))
}
