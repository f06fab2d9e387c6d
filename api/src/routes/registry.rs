//! The schemas, as Confluent's schema registry serves them: `/registry` is the base URL for any client.
//!
//! It only reads: what is served is compiled in, and the same in every installation but for the prefix of
//! its topics. It asks for no signature, because schemas are as public as this source.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use schemas::{Schema, SchemaName, Topic};
use serde::Deserialize;
use serde_json::{Value, json};

const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";
/// Every later schema of a subject fits every earlier one, both ways.
const COMPATIBILITY: &str = "FULL_TRANSITIVE";
/// Most bytes of such a body: far more than any schema here has.
const BODY_BYTES_MAX: usize = 128 * 1024;

/// Prefix of the names of topics.
type Prefix = State<Arc<str>>;

/// Its routes. They have a path of their own, or they would be mistaken for those of the service.
pub(crate) fn routes<S>(topic_prefix: String) -> Router<S> {
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
        .fallback(|| async { Problem::NoSuchPath })
        .method_not_allowed_fallback(|| async { Problem::Method })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(topic_prefix.into())
}

type Answer = Result<Reply, Problem>;

/// JSON under the registry's own media type.
struct Reply(Value);

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, CONTENT_TYPE)], self.0.to_string()).into_response()
    }
}

/// Why there is no answer, with the codes and words that clients of registries know.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("HTTP 404 Not Found")]
    NoSuchPath,
    #[error("HTTP 405 Method Not Allowed")]
    Method,
    #[error("Subject '{0}' not found.")]
    Subject(String),
    #[error("Version {0} not found.")]
    Version(u32),
    #[error("Schema {0} not found")]
    Id(String),
    #[error("Schema not found")]
    Schema,
    #[error("The request is not {{\"schema\": \"…\"}}")]
    Body,
    #[error("Either the input schema or one its references is invalid: {0}")]
    Invalid(String),
    #[error("Only AVRO schemas are here, not {0}")]
    Type(String),
    #[error(
        "The specified version '{0}' is not a valid version id. Allowed values are between \
         [1, 2^31-1] and the string \"latest\""
    )]
    VersionId(String),
    #[error("Subject {0} is in read-only mode")]
    ReadOnly(String),
}

impl Problem {
    const fn codes(&self) -> (StatusCode, u32) {
        match self {
            Self::NoSuchPath => (StatusCode::NOT_FOUND, 404),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, 405),
            Self::Subject(_) => (StatusCode::NOT_FOUND, 40_401),
            Self::Version(_) => (StatusCode::NOT_FOUND, 40_402),
            Self::Id(_) | Self::Schema => (StatusCode::NOT_FOUND, 40_403),
            Self::Body => (StatusCode::BAD_REQUEST, 400),
            Self::Invalid(_) | Self::Type(_) => (StatusCode::UNPROCESSABLE_ENTITY, 42_201),
            Self::VersionId(_) => (StatusCode::UNPROCESSABLE_ENTITY, 42_202),
            Self::ReadOnly(_) => (StatusCode::UNPROCESSABLE_ENTITY, 42_205),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code) = self.codes();
        let body = json!({ "error_code": code, "message": self.to_string() });
        (status, Reply(body)).into_response()
    }
}

/// The body of a request about a schema.
#[derive(Deserialize)]
struct Asked {
    schema: String,
    #[serde(rename = "schemaType")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct OfSubject {
    subject: Option<String>,
}

/// The topic whose values have this subject.
fn topic(prefix: &str, subject: &str) -> Result<Topic, Problem> {
    let is = |topic: &Topic| topic.subject(prefix) == subject;
    Topic::ALL.into_iter().find(is).ok_or_else(|| Problem::Subject(subject.to_owned()))
}

/// The subjects that have this schema.
fn carriers(prefix: &str, name: SchemaName) -> impl Iterator<Item = String> {
    let topics = Topic::ALL.into_iter().filter(move |topic| topic.spec().schema == name);
    topics.map(move |topic| topic.subject(prefix))
}

fn schema_by_id(text: &str) -> Result<&'static Schema, Problem> {
    let id: Option<u32> = text.parse().ok();
    let mut all = SchemaName::ALL.into_iter().flat_map(SchemaName::schemas);
    all.find(|schema| Some(schema.id) == id).ok_or_else(|| Problem::Id(text.to_owned()))
}

