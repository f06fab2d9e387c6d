//! FULL_TRANSITIVE: every version of a schema reads what every other one wrote, for ever.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use apache_avro::Schema as Avro;
use apache_avro::schema_compatibility::SchemaCompatibility;
use serde_json::{Value, json};
use tidemark_schemas::SchemaName;

/// Returns the reasons why `new` cannot read data of `old`, or the other way round. Stricter than
/// Avro: type and default of a field stay the same, because clients generate code from them.
fn problems(old: &str, new: &str) -> Vec<String> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (old_json, new_json) = (parse(old), parse(new));
    let mut found = Vec::new();
    let (old_types, new_types) = (named(&old_json), named(&new_json));
    for (name, before) in &old_types {
        match new_types.get(name) {
            Some(after) => compare_records(name, before, after, &mut found),
            None => found.push(format!("{name} is gone or has another name")),
        }
    }
    // A type may be removed together with the optional field that held it.
    found.retain(|problem| {
        let gone = problem.strip_suffix(" is gone or has another name");
        gone.is_none_or(|name| name == root_name(&old_json))
    });
    let avro = |text: &str| Avro::parse_str(text).map_err(|error| error.to_string());
    match (avro(old), avro(new)) {
        (Ok(old), Ok(new)) => {
            for (writer, reader, way) in [(&old, &new, "old bytes"), (&new, &old, "new bytes")] {
                if let Err(error) = SchemaCompatibility::can_read(writer, reader) {
                    found.push(format!("{way} cannot be read: {error}"));
                }
            }
        }
        (Err(error), _) | (_, Err(error)) => found.push(format!("not a schema: {error}")),
    }
    found
}

fn root_name(schema: &Value) -> String {
    schema["name"].as_str().unwrap().to_owned()
}

/// All records in a schema, by name. They share one namespace.
fn named(schema: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut open = vec![schema];
    while let Some(part) = open.pop() {
        match part {
            Value::Array(all) => open.extend(all),
            Value::Object(all) => {
                if part["type"] == "record" {
                    found.insert(root_name(part), part.clone());
                }
                open.extend(all.values());
            }
            _ => {}
        }
    }
    found
}

fn compare_records(name: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    if old["namespace"] != new["namespace"] {
        found.push(format!("{name} has another namespace"));
    }
    let fields = |record: &Value| -> BTreeMap<String, Value> {
        let all = record["fields"].as_array().unwrap().iter();
        all.map(|field| (root_name(field), field.clone())).collect()
    };
    let (old, new) = (fields(old), fields(new));
    for (field, before) in &old {
        match new.get(field) {
            Some(after) => {
                if shape(&before["type"]) != shape(&after["type"]) {
                    found.push(format!("{name}.{field} has another type"));
                }
                if before.get("default") != after.get("default") {
                    found.push(format!("{name}.{field} has another default"));
                }
                if after.get("aliases").is_some() {
                    found.push(format!("{name}.{field} has aliases, which help readers alone"));
                }
            }
            None => needs_default(name, field, before, "removed", found),
        }
    }
    for (field, after) in new.iter().filter(|(field, _)| !old.contains_key(*field)) {
        needs_default(name, field, after, "added", found);
    }
}

/// A field that a version lacks gets its Rust type's default, so only such defaults are allowed.
fn needs_default(name: &str, field: &str, spec: &Value, how: &str, found: &mut Vec<String>) {
    let natural = [json!(null), json!([]), json!(""), json!(0), json!(false)];
    match spec.get("default") {
        None => found.push(format!("{name}.{field} is {how} and has no default")),
        Some(default) if !natural.contains(default) => {
            found.push(format!("{name}.{field} is {how} with a default that is not the empty one"));
        }
        Some(_) => {}
    }
}

