//! `[webhooks]`, and what this stage needs of `[merchant]`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use reqwest::{Certificate, Proxy};
use runtime::config::Reader;
use rustix::process::{Resource, getrlimit};
use schemas::{Amount, ReceiverPolicy, Secret, Stablecoin, parse_network, parse_ports};
use url::Url;

/// Maximum number of automatic attempts (spec 8); a retry topic exists for each delay between them.
pub(crate) const ATTEMPTS_MAX: i32 = 12;
/// Upper bound of the setting `timeout` (spec 6.3.2 says a few seconds).
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Settings of webhook delivery.
#[derive(Debug, Clone)]
pub struct Config {
    /// Automatic attempts for each event, from 1 to 12.
    pub max_attempts: i32,
    /// Maximum duration of one attempt, from the resolution of the name to the end of the answer. A
    /// status that came in time counts, even if the body behind it did not.
    pub timeout: Duration,
    /// Time from an endpoint's first failure, without a 200 since, after which it is reported to the operator.
    pub failing_after: Duration,
    /// Receivers that may be called.
    pub receivers: ReceiverPolicy,
    /// Proxy for all requests; it also resolves names.
    pub proxy: Option<Proxy>,
    /// Credentials of the proxy's URL, encoded for its header.
    pub proxy_credentials: Option<Secret>,
    /// Certificates trusted beside those of the system.
    pub certificates: Vec<Certificate>,
    /// Requests under way at once in one process.
    pub concurrency: usize,
    /// Requests under way at once from one process to one host and port that answers.
    pub concurrency_per_host: usize,
    /// Signs every request (spec 5.3).
    pub secret: Secret,
    /// Key before the last rotation: adds a second signature to `webhook-signature` (Standard Webhooks).
    pub previous_secret: Option<Secret>,
    /// URL for `unknown_transfer` (spec 6.2); without one, none is sent.
    pub unknown_transfer_webhook_url: Option<String>,
    /// Amounts below which an unknown transfer may be dust ([`crate::is_dust`]), which is not announced.
    pub dust_threshold: BTreeMap<Stablecoin, Amount>,
}

impl Config {
    /// The commented defaults of the section.
    pub const DEFAULTS: &str = include_str!("config/default.toml");

    /// Reads the section `webhooks`. Problems are collected in it.
    #[must_use]
    pub fn read(
        mut section: Reader,
        secret: Secret,
        previous_secret: Option<Secret>,
        unknown_transfer_webhook_url: Option<String>,
    ) -> Self {
        let attempts_max = u64::from(ATTEMPTS_MAX.unsigned_abs());
        let max_attempts = section.integer("max_attempts", 1..=attempts_max);
        let timeout = section.duration("timeout");
        if timeout.is_zero() || timeout > TIMEOUT_MAX {
            section.problem("timeout", "must be from \"1ms\" to \"60s\"");
        }
        let failing_after = section.duration("failing_after");
        let mut count =
            |key: &str| usize::try_from(section.integer(key, 1..=10_000)).unwrap_or(usize::MAX);
        let (concurrency, concurrency_per_host) =
            (count("concurrency"), count("concurrency_per_host"));
        let mut dust = section.section("dust_threshold");
        let mut threshold = |coin: &Stablecoin| Some((*coin, dust.parsed(coin.as_str())?));
        let dust_threshold = Stablecoin::ALL.iter().filter_map(&mut threshold).collect();
        dust.finish();
        let (proxy, proxy_credentials) = read_proxy(&mut section).unzip();
        let config = Self {
            max_attempts: i32::try_from(max_attempts).unwrap_or(ATTEMPTS_MAX),
            timeout,
            failing_after,
            receivers: read_receivers(&mut section),
            proxy,
            proxy_credentials: proxy_credentials.flatten(),
            certificates: read_certificates(&mut section),
            concurrency,
            concurrency_per_host,
            secret,
            previous_secret,
            unknown_transfer_webhook_url,
            dust_threshold,
        };
        section.finish();
        config
    }

    /// Warns if the limit of open files is too low for the requests, their closing connections and the rest of the
    /// process. Attempts beyond the limit are deferred.
    pub fn check_files(&self) {
        if let Some((limit, needed)) = self.lacking_files(getrlimit(Resource::Nofile).current) {
            tracing::warn!(
                limit,
                needed,
                "this process may have too few files open for webhooks.concurrency: raise its limit (LimitNOFILE, ulimit -n)"
            );
        }
    }

    /// The limit and the number of files needed, if the limit is lower.
    fn lacking_files(&self, limit: Option<u64>) -> Option<(u64, u64)> {
        let requests = u64::try_from(self.concurrency).unwrap_or(u64::MAX);
        let needed = requests.saturating_mul(2).saturating_add(256);
        limit.filter(|limit| *limit < needed).map(|limit| (limit, needed))
    }
}

fn read_receivers(section: &mut Reader) -> ReceiverPolicy {
    let is_private_allowed = section.flag("allow_private_addresses");
    let networks = read_list(section, "allowed_networks", parse_network);
    let ports = read_list(section, "allowed_ports", parse_ports);
    if is_private_allowed {
        return ReceiverPolicy::anywhere().with_ports(ports);
    }
    ReceiverPolicy::new(ports, networks)
}

