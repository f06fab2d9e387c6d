//! Test code, by the tree of modules: files in a folder of tests or below `#[cfg(test)] mod name;`, with all their
//! modules, and `mod tests { … }` at the end of another file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use super::{files, read};

/// Folders of tests and their support alone.
const TEST_FOLDERS: [&str; 3] = ["tests", "testkit", "oracle"];

/// `true` if a file is all tests.
pub(super) fn is_test(path: &Path) -> bool {
    static TESTS: OnceLock<BTreeSet<PathBuf>> = OnceLock::new();
    TESTS.get_or_init(find).contains(path)
}

/// The lines of a file before its unit tests, and those from there on.
pub(super) fn production_and_tests(text: &str) -> (&str, &str) {
    text.split_at(text.find("mod tests {").unwrap_or(text.len()))
}

/// The test code of a file, with blank lines for the rest, so that each line keeps its number.
pub(super) fn tests_of(path: &Path, text: &str) -> String {
    if is_test(path) {
        return text.to_owned();
    }
    let (production, tests) = production_and_tests(text);
    "\n".repeat(production.matches('\n').count()) + tests
}

fn find() -> BTreeSet<PathBuf> {
    let sources: BTreeMap<_, _> =
        files("rs").into_iter().map(|path| (path.clone(), modules(&path, &read(&path)))).collect();
    let in_folder = |path: &PathBuf| {
        path.components().any(|part| TEST_FOLDERS.iter().any(|name| part.as_os_str() == *name))
    };
    let mut left: Vec<_> = sources.keys().filter(|path| in_folder(path)).cloned().collect();
    let of_tests = sources.values().flatten().filter(|module| module.is_test);
    left.extend(of_tests.map(|module| module.file.clone()));
    let mut found = BTreeSet::new();
    while let Some(path) = left.pop() {
        if found.insert(path.clone()) {
            let modules = sources.get(&path).into_iter().flatten();
            left.extend(modules.map(|module| module.file.clone()));
        }
    }
    found
}

/// A module with a separate file.
struct Module {
    file: PathBuf,
    is_test: bool,
}

fn modules(path: &Path, text: &str) -> Vec<Module> {
    let folder = path.parent().unwrap();
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let own =
        if ["lib", "main", "mod"].contains(&stem) { folder.into() } else { folder.join(stem) };
    let (mut found, mut attributes) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let given = std::mem::take(&mut attributes);
        let item = line.split_once("mod ").filter(|(before, _)| {
            before.is_empty() || before.starts_with("pub") && before.ends_with(' ')
        });
        let Some(name) = item.and_then(|(_, rest)| rest.strip_suffix(';')) else { continue };
        let at =
            given.iter().find_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        let file = at.map_or_else(|| own.join(format!("{name}.rs")), |at| folder.join(at));
        let is_test = given.iter().any(|line| line.contains("cfg(test)"));
        found.push(Module { file: plain(&file), is_test });
    }
    found
}

/// The path with `..` resolved.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn tests_are_found_by_the_tree_of_modules() {
    for (path, expected) in [
        ("ingest/src/rehearsal.rs", true),
        ("ingest/src/rehearsal/play.rs", true),
        ("ingest/src/simulation/node.rs", true),
        ("ingest/src/sabotage.rs", true),
        ("api/src/commands/tests.rs", true),
        ("webhooks/src/sender/tests/network.rs", true),
        ("testkit/src/wait.rs", true),
        ("tests/tidy/tree.rs", true),
        ("ingest/src/machine.rs", false),
        ("store/src/embedded.rs", false),
        ("devnet/src/lib.rs", false),
    ] {
        assert_eq!(is_test(Path::new(path)), expected, "{path}");
    }
    let all: BTreeSet<_> = files("rs").into_iter().collect();
    let of = |path: &PathBuf| modules(path, &read(path));
    let lost: Vec<_> =
        all.iter().flat_map(of).filter(|module| !all.contains(&module.file)).collect();
    assert!(lost.is_empty(), "{:?}", lost.iter().map(|module| &module.file).collect::<Vec<_>>());
}