/// A type without its changeable parts: records are compared separately.
fn shape(part: &Value) -> Value {
    match part {
        Value::String(name) => name.rsplit('.').next().into(),
        Value::Array(all) => all.iter().map(shape).collect(),
        Value::Object(_) if part["type"] == "record" => part["name"].clone(),
        Value::Object(all) => {
            let kept = all.iter().filter(|(key, _)| *key != "doc");
            let kept = kept.map(|(key, value)| {
                let inner = if *key == "items" { shape(value) } else { value.clone() };
                (key.clone(), inner)
            });
            Value::Object(kept.collect())
        }
        other => other.clone(),
    }
}

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn file_name(name: SchemaName) -> String {
    let mut text = String::new();
    for c in format!("{name:?}").chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// The released texts of a record, in their order, as the files are.
fn released(name: SchemaName) -> Vec<String> {
    let folder = folder("released").join(file_name(name));
    let count = std::fs::read_dir(&folder).unwrap().count();
    let file = |version| folder.join(format!("{version}.avsc"));
    (1..=count).map(|version| std::fs::read_to_string(file(version)).unwrap()).collect()
}

#[test]
fn written_schemas_fit_everything_released() {
    for name in SchemaName::ALL {
        let released = released(name);
        assert!(!released.is_empty(), "{name:?} was released before");
        let written = std::fs::read_to_string(folder("avro").join(file_name(name) + ".avsc"));
        let written = written.unwrap();
        let mut known = released.clone();
        if !known.contains(&written) {
            known.push(written.clone());
        }
        let in_code: Vec<_> = name.schemas().iter().map(|schema| schema.text.to_owned()).collect();
        assert_eq!(in_code, known, "{name:?}: every released file is in schemas/src/schema.rs");
        assert_eq!(name.schema().text, written);
        for old in &released {
            for new in &known {
                assert_eq!(problems(old, new), Vec::<String>::new(), "{name:?}");
            }
        }
    }
}

#[test]
fn amounts_are_one_type_for_ever() {
    for name in SchemaName::ALL {
        let amount =
            "{\"logicalType\":\"decimal\",\"precision\":38,\"scale\":18,\"type\":\"bytes\"}";
        let text = serde_json::from_str::<Value>(name.schema().text).unwrap().to_string();
        assert_eq!(text.matches("\"decimal\"").count(), text.matches(amount).count(), "{name:?}");
        for banned in ["\"double\"", "\"float\"", "\"enum\"", "\"fixed\"", "\"map\""] {
            assert!(!text.contains(banned), "{name:?} uses {banned}");
        }
    }
}

/// Words that this release reads and no code of it writes yet: the release after it may.
const WORDS_READ_ONLY: &[(&str, &str)] = &[];

/// Readable data: the number of versions of each schema, and the words of each field.
fn readable() -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for name in SchemaName::ALL {
        let count = released(name).len().to_string();
        all.insert(file_name(name), vec![count]);
        for (field, words) in name.words() {
            let words = words.iter().map(|word| (*word).to_owned());
            all.entry(format!("{}.{field}", file_name(name))).or_default().extend(words);
        }
    }
    all
}

/// Returns the words and versions that this program writes and a reader of `previous` cannot read.
fn unreadable(
    previous: &BTreeMap<String, Vec<String>>,
    now: &BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    let known = |what: &str, word: &str| {
        previous.get(what).is_some_and(|all| all.iter().any(|known| known == word))
    };
    let words = now.iter().filter(|(what, _)| what.contains('.'));
    let words = words.flat_map(|(what, all)| all.iter().map(move |word| (what, word)));
    let unread = words.filter(|(what, word)| {
        !known(what, word) && !WORDS_READ_ONLY.contains(&(what.as_str(), word.as_str()))
    });
    let mut found: Vec<_> = unread.map(|(what, word)| format!("{what} {word}")).collect();
    for name in SchemaName::ALL {
        let count = previous.get(&file_name(name)).map_or(0, |count| count[0].parse().unwrap());
        if name.schema().version > count {
            found.push(format!("version {} of {}", name.schema().version, file_name(name)));
        }
    }
    found
}

/// Old and new processes run side by side during an update. The file is what the release before this one
/// reads; `cargo xtask release` deletes it, runs this test and commits it.
#[test]
fn written_records_are_readable_by_the_last_release() {
    let path = folder("released").join("readable.txt");
    let now = readable();
    let Ok(text) = std::fs::read_to_string(&path) else {
        let line = |(what, all): (&String, &Vec<String>)| format!("{what}: {}\n", all.join(" "));
        std::fs::write(&path, now.iter().map(line).collect::<String>()).unwrap();
        panic!("wrote {}: commit it with the release", path.display());
    };
    let line = |line: &str| {
        let (what, all) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
        (what.to_owned(), all.split(' ').map(str::to_owned).collect())
    };
    let previous = text.lines().map(line).collect();
    assert_eq!(unreadable(&previous, &now), Vec::<String>::new(), "read it one release earlier");
}

