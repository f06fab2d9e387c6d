//! `tidemark topics`, `tidemark schema` and `tidemark tables`: what is done to the back ends by hand.

pub(crate) mod backup;
pub(crate) mod prune;
pub(crate) mod tables;

use anyhow::Context;
use log::config::KafkaConfig;
use log::kafka::admin;
use store::config::CqlConfig;

use crate::schema_registry;
use crate::settings::Settings;

const EMBEDDED_LOG: &str = "nothing to do: log.backend is \"embedded\" and makes its topics itself";
const EMBEDDED_TABLES: &str =
    "nothing to do: store.backend is \"embedded\" and makes its tables itself";

/// What to print, and whether to exit with success.
pub(crate) struct Outcome {
    pub(crate) lines: Vec<String>,
    pub(crate) is_success: bool,
}

impl Outcome {
    pub(crate) fn success(lines: Vec<String>, otherwise: &str) -> Self {
        let lines = if lines.is_empty() { vec![otherwise.to_owned()] } else { lines };
        Self { lines, is_success: true }
    }
}

/// Creates the topics that are missing.
pub(crate) async fn create_topics(log: log::Config) -> anyhow::Result<Outcome> {
    let log::config::BackEnd::Kafka(config) = log.back_end else {
        return Ok(Outcome::success(Vec::new(), EMBEDDED_LOG));
    };
    let asked = asked_brokers(&config);
    let create = move || admin::create_topics(&config, &log.layout);
    let changes = tokio::task::spawn_blocking(create).await?.context(asked)?;
    let lines = changes.iter().map(ToString::to_string).collect();
    Ok(Outcome::success(lines, "nothing to do: all topics exist"))
}

/// Reports topics that differ from the configuration.
pub(crate) async fn check_topics(log: log::Config) -> anyhow::Result<Outcome> {
    let log::config::BackEnd::Kafka(config) = log.back_end else {
        return Ok(Outcome::success(Vec::new(), EMBEDDED_LOG));
    };
    let asked = asked_brokers(&config);
    let check = move || admin::check_topics(&config, &log.layout);
    let differences = tokio::task::spawn_blocking(check).await?.context(asked)?;
    let is_success = differences.is_empty();
    let lines = differences.iter().map(ToString::to_string).collect();
    Ok(Outcome { is_success, ..Outcome::success(lines, "all topics match the configuration") })
}

/// Applies the migrations that the tables lack.
pub(crate) async fn migrate_schema(store: store::config::BackEnd) -> anyhow::Result<Outcome> {
    let store::config::BackEnd::Cql(config) = store else {
        return Ok(Outcome::success(Vec::new(), EMBEDDED_TABLES));
    };
    let applied = store::cql::migrate(&config).await.with_context(|| asked_nodes(&config))?;
    let lines = applied.into_iter().map(|name| format!("applied {name}")).collect();
    Ok(Outcome::success(lines, "nothing to do: the schema is up to date"))
}

fn asked_brokers(config: &KafkaConfig) -> String {
    format!("asked the brokers at {}", config.brokers)
}

fn asked_nodes(config: &CqlConfig) -> String {
    format!("asked the nodes at {}", config.nodes.join(","))
}

/// Registers the schemas that the external registry lacks.
pub(crate) async fn register_schemas(settings: Settings) -> anyhow::Result<Outcome> {
    let prefix = settings.log.topic_prefix();
    let changes = schema_registry::register(&settings.schemas, prefix).await?;
    Ok(Outcome::success(changes, "nothing to do: the registry has every schema"))
}