/// The version of a subject that the body of a request is.
fn find(topic: Topic, body: &[u8]) -> Result<Option<&'static Schema>, Problem> {
    let asked: Asked = serde_json::from_slice(body).map_err(|_| Problem::Body)?;
    match asked.kind {
        Some(kind) if kind != "AVRO" => Err(Problem::Type(kind)),
        _ => topic
            .spec()
            .schema
            .find(&asked.schema)
            .map_err(|error| Problem::Invalid(error.to_string())),
    }
}

async fn subjects(State(prefix): Prefix) -> Answer {
    Ok(Reply(Topic::ALL.iter().map(|topic| topic.subject(&prefix)).collect()))
}

async fn versions(State(prefix): Prefix, Path(subject): Path<String>) -> Answer {
    let schemas = topic(&prefix, &subject)?.spec().schema.schemas();
    Ok(Reply(schemas.iter().map(|schema| schema.version).collect()))
}

async fn version(
    State(prefix): Prefix,
    Path((subject, version)): Path<(String, String)>,
) -> Answer {
    let schemas = topic(&prefix, &subject)?.spec().schema.schemas();
    let number: Option<u32> = version.parse().ok().filter(|n| (1..=i32::MAX as u32).contains(n));
    let schema = match (version.as_str(), number) {
        ("latest" | "-1", _) => schemas.last().ok_or(Problem::Schema)?,
        (_, None) => return Err(Problem::VersionId(version)),
        (_, Some(number)) => schemas
            .iter()
            .find(|schema| schema.version == number)
            .ok_or(Problem::Version(number))?,
    };
    registered(&subject, schema)
}

fn registered(subject: &str, schema: &Schema) -> Answer {
    let Schema { version, id, text, .. } = *schema;
    Ok(Reply(json!({ "subject": subject, "version": version, "id": id, "schema": text })))
}

/// Which version of the subject a schema is, whatever its white space and attribute order.
async fn look_up(State(prefix): Prefix, Path(subject): Path<String>, body: Bytes) -> Answer {
    let schema = find(topic(&prefix, &subject)?, &body)?.ok_or(Problem::Schema)?;
    registered(&subject, schema)
}

/// Producers that register what they write find it registered; nothing else can be.
async fn register(State(prefix): Prefix, Path(subject): Path<String>, body: Bytes) -> Answer {
    match find(topic(&prefix, &subject)?, &body)? {
        Some(schema) => Ok(Reply(json!({ "id": schema.id }))),
        None => Err(Problem::ReadOnly(subject)),
    }
}

async fn types() -> Answer {
    Ok(Reply(json!(["AVRO"])))
}

async fn by_id(
    State(prefix): Prefix,
    Path(id): Path<String>,
    Query(of): Query<OfSubject>,
) -> Answer {
    let schema = schema_by_id(&id)?;
    match of.subject.filter(|subject| !subject.is_empty()) {
        Some(subject) if topic(&prefix, &subject)?.spec().schema != schema.name => {
            Err(Problem::Id(id))
        }
        _ => Ok(Reply(json!({ "schema": schema.text }))),
    }
}

async fn subjects_of(State(prefix): Prefix, Path(id): Path<String>) -> Answer {
    Ok(Reply(carriers(&prefix, schema_by_id(&id)?.name).collect()))
}

async fn versions_of(State(prefix): Prefix, Path(id): Path<String>) -> Answer {
    let Schema { name, version, .. } = *schema_by_id(&id)?;
    let version_of = |subject| json!({ "subject": subject, "version": version });
    Ok(Reply(carriers(&prefix, name).map(version_of).collect()))
}

async fn config() -> Answer {
    Ok(Reply(json!({ "compatibilityLevel": COMPATIBILITY })))
}

async fn config_of(State(prefix): Prefix, Path(subject): Path<String>) -> Answer {
    topic(&prefix, &subject)?;
    config().await
}

async fn mode() -> Answer {
    Ok(Reply(json!({ "mode": "READONLY" })))
}

async fn mode_of(State(prefix): Prefix, Path(subject): Path<String>) -> Answer {
    topic(&prefix, &subject)?;
    mode().await
}
