//! The schemas, as Confluent's schema registry serves them: `/registry` is the base URL of any client.
//!
//! It is read-only: the schemas are compiled in, and every installation has the same ones under the
//! prefix of its topics. It needs no signature, because schemas are as public as this source.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use runtime::Clock;
use schemas::{Schema, SchemaName, Topic};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::customers::Customers;
use crate::machine::query::Query;

const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";
/// Compatibility level of all subjects: each version can be read with every other one.
const COMPATIBILITY: &str = "FULL_TRANSITIVE";
/// Maximum bytes of a body: a schema of [`text_bytes_max`], with each quote escaped.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Log line of refusals to producers.
const TOO_MANY_SCHEMAS: &str = "refused schemas: one address sends too many to the registry";

/// Maximum bytes of a schema's text: twice the longest known schema, to allow for white space. A longer text is not one
/// of the known schemas.
fn text_bytes_max() -> usize {
    static MAX: LazyLock<usize> = LazyLock::new(|| {
        let all = SchemaName::ALL.into_iter().flat_map(SchemaName::schemas);
        2 * all.map(|schema| schema.text.len()).max().unwrap_or_default()
    });
    *MAX
}

/// The prefix of the names of topics.
type Prefix = State<Arc<str>>;

/// Routes below `/registry`, with their own fallbacks: the others answer in plain text.
pub(crate) fn routes<S>(topic_prefix: String, clock: Arc<dyn Clock>) -> Router<S> {
    let producers = Arc::new(Customers::new(Some(PARSED_PER_SECOND), TOO_MANY_SCHEMAS, clock));
    Router::new()
        .route("/subjects", get(subjects))
        .route("/subjects/{subject}", post(look_up))
        .route("/subjects/{subject}/versions", get(versions).post(register))
        .route("/subjects/{subject}/versions/{version}", get(version))
        .route("/schemas/types", get(types))
        .route("/schemas/ids/{id}", get(by_id))
        .route("/schemas/ids/{id}/subjects", get(subjects_of))
        .route("/schemas/ids/{id}/versions", get(versions_of))
        .route("/config", get(config))
        .route("/config/{subject}", get(config_of))
        .route("/mode", get(mode))
        .route("/mode/{subject}", get(mode_of))
        .fallback(|| async { Problem::not_found(404, "HTTP 404 Not Found") })
        .method_not_allowed_fallback(|| async {
            Problem(StatusCode::METHOD_NOT_ALLOWED, 405, "HTTP 405 Method Not Allowed".into())
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(producers, limited))
        .with_state(topic_prefix.into())
}

/// Maximum number of schemas that clients of one address may post in a second, in bursts of twice
/// this number: producers post their schemas when they start.
const PARSED_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("not zero");

/// Limits requests that post a schema to be parsed. Those that only read are not limited.
async fn limited(
    State(producers): State<Arc<Customers>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() == Method::POST
        && let Err(refusal) = producers.admit(&request)
    {
        let problem = Problem(StatusCode::TOO_MANY_REQUESTS, 429, refusal.to_string());
        return ([(header::RETRY_AFTER, "1")], problem).into_response();
    }
    next.run(request).await
}

type Answer = Result<Reply, Problem>;

/// Parameters of a path. A path whose parameters are not text is answered as not found.
struct Segments<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let none = |_| Problem::not_found(404, "HTTP 404 Not Found");
        path.map(|Path(segments)| Self(segments)).map_err(none)
    }
}

/// JSON under the registry's own media type.
struct Reply(Value);

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, CONTENT_TYPE)], self.0.to_string()).into_response()
    }
}

/// Refusal of a request: status, code and message as clients of registries know them.
struct Problem(StatusCode, u32, String);

impl Problem {
    fn not_found(code: u32, message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, code, message.into())
    }

    fn unprocessable(code: u32, message: String) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    fn no_id(text: &str) -> Self {
        Self::not_found(40_403, format!("Schema {text} not found"))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(status, code, message) = self;
        (status, Reply(json!({ "error_code": code, "message": message }))).into_response()
    }
}

/// The body of a request about a schema.
#[derive(Deserialize)]
struct SchemaBody {
    schema: String,
    #[serde(rename = "schemaType")]
    kind: Option<String>,
}

/// The topic of a subject.
fn topic(prefix: &str, subject: &str) -> Result<Topic, Problem> {
    let is = |topic: &Topic| topic.subject(prefix) == subject;
    let none = || Problem::not_found(40_401, format!("Subject '{subject}' not found."));
    Topic::ALL.into_iter().find(is).ok_or_else(none)
}

/// The subjects with a schema.
fn carriers(prefix: &str, name: SchemaName) -> impl Iterator<Item = String> {
    let topics = Topic::ALL.into_iter().filter(move |topic| topic.spec().schema == name);
    topics.map(move |topic| topic.subject(prefix))
}

fn schema_by_id(text: &str) -> Result<&'static Schema, Problem> {
    let id: Option<u32> = text.parse().ok();
    let mut all = SchemaName::ALL.into_iter().flat_map(SchemaName::schemas);
    all.find(|schema| Some(schema.id) == id).ok_or_else(|| Problem::no_id(text))
}

