//! Configuration: one TOML file over compiled-in defaults, with `TIDEMARK__SECTION__KEY` on top.
//!
//! Each crate has the commented defaults of its own sections, and reads them through a [`Reader`] into
//! typed values. Readers collect every problem, so that an operator sees all of them at once.

mod exposed;
mod network;
mod process;
mod reader;
#[cfg(test)]
mod tests;

pub use network::Network;
pub use process::{Connections, Process};
pub use reader::Reader;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use toml::{Table, Value};

use exposed::has_secret;

/// The documented defaults of the process's own sections.
pub const DEFAULTS: &str = include_str!("config/default.toml");
/// Variables with this prefix override keys: `TIDEMARK__ORDERS__TTL=10m`.
const ENV_PREFIX: &str = "TIDEMARK__";
/// All problems of a configuration, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Problems(pub Vec<String>);

/// A configuration being read.
#[derive(Debug)]
pub struct Source {
    /// The sections that were not taken yet.
    root: Reader,
    /// Configuration file that was read, beside the environment.
    file: Option<PathBuf>,
    shared: Rc<Shared>,
}

/// State that a source and all its readers have in common.
#[derive(Debug, Default)]
struct Shared {
    problems: RefCell<Vec<Problem>>,
    /// Whole names of the keys that variables set: their values are texts, read by the type of the key.
    variables: BTreeSet<String>,
    /// Base of relative paths: the folder of the configuration file, or else the working directory.
    folder: PathBuf,
    /// Files that secrets were read from.
    secret_files: RefCell<Vec<PathBuf>>,
}

#[derive(Debug)]
struct Problem {
    /// Whole name of the key, or another subject of the problem.
    key: String,
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The key is not given, or the file that it names has no value.
    Missing,
    Invalid,
}

impl Shared {
    fn problem(&self, key: impl Into<String>, text: impl Into<String>) {
        self.report(key, Kind::Invalid, text);
    }

    fn report(&self, key: impl Into<String>, kind: Kind, text: impl Into<String>) {
        self.problems.borrow_mut().push(Problem { key: key.into(), kind, text: text.into() });
    }

    fn lines(&self) -> Vec<String> {
        let line = |Problem { key, text, .. }: &Problem| format!("{key}: {text}");
        self.problems.borrow().iter().map(line).collect()
    }

    /// The value of a key for a type other than text. The text of a variable, such as `true`, `12` or
    /// `["a"]`, is parsed as TOML.
    fn typed(&self, key: &str, value: Value) -> Value {
        match value.as_str().filter(|_| self.variables.contains(key)) {
            Some(text) => {
                let parsed = format!("v = {text}").parse::<Table>().ok();
                parsed.and_then(|mut table| table.remove("v")).unwrap_or(value)
            }
            None => value,
        }
    }
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
                // The value is not shown: it may be a secret.
                Err(_) => problems.push((name, "is not UTF-8 text".to_owned())),
            }
        }
        let text = file.map_or_else(String::new, |path| {
            std::fs::read_to_string(path).unwrap_or_else(|error| {
                problems.push((path.display().to_string(), error.to_string()));
                String::new()
            })
        });
        let has_secret = text.parse().is_ok_and(|table| has_secret(&table));
        // Fails for an empty path, which cannot be read either.
        let file = file.and_then(|file| std::path::absolute(file).ok());
        let shared = Shared {
            folder: file.as_deref().and_then(Path::parent).map(PathBuf::from).unwrap_or_default(),
            secret_files: RefCell::new(file.iter().filter(|_| has_secret).cloned().collect()),
            ..Shared::default()
        };
        let mut source = Self::read(shared, defaults, &text, variables);
        problems.into_iter().for_each(|(key, text)| source.shared.problem(key, text));
        source.file = file;
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
        self.shared.secret_files.borrow().clone()
    }

    /// Reads `text` over `defaults`, then applies `variables`.
    #[must_use]
    pub fn parse(
        defaults: &str,
        text: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Self::read(Shared::default(), defaults, text, variables)
    }

    fn read(
        mut shared: Shared,
        defaults: &str,
        text: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let table = |what: &str, text: &str| {
            text.parse::<Table>().unwrap_or_else(|error| {
                shared.problem(what, syntax_problem(text, &error));
                Table::new()
            })
        };
        let mut root = table("defaults", defaults);
        merge(&mut root, table("configuration file", text));
        for (name, value) in variables {
            let Some(path) = name.strip_prefix(ENV_PREFIX) else { continue };
            let keys: Vec<_> = path.split("__").map(str::to_lowercase).collect();
            match set(&mut root, &keys, value) {
                Some(key) => drop(shared.variables.insert(key)),
                None => shared.problem(
                    name,
                    "no variable leads into a list or a single value: set all of it, or use the file",
                ),
            }
        }
        let shared = Rc::new(shared);
        let root = Reader { path: String::new(), table: root, shared: shared.clone() };
        Self { root, file: None, shared }
    }

    /// Takes a section; an absent one is empty.
    pub fn section(&mut self, name: &str) -> Reader {
        self.root.section(name)
    }

    /// Takes a list of sections (`[[name]]`).
    pub fn sections(&mut self, name: &str) -> Vec<Reader> {
        self.root.sections(name)
    }

    /// Reports a problem with a key of any section, given by its whole name.
    pub fn problem(&self, key: &str, what: &str) {
        self.shared.problem(key, what);
    }

    /// Returns `true` if a problem with this key, given by its whole name, was reported.
    #[must_use]
    pub fn is_refused(&self, key: &str) -> bool {
        self.shared.problems.borrow().iter().any(|problem| problem.key == key)
    }

    /// Drops the problem that a key is missing: this process does not use it.
    pub fn forgive(&mut self, key: &str) {
        self.forgive_if(|missing| missing == key);
    }

    /// As [`Source::forgive`], for every key of a list of sections.
    pub fn forgive_within(&mut self, list: &str) {
        self.forgive_if(|missing| {
            missing.strip_prefix(list).is_some_and(|key| key.starts_with('['))
        });
    }

    fn forgive_if(&mut self, is_unused: impl Fn(&str) -> bool) {
        let is_needed =
            |problem: &Problem| problem.kind != Kind::Missing || !is_unused(&problem.key);
        self.shared.problems.borrow_mut().retain(is_needed);
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`Problems`] with everything the readers collected, and the sections that none of them read.
    pub fn finish(self) -> Result<(), Problems> {
        self.root.table.keys().for_each(|key| self.shared.problem(key, "unknown section"));
        let problems = self.shared.lines();
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }
}

/// Returns the line number and cause of a TOML error, without the text of the line: it may contain
/// a secret.
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

/// Sets the value of a variable; returns the whole name of its key, or none if a parent is not a section.
fn set(table: &mut Table, keys: &[String], text: String) -> Option<String> {
    let (first, rest) = keys.split_first()?;
    // Names of variables have lost their case, and some keys contain capitals.
    let known = table.keys().find(|key| key.eq_ignore_ascii_case(first));
    let first = known.unwrap_or(first).clone();
    if rest.is_empty() {
        table.insert(first.clone(), Value::String(text));
        return Some(first);
    }
    let inner = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
    Some(format!("{first}.{}", set(inner.as_table_mut()?, rest, text)?))
}
