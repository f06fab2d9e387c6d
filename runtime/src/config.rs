//! Configuration: one TOML file over compiled-in defaults, with `TIDEMARK__SECTION__KEY` on top.
//!
//! Each crate has the commented defaults of its own sections, and reads them through a [`Reader`] into
//! ready types. Readers collect every problem, so that an operator sees all of them at once.

mod connections;
mod exposed;
mod network;
mod process;
#[cfg(test)]
mod tests;

pub use connections::Connections;
pub use network::{InvalidNetwork, Network};
pub use process::Process;

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use schemas::Secret;
use toml::{Table, Value};

use exposed::{has_secret, is_secret};

/// The documented defaults of the process's own sections.
pub const DEFAULTS: &str = include_str!("config/default.toml");
/// Variables with this prefix override keys: `TIDEMARK__ORDERS__TTL=10m`.
const ENV_PREFIX: &str = "TIDEMARK__";
/// Marks a key that was read once; no key of a TOML file that we document starts with a space.
const TAKEN: &str = " ";

/// Everything wrong with a configuration, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Problems(pub Vec<String>);

/// A configuration being read.
#[derive(Debug)]
pub struct Source {
    root: Table,
    problems: Rc<RefCell<Vec<String>>>,
    /// Configuration file that was read, beside the environment.
    file: Option<PathBuf>,
    files: Rc<Files>,
}

#[derive(Debug, Default)]
struct Files {
    /// Base of relative paths: the folder of the configuration file, or else the working directory.
    folder: PathBuf,
    /// Those that secrets were read from.
    secret: RefCell<Vec<PathBuf>>,
}

impl Source {
    /// Reads the file, if any, over `defaults`, then applies the process's environment.
    #[must_use]
    pub fn load(defaults: &str, file: Option<&Path>) -> Self {
        let (mut variables, mut problems) = (Vec::new(), Vec::new());
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.into_string().ok().filter(|name| name.starts_with(ENV_PREFIX))
            else {
                continue;
            };
            match value.into_string() {
                Ok(value) => variables.push((name, value)),
                // It may be a secret.
                Err(_) => problems.push(format!("{name}: is not UTF-8 text")),
            }
        }
        let text = file.map_or_else(String::new, |path| {
            std::fs::read_to_string(path).unwrap_or_else(|error| {
                problems.push(format!("{}: {error}", path.display()));
                String::new()
            })
        });
        let has_secret = text.parse().is_ok_and(|table| has_secret(&table));
        let mut source = Self::parse(defaults, &text, variables);
        source.problems.borrow_mut().extend(problems);
        // Fails for an empty path, which cannot be read either.
        source.file = file.and_then(|file| std::path::absolute(file).ok());
        if let Some(file) = &source.file {
            let folder = file.parent().map(PathBuf::from).unwrap_or_default();
            let secret = if has_secret { vec![file.clone()] } else { Vec::new() };
            source.files = Rc::new(Files { folder, secret: RefCell::new(secret) });
        }
        source
    }

    /// The file that was read, if any.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The files that secrets were read from by now: the configuration file, if it has one, and those that it names.
    #[must_use]
    pub fn secret_files(&self) -> Vec<PathBuf> {
        self.files.secret.borrow().clone()
    }

    /// Reads `text` over `defaults`, then applies `variables`.
    #[must_use]
    pub fn parse(
        defaults: &str,
        text: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let problems = Rc::new(RefCell::new(Vec::new()));
        let table = |what: &str, text: &str| {
            text.parse::<Table>().unwrap_or_else(|error| {
                problems.borrow_mut().push(format!("{what}: {}", syntax_problem(text, &error)));
                Table::new()
            })
        };
        let mut root = table("defaults", defaults);
        merge(&mut root, table("configuration file", text));
        for (name, value) in variables {
            if let Some(path) = name.strip_prefix(ENV_PREFIX) {
                let keys: Vec<_> = path.split("__").map(str::to_lowercase).collect();
                if !set(&mut root, &keys, &value) {
                    let what = "no variable leads into a list or a single value: set all of it, or use the file";
                    problems.borrow_mut().push(format!("{name}: {what}"));
                }
            }
        }
        Self { root, problems, file: None, files: Rc::default() }
    }

    /// Takes a section; an absent one is empty.
    pub fn section(&mut self, name: &str) -> Reader {
        let table = match self.root.remove(name) {
            Some(Value::Table(table)) => table,
            None => Table::new(),
            Some(_) => {
                self.problems.borrow_mut().push(format!("{name}: must be a section"));
                Table::new()
            }
        };
        let (problems, files) = (self.problems.clone(), self.files.clone());
        Reader { path: name.to_owned(), table, problems, files }
    }

    /// Takes a list of sections (`[[name]]`).
    pub fn sections(&mut self, name: &str) -> Vec<Reader> {
        readers(name, self.root.remove(name), &self.problems, &self.files)
    }

    /// Reports a problem with a key of any section, given by its whole name.
    pub fn problem(&self, key: &str, what: &str) {
        self.problems.borrow_mut().push(format!("{key}: {what}"));
    }

    /// Drops the problem that a key is missing: this process does not use it.
    pub fn forgive(&mut self, key: &str) {
        let missing = format!("{key}: is missing");
        self.problems.borrow_mut().retain(|line| !line.starts_with(&missing));
    }

    /// The same for every key of a list of sections.
    pub fn forgive_within(&mut self, list: &str) {
        let is_missing = |line: &String| {
            let rest = line.strip_prefix(list).and_then(|rest| rest.split_once(": "));
            rest.is_some_and(|(key, what)| key.starts_with('[') && what.starts_with("is missing"))
        };
        self.problems.borrow_mut().retain(|line| !is_missing(line));
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`Problems`] with everything the readers collected, and the sections that none of them read.
    pub fn finish(self) -> Result<(), Problems> {
        let mut problems = self.problems.take();
        problems.extend(self.root.keys().map(|key| format!("{key}: unknown section")));
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }
}

