//! Selection of the records to show.

use std::str::FromStr;

use log::Record;
use schemas::Topic;
use serde_json::Value;

use crate::setup::misuse;

/// A field and the value it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    path: Vec<String>,
    value: String,
}

impl FromStr for Condition {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, value) = text.split_once('=').ok_or("must be FIELD=VALUE")?;
        let path: Vec<_> = path.split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err("must be FIELD=VALUE, with a dot between a field and one inside it");
        }
        Ok(Self { path, value: value.to_owned() })
    }
}

impl Condition {
    fn holds(&self, value: &Value) -> bool {
        holds(value, &self.path, &self.value)
    }
}

/// A list matches if an item does.
fn holds(value: &Value, path: &[String], wanted: &str) -> bool {
    match (value, path) {
        (Value::Array(items), _) => items.iter().any(|item| holds(item, path, wanted)),
        (Value::Object(fields), [first, rest @ ..]) => {
            fields.get(first).is_some_and(|field| holds(field, rest, wanted))
        }
        (Value::String(text), []) => text == wanted,
        (Value::Bool(_) | Value::Number(_) | Value::Null, []) => format!("{value}") == wanted,
        _ => false,
    }
}

/// Everything that a record must fit.
#[derive(Debug)]
pub(crate) struct Filter {
    key: Option<String>,
    conditions: Vec<Condition>,
}

impl Filter {
    /// A filter for a topic's records.
    ///
    /// # Errors
    /// The records have no such field: a misspelt name would match no record.
    pub(super) fn new(
        topic: Topic,
        key: Option<String>,
        conditions: Vec<Condition>,
    ) -> anyhow::Result<Self> {
        let schema: Value = serde_json::from_str(topic.spec().schema.schema().text)?;
        let fields = schema["fields"].as_array().into_iter().flatten();
        let names: Vec<_> = fields.filter_map(|field| field["name"].as_str()).collect();
        for condition in &conditions {
            let first = condition.path.first().map_or("", String::as_str);
            if !names.contains(&first) {
                let names = names.join(", ");
                let problem =
                    format!("tail: records of {topic} have no field {first}; they have {names}");
                return Err(misuse(problem));
            }
        }
        Ok(Self { key, conditions })
    }

    /// `true` if the record is to be shown. `value` is its decoded value; `None` if it cannot be
    /// decoded.
    pub(super) fn fits(&self, record: &Record, value: Option<&Value>) -> bool {
        let key_fits = self.key.as_ref().is_none_or(|key| key.as_bytes() == record.key);
        let fits = |condition: &Condition| value.is_some_and(|value| condition.holds(value));
        key_fits && self.conditions.iter().all(fits)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_reach_into_records_and_lists() {
        let value = json!({
            "kind": "head",
            "block": { "number": 7 },
            "head": null,
            "deposits": [{ "slot": 0, "state": "open" }, { "slot": 1, "state": "closed" }],
        });
        for (text, expected) in [
            ("kind=head", true),
            ("kind=transfer", false),
            ("block.number=7", true),
            ("block.number=8", false),
            ("block=7", false),
            ("head=null", true),
            ("deposits.state=closed", true),
            ("deposits.state=requested", false),
            ("kind.more=head", false),
            ("kind=", false),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.holds(&value), expected, "{text}");
        }
        for text in ["", "kind", "=x", "a..b=x", ".a=x"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_field_that_does_not_exist_is_reported() {
        let wrong = vec!["blockhain=eth".parse().unwrap()];
        let error = Filter::new(Topic::TransfersRaw, None, wrong).unwrap_err().to_string();
        assert!(error.contains("have no field blockhain; they have kind, blockchain"), "{error}");
    }
}
