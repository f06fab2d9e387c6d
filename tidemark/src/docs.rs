//! Documents that are made from the code: `docs/operate/metrics.md` and `docs/operate/configuration.md`.

use std::fmt::Write as _;
use std::path::Path;

use runtime::metrics::Kind;

use crate::metrics::TABLES;
use crate::settings::defaults;

/// Compares a document with the file in `docs/`; if they differ, writes the file and fails.
#[track_caller]
fn assert_fresh(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return;
    }
    std::fs::write(path, text).unwrap();
    panic!("docs/{name} was out of date; this test has written it: commit it");
}

/// The crate in the name of a metric.
fn crate_of(name: &str) -> &str {
    match name.strip_prefix("tidemark_") {
        Some("build_info") => "runtime",
        Some(rest) => rest.split('_').next().unwrap(),
        // Names that every exporter uses, such as `process_*`, have no crate in them.
        None => "runtime",
    }
}

#[test]
fn metrics_are_documented() {
    let mut text =
        "# Metrics\n\nMade from the tables in each crate's `metrics.rs`: do not edit. Served at \
                    `/metrics` of `telemetry.listen`,\nin Prometheus' text format. Histograms are \
                    buckets, which add up over processes.\n"
            .to_owned();
    for table in TABLES {
        let name = crate_of(table[0].name);
        if !text.contains(&format!("\n## {name}\n")) {
            let head = "| name | kind | unit | labels | meaning |\n|---|---|---|---|---|";
            writeln!(text, "\n## {name}\n\n{head}").unwrap();
        }
        for metric in table {
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let (unit, labels) = (metric.unit().unwrap_or_default(), labels.join(", "));
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let meaning = metric.meaning.trim();
            writeln!(text, "| `{}` | {kind} | {unit} | {labels} | {meaning} |", metric.name)
                .unwrap();
        }
    }
    assert_fresh("operate/metrics.md", &text);
}

#[test]
fn metric_names_follow_the_template() {
    let mut names = std::collections::BTreeSet::new();
    for table in TABLES {
        for metric in table {
            let is_ours = metric.name.starts_with("tidemark_");
            assert!(is_ours || metric.name.starts_with("process_"), "{}", metric.name);
            assert_eq!(crate_of(metric.name), crate_of(table[0].name), "{}", metric.name);
            let is_counter = metric.kind == Kind::Counter;
            assert_eq!(metric.name.ends_with("_total"), is_counter, "{}", metric.name);
            assert!(names.insert(metric.name), "{} is declared twice", metric.name);
        }
    }
}

/// Splits a line `key = value # comment` into its parts; `None` for any other line.
fn assignment(line: &str) -> Option<(&str, &str, &str)> {
    let (key, rest) = line.split_once(" = ")?;
    let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let (value, comment) = rest.split_once("  #").unwrap_or((rest, ""));
    key.chars().all(is_key).then_some((key, value.trim(), comment.trim_start_matches('#').trim()))
}

/// The defaults as tables: a section's own comment, then a row for each key with the comment before it
/// and the one behind it.
fn configuration() -> String {
    let mut text = "# Configuration\n\nMade from the defaults that `tidemark default-config` prints: do \
                    not edit. Keys without a default are\noptional where nothing else is said; their \
                    values here are examples.\n"
        .to_owned();
    let mut comments: Vec<String> = Vec::new();
    let mut has_table = false;
    for line in defaults().lines() {
        let (is_set, line) = line.strip_prefix("# ").map_or((true, line), |rest| (false, rest));
        if let Some((key, value, comment)) = assignment(line) {
            if !std::mem::replace(&mut has_table, true) {
                text.push_str("\n| key | default | meaning |\n|---|---|---|\n");
            }
            comments.extend(Some(comment.to_owned()).filter(|comment| !comment.is_empty()));
            let (value, meaning) = (value.replace('|', "\\|"), comments.join(" "));
            let default = if is_set { format!("`{value}`") } else { format!("(`{value}`)") };
            writeln!(text, "| `{key}` | {default} | {meaning} |").unwrap();
            comments.clear();
        } else if line.starts_with('[') || line.is_empty() {
            if !line.is_empty() {
                writeln!(text, "\n## {line}").unwrap();
                has_table = false;
            }
            // A comment before a section or an empty line describes a section, not a key.
            if !comments.is_empty() {
                writeln!(text, "\n{}", comments.join("\n")).unwrap();
                comments.clear();
            }
        } else {
            comments.push(line.to_owned());
        }
    }
    text
}

#[test]
fn the_configuration_is_documented() {
    assert_fresh("operate/configuration.md", &configuration());
}
