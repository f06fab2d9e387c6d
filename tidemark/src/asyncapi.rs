//! `tidemark asyncapi`: the AsyncAPI document of this installation's topics.

use log::config::SecurityProtocol;
use schemas::asyncapi::Installation;

use crate::settings::Settings;

/// The AsyncAPI document of the installation that these settings are for.
pub(crate) fn document(settings: &Settings) -> String {
    let log = &settings.log;
    // The embedded log has no server: the document describes it as if on a local Kafka.
    let (brokers, replicas, protocol) = match &log.back_end {
        log::config::BackEnd::Embedded => ("localhost:9092", 1, SecurityProtocol::Plaintext),
        log::config::BackEnd::Kafka(kafka) => {
            (kafka.brokers.as_str(), kafka.replication, kafka.security.protocol)
        }
    };
    let own = || {
        let listen = settings.process.operators_listen();
        let listen = listen.map(|listen| listen.to_string()).unwrap_or_default();
        format!("http://{listen}/registry")
    };
    let external = settings.schemas.registry.as_ref().map(ToString::to_string);
    let installation = Installation {
        layout: log.layout,
        prefix: log.topic_prefix().to_owned(),
        replicas,
        brokers: brokers.to_owned(),
        is_secure: matches!(protocol, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl),
        registry: external.unwrap_or_else(own),
    };
    format!("{:#}\n", installation.asyncapi())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_installation_has_its_own_names_and_places() {
        let text = "[log]\nbackend = \"kafka\"\nbrokers = \"b1:9,b2:9\"\nprefix = \"shop.\"\n\
                    replication = 3\nlanes = 2\nsecurity_protocol = \"ssl\"\n\
                    [schemas]\nregistry = \"https://registry.example/\"\n";
        let settings = Settings::parse(text, &[]).unwrap();
        let document: Value = serde_json::from_str(&document(&settings)).unwrap();
        for (part, expected) in [
            ("/servers/kafka/host", json!("b1:9,b2:9")),
            ("/servers/kafka/protocol", json!("kafka-secure")),
            ("/servers/kafka/bindings/kafka/schemaRegistryUrl", json!("https://registry.example/")),
            ("/channels/transfers.raw/address", json!("shop.transfers.raw")),
            ("/channels/transfers.raw/bindings/kafka/partitions", json!(16)),
            ("/channels/transfers.raw/bindings/kafka/replicas", json!(3)),
        ] {
            assert_eq!(document.pointer(part), Some(&expected), "{part}");
        }
    }
}
