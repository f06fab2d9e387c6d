//! Rules of this code base that a compiler does not check.

#[path = "tidy/form.rs"]
mod form;
#[path = "tidy/interface.rs"]
mod interface;
#[path = "tidy/named.rs"]
mod named;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/waiting.rs"]
mod waiting;
#[path = "tidy/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tree::{is_test, production_and_tests};

/// The crates of the stages, which never use each other.
const STAGES: [&str; 5] = ["ingest", "processor", "projector", "api", "webhooks"];
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder of a package of this workspace, which is its name in code; for any other package, its name.
fn folder(package: &str) -> String {
    package.strip_prefix("tidemark-").unwrap_or(package).to_owned()
}

/// The direct dependencies of each crate of the workspace, without those of its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().filter(|d| d["kind"].is_null()).map(|d| folder(&text(&d["name"]))).collect()
    };
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .filter(|package| package["name"] != "xtask")
        .map(|package| (folder(&text(&package["name"])), of(package)))
        .collect()
}

fn files(extension: &str) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "git ls-files");
    let listed = String::from_utf8(output.stdout).unwrap();
    let found: Vec<_> = listed
        .lines()
        .filter(|path| Path::new(path).extension().is_some_and(|e| e == extension))
        .map(PathBuf::from)
        .filter(|path| root().join(path).exists())
        .collect();
    assert!(!found.is_empty(), "no .{extension} files");
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Lines of a text that have a banned word.
fn hits(path: &Path, text: &str, banned: &[&str]) -> Vec<String> {
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(number, line)| {
        let words = banned.iter().filter(move |word| line.contains(**word));
        words.map(move |word| format!("{}:{}: {}", path.display(), number + 1, word.trim()))
    });
    found.collect()
}

/// Fails with all findings at once, not one line at a time.
fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn crates_depend_in_one_direction() {
    let allowed = |name: &str| -> Vec<&str> {
        match name {
            "schemas" | "sqlite" | "devnet" => vec![],
            "runtime" | "reconcile" => vec!["schemas"],
            "log" | "store" => vec!["schemas", "runtime", "sqlite"],
            "ingest" | "processor" | "webhooks" => vec!["schemas", "runtime", "log"],
            "api" | "projector" => vec!["schemas", "runtime", "log", "store"],
            "tidemark" => {
                let mut all = vec!["schemas", "reconcile", "runtime", "log", "store", "devnet"];
                all.extend(STAGES);
                all
            }
            "testkit" => vec!["schemas", "runtime", "log", "store", "devnet", "xtask"],
            "oracle" => vec!["schemas", "runtime", "log", "store", "processor", "testkit"],
            "tests" => {
                let stages = vec!["projector", "processor", "webhooks"];
                let below = vec!["schemas", "runtime", "log", "store"];
                [below, stages, vec!["devnet", "testkit", "oracle", "xtask"]].concat()
            }
            other => panic!("{other} is not in ARCHITECTURE.md"),
        }
    };
    let all = dependencies();
    for (name, uses) in &all {
        for used in uses.iter().filter(|used| all.contains_key(*used)) {
            assert!(allowed(name).contains(&used.as_str()), "{name} must not use {used}");
        }
    }
}

#[test]
fn each_outside_system_has_one_user() {
    let owners: [(&str, &[&str]); 7] = [
        ("apache-avro", &["schemas"]),
        ("rusqlite", &["sqlite", "log", "store", "testkit"]),
        ("rdkafka", &["log"]),
        ("scylla", &["store", "testkit"]),
        ("alloy-sol-types", &["ingest"]),
        ("alloy-primitives", &["schemas", "ingest", "devnet", "testkit", "tests"]),
        // The executable has it for its commands, the demo and the export of traces; tests call everything.
        ("reqwest", &["ingest", "webhooks", "tidemark", "testkit", "tests"]),
    ];
    for (name, uses) in dependencies() {
        for (external, users) in owners {
            assert!(
                !uses.contains(external) || users.contains(&name.as_str()),
                "{name} must not use {external}: {users:?} do"
            );
        }
    }
}

