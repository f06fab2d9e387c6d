//! `tidemark schema register`: registers every version of every schema with an external registry, under the ids that
//! records carry. Without an external registry, the api serves the schemas below `/registry`.
//!
//! A registry counts ids up from 1 by itself. It accepts given ids only for a subject in import mode, so
//! a subject is in that mode while its versions are registered, and the ids are read back.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::{Client, Method, StatusCode, Url};
use runtime::config::Source;
use schemas::{Schema, Secret, Topic};
use serde_json::{Value, json};

const MEDIA_TYPE: &str = "application/vnd.schemaregistry.v1+json";
const COMPATIBILITY: &str = "FULL_TRANSITIVE";
/// A subject's modes: it accepts given ids, or assigns them.
const IMPORT: &str = "IMPORT";
const READ_WRITE: &str = "READWRITE";
const TIMEOUT: Duration = Duration::from_secs(30);

/// `[schemas]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// Base URL of an external registry.
    pub(crate) registry: Option<Url>,
    username: Option<String>,
    password: Option<Secret>,
}

impl Config {
    /// The commented defaults of the section.
    pub(crate) const DEFAULTS: &str = include_str!("schema_registry/default.toml");

    pub(crate) fn read(source: &mut Source) -> Self {
        let mut section = source.section("schemas");
        let text = section.optional_text("registry").filter(|text| !text.is_empty());
        let registry = text.and_then(|text| match Url::parse(&text) {
            Ok(url)
                if matches!(url.scheme(), "http" | "https")
                    && url.username().is_empty()
                    && url.password().is_none() =>
            {
                Some(url)
            }
            _ => {
                let what =
                    "must be an http or https URL without a user in it: see schemas.username";
                section.problem("registry", what);
                None
            }
        });
        let username = section.optional_text("username");
        let config = Self { registry, username, password: section.secret("password") };
        section.finish();
        config
    }
}

/// Registers schemas that the registry lacks. Returns a line for each change.
///
/// # Errors
/// The registry cannot be reached or refuses, or it has one of the schemas under another id.
pub(crate) async fn register(config: &Config, prefix: &str) -> anyhow::Result<Vec<String>> {
    let base = config.registry.clone().context(
        "schemas.registry is not set: the api serves the schemas itself, below /registry",
    )?;
    // The provider is process-wide; another part may have installed it already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = Client::builder().timeout(TIMEOUT).build()?;
    let registry = Registry { base, config, http };
    let mut changes = Vec::new();
    for topic in Topic::ALL {
        let subject = topic.subject(prefix);
        registry
            .register(&subject, topic.spec().schema.schemas(), &mut changes)
            .await
            .with_context(|| format!("subject {subject}"))?;
    }
    Ok(changes)
}

struct Registry<'a> {
    base: Url,
    config: &'a Config,
    http: Client,
}

impl Registry<'_> {
    /// Registers the versions of a subject that are missing, in their order, and sets its mode and compatibility.
    async fn register(
        &self,
        subject: &str,
        schemas: &[Schema],
        changes: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let mut missing = Vec::new();
        for schema in schemas {
            if !self.has(subject, schema).await? {
                missing.push(schema);
            }
        }
        if !missing.is_empty() {
            self.import(subject, &missing).await?;
            for schema in missing {
                let there = self.has(subject, schema).await?;
                ensure!(there, "version {} was taken but is not served", schema.version);
                changes.push(format!(
                    "registered {subject} version {} with id {}",
                    schema.version, schema.id
                ));
            }
        }
        // A run that was killed during the import leaves the subject in import mode.
        let path = format!("mode/{subject}");
        let (_, mode) = self.ask(Method::GET, &path, None).await?;
        if mode["mode"] == IMPORT {
            self.send(Method::PUT, &format!("{path}?force=true"), json!({ "mode": READ_WRITE }))
                .await?;
            changes.push(format!("made {subject} writable again"));
        }
        let path = format!("config/{subject}");
        let (_, config) = self.ask(Method::GET, &path, None).await?;
        if config["compatibilityLevel"] != COMPATIBILITY {
            let level = json!({ "compatibility": COMPATIBILITY });
            self.send(Method::PUT, &path, level).await?;
            changes.push(format!("set the compatibility of {subject} to {COMPATIBILITY}"));
        }
        Ok(())
    }

    /// Returns `true` if the registry serves this version under the schema's id. Another id is an error, as records
    /// carry the schema's.
    async fn has(&self, subject: &str, schema: &Schema) -> anyhow::Result<bool> {
        let Schema { name, version, id, .. } = *schema;
        let path = format!("subjects/{subject}/versions/{version}");
        let (status, found) = self.ask(Method::GET, &path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        ensure!(status.is_success(), "{}", refusal(&path, status, &found));
        ensure!(
            found["id"] == id,
            "version {version} has id {} in the registry, but records carry {id}: the subject belongs to \
             another program, or was registered without `tidemark schema register`. Delete it there \
             permanently, or set another log.prefix",
            found["id"],
        );
        let (status, by_id) = self.ask(Method::GET, &format!("schemas/ids/{id}"), None).await?;
        let text = by_id["schema"].as_str().unwrap_or_default();
        let same = name.find(text).ok().flatten().is_some_and(|known| known.id == id);
        ensure!(
            status.is_success() && same,
            "the registry serves another schema than ours for id {id}"
        );
        Ok(true)
    }

    /// Registers versions with their ids, in import mode, and ends that mode also after an error.
    async fn import(&self, subject: &str, schemas: &[&Schema]) -> anyhow::Result<()> {
        let path = format!("mode/{subject}?force=true");
        self.send(Method::PUT, &path, json!({ "mode": IMPORT })).await.context(
            "the registry does not accept given ids: set its mode.mutability=true, or use the registry \
             that the api serves below /registry",
        )?;
        let imported = self.import_each(subject, schemas).await;
        let back = self.send(Method::PUT, &path, json!({ "mode": READ_WRITE })).await;
        imported.and(back)
    }

    async fn import_each(&self, subject: &str, schemas: &[&Schema]) -> anyhow::Result<()> {
        for schema in schemas {
            let Schema { version, id, text, .. } = **schema;
            let body =
                json!({ "schemaType": "AVRO", "schema": text, "version": version, "id": id });
            self.send(Method::POST, &format!("subjects/{subject}/versions"), body).await?;
        }
        Ok(())
    }

    /// A request that must succeed.
    async fn send(&self, method: Method, path: &str, body: Value) -> anyhow::Result<()> {
        let (status, answer) = self.ask(method, path, Some(body)).await?;
        if status.is_success() { Ok(()) } else { bail!(refusal(path, status, &answer)) }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let url = format!("{}/{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.http.request(method, &url).header("accept", MEDIA_TYPE);
        if let Some(user) = &self.config.username {
            let password = self.config.password.as_ref().map(Secret::expose);
            let password = password.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            request = request.basic_auth(user, password);
        }
        if let Some(body) = body {
            request = request.header("content-type", MEDIA_TYPE).body(body.to_string());
        }
        let response = request.send().await.with_context(|| format!("cannot reach {url}"))?;
        let status = response.status();
        let text =
            response.text().await.with_context(|| format!("the answer of {url} broke off"))?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}

fn refusal(path: &str, status: StatusCode, answer: &Value) -> String {
    let message = answer["message"].as_str().unwrap_or_default();
    format!("{path}: the registry answers {status} {message}")
}

#[cfg(test)]
mod tests;
