//! The logs of the measurement, separated by prefix, on one broker.

use log::kafka::{KafkaLog, admin};
use testkit::measure::kafka_config;

use crate::workload::LAYOUT;

/// The log with a prefix.
pub(crate) fn open(brokers: &str, prefix: &str) -> KafkaLog {
    KafkaLog::open(&kafka_config(brokers, prefix), LAYOUT).expect("a log")
}

/// The log with a prefix, its topics made.
pub(crate) fn create(brokers: &str, prefix: &str) -> KafkaLog {
    admin::create_topics(&kafka_config(brokers, prefix), &LAYOUT).expect("topics");
    open(brokers, prefix)
}