#[test]
fn machines_are_pure() {
    let banned = [
        "async ",
        ".await",
        "tokio",
        "std::env",
        "std::fs",
        "std::net",
        "std::thread",
        "SystemTime",
        "Instant",
        "reqwest",
        "rusqlite",
        "dyn Clock",
        "rand::",
        "metrics::",
        "tracing::",
    ];
    let machines: Vec<_> = files("rs")
        .into_iter()
        .filter(|path| {
            let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            parts.iter().any(|part| part == "machine" || part == "machine.rs")
        })
        .collect();
    assert!(machines.len() >= 4, "{machines:?}");
    let mut found = Vec::new();
    for path in machines.into_iter().filter(|path| !is_test(path)) {
        let text = read(&path);
        let code = production_and_tests(&text).0.lines();
        let code: Vec<_> = code.map(|line| line.split("//").next().unwrap_or_default()).collect();
        found.extend(hits(&path, &code.join("\n"), &banned));
    }
    assert_none(&found);
}

#[test]
fn nothing_is_left_behind() {
    let mut found = Vec::new();
    // Spelled apart, so that this file does not find itself.
    let banned = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("#[ign", "ore"),
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("db", "g!("),
        concat!("should_", "panic"),
    ];
    for path in files("rs") {
        found.extend(hits(&path, &read(&path), &banned));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        for vague in ["mod", "util", "utils", "common", "helper", "helpers", "misc", "types"] {
            if name == vague {
                found.push(format!("{}: a file's name is a noun of the domain", path.display()));
            }
        }
    }
    assert_none(&found);
}

