//! A separate Kafka broker, and a new log on it for each measurement.

use std::sync::Arc;

use log::Log;
use log::kafka::{KafkaLog, admin};
use tempfile::TempDir;
use testkit::measure::kafka_config;
use testkit::process::given_path;
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
        let lib = given_path("TIDEMARK_TEST_KAFKA_LIB");
        let dir = tempfile::tempdir().expect("a folder");
        let server = kafka::start(&lib, &dir.path().join("kafka"), "").expect("a broker");
        Self { server, count: 0, _dir: dir }
    }

    /// A log whose topics were just made.
    pub(crate) fn log(&mut self) -> Arc<dyn Log> {
        self.count += 1;
        let config = kafka_config(&self.server.address(), &format!("webhooks-{}.", self.count));
        admin::create_topics(&config, &LAYOUT).expect("topics");
        Arc::new(KafkaLog::open(&config, LAYOUT).expect("a log"))
    }
}
