//! Secrets inside a configuration file: everyone who can read the file has them.

use toml::{Table, Value};

/// Minimum length of a part of a URL that counts as a key, in characters.
pub(super) const URL_KEY_CHARS_MIN: usize = 16;

/// Returns `true` if a key names a secret.
fn is_secret(key: &str) -> bool {
    ["secret", "password", "api_key", "otlp_header"].iter().any(|kind| key.ends_with(kind))
}

/// Returns `true` for a URL with user information, or with a part that may be a provider's API key.
fn is_secret_url(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let (authority, path) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
    let is_key = |part: &str| {
        part.len() >= URL_KEY_CHARS_MIN
            && part.chars().any(|c| c.is_ascii_digit())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    authority.contains('@') || path.split(['/', '?', '&', '=']).any(is_key)
}

/// Returns `true` if an alert sink is configured here: with its URL, headers or body anyone can
/// send messages to it.
fn has_sink(alerts: &Table) -> bool {
    let sinks = alerts.get("sinks").and_then(Value::as_array);
    let mut sinks = sinks.into_iter().flatten().filter_map(Value::as_table);
    sinks.any(|sink| ["url", "headers", "body"].iter().any(|key| sink.contains_key(*key)))
}

/// Returns `true` if a section or one inside it has a secret itself, not the name of its file.
pub(super) fn has_secret(table: &Table) -> bool {
    table.iter().any(|(key, value)| match value {
        Value::String(text) => is_secret(key) && !text.is_empty() || is_secret_url(text),
        Value::Table(inner) => {
            let is_of_alerts = key == "alerts";
            is_of_alerts && has_sink(inner) || has_secret(inner)
        }
        Value::Array(list) => list.iter().any(|value| {
            value.as_str().is_some_and(is_secret_url) || value.as_table().is_some_and(has_secret)
        }),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => false,
    })
}
