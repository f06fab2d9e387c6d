//! The settings of the client library, one function for each kind of client.

use std::path::PathBuf;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use schemas::Secret;

use crate::config::KafkaConfig;

/// Maximum bytes of a record, and so of a request, that clients send and topics take.
pub(crate) const RECORD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest interval of a member's heartbeats; a rebalance is noticed no earlier than the next one.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
/// Maximum bytes of one fetch of a page; a larger batch is still returned whole (KIP-74).
const PAGE_FETCH_BYTES: usize = 256 * 1024;
const STATISTICS_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time between two polls, in session time-outs: long steps and queries come in between.
const POLL_INTERVAL_SESSIONS: u32 = 2;
/// Maximum duration of one request of a claim.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// Amount that a reader without a group fetches ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appetite {
    /// Little more than one page.
    Page,
    /// Up to 256 MiB: it reads to the end.
    Whole,
}

/// Settings of every client: brokers and security.
pub(crate) fn client(config: &KafkaConfig) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings
        .set("bootstrap.servers", &config.brokers)
        .set("client.id", "tidemark")
        .set("socket.keepalive.enable", "true")
        .set("socket.nagle.disable", "true")
        .set("reconnect.backoff.max.ms", "2000")
        .set("socket.connection.setup.timeout.ms", "5000")
        .set("log.connection.close", "false")
        .set("security.protocol", config.security.protocol.as_str());
    let security = &config.security;
    let file = |path: &Option<PathBuf>| path.as_ref().map(|p| p.to_string_lossy().into_owned());
    let secret = |secret: &Option<Secret>| {
        secret.as_ref().map(|s| String::from_utf8_lossy(s.expose()).into_owned())
    };
    let optional = [
        ("sasl.mechanism", security.mechanism.clone()),
        ("sasl.username", security.username.clone()),
        ("sasl.password", secret(&security.password)),
        ("ssl.ca.location", file(&security.ca_file)),
        ("ssl.certificate.location", file(&security.certificate_file)),
        ("ssl.key.location", file(&security.key_file)),
        ("ssl.key.password", secret(&security.key_password)),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            settings.set(key, value);
        }
    }
    settings
}

fn consumer(config: &KafkaConfig) -> ClientConfig {
    let mut settings = client(config);
    settings
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.message.max.bytes", RECORD_BYTES_MAX.to_string())
        .set("fetch.max.bytes", (8 * RECORD_BYTES_MAX).to_string());
    settings
}

/// A client that only queries offsets and topics; `committed` leaves out what open transactions wrote.
pub(crate) fn query(config: &KafkaConfig, committed: bool) -> ClientConfig {
    let mut settings = client(config);
    let isolation = if committed { "read_committed" } else { "read_uncommitted" };
    settings.set("isolation.level", isolation);
    settings
}

/// A consumer that is assigned partitions without a group. The library requires a group name; no
/// consumer joins it.
pub(crate) fn reader(config: &KafkaConfig, appetite: Appetite) -> ClientConfig {
    let mut settings = consumer(config);
    let (messages, kilobytes, fetch_bytes) = match appetite {
        Appetite::Page => ("1", "16384", PAGE_FETCH_BYTES),
        Appetite::Whole => ("1000000", "262144", RECORD_BYTES_MAX),
    };
    settings
        .set("group.id", format!("{}readers", config.prefix))
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "10")
        .set("queued.min.messages", messages)
        .set("queued.max.messages.kbytes", kilobytes)
        .set("fetch.message.max.bytes", fetch_bytes.to_string());
    settings
}

/// A consumer that follows partitions from their end.
pub(crate) fn tail(config: &KafkaConfig) -> ClientConfig {
    let mut settings = consumer(config);
    settings
        .set("group.id", format!("{}tails", config.prefix))
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "65536");
    settings
}

pub(crate) fn member(config: &KafkaConfig, group: &str, instance: &str) -> ClientConfig {
    let mut settings = consumer(config);
    let heartbeat = (config.session_timeout / 10).clamp(Duration::from_millis(50), HEARTBEAT_MAX);
    let poll_interval = config.session_timeout.saturating_mul(POLL_INTERVAL_SESSIONS);
    settings
        .set("group.id", group)
        .set("group.instance.id", instance)
        .set("partition.assignment.strategy", "range")
        // A position outside the log is reported; the worker decides where to continue.
        .set("auto.offset.reset", "error")
        .set("session.timeout.ms", millis(config.session_timeout))
        .set("heartbeat.interval.ms", millis(heartbeat))
        .set("max.poll.interval.ms", millis(poll_interval))
        .set("statistics.interval.ms", millis(STATISTICS_INTERVAL))
        .set("fetch.wait.max.ms", "100")
        // Partitions share one queue: a large fetch for one of them delays the others.
        .set("fetch.message.max.bytes", "1048576")
        .set("queued.min.messages", "10000")
        .set("queued.max.messages.kbytes", "131072");
    settings
}

/// A client that reads and commits the offset of a claim, in a group that no consumer joins.
pub(crate) fn claim(config: &KafkaConfig, group: &str) -> ClientConfig {
    let mut settings = consumer(config);
    settings
        .set("group.id", group)
        // Maximum wait of a commit for the group's coordinator.
        .set("session.timeout.ms", millis(CLAIM_TIMEOUT))
        .set("socket.timeout.ms", millis(CLAIM_TIMEOUT));
    settings
}

/// The shared producer of [`crate::Log::produce`]; base of the producers of steps.
pub(crate) fn producer(config: &KafkaConfig) -> ClientConfig {
    let mut settings = client(config);
    settings
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("compression.type", "lz4")
        .set("linger.ms", "1")
        .set("batch.size", "1000000")
        .set("message.max.bytes", RECORD_BYTES_MAX.to_string())
        .set("queue.buffering.max.messages", "1000000")
        .set("message.timeout.ms", millis(config.transaction_timeout));
    settings
}

/// Delivery reports for a producer of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reports {
    All,
    /// Only for records that were not written, which saves a callback for each written record.
    Failures,
}

pub(crate) fn transactional_producer(
    config: &KafkaConfig,
    id: &str,
    reports: Reports,
) -> ClientConfig {
    let mut settings = producer(config);
    let only_failures = if reports == Reports::Failures { "true" } else { "false" };
    settings
        .set("transactional.id", id)
        .set("delivery.report.only.error", only_failures)
        // Reports to a step that the peer closed a connection. Closes of idle connections are not
        // reported.
        .set("log.connection.close", "true")
        .set_log_level(RDKafkaLogLevel::Info)
        // The broker refuses offsets while it still writes the end of the last transaction, which
        // takes milliseconds.
        .set("retry.backoff.ms", "10")
        .set("transaction.timeout.ms", millis(config.transaction_timeout))
        .set("connections.max.idle.ms", millis(idle_max(config)));
    settings
}

/// After this time without traffic a producer of steps connects anew.
///
/// The library ignores the time-out of a request to a group's coordinator (librdkafka issues 5456 and
/// 5511): it queries the coordinator three times within milliseconds, and then waits for a change of any
/// of its connections. While a call waits, its connections are idle; closing them makes it query again
/// before the transaction times out.
fn idle_max(config: &KafkaConfig) -> Duration {
    (config.transaction_timeout / 2).max(Duration::from_secs(1))
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
