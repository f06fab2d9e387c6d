//! The documents for readers outside agree with the topic table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidemark_schemas::asyncapi::Installation;
use tidemark_schemas::{
    Cleanup, DeferLevel, KeyKind, Layout, RetryLevel, SchemaName, Stage, Topic,
};

const CONTRACT: &str = "consume/contract.md";
const READING: &str = "consume/reading.md";

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

/// Installation that `tidemark asyncapi` prints without a configuration.
fn by_default() -> Installation {
    Installation {
        layout: Layout { lanes: 1, orders: 4, webhooks: 2 },
        prefix: String::new(),
        replicas: 1,
        brokers: "localhost:9092".to_owned(),
        is_secure: false,
        registry: "http://127.0.0.1:8080/registry".to_owned(),
    }
}

/// Every reference leads to a part, every topic is there, and no schema is left out.
#[test]
fn references_of_the_asyncapi_document_resolve() {
    fn references(part: &Value, found: &mut BTreeSet<String>) {
        match part {
            Value::Object(all) => {
                found.extend(all.get("$ref").and_then(Value::as_str).map(str::to_owned));
                all.values().for_each(|part| references(part, found));
            }
            Value::Array(all) => all.iter().for_each(|part| references(part, found)),
            _ => {}
        }
    }
    let document = Installation { prefix: "shop.".to_owned(), ..by_default() }.asyncapi();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > SchemaName::ALL.len() + Topic::ALL.len(), "{}", found.len());
    for reference in &found {
        let part = document.pointer(reference.trim_start_matches('#'));
        assert!(part.is_some(), "{reference}");
    }
    for topic in Topic::ALL {
        let channel = &document["channels"][topic.name()];
        assert!(channel["bindings"]["kafka"].is_object(), "{topic}");
        assert_eq!(channel["address"], format!("shop.{topic}"));
    }
    for name in SchemaName::ALL {
        let part = format!("#/components/schemas/{name:?}");
        assert!(found.contains(&part), "no message carries {part}");
    }
}

/// One row for each topic, as `docs/consume/contract.md` has it.
fn table() -> String {
    let layout = by_default().layout;
    let mut table = String::from(
        "| topic | record | key | partition | partitions by default | kept | written by |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for is_public in [true, false] {
        for topic in Topic::ALL.into_iter().filter(|topic| topic.guide().is_public == is_public) {
            // One row for all delays.
            let (name, is_further) = match topic {
                Topic::WebhooksRetry(level) => {
                    ("webhooks.retry.1s … .1024s", level != RetryLevel::ALL[0])
                }
                Topic::WebhooksDefer(level) => {
                    ("webhooks.defer.5s, .60s, .900s", level != DeferLevel::First)
                }
                _ => (topic.name(), false),
            };
            if is_further {
                continue;
            }
            let (spec, guide) = (topic.spec(), topic.guide());
            let partition = match spec.key {
                KeyKind::Lane => "lane of the wallet",
                KeyKind::Order | KeyKind::Event => "hash of the key",
                KeyKind::Chain => "index of the chain",
                KeyKind::Single => "0",
            };
            let kept = match spec.cleanup {
                Cleanup::Compact => "the last of each key".to_owned(),
                Cleanup::Delete { hours } => format!("{} days", hours / 24),
            };
            table.push_str(&format!(
                "| `{name}`{} | `{:?}` | {} | {partition} | {} | {kept} | {} |\n",
                if is_public { "" } else { " (internal)" },
                spec.schema,
                guide.key,
                topic.partitions(&layout),
                guide.writers.iter().map(|stage| stage.as_str()).collect::<Vec<_>>().join(", "),
            ));
        }
    }
    table
}

/// The stages with their consumer groups and the prefixes of their transactional ids.
const STAGES: [(&str, &str, &str); 5] = [
    ("ingest", "`ingest`", "`ingest-`"),
    (
        "processor",
        "`processor.matching`, `processor.orders`, `tails`",
        "`processor.matching-`, `processor.orders-`",
    ),
    ("projector", "`projector`", "`projector-`"),
    ("api", "`tails`", ""),
    (
        "webhooks",
        "`webhooks.dispatcher`, `webhooks.deliverer`, `webhooks.alerts`",
        "`webhooks.dispatcher-`, `webhooks.deliverer-`, `webhooks.alerts-`",
    ),
];

