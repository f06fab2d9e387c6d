//! Every row of the interface has a test, and every gap in it a decision: `docs/internals/interface-tests.md` names
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use super::{assert_none, cells, is_test_of, numbered, read, rows};

/// Section and name of a row, or of a sentence that leaves something open.
type RowName = (String, String);

/// Rows of the interface, in their order.
#[derive(Default)]
struct Interface {
    rows: Vec<RowName>,
    not_shown: Vec<RowName>,
    section: String,
    /// Endpoint of the current heading.
    endpoint: Option<String>,
    /// The first line of the present table.
    head: Option<Vec<String>>,
}

impl Interface {
    fn read(text: &str) -> Self {
        let mut read = Self::default();
        let numbers = numbered(text);
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("#### ") {
                read.endpoint = Some(title.to_owned());
                read.add(title.to_owned());
            } else if line.starts_with("##") {
                let title = line.trim_start_matches('#').trim_start();
                let number = title.split(' ').next().unwrap_or_default().trim_end_matches('.');
                assert!(numbers.contains(number), "{line}");
                read.end_section(number);
            } else if let Some(cells) = cells(line) {
                read.line_of_table(&cells);
            } else {
                read.head = None;
                read.line_of_text(line);
            }
        }
        read.end_section("");
        read
    }

    /// Adds a section without rows as one row, unless it has subsections or is the introduction.
    fn end_section(&mut self, next: &str) {
        let section = self.section.clone();
        let has_rows = self.rows.iter().any(|(of, _)| *of == section);
        let has_sections = next.starts_with(&format!("{section}."));
        if !has_rows && !has_sections && !["", "1"].contains(&section.as_str()) {
            self.add(section);
        }
        next.clone_into(&mut self.section);
        (self.endpoint, self.head) = (None, None);
    }

    fn add(&mut self, name: String) {
        self.rows.push((self.section.clone(), name));
    }

    fn line_of_table(&mut self, cells: &[&str]) {
        let Some(head) = self.head.clone() else {
            self.head = Some(cells.iter().map(|cell| (*cell).to_owned()).collect());
            return;
        };
        if cells[0].starts_with("---") {
            return;
        }
        let name = match (head[0].as_str(), cells[0]) {
            ("Status", status) => format!("{status}: {}", cells[1]),
            (kind, number) if number.bytes().all(|b| b.is_ascii_digit()) => {
                format!("{kind} {number}")
            }
            (_, name) => name.to_owned(),
        };
        self.add(self.endpoint.iter().map(|of| format!("{of}: ")).collect::<String>() + &name);
        cells.iter().for_each(|cell| self.sentence(cell));
    }

    fn line_of_text(&mut self, line: &str) {
        let number = line.split('.').next().unwrap_or_default();
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        if is_number && self.endpoint.is_none() {
            self.add(format!("{}.{number}", self.section));
        }
        line.split(". ").flat_map(|s| s.split("; ")).for_each(|sentence| self.sentence(sentence));
    }

    fn sentence(&mut self, text: &str) {
        let is_open = text.contains("not shown") || text.contains("not stated");
        if is_open && !self.section.is_empty() {
            let place = self.endpoint.as_ref().map(|of| format!("{} {of}", self.section));
            let text = text.trim_end_matches('.').to_owned();
            self.not_shown.push((place.unwrap_or_else(|| self.section.clone()), text));
        }
    }
}

/// The test of a row, and the decision about a row that is not taken literally.
struct Test {
    name: String,
    file: String,
    read_by: Option<String>,
}

/// Claims of `docs/internals/interface-tests.md` about each row.
#[derive(Default)]
struct Claims {
    tests: BTreeMap<RowName, Test>,
    decisions: BTreeMap<RowName, String>,
}

