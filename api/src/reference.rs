//! The OpenAPI document of the APIs, and its HTML page (decision 51).

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::page::Html;

/// The document in the repository: tests check the routes and answers of the APIs against it.
const DOCUMENT: &str = include_str!("../../docs/openapi.json");
const STYLE: &str = include_str!("page/assets/reference.css");

/// A constant document, compressed once.
struct Fixed {
    plain: Bytes,
    gzip: Bytes,
    /// ETags of the content, one for each of the two encodings.
    tags: [HeaderValue; 2],
}

impl Fixed {
    fn new(text: String) -> Self {
        let digest = Sha256::digest(&text);
        let tag = |encoding: &str| {
            let tag = format!("\"{}{encoding}\"", URL_SAFE_NO_PAD.encode(&digest[..12]));
            HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\""))
        };
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to a buffer in memory does not fail.
        let gzip = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        Self {
            plain: text.into(),
            gzip: gzip.unwrap_or_default().into(),
            tags: ["", "-gzip"].map(tag),
        }
    }

    /// Answer to a client that may have it cached.
    fn answer(&self, asked: &HeaderMap) -> Response {
        let has = |name, word: &str| {
            let values = asked.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let mut words = values.flat_map(|value| value.split(',')).map(str::trim);
            // A proxy that compresses weakens the tag.
            words.any(|one| one.trim_start_matches("W/") == word || one == "*")
        };
        let is_gzip = has(header::ACCEPT_ENCODING, "gzip") && !self.gzip.is_empty();
        let tag = &self.tags[usize::from(is_gzip)];
        let cache = [
            (header::ETAG, tag.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600")),
            (header::VARY, HeaderValue::from_static("accept-encoding")),
        ];
        if self.tags.iter().any(|tag| has(header::IF_NONE_MATCH, tag.to_str().unwrap_or_default()))
        {
            return (StatusCode::NOT_MODIFIED, cache).into_response();
        }
        let encoding = is_gzip.then_some([(header::CONTENT_ENCODING, "gzip")]);
        let content = if is_gzip { &self.gzip } else { &self.plain };
        (cache, encoding, content.clone()).into_response()
    }
}

/// `GET /api/v1/openapi.json`
pub(crate) async fn document(headers: HeaderMap) -> Response {
    static FIXED: LazyLock<Fixed> = LazyLock::new(|| Fixed::new(DOCUMENT.to_owned()));
    ([(header::CONTENT_TYPE, "application/json")], FIXED.answer(&headers)).into_response()
}

/// `GET /api/v1/docs`
pub(crate) async fn page(headers: HeaderMap) -> Response {
    static PAGE: LazyLock<Fixed> = LazyLock::new(|| {
        Fixed::new(Reference(&serde_json::from_str(DOCUMENT).unwrap_or_default()).page())
    });
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
        let hash = STANDARD.encode(Sha256::digest(STYLE));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
    });
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let own = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY.clone()),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (own, PAGE.answer(&headers)).into_response()
}

fn escaped(text: &str) -> String {
    Html::from(text).into_string()
}

/// The text of a member; empty if it is missing.
fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

/// A text of the document, with code in backticks.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let part = |(at, part): (usize, &str)| {
        let part = escaped(part);
        if at % 2 == 1 { format!("<code>{part}</code>") } else { part }
    };
    parts.map(part).collect()
}

