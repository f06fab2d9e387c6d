//! Delivery of alerts to people by the sinks of `[[alerts.sinks]]`.

pub(crate) mod config;
pub(crate) mod courier;
mod mail;
mod template;

pub use config::{AlertsConfig, Sink};
pub use courier::{SinkReport, test_sink};