/// The sections of a list, which is at `path`.
fn readers(
    path: &str,
    list: Option<Value>,
    problems: &Rc<RefCell<Vec<String>>>,
    files: &Rc<Files>,
) -> Vec<Reader> {
    let list = match list {
        Some(Value::Array(list)) => list,
        None => Vec::new(),
        Some(_) => {
            problems.borrow_mut().push(format!("{path}: must be written [[{path}]]"));
            Vec::new()
        }
    };
    let reader = |(position, value)| {
        let path = format!("{path}[{position}]");
        let Value::Table(table) = value else {
            problems.borrow_mut().push(format!("{path}: must be a section"));
            return None;
        };
        Some(Reader { path, table, problems: problems.clone(), files: files.clone() })
    };
    list.into_iter().enumerate().filter_map(reader).collect()
}

/// Returns the line and cause of a TOML error, without the line itself: it may have a secret.
fn syntax_problem(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count().saturating_add(1);
    format!("line {line}: {}", error.message())
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// A variable's text is TOML where it can be (`12`, `true`, `["a"]`), and otherwise a string. A secret is a text also
/// where all of it is digits. False where the keys lead into what is no section.
fn set(table: &mut Table, keys: &[String], text: &str) -> bool {
    let Some((first, rest)) = keys.split_first() else { return false };
    // Variables have no lower case, some keys have an upper one.
    let known = table.keys().find(|key| key.eq_ignore_ascii_case(first));
    let first = known.unwrap_or(first).clone();
    if !rest.is_empty() {
        let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
        return inner.as_table_mut().is_some_and(|inner| set(inner, rest, text));
    }
    let is_secret = is_secret(&first);
    let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    let parsed = parsed.filter(|value| value.is_str() || !is_secret);
    table.insert(first, parsed.unwrap_or_else(|| Value::String(text.to_owned())));
    true
}

/// One section. Take its keys, then [`Reader::finish`] it: what was not taken is unknown.
#[derive(Debug)]
pub struct Reader {
    path: String,
    table: Table,
    problems: Rc<RefCell<Vec<String>>>,
    files: Rc<Files>,
}

impl Reader {
    /// Reports a problem with a key.
    pub fn problem(&self, key: &str, what: &str) {
        self.problems.borrow_mut().push(format!("{}.{key}: {what}", self.path));
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
        let value = self.table.remove(key)?;
        let read = read(value);
        if read.is_none() {
            self.problem(key, &format!("must be {what}"));
        }
        read
    }

    /// A text, or none if the key is absent.
    pub fn optional_text(&mut self, key: &str) -> Option<String> {
        self.take(key, "a text", |value| {
            value.as_integer().map(|n| n.to_string()).or_else(|| value.as_str().map(str::to_owned))
        })
    }

    /// A text that is not empty, or none: a variable cannot take a key away, but it can be empty.
    pub fn given_text(&mut self, key: &str) -> Option<String> {
        self.optional_text(key).filter(|text| !text.is_empty())
    }

    /// A path that is given and not empty, or none.
    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.given_text(key).map(|path| self.located(&path))
    }

    /// Resolves a path: a relative one counts from the configuration file.
    #[must_use]
    pub fn located(&self, path: &str) -> PathBuf {
        self.files.folder.join(path).components().collect()
    }

    /// A text; its absence is a problem.
    pub fn text(&mut self, key: &str) -> String {
        let known = self.table.contains_key(key);
        let text = self.optional_text(key);
        if !known {
            self.problem(key, "is missing");
        }
        let text = text.unwrap_or_default();
        // Kept so that `parsed` can read the same key again.
        self.table.insert(TAKEN.to_owned() + key, Value::String(text.clone()));
        text
    }

    /// A text that is a `T`; its absence is a problem.
    pub fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &str) -> Option<T> {
        let is_given = self.table.contains_key(key);
        let text = match self.table.remove(&(TAKEN.to_owned() + key)) {
            Some(Value::String(text)) => text,
            _ => self.text(key),
        };
        if text.is_empty() {
            if is_given {
                self.problem(key, "must not be empty");
            }
            return None;
        }
        text.parse().map_err(|e: T::Err| self.problem(key, &e.to_string())).ok()
    }

    /// A list of texts, or none if the key is absent.
    pub fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        self.take(key, "a list of texts", |value| {
            if let Some(text) = value.as_str() {
                return Some(text.split(',').map(|part| part.trim().to_owned()).collect());
            }
            value.as_array()?.iter().map(|part| part.as_str().map(str::to_owned)).collect()
        })
    }

    /// A whole number within bounds; its absence is a problem, answered by the lower bound.
    pub fn integer(&mut self, key: &str, bounds: RangeInclusive<u64>) -> u64 {
        if !self.table.contains_key(key) {
            self.problem(key, "is missing");
        }
        self.optional_integer(key, bounds.clone()).unwrap_or(*bounds.start())
    }

    /// A whole number within bounds, or none if the key is absent.
    pub fn optional_integer(&mut self, key: &str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let what = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.take(key, &what, |value| {
            value.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| bounds.contains(n))
        })
    }

    /// A duration such as `"90s"`, `"250ms"`, `"24h"`; its absence is a problem, answered by zero.
    pub fn duration(&mut self, key: &str) -> Duration {
        if !self.table.contains_key(key) {
            self.problem(key, "is missing");
        }
        self.optional_duration(key).unwrap_or_default()
    }

    /// A duration, or none if the key is absent.
    pub fn optional_duration(&mut self, key: &str) -> Option<Duration> {
        self.take(key, "a duration such as \"90s\" or \"24h\"", |v| parse_duration(v.as_str()?))
    }

    /// `true` or `false`; its absence is a problem, answered by `false`.
    pub fn flag(&mut self, key: &str) -> bool {
        if !self.table.contains_key(key) {
            self.problem(key, "is missing");
        }
        self.optional_flag(key).unwrap_or_default()
    }

    /// `true` or `false`, if the key is there.
    pub fn optional_flag(&mut self, key: &str) -> Option<bool> {
        self.take(key, "true or false", |v| v.as_bool())
    }

    /// A secret, from `key` or from the file named by `<key>_file` (its last line end is dropped).
    pub fn secret(&mut self, key: &str) -> Option<Secret> {
        self.secret_text(key).map(Secret::new)
    }

    fn secret_text(&mut self, key: &str) -> Option<String> {
        let inline = self.take(key, "a text", |v| v.as_str().map(str::to_owned));
        let file = self.take(&format!("{key}_file"), "a path", |v| v.as_str().map(str::to_owned));
        let file = file.map(|path| self.located(&path));
        let text = match (inline.filter(|text| !text.is_empty()), file) {
            (Some(_), Some(_)) => {
                self.problem(key, &format!("give either {key} or {key}_file"));
                None
            }
            (Some(text), None) => Some(text),
            (None, Some(path)) => match std::fs::read_to_string(&path) {
                Ok(text) if text.trim().is_empty() => {
                    self.problem(key, &format!("is missing: {} is empty", path.display()));
                    None
                }
                Ok(text) => {
                    self.files.secret.borrow_mut().push(path);
                    Some(text.trim_end_matches(['\r', '\n']).to_owned())
                }
                Err(error) => {
                    self.problem(key, &format!("is missing: {}: {error}", path.display()));
                    None
                }
            },
            (None, None) => None,
        };
        text.filter(|text| !text.is_empty())
    }

    /// A secret that somebody else has too, who gives it in a header or reads it from a file of theirs: white space
    /// around it and control characters get lost there, and nothing would be equal.
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
        let noted = self.problems.borrow().len();
        self.shared_secret(key).unwrap_or_else(|| {
            if self.problems.borrow().len() == noted {
                self.problem(key, &format!("is missing: give {key}, {key}_file, or its variable"));
            }
            Secret::new("")
        })
    }

    /// A section inside this one; an absent one is empty.
    pub fn section(&mut self, key: &str) -> Self {
        let table = self.take(key, "a section", |value| value.try_into().ok());
        self.nested(key, table.unwrap_or_default())
    }

    /// A list of sections inside this one (`[[section.key]]`).
    pub fn sections(&mut self, key: &str) -> Vec<Self> {
        let list = self.table.remove(key);
        readers(&format!("{}.{key}", self.path), list, &self.problems, &self.files)
    }

    /// The value of a key that may have several forms; the caller reports problems.
    pub fn value(&mut self, key: &str) -> Option<Value> {
        self.table.remove(key)
    }

    /// A reader for a table found by [`Reader::value`].
    #[must_use]
    pub fn nested(&self, key: &str, table: Table) -> Self {
        let (problems, files) = (self.problems.clone(), self.files.clone());
        Self { path: format!("{}.{key}", self.path), table, problems, files }
    }

    /// Reports every key that was not taken.
    pub fn finish(self) {
        for key in self.table.keys().filter(|key| !key.starts_with(TAKEN)) {
            self.problem(key, "unknown key");
        }
    }
}

/// Reads `"90s"`: a whole number and ms, s, m, h or d.
fn parse_duration(text: &str) -> Option<Duration> {
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
