//! Clients of librdkafka: settings, reports and the classification of errors.

pub(super) mod context;
pub(super) mod fault;
pub(super) mod name;
pub(super) mod record;
pub(super) mod settings;
pub(super) mod watchdog;

use std::time::Duration;

use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{ClientContext, Offset};

use self::context::PlainContext;
use crate::{Cause, Error};

const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// A client that reads or queries.
pub(super) type PlainConsumer = BaseConsumer<PlainContext>;

/// Creates a client.
///
/// # Errors
/// [`Error::Fatal`]: the configuration cannot be used.
pub(super) fn open<C: ClientContext, T: FromClientConfigAndContext<C>>(
    settings: &ClientConfig,
    context: C,
) -> Result<T, Error> {
    T::from_config_and_context(settings, context).map_err(refused)
}

/// Has the library fetch from the assigned partitions at once. By itself it queries the leader of a
/// new topic, and fetches from resumed partitions, only once a second. A request to the leaders
/// ends both waits.
pub(super) fn wake<C: ConsumerContext>(consumer: &BaseConsumer<C>) {
    if let Err(error) = request_ends(consumer) {
        tracing::debug!(%error, "the leaders of partitions do not answer");
    }
}

/// Requests the ends of the assigned partitions from their leaders.
pub(super) fn request_ends<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> KafkaResult<()> {
    let mut partitions = consumer.assignment()?;
    // In a request for offsets this is the timestamp of the end.
    partitions.set_all_offsets(Offset::End)?;
    consumer.offsets_for_times(partitions, WAKE_TIMEOUT).map(drop)
}

fn refused(error: KafkaError) -> Error {
    Error::Fatal(if let KafkaError::ClientConfig(_, what, key, _) = &error {
        // The text of the error has the value of the setting, which may be a password.
        format!("Kafka's client refuses {key}: {what}").into()
    } else {
        Cause::new(format!("Kafka's client cannot be created: {error}"), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_setting_does_not_show_its_value() {
        let error = KafkaError::ClientConfig(
            rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
            "is not valid".into(),
            "sasl.password".into(),
            "hunter2".into(),
        );
        let shown = format!("{:?}", refused(error));
        assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    }
}
