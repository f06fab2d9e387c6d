//! The AsyncAPI 3 document: every topic with its key, headers, partitions, retention and schema, for
//! programs that know nothing of us. Made from the topic table, so it cannot be out of date.

mod yaml;

use crate::topic::Guide;
use crate::{Cleanup, KeyKind, Layout, SchemaName, Topic};
use yaml::{Node, map};

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
    /// The document, as YAML. `send` and `receive` are this program's: others receive what it sends.
    #[must_use]
    pub fn asyncapi(&self) -> String {
        let note = "# Made from the topic table by `tidemark asyncapi`. Do not edit.\n";
        let document = map! {
            "asyncapi": "3.0.0",
            "info": info(),
            "defaultContentType": "application/avro",
            "servers": self.servers(),
            "channels": self.channels(),
            "operations": operations(),
            "components": components(),
        };
        format!("{note}{}", document.render())
    }

    fn servers(&self) -> Node {
        let binding = map! {
            "schemaRegistryUrl": &*self.registry,
            "schemaRegistryVendor": "confluent",
            "bindingVersion": BINDING,
        };
        let server = map! {
            "host": &*self.brokers,
            "protocol": if self.is_secure { "kafka-secure" } else { "kafka" },
            "bindings": map! { "kafka": binding },
        };
        map! { "kafka": server }
    }

    fn channels(&self) -> Node {
        Node::Map(Topic::ALL.iter().map(|t| (t.name().to_owned(), self.channel(*t))).collect())
    }

    fn channel(&self, topic: Topic) -> Node {
        let address = format!("{}{topic}", self.prefix);
        let configuration = match topic.spec().cleanup {
            Cleanup::Compact => map! { "cleanup.policy": vec![Node::from("compact")] },
            Cleanup::Delete { hours } => map! {
                "cleanup.policy": vec![Node::from("delete")],
                "retention.ms": i64::from(hours) * 3_600_000,
            },
        };
        let binding = map! {
            "topic": &*address,
            "partitions": i64::from(topic.partitions(&self.layout)),
            "replicas": i64::from(self.replicas),
            "topicConfiguration": configuration,
            "bindingVersion": BINDING,
        };
        let record = format!("{:?}", topic.spec().schema);
        map! {
            "address": &*address,
            "description": &*description(topic),
            "messages": Node::Map(vec![(record, message(topic))]),
            "bindings": map! { "kafka": binding },
        }
    }
}

fn info() -> Node {
    map! {
        "title": "Tidemark topics",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Stablecoin payments from the chain to the shop. Values are Avro in the Confluent \
            wire format; read with isolation.level=read_committed. docs/consume/contract.md describes \
            them.",
        "license": map! {
            "name": "Apache-2.0",
            "url": "https://www.apache.org/licenses/LICENSE-2.0",
        },
    }
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

fn message(topic: Topic) -> Node {
    let spec = topic.spec();
    let binding = map! {
        "key": map! { "type": "string", "description": topic.guide().key },
        "schemaIdLocation": "payload",
        "schemaIdPayloadEncoding": "confluent",
        "schemaLookupStrategy": "TopicNameStrategy",
        "bindingVersion": BINDING,
    };
    map! {
        "name": spec.event_type,
        "contentType": "application/avro",
        "headers": Node::to("components/schemas/headers"),
        "payload": Node::to(&format!("components/schemas/{:?}", spec.schema)),
        "bindings": map! { "kafka": binding },
    }
}

fn operations() -> Node {
    let mut all = Vec::new();
    for topic in Topic::ALL {
        let Guide { writers, readers, summary, .. } = topic.guide();
        for (action, stages) in [("send", writers), ("receive", readers)] {
            if stages.is_empty() {
                continue;
            }
            let by = stages.iter().map(|stage| stage.as_str()).collect::<Vec<_>>().join(", ");
            let channel = format!("channels/{topic}");
            let message = format!("{channel}/messages/{:?}", topic.spec().schema);
            let operation = map! {
                "action": action,
                "channel": Node::to(&channel),
                "summary": summary,
                "description": &*format!("By {by}."),
                "messages": vec![Node::to(&message)],
            };
            all.push((format!("{action}.{topic}"), operation));
        }
    }
    Node::Map(all)
}

fn components() -> Node {
    let mut schemas = vec![("headers".to_owned(), headers())];
    schemas.extend(SchemaName::ALL.iter().map(|name| {
        let schema = map! { "schemaFormat": AVRO, "schema": Node::Json(name.schema().text) };
        (format!("{name:?}"), schema)
    }));
    map! { "schemas": Node::Map(schemas) }
}

fn headers() -> Node {
    let traceparent = "W3C trace context, where the cause had one.";
    let traceparent = map! { "type": "string", "description": traceparent };
    map! { "type": "object", "properties": map! { "traceparent": traceparent } }
}
