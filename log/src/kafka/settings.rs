//! The settings of the client library, one function for each kind of client.

use std::time::Duration;

use rdkafka::ClientConfig;
use schemas::Secret;

use crate::config::KafkaConfig;

/// Largest record, and so largest request, that clients send and topics take.
pub(super) const RECORD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How often a member tells that it is there, and waits for news of its group, at most.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
/// How often the lag is measured.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(10);
/// How many sessions a member may go without polling. Long steps and look-ups come between polls.
const SILENT_SESSIONS: u32 = 2;

/// What a reader without a group brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appetite {
    /// One page, and little more.
    Page,
    /// Everything, fast.
    Whole,
}

/// How often a member of a group tells that it is there.
pub(super) fn heartbeat(config: &KafkaConfig) -> Duration {
    (config.session_timeout / 10).clamp(Duration::from_millis(50), HEARTBEAT_MAX)
}

/// What every client needs: where the brokers are, who we are.
pub(super) fn client(config: &KafkaConfig) -> ClientConfig {
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
    let texts = [("sasl.mechanism", &security.mechanism), ("sasl.username", &security.username)];
    for (key, text) in texts {
        if let Some(text) = text {
            settings.set(key, text);
        }
    }
    let files = [
        ("ssl.ca.location", &security.ca_file),
        ("ssl.certificate.location", &security.certificate_file),
        ("ssl.key.location", &security.key_file),
    ];
    for (key, file) in files {
        if let Some(file) = file {
            settings.set(key, file.to_string_lossy());
        }
    }
    let secrets =
        [("sasl.password", &security.password), ("ssl.key.password", &security.key_password)];
    for (key, secret) in secrets {
        if let Some(secret) = secret {
            settings.set(key, exposed(secret));
        }
    }
    settings
}

fn exposed(secret: &Secret) -> String {
    String::from_utf8_lossy(secret.expose()).into_owned()
}

/// What every consumer has.
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

/// A client that asks for offsets and topics only. Whether it counts what open transactions wrote is
/// the one thing that the two of them differ in.
pub(super) fn query(config: &KafkaConfig, committed: bool) -> ClientConfig {
    let mut settings = client(config);
    let isolation = if committed { "read_committed" } else { "read_uncommitted" };
    settings.set("isolation.level", isolation);
    settings
}

/// A consumer of partitions that it is told, without a group. The group's name is never joined: the
/// library wants one.
pub(super) fn reader(config: &KafkaConfig, appetite: Appetite) -> ClientConfig {
    let mut settings = consumer(config);
    let (messages, kilobytes) = match appetite {
        Appetite::Page => ("1", "16384"),
        Appetite::Whole => ("1000000", "262144"),
    };
    settings
        .set("group.id", format!("{}readers", config.prefix))
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "10")
        .set("queued.min.messages", messages)
        .set("queued.max.messages.kbytes", kilobytes);
    settings
}

/// A consumer that follows partitions from their end.
pub(super) fn tail(config: &KafkaConfig) -> ClientConfig {
    let mut settings = consumer(config);
    settings
        .set("group.id", format!("{}tails", config.prefix))
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "65536");
    settings
}

/// A member of a group.
pub(super) fn member(config: &KafkaConfig, group: &str, instance: &str) -> ClientConfig {
    let mut settings = consumer(config);
    let silence = config.session_timeout.saturating_mul(SILENT_SESSIONS);
    settings
        .set("group.id", group)
        .set("group.instance.id", instance)
        .set("partition.assignment.strategy", "range")
        // Said by whoever is asked to start where nothing is: we look, and then decide.
        .set("auto.offset.reset", "error")
        .set("session.timeout.ms", millis(config.session_timeout))
        .set("heartbeat.interval.ms", millis(heartbeat(config)))
        .set("max.poll.interval.ms", millis(silence))
        .set("statistics.interval.ms", millis(STATISTICS_INTERVAL))
        .set("fetch.wait.max.ms", "100")
        // What comes of one partition at once, and waits, is what others wait for.
        .set("fetch.message.max.bytes", "1048576")
        .set("queued.min.messages", "10000")
        .set("queued.max.messages.kbytes", "131072");
    settings
}

/// A consumer that never reads: it keeps what a writer says about itself.
pub(super) fn keeper(config: &KafkaConfig, group: &str) -> ClientConfig {
    let mut settings = consumer(config);
    settings.set("group.id", group);
    settings
}

/// What both kinds of producers have.
fn producer(config: &KafkaConfig) -> ClientConfig {
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

/// The shared producer of [`crate::Log::produce`].
pub(super) fn plain_producer(config: &KafkaConfig) -> ClientConfig {
    producer(config)
}

/// What a producer of atomic steps is told about each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reports {
    /// Where it was written, or why not.
    All,
    /// Only why it was not written: that spares a call for each record.
    Failures,
}

/// A producer of atomic steps.
pub(super) fn transactional_producer(
    config: &KafkaConfig,
    id: &str,
    reports: Reports,
) -> ClientConfig {
    let mut settings = producer(config);
    let only_failures = if reports == Reports::Failures { "true" } else { "false" };
    settings
        .set("transactional.id", id)
        .set("delivery.report.only.error", only_failures)
        // Offsets are refused while the broker still writes the end of the last step: milliseconds.
        .set("retry.backoff.ms", "10")
        .set("transaction.timeout.ms", millis(config.transaction_timeout))
        .set("connections.max.idle.ms", millis(idle_max(config)));
    settings
}

/// After this time without traffic a producer of steps connects anew.
///
/// The library forgets the time-out of a request to a group's coordinator (librdkafka issues 5456 and
/// 5511): it asks three times within milliseconds who the coordinator is, and then waits for any of its
/// connections to change. While a call waits, its connections are idle; closing them makes it ask again
/// before the transaction times out.
fn idle_max(config: &KafkaConfig) -> Duration {
    (config.transaction_timeout / 2).max(Duration::from_secs(1))
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
