//! `docs/openapi.json`. Each `Answer` that a test gets from the APIs is checked against it: its status, its type, each
//! field of its JSON, the text of its refusal.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use reqwest::Method;
use schemas::record::example;
use schemas::{
    Blockchain, OrderId, OrderStatus, OrderStatusChanged, Stablecoin, TransferId, TransferStatus,
    UnixSeconds, UnknownReason, UnknownTransfer,
};
use serde_json::{Value, json};
use store::Change;

use crate::operators;
use crate::world::{ADMIN_SECRET, Answer, UNKNOWN_ORDER, World, wallet};

/// Source of the routes.
const ROUTER: &str = include_str!("../../src/router.rs");
/// Source of the sender of webhooks.
const SENDER: &str = include_str!("../../../webhooks/src/sender.rs");
const METHODS: [&str; 2] = ["get", "post"];
static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap());
/// Headers that no request may have twice.
const SINGLE_HEADERS: [&str; 3] =
    ["Service-Signature", "Service-Admin-Authorization", "Idempotency-Key"];
/// Refusals of an unknown method and of an unknown path.
const NOT_ALLOWED: &str = "method not allowed";
const NOT_FOUND: &str = "resource not found";

/// Target of a `$ref`; any other value itself.
pub(crate) fn resolved(of: &'static Value) -> &'static Value {
    let Some(path) = of["$ref"].as_str() else { return of };
    let found = DOCUMENT.pointer(path.strip_prefix('#').unwrap());
    assert!(found.is_some(), "{path} is not there");
    found.unwrap()
}

fn members(of: &'static Value) -> impl Iterator<Item = (&'static str, &'static Value)> {
    of.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn items(of: &'static Value) -> impl Iterator<Item = &'static Value> {
    of.as_array().into_iter().flatten()
}

/// Each operation with its path and method.
pub(crate) fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    members(&DOCUMENT["paths"])
        .flat_map(|(path, methods)| members(methods).map(move |(name, one)| (path, name, one)))
}

/// The parameters of an operation that are in its path, its query or its headers.
pub(crate) fn parameters(
    operation: &'static Value,
    place: &'static str,
) -> impl Iterator<Item = &'static Value> {
    items(&operation["parameters"]).map(resolved).filter(move |one| one["in"] == place)
}

/// The JSON that an operation takes: its schema and an example.
pub(crate) fn body(operation: &'static Value) -> &'static Value {
    &operation["requestBody"]["content"]["application/json"]
}

/// `true` if a path matches a template such as `/orders/{order_id}`.
fn fits(path: &str, template: &str) -> bool {
    let (path, template): (Vec<_>, Vec<_>) =
        (path.split('/').collect(), template.split('/').collect());
    let is_like =
        |(part, of): (&&str, &&str)| part == of || (of.starts_with('{') && !part.is_empty());
    path.len() == template.len() && path.iter().zip(&template).all(is_like)
}

/// Mismatch of a value and a schema, if any. Bounds of texts are not compared, because those of answers have none.
fn disagrees(schema: &'static Value, value: &Value) -> Option<String> {
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
        // Clients accept unknown fields, but the document must have every field that the server sends.
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

#[tokio::test]
async fn the_document_and_its_page_are_served() {
    let world = World::alone().await;
    let answer = Answer::to(world.request("GET /api/v1/openapi.json")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), *DOCUMENT);
    let page = Answer::to(world.request("GET /api/v1/docs")).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!page.body.contains("<script") && !page.body.contains("style=\""));
    for (path, _, operation) in operations() {
        let (id, path) = (operation["operationId"].as_str().unwrap(), path.replace('&', "&amp;"));
        assert!(page.body.contains(&format!("<section id=\"{id}\">")), "{id}");
        assert!(page.body.contains(&format!("</b> {path}</code>")), "{path}");
    }
    // Each link within the page leads somewhere.
    for link in page.body.split("href=\"#").skip(1) {
        let id = link.split('"').next().unwrap();
        assert!(page.body.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

/// Answers of an operation follow from its inputs.
#[test]
fn each_operation_has_the_answers_of_its_kind() {
    for (path, method, operation) in operations() {
        let secured = items(&operation["security"]).any(|one| one.get("operator").is_some());
        let signed = items(&operation["security"]).any(|one| one.get("serviceSignature").is_some());
        let linked = items(&operation["security"]).any(|one| one.get("linkSignature").is_some());
        let is_command = method != "get";
        let bodied = operation["requestBody"].is_object();
        for (has_it, statuses) in [
            (bodied, &["400", "408", "413"][..]),
            (secured || signed || linked, &["401", "429", "500", "503"]),
            (secured && is_command, &["403"]),
            (linked && is_command, &["403"]),
        ] {
            for status in statuses.iter().filter(|_| has_it) {
                assert!(operation["responses"].get(status).is_some(), "{method} {path}: {status}");
            }
        }
    }
}

/// A client that is generated from the document accepts the fields of a later version.
#[test]
fn its_answers_are_open() {
    fn is_closed(of: &'static Value) -> bool {
        let members = members(of).map(|(_, one)| one).chain(items(of));
        of.get("additionalProperties").is_some() || members.into_iter().any(is_closed)
    }
    for (path, method, operation) in operations() {
        assert!(!is_closed(&operation["responses"]), "{method} {path}");
    }
    assert!(!is_closed(&DOCUMENT["components"]));
}

/// The routes that a function of a file names, below a prefix: paths and methods.
pub(crate) fn routed(
    text: &'static str,
    function: &str,
    prefix: &str,
) -> Vec<(String, &'static str)> {
    // A route broken over two lines would be missed.
    assert!(!text.lines().any(|line| line.trim_end().ends_with(".route(")));
    let (_, rest) = text.split_once(&format!("fn {function}")).unwrap();
    let mut routes = Vec::new();
    for line in rest.split("\n}\n").next().unwrap().lines() {
        let Some((_, rest)) = line.split_once(".route(\"") else { continue };
        let (path, handlers) = rest.split_once('"').unwrap();
        let methods = METHODS.iter().filter(|method| handlers.contains(&format!("{method}(")));
        routes.extend(methods.map(|method| (format!("{prefix}{path}"), *method)));
    }
    assert!(!routes.is_empty(), "{function}");
    routes
}

/// The routes of the page in the table of `router.rs`.
pub(crate) fn page_routes() -> Vec<(String, &'static str)> {
    routed(ROUTER, "page_routes(", "/checkout")
}

/// The routes of the APIs in the table of `router.rs`.
fn routes() -> BTreeSet<(String, &'static str)> {
    let mut routes = routed(ROUTER, "finish(", "");
    for (function, prefix) in [
        ("service_routes(", ""),
        ("documents(", ""),
        ("admin_routes(", "/api/v1/admin"),
        ("user_routes(", "/api/v1/user"),
    ] {
        routes.extend(routed(ROUTER, function, prefix));
    }
    let all = ROUTER.matches(".route(\"").count();
    assert_eq!(routes.len() + page_routes().len(), all, "another function has routes");
    routes.into_iter().collect()
}

#[test]
fn it_has_every_route_and_no_other() {
    let own = operations().map(|(path, method, _)| (path.to_owned(), method));
    let own: BTreeSet<_> = own.collect();
    assert_eq!(own, routes());
    assert!(own.len() > 25, "{own:?}");
}

#[tokio::test]
async fn a_header_twice_or_another_method_is_refused() {
    let world = World::alone().await;
    for (path, method, _) in operations() {
        let other = if method == "get" { "DELETE" } else { "PUT" };
        let answer = Answer::to(world.request(&format!("{other} {}", filled(path)))).await;
        answer.refused(405, NOT_ALLOWED);
        for name in SINGLE_HEADERS {
            let route = format!("{} {}", method.to_uppercase(), filled(path));
            let request = world.request(&route).header(name, "1").header(name, "1");
            Answer::to(request).await.refused(400, &format!("{name}: is given twice"));
        }
    }
}

/// Keywords of schemas: those that a test compares, those that bound requests, and those for readers.
const KEYWORDS: [&str; 3] = [
    "$ref additionalProperties anyOf const enum items minimum properties required type",
    "format maxLength maximum minLength pattern",
    "default description examples",
];

fn assert_known(schema: &'static Value) {
    for (name, part) in members(schema) {
        let mut known = KEYWORDS.iter().flat_map(|kind| kind.split(' '));
        assert!(known.any(|word| word == name), "{name} is not understood: {schema}");
        match name {
            "properties" => members(part).for_each(|(_, field)| assert_known(field)),
            "items" => assert_known(part),
            "anyOf" => items(part).for_each(assert_known),
            _ => {}
        }
    }
}

#[test]
fn it_is_whole() {
    assert_eq!(DOCUMENT["info"]["version"], env!("CARGO_PKG_VERSION"));
    members(&DOCUMENT["components"]["schemas"]).for_each(|(_, schema)| assert_known(schema));
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations() {
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{path} {method}");
        let named = parameters(operation, "path").map(|one| one["name"].as_str().unwrap());
        let parts = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(named.collect::<Vec<_>>(), parts.collect::<Vec<_>>(), "{path}");
        let body = body(operation);
        let answers = members(&operation["responses"])
            .flat_map(|(_, response)| members(&resolved(response)["content"]));
        let answers = answers.map(|(_, content)| content);
        for content in answers.chain((!body.is_null()).then_some(body)) {
            if let Some(example) = content.get("example") {
                assert_eq!(disagrees(&content["schema"], example), None, "{path} {method}");
            }
        }
    }
    let text = DOCUMENT.to_string();
    for kind in ["schemas", "parameters", "responses"] {
        for (name, _) in members(&DOCUMENT["components"][kind]) {
            let reference = format!("\"#/components/{kind}/{name}\"");
            assert!(text.contains(&reference), "nothing uses {name}");
        }
    }
    for part in text.split("\"$ref\":\"#").skip(1) {
        let path = part.split('"').next().unwrap();
        assert!(DOCUMENT.pointer(path).is_some(), "{path} is not there");
    }
}

/// A path of a template, with valid ids.
pub(crate) fn filled(template: &str) -> String {
    let path = template.replace("{order_id}", UNKNOWN_ORDER).replace("{transfer_id}", "1");
    let path = path.replace("{hash}", &"01".repeat(32));
    path.replace("{address}", &wallet(0xab).to_string())
}

/// An operator's route refuses every query name that the document lacks.
#[tokio::test]
async fn its_queries_are_those_of_the_routes() {
    let world = World::alone().await;
    let mut routes = 0;
    for (path, method, operation) in operations() {
        if !path.starts_with("/api/v1/admin/") && path != "/health" {
            continue;
        }
        // Only health ignores unknown names, unless an operator asks for more.
        let verbose = if path.ends_with("/health") { "&verbose=1" } else { "" };
        let route = format!("{} {}?unknown=1{verbose}", method.to_uppercase(), filled(path));
        let request = world.request(&route).header("Service-Admin-Authorization", ADMIN_SECRET);
        let answer = Answer::to(request).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        let known = answer.body.split_once(" is not one of ").map(|(_, names)| names.split(", "));
        let known: BTreeSet<&str> = known.into_iter().flatten().collect();
        let named = parameters(operation, "query");
        let named: BTreeSet<&str> = named.map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(named, known, "{path}");
        routes += 1;
    }
    assert!(routes > 15);
}

/// Each field of each body that the document has: its operation's path, its name and its schema.
fn body_fields() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    operations().flat_map(|(path, _, operation)| {
        let schema = resolved(&body(operation)["schema"]);
        members(&schema["properties"]).map(move |(name, field)| (path, name, field))
    })
}

/// Sends the example's required fields, and one field with this value. Returns `true` if that one is refused by name.
async fn is_refused(world: &World, order: &str, (path, name): (&str, &str), value: Value) -> bool {
    let content = body(&DOCUMENT["paths"][path]["post"]);
    let is_needed =
        |name: &str| items(&resolved(&content["schema"])["required"]).any(|needed| needed == name);
    let mut body = content["example"].clone();
    body.as_object_mut().unwrap().retain(|name, _| is_needed(name));
    body[name] = value;
    let answer = match path.strip_prefix("/api/v1/service") {
        Some(path) => world.service(path, &body).await,
        None if path.starts_with("/api/v1/admin") => {
            let path = path.replace("{transfer_id}", "7");
            operators::post(world, ADMIN_SECRET, &path, body).await
        }
        None => world.user(order, "POST", path.rsplit('/').next().unwrap(), &body).await,
    };
    answer.status == 400 && answer.body.starts_with(&format!("{name}: "))
}

/// The fields of each body that the code reads, as `json::fields!` declares them.
fn fields_read() -> Vec<BTreeSet<String>> {
    let (mut bodies, mut calls) = (Vec::new(), 0);
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = ["machine", "routes"].map(|folder| src.join(folder));
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        let Some(text) = path.is_file().then(|| std::fs::read_to_string(path).unwrap()) else {
            continue;
        };
        let reads = ["= json::object(", "= json::only("];
        calls += reads.iter().map(|call| text.matches(call).count()).sum::<usize>();
        for body in text.split("json::fields! {").skip(1) {
            let code = body.lines().filter(|line| !line.trim_start().starts_with("///"));
            let code: String = code.collect();
            let fields = code.split(['{', '}']).nth(1).unwrap().split(',').map(str::trim);
            bodies.push(fields.map(str::to_owned).collect::<BTreeSet<_>>());
        }
    }
    assert_eq!(bodies.len(), calls, "a body is written otherwise");
    bodies.sort();
    bodies
}

/// No other test finds a field that the code reads and the document lacks.
#[test]
fn its_bodies_have_every_field_that_is_read() {
    let bodies = operations().filter_map(|(_, _, operation)| {
        let schema = &body(operation)["schema"];
        let names = members(&resolved(schema)["properties"]).map(|(name, _)| name.to_owned());
        (!schema.is_null()).then(|| names.collect::<BTreeSet<_>>())
    });
    let mut bodies: Vec<_> = bodies.collect();
    bodies.sort();
    // The requests to begin and to end a stop have the same body.
    bodies.dedup();
    assert_eq!(bodies, fields_read());
}

/// The document describes both events and their headers as they are sent.
#[test]
fn its_webhooks_are_those_that_are_sent() {
    let statuses = [OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled];
    let changed = statuses.map(|status| {
        let order_id = OrderId(uuid::Uuid::from_u128(7));
        let (merchant_order_id, amount, timestamp) = ("A-1", "10.50", UnixSeconds(5));
        OrderStatusChanged { order_id, merchant_order_id, status, amount, timestamp }.body()
    });
    let (transfer_id, timestamp) = (TransferId(9), UnixSeconds(6));
    let unknown = Blockchain::ALL
        .iter()
        .map(|&blockchain| UnknownTransfer { transfer_id, blockchain, timestamp }.body());
    let pending = changed[0].replace("paid", "pending");
    let schema = &DOCUMENT["components"]["schemas"]["OrderStatusChanged"];
    let refusal = disagrees(schema, &serde_json::from_str(&pending).unwrap());
    assert_eq!(refusal.as_deref(), Some("\"pending\" is not one of its words"), "it is never sent");
    let sent = [("orderStatusChanged", changed.to_vec()), ("unknownTransfer", unknown.collect())];
    let named = members(&DOCUMENT["webhooks"]).map(|(name, _)| name);
    assert_eq!(named.collect::<Vec<_>>(), sent.each_ref().map(|(name, _)| *name));
    for (name, bodies) in sent {
        let operation = &DOCUMENT["webhooks"][name]["post"];
        let content = body(operation);
        let schema = resolved(&content["schema"]);
        let fields: BTreeSet<_> = members(&schema["properties"]).map(|(field, _)| field).collect();
        assert_eq!(disagrees(schema, &content["example"]), None, "{name}");
        for body in bodies {
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(disagrees(schema, &body), None, "{name}");
            assert_eq!(crate::world::fields(&body), Vec::from_iter(fields.clone()), "{name}");
        }
        let headers = parameters(operation, "header");
        let headers: BTreeSet<_> =
            headers.map(|of| of["name"].as_str().unwrap().to_lowercase()).collect();
        let own = SENDER.split("HeaderName::from_static(\"").skip(1);
        let own = own.map(|rest| rest.split('"').next().unwrap().to_owned());
        assert_eq!(headers, own.collect(), "{name}");
    }
}

/// Values at the bounds of a schema, and the next ones beyond them. Patterns are left out: schemathesis tests those.
pub(crate) fn bounds(schema: &'static Value) -> [Vec<Value>; 2] {
    let schema = resolved(schema);
    if let Some(one) = items(&schema["anyOf"]).find(|one| one["type"] != "null") {
        return bounds(one);
    }
    let start = if schema["format"] == "uri" { "https://shop.test/" } else { "" };
    let text =
        |chars: i64| json!(format!("{start:a<chars$}", chars = chars.unsigned_abs() as usize));
    let (mut within, mut beyond) = (Vec::new(), Vec::new());
    for (words, step) in [(["minimum", "minLength"], -1), (["maximum", "maxLength"], 1)] {
        if let Some(number) = schema[words[0]].as_i64() {
            within.push(json!(number));
            beyond.push(json!(number + step));
        }
        if let Some(chars) = schema[words[1]].as_i64().filter(|_| schema["pattern"].is_null()) {
            within.push(text(chars));
            beyond.push(text(chars + step));
        }
    }
    [within, beyond]
}

/// The words that a schema allows.
pub(crate) fn words(schema: &'static Value) -> impl Iterator<Item = &'static str> {
    let one = items(&schema["anyOf"]).find(|one| one["type"] != "null").unwrap_or(schema);
    items(&resolved(one)["enum"]).filter_map(Value::as_str)
}

#[test]
fn its_words_are_those_of_the_vocabulary() {
    let all = |words: Vec<String>| words.into_iter().collect::<BTreeSet<_>>();
    fn texts<T: ToString>(all: &[T]) -> Vec<String> {
        all.iter().map(T::to_string).collect()
    }
    for (name, expected) in [
        ("Blockchain", texts(Blockchain::ALL)),
        ("Stablecoin", texts(Stablecoin::ALL)),
        ("OrderStatus", texts(OrderStatus::ALL)),
        ("TransferStatus", texts(TransferStatus::ALL)),
        ("UnknownReason", texts(UnknownReason::ALL)),
    ] {
        let own = words(&DOCUMENT["components"]["schemas"][name]).map(str::to_owned).collect();
        assert_eq!(all(own), all(expected), "{name}");
    }
}

/// A query accepts values at its bounds and each of its words, and nothing beyond.
#[tokio::test]
async fn its_queries_are_bounded_as_it_says() {
    let world = World::alone().await;
    let mut tried = BTreeSet::new();
    for (path, _, operation) in operations() {
        let Some(route) = path.strip_prefix("/api/v1/admin") else { continue };
        for query in parameters(operation, "query") {
            let (name, schema) = (query["name"].as_str().unwrap(), resolved(&query["schema"]));
            let [mut within, mut beyond] = bounds(schema);
            within.extend(words(schema).map(Value::from));
            beyond.extend(words(schema).map(|word| json!(format!("{word}x"))));
            for (values, is_refused) in [(within, false), (beyond, true)] {
                for value in values {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let route = format!("GET {}?{name}={text}", filled(route));
                    let answer = world.admin(&route).await;
                    assert_eq!(answer.status == 400, is_refused, "{route}: {}", answer.body);
                    assert!(!is_refused || answer.body.contains(name), "{route}: {}", answer.body);
                    tried.insert(name);
                }
            }
        }
    }
    let names = ["limit", "offset", "created_from", "status", "blockchain", "token", "format"];
    assert!(names.iter().all(|name| tried.contains(name)), "{tried:?}");
}

/// A field of a body accepts values at its bounds and each of its words, and nothing beyond. Each is read: one of another
/// type is refused by its name.
#[tokio::test]
async fn its_fields_are_bounded_as_it_says() {
    let (world, order) = World::start().await.with_order().await;
    world.apply([Change::Transfer(example::transfer())]).await;
    let (mut tried, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (path, name, field) in body_fields() {
        paths.insert(path);
        let [within, mut beyond] = bounds(field);
        beyond.push(json!([]));
        beyond.extend(words(field).map(|word| json!(format!("{word}x"))));
        for (values, is_beyond) in [(within, false), (beyond, true)] {
            for value in values {
                let refused = is_refused(&world, &order, (path, name), value.clone()).await;
                assert_eq!(refused, is_beyond, "{path} {name}: {value}");
                tried.insert(name);
            }
        }
    }
    assert_eq!(paths.len(), 10, "{paths:?}");
    let names = ["order_id", "webhook_url", "limit", "since", "blockchain", "stablecoin", "status"];
    assert!(names.iter().all(|name| tried.contains(name)), "{tried:?}");
}
