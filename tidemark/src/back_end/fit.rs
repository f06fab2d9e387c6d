//! Checks that log and tables are of the same installation and incarnation (a restore and an import begin a new one),
//! and that the log is not older than the tables. The projector detects older tables, by the position of its group.

use std::sync::Arc;

use anyhow::bail;
use log::{Log, Offset, TopicPartition};
use schemas::Incarnation;
use store::{Origin, Position, Store};
use tokio_util::sync::CancellationToken;

use crate::setup::relocation::UNDER_WAY;

const RESTORE: &str = "put both from one backup in place (`tidemark restore`)";
const REBUILD: &str =
    "move the tables away and make them again from this log (`tidemark tables rebuild`)";

/// Compares log and tables, and records the origin in new tables.
///
/// # Errors
/// Log and tables do not belong together: the error names the remedy. Or one of them cannot be read.
pub(crate) async fn check(log: &Arc<dyn Log>, tables: &dyn Store) -> anyhow::Result<()> {
    let asked = log.clone();
    let Some(log_is) = blocking(move || origin(&*asked)).await? else { return Ok(()) };
    match store::retry(|| tables.origin()).await? {
        None => store::retry(|| tables.set_origin(&log_is)).await?,
        Some(tables_are) => {
            if let Some(problem) = misfit(&log_is, &tables_are) {
                bail!(problem);
            }
        }
    }
    let positions = store::retry(|| tables.positions()).await?;
    let asked = log.clone();
    if let Some(problem) = blocking(move || ahead(&*asked, &positions)).await?.flatten() {
        bail!(problem);
    }
    Ok(())
}

/// Queries the log, with retries; `None` after a stop.
async fn blocking<T: Send + 'static>(
    ask: impl Fn() -> Result<T, log::Error> + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let ask = move || log::retry(&stop, "the start", &ask);
    Ok(tokio::task::spawn_blocking(ask).await??)
}

fn origin(log: &dyn Log) -> Result<Origin, log::Error> {
    Ok(Origin { installation: log.installation()?, incarnation: log.incarnation() })
}

/// Refuses to rebuild tables that belong to another installation.
///
/// # Errors
/// The tables belong to another installation, or log or tables cannot be read.
pub(crate) async fn refuse_others(log: &dyn Log, tables: &dyn Store) -> anyhow::Result<()> {
    let own = log.installation()?;
    match tables.origin().await? {
        Some(origin) if origin.installation != own => bail!(
            "the tables are those of another installation ({}, and the log is {own}): name others in [store]",
            origin.installation
        ),
        Some(_) | None => Ok(()),
    }
}

/// Returns the reason if the tables are not made from this log.
pub(crate) fn misfit(log: &Origin, tables: &Origin) -> Option<String> {
    if tables.installation.starts_with(UNDER_WAY) {
        return Some(
            "the tables are of an import that was interrupted: run `tidemark import` again"
                .to_owned(),
        );
    }
    if log.installation != tables.installation {
        return Some(format!(
            "the tables are those of another installation ({}, and the log is {}): use the log or the tables that \
             belong to it, set log.continues as `tidemark import` said, or {REBUILD}",
            tables.installation, log.installation
        ));
    }
    (log.incarnation != tables.incarnation).then(|| {
        format!(
            "log and tables are not of one copy of the installation: the log is {}, the tables are {}; {RESTORE}, or {REBUILD}",
            words(log.incarnation),
            words(tables.incarnation)
        )
    })
}

fn words(incarnation: Incarnation) -> String {
    match incarnation {
        Incarnation(0) => "not restored".to_owned(),
        Incarnation(second) => {
            let at = schemas::UnixSeconds(second).micros().to_rfc3339();
            format!("restored at {at}")
        }
    }
}

/// Returns the reason if the log is older than the tables.
pub(crate) fn ahead(log: &dyn Log, positions: &[Position]) -> Result<Option<String>, log::Error> {
    let layout = log.layout();
    for Position { topic, partition, next } in positions {
        let of = TopicPartition { topic: *topic, partition: *partition };
        let has_partition = partition.0 < topic.partitions(&layout);
        let end = if has_partition { log.bounds(of)?.end } else { Offset(0) };
        if *next > end.0 {
            return Ok(Some(format!(
                "the log is older than the tables: they have {of} up to {next}, and it ends at {end}; {RESTORE}, or \
                 {REBUILD}"
            )));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use log::embedded::EmbeddedLog;
    use runtime::SystemClock;
    use schemas::Layout;
    use store::embedded::EmbeddedStore;

    use super::*;

    #[test]
    fn tables_of_another_log_do_not_fit() {
        let origin = |installation: &str, second| Origin {
            installation: installation.to_owned(),
            incarnation: Incarnation(second),
        };
        let log = origin("embedded/7", 1_795_309_568);
        assert_eq!(misfit(&log, &log), None);
        let other = misfit(&log, &origin("embedded/8", 1_795_309_568)).unwrap();
        assert!(other.contains("another installation (embedded/8, and the log is embedded/7)"));
        let half = misfit(&log, &origin(&format!("{UNDER_WAY}77"), 0)).unwrap();
        assert!(half.contains("run `tidemark import` again"), "{half}");
        let before = misfit(&log, &origin("embedded/7", 0)).unwrap();
        let expected =
            "the log is restored at 2026-11-22T01:06:08.000000Z, the tables are not restored; ";
        assert!(before.contains(expected), "{before}");
    }

    #[tokio::test]
    async fn tables_of_another_log_are_not_made_anew() {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(SystemClock));
        let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let log = EmbeddedLog::open(&dir.path().join("log"), layout, clock).unwrap();
        let tables = EmbeddedStore::open(dir.path()).unwrap();
        refuse_others(&log, &tables).await.unwrap();
        let installation = log.installation().unwrap();
        for (name, is_own) in [(installation.as_str(), true), ("embedded/8", false)] {
            let incarnation = Incarnation::default();
            let origin = Origin { installation: name.to_owned(), incarnation };
            tables.set_origin(&origin).await.unwrap();
            assert_eq!(refuse_others(&log, &tables).await.is_ok(), is_own, "{name}");
        }
    }
}
