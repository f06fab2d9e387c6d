//! The AsyncAPI 3 document: every topic with its key, headers, partitions, retention and schema,
//! for external programs. Made from the topic table, so it cannot be out of date.

use serde_json::{Map, Value, json};

use crate::{Cleanup, Guide, KeyKind, Layout, SchemaName, Topic};

const BINDING: &str = "0.5.0";
const AVRO: &str = "application/vnd.apache.avro+json;version=1.9.0";

/// Values that differ between installations.
#[derive(Debug, Clone)]
pub struct Installation {
    pub layout: Layout,
    /// Precedes the names of topics.
    pub prefix: String,
    pub replicas: u16,
    /// `host:port` of brokers, separated by commas.
    pub brokers: String,
    pub is_secure: bool,
    pub registry: String,
}

impl Installation {
    /// The document. The operations `send` and `receive` are those of this program: other programs
    /// receive what it sends.
    #[must_use]
    pub fn asyncapi(&self) -> Value {
        json!({
            "asyncapi": "3.0.0",
            "info": info(),
            "defaultContentType": "application/avro",
            "servers": self.servers(),
            "channels": self.channels(),
            "operations": operations(),
            "components": components(),
        })
    }

    fn servers(&self) -> Value {
        let binding = json!({
            "schemaRegistryUrl": self.registry,
            "schemaRegistryVendor": "confluent",
            "bindingVersion": BINDING,
        });
        let server = json!({
            "host": self.brokers,
            "protocol": if self.is_secure { "kafka-secure" } else { "kafka" },
            "bindings": { "kafka": binding },
        });
        json!({ "kafka": server })
    }

    fn channels(&self) -> Value {
        Topic::ALL.iter().map(|topic| (topic.name().to_owned(), self.channel(*topic))).collect()
    }

    fn channel(&self, topic: Topic) -> Value {
        let address = format!("{}{topic}", self.prefix);
        let configuration = match topic.spec().cleanup {
            Cleanup::Compact => json!({ "cleanup.policy": ["compact"] }),
            Cleanup::Delete { hours } => json!({
                "cleanup.policy": ["delete"],
                "retention.ms": i64::from(hours) * 3_600_000,
            }),
        };
        let binding = json!({
            "topic": address,
            "partitions": i64::from(topic.partitions(&self.layout)),
            "replicas": i64::from(self.replicas),
            "topicConfiguration": configuration,
            "bindingVersion": BINDING,
        });
        let record = format!("{:?}", topic.spec().schema);
        json!({
            "address": address,
            "description": description(topic),
            "messages": { record: message(topic) },
            "bindings": { "kafka": binding },
        })
    }
}

fn info() -> Value {
    json!({
        "title": "Tidemark topics",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Stablecoin payments from the chain to the shop. Values are Avro in the Confluent \
            wire format; read with isolation.level=read_committed. docs/consume/reading.md describes them.",
        "license": {
            "name": "Apache-2.0",
            "url": "https://www.apache.org/licenses/LICENSE-2.0",
        },
    })
}

fn description(topic: Topic) -> String {
    let guide = topic.guide();
    let scope = match topic.spec().key {
        KeyKind::Lane => "Ordered by wallet, in the lane of its chain: an explicit partition.",
        KeyKind::Order => "Ordered by order: the key's murmur2 hash gives the partition.",
        KeyKind::Event => {
            "Ordered by order or transfer: the key's murmur2 hash gives the partition."
        }
        KeyKind::Chain => "Ordered by chain: one partition each.",
        KeyKind::Single => "One partition.",
    };
    let internal =
        if guide.is_public { "" } else { " Internal: a later version may stop writing it." };
    format!("{} {scope}{internal}", guide.summary)
}

fn message(topic: Topic) -> Value {
    let spec = topic.spec();
    let binding = json!({
        "key": { "type": "string", "description": topic.guide().key },
        "schemaIdLocation": "payload",
        "schemaIdPayloadEncoding": "confluent",
        "schemaLookupStrategy": "TopicNameStrategy",
        "bindingVersion": BINDING,
    });
    json!({
        "name": spec.event_type,
        "contentType": "application/avro",
        "headers": reference("components/schemas/headers"),
        "payload": reference(&format!("components/schemas/{:?}", spec.schema)),
        "bindings": { "kafka": binding },
    })
}

fn operations() -> Value {
    let mut all = Map::new();
    for topic in Topic::ALL {
        let Guide { writers, readers, summary, .. } = topic.guide();
        for (action, stages) in [("send", writers), ("receive", readers)] {
            if stages.is_empty() {
                continue;
            }
            let by = stages.iter().map(|stage| stage.as_str()).collect::<Vec<_>>().join(", ");
            let channel = format!("channels/{topic}");
            let message = format!("{channel}/messages/{:?}", topic.spec().schema);
            let operation = json!({
                "action": action,
                "channel": reference(&channel),
                "summary": summary,
                "description": format!("By {by}."),
                "messages": [reference(&message)],
            });
            all.insert(format!("{action}.{topic}"), operation);
        }
    }
    Value::Object(all)
}

#[expect(clippy::expect_used, reason = "schema files are compiled in; a test parses each one")]
fn components() -> Value {
    let schemas = SchemaName::ALL.iter().map(|name| {
        let text: Value = serde_json::from_str(name.schema().text).expect("a schema file is JSON");
        let schema = json!({ "schemaFormat": AVRO, "schema": text });
        (format!("{name:?}"), schema)
    });
    let headers = std::iter::once(("headers".to_owned(), headers()));
    json!({ "schemas": headers.chain(schemas).collect::<Map<_, _>>() })
}

fn reference(path: &str) -> Value {
    json!({ "$ref": format!("#/{path}") })
}

fn headers() -> Value {
    let traceparent = "W3C trace context, where the cause had one.";
    let traceparent = json!({ "type": "string", "description": traceparent });
    json!({ "type": "object", "properties": { "traceparent": traceparent } })
}
