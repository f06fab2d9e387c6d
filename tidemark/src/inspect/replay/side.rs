//! Replayed records, written to separate topics.

use anyhow::Context;
use log::config::{BackEnd, KafkaConfig};
use log::kafka::{KafkaLog, admin};
use log::{Log, NewRecord};
use schemas::Topic;
use tokio::runtime::Handle;

use crate::settings::Settings;
use crate::setup::misuse;

const APPEND_RECORDS: usize = 5000;

/// Topics beside those of the installation.
pub(super) struct Side {
    log: KafkaLog,
    waiting: Vec<NewRecord>,
}

impl Side {
    /// Creates the topics.
    ///
    /// # Errors
    /// The log is embedded, the prefix is in use, or the brokers refuse.
    pub(super) fn create(
        settings: &Settings,
        prefix: &str,
        topics: &[Topic],
    ) -> anyhow::Result<Self> {
        let BackEnd::Kafka(config) = &settings.log.back_end else {
            return Err(misuse("replay: --into needs log.backend = \"kafka\""));
        };
        let config = KafkaConfig { prefix: prefix.to_owned(), ..config.clone() };
        let layout = settings.log.layout;
        admin::create_beside(&config, &layout, topics).context("--into")?;
        Ok(Self { log: KafkaLog::open(&config, layout)?, waiting: Vec::new() })
    }

    pub(super) fn add(&mut self, record: NewRecord) -> anyhow::Result<()> {
        self.waiting.push(record);
        if self.waiting.len() < APPEND_RECORDS { Ok(()) } else { self.flush() }
    }

    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        let records = std::mem::take(&mut self.waiting);
        Ok(Handle::current().block_on(self.log.produce(records))?)
    }
}
