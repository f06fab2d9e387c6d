//! Configuration of the process itself.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::{Network, Reader, Source};

/// Maximum of each time-out: no client needs longer for one step of a request.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// `[process]`, `[server]` and `[data]`.
#[derive(Debug, Clone)]
pub struct Process {
    /// Absolute path of the configuration file; `None` if only the environment was read.
    pub config_file: Option<PathBuf>,
    /// Name of this process within its installation, used for its group memberships and its
    /// transactions.
    pub name: String,
    /// Number of threads that share the partitions of each stage in this process.
    pub workers: u32,
    /// Listen address of the API.
    pub listen: Option<SocketAddr>,
    /// Listen address of the API for operators, if not `listen`.
    pub admin_listen: Option<SocketAddr>,
    /// URL of the API for customers, without a slash at the end.
    pub public_url: Option<String>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
    pub connections: Connections,
    /// Maximum number of requests a second from the customers at one address; none for no limit.
    pub customer_requests: Option<NonZeroU32>,
    /// Folder of the embedded back ends.
    pub data_dir: PathBuf,
    /// Maximum duration of a stop.
    pub stop_deadline: Duration,
}

impl Process {
    /// Reads the sections.
    #[must_use]
    pub fn read(source: &mut Source) -> Self {
        let mut process = source.section("process");
        let name = process.text("name");
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 100 || !name.chars().all(legal) {
            process.problem("name", "must be 1 to 100 letters, digits, '.', '_' and '-'");
        }
        let workers = u32::try_from(process.integer("workers", 1..=64)).unwrap_or(1);
        process.finish();
        let mut server = source.section("server");
        let listen = server.parsed("listen");
        let admin_listen = server.given("admin_listen");
        if admin_listen.is_some() && admin_listen == listen {
            server.problem("admin_listen", "must be another address than server.listen");
        }
        let public_url = read_public_url(&mut server);
        let trusted_proxies = networks(&mut server, "trusted_proxies");
        let stop_deadline = server.duration("stop_deadline");
        let connections = Connections::read(&mut server, stop_deadline);
        let customer_requests = server.integer("customer_requests_per_second", 0..=100_000);
        let customer_requests = u32::try_from(customer_requests).ok().and_then(NonZeroU32::new);
        server.finish();
        let mut data = source.section("data");
        let data_dir = data.path("dir").unwrap_or_default();
        if data_dir.as_os_str().is_empty() {
            data.problem("dir", "must name a folder");
        }
        data.finish();
        Self {
            config_file: source.file().map(PathBuf::from),
            name,
            workers,
            listen,
            admin_listen,
            public_url,
            trusted_proxies,
            connections,
            customer_requests,
            data_dir,
            stop_deadline,
        }
    }

    /// Returns the listen address of the API for operators.
    #[must_use]
    pub fn operators_listen(&self) -> Option<SocketAddr> {
        self.admin_listen.or(self.listen)
    }
}

/// Reads `public_url`, without a slash at the end: paths are appended to it.
fn read_public_url(server: &mut Reader) -> Option<String> {
    let text = server.text("public_url");
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = |c: char| c.is_ascii_graphic() && !"?#@\\\"<>".contains(c);
    let is_url = host.is_some_and(|host| !host.starts_with('/') && host.chars().all(is_plain));
    if text.is_empty() {
        return None;
    }
    if !is_url || host == Some("") {
        server.problem("public_url", "must be a URL such as \"https://pay.shop.example\"");
    }
    Some(text.trim_end_matches('/').to_owned())
}

fn networks(section: &mut Reader, key: &str) -> Vec<Network> {
    let texts = section.texts(key).unwrap_or_default();
    let read =
        |text: &String| text.parse().map_err(|error: String| section.problem(key, &error)).ok();
    // An empty variable is an empty list.
    if texts == [""] { Vec::new() } else { texts.iter().filter_map(read).collect() }
}

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
    fn read(section: &mut Reader, stop_deadline: Duration) -> Self {
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
