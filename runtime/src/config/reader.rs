//! Reads the keys of one section into ready types.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use schemas::Secret;
use toml::{Table, Value};

use super::{Kind, Shared};

/// One section. Take its keys, then [`Reader::finish`] it: keys that were not taken are reported as
/// unknown. A value of a wrong form is reported, and then counts as absent.
#[derive(Debug)]
pub struct Reader {
    pub(super) path: String,
    pub(super) table: Table,
    pub(super) shared: Rc<Shared>,
}

impl Reader {
    /// Reports a problem with a key.
    pub fn problem(&self, key: &str, what: &str) {
        self.shared.problem(self.name(key), what);
    }

    fn missing(&self, key: &str, what: &str) {
        self.shared.report(self.name(key), Kind::Missing, what);
    }

    /// Reports a key that is absent.
    fn require(&self, key: &str) {
        if !self.table.contains_key(key) {
            self.missing(key, "is missing");
        }
    }

    /// The whole name of a key.
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The names of the keys that were not taken yet.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.table.keys().cloned().collect()
    }

    fn take<T>(
        &mut self,
        key: &str,
        what: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let read = read(value);
        if read.is_none() {
            self.problem(key, &format!("must be {what}"));
        }
        read
    }

    /// A text, or a whole number as text; none if the key is absent. The text of a variable is taken verbatim.
    pub fn optional_text(&mut self, key: &str) -> Option<String> {
        let text = match self.table.remove(key)? {
            Value::String(text) => Some(text),
            Value::Integer(number) => Some(number.to_string()),
            Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_) => None,
        };
        if text.is_none() {
            self.problem(key, "must be a text");
        }
        text
    }

    /// A text that is not empty, or none: a variable cannot remove a key, but it can be empty.
    pub fn given_text(&mut self, key: &str) -> Option<String> {
        self.optional_text(key).filter(|text| !text.is_empty())
    }

    /// A path that is given and not empty, or none.
    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.given_text(key).map(|path| self.located(&path))
    }

    /// Resolves a path: a relative one counts from the folder of the configuration file, if there is one.
    #[must_use]
    pub fn located(&self, path: &str) -> PathBuf {
        self.shared.folder.join(path).components().collect()
    }

    /// A text; its absence is a problem.
    pub fn text(&mut self, key: &str) -> String {
        self.required_text(key).unwrap_or_default()
    }

    fn required_text(&mut self, key: &str) -> Option<String> {
        self.require(key);
        self.optional_text(key)
    }

    /// A text that is a `T`; its absence is a problem.
    pub fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &str) -> Option<T> {
        let text = self.required_text(key)?;
        if text.is_empty() {
            self.problem(key, "must not be empty");
            return None;
        }
        self.parse(key, &text)
    }

    /// As [`Reader::parsed`], but none if the text is empty.
    pub fn given<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &str) -> Option<T> {
        let text = self.text(key);
        if text.is_empty() { None } else { self.parse(key, &text) }
    }

    fn parse<T: FromStr<Err: std::fmt::Display>>(&self, key: &str, text: &str) -> Option<T> {
        text.parse().map_err(|error: T::Err| self.problem(key, &error.to_string())).ok()
    }

    /// A list of texts, or the parts of one text between commas; none if the key is absent.
    pub fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        self.take(key, "a list of texts", |value| {
            if let Some(text) = value.as_str() {
                return Some(text.split(',').map(|part| part.trim().to_owned()).collect());
            }
            value.as_array()?.iter().map(|part| part.as_str().map(str::to_owned)).collect()
        })
    }

    /// A whole number within bounds; its absence is a problem, and returns the lower bound.
    pub fn integer(&mut self, key: &str, bounds: RangeInclusive<u64>) -> u64 {
        self.require(key);
        self.optional_integer(key, bounds.clone()).unwrap_or(*bounds.start())
    }

    /// A whole number within bounds, or none if the key is absent.
    pub fn optional_integer(&mut self, key: &str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let what = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.take(key, &what, |value| {
            value.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| bounds.contains(n))
        })
    }

    /// A duration such as `"90s"`, `"250ms"`, `"24h"`; its absence is a problem, and returns zero.
    pub fn duration(&mut self, key: &str) -> Duration {
        self.require(key);
        self.optional_duration(key).unwrap_or_default()
    }

    /// A duration, or none if the key is absent.
    pub fn optional_duration(&mut self, key: &str) -> Option<Duration> {
        self.take(key, "a duration such as \"90s\" or \"24h\"", |v| parse_duration(v.as_str()?))
    }

    /// `true` or `false`; its absence is a problem, and returns `false`.
    pub fn flag(&mut self, key: &str) -> bool {
        self.require(key);
        self.optional_flag(key).unwrap_or_default()
    }

    /// `true` or `false`, if the key is there.
    pub fn optional_flag(&mut self, key: &str) -> Option<bool> {
        self.take(key, "true or false", |v| v.as_bool())
    }

    /// A secret, from `key` or from the file named by `<key>_file` (without the line ends at its
    /// end); none without either.
    pub fn secret(&mut self, key: &str) -> Option<Secret> {
        self.secret_text(key).map(Secret::new)
    }

    fn secret_text(&mut self, key: &str) -> Option<String> {
        let inline = self.optional_text(key);
        let file = self.given_text(&format!("{key}_file"));
        let file = file.map(|path| self.located(&path));
        let text = match (inline.filter(|text| !text.is_empty()), file) {
            (Some(_), Some(_)) => {
                self.problem(key, &format!("give either {key} or {key}_file"));
                None
            }
            (Some(text), None) => Some(text),
            (None, Some(path)) => match std::fs::read_to_string(&path) {
                Ok(text) if text.trim().is_empty() => {
                    self.missing(key, &format!("is missing: {} is empty", path.display()));
                    None
                }
                Ok(text) => {
                    self.shared.secret_files.borrow_mut().push(path);
                    Some(text.trim_end_matches(['\r', '\n']).to_owned())
                }
                Err(error) => {
                    self.missing(key, &format!("is missing: {}: {error}", path.display()));
                    None
                }
            },
            (None, None) => None,
        };
        text.filter(|text| !text.is_empty())
    }

    /// A secret shared with another party. White space around it and control characters are
    /// refused: a header or a file of the other party would lose them, and no comparison would
    /// succeed.
    pub fn shared_secret(&mut self, key: &str) -> Option<Secret> {
        let text = self.secret_text(key)?;
        if text.trim() != text || text.contains(char::is_control) {
            let what = "must not begin or end with white space, nor have a control character";
            self.problem(key, what);
        }
        Some(Secret::new(text))
    }

    /// A shared secret whose absence is a problem.
    pub fn required_secret(&mut self, key: &str) -> Secret {
        let noted = self.shared.problems.borrow().len();
        self.shared_secret(key).unwrap_or_else(|| {
            if self.shared.problems.borrow().len() == noted {
                self.missing(key, &format!("is missing: give {key}, {key}_file, or its variable"));
            }
            Secret::new("")
        })
    }

    /// A section inside this one; an absent one is empty.
    pub fn section(&mut self, key: &str) -> Self {
        let table = self.take(key, "a section", |value| match value {
            Value::Table(table) => Some(table),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => None,
        });
        self.nested(key, table.unwrap_or_default())
    }

    /// A list of sections inside this one (`[[section.key]]`).
    pub fn sections(&mut self, key: &str) -> Vec<Self> {
        let list = match self.value(key) {
            Some(Value::Array(list)) => list,
            None => Vec::new(),
            Some(_) => {
                self.problem(key, &format!("must be written [[{}]]", self.name(key)));
                Vec::new()
            }
        };
        let reader = |(position, value)| {
            let key = format!("{key}[{position}]");
            let Value::Table(table) = value else {
                self.problem(&key, "must be a section");
                return None;
            };
            Some(self.nested(&key, table))
        };
        list.into_iter().enumerate().filter_map(reader).collect()
    }

    /// The value of a key that may have several forms; the caller reports problems.
    pub fn value(&mut self, key: &str) -> Option<Value> {
        let value = self.table.remove(key)?;
        Some(self.shared.typed(&self.name(key), value))
    }

    /// A reader for a table found by [`Reader::value`].
    #[must_use]
    pub fn nested(&self, key: &str, table: Table) -> Self {
        Self { path: self.name(key), table, shared: self.shared.clone() }
    }

    /// Reports every key that was not taken.
    pub fn finish(self) {
        for key in self.table.keys() {
            self.problem(key, "unknown key");
        }
    }
}

/// Reads `"90s"`: a whole number and ms, s, m, h or d.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}
