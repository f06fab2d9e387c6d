//! `docs/openapi.json`, and the check that it describes an answer.

use std::sync::LazyLock;

use reqwest::Method;
use serde_json::Value;

pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap());
/// Headers that no request may have twice.
pub(crate) const SINGLE_HEADERS: [&str; 3] =
    ["Service-Signature", "Service-Admin-Authorization", "Idempotency-Key"];
/// Answers of any route, and to any method.
pub(crate) const NOT_ALLOWED: &str = "method not allowed";
pub(crate) const NOT_FOUND: &str = "resource not found";

/// Target of a `$ref`; any other value itself.
pub(crate) fn resolved(of: &'static Value) -> &'static Value {
    let Some(path) = of["$ref"].as_str() else { return of };
    let found = DOCUMENT.pointer(path.strip_prefix('#').unwrap());
    assert!(found.is_some(), "{path} is not there");
    found.unwrap()
}

pub(crate) fn members(of: &'static Value) -> impl Iterator<Item = (&'static str, &'static Value)> {
    of.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

pub(crate) fn items(of: &'static Value) -> impl Iterator<Item = &'static Value> {
    of.as_array().into_iter().flatten()
}

/// Each operation with its path and method.
pub(crate) fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    members(&DOCUMENT["paths"])
        .flat_map(|(path, methods)| members(methods).map(move |(name, one)| (path, name, one)))
}

/// `true` if a path matches a template such as `/orders/{order_id}`.
fn fits(path: &str, template: &str) -> bool {
    let (path, template): (Vec<_>, Vec<_>) =
        (path.split('/').collect(), template.split('/').collect());
    let is_like =
        |(part, of): (&&str, &&str)| part == of || (of.starts_with('{') && !part.is_empty());
    path.len() == template.len() && path.iter().zip(&template).all(is_like)
}

/// Mismatch of a value and a schema, if any. Bounds of texts are not compared: answers have none.
pub(crate) fn disagrees(schema: &'static Value, value: &Value) -> Option<String> {
    let schema = resolved(schema);
    let but = |what: String| Some(format!("{value} {what}"));
    if schema["anyOf"].is_array() {
        let fits = items(&schema["anyOf"]).any(|one| disagrees(one, value).is_none());
        return if fits { None } else { but("is none of what it may be".to_owned()) };
    }
    let is_of = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    let types =
        schema["type"].as_str().into_iter().chain(items(&schema["type"]).filter_map(Value::as_str));
    let types: Vec<_> = types.collect();
    if !types.iter().any(|name| is_of(name)) {
        return but(format!("is not {types:?}"));
    }
    if schema["enum"].is_array() && !items(&schema["enum"]).any(|word| word == value) {
        return but("is not one of its words".to_owned());
    }
    if schema.get("const").is_some_and(|word| word != value) {
        return but(format!("is not {}", schema["const"]));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
        && number < least
    {
        return but(format!("is below {least}"));
    }
    if let Some(missing) =
        items(&schema["required"]).find(|name| value.get(name.as_str().unwrap()).is_none())
    {
        return but(format!("has no {missing}"));
    }
    let fields = value.as_object().into_iter().flatten();
    let wrong = fields.filter_map(|(name, field)| match schema["properties"].get(name) {
        Some(schema) => disagrees(schema, field),
        // Clients accept unknown fields, but every field of today is in the document.
        None if schema["properties"].is_object() => but(format!("has {name} too")),
        None => None,
    });
    let values = value.as_array().into_iter().flatten();
    let wrong = wrong.chain(values.filter_map(|one| disagrees(&schema["items"], one)));
    wrong.into_iter().next()
}

/// Fails unless the document has an answer like this one. Paths outside the APIs are not checked.
pub(crate) fn check((method, path): (&Method, &str), status: u16, kind: &str, body: &str) {
    let what = || format!("{method} {path}: {status} {kind:?} {body}");
    let is_api = path.starts_with("/api/v1/");
    let Some((_, templates)) =
        members(&DOCUMENT["paths"]).find(|(template, _)| fits(path, template))
    else {
        assert!(!is_api || (status, body) == (404, NOT_FOUND), "{}", what());
        return;
    };
    let Some(operation) = templates.get(method.as_str().to_lowercase()) else {
        let is_preflight = method == Method::OPTIONS && status == 204;
        // HEAD is answered as GET, without a body.
        let is_head = method == Method::HEAD;
        assert!(is_preflight || is_head || status == 405, "{}", what());
        return;
    };
    if SINGLE_HEADERS.iter().any(|name| body == format!("{name}: is given twice")) {
        assert_eq!(status, 400, "{}", what());
        return;
    }
    let response = operation["responses"].get(status.to_string());
    assert!(response.is_some(), "not documented: {}", what());
    let content = response.and_then(|response| resolved(response)["content"].get(kind));
    assert!(content.is_some(), "not documented as {kind}: {}", what());
    let content = content.unwrap();
    if kind == "application/json" {
        let value = serde_json::from_str(body).unwrap();
        assert_eq!(disagrees(&content["schema"], &value), None, "{}", what());
    } else if content["examples"].is_object() {
        let mut texts =
            members(&content["examples"]).map(|(_, one)| one["value"].as_str().unwrap());
        // Errors of fields have many texts, each with the field's name first.
        let is_field = status == 400 && body.contains(": ");
        assert!(is_field || texts.any(|text| text == body), "another text: {}", what());
    }
}
