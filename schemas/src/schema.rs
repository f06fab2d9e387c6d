//! The schemas: one for each type of record, in every version that was released.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The namespace of every type, with the dot that ends it in a full name.
const NAMESPACE: &str = "tidemark.";
/// Attributes that determine a type; the others are for people and other programs.
const ATTRIBUTES: [&str; 10] = [
    "type",
    "name",
    "fields",
    "items",
    "values",
    "symbols",
    "size",
    "logicalType",
    "precision",
    "scale",
];

/// Declares the record types, each with its files: `avro/<name>.avsc` is the text that records are
/// written with, `released/<name>/<version>.avsc` those that were released, in their order. Released
/// ones are never changed and never removed: old records need each.
macro_rules! schemas {
    ($($name:ident = $file:literal released $($version:literal)+,)+) => {
        /// The record types. Each is documented in its schema file, which is its definition.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum SchemaName { $($name,)+ }

        impl SchemaName {
            /// Every record type.
            pub const ALL: [Self; [$($file),+].len()] = [$(Self::$name,)+];

            const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../avro/", $file, ".avsc")),)+
                }
            }

            const fn released(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$(
                        include_str!(concat!("../released/", $file, "/", $version, ".avsc")),
                    )+],)+
                }
            }
        }
    };
}

schemas! {
    ChainRecord = "chain_record" released 1,
    OrderCommand = "order_command" released 1,
    DepositCommand = "deposit_command" released 1,
    Order = "order" released 1,
    Deposit = "deposit" released 1,
    Transfer = "transfer" released 1,
    MatchingEntry = "matching_entry" released 1,
    OrdersEntry = "orders_entry" released 1,
    ProcessorStep = "processor_step" released 1,
    Delivery = "delivery" released 1,
    Attempt = "attempt" released 1,
    WebhookEntry = "webhook_entry" released 1,
    ChainProgress = "chain_progress" released 1,
    Alert = "alert" released 1,
    AuditEntry = "audit_entry" released 1,
    DeadLetter = "dead_letter" released 1,
}

/// One version of one schema, as published.
#[derive(Debug)]
pub struct Schema {
    pub name: SchemaName,
    /// Counts the versions of this record from 1.
    pub version: u32,
    /// Id in the wire format: the first 31 bits of the SHA-256 of its text, so that the same text has
    /// the same id in every installation.
    pub id: u32,
    /// The text of the `.avsc` file, with its docs and defaults.
    pub text: &'static str,
    pub(crate) parsed: apache_avro::Schema,
    types: Value,
}

/// All versions of one record's schema.
#[derive(Debug)]
pub(crate) struct Versions {
    all: Vec<Schema>,
    /// Index of the version that records are written with.
    written: usize,
}

impl SchemaName {
    /// The schema that records are written with.
    pub fn schema(self) -> &'static Schema {
        self.versions().written()
    }

    /// Every version that can be read, the first one first: the released ones, and the one written if
    /// it is not released yet.
    pub fn schemas(self) -> &'static [Schema] {
        self.versions().all()
    }

    /// The version with the same types as `text`. White space, the order of attributes, docs, defaults and
    /// the two spellings of a full name do not count. Of several the version with the exact text is
    /// preferred, then the newest.
    ///
    /// # Errors
    /// If `text` is not JSON.
    pub fn find(self, text: &str) -> Result<Option<&'static Schema>, serde_json::Error> {
        let types = types(&serde_json::from_str(text)?);
        let exact = self.schemas().iter().find(|schema| schema.text == text);
        let same = || self.schemas().iter().rev().find(|schema| schema.types == types);
        Ok(exact.or_else(same))
    }

    pub(crate) fn versions(self) -> &'static Versions {
        &SCHEMAS[self as usize]
    }
}

