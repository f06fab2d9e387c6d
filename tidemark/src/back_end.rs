//! Opens the configured back ends, and waits for those that are unavailable.

pub(crate) mod announce;
pub(crate) mod data_folder;
pub(crate) mod exposure;
pub(crate) mod fit;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use log::Log;
use log::config::KafkaConfig;
use log::embedded::{EmbeddedLog, ReadOnlyLog};
use log::kafka::KafkaLog;
use log::kafka::admin::{self, Difference};
use runtime::readiness::{Part, Readiness};
use runtime::task::Backoff;
use runtime::{Clock, SystemClock};
use schemas::Layout;
use store::Store;
use store::config::CqlConfig;
use store::cql::CqlStore;
use store::embedded::{self, EmbeddedStore};

use crate::settings::Settings;

/// First and longest wait before another attempt; it doubles each time.
const WAIT: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Duration of the first attempt after which the wait is reported. The attempt continues.
const SILENCE: Duration = Duration::from_secs(3);

/// Reason to wait although the topics exist.
pub(crate) const IMPORTING: &str = "the topics: an import into them is under way; if it was interrupted run `tidemark import` again";

/// The longest wait for tables that are only read.
pub(crate) const TABLES_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of one attempt to open a back end.
#[derive(Debug)]
enum Availability<T> {
    There(T),
    /// Not available yet, with the reason.
    NotYet(String),
}