fn read_proxy(section: &mut Reader) -> Option<(Proxy, Option<Secret>)> {
    let text = section.given_text("proxy")?;
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let proxy = url.and_then(|url| Some((Proxy::all(url.clone()).ok()?, credentials(&url))));
    if proxy.is_none() {
        section.problem("proxy", "must be an http or https URL");
    }
    proxy
}

/// The value of `Proxy-Authorization` after `Basic`.
fn credentials(url: &Url) -> Option<Secret> {
    let password = url.password().unwrap_or_default();
    if url.username().is_empty() && password.is_empty() {
        return None;
    }
    let [name, password] =
        [url.username(), password].map(|text| percent_decode_str(text).decode_utf8_lossy());
    Some(Secret::new(STANDARD.encode(format!("{name}:{password}"))))
}

fn read_certificates(section: &mut Reader) -> Vec<Certificate> {
    let Some(path) = section.path("ca_file") else { return Vec::new() };
    let read = std::fs::read(&path).map_err(|error| error.to_string());
    let parsed =
        read.and_then(|pem| Certificate::from_pem_bundle(&pem).map_err(|error| error.to_string()));
    match parsed {
        Ok(certificates) if !certificates.is_empty() => return certificates,
        Ok(_) => {
            section.problem("ca_file", &format!("{} has no certificate in PEM", path.display()));
        }
        Err(error) => {
            section.problem("ca_file", &format!("cannot read {}: {error}", path.display()));
        }
    }
    Vec::new()
}

fn read_list<T>(
    section: &mut Reader,
    key: &str,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Vec<T> {
    let mut list = Vec::new();
    for text in section.texts(key).unwrap_or_default() {
        match parse(&text) {
            Ok(parsed) => list.push(parsed),
            Err(problem) => section.problem(key, &format!("{text:?} {problem}")),
        }
    }
    list
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use runtime::config::{Problems, Source};

    pub(crate) fn read(text: &str) -> (Config, Vec<String>) {
        let mut source = Source::parse(Config::DEFAULTS, text, []);
        let url = Some("https://shop.example/unknown".to_owned());
        let config = Config::read(source.section("webhooks"), Secret::new("whsec"), None, url);
        let Err(Problems(lines)) = source.finish() else { return (config, Vec::new()) };
        (config, lines.into_iter().filter(|l| l.starts_with("webhooks.")).collect())
    }

    #[test]
    fn the_defaults_are_those_of_the_interface() {
        let (config, problems) = read("");
        assert_eq!(problems, [""; 0]);
        assert_eq!(config.max_attempts, 12, "spec 8");
        assert_eq!(config.timeout, Duration::from_secs(5), "spec 6.3.2");
        assert_eq!(config.receivers, ReceiverPolicy::default());
        assert!(config.proxy.is_none() && config.certificates.is_empty());
        assert_eq!((config.concurrency, config.concurrency_per_host), (256, 128));
        assert_eq!(config.secret.expose(), b"whsec");
        assert!(config.dust_threshold.values().all(|amount| *amount == Amount::ZERO), "spec 6.2");
        let url = config.unknown_transfer_webhook_url.clone();
        assert_eq!(url.as_deref(), Some("https://shop.example/unknown"));
    }

    #[test]
    fn too_few_files_for_the_requests_are_noticed() {
        let (config, _) = read("");
        assert_eq!(config.lacking_files(Some(767)), Some((767, 768)));
        assert_eq!(config.lacking_files(Some(768)), None);
        assert_eq!(config.lacking_files(None), None, "there is no limit");
        let most = Config { concurrency: usize::MAX, ..config };
        assert!(most.lacking_files(Some(1_048_576)).is_some());
    }

    #[test]
    fn what_would_break_the_schedule_is_refused() {
        let (_, problems) = read(
            "[webhooks]\nmax_attempts = 13\ntimeout = \"2m\"\nconcurrency = 0\nretries = 3\n\
             allowed_ports = [\"443\", \"https\"]\nallowed_networks = [\"192.168.7.1/24\"]\n\
             proxy = \"proxy:3128\"\nca_file = \"/no/such/file\"\n",
        );
        for line in [
            "webhooks.max_attempts: must be a whole number from 1 to 12",
            "webhooks.timeout: must be from \"1ms\" to \"60s\"",
            "webhooks.concurrency: must be a whole number from 1 to 10000",
            "webhooks.retries: unknown key",
            "webhooks.allowed_ports: \"https\" must be a port or a range of ports such as \"8000-8999\"",
            "webhooks.proxy: must be an http or https URL",
            "webhooks.ca_file: cannot read /no/such/file: No such file or directory (os error 2)",
            "webhooks.allowed_networks: \"192.168.7.1/24\" must be a network such as \"192.168.7.0/24\"",
        ] {
            assert!(problems.iter().any(|p| p == line), "{line} is not in {problems:#?}");
        }
        assert_eq!(problems.len(), 8);
    }
}
