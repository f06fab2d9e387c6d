//! The first log lines of a process: its configuration, and the state of its data folder. Without them a wrong folder
//! would only be seen as a shop without orders.

use std::path::Path;

use log::embedded::ReadOnlyLog;
use runtime::config::Process;
use store::embedded;

use crate::settings::Settings;

/// Logs the path of the configuration file, or that there is none.
pub(crate) fn configuration(process: &Process) {
    if let Some(file) = &process.config_file {
        tracing::info!(
            "the configuration is {}: relative paths count from its folder",
            file.display()
        );
    } else {
        let here = absolute(Path::new("."));
        tracing::info!(
            "the configuration is the environment alone: relative paths count from the working directory, {here}"
        );
    }
}

/// `true` if the data folder has neither a log nor tables. Must be called before they are opened, which creates them.
pub(crate) fn is_new(settings: &Settings) -> bool {
    let dir = &settings.process.data_dir;
    !ReadOnlyLog::is_in(dir) && !embedded::are_in(dir)
}

/// Logs the location of the open log and tables, and the number of open orders in embedded tables.
pub(crate) fn back_ends(settings: &Settings, is_new: bool) {
    let dir = &settings.process.data_dir;
    let folder = absolute(dir);
    if let log::config::BackEnd::Kafka(kafka) = &settings.log.back_end {
        let (brokers, prefix) = (&kafka.brokers, settings.log.topic_prefix());
        tracing::info!("the log is Kafka at {brokers}, in topics with the prefix {prefix:?}");
    } else if is_new {
        tracing::info!("data in {folder}: new, there are no orders");
    } else if embedded::are_in(dir)
        && let Ok(open) = embedded::pending(dir)
    {
        tracing::info!(open_orders = open, "data in {folder}: continues with {open} open orders");
    } else {
        tracing::info!("data in {folder}: continues");
    }
    if let store::config::BackEnd::Cql(cql) = &settings.store {
        let (keyspace, nodes) = (&cql.keyspace, cql.nodes.join(","));
        tracing::info!("the tables are the keyspace {keyspace} at {nodes}");
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
