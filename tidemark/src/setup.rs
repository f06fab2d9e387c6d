//! `tidemark topics`, `schema`, `tables`, `backup`, `restore`, `export` and `import`: manual work on the back ends.

pub(crate) mod backup;
pub(crate) mod prune;
pub(crate) mod relocation;
pub(crate) mod tables;
pub(crate) mod verify;

use std::fmt;

use anyhow::{Context, bail};
use log::config::KafkaConfig;
use log::kafka::admin;
use runtime::config::Problems;
use store::config::CqlConfig;
use store::cql::{Migrated, Pending};

use crate::back_end::{IMPORTING, topic_differences};
use crate::output::say;
use crate::schema_registry;
use crate::settings::Settings;

const EMBEDDED_LOG: &str = "nothing to do: log.backend is \"embedded\" and makes its topics itself";
const EMBEDDED_TABLES: &str =
    "nothing to do: store.backend is \"embedded\" and makes its tables itself";

const MIGRATED: &str = "nothing to do: the schema is up to date";

/// Lines to print, and the success of the command.
pub(crate) struct Outcome {
    pub(crate) lines: Vec<String>,
    pub(crate) is_success: bool,
}

impl Outcome {
    pub(crate) fn success(lines: Vec<String>, otherwise: &str) -> Self {
        let lines = if lines.is_empty() { vec![otherwise.to_owned()] } else { lines };
        Self { lines, is_success: true }
    }

    /// As [`Outcome::success`], if all records could be read. Otherwise prints the unreadable ones as messages, and
    /// fails.
    pub(crate) fn readable(lines: Vec<String>, otherwise: &str, unreadable: &[String]) -> Self {
        if unreadable.is_empty() {
            return Self::success(lines, otherwise);
        }
        unreadable.iter().for_each(|line| say(line));
        Self { lines, is_success: false }
    }
}

/// A comparison found differences: exit code 2.
#[derive(Debug)]
pub(crate) struct Different(pub(crate) String);

impl fmt::Display for Different {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Different {}

/// An error of the command line: exit code 64.
pub(crate) fn misuse(problem: impl Into<String>) -> anyhow::Error {
    Problems(vec![problem.into()]).into()
}

/// Creates the topics that are missing.
pub(crate) async fn create_topics(log: log::Config) -> anyhow::Result<Outcome> {
    let log::config::BackEnd::Kafka(config) = log.back_end else {
        return Ok(Outcome::success(Vec::new(), EMBEDDED_LOG));
    };
    let asked = asked_brokers(&config);
    let create = move || admin::create_topics(&config, &log.layout);
    let lines = tokio::task::spawn_blocking(create).await?.context(asked)?;
    Ok(Outcome::success(lines, "nothing to do: all topics exist"))
}

/// Reports topics that differ from the configuration.
pub(crate) async fn check_topics(log: log::Config) -> anyhow::Result<Outcome> {
    let log::config::BackEnd::Kafka(config) = log.back_end else {
        return Ok(Outcome::success(Vec::new(), EMBEDDED_LOG));
    };
    let asked = asked_brokers(&config);
    let check = move || topic_differences(&config, &log.layout);
    let Some(differences) = tokio::task::spawn_blocking(check).await?.context(asked)? else {
        bail!("{IMPORTING}");
    };
    let is_success = differences.is_empty();
    let lines = differences.iter().map(ToString::to_string).collect();
    Ok(Outcome { is_success, ..Outcome::success(lines, "all topics match the configuration") })
}

/// Applies missing migrations, and recreates dropped tables; or lists the pending steps.
pub(crate) async fn migrate_schema(
    store: store::config::BackEnd,
    is_check: bool,
) -> anyhow::Result<Outcome> {
    let store::config::BackEnd::Cql(config) = store else {
        return Ok(Outcome::success(Vec::new(), EMBEDDED_TABLES));
    };
    if is_check {
        let pending = store::cql::pending(&config).await.with_context(|| asked_nodes(&config))?;
        let lines = pending_lines(&pending);
        let is_success = lines.is_empty();
        return Ok(Outcome { is_success, ..Outcome::success(lines, MIGRATED) });
    }
    let Migrated { applied, created } =
        store::cql::migrate(&config).await.with_context(|| asked_nodes(&config))?;
    let applied = applied.into_iter().map(|name| format!("applied {name}"));
    let create = |table| {
        format!(
            "created table {table}, which was dropped: run `tidemark tables rebuild`, which fills it"
        )
    };
    let lines = applied.chain(created.into_iter().map(create)).collect();
    Ok(Outcome::success(lines, MIGRATED))
}

/// Lists the steps of a migration, and whether older processes may continue to run.
fn pending_lines(pending: &Pending) -> Vec<String> {
    let Pending { migrations, missing, found, readable_from } = pending;
    let mut lines: Vec<_> = missing
        .iter()
        .map(|table| format!("table {table} was dropped and is to be created again"))
        .collect();
    lines.extend(migrations.iter().map(|name| format!("{name} is to be applied")));
    if migrations.is_empty() || *found == 0 {
        return lines;
    }
    lines.push(if readable_from <= found {
        "processes of the release that uses the tables now may run on, and be started again".to_owned()
    } else {
        "stop every process of the release that uses the tables now: it refuses them afterwards, and there is no way back \
         without a backup of the keyspace"
            .to_owned()
    });
    lines
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_who_may_run_on() {
        let lines = |found, readable_from, migrations: &[&str]| {
            let migrations = migrations.iter().map(|name| (*name).to_owned()).collect();
            pending_lines(&Pending { migrations, missing: Vec::new(), found, readable_from })
                .join("; ")
        };
        assert_eq!(lines(1, 1, &[]), "");
        assert_eq!(lines(0, 1, &["0001_tables"]), "0001_tables is to be applied");
        let additive = lines(1, 1, &["0002_more"]);
        assert!(additive.contains("may run on"), "{additive}");
        let other = lines(1, 2, &["0002_other"]);
        assert!(other.contains("stop every process"), "{other}");
        let dropped =
            Pending { missing: vec!["chains".to_owned()], found: 1, ..Pending::default() };
        assert_eq!(
            pending_lines(&dropped),
            ["table chains was dropped and is to be created again"]
        );
    }
}
