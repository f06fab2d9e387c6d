//! Parts of pages. Every inserted text is escaped.

use schemas::record::Order;
use schemas::{Hash, UnixSeconds};
use url::form_urlencoded;

use crate::machine::story::words;
use crate::page::{Html, Language, Template};

/// A template of this crate with its values.
pub(super) fn filled(template: Template, values: &[(&str, Html)]) -> Html {
    template.fill(Language::English, values)
}

/// Markup with its placeholders filled.
pub(super) fn plain(markup: &'static str, values: &[(&str, Html)]) -> Html {
    filled(Template(markup), values)
}

pub(super) fn link(to: impl Into<Html>, text: impl Into<Html>) -> Html {
    plain("<a href=\"{{to}}\">{{text}}</a>", &[("to", to.into()), ("text", text.into())])
}

/// Link styled as a button.
pub(super) fn button(to: impl Into<Html>, text: impl Into<Html>) -> Html {
    let values = [("to", to.into()), ("text", text.into())];
    plain("<a class=\"button\" href=\"{{to}}\">{{text}}</a>", &values)
}

pub(super) fn actions(buttons: Html) -> Html {
    plain("<p class=\"actions\">{{all}}</p>", &[("all", buttons)])
}

/// The link to an order, by its reference.
pub(super) fn reference(order: &Order) -> Html {
    let text = foreign(order.merchant_order_id.as_str());
    link(format!("/console/orders/{}", order.order_id), text)
}

pub(super) fn hidden(name: &'static str, value: impl Into<Html>) -> Html {
    let values = [("name", name.into()), ("value", value.into())];
    plain("<input type=\"hidden\" name=\"{{name}}\" value=\"{{value}}\">", &values)
}

/// Untrusted text, isolated from the surrounding text direction.
pub(super) fn foreign(text: impl Into<Html>) -> Html {
    Html::within("bdi", text)
}

/// An id, an address, a hash.
pub(super) fn code(text: impl Into<Html>) -> Html {
    Html::within("code", text)
}

pub(super) fn hint(text: impl Into<Html>) -> Html {
    plain("<p class=\"hint\">{{text}}</p>", &[("text", text.into())])
}

/// Notes on data missing from a page.
pub(super) fn hints(remarks: &[String]) -> Html {
    remarks.iter().map(|remark| hint(remark.as_str())).collect()
}

/// A time, always in UTC.
pub(super) fn time(at: UnixSeconds) -> Html {
    let text = words::time(at);
    let shown = text.replace('T', " ").replace('Z', "");
    let values = [("at", text.into()), ("shown", shown.into())];
    plain("<time datetime=\"{{at}}\">{{shown}}</time>", &values)
}

/// Status in one word, coloured by severity.
pub(super) fn badge(status: &str) -> Html {
    let kind = match status {
        "paid" | "matched" | "delivered" | "open" | "resolved" => "good",
        "expired" | "no_matched_deposit" | "status" | "timeout" | "connect" | "protocol"
        | "raised" => "warn",
        "failed_to_confirm" | "refused" | "given_up" | "not_delivered" => "bad",
        _ => "plain",
    };
    let values = [("kind", kind.into()), ("status", status.replace('_', " ").into())];
    plain("<span class=\"badge {{kind}}\">{{status}}</span>", &values)
}

/// A hash, shortened for a table.
pub(super) fn short(hash: Hash) -> Html {
    let text = hash.to_string();
    let (head, tail) = (text.get(..10).unwrap_or(&text), text.get(text.len() - 6..).unwrap_or(""));
    let values = [("full", text.as_str().into()), ("short", format!("{head}…{tail}").into())];
    plain("<code title=\"{{full}}\">{{short}}</code>", &values)
}