#[test]
fn what_the_release_before_cannot_read_is_reported() {
    let now = readable();
    let mut previous = now.clone();
    previous.get_mut("transfer.reason").unwrap().retain(|word| word != "late");
    previous.insert("order".to_owned(), vec!["0".to_owned()]);
    previous.remove("alert.kind");
    let found = unreadable(&previous, &now);
    for what in ["transfer.reason late", "version 1 of order", "alert.kind stale_transfer"] {
        assert!(found.iter().any(|found| found == what), "{what} is not in {found:?}");
    }
    assert_eq!(found.len(), 2 + now["alert.kind"].len(), "{found:?}");
}

/// Version 1 of a fictitious record, which the tests change.
const FIRST: &str = r#"{
  "type": "record", "name": "Sale", "namespace": "tidemark",
  "fields": [
    { "name": "id", "type": "long" },
    { "name": "note", "type": ["null", "string"], "default": null },
    { "name": "tags", "type": { "type": "array", "items": "string" }, "default": [] },
    { "name": "amount",
      "type": { "type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18 } },
    { "name": "place", "type": {
        "type": "record", "name": "Place", "namespace": "tidemark",
        "fields": [{ "name": "city", "type": "string" }] } },
    { "name": "other_place", "type": ["null", "tidemark.Place"], "default": null }
  ]
}"#;

#[test]
fn compatible_changes_are_allowed() {
    let added = r#"{ "name": "added", "type": ["null", "string"], "default": null },"#;
    let list = r#"{ "name": "l", "type": { "type": "array", "items": "int" }, "default": [] },"#;
    let note = r#"{ "name": "note", "type": ["null", "string"], "default": null },"#;
    let id = r#"{ "name": "id","#;
    for (what, new) in [
        ("nothing", FIRST.to_owned()),
        ("a doc", FIRST.replacen("\"name\": \"Sale\"", "\"name\": \"Sale\", \"doc\": \"x\"", 1)),
        ("an optional field more", FIRST.replacen(id, &format!("{added} {id}"), 1)),
        ("a list more", FIRST.replacen(id, &format!("{list} {id}"), 1)),
        ("an optional field less", FIRST.replace(note, "")),
        (
            "an optional field more in a nested record",
            FIRST.replace("[{ \"name\": \"city\"", &format!("[{added} {{ \"name\": \"city\"")),
        ),
    ] {
        assert_eq!(problems(FIRST, &new), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn incompatible_changes_are_reported() {
    let id = "{ 'name': 'id',";
    for (what, from, to) in [
        ("removed and has no default", "{ 'name': 'id', 'type': 'long' },", ""),
        ("added and has no default", id, "{ 'name': 'n', 'type': 'string' }, { 'name': 'id',"),
        (
            "default that is not the empty one",
            id,
            "{ 'name': 'n', 'type': 'int', 'default': 7 }, { 'name': 'id',",
        ),
        ("Sale.id is removed", id, "{ 'name': 'sale_id',"),
        ("aliases", id, "{ 'aliases': ['sale_id'], 'name': 'id',"),
        ("id has another type", "'type': 'long'", "'type': 'string'"),
        ("id has another type", "'type': 'long'", "'type': 'double'"),
        ("id has another type", "'type': 'long'", "'type': ['null', 'long']"),
        ("note has another type", "['null', 'string']", "['null', 'string', 'int']"),
        ("note has another type", "['null', 'string']", "['null', 'bytes']"),
        ("amount has another type", "'scale': 18", "'scale': 6"),
        ("amount has another type", "'precision': 38", "'precision': 40"),
        ("amount has another type", ", 'logicalType': 'decimal', 'precision': 38, 'scale': 18", ""),
        ("tags has another type", "'items': 'string'", "'items': 'int'"),
        ("tags has another default", "'default': []", "'default': ['x']"),
        ("Place.city is removed", "'name': 'city'", "'name': 'town'"),
        (
            "Place.city has another type",
            "'name': 'city', 'type': 'string'",
            "'name': 'city', 'type': 'long'",
        ),
        ("Sale is gone or has another name", "'name': 'Sale'", "'name': 'Deal'"),
        (
            "another namespace",
            "'name': 'Sale', 'namespace': 'tidemark'",
            "'name': 'Sale', 'namespace': 'shop'",
        ),
        ("not a schema", "'type': 'long'", "'type': 'lang'"),
    ] {
        let [from, to] = [from, to].map(|text| text.replace('\'', "\""));
        assert!(FIRST.contains(&from), "{from}");
        let found = problems(FIRST, &FIRST.replacen(&from, &to, 1));
        assert!(found.iter().any(|problem| problem.contains(what)), "{what}: {found:?}");
    }
}
