//! Registration with a registry that has Confluent's rules.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use schemas::SchemaName;

use super::*;

/// State of the registry. Its rules: a given id needs import mode, import mode needs force or an
/// empty subject, one id is one schema, and schemas are stored without their white space.
#[derive(Default)]
struct Kept {
    modes: HashMap<String, String>,
    levels: HashMap<String, String>,
    subjects: HashMap<String, BTreeMap<u64, u64>>,
    schemas: HashMap<u64, String>,
    writes: usize,
    has_no_import_mode: bool,
    next_id: u64,
}

type Shared = State<Arc<Mutex<Kept>>>;

fn error(status: u16, code: u32, message: &str) -> Response {
    let body = json!({ "error_code": code, "message": message }).to_string();
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}

fn answer(body: &Value) -> Response {
    body.to_string().into_response()
}

async fn put_mode(
    State(kept): Shared,
    Path(subject): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    body: Bytes,
) -> Response {
    let mut kept = kept.lock().unwrap();
    if kept.has_no_import_mode {
        return error(422, 42_205, "Mode changes are not allowed");
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    let mode = body["mode"].as_str().unwrap().to_owned();
    let is_forced = query.get("force").is_some_and(|force| force == "true");
    if mode == "IMPORT" && kept.subjects.contains_key(&subject) && !is_forced {
        return error(422, 42_205, "Cannot import since found existing subjects");
    }
    kept.writes += 1;
    kept.modes.insert(subject, mode);
    answer(&body)
}

async fn get_mode(State(kept): Shared, Path(subject): Path<String>) -> Response {
    match kept.lock().unwrap().modes.get(&subject) {
        Some(mode) => answer(&json!({ "mode": mode })),
        None => error(404, 40_409, "Subject does not have a mode configured"),
    }
}

async fn post_version(
    State(kept): Shared,
    Path(subject): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut kept = kept.lock().unwrap();
    // `robot:s3cret`
    if headers.get("authorization").is_none_or(|given| given != "Basic cm9ib3Q6czNjcmV0") {
        return error(401, 401, "Unauthorized");
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    let text: Value = serde_json::from_str(body["schema"].as_str().unwrap()).unwrap();
    let text = text.to_string();
    let mode = kept.modes.get(&subject).map_or("READWRITE", String::as_str);
    let count = kept.subjects.get(&subject).map_or(0, BTreeMap::len) as u64;
    let (id, version) = match (body["id"].as_u64(), body["version"].as_u64(), mode) {
        (Some(id), Some(version), "IMPORT") => (id, version),
        (None, None, "READWRITE") => {
            kept.next_id += 1;
            (kept.next_id, count + 1)
        }
        (_, _, mode) => {
            return error(422, 42_205, &format!("Subject {subject} is in mode {mode}"));
        }
    };
    if kept.schemas.get(&id).is_some_and(|known| *known != text) {
        return error(422, 42_207, &format!("Overwrite new schema with id {id} is not permitted."));
    }
    if kept.subjects.get(&subject).is_some_and(|versions| versions.contains_key(&version)) {
        return error(409, 409, "Schema being registered is incompatible");
    }
    kept.writes += 1;
    kept.schemas.insert(id, text);
    kept.subjects.entry(subject).or_default().insert(version, id);
    answer(&json!({ "id": id }))
}

async fn get_version(
    State(kept): Shared,
    Path((subject, version)): Path<(String, u64)>,
) -> Response {
    let kept = kept.lock().unwrap();
    let Some(versions) = kept.subjects.get(&subject) else {
        return error(404, 40_401, &format!("Subject '{subject}' not found."));
    };
    let Some(id) = versions.get(&version) else {
        return error(404, 40_402, &format!("Version {version} not found."));
    };
    let schema = &kept.schemas[id];
    answer(&json!({ "subject": subject, "version": version, "id": id, "schema": schema }))
}

async fn get_schema(State(kept): Shared, Path(id): Path<u64>) -> Response {
    match kept.lock().unwrap().schemas.get(&id) {
        Some(schema) => answer(&json!({ "schema": schema })),
        None => error(404, 40_403, "Schema not found"),
    }
}

async fn get_level(State(kept): Shared, Path(subject): Path<String>) -> Response {
    match kept.lock().unwrap().levels.get(&subject) {
        Some(level) => answer(&json!({ "compatibilityLevel": level })),
        None => error(404, 40_408, "Subject does not have a compatibility level configured"),
    }
}

async fn put_level(State(kept): Shared, Path(subject): Path<String>, body: Bytes) -> Response {
    let mut kept = kept.lock().unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    kept.writes += 1;
    kept.levels.insert(subject, body["compatibility"].as_str().unwrap().to_owned());
    answer(&body)
}

/// A running registry, and the configuration for it.
async fn serve(kept: Kept) -> (Arc<Mutex<Kept>>, Config) {
    let kept = Arc::new(Mutex::new(kept));
    let router = Router::new()
        .route("/base/mode/{subject}", get(get_mode).put(put_mode))
        .route("/base/config/{subject}", get(get_level).put(put_level))
        .route("/base/subjects/{subject}/versions", axum::routing::post(post_version))
        .route("/base/subjects/{subject}/versions/{version}", get(get_version))
        .route("/base/schemas/ids/{id}", get(get_schema))
        .with_state(kept.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (kept, config(&format!("registry = \"{url}\"\nusername = \"robot\"\npassword = \"s3cret\"\n")))
}

fn config(text: &str) -> Config {
    let mut source = Source::parse("", &format!("[schemas]\n{text}"), []);
    Config::read(&mut source)
}

#[tokio::test]
async fn a_registry_gets_every_schema_with_our_ids_once() {
    let (kept, config) = serve(Kept::default()).await;
    let changes = register(&config, "shop.").await.unwrap();
    assert_eq!(changes.len(), 2 * Topic::ALL.len(), "{changes:#?}");
    let order = SchemaName::Order.schema().id;
    assert_eq!(changes.iter().filter(|line| line.contains(&format!("with id {order}"))).count(), 1);
    let writes = {
        let kept = kept.lock().unwrap();
        assert_eq!(kept.subjects.len(), Topic::ALL.len());
        for topic in Topic::ALL {
            let subject = format!("shop.{topic}-value");
            let id = u64::from(topic.spec().schema.schema().id);
            assert_eq!(kept.subjects[&subject], BTreeMap::from([(1, id)]));
            assert_eq!(kept.modes[&subject], "READWRITE", "nobody imports by mistake");
            assert_eq!(kept.levels[&subject], "FULL_TRANSITIVE");
        }
        kept.writes
    };
    assert_eq!(register(&config, "shop.").await.unwrap(), Vec::<String>::new());
    assert_eq!(kept.lock().unwrap().writes, writes, "the second time nothing is written");
    // Another installation in the same registry: the same ids under other subjects.
    assert_eq!(register(&config, "").await.unwrap().len(), 2 * Topic::ALL.len());
}

#[tokio::test]
async fn subject_with_another_id_is_left_alone() {
    let text = SchemaName::ChainRecord.schema().text.to_owned();
    let versions = BTreeMap::from([(1, 1)]);
    let kept = Kept {
        subjects: HashMap::from([("transfers.raw-value".to_owned(), versions)]),
        schemas: HashMap::from([(1, text)]),
        ..Kept::default()
    };
    let (kept, config) = serve(kept).await;
    let error = format!("{:#}", register(&config, "").await.unwrap_err());
    assert!(error.starts_with("subject transfers.raw-value: version 1 has id 1"), "{error}");
    assert_eq!(kept.lock().unwrap().writes, 0);
}

#[tokio::test]
async fn taken_id_leaves_the_subject_writable() {
    let id = u64::from(SchemaName::ChainRecord.schema().id);
    let kept = Kept { schemas: HashMap::from([(id, "\"string\"".to_owned())]), ..Kept::default() };
    let (kept, config) = serve(kept).await;
    let error = format!("{:#}", register(&config, "").await.unwrap_err());
    assert!(error.contains(&format!("Overwrite new schema with id {id}")), "{error}");
    assert_eq!(kept.lock().unwrap().modes["transfers.raw-value"], "READWRITE");
}

/// A killed run leaves a subject in import mode, in which other programs could register any schema.
#[tokio::test]
async fn subject_left_in_import_mode_is_made_writable() {
    let (kept, config) = serve(Kept::default()).await;
    register(&config, "").await.unwrap();
    kept.lock().unwrap().modes.insert("orders-value".into(), "IMPORT".into());
    assert_eq!(register(&config, "").await.unwrap(), ["made orders-value writable again"]);
    assert_eq!(kept.lock().unwrap().modes["orders-value"], "READWRITE");
    assert!(register(&config, "").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_registry_without_import_mode_gets_nothing() {
    let (kept, config) = serve(Kept { has_no_import_mode: true, ..Kept::default() }).await;
    let error = format!("{:#}", register(&config, "").await.unwrap_err());
    assert!(error.contains("set its mode.mutability=true"), "{error}");
    assert!(kept.lock().unwrap().subjects.is_empty());
}

#[tokio::test]
async fn wrong_password_and_no_registry_are_reported() {
    let (_, right) = serve(Kept::default()).await;
    let wrong = Config { password: Some(Secret::new("wrong")), ..right };
    let error = format!("{:#}", register(&wrong, "").await.unwrap_err());
    assert!(error.contains("401 Unauthorized"), "{error}");
    assert!(!error.contains("wrong"), "{error}");
    let error = format!("{:#}", register(&Config::default(), "").await.unwrap_err());
    assert!(error.contains("schemas.registry is not set"), "{error}");
}

#[test]
fn the_registry_is_an_url() {
    assert!(config("").registry.is_none());
    assert!(config("registry = \"\"").registry.is_none());
    assert!(config("registry = \"https://r.example/x\"").registry.is_some());
    for wrong in [
        "r.example:8081",
        "ftp://r.example",
        "https://u:p@r.example",
        "https://:p@r.example",
        "//x",
    ] {
        let mut source = Source::parse("", &format!("[schemas]\nregistry = \"{wrong}\""), []);
        let read = Config::read(&mut source);
        assert!(read.registry.is_none(), "{wrong}");
        let problems = source.finish().unwrap_err();
        assert!(problems.0.iter().any(|line| line.starts_with("schemas.registry: ")), "{wrong}");
    }
}
