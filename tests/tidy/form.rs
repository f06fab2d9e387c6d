//! Form of files and functions: their length, their order and the names of tests.

use super::tree::{is_test, production_and_tests};
use super::{assert_none, files, read};

const FILE_LINES_MAX: usize = 500;
const TEST_FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const TEST_NAME_MAX: usize = 50;

#[test]
fn every_file_says_what_it_is_and_is_not_too_long() {
    let mut found = Vec::new();
    for path in files("rs") {
        let text = read(&path);
        let first = text.lines().find(|line| !line.starts_with("#![")).unwrap_or_default();
        if !first.starts_with("//!") {
            found.push(format!("{} does not open with //!", path.display()));
        }
        let (lines, max) = if is_test(&path) {
            (text.lines().count(), TEST_FILE_LINES_MAX)
        } else {
            (text.lines().count(), FILE_LINES_MAX)
        };
        if lines > max {
            found.push(format!("{} has {lines} lines: it holds two ideas", path.display()));
        }
    }
    assert_none(&found);
}

/// Clippy counts the lines of functions, but not of `async` ones.
#[test]
fn no_async_function_is_too_long() {
    let mut found = Vec::new();
    let mut checked = 0;
    for path in files("rs") {
        let text = read(&path);
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let code = line.trim_start();
            if !(code.starts_with("async fn ")
                || code.starts_with("pub") && code.contains(" async fn "))
            {
                continue;
            }
            let end = format!("{}}}", " ".repeat(line.len() - code.len()));
            let counts = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
            let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != end);
            let count = body.filter(counts).count();
            checked += 1;
            if count > FUNCTION_LINES_MAX {
                found.push(format!("{}:{}: {count} lines", path.display(), number + 1));
            }
        }
    }
    assert!(checked >= 100, "only {checked} were found");
    assert_none(&found);
}

/// Constants precede the first function, type, trait or `impl`. Tables of a file's own types may follow the types.
#[test]
fn constants_come_before_the_first_item() {
    let words = |line: &str| {
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            if rest.starts_with('(') { rest.split_once(')').unwrap().1 } else { rest }
        });
        line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let plain = [
        "usize", "bool", "&str", "Duration", "u8", "u16", "u32", "u64", "u128", "i16", "i32",
        "i64", "i128",
    ];
    let mut found = Vec::new();
    let mut checked = 0;
    for path in files("rs").into_iter().filter(|path| !is_test(path)) {
        let text = read(&path);
        let mut is_begun = false;
        for (number, line) in production_and_tests(&text).0.lines().enumerate() {
            let words = words(line);
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["const", name, kind, "=", ..]
                    if !line.starts_with(' ') && plain.contains(&kind) =>
                {
                    checked += 1;
                    if is_begun {
                        let name = name.trim_end_matches(':');
                        found.push(format!("{}:{}: {name}", path.display(), number + 1));
                    }
                }
                ["async" | "const" | "unsafe", "fn", ..]
                | ["fn" | "struct" | "enum" | "trait" | "union", ..] => {
                    is_begun |= !line.starts_with(' ');
                }
                [first, ..] => is_begun |= first.starts_with("impl") && !line.starts_with(' '),
                [] => {}
            }
        }
    }
    assert!(checked >= 100, "only {checked} were found");
    assert_none(&found);
}

/// Running one test means typing its name.
#[test]
fn names_of_tests_are_short_enough_to_type() {
    let mut found = Vec::new();
    let mut checked = 0;
    for path in files("rs") {
        let text = read(&path);
        let mut lines = text.lines().map(str::trim_start);
        while let Some(line) = lines.next() {
            if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
                continue;
            }
            let function =
                lines.find_map(|line| line.split_once("fn ")).expect("a test's function");
            let name = function.1.split(['(', '<']).next().unwrap();
            checked += 1;
            if name.len() > TEST_NAME_MAX {
                found.push(format!("{}: {name} has {} characters", path.display(), name.len()));
            }
        }
    }
    assert!(checked >= 1000, "only {checked} were found");
    assert_none(&found);
}
