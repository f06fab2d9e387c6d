//! `[server]`: limits on connections.

use std::time::Duration;

use super::Reader;

/// Maximum of each time-out: no client needs longer for one step of a request.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of connections of the API, and how long each may wait for its client.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// Maximum number open at once; further ones are refused.
    pub max: u32,
    /// Maximum time from the opening, or a later request's first byte, to the end of its headers.
    pub header_timeout: Duration,
    /// Maximum time between a response and the first byte of the next request.
    pub idle_timeout: Duration,
    /// Maximum time for a request's body, and for a response that the client does not read.
    pub body_timeout: Duration,
    /// Maximum time for a request under way to finish at an orderly stop.
    pub stop_grace: Duration,
}

impl Connections {
    /// Reads the keys of the section. At a stop, requests get a quarter of the time that all parts of the
    /// process share.
    pub(super) fn read(section: &mut Reader, stop_deadline: Duration) -> Self {
        let max = u32::try_from(section.integer("max_connections", 16..=1_000_000));
        Self {
            max: max.unwrap_or(u32::MAX),
            header_timeout: timeout(section, "header_timeout"),
            idle_timeout: timeout(section, "idle_timeout"),
            body_timeout: timeout(section, "body_timeout"),
            stop_grace: stop_deadline / 4,
        }
    }

    /// Limits connections to half of the files that the process may have open: the other half is
    /// for its chains, its webhooks and its tables.
    #[must_use]
    pub fn within(self, open_files: Option<u64>) -> Self {
        let half = open_files.and_then(|limit| u32::try_from(limit / 2).ok()).unwrap_or(u32::MAX);
        Self { max: self.max.min(half), ..self }
    }
}

/// Reads a time-out. Zero is refused: it would end every request at once.
fn timeout(section: &mut Reader, key: &str) -> Duration {
    let time = section.optional_duration(key);
    if time.is_some_and(|time| time.is_zero() || time > TIMEOUT_MAX) {
        section.problem(key, "must be more than 0s and at most 1h");
    }
    time.unwrap_or_default()
}
