//! Template of a request body: `{{field}}` is replaced by a field of the alert, escaped as in a JSON string.

use schemas::record::Alert;
use schemas::{AlertState, Blockchain, Secret};

/// Minimum length of a word with a digit that is masked as a key.
const KEY_CHARS_MIN: usize = 16;
const FIELDS: [(&str, Value); 9] = [
    ("alert_id", |alert| alert.alert_id.clone()),
    ("kind", |alert| alert.kind.to_string()),
    ("state", |alert| alert.state.to_string()),
    ("action", action),
    ("blockchain", |alert| alert.blockchain.map_or("", Blockchain::as_str).to_owned()),
    ("transfer_id", |alert| alert.transfer_id.map(|id| id.to_string()).unwrap_or_default()),
    ("order_id", |alert| alert.order_id.map(|id| id.to_string()).unwrap_or_default()),
    ("message", |alert| alert.message.clone()),
    ("time", |alert| alert.raised_at.to_rfc3339()),
];

/// Reads the value of a field from an alert.
type Value = fn(&Alert) -> String;

#[derive(Clone)]
enum Part {
    Text(String),
    Field(Value),
}

/// A body with fields.
#[derive(Clone)]
pub(crate) struct Template(Vec<Part>);

impl std::fmt::Debug for Template {
    /// Hides the texts, which may contain keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Template(***)")
    }
}

impl Template {
    /// Parses the text of a body.
    ///
    /// # Errors
    /// A description of the defect: a field that is not closed or does not exist, or no field at all.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let names = || FIELDS.map(|(name, _)| name).join(", ");
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or("has {{ without }}")?;
            let found = FIELDS.iter().find(|(known, _)| *known == name.trim());
            let Some((_, value)) = found else {
                return Err(format!("has a field that is none of {}", names()));
            };
            parts.extend([Part::Text(before.to_owned()), Part::Field(*value)]);
            rest = after;
        }
        if parts.is_empty() {
            return Err(format!("has no field such as {{{{message}}}}, of {}", names()));
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    pub(crate) fn render(&self, alert: &Alert) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(value) => escaped(&value(alert)),
        };
        self.0.iter().map(part).collect()
    }

    /// Words of the template's own text that may be API keys, to mask in responses.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let texts = self.0.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Field(_) => None,
        });
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        let words = texts.flat_map(|text| text.split(move |c| !is_of_key(c)));
        let is_key =
            |word: &&str| word.len() >= KEY_CHARS_MIN && word.chars().any(|c| c.is_ascii_digit());
        words.filter(is_key).map(Secret::new).collect()
    }
}

/// Action in the terms of incident services.
fn action(alert: &Alert) -> String {
    match alert.state {
        AlertState::Raised => "trigger".to_owned(),
        AlertState::Resolved => "resolve".to_owned(),
    }
}

/// A text escaped as in a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    #[test]
    fn every_field_is_escaped() {
        let message = "said \"no\"\n\\ {{kind}}".to_owned();
        let alert = Alert { message: message.clone(), ..example::alert() };
        let text =
            "{\"a\": \"{{state}}/{{ action }}\", \"b\": [\"{{message}}\"], \"c\": {\"d\": {}}}";
        let body = Template::parse(text).unwrap().render(&alert);
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(value["a"], "raised/trigger");
        assert_eq!(value["b"][0], message, "what an alert says is no template");
        let all = FIELDS.map(|(name, _)| format!("{{{{{name}}}}}")).join(" ");
        let end = alert.resolve("over".to_owned(), example::alert().raised_at);
        let all = Template::parse(&all).unwrap().render(&end);
        assert!(all.contains(" confirmed_transfer_retracted resolved resolve eth 7 0"), "{all}");
        assert!(all.ends_with(" over 2026-09-21T14:13:32.345678Z"), "{all}");
    }

    #[test]
    fn a_template_has_fields_that_exist() {
        for (text, problem) in [
            ("{}", "has no field"),
            ("{{nonsense}}", "none of alert_id, kind,"),
            ("{{kind", "has {{ without }}"),
        ] {
            let found = Template::parse(text).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }

    #[test]
    fn keys_of_a_body_are_secret() {
        let text = "{\"routing_key\": \"0123456789abcdef\", \"event_action\": \"{{action}}\"}";
        let template = Template::parse(text).unwrap();
        let secrets = template.secrets();
        assert_eq!(secrets.len(), 1);
        assert!(secrets[0].matches(b"0123456789abcdef"));
        assert_eq!("0123456789abcdef".len(), KEY_CHARS_MIN);
        assert!(!format!("{template:?}").contains("0123"));
    }
}