/// The version of a subject whose schema is in the body of a request.
fn find(topic: Topic, body: &[u8]) -> Result<Option<&'static Schema>, Problem> {
    let request: SchemaBody = serde_json::from_slice(body).map_err(|_| {
        let message = "The request is not {\"schema\": \"…\"}".to_owned();
        Problem(StatusCode::BAD_REQUEST, 400, message)
    })?;
    if let Some(kind) = request.kind.filter(|kind| kind != "AVRO") {
        let message = format!("Only AVRO schemas are here, not {kind}");
        return Err(Problem::unprocessable(42_201, message));
    }
    if request.schema.len() > text_bytes_max() {
        let message = format!("A schema has at most {} bytes here", text_bytes_max());
        return Err(Problem::unprocessable(42_201, message));
    }
    let invalid = "Either the input schema or one its references is invalid";
    let found = topic.spec().schema.find(&request.schema);
    found.map_err(|error| Problem::unprocessable(42_201, format!("{invalid}: {error}")))
}

async fn subjects(State(prefix): Prefix) -> Answer {
    Ok(Reply(Topic::ALL.iter().map(|topic| topic.subject(&prefix)).collect()))
}

async fn versions(State(prefix): Prefix, Segments(subject): Segments<String>) -> Answer {
    let schemas = topic(&prefix, &subject)?.spec().schema.schemas();
    Ok(Reply(schemas.iter().map(|schema| schema.version).collect()))
}

async fn version(
    State(prefix): Prefix,
    Segments((subject, version)): Segments<(String, String)>,
) -> Answer {
    let schemas = topic(&prefix, &subject)?.spec().schema.schemas();
    if matches!(&*version, "latest" | "-1") {
        return registered(&subject, schemas.last());
    }
    let number: Option<u32> = version.parse().ok().filter(|n| (1..=i32::MAX as u32).contains(n));
    let number = number.ok_or_else(|| {
        let allowed = "Allowed values are between [1, 2^31-1] and the string \"latest\"";
        let problem = format!("The specified version '{version}' is not a valid version id.");
        Problem::unprocessable(42_202, format!("{problem} {allowed}"))
    })?;
    let schema = schemas.iter().find(|schema| schema.version == number);
    let none = || Problem::not_found(40_402, format!("Version {number} not found."));
    registered(&subject, Some(schema.ok_or_else(none)?))
}

fn registered(subject: &str, schema: Option<&Schema>) -> Answer {
    let none = || Problem::not_found(40_403, "Schema not found");
    let Schema { version, id, text, .. } = *schema.ok_or_else(none)?;
    Ok(Reply(json!({ "subject": subject, "version": version, "id": id, "schema": text })))
}

/// Version of a subject with this schema; white space and the order of attributes are ignored.
async fn look_up(
    State(prefix): Prefix,
    Segments(subject): Segments<String>,
    body: Bytes,
) -> Answer {
    registered(&subject, find(topic(&prefix, &subject)?, &body)?)
}

/// Producers register what they write: a known schema is found, any other is refused.
async fn register(
    State(prefix): Prefix,
    Segments(subject): Segments<String>,
    body: Bytes,
) -> Answer {
    match find(topic(&prefix, &subject)?, &body)? {
        Some(schema) => Ok(Reply(json!({ "id": schema.id }))),
        None => {
            let message = format!("Subject {subject} is in read-only mode");
            Err(Problem::unprocessable(42_205, message))
        }
    }
}

async fn types() -> Answer {
    Ok(Reply(json!(["AVRO"])))
}

async fn by_id(State(prefix): Prefix, Segments(id): Segments<String>, query: Query) -> Answer {
    let schema = schema_by_id(&id)?;
    let twice = |_| Problem(StatusCode::BAD_REQUEST, 400, "subject is given twice".to_owned());
    let subject = query.text("subject").map_err(twice)?;
    match subject.filter(|subject| !subject.is_empty()) {
        Some(subject) if topic(&prefix, subject)?.spec().schema != schema.name => {
            Err(Problem::no_id(&id))
        }
        _ => Ok(Reply(json!({ "schema": schema.text }))),
    }
}

async fn subjects_of(State(prefix): Prefix, Segments(id): Segments<String>) -> Answer {
    Ok(Reply(carriers(&prefix, schema_by_id(&id)?.name).collect()))
}

async fn versions_of(State(prefix): Prefix, Segments(id): Segments<String>) -> Answer {
    let Schema { name, version, .. } = *schema_by_id(&id)?;
    let version_of = |subject| json!({ "subject": subject, "version": version });
    Ok(Reply(carriers(&prefix, name).map(version_of).collect()))
}

async fn config() -> Answer {
    Ok(Reply(json!({ "compatibilityLevel": COMPATIBILITY })))
}

async fn config_of(State(prefix): Prefix, Segments(subject): Segments<String>) -> Answer {
    topic(&prefix, &subject)?;
    config().await
}

async fn mode() -> Answer {
    Ok(Reply(json!({ "mode": "READONLY" })))
}

async fn mode_of(State(prefix): Prefix, Segments(subject): Segments<String>) -> Answer {
    topic(&prefix, &subject)?;
    mode().await
}