fn claims(text: &str) -> Claims {
    let mut claims = Claims::default();
    for part in text.split("\n## ").skip(1) {
        let title = part.lines().next().unwrap_or_default();
        let section = title.split(' ').next().unwrap_or_default().to_owned();
        for row in rows(part).filter(|row| row.starts_with("| `")) {
            let [first, second, third] = cells(row).unwrap()[..] else { panic!("{row}") };
            let (first, third) = (first.to_owned(), third.to_owned());
            let is_new = if title == "Not shown" {
                claims.decisions.insert((first, second.to_owned()), third).is_none()
            } else {
                let (file, read_by) = match third.split_once("`, by ") {
                    Some((file, decision)) => (file.to_owned(), Some(decision.to_owned())),
                    None => (third, None),
                };
                let test = Test { name: second.to_owned(), file, read_by };
                claims.tests.insert((section.clone(), first), test).is_none()
            };
            assert!(is_new, "docs/internals/interface-tests.md has this row twice: {row}");
        }
    }
    claims
}

/// Text that a test about a row must contain: the field, the parameter or the body of the error.
/// Rows that are described in words have none.
fn word(row: &RowName) -> Option<&str> {
    let last = row.1.rsplit(": ").next()?;
    let is_name = last.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    (is_name || row.0.starts_with('7')).then_some(last)
}

/// The text of a function.
fn body<'a>(text: &'a str, name: &str) -> &'a str {
    let start = text.find(&format!("fn {name}(")).unwrap_or(text.len());
    let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let indent: String = text[line..].chars().take_while(|c| *c == ' ').collect();
    let end = text[start..].find(&format!("\n{indent}}}")).map_or(text.len(), |at| start + at);
    &text[start..end]
}

/// Finds a decision of a cell that is not in force.
fn not_in_force(of: &str, cell: &str) -> Option<String> {
    let index = read(Path::new("docs/decisions/README.md"));
    let mut numbers =
        cell.split(", ").map(|link| link.split(['[', ']']).nth(1).unwrap_or_default());
    let number = numbers.find(|number| {
        let is_of = |line: &str| line.starts_with(&format!("| {number} |"));
        !index.lines().any(|line| is_of(line) && line.contains("| in force"))
    })?;
    Some(format!("{of}: decision {number:?} is not in force"))
}

#[test]
fn every_row_of_the_interface_has_its_test() {
    let interface = Interface::read(&read(Path::new("docs/internals/interface.md")));
    let mut claimed = claims(&read(Path::new("docs/internals/interface-tests.md"))).tests;
    assert!(interface.rows.len() > 120, "only {} rows were found", interface.rows.len());
    let mut found = Vec::new();
    for row in &interface.rows {
        let (section, name) = row;
        let Some(Test { name: test, file, read_by }) = claimed.remove(row) else {
            found.push(format!("docs/internals/interface-tests.md: {section} has no row `{name}`"));
            continue;
        };
        let is_about = |word: &str| body(&read(Path::new(&file)), &test).contains(word);
        if !is_test_of(&file, &test) {
            found.push(format!("{section} {name}: {file} has no test {test}"));
        } else if word(row).is_some_and(|word| !is_about(word)) {
            found.push(format!("{section} {name}: {test} is not about it"));
        }
        found.extend(read_by.and_then(|cell| not_in_force(&format!("{section} {name}"), &cell)));
    }
    found.extend(
        claimed.into_keys().map(|(of, name)| format!("the interface has no {of} `{name}`")),
    );
    assert_none(&found);
}

#[test]
fn what_the_interface_does_not_show_is_decided() {
    let interface = Interface::read(&read(Path::new("docs/internals/interface.md")));
    let mut decided = claims(&read(Path::new("docs/internals/interface-tests.md"))).decisions;
    assert!(interface.not_shown.len() >= 18, "{:?}", interface.not_shown);
    let mut found = Vec::new();
    for open in &interface.not_shown {
        let Some(decision) = decided.remove(open) else {
            let (section, text) = open;
            found.push(format!(
                "docs/internals/interface-tests.md: no decision for | `{section}` | {text} |"
            ));
            continue;
        };
        found.extend(not_in_force(&format!("{open:?}"), &decision));
    }
    found.extend(decided.into_keys().map(|open| format!("the interface does show {open:?}")));
    assert_none(&found);
}