/// Rights that each stage needs at a broker, as `docs/consume/contract.md` has it.
fn access() -> String {
    let mut table = String::from(
        "| principal | Read on topics | Write on topics | Read on groups | Write on transactional ids |\n\
         |---|---|---|---|---|\n",
    );
    for (stage, groups, ids) in STAGES {
        let of = |users: fn(Topic) -> &'static [Stage]| {
            let mut names: Vec<_> = Topic::ALL
                .into_iter()
                .filter(|topic| users(*topic).iter().any(|user| user.as_str() == stage))
                .map(|topic| match topic {
                    Topic::WebhooksRetry(_) => "`webhooks.retry.*`".to_owned(),
                    Topic::WebhooksDefer(_) => "`webhooks.defer.*`".to_owned(),
                    _ => format!("`{topic}`"),
                })
                .collect();
            names.dedup();
            names.join(", ")
        };
        let (reads, writes) = (of(|topic| topic.guide().readers), of(|t| t.guide().writers));
        table
            .push_str(&format!("| {stage} | {reads} | {writes} | {groups}, `readers` | {ids} |\n"));
    }
    table
}

#[test]
fn tables_of_topics_and_access_are_fresh() {
    let path = document(CONTRACT);
    for (what, fresh) in [("topics", table()), ("access", access())] {
        let (begin, end) = (format!("<!-- {what}: begin -->\n"), format!("<!-- {what}: end -->"));
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(&begin).unwrap();
        let (found, after) = rest.split_once(&end).unwrap();
        if found != fresh {
            std::fs::write(&path, format!("{before}{begin}{fresh}{end}{after}")).unwrap();
            panic!(
                "the table of {what} in docs/{CONTRACT} was out of date; it was generated again: commit it"
            );
        }
    }
}

/// The fields that the page explains are fields of the record.
#[test]
fn explained_fields_exist() {
    let text = std::fs::read_to_string(document(READING)).unwrap();
    for (name, schema) in [("Transfer", SchemaName::Transfer), ("Order", SchemaName::Order)] {
        let schema: Value = serde_json::from_str(schema.schema().text).unwrap();
        let part = text.split(&format!("<!-- fields of {name}: ")).nth(1).unwrap();
        let cells = part.lines().filter_map(|line| line.split('|').nth(1));
        let mut checked = 0;
        for path in cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
            let mut at = &schema;
            for step in path.split('.') {
                let fields = at["fields"].as_array().unwrap();
                let field = fields.iter().find(|field| field["name"] == step);
                at = &field.unwrap_or_else(|| panic!("{name} has no {path}"))["type"];
            }
            checked += 1;
        }
        assert!(checked >= 10, "only {checked} fields of {name}");
    }
}

#[test]
fn every_topic_is_explained() {
    let text = std::fs::read_to_string(document(CONTRACT)).unwrap();
    for topic in Topic::ALL.into_iter().filter(|topic| topic.guide().is_public) {
        let heading = format!("\n### {topic}\n");
        assert!(text.contains(&heading), "docs/{CONTRACT} has no chapter on {topic}");
    }
}

/// The code that readers copy is the code that the tests run.
#[test]
fn recipes_are_the_code_that_is_tested() {
    let pages = [READING, "consume/ingestor.md"];
    let text: String = pages.map(|page| std::fs::read_to_string(document(page)).unwrap()).concat();
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients");
    for (language, file, comment) in [
        ("python", "python/client.py", "#"),
        ("js", "node/client.js", "//"),
        ("java", "java/Client.java", "//"),
    ] {
        let code = std::fs::read_to_string(clients.join(file)).unwrap();
        for name in ["read", "book", "write"] {
            if name == "book" && language != "python" {
                continue;
            }
            let (begin, end) = (format!("{comment} recipe: {name}\n"), format!("{comment} end\n"));
            let parts: Vec<_> = code
                .split(&begin)
                .skip(1)
                .map(|part| part.split(&end).next().unwrap().trim_matches('\n'))
                .collect();
            assert!(!parts.is_empty(), "{file} has no recipe {name}");
            let recipe = format!("```{language}\n{}\n```\n", parts.join("\n\n"));
            assert!(text.contains(&recipe), "docs/consume has another recipe {name} than {file}");
        }
    }
}
