//! Texts use the field's terms, each with one meaning.

use std::collections::BTreeSet;
use std::path::Path;

use super::{assert_none, cells, files, hits, read, root, rows};

/// The page is read in terminals, too. Rows of tables are not wrapped.
#[test]
fn architecture_is_wrapped() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('|'));
    let long = lines.filter(|(_, line)| line.chars().count() > 100);
    let long = long.map(|(number, line)| format!("ARCHITECTURE.md:{}: {line}", number + 1));
    assert_none(&long.collect::<Vec<_>>());
}

#[test]
fn glossary_defines_each_word_once_with_an_owner() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let section = text.split("\n## ").find(|part| part.starts_with("Glossary\n")).unwrap();
    let mut words = BTreeSet::new();
    for row in rows(section).skip(1) {
        let [word, _, owner] = cells(row).unwrap()[..] else { panic!("{row}") };
        assert!(words.insert(word), "{word} is defined twice");
        let owns = root().join(owner).is_file()
            && read(Path::new(owner)).to_lowercase().contains(word.split(' ').next().unwrap());
        assert!(owns, "{owner} is not the owner of {word}");
    }
    assert!(words.len() >= 10, "only {words:?}");
}

/// Prose of a file, with words in lower case between spaces. Rust code has its comments, its texts
/// and the words of its names as prose, with a bar between two names.
fn prose(path: &Path) -> String {
    #[derive(Clone, Copy, PartialEq)]
    enum Part {
        Code,
        Comment,
        Text,
    }
    let is_code = path.extension().is_some_and(|extension| extension == "rs");
    let mut part = if is_code { Part::Code } else { Part::Comment };
    let (mut kept, mut before) = (String::from(" "), ' ');
    for c in read(path).chars() {
        part = match (part, before, c) {
            (Part::Code, '/', '/') => Part::Comment,
            (Part::Comment, _, '\n') if is_code => Part::Code,
            (Part::Code, before, '"') if before != '\'' => Part::Text,
            (Part::Text, before, '"') if before != '\\' => Part::Code,
            _ => part,
        };
        let in_capitals = before.is_uppercase();
        before = if before == '\\' { ' ' } else { c };
        match c {
            '\n' => kept.push_str(" \n "),
            // `{name}` in a text is code, made a separate word by its brace.
            _ if part != Part::Code && (matches!(c, '_' | '-' | '{') || c.is_alphanumeric()) => {
                kept.extend(c.to_lowercase());
            }
            // A name ends where the next one begins: `a(b)` is two.
            _ if part == Part::Code && !(c == '_' || c.is_alphanumeric()) => kept.push_str(" | "),
            _ if part == Part::Code && c != '_' => {
                if c.is_uppercase() && !in_capitals {
                    kept.push(' ');
                }
                kept.extend(c.to_lowercase());
            }
            _ if !kept.ends_with(' ') => kept.push(' '),
            _ => {}
        }
    }
    kept
}

/// Doc comments open with a noun or a verb.
#[test]
fn doc_comments_do_not_open_with_a_clause() {
    const CLAUSES: [&str; 9] =
        ["What", "How", "Whether", "Where", "When", "Which", "Why", "Who", "That"];
    let mut found = Vec::new();
    for path in files("rs") {
        let text = read(&path);
        let lines: Vec<_> = text.lines().map(str::trim_start).collect();
        for (number, line) in lines.iter().enumerate() {
            let kinds = ["/// ", "//! "];
            let Some(kind) = kinds.into_iter().find(|kind| line.starts_with(kind)) else {
                continue;
            };
            let goes_before = number.checked_sub(1).and_then(|before| lines.get(before));
            let is_first = goes_before.is_none_or(|before| !before.starts_with(kind.trim_end()));
            let word = line[kind.len()..].split([' ', ',', ':']).next().unwrap_or_default();
            if is_first && CLAUSES.contains(&word) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert_none(&found);
}

#[test]
fn words_are_those_of_the_field() {
    let style = Path::new("CONTRIBUTING.md");
    let text = read(style);
    let rows = rows(&text).filter(|row| row.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let banned: Vec<_> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|word| format!(" {word} "))
        .collect();
    assert!(banned.len() >= 20, "{banned:?}");
    let banned: Vec<_> = banned.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    for path in [files("rs"), files("md")].concat() {
        if path != style && path != Path::new("docs/internals/interface.md") {
            found.extend(hits(&path, &prose(&path).replace(" up ", "_up "), &banned));
        }
    }
    assert_none(&found);
}
