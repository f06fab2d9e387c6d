//! Coverage of the limits that production code promises: each variant of a public error, and each limit, is named in a
//! test, or in `unnamed.txt` with a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::tree::{is_test, production_and_tests, tests_of};
use super::{assert_none, files, read};

/// Suffixes of the names of limits. Timeouts and buffer sizes do not count: they do not change results.
const LIMITS: [&str; 5] = ["MAX", "MIN", "LIMIT", "DELAY", "SECONDS"];
/// Folders without production code.
const OTHERS: [&str; 3] = ["devnet", "xtask", "examples"];
const LIST: &str = "tests/tidy/unnamed.txt";

/// A variant or a limit: its file and its name.
type Item = (PathBuf, String);

/// The variants of public error enums, without those that only wrap another error.
fn variants(code: &str) -> Vec<String> {
    let (mut found, mut derives, mut name, mut above) = (Vec::new(), false, None, "");
    for line in code.lines() {
        if line.starts_with("#[derive(") {
            derives = line.contains("Error");
        } else if let Some(rest) = line.strip_prefix("pub enum ") {
            name = rest.split([' ', '<']).next().filter(|_| derives);
        } else if line.starts_with('}') {
            (derives, name) = (false, None);
        } else if let Some(name) = name
            && let Some(rest) = line.strip_prefix("    ")
            && rest.starts_with(|c: char| c.is_ascii_uppercase())
        {
            if above.contains("transparent") || rest.contains("#[from]") {
                continue;
            }
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            found.push(format!("{name}::{}", &rest[..end]));
        }
        above = line;
    }
    found
}

fn limits(code: &str) -> Vec<String> {
    let constant = |line: &str| {
        let line = line.trim_start();
        let item = line.strip_prefix("pub").map_or(line, |rest| {
            rest.strip_prefix('(').map_or(rest, |rest| rest.split_once(')').map_or("", |(_, r)| r))
        });
        let name = item.trim_start().strip_prefix("const ")?.split_once(": ")?.0;
        let end = name.rsplit('_').next()?;
        LIMITS.contains(&end).then(|| name.to_owned())
    };
    code.lines().filter_map(constant).collect()
}

fn items() -> BTreeSet<Item> {
    let is_production =
        |path: &PathBuf| !is_test(path) && !OTHERS.iter().any(|folder| path.starts_with(folder));
    let mut found = BTreeSet::new();
    for path in files("rs").into_iter().filter(is_production) {
        let text = read(&path);
        let code = production_and_tests(&text).0;
        let names = variants(code).into_iter().chain(limits(code));
        found.extend(names.map(|name| (path.clone(), name)));
    }
    found
}

/// `true` if a text names an item as a whole word, and does not define a constant of that name.
fn is_named(name: &str, text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_whole = |(at, _): (usize, &str)| {
        !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word)
    };
    text.match_indices(name).any(is_whole) && !text.contains(&format!("const {name}: "))
}

/// The tests of each crate, and those above all crates.
struct Tests(BTreeMap<PathBuf, String>);

impl Tests {
    fn read() -> Self {
        let of = |path: PathBuf| (path.clone(), tests_of(&path, &read(&path)));
        let is_tidy = |path: &PathBuf| path.starts_with("tests/tidy");
        Self(files("rs").into_iter().filter(|path| !is_tidy(path)).map(of).collect())
    }

    /// `true` if a test names the item. `Error` is ambiguous, so a test of another crate must also name the crate.
    fn name(&self, (path, name): &Item) -> bool {
        let folder = path.components().next().unwrap();
        let crate_name = folder.as_os_str().to_str().unwrap();
        self.0.iter().any(|(test, text)| {
            let is_near = test.starts_with(crate_name) || text.contains(&format!("{crate_name}::"));
            is_near && is_named(name, text)
        })
    }
}

/// The listed items, each below a reason.
fn list(text: &str) -> Result<BTreeSet<Item>, String> {
    let (mut found, mut has_reason) = (BTreeSet::new(), false);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(entry) = line.strip_prefix("  ") else {
            has_reason = line.ends_with(':');
            continue;
        };
        let item = entry.split_once(' ').filter(|_| has_reason);
        let Some((path, name)) = item else { return Err(format!("{LIST}: no entry: {line}")) };
        if !found.insert((PathBuf::from(path), name.to_owned())) {
            return Err(format!("{LIST}: {entry} is there twice"));
        }
    }
    Ok(found)
}

#[test]
fn limits_and_errors_are_named_in_tests() {
    let (tests, items) = (Tests::read(), items());
    assert!(items.len() > 250, "only {} were found", items.len());
    let unnamed: BTreeSet<_> = items.into_iter().filter(|item| !tests.name(item)).collect();
    let listed = list(&read(Path::new(LIST))).unwrap_or_else(|problem| panic!("{problem}"));
    let show = |(path, name): &Item| format!("{} {name}", path.display());
    let lacking = unnamed.difference(&listed);
    let lacking =
        lacking.map(|item| format!("no test names {}: write one, or list it", show(item)));
    let stale = listed.difference(&unnamed);
    let stale = stale.map(|item| format!("{LIST}: {} is named by now, or gone", show(item)));
    assert_none(&lacking.chain(stale).collect::<Vec<_>>());
}

#[test]
fn items_and_their_names_are_recognised() {
    let code = "\
/// Cause.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// One.
    #[error(\"one\")]
    One,
    Two { of: u8 },
    #[error(transparent)]
    Three(Other),
    Four(#[from] Other),
}
#[derive(Debug)]
pub enum Choice {
    First,
}
#[derive(Debug, thiserror::Error)]
pub(crate) enum Inner {
    First,
}
pub(crate) const PAGE_MAX: usize = 1;
pub const WAIT_SECONDS: i64 = 2;
    const MAX: Duration = Duration::ZERO;
const MAXIMUM: usize = 3;
const NAME: &str = \"_MAX\";
";
    assert_eq!(variants(code), ["OpenError::One", "OpenError::Two"]);
    assert_eq!(limits(code), ["PAGE_MAX", "WAIT_SECONDS", "MAX"]);
    for (text, expected) in [
        ("let all = PAGE_MAX + 1;", true),
        ("machine::PAGE_MAX", true),
        ("LONG_PAGE_MAX", false),
        ("PAGE_MAX_BYTES", false),
        ("const PAGE_MAX: usize = 2;\nPAGE_MAX", false),
    ] {
        assert_eq!(is_named("PAGE_MAX", text), expected, "{text}");
    }
    let entry = |text: &str| list(text).map(|found| found.len());
    assert_eq!(entry("# A list.\n\nA reason:\n  a.rs ONE\n  b.rs ONE\n"), Ok(2));
    for wrong in
        ["  a.rs ONE\n", "A reason\n  a.rs ONE\n", "R:\n  a.rs\n", "R:\n  a ONE\n  a ONE\n"]
    {
        assert!(entry(wrong).is_err(), "{wrong}");
    }
}
