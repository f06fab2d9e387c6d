//! As much of YAML as one document needs: maps in their order, quoted texts, and JSON as it is.

/// A part of a document.
pub(super) enum Node {
    Text(String),
    Number(i64),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    /// JSON is YAML already.
    Json(&'static str),
}

/// A map with its entries in the order given.
macro_rules! map {
    ($($key:literal: $value:expr),+ $(,)?) => {
        Node::Map(vec![$(($key.to_owned(), Node::from($value))),+])
    };
}
pub(super) use map;

impl From<&str> for Node {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Node {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Vec<Self>> for Node {
    fn from(items: Vec<Self>) -> Self {
        Self::List(items)
    }
}

impl Node {
    /// A reference to another part of the document.
    pub(super) fn to(path: &str) -> Self {
        map! { "$ref": &*format!("#/{path}") }
    }

    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0);
        text
    }

    fn write(&self, text: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        match self {
            Self::Text(value) => text.push_str(&format!(" {}\n", quoted(value))),
            Self::Number(number) => text.push_str(&format!(" {number}\n")),
            Self::List(items) if items.is_empty() => text.push_str(" []\n"),
            Self::List(items) => {
                begin(text);
                for item in items {
                    text.push_str(&format!("{indent}-"));
                    item.write(text, depth + 1);
                }
            }
            Self::Map(entries) => {
                begin(text);
                for (key, value) in entries {
                    text.push_str(&format!("{indent}{}:", name(key)));
                    value.write(text, depth + 1);
                }
            }
            Self::Json(json) => {
                text.push('\n');
                json.lines().for_each(|line| text.push_str(&format!("{indent}{line}\n")));
            }
        }
    }
}

/// Ends the line of a key or dash, if there is one.
fn begin(text: &mut String) {
    if !text.is_empty() {
        text.push('\n');
    }
}

/// JSON strings are YAML strings.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn name(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let starts = key.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts && key.chars().all(plain) { key.to_owned() } else { quoted(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_indented_and_quoted() {
        let node = map! {
            "a.b": "x: \"y\"",
            "$ref": vec![Node::Number(1), map! { "k": vec![] }],
            "avro": Node::Json("{\n  \"type\": \"int\"\n}\n"),
        };
        let expected = "a.b: \"x: \\\"y\\\"\"\n\"$ref\":\n  - 1\n  -\n    k: []\n\
                        avro:\n  {\n    \"type\": \"int\"\n  }\n";
        assert_eq!(node.render(), expected);
    }
}