/// Opens the log; on Kafka it returns once the broker answers and has the topics.
///
/// # Errors
/// A permanent failure, such as a damaged file or one in use, topics of another layout.
pub(crate) async fn open_log(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    readiness: &Readiness,
) -> anyhow::Result<Arc<dyn Log>> {
    let part = readiness.part("log", "opening it");
    let log = match &settings.log.back_end {
        log::config::BackEnd::Embedded => {
            let dir = &settings.process.data_dir;
            data_folder::prepare(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            data_folder::check_complete(dir)?;
            let log = EmbeddedLog::open(dir, settings.log.layout, clock.clone())?;
            Arc::new(log.with_readiness(readiness)) as Arc<dyn Log>
        }
        log::config::BackEnd::Kafka(config) => {
            open_kafka(config, settings.log.layout, &part).await?
        }
    };
    Ok(log)
}

/// As [`open_log`], for manual commands: a missing embedded log is an error, not created.
pub(crate) async fn open_existing_log(
    settings: &Settings,
    readiness: &Readiness,
) -> anyhow::Result<Arc<dyn Log>> {
    if let log::config::BackEnd::Embedded = &settings.log.back_end {
        drop(ReadOnlyLog::open(&settings.process.data_dir)?);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    open_log(settings, &clock, readiness).await
}

/// Opens the tables; on CQL it returns once the nodes answer and have the schema.
///
/// # Errors
/// A permanent failure, such as a damaged file or a schema of a later version.
pub(crate) async fn open_tables(
    settings: &Settings,
    readiness: &Readiness,
) -> anyhow::Result<Arc<dyn Store>> {
    let part = readiness.part("tables", "opening them");
    match &settings.store {
        store::config::BackEnd::Embedded => {
            Ok(Arc::new(EmbeddedStore::open(&settings.process.data_dir)?))
        }
        store::config::BackEnd::Cql(config) => open_cql(config, &part).await,
    }
}

/// Opens the tables for reading; `None` if the embedded file is missing. Does not retry: the CQL
/// nodes have [`TABLES_TIMEOUT`] to answer.
pub(crate) async fn read_tables(settings: &Settings) -> anyhow::Result<Option<Arc<dyn Store>>> {
    match &settings.store {
        store::config::BackEnd::Embedded => {
            settings.check_tables()?;
            let dir = settings.process.data_dir.clone();
            let open = move || match embedded::are_in(&dir) {
                true => EmbeddedStore::read_only(&dir).map(|tables| Some(Arc::new(tables) as _)),
                false => Ok(None),
            };
            Ok(tokio::task::spawn_blocking(open).await??)
        }
        store::config::BackEnd::Cql(config) => {
            let nodes = config.nodes.join(",");
            let opened = tokio::time::timeout(TABLES_TIMEOUT, CqlStore::open(config)).await;
            let tables = opened.with_context(|| format!("{nodes}: no answer"))?;
            Ok(Some(Arc::new(tables.with_context(|| format!("asked the nodes at {nodes}"))?)))
        }
    }
}

async fn open_kafka(
    config: &KafkaConfig,
    layout: Layout,
    part: &Part,
) -> anyhow::Result<Arc<dyn Log>> {
    let brokers = &config.brokers;
    part.progress(format!("asking {brokers}"));
    wait_for(part, brokers, || async move {
        let checked = config.clone();
        match tokio::task::spawn_blocking(move || topic_differences(&checked, &layout)).await? {
            Ok(Some(differences)) => Verdict::of(differences).availability(),
            Ok(None) => Ok(Availability::NotYet(IMPORTING.to_owned())),
            Err(log::Error::Transient(cause)) => {
                Ok(Availability::NotYet(format!("{brokers}: {cause}")))
            }
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    Ok(Arc::new(KafkaLog::open(config, layout)?))
}

/// Returns the topics' differences from the configuration; `None` while an import into them is unfinished.
pub(crate) fn topic_differences(
    config: &KafkaConfig,
    layout: &Layout,
) -> Result<Option<Vec<Difference>>, log::Error> {
    let differences = admin::check_topics(config, layout)?;
    // Read after the topics: an import is marked before it creates topics, so topics of an
    // unfinished import are never taken for complete.
    Ok((!admin::is_importing(config, layout)?).then_some(differences))
}

/// Consequences for a process of the differences that `tidemark topics check` prints.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Differences on which no process may run: ids and record order depend on the partitions.
    pub(crate) wrong: Vec<String>,
    /// Differences that `tidemark topics create` corrects.
    pub(crate) lacking: Vec<String>,
    /// Differences that may be intended.
    pub(crate) odd: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(differences: Vec<Difference>) -> Self {
        let mut verdict = Self::default();
        for difference in differences {
            let lines = match &difference {
                Difference::Partitions { .. } => &mut verdict.wrong,
                Difference::Replication { .. }
                | Difference::Setting { setting: "retention.ms" | "retention.bytes", .. } => {
                    &mut verdict.odd
                }
                Difference::Missing { .. }
                | Difference::Chains { .. }
                | Difference::Setting { .. } => &mut verdict.lacking,
            };
            lines.push(difference.to_string());
        }
        verdict
    }

    fn availability(self) -> anyhow::Result<Availability<()>> {
        if !self.wrong.is_empty() {
            bail!("the topics have another layout: {}", self.wrong.join(", "));
        }
        if let [first, more @ ..] = self.lacking.as_slice() {
            let others = match more.len() {
                0 => String::new(),
                count => format!(" (and {count} more)"),
            };
            let reason = format!("the topics: {first}{others}: run `tidemark topics create`");
            return Ok(Availability::NotYet(reason));
        }
        for line in self.odd {
            tracing::warn!("a topic is not as `tidemark topics create` makes it: {line}");
        }
        Ok(Availability::There(()))
    }
}

async fn open_cql(config: &CqlConfig, part: &Part) -> anyhow::Result<Arc<dyn Store>> {
    let nodes = config.nodes.join(",");
    part.progress(format!("asking {nodes}"));
    let nodes = &nodes;
    let tables = wait_for(part, nodes, || async move {
        match CqlStore::open(config).await {
            Ok(tables) => Ok(Availability::There(tables)),
            Err(store::Error::Transient(cause)) => {
                Ok(Availability::NotYet(format!("{nodes}: {cause}")))
            }
            // An operator can create or migrate the tables while this process waits.
            Err(
                error @ (store::Error::SchemaMissing { .. }
                | store::Error::SchemaOutdated { .. }
                | store::Error::TablesMissing { .. }),
            ) => Ok(Availability::NotYet(error.to_string())),
            Err(error) => Err(error.into()),
        }
    });
    Ok(Arc::new(tables.await?))
}

/// Retries until the back end is available or fails permanently. A stop ends the wait by dropping
/// the future.
async fn wait_for<T, F: Future<Output = anyhow::Result<Availability<T>>>>(
    part: &Part,
    who: &str,
    mut open: impl FnMut() -> F,
) -> anyhow::Result<T> {
    let mut delays = Backoff::new(WAIT, WAIT_MAX);
    let mut first = pin!(open());
    let mut answer = match tokio::time::timeout(SILENCE, &mut first).await {
        Ok(answer) => answer?,
        Err(_) => {
            part.waiting(format!("{who}: no answer yet"));
            first.await?
        }
    };
    loop {
        match answer {
            Availability::There(found) => {
                part.ready();
                return Ok(found);
            }
            Availability::NotYet(reason) => part.waiting(reason),
        }
        tokio::time::sleep(delays.next_delay()).await;
        answer = open().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(topic: &str) -> Difference {
        Difference::Missing { topic: topic.to_owned() }
    }

    fn setting(topic: &str, setting: &'static str, actual: &str, wanted: &str) -> Difference {
        let (topic, wanted) = (topic.to_owned(), wanted.to_owned());
        Difference::Setting { topic, setting, actual: Some(actual.to_owned()), wanted }
    }

    fn reason(differences: Vec<Difference>) -> Option<String> {
        match Verdict::of(differences).availability() {
            Ok(Availability::There(())) => None,
            Ok(Availability::NotYet(reason)) => Some(reason),
            Err(error) => Some(format!("error: {error}")),
        }
    }

    #[test]
    fn what_can_be_made_right_is_waited_for() {
        assert_eq!(reason(vec![]), None);
        assert_eq!(reason(vec![setting("orders", "retention.ms", "1", "2")]), None);
        let topic = || "orders".to_owned();
        let replicas = Difference::Replication { topic: topic(), actual: 1, wanted: 3 };
        assert_eq!(reason(vec![replicas]), None);
        let retention = setting("a", "retention.ms", "1", "2");
        assert_eq!(
            reason(vec![retention, missing("orders"), missing("b")]),
            Some("the topics: orders is missing (and 1 more): run `tidemark topics create`".into())
        );
        let policy = setting("chains", "cleanup.policy", "delete", "compact");
        let expected = format!("the topics: {policy}: run `tidemark topics create`");
        assert_eq!(reason(vec![policy]), Some(expected));
        let chains = Difference::Chains { topic: topic(), actual: 7, wanted: 8 };
        let expected = format!("the topics: {chains}: run `tidemark topics create`");
        assert_eq!(reason(vec![chains]), Some(expected));
        let partitions = Difference::Partitions { topic: topic(), actual: 3, wanted: 4 };
        let line = "error: the topics have another layout: orders has 3 partitions instead of 4";
        assert_eq!(reason(vec![missing("a"), partitions]).as_deref(), Some(line));
    }
}