/// Timing would show how much of a guess is correct: only `Secret::matches` and `hmac` compare.
#[test]
fn secrets_are_compared_in_constant_time() {
    let words = ["expose()", "secret", "signature", "digest"];
    // The signature of an event, which is public.
    let allowed = ["ingest/src/machine/watch.rs"];
    let secret = Path::new("schemas/src/secret.rs");
    let mut found = hits(secret, production_and_tests(&read(secret)).0, &["PartialEq", "Hash"]);
    for path in files("rs").into_iter().filter(|path| !is_test(path)) {
        let text = read(&path);
        found.extend(hits(&path, &text, &["> for Secret {", "PartialEq for Secret"]));
        let is_allowed = allowed.iter().any(|name| path == Path::new(name));
        for line in production_and_tests(&text).0.lines().filter(|_| !is_allowed) {
            let code = line.split("//").next().unwrap_or_default().to_lowercase();
            let compares = [" == ", " != ", ".eq(", ".ne("].iter().any(|sign| code.contains(sign));
            if compares && words.iter().any(|word| code.contains(word)) {
                found.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert_none(&found);
}

/// The one writer escapes what a terminal would obey.
#[test]
fn commands_print_through_one_writer() {
    let banned = ["io::stdout", "io::stderr", "println!(", "print!("];
    let is_command = |path: &PathBuf| {
        path.starts_with("tidemark/src") && !path.ends_with("output.rs") && !is_test(path)
    };
    let found = files("rs").into_iter().filter(is_command);
    let found = found.flat_map(|path| hits(&path, production_and_tests(&read(&path)).0, &banned));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn architecture_and_recipes_name_files_that_exist() {
    let recipes = files("md").into_iter().filter(|path| path.starts_with("docs/internals/recipes"));
    let pages = recipes.chain([PathBuf::from("ARCHITECTURE.md")]);
    let text: String = pages.map(|path| read(&path)).collect();
    let mut checked = 0;
    for part in text.split('`').skip(1).step_by(2) {
        let is_path = part.contains('/') && !part.contains([' ', '<', '*', '{', ':', '(']);
        if is_path && !part.starts_with('/') {
            assert!(root().join(part).exists(), "a page names {part}, which is not there");
            checked += 1;
        }
    }
    assert!(checked >= 20, "only {checked} paths were checked");
}

#[test]
fn every_schema_is_a_file_with_a_golden_example() {
    for name in schemas::SchemaName::ALL {
        let snake = format!("{name:?}").chars().fold(String::new(), |mut text, c| {
            if c.is_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.extend(c.to_lowercase());
            text
        });
        for file in [format!("schemas/avro/{snake}.avsc"), format!("schemas/golden/{snake}.hex")] {
            assert!(root().join(&file).exists(), "{file} is missing");
        }
    }
}

#[test]
fn docs_say_what_a_writer_of_each_topic_can_do() {
    let page = read(Path::new("docs/consume/contract.md"));
    let (_, table) = page.split_once("<!-- writers: begin -->").unwrap();
    let (table, _) = table.split_once("<!-- writers: end -->").unwrap();
    let topics = table.lines().filter_map(|row| row.split('|').nth(1));
    let named: BTreeSet<_> = topics.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let of_delay = |name: &str| ["webhooks.retry.", "webhooks.defer."].map(|p| name.starts_with(p));
    let row = |topic: schemas::Topic| match of_delay(topic.name()) {
        [true, _] => "webhooks.retry.*",
        [_, true] => "webhooks.defer.*",
        _ => topic.name(),
    };
    assert_eq!(named, schemas::Topic::ALL.into_iter().map(row).collect());
}

#[test]
fn every_peer_defect_has_its_test() {
    let text = read(Path::new("docs/internals/peer-defects.md"));
    let mut numbers = BTreeSet::new();
    for row in rows(&text) {
        let [number, _, test, file] = cells(row).unwrap()[..] else { panic!("{row}") };
        let Ok(number) = number.parse::<u32>() else { continue };
        numbers.insert(number);
        assert!(is_test_of(file, test), "{file} has no test {test}");
    }
    assert_eq!(numbers, (1..=10).collect());
}

#[test]
fn the_executable_starts_in_thirty_lines() {
    let lines = read(Path::new("tidemark/src/main.rs")).lines().count();
    assert!(lines <= 30, "tidemark/src/main.rs has {lines} lines");
}

#[test]
fn no_test_is_in_a_doc_comment() {
    // `cargo xtask test` runs test binaries, which lack code blocks. Those in `examples` are not tests.
    let is_block =
        |line: &str| line.trim_start().starts_with("//") && line.contains(concat!("``", "`"));
    let has_block = |path: &PathBuf| read(path).lines().any(is_block);
    let found = files("rs").into_iter().filter(|p| !p.starts_with("examples") && has_block(p));
    assert_none(&found.map(|path| format!("{}: a code block", path.display())).collect::<Vec<_>>());
}

/// Fields and variants are exempt: most of their names say what a comment would repeat. So is an item that only its
/// crate sees: it is not `pub`.
#[test]
fn what_a_crate_offers_is_documented() {
    let kinds = ["fn", "const fn", "async fn", "struct", "enum", "trait", "type", "const"];
    let is_offered = |line: &str| {
        line.strip_prefix("pub ").is_some_and(|rest| {
            kinds.iter().any(|kind| rest.strip_prefix(kind).is_some_and(|r| r.starts_with(' ')))
        })
    };
    let mut missing = Vec::new();
    let mut offered = 0;
    for path in files("rs") {
        let of_tests = ["tests", "testkit", "oracle", "devnet", "xtask", "examples"];
        if is_test(&path) || of_tests.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let text = read(&path);
        let lines: Vec<_> = production_and_tests(&text).0.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_offered(line)) {
            offered += 1;
            // Attributes lie between an item and its doc.
            let ends = |line: &&str| line.is_empty() || line.ends_with(['{', '}', ';']);
            let mut above = lines[..number].iter().rev().take_while(|line| !ends(line));
            let is_doc = |line: &&str| line.starts_with("///") || line.starts_with("$(#[$doc])*");
            let is_documented = above.any(is_doc);
            if !is_documented {
                missing.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(offered > 400, "{offered} items were found: the test reads the wrong files");
    assert_none(&missing);
}

#[test]
fn ci_runs_one_command() {
    let text = read(Path::new(".ci/run"));
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("set -euo pipefail"));
    assert_eq!(lines.next(), Some("cd \"$(dirname \"$0\")/..\""));
    assert_eq!(lines.next(), Some("exec cargo xtask test"));
    assert_eq!(lines.next(), None);
}

/// Text files that may cite the interface or an invariant: code, schemas, scripts and prose.
fn citing_files() -> impl Iterator<Item = PathBuf> {
    let extensions = ["rs", "md", "toml", "avsc", "sql", "cql", "py", "js", "java", "yml"];
    let cites = |path: &PathBuf| {
        !["docs/internals/interface.md", "docs/internals/invariants.md"].contains(&path_text(path))
    };
    extensions.into_iter().flat_map(files).filter(cites)
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Every number that follows `word` in a line: "spec 2.1, 2.2 and 3" has three. Test names write
/// them with underscores.
fn cited(line: &str, word: &str) -> Vec<String> {
    let line = line.to_ascii_lowercase();
    let mut found = Vec::new();
    for (at, _) in line.match_indices(word) {
        if line[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
            continue;
        }
        let mut rest = line[at + word.len()..].trim_start_matches('s').to_owned();
        if rest.starts_with('_') {
            rest = rest.replace('_', ".").replacen('.', " ", 1);
        }
        while let Some(next) = rest.strip_prefix(' ').map(str::to_owned) {
            let end = next.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(next.len());
            let number = next[..end].trim_end_matches('.');
            if !number.starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
            found.push(number.to_owned());
            let after = &next[end..];
            rest = after.strip_prefix(" and").or(after.strip_prefix(',')).unwrap_or("").to_owned();
        }
    }
    found
}

/// The numbers of headings, and of the numbered rows below them: 6.3 and 6.3.1.
fn numbered(text: &str) -> BTreeSet<String> {
    let mut numbers = BTreeSet::new();
    let mut heading = String::new();
    for line in text.lines() {
        let (title, is_heading) =
            (line.trim_start_matches('#').trim_start(), line.starts_with('#'));
        let first = title.split(' ').next().unwrap_or_default();
        let number = first.trim_end_matches('.');
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            continue;
        }
        if is_heading {
            number.clone_into(&mut heading);
            numbers.insert(heading.clone());
        } else if first.ends_with('.') {
            numbers.insert(format!("{heading}.{number}"));
        }
    }
    numbers
}

#[test]
fn citations_resolve() {
    let interface = numbered(&read(Path::new("docs/internals/interface.md")));
    let invariants = numbered(&read(Path::new("docs/internals/invariants.md")));
    assert!(interface.contains("6.3.5") && invariants.contains("10"), "nothing is numbered");
    let (mut found, mut specs) = (Vec::new(), 0);
    for path in citing_files() {
        for (number, line) in read(&path).lines().enumerate() {
            let mut missing = |word: &str, cited: &str| {
                found.push(format!("{}:{}: no {word} {cited}", path.display(), number + 1));
            };
            for cited in cited(line, "spec") {
                specs += 1;
                if !interface.contains(&cited) {
                    missing("spec", &cited);
                }
            }
            for cited in cited(line, "invariant").iter().filter(|c| !invariants.contains(*c)) {
                missing("invariant", cited);
            }
            // The design document is not in the repository: nobody could read it.
            for cited in [cited(line, "design"), cited(line, "design section")].concat() {
                missing("design", &cited);
            }
        }
    }
    assert_none(&found);
    assert!(specs >= 100, "only {specs} citations of the interface were found");
}

/// The texts in a file between a start and the next quote.
fn quoted<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).filter_map(|part| part.split('"').next())
}

#[test]
fn api_docs_name_every_route_and_refusal() {
    let pages = files("md").into_iter().filter(|path| path.starts_with("docs/merchant"));
    let page: String = pages.map(|path| read(&path)).collect();
    let (mut found, mut checked) = (Vec::new(), 0);
    let mut check = |path: &Path, text: &str| {
        checked += 1;
        if !page.contains(text) {
            found.push(format!("{}: docs/merchant does not have {text:?}", path.display()));
        }
    };
    let is_api = |path: &PathBuf| {
        // The console is for people: its pages are not an API.
        let others = ["api/src/routes/registry.rs", "api/src/routes/console.rs"];
        path.starts_with("api/src")
            && others.iter().all(|other| path != Path::new(other))
            && !is_test(path)
    };
    for path in files("rs").into_iter().filter(is_api) {
        let text = read(&path);
        let refusals = text.split_once("enum Refusal").map_or("", |(_, refusals)| refusals);
        let refusals = quoted(refusals, "#[error(\"").filter_map(|text| text.split('{').next());
        quoted(&text, ".route(\"").chain(refusals).for_each(|text| check(&path, text));
    }
    assert_none(&found);
    assert!(checked >= 30, "only {checked} texts were checked");
}

#[test]
fn every_invariant_names_a_test() {
    let text = read(Path::new("docs/internals/invariants.md"));
    let mut found = Vec::new();
    for section in text.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap_or_default();
        let tests: Vec<_> = section.split('`').filter_map(|part| part.split_once("::")).collect();
        if tests.is_empty() {
            found.push(format!("{title}: names no test"));
        }
        for (file, test) in tests {
            if !is_test_of(file, test) {
                found.push(format!("{title}: {file} has no test {test}"));
            }
        }
    }
    assert_none(&found);
}

#[test]
fn every_attack_names_its_tests() {
    let text = read(Path::new("docs/internals/security-tests.md"));
    let rows: Vec<_> = rows(&text).skip(1).collect();
    assert!(rows.len() > 25, "{rows:?}");
    assert_tested(&rows, 1);
}

#[test]
fn every_damage_is_mended_on_both_back_ends() {
    let text = read(Path::new("docs/operate/damages.md"));
    let rows: Vec<_> = rows(&text).skip(1).collect();
    assert!(rows.len() >= 9, "{rows:?}");
    assert_tested(&rows, 2);
}

/// The rows of a page's tables, with their heads.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with("| "))
}

/// The cells of a row, without their quotes.
fn cells(row: &str) -> Option<Vec<&str>> {
    let inner = row.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
}

/// Each row names at least this number of tests, which exist.
fn assert_tested(rows: &[&str], count: usize) {
    let has = |row: &&&str| {
        let names: Vec<_> = row.split('`').filter_map(|part| part.split_once("::")).collect();
        names.len() >= count && names.iter().all(|(file, test)| is_test_of(file, test))
    };
    let missing = rows.iter().filter(|row| !has(row)).map(|row| (*row).to_owned());
    assert_none(&missing.collect::<Vec<_>>());
}

/// `true` if there is this file, and it has this test.
fn is_test_of(file: &str, test: &str) -> bool {
    root().join(file).is_file() && has_test(&read(Path::new(file)), test)
}

/// `true` if a text has a function of this name directly below an attribute that makes it a test.
fn has_test(text: &str, name: &str) -> bool {
    text.split("#[").skip(1).any(|part| {
        let is_test = ["test]", "tokio::test"].iter().any(|start| part.starts_with(start));
        let item = part.split_once('\n').map_or("", |(_, item)| item).trim_start();
        let item = item.strip_prefix("async ").unwrap_or(item);
        is_test && item.starts_with(&format!("fn {name}("))
    })
}
