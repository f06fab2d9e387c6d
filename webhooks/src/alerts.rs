//! Alerts to people: the sinks of `[[alerts.sinks]]`, what each is sent, and how.

pub(crate) mod config;
pub(crate) mod courier;
mod mail;
mod template;

pub use config::{AlertsConfig, Sink};
pub use courier::{SinkReport, test_sink};
