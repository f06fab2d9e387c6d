//! A separate Kafka broker, and a new log on it for each measurement.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use log::Log;
use log::config::{KafkaConfig, KafkaSecurity};
use log::kafka::{KafkaLog, admin};
use tempfile::TempDir;
use xtask::{Server, kafka};

use crate::engine::LAYOUT;

pub(crate) struct Broker {
    server: Server,
    /// Logs so far.
    count: usize,
    _dir: TempDir,
}

impl Broker {
    pub(crate) fn start() -> Self {
        let Some(lib) = std::env::var_os("TIDEMARK_TEST_KAFKA_LIB").map(PathBuf::from) else {
            panic!("TIDEMARK_TEST_KAFKA_LIB is not set: measure by `cargo xtask bench webhooks`")
        };
        let dir = tempfile::tempdir().expect("a folder");
        let server = kafka::start(&lib, &dir.path().join("kafka"), "").expect("a broker");
        Self { server, count: 0, _dir: dir }
    }

    /// A log whose topics were just made.
    pub(crate) fn log(&mut self) -> Arc<dyn Log> {
        self.count += 1;
        let config = KafkaConfig {
            brokers: self.server.address(),
            prefix: format!("webhooks-{}.", self.count),
            replication: 1,
            session_timeout: Duration::from_secs(60),
            transaction_timeout: Duration::from_secs(50),
            security: KafkaSecurity::default(),
            continues: None,
        };
        admin::create_topics(&config, &LAYOUT).expect("topics");
        Arc::new(KafkaLog::open(&config, LAYOUT).expect("a log"))
    }
}
