//! The logs of the measurement, separated by prefix, on one broker.

use std::path::PathBuf;
use std::time::Duration;

use log::config::{KafkaConfig, KafkaSecurity};
use log::kafka::{KafkaLog, admin};

use crate::workload::LAYOUT;

/// The folder that a variable names.
pub(crate) fn folder(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => panic!("{variable} is not set: measure by `cargo xtask bench kafka`"),
    }
}

fn config(brokers: &str, prefix: &str) -> KafkaConfig {
    KafkaConfig {
        brokers: brokers.to_owned(),
        prefix: prefix.to_owned(),
        replication: 1,
        // Filling a log stalls these cores for seconds: no session may expire.
        session_timeout: Duration::from_secs(60),
        transaction_timeout: Duration::from_secs(50),
        security: KafkaSecurity::default(),
        continues: None,
    }
}

/// The log with a prefix.
pub(crate) fn open(brokers: &str, prefix: &str) -> KafkaLog {
    KafkaLog::open(&config(brokers, prefix), LAYOUT).expect("a log")
}

/// The log with a prefix, its topics made.
pub(crate) fn create(brokers: &str, prefix: &str) -> KafkaLog {
    admin::create_topics(&config(brokers, prefix), &LAYOUT).expect("topics");
    open(brokers, prefix)
}
