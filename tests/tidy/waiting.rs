//! Tests wait for conditions, with a deadline: never for time, and never for ever.

use std::path::Path;

use super::tree::tests_of;
use super::{assert_none, files, hits, read};

/// Prefix of a comment directly above that justifies a wait for time.
const NO_CONDITION: &str = "// No condition: ";
/// Prefix of a comment that names another end of a loop.
const NO_DEADLINE: &str = "// No deadline: ";

/// A line with its number in the file, and its code without comments.
struct Line<'a> {
    number: usize,
    text: &'a str,
    code: &'a str,
}

impl Line<'_> {
    fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start().len()
    }

    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let line = |(number, text): (usize, _)| Line { number: number + 1, text, code: code(text) };
    text.lines().enumerate().map(line).collect()
}

fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default().trim()
}

/// `true` if the comment directly above a line begins with the mark.
fn is_explained(above: &[Line<'_>], mark: &str) -> bool {
    let comment = above.iter().rev().take_while(|line| line.text.trim().starts_with("//"));
    comment.last().is_some_and(|line| line.text.trim().starts_with(mark))
}

/// The block of the first line: up to the next line that is not indented deeper.
fn block<'a, 'b>(lines: &'a [Line<'b>]) -> &'a [Line<'b>] {
    let Some((first, rest)) = lines.split_first() else { return lines };
    // The signature of a function may be several lines.
    let ends = |line: &Line<'_>| {
        !line.is_blank() && line.indent() <= first.indent() && !line.code.starts_with(')')
    };
    let end = rest.iter().position(ends).map_or(lines.len(), |at| at + 2);
    &lines[..end]
}

