//! The stages.

use clap::ValueEnum;

/// A stage that can be run by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// Chain blocks to transfers.raw.
    Ingest,
    /// Matching and orders.
    Processor,
    /// The log to the tables.
    Projector,
    /// HTTP.
    Api,
    /// Signed delivery.
    Webhooks,
}

impl Stage {
    pub(crate) const ALL: [Self; 5] =
        [Self::Ingest, Self::Processor, Self::Projector, Self::Api, Self::Webhooks];

    /// `true` if it reads or writes the tables.
    pub(crate) const fn needs_tables(self) -> bool {
        matches!(self, Self::Projector | Self::Api)
    }
}
