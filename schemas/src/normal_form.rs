//! One form for all texts that mean the same schema. Strangers send them, so that the work must not grow faster than
//! the text: the library's parser copies a schema each time a name comes again, and tries out defaults.

use std::collections::HashSet;

use serde_json::{Map, Value};

const PRIMITIVES: [&str; 8] =
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];
/// Longest name, with its namespace: each reference gets the whole of it.
const NAME_BYTES_MAX: usize = 256;
/// Attributes of a type beside its names and parts, without docs, defaults and custom ones.
const PLAIN: [&str; 5] = ["symbols", "size", "logicalType", "precision", "scale"];

/// Reason why a text is not an Avro schema.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0:?} is no type, nor the name of one that comes before")]
    UnknownType(String),
    #[error("no {0:?} of the form that Avro has")]
    Attribute(&'static str),
    #[error("{0:?} is defined twice")]
    DefinedTwice(String),
    #[error("a name has more than {NAME_BYTES_MAX} bytes")]
    LongName,
}

/// The schema without docs, defaults and custom attributes, with full names, in one order.
///
/// # Errors
/// If the text is not a schema. Not every rule of Avro is checked: what comes out is only compared.
pub(crate) fn normal_form(text: &str) -> Result<Value, Malformed> {
    Names(HashSet::new()).schema(&serde_json::from_str(text)?, "")
}

/// The full names that were defined so far.
struct Names(HashSet<String>);

impl Names {
    fn schema(&mut self, schema: &Value, namespace: &str) -> Result<Value, Malformed> {
        match schema {
            Value::String(name) if PRIMITIVES.contains(&name.as_str()) => Ok(schema.clone()),
            Value::String(name) => {
                let full = full_name(name, namespace)?;
                let is_known = self.0.contains(&full);
                is_known.then_some(Value::String(full)).ok_or(Malformed::UnknownType(name.clone()))
            }
            Value::Array(union) => {
                union.iter().map(|branch| self.schema(branch, namespace)).collect()
            }
            Value::Object(object) => self.object(object, namespace),
            Value::Null | Value::Bool(_) | Value::Number(_) => Err(Malformed::Attribute("type")),
        }
    }

    fn object(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<Value, Malformed> {
        let kind = attribute(object, "type")?;
        let plain = PLAIN.into_iter().filter_map(|key| Some((key, object.get(key)?.clone())));
        let mut normal: Map<_, _> = plain.map(|(key, value)| (key.to_owned(), value)).collect();
        let mut insert = |key: &str, value| normal.insert(key.to_owned(), value);
        match kind.as_str() {
            Some("record") => {
                let (name, space) = self.define(object, namespace)?;
                insert("name", name);
                let fields = attribute(object, "fields")?.as_array();
                let fields = fields.ok_or(Malformed::Attribute("fields"))?.iter();
                insert(
                    "fields",
                    fields.map(|of| self.field(of, &space)).collect::<Result<_, _>>()?,
                );
            }
            Some(named @ ("enum" | "fixed")) => {
                attribute(object, if named == "enum" { "symbols" } else { "size" })?;
                insert("name", self.define(object, namespace)?.0);
            }
            Some("array") => {
                insert("items", self.schema(attribute(object, "items")?, namespace)?);
            }
            Some("map") => {
                insert("values", self.schema(attribute(object, "values")?, namespace)?);
            }
            // Another way to write the type itself.
            _ if normal.is_empty() => return self.schema(kind, namespace),
            _ => {
                normal.insert("type".to_owned(), self.schema(kind, namespace)?);
                return Ok(Value::Object(normal));
            }
        }
        normal.insert("type".to_owned(), kind.clone());
        Ok(Value::Object(normal))
    }

    fn field(&mut self, field: &Value, namespace: &str) -> Result<Value, Malformed> {
        let field = field.as_object().ok_or(Malformed::Attribute("fields"))?;
        let name = attribute(field, "name")?.clone();
        Ok(Value::Array(vec![name, self.schema(attribute(field, "type")?, namespace)?]))
    }

    /// The full name of a type, and the namespace of what is in it.
    fn define(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
    ) -> Result<(Value, String), Malformed> {
        let name = attribute(object, "name")?.as_str().ok_or(Malformed::Attribute("name"))?;
        let given = object.get("namespace").and_then(Value::as_str);
        let full = full_name(name, given.unwrap_or(namespace))?;
        if !self.0.insert(full.clone()) {
            return Err(Malformed::DefinedTwice(full));
        }
        let space = full.rsplit_once('.').map_or("", |(space, _)| space).to_owned();
        Ok((Value::String(full), space))
    }
}

fn attribute<'a>(
    object: &'a Map<String, Value>,
    key: &'static str,
) -> Result<&'a Value, Malformed> {
    object.get(key).ok_or(Malformed::Attribute(key))
}

