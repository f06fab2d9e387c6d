//! Templates with placeholders, from files or literals. Inserted values are escaped, unless they are markup.

use super::language::Language;

/// Markup that is safe to send: made by this file alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Html(String);

impl Html {
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    /// A text inside an element without attributes.
    pub(crate) fn within(element: &'static str, inner: impl Into<Self>) -> Self {
        let Self(inner) = inner.into();
        Self(format!("<{element}>{inner}</{element}>"))
    }

    #[must_use]
    pub(crate) fn then(mut self, next: impl Into<Self>) -> Self {
        self.0.push_str(&next.into().0);
        self
    }
}

impl From<&str> for Html {
    /// Escapes for elements and for quoted attributes.
    fn from(text: &str) -> Self {
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '&' => escaped.push_str("&amp;"),
                '<' => escaped.push_str("&lt;"),
                '>' => escaped.push_str("&gt;"),
                '"' => escaped.push_str("&quot;"),
                '\'' => escaped.push_str("&#39;"),
                '\t' | '\n' | '\r' => escaped.push(c),
                // Invalid in documents.
                c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
                c => escaped.push(c),
            }
        }
        Self(escaped)
    }
}

impl From<String> for Html {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl FromIterator<Self> for Html {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        Self(parts.into_iter().map(Self::into_string).collect())
    }
}

/// A template: `{{name}}` for a value, `{{t:key}}` for a text in the customer's language.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Template(pub(crate) &'static str);

impl Template {
    /// Fills every placeholder. A missing value is empty in a release, and fails a debug assertion in tests.
    pub(crate) fn fill(self, language: Language, values: &[(&str, Html)]) -> Html {
        let mut parts = self.0.trim_end().split("{{");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once("}}").unwrap_or_default();
            if let Some(key) = name.strip_prefix("t:") {
                filled.push_str(&Html::from(language.text(key)).0);
            } else {
                let value = values.iter().find(|(of, _)| *of == name);
                debug_assert!(value.is_some(), "nothing is given for {name}");
                filled.push_str(value.map_or("", |(_, value)| &value.0));
            }
            filled.push_str(rest);
        }
        Html(filled)
    }
}

/// A text with values: `{0}` is the first. Each is isolated from the surrounding text direction.
pub(super) fn phrase(language: Language, key: &str, values: &[&str]) -> Html {
    let mut parts = language.text(key).split('{');
    let mut filled = Html::from(parts.next().unwrap_or_default());
    for part in parts {
        let (number, rest) = part.split_once('}').unwrap_or_default();
        let value = number.parse().ok().and_then(|number: usize| values.get(number));
        debug_assert!(value.is_some(), "{key} has a hole {number}");
        filled = filled.then(Html::within("bdi", value.copied().unwrap_or_default())).then(rest);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_become_markup() {
        let hostile = "</p><script>alert('1')</script>\"&{{t:paid.title}}";
        let filled = Template("<p title=\"{{a}}\">{{a}}{{t:copy}}</p>\n")
            .fill(Language::English, &[("a", hostile.into())]);
        let escaped =
            "&lt;/p&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;{{t:paid.title}}";
        assert_eq!(filled.into_string(), format!("<p title=\"{escaped}\">{escaped}Copy</p>"));
    }

    #[test]
    fn no_document_has_control_characters() {
        let text = Html::from("a\0b\u{1b}\u{85}c\r\n\td").into_string();
        assert_eq!(text, "a\u{fffd}b\u{fffd}\u{fffd}c\r\n\td");
    }

    #[test]
    fn phrases_isolate_their_values() {
        let text = phrase(Language::English, "seen.count", &["<1>", "{1}"]);
        assert_eq!(text.into_string(), "<bdi>&lt;1&gt;</bdi> of <bdi>{1}</bdi> confirmations");
    }
}
