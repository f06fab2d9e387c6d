//! `[log]`: the back end, its connection, and the number of partitions of its topics.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use runtime::config::Reader;
use schemas::{Incarnation, Layout, Secret};

/// Protocols that use certificates.
const TLS: &str = "\"ssl\" or \"sasl_ssl\"";
/// The form of `continues`.
const CONTINUES: &str = "must be the text that `tidemark import` printed";
/// Protocols that use a name and a password.
const SASL: &str = "\"sasl_plaintext\" or \"sasl_ssl\"";

/// `[log]`.
#[derive(Debug, Clone)]
pub struct Config {
    pub back_end: BackEnd,
    pub layout: Layout,
}

impl Config {
    /// The commented defaults of the section.
    pub const DEFAULTS: &str = include_str!("config/default.toml");

    /// Reads the section `log`. Its problems are reported through `section`.
    #[must_use]
    pub fn read(mut section: Reader) -> Self {
        let back_end = BackEnd::read(&mut section);
        let mut count = |key: &str| u32::try_from(section.integer(key, 1..=256)).unwrap_or(1);
        let layout = Layout {
            lanes: count("lanes"),
            orders: count("order_partitions"),
            webhooks: count("webhook_partitions"),
        };
        section.finish();
        Self { back_end, layout }
    }

    /// The prefix of topic names in the log; the embedded log has none.
    #[must_use]
    pub fn topic_prefix(&self) -> &str {
        match &self.back_end {
            BackEnd::Embedded => "",
            BackEnd::Kafka(kafka) => &kafka.prefix,
        }
    }
}

/// Storage of the log.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a process has one of them")]
pub enum BackEnd {
    /// SQLite in `data.dir`.
    Embedded,
    Kafka(KafkaConfig),
}

/// Connection to a Kafka cluster, and its use.
#[derive(Debug, Clone)]
pub struct KafkaConfig {
    /// `host:port`, separated by commas.
    pub brokers: String,
    /// Prefix of topics, groups and transactions, so that installations can share a cluster.
    pub prefix: String,
    pub replication: u16,
    /// A member of a group that sends no heartbeat for this long loses its partitions.
    pub session_timeout: Duration,
    /// After this time the broker aborts a transaction; shorter than the session time-out.
    pub transaction_timeout: Duration,
    pub security: KafkaSecurity,
    /// The installation that this log continues; none for one that began here.
    pub continues: Option<Continued>,
}

/// Installation imported into a log by `tidemark import`, and its incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continued {
    pub installation: String,
    pub incarnation: Incarnation,
}

impl std::fmt::Display for Continued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.installation, self.incarnation.0)
    }
}

impl FromStr for Continued {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once('@').filter(|(installation, _)| !installation.is_empty());
        let (installation, second) = parts.ok_or(CONTINUES)?;
        let incarnation = Incarnation(second.parse().map_err(|_| CONTINUES)?);
        Ok(Self { installation: installation.to_owned(), incarnation })
    }
}

/// Encryption and authentication of the connections to the brokers.
#[derive(Debug, Clone, Default)]
pub struct KafkaSecurity {
    pub protocol: SecurityProtocol,
    /// SASL mechanism: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub mechanism: Option<String>,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// Trusted certificates (PEM); none means those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate (PEM).
    pub certificate_file: Option<PathBuf>,
    /// Private key of the client (PEM).
    pub key_file: Option<PathBuf>,
    pub key_password: Option<Secret>,
}

/// Kafka's `security.protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecurityProtocol {
    #[default]
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    /// The word that librdkafka's `security.protocol` takes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Ssl => "ssl",
            Self::SaslPlaintext => "sasl_plaintext",
            Self::SaslSsl => "sasl_ssl",
        }
    }

    const fn has_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    const fn has_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

impl FromStr for SecurityProtocol {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Plaintext, Self::Ssl, Self::SaslPlaintext, Self::SaslSsl]
            .into_iter()
            .find(|protocol| protocol.as_str() == text)
            .ok_or("must be \"plaintext\", \"ssl\", \"sasl_plaintext\" or \"sasl_ssl\"")
    }
}

impl BackEnd {
    fn read(log: &mut Reader) -> Self {
        let backend = log.text("backend");
        let kafka = KafkaConfig::read(log);
        match backend.as_str() {
            "kafka" => {
                if kafka.brokers.is_empty() {
                    log.problem("brokers", "is missing: Kafka needs host:port");
                }
                Self::Kafka(kafka)
            }
            "embedded" => Self::Embedded,
            _ => {
                log.problem("backend", "must be \"embedded\" or \"kafka\"");
                Self::Embedded
            }
        }
    }
}

impl KafkaConfig {
    fn read(log: &mut Reader) -> Self {
        let config = Self {
            brokers: log.texts("brokers").unwrap_or_default().join(","),
            prefix: log.text("prefix"),
            replication: u16::try_from(log.integer("replication", 1..=99)).unwrap_or(1),
            session_timeout: log.duration("session_timeout"),
            transaction_timeout: log.duration("transaction_timeout"),
            security: KafkaSecurity::read(log),
            continues: log.given_text("continues").and_then(|text| {
                text.parse().map_err(|problem| log.problem("continues", problem)).ok()
            }),
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if config.prefix.len() > 100 || !config.prefix.chars().all(legal) {
            log.problem("prefix", "must be at most 100 letters, digits, '.', '_' and '-'");
        }
        if config.transaction_timeout < Duration::from_secs(1) {
            log.problem("transaction_timeout", "must be at least 1s");
        }
        if config.transaction_timeout >= config.session_timeout {
            log.problem("transaction_timeout", "must be shorter than log.session_timeout");
        }
        config
    }
}

impl KafkaSecurity {
    /// Rejects settings, but not a mechanism, that the protocol does not use: they suggest protection that is missing.
    fn check_use(&self, log: &mut Reader) {
        let Self { username, password, ca_file, certificate_file, key_file, key_password, .. } =
            self;
        for (key, is_given, is_used, protocols) in [
            ("ca_file", ca_file.is_some(), self.protocol.has_tls(), TLS),
            ("certificate_file", certificate_file.is_some(), self.protocol.has_tls(), TLS),
            ("key_file", key_file.is_some(), self.protocol.has_tls(), TLS),
            ("key_password", key_password.is_some(), self.protocol.has_tls(), TLS),
            ("sasl_username", username.is_some(), self.protocol.has_sasl(), SASL),
            ("sasl_password", password.is_some(), self.protocol.has_sasl(), SASL),
        ] {
            if is_given && !is_used {
                log.problem(
                    key,
                    &format!("has no effect: set log.security_protocol to {protocols}"),
                );
            }
        }
    }