fn full_name(name: &str, namespace: &str) -> Result<String, Malformed> {
    let is_full = namespace.is_empty() || name.contains('.');
    let full = if is_full { name.to_owned() } else { format!("{namespace}.{name}") };
    if full.len() > NAME_BYTES_MAX { Err(Malformed::LongName) } else { Ok(full) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_write_a_schema_are_one() {
        let plain = r#"{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[
            {"name":"e","type":{"type":"enum","name":"E","symbols":["X"]},"default":"X"},
            {"name":"f","type":["null","E"]},{"name":"g","type":{"type":"string","x.y":"z"}}]}"#;
        let other = r#"{"fields":[
            {"type":{"symbols":["X"],"name":"a.b.E","type":"enum"},"name":"e"},
            {"type":["null",{"type":"a.b.E"}],"name":"f"},{"name":"g","type":"string"}],
            "name":"a.b.R","type":"record"}"#;
        assert_eq!(normal_form(plain).unwrap(), normal_form(other).unwrap());
        for (was, is) in [
            ("\"null\",", ""),
            ("\"E\",\"symbols\"", "\"F\",\"symbols\""),
            ("[\"X\"]", "[\"Y\"]"),
            ("\"name\":\"f\"", "\"name\":\"h\""),
            ("\"string\"", "\"bytes\""),
            ("\"string\"", "\"string\",\"logicalType\":\"uuid\""),
        ] {
            let changed = normal_form(&plain.replacen(was, is, 1)).ok();
            assert_ne!(changed, normal_form(plain).ok(), "{was} {is}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for text in [
            "",
            "7",
            "{}",
            r#""R""#,
            r#"{"type":"recrod"}"#,
            r#"{"type":"record","name":"R"}"#,
            r#"{"type":"record","fields":[]}"#,
            r#"{"type":"record","name":"R","fields":[7]}"#,
            r#"{"type":"enum","name":"E"}"#,
            r#"{"type":"array"}"#,
            r#"["R",{"type":"fixed","name":"R","size":1}]"#,
            r#"[{"type":"fixed","name":"R","size":1},{"type":"fixed","name":"R","size":1}]"#,
        ] {
            assert!(normal_form(text).is_err(), "{text}");
        }
        let name = "n".repeat(NAME_BYTES_MAX + 1);
        let long = normal_form(&format!(r#"{{"type":"fixed","name":"{name}","size":1}}"#));
        assert!(matches!(long, Err(Malformed::LongName)));
    }

    /// Each record has the one before it twice: the library would build 2^40 of them.
    #[test]
    fn the_work_does_not_grow_faster_than_the_text() {
        let record = |n: u32| {
            let of = |name| format!(r#"{{"name":"{name}","type":"B{}","default":{{}}}}"#, n - 1);
            format!(r#"{{"type":"record","name":"B{n}","fields":[{},{}]}}"#, of("x"), of("y"))
        };
        let first = r#"{"type":"record","name":"B0","fields":[]}"#.to_owned();
        let all: Vec<_> = [first].into_iter().chain((1..=40).map(record)).collect();
        let normal = normal_form(&format!("[{}]", all.join(","))).unwrap();
        assert!(normal.to_string().len() < all.concat().len());
    }
}
