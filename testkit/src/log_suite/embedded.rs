//! The embedded log, in a temporary folder.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::Log;
use log::embedded::EmbeddedLog;
use runtime::{ManualClock, SystemClock};
use schemas::UnixMicros;
use tempfile::TempDir;

use super::{Fixture, LAYOUT};

/// Opens the log in a folder, for tests that kill its processes.
pub fn open(dir: &Path) -> Arc<dyn Log> {
    Arc::new(EmbeddedLog::open(dir, LAYOUT, Arc::new(SystemClock)).unwrap())
}

pub struct Embedded {
    dir: TempDir,
    clock: Arc<ManualClock>,
    session_timeout: Mutex<Duration>,
    log: Mutex<Option<EmbeddedLog>>,
}

impl Default for Embedded {
    fn default() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(UnixMicros(1_700_000_000_000_000))),
            session_timeout: Mutex::new(Duration::from_secs(10)),
            log: Mutex::new(None),
        }
    }
}

impl Embedded {
    fn log(&self) -> EmbeddedLog {
        self.log.lock().unwrap().clone().expect("the check opened the log")
    }
}

impl Fixture for Embedded {
    fn open(&self) -> Arc<dyn Log> {
        let mut current = self.log.lock().unwrap();
        // Closes the last one: the check has dropped its references.
        *current = None;
        let log = EmbeddedLog::open(self.dir.path(), LAYOUT, self.clock.clone()).unwrap();
        let log = log.with_session_timeout(*self.session_timeout.lock().unwrap());
        *current = Some(log.clone());
        Arc::new(log)
    }

    fn stranger(&self) -> String {
        Self::default().open().installation().unwrap()
    }

    fn set_session_timeout(&self, timeout: Duration) {
        *self.session_timeout.lock().unwrap() = timeout;
    }

    fn fail_next_commit(&self) {
        self.log().fail_next_commit();
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn maintain(&self) {
        self.log().maintain().unwrap();
    }
}