impl Versions {
    /// Versions of a record from their texts.
    #[expect(clippy::expect_used, reason = "schema files are compiled in; a test parses each one")]
    pub(crate) fn new(name: SchemaName, released: &[&'static str], written: &'static str) -> Self {
        let mut texts = released.to_vec();
        if !texts.contains(&written) {
            texts.push(written);
        }
        let position = texts.iter().position(|text| *text == written).unwrap_or_default();
        let schema = |(version, text): (u32, &'static str)| {
            let parsed = apache_avro::Schema::parse_str(text).expect("a schema file parses");
            let types = types(&serde_json::from_str(text).expect("a schema file is JSON"));
            Schema { name, version, id: id_of(text), text, parsed, types }
        };
        Self { all: (1..).zip(texts).map(schema).collect(), written: position }
    }

    pub(crate) fn written(&self) -> &Schema {
        &self.all[self.written]
    }

    pub(crate) fn all(&self) -> &[Schema] {
        &self.all
    }
}

static SCHEMAS: LazyLock<Vec<Versions>> = LazyLock::new(|| {
    SchemaName::ALL.iter().map(|name| Versions::new(*name, name.released(), name.text())).collect()
});

fn id_of(text: &str) -> u32 {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(text.as_bytes()));
    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff
}

/// Types of a schema, for comparison alone: without docs, defaults, attributes of other programs,
/// and the namespace that all types here share.
fn types(schema: &Value) -> Value {
    match schema {
        Value::Object(all) => {
            let of_types = |(key, _): &(&String, &Value)| ATTRIBUTES.contains(&key.as_str());
            let kept = all.iter().filter(of_types);
            let kept: Map<_, _> = kept.map(|(key, value)| (key.clone(), types(value))).collect();
            // `{"type": "string"}` is another way to write `"string"`.
            let is_plain = kept.len() == 1;
            kept.get("type").filter(|_| is_plain).cloned().unwrap_or(Value::Object(kept))
        }
        Value::Array(all) => all.iter().map(types).collect(),
        Value::String(name) => name.strip_prefix(NAMESPACE).unwrap_or(name).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => schema.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_follow_from_the_text() {
        let all = || SchemaName::ALL.iter().flat_map(|name| name.schemas());
        let mut ids: Vec<_> = all().map(|schema| schema.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all().count());
        for name in SchemaName::ALL {
            assert_eq!(name.schema().name, name);
            for (version, schema) in (1..).zip(name.schemas()) {
                assert_eq!((schema.name, schema.version), (name, version));
                assert_eq!(schema.id, id_of(schema.text));
            }
        }
        // The beginning of `printf tidemark | sha256sum`. If ids change, no record on any log can be read.
        assert_eq!(id_of("tidemark"), 0xeebe_3805 & 0x7fff_ffff);
    }

    #[test]
    fn a_schema_is_found_by_its_meaning() {
        let schema = SchemaName::Order.schema();
        let compact = serde_json::from_str::<Value>(schema.text).unwrap().to_string();
        let found = |text: &str| SchemaName::Order.find(text).unwrap().map(|schema| schema.id);
        assert_ne!(compact, schema.text);
        assert_eq!(found(&compact), Some(schema.id));
        let java =
            compact.replace("\"string\"", "{\"type\":\"string\",\"avro.java.string\":\"String\"}");
        assert_ne!(compact, java);
        assert_eq!(found(&java), Some(schema.id));
        let without_inner_namespaces = schema
            .text
            .replace("\"namespace\": \"tidemark\",", "")
            .replacen('{', "{\"namespace\": \"tidemark\",", 1);
        assert_eq!(found(&without_inner_namespaces), Some(schema.id));
        assert_eq!(found(SchemaName::Deposit.schema().text), None);
        assert_eq!(found(&schema.text.replace("merchant_order_id", "shop_order_id")), None);
        for (was, is) in [("[\"null\",", "["), ("\"precision\":38", "\"precision\":37")] {
            assert!(compact.contains(was), "{was}");
            assert_eq!(found(&compact.replacen(was, is, 1)), None, "{was}");
        }
        assert_eq!((found("{}"), found("7")), (None, None));
        assert!(SchemaName::Order.find("{").is_err());
    }
}