/// List of names and values.
pub(super) fn facts(rows: impl IntoIterator<Item = (&'static str, Html)>) -> Html {
    let one = |(name, value): (&'static str, Html)| {
        let values = [("name", name.into()), ("value", value)];
        plain("<div><dt>{{name}}</dt><dd>{{value}}</dd></div>", &values)
    };
    plain("<dl>{{rows}}</dl>", &[("rows", rows.into_iter().map(one).collect())])
}

/// A part of a page with a title.
pub(super) fn section(title: &str, inner: impl Into<Html>) -> Html {
    let values = [("title", title.into()), ("inner", inner.into())];
    plain("<section class=\"card\"><h2>{{title}}</h2>{{inner}}</section>", &values)
}

/// First part of a page, with the page's title.
pub(super) fn head(title: impl Into<Html>, inner: impl Into<Html>) -> Html {
    let values = [("title", title.into()), ("inner", inner.into())];
    plain("<section class=\"card head\"><h1>{{title}}</h1>{{inner}}</section>", &values)
}

/// Table with column names; the text `empty` without rows. On a phone each row is a card with names beside values.
pub(super) fn table(
    names: &[&'static str],
    rows: impl IntoIterator<Item = Vec<Html>>,
    empty: &str,
) -> Html {
    let cell = |(name, value): (&&'static str, Html)| {
        let values = [("name", (*name).into()), ("value", value)];
        plain("<td data-name=\"{{name}}\"><div>{{value}}</div></td>", &values)
    };
    let row =
        |cells: Vec<Html>| Html::within("tr", names.iter().zip(cells).map(cell).collect::<Html>());
    let mut rows = rows.into_iter().map(row).peekable();
    if rows.peek().is_none() {
        return hint(empty);
    }
    let title =
        |name: &&'static str| plain("<th scope=\"col\">{{name}}</th>", &[("name", (*name).into())]);
    let values = [("names", names.iter().map(title).collect()), ("rows", rows.collect::<Html>())];
    plain("<table><thead><tr>{{names}}</tr></thead><tbody>{{rows}}</tbody></table>", &values)
}

/// Message after an action.
pub(super) fn notice(done: Option<&str>) -> Html {
    let notice = |text: &str| {
        plain("<p class=\"done\" role=\"status\">{{text}}</p>", &[("text", text.into())])
    };
    done.map(notice).unwrap_or_default()
}

/// The value, or "none" if it is missing.
pub(super) fn or_none(value: Option<Html>) -> Html {
    value.unwrap_or_else(|| plain("<span class=\"none\">none</span>", &[]))
}

/// The address of a page with this query, without parameters that are empty.
pub(super) fn address(path: &str, query: &[(&str, &str)]) -> String {
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
    format!("{path}?{}", text.finish())
}

/// Select field for one of these words, or for "any".
pub(super) fn choice(
    name: &'static str,
    label: &'static str,
    words: &[&'static str],
    chosen: &str,
) -> Html {
    let option = |word: &&'static str| {
        let is_chosen = if *word == chosen { plain(" selected", &[]) } else { Html::default() };
        let values = [
            ("word", (*word).into()),
            ("selected", is_chosen),
            ("text", word.replace('_', " ").into()),
        ];
        plain("<option value=\"{{word}}\"{{selected}}>{{text}}</option>", &values)
    };
    let values = [
        ("name", name.into()),
        ("label", label.into()),
        ("options", words.iter().map(option).collect()),
    ];
    plain(
        "<label>{{label}} <select name=\"{{name}}\"><option value=\"\">any</option>{{options}}</select></label>",
        &values,
    )
}

pub(super) fn filter(path: &'static str, fields: Html) -> Html {
    let values = [("path", path.into()), ("fields", fields)];
    plain(
        "<form class=\"filter\" action=\"{{path}}\">{{fields}}<button class=\"button\">Filter</button></form>",
        &values,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_become_markup() {
        let hostile = "<script>\"'&{{to}}";
        let escaped = "&lt;script&gt;&quot;&#39;&amp;{{to}}";
        assert_eq!(
            link(hostile, hostile).into_string(),
            format!("<a href=\"{escaped}\">{escaped}</a>")
        );
        let rows = table(&["name"], [vec![foreign(hostile)]], "").into_string();
        assert!(rows.contains(&format!("<bdi>{escaped}</bdi>")), "{rows}");
        assert!(!badge(hostile).into_string().contains("<script"));
    }
}