fn joined(lines: &[Line<'_>]) -> String {
    lines.iter().map(|line| line.code).collect::<Vec<_>>().join(" ")
}

/// The statement that begins at the first line.
fn statement(lines: &[Line<'_>]) -> String {
    let first = lines[0].indent();
    let ends = |line: &Line<'_>| line.code.ends_with(';') && line.indent() <= first + 4;
    let end = lines.iter().take(30).position(ends).map_or(1, |at| at + 1);
    joined(&lines[..end])
}

/// `true` if a time-out serves as a pause: it has no other condition, or its result is unused.
fn is_pause(statement: &str) -> bool {
    let is_limited = ["timeout(", "timeout_at("].iter().any(|word| statement.contains(word));
    let is_used = [".unwrap", ".expect(", "?;", ".is_err()", ".is_ok()"];
    let is_used = is_used.iter().any(|word| statement.contains(word));
    let is_ignored = ["drop(", "let _ = ", "_ = "].iter().any(|word| statement.starts_with(word));
    let is_plain = !["let ", "return ", "match ", "if "].iter().any(|w| statement.starts_with(w));
    let is_nothing = statement.contains("pending()") || statement.contains("pending::<");
    is_limited
        && (is_nothing
            || is_ignored && !is_used
            || is_plain && !is_used && statement.ends_with(".ok();"))
}

fn pauses(path: &Path, text: &str) -> Vec<String> {
    let lines = lines(text);
    let found = (0..lines.len()).filter(|at| {
        let begins = ["drop(", "let _ = ", "_ = ", "tokio::time::timeout", "timeout", "let "];
        let code = lines[*at].code;
        let is_statement = begins.iter().any(|word| code.starts_with(word))
            && !(code.starts_with("let ") && code.ends_with('{'))
            || code.contains("recv_timeout(");
        is_statement && is_pause(&statement(&lines[*at..]))
    });
    let found = found.filter(|at| !is_explained(&lines[..*at], NO_CONDITION));
    found.map(|at| format!("{}:{}: time passes", path.display(), lines[at].number)).collect()
}

/// Loops that poll, in functions without a deadline.
fn endless(path: &Path, text: &str) -> Vec<String> {
    let lines = lines(text);
    let is_loop = |line: &Line<'_>| {
        let begins = ["loop {", "while "].iter().any(|word| line.code.starts_with(word));
        begins && line.code.ends_with('{')
    };
    let found = (0..lines.len()).filter(|at| {
        let asks = joined(block(&lines[*at..]));
        let polls = ["yield_now()", ".tick().await"].iter().any(|word| asks.contains(word));
        // A loop that sends in pieces ends when the peer closes.
        is_loop(&lines[*at]) && polls && !asks.contains("write_all(") && !has_deadline(&lines, *at)
    });
    let found = found.filter(|at| !is_explained(&lines[..*at], NO_DEADLINE));
    found.map(|at| format!("{}:{}: a wait for ever", path.display(), lines[at].number)).collect()
}

/// `true` if the function around a line has a deadline.
fn has_deadline(lines: &[Line<'_>], at: usize) -> bool {
    let is_function = |line: &Line<'_>| {
        let begins = ["fn ", "async fn ", "pub"].iter().any(|word| line.code.starts_with(word));
        begins && line.code.contains("fn ")
    };
    let begin = (0..=at).rev().find(|at| is_function(&lines[*at])).unwrap_or(0);
    let function = joined(block(&lines[begin..])).to_lowercase();
    ["deadline", "timeout", "elapsed()", "patience"].iter().any(|word| function.contains(word))
}

#[test]
fn tests_wait_for_conditions_not_for_time() {
    let banned =
        [concat!("thread::", "sleep"), concat!("time::", "sleep("), concat!("park_", "timeout")];
    // May park: for a broker's clock, between retries and checks, and in a worker without an event.
    let allowed = ["on_kafka.rs", "restarts.rs", "scripted.rs", "wait.rs"];
    let mut found = Vec::new();
    for path in files("rs").into_iter().filter(|path| !path.starts_with("tests/tidy")) {
        let tests = tests_of(&path, &read(&path));
        let may_park = allowed.iter().any(|name| path.ends_with(name));
        found.extend(hits(&path, &tests, if may_park { &banned[..2] } else { &banned }));
        found.extend(pauses(&path, &tests));
    }
    assert_none(&found);
}

/// A defect would block the test binary until the runner kills it, losing the results of its tests. Measurements run as
/// long as configured.
#[test]
fn no_test_waits_for_ever() {
    let is_judged = |path: &Path| {
        !["tests/tidy", "tests/benches"].iter().any(|folder| path.starts_with(folder))
    };
    let found = files("rs").into_iter().filter(|path| is_judged(path));
    let found = found.flat_map(|path| endless(&path, &tests_of(&path, &read(&path))));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn pauses_and_endless_loops_are_recognised() {
    let path = Path::new("x.rs");
    for (text, expected) in [
        ("    drop(timeout(MOMENT, answer()).await);", 1),
        (
            "    let _ = tokio::time::timeout(\n        MOMENT,\n        answer(),\n    )\n    .await;",
            1,
        ),
        ("    tokio::time::timeout(MOMENT, answer()).await.ok();", 1),
        ("    drop(lines.recv_timeout(MOMENT));", 1),
        ("    lines.recv_timeout(MOMENT).ok();", 1),
        ("    let ended = timeout(MOMENT, std::future::pending::<()>()).await;", 1),
        (
            "    // No condition: the moment is drawn.\n    drop(timeout(MOMENT, answer()).await);",
            0,
        ),
        ("    drop(timeout(DEADLINE, answer()).await.unwrap());", 0),
        ("    timeout(DEADLINE, answer()).await.expect(\"it ends\");", 0),
        ("    let answer = lines.recv_timeout(DEADLINE).unwrap();", 0),
        ("    let line = lines.recv_timeout(DEADLINE).ok();", 0),
    ] {
        assert_eq!(pauses(path, text).len(), expected, "{text}");
    }
    let function = |body: &str| format!("async fn f() {{\n    {body}\n}}\n");
    for (body, expected) in [
        ("while !done() {\n        yield_now().await;\n    }", 1),
        (
            "loop {\n        ticks.tick().await;\n        if done() {\n            return;\n        }\n    }",
            1,
        ),
        (
            "// No deadline: ends with the other part.\n    while !done() {\n        yield_now().await;\n    }",
            0,
        ),
        (
            "while !done() {\n        assert!(begun.elapsed() < DEADLINE);\n        yield_now().await;\n    }",
            0,
        ),
        ("while let Some(one) = all.recv().await {\n        take(one);\n    }", 0),
        ("while stream.write_all(b\"x\").await.is_ok() {\n        ticks.tick().await;\n    }", 0),
    ] {
        assert_eq!(endless(path, &function(body)).len(), expected, "{body}");
    }
}
