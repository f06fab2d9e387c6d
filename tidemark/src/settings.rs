//! The whole configuration, read once.

use runtime::config::{Problems, Process, Shop, Source};
use runtime::telemetry;

/// Every section, in ready types.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) process: Process,
    pub(crate) shop: Shop,
    pub(crate) ingest: ingest::Config,
    pub(crate) webhooks: webhooks::Config,
    pub(crate) telemetry: telemetry::Config,
}

impl Settings {
    /// Reads all sections.
    ///
    /// # Errors
    /// [`Problems`]: everything that is wrong, at once.
    pub(crate) fn read(mut source: Source) -> Result<Self, Problems> {
        let process = Process::read(&mut source);
        let shop = Shop::read(&mut source);
        let settings = Self {
            ingest: ingest::Config::read(&mut source, &shop),
            webhooks: webhooks::Config::read(source.section("webhooks"), &shop.merchant),
            telemetry: telemetry::Config::read(source.section("telemetry")),
            process,
            shop,
        };
        source.finish()?;
        Ok(settings)
    }
}