fn members(of: &Value) -> impl Iterator<Item = (&str, &Value)> {
    of.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn items(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

/// The document as a page.
struct Reference<'a>(&'a Value);

impl Reference<'_> {
    fn page(&self) -> String {
        let (info, mut body, mut list) = (&self.0["info"], String::new(), String::new());
        for tag in items(&self.0["tags"]) {
            let name = text(tag, "name");
            let (mut entries, mut sections) = (String::new(), String::new());
            for (path, method, operation) in self.operations() {
                if operation["tags"][0] == name {
                    let id = escaped(text(operation, "operationId"));
                    let summary = escaped(text(operation, "summary"));
                    entries += &format!("<li><a href=\"#{id}\">{summary}</a></li>");
                    sections += &self.operation(path, method, operation);
                }
            }
            let (name, about) = (escaped(name), prose(text(tag, "description")));
            list += &format!("<h2>{name}</h2><ul>{entries}</ul>");
            body += &format!("<h2>{name}</h2><p>{about}</p>{sections}");
        }
        let keys: String = members(&self.0["components"]["securitySchemes"])
            .map(|(_, key)| {
                let (name, place) = (escaped(text(key, "name")), escaped(text(key, "in")));
                let about = prose(text(key, "description"));
                format!("<tr><td><code>{name}</code></td><td>{place}</td><td>{about}</td></tr>")
            })
            .collect();
        let schemas: String = members(&self.0["components"]["schemas"])
            .map(|(name, schema)| self.schema(name, schema))
            .collect();
        let (title, version) = (escaped(text(info, "title")), escaped(text(info, "version")));
        let (summary, about) = (prose(text(info, "summary")), prose(text(info, "description")));
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{title} API</title><style>{STYLE}</style></head><body><nav><p><b>{title}</b> {version}</p>{list}\
             <h2>objects</h2><ul><li><a href=\"#objects\">All objects</a></li></ul></nav>\
             <main><h1>{title} API</h1><p>{summary}.</p><p>{about}</p><p>For programs: <a href=\"openapi.json\">openapi.json</a>.</p>\
             <h2>authority</h2><table>{keys}</table>{body}<h2 id=\"objects\">objects</h2>{schemas}</main></body></html>\n"
        )
    }

    fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        members(&self.0["paths"]).flat_map(|(path, methods)| {
            members(methods).map(move |(method, operation)| (path, method, operation))
        })
    }

    fn operation(&self, path: &str, method: &str, operation: &Value) -> String {
        let (id, summary) = (escaped(text(operation, "operationId")), text(operation, "summary"));
        let mut out = format!(
            "<section id=\"{id}\"><h3>{}</h3><p><code class=\"route\"><b>{}</b> {}</code></p><p>{}</p>",
            escaped(summary),
            method.to_uppercase(),
            escaped(path),
            prose(text(operation, "description"))
        );
        let rows = items(&operation["parameters"]).map(|parameter| {
            let parameter = self.resolved(parameter);
            let is_required = parameter["required"] == true;
            self.row(text(parameter, "name"), text(parameter, "in"), is_required, parameter)
        });
        out += &table("parameters", &rows.collect::<String>());
        let body = &operation["requestBody"]["content"]["application/json"];
        out += &self.fields("body", self.resolved(&body["schema"]));
        out += &example(&body["example"]);
        for (status, response) in members(&operation["responses"]) {
            out += &self.response(status, self.resolved(response));
        }
        out + "</section>"
    }

    fn response(&self, status: &str, response: &Value) -> String {
        let about = prose(text(response, "description"));
        let mut out = format!("<h4><b>{}</b> {about}</h4>", escaped(status));
        for (kind, content) in members(&response["content"]) {
            let texts = members(&content["examples"]).filter_map(|(_, one)| one["value"].as_str());
            let texts: String =
                texts.map(|one| format!("<li><code>{}</code></li>", escaped(one))).collect();
            if texts.is_empty() {
                let what = self.kind(&content["schema"]);
                _ = write!(
                    out,
                    "<p>{what} <small>{}</small></p>{}",
                    escaped(kind),
                    example(&content["example"])
                );
            } else {
                _ = write!(out, "<ul>{texts}</ul>");
            }
        }
        out
    }

    fn schema(&self, name: &str, schema: &Value) -> String {
        let (name, about) = (escaped(name), prose(text(schema, "description")));
        let kind = if schema["properties"].is_object() { String::new() } else { self.kind(schema) };
        let fields = self.fields("", schema);
        format!(
            "<section id=\"schema-{name}\"><h3>{name}</h3><p>{about}</p><p>{kind}</p>{fields}</section>"
        )
    }

    fn fields(&self, caption: &str, schema: &Value) -> String {
        let is_required = |name: &str| items(&schema["required"]).any(|field| field == name);
        let row = |(name, field): (&str, &Value)| self.row(name, "", is_required(name), field);
        table(caption, &members(&schema["properties"]).map(row).collect::<String>())
    }

    /// Row of a field, or of a parameter with its location.
    fn row(&self, name: &str, place: &str, is_required: bool, of: &Value) -> String {
        let kind = self.kind(if of["schema"].is_object() { &of["schema"] } else { of });
        let need = if is_required { "required" } else { "" };
        let about = prose(text(of, "description"));
        format!(
            "<tr><td><code>{}</code> <small>{} {need}</small></td><td>{kind}</td><td>{about}</td></tr>",
            escaped(name),
            escaped(place)
        )
    }

    /// A type in a few words.
    fn kind(&self, schema: &Value) -> String {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
            let name = escaped(name);
            return format!("<a href=\"#schema-{name}\">{name}</a>");
        }
        let either: Vec<String> = items(&schema["anyOf"]).map(|one| self.kind(one)).collect();
        let words: Vec<String> = items(&schema["enum"])
            .chain(schema.get("const"))
            .map(|word| format!("<code>{}</code>", escaped(word.as_str().unwrap_or_default())))
            .collect();
        if !either.is_empty() {
            either.join(" or ")
        } else if !words.is_empty() {
            words.join(", ")
        } else if schema["type"] == "array" {
            format!("list of {}", self.kind(&schema["items"]))
        } else {
            let types =
                items(&schema["type"]).chain(schema["type"].is_string().then_some(&schema["type"]));
            types.filter_map(Value::as_str).map(escaped).collect::<Vec<_>>().join(" or ")
        }
    }

    /// Target of a `$ref`; any other value itself.
    fn resolved<'b>(&'b self, of: &'b Value) -> &'b Value {
        let path = of["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        path.and_then(|path| self.0.pointer(path)).unwrap_or(of)
    }
}

fn table(caption: &str, rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("<table><caption>{caption}</caption>{rows}</table>")
}

fn example(example: &Value) -> String {
    if example.is_null() {
        return String::new();
    }
    let text = serde_json::to_string_pretty(example).unwrap_or_default();
    format!("<pre>{}</pre>", escaped(&text))
}
