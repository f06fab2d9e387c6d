//! `tidemark topics` and `tidemark schema`: what the back ends must have before any stage runs.

use anyhow::Context;
use log::config::KafkaConfig;
use log::kafka::admin;
use store::config::CqlConfig;

use crate::registration;
use crate::settings::Settings;

const EMBEDDED_LOG: &str = "nothing to do: log.backend is \"embedded\" and makes its topics itself";
const EMBEDDED_TABLES: &str =
    "nothing to do: store.backend is \"embedded\" and makes its tables itself";

/// What an errand has to tell, line by line.
pub(crate) struct Outcome {
    pub(crate) lines: Vec<String>,
    /// Whether all is as it should be.
    pub(crate) is_right: bool,
}

impl Outcome {
    fn right(lines: Vec<String>, otherwise: &str) -> Self {
        let lines = if lines.is_empty() { vec![otherwise.to_owned()] } else { lines };
        Self { lines, is_right: true }
    }
}

/// Makes the topics that are missing, from the one topic table.
///
/// # Errors
/// The broker cannot be reached, or refuses.
pub(crate) async fn create_topics(log: log::Config) -> anyhow::Result<Outcome> {
    let log::config::BackEnd::Kafka(config) = log.back_end else {
        return Ok(Outcome::right(Vec::new(), EMBEDDED_LOG));
    };
    let asked = asked_brokers(&config);
    let create = move || admin::create_topics(&config, &log.layout);
    let changes = tokio::task::spawn_blocking(create).await?.context(asked)?;
    let lines = changes.iter().map(ToString::to_string).collect();
    Ok(Outcome::right(lines, "nothing to do: all topics are there"))
}

/// Compares the broker's topics with the topic table.
///
/// # Errors
/// The broker cannot be reached, or refuses.
pub(crate) async fn check_topics(log: log::Config) -> anyhow::Result<Outcome> {
    let log::config::BackEnd::Kafka(config) = log.back_end else {
        return Ok(Outcome::right(Vec::new(), EMBEDDED_LOG));
    };
    let asked = asked_brokers(&config);
    let check = move || admin::check_topics(&config, &log.layout);
    let problems = tokio::task::spawn_blocking(check).await?.context(asked)?;
    let is_right = problems.is_empty();
    Ok(Outcome { is_right, ..Outcome::right(problems, "the topics are right") })
}

/// Brings the tables to this version's schema.
///
/// # Errors
/// The nodes cannot be reached, or refuse.
pub(crate) async fn migrate_schema(store: store::config::BackEnd) -> anyhow::Result<Outcome> {
    let store::config::BackEnd::Cql(config) = store else {
        return Ok(Outcome::right(Vec::new(), EMBEDDED_TABLES));
    };
    let applied = store::cql::migrate(&config).await.with_context(|| asked_nodes(&config))?;
    let lines = applied.into_iter().map(|name| format!("applied {name}")).collect();
    Ok(Outcome::right(lines, "nothing to do: the schema is this version's"))
}

fn asked_brokers(config: &KafkaConfig) -> String {
    format!("asked the brokers at {}", config.brokers)
}

fn asked_nodes(config: &CqlConfig) -> String {
    format!("asked the nodes at {}", config.nodes.join(","))
}

/// Tells the external schema registry what it does not know yet.
///
/// # Errors
/// There is none, it cannot be reached or refuses, or it has a schema under another id.
pub(crate) async fn register_schemas(settings: Settings) -> anyhow::Result<Outcome> {
    let prefix = settings.log.topic_prefix();
    let told = registration::register(&settings.schemas, prefix).await?;
    Ok(Outcome::right(told, "nothing to do: the registry knows every schema"))
}