    fn read(log: &mut Reader) -> Self {
        let security = Self {
            protocol: log.parsed("security_protocol").unwrap_or_default(),
            mechanism: log.given_text("sasl_mechanism"),
            username: log.given_text("sasl_username"),
            password: log.secret("sasl_password"),
            ca_file: log.path("ca_file"),
            certificate_file: log.path("certificate_file"),
            key_file: log.path("key_file"),
            key_password: log.secret("key_password"),
        };
        if security.protocol.has_sasl() {
            let known = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
            if !security.mechanism.as_deref().is_some_and(|m| known.contains(&m)) {
                log.problem("sasl_mechanism", &format!("must be one of {}", known.join(", ")));
            }
            if security.username.is_none() {
                log.problem("sasl_username", "is missing");
            }
            if security.password.is_none() {
                log.problem(
                    "sasl_password",
                    "is missing: give it, sasl_password_file, or its variable",
                );
            }
        }
        security.check_use(log);
        security
    }
}

#[cfg(test)]
mod tests {
    use runtime::config::{Problems, Source};

    use super::*;

    fn read(text: &str) -> (Config, Vec<String>) {
        let mut source = Source::parse(Config::DEFAULTS, &format!("[log]\n{text}"), []);
        let config = Config::read(source.section("log"));
        let Err(Problems(lines)) = source.finish() else { return (config, Vec::new()) };
        (config, lines.into_iter().filter(|line| line.starts_with("log.")).collect())
    }

    #[test]
    fn kafka_is_two_lines() {
        let (config, problems) = read("backend = \"kafka\"\nbrokers = \"a:1,b:2\"\n");
        let BackEnd::Kafka(kafka) = config.back_end else { panic!("{config:?}") };
        assert_eq!(kafka.brokers, "a:1,b:2");
        assert_eq!(kafka.security.protocol, SecurityProtocol::Plaintext);
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn what_the_protocol_does_not_use_is_a_problem() {
        let given = "ca_file = \"a\"\ncertificate_file = \"b\"\nkey_file = \"c\"\nkey_password = \"d\"\n\
                     sasl_username = \"e\"\nsasl_password = \"f\"\nsasl_mechanism = \"PLAIN\"\n";
        let kafka = "backend = \"kafka\"\nbrokers = \"a:1\"\n";
        for (protocol, count) in
            [("plaintext", 6), ("ssl", 2), ("sasl_plaintext", 4), ("sasl_ssl", 0)]
        {
            let (_, problems) =
                read(&format!("{kafka}security_protocol = \"{protocol}\"\n{given}"));
            assert_eq!(problems.len(), count, "{protocol}: {problems:?}");
            assert!(problems.iter().all(|line| line.contains(": has no effect")), "{problems:?}");
        }
    }

    #[test]
    fn an_empty_text_is_none() {
        let empty =
            "ca_file = \"\"\ncertificate_file = \"\"\nkey_file = \"\"\nsasl_username = \"\"\n";
        let (config, problems) = read(&format!("backend = \"kafka\"\nbrokers = \"a:1\"\n{empty}"));
        let BackEnd::Kafka(kafka) = config.back_end else { panic!("{config:?}") };
        assert_eq!((kafka.security.ca_file, kafka.security.username), (None, None));
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn the_installation_that_is_continued_reads_back() {
        let kafka = "backend = \"kafka\"\nbrokers = \"a:1\"\n";
        let text = "embedded/77@1795309568";
        let (config, problems) = read(&format!("{kafka}continues = \"{text}\"\n"));
        let BackEnd::Kafka(config) = config.back_end else { panic!("{config:?}") };
        let continued = config.continues.unwrap();
        assert_eq!(continued.installation, "embedded/77");
        assert_eq!((continued.to_string().as_str(), problems.len()), (text, 0));
        for text in ["embedded/77", "@7", "embedded/77@x"] {
            let (_, problems) = read(&format!("{kafka}continues = \"{text}\"\n"));
            let expected = format!("log.continues: {CONTINUES}");
            assert!(problems.iter().any(|line| line.starts_with(&expected)), "{problems:?}");
        }
    }

    #[test]
    fn what_kafka_needs_is_asked_for() {
        let (_, problems) = read(
            "backend = \"kafka\"\nsecurity_protocol = \"sasl_ssl\"\ntransaction_timeout = \"1h\"\n\
             lanes = 0\n",
        );
        for start in [
            "log.brokers: is missing",
            "log.sasl_mechanism: must be",
            "log.sasl_username: is missing",
            "log.sasl_password: is missing",
            "log.transaction_timeout: must be shorter",
            "log.lanes: must be a whole number",
        ] {
            assert!(problems.iter().any(|line| line.starts_with(start)), "{start}: {problems:?}");
        }
        assert_eq!(problems.len(), 6, "{problems:?}");
    }
}
