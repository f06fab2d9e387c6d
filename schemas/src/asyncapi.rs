//! The AsyncAPI 3 document: every topic with its key, headers, partitions, retention and schema, for
//! programs that know nothing of us. Made from the topic table, so it cannot be out of date.

mod yaml;

use crate::topic::Guide;
use crate::{Cleanup, KeyKind, Layout, SchemaName, Stage, Topic};
use yaml::Node;

const BINDING: &str = "0.5.0";
const AVRO: &str = "application/vnd.apache.avro+json;version=1.9.0";

/// What differs between installations.
#[derive(Debug, Clone)]
pub struct Installation {
    pub layout: Layout,
    /// Stands before the names of topics.
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
        let document = Node::map([
            ("asyncapi", Node::text("3.0.0")),
            ("info", info()),
            ("defaultContentType", Node::text("application/avro")),
            ("servers", self.servers()),
            ("channels", self.channels()),
            ("operations", operations()),
            ("components", components()),
        ]);
        format!("{note}{}", document.render())
    }

    fn servers(&self) -> Node {
        let protocol = if self.is_secure { "kafka-secure" } else { "kafka" };
        let binding = Node::map([
            ("schemaRegistryUrl", Node::text(&self.registry)),
            ("schemaRegistryVendor", Node::text("confluent")),
            ("bindingVersion", Node::text(BINDING)),
        ]);
        let server = Node::map([
            ("host", Node::text(&self.brokers)),
            ("protocol", Node::text(protocol)),
            ("bindings", Node::map([("kafka", binding)])),
        ]);
        Node::map([("kafka", server)])
    }

    fn channels(&self) -> Node {
        Node::Map(Topic::ALL.iter().map(|t| (t.name().to_owned(), self.channel(*t))).collect())
    }

    fn channel(&self, topic: Topic) -> Node {
        let address = format!("{}{topic}", self.prefix);
        let configuration = match topic.spec().cleanup {
            Cleanup::Compact => {
                Node::map([("cleanup.policy", Node::List(vec![Node::text("compact")]))])
            }
            Cleanup::Delete { hours } => Node::map([
                ("cleanup.policy", Node::List(vec![Node::text("delete")])),
                ("retention.ms", Node::Number(i64::from(hours) * 3_600_000)),
            ]),
        };
        let binding = Node::map([
            ("topic", Node::text(&address)),
            ("partitions", Node::Number(topic.partitions(&self.layout).into())),
            ("replicas", Node::Number(self.replicas.into())),
            ("topicConfiguration", configuration),
            ("bindingVersion", Node::text(BINDING)),
        ]);
        let record = format!("{:?}", topic.spec().schema);
        Node::map([
            ("address", Node::text(&address)),
            ("description", Node::text(description(topic))),
            ("messages", Node::Map(vec![(record, message(topic))])),
            ("bindings", Node::map([("kafka", binding)])),
        ])
    }
}

fn info() -> Node {
    Node::map([
        ("title", Node::text("Tidemark topics")),
        ("version", Node::text(env!("CARGO_PKG_VERSION"))),
        (
            "description",
            Node::text(
                "Stablecoin payments from the chain to the shop. Values are Avro in the Confluent wire \
                 format; read with isolation.level=read_committed. docs/TOPICS.md tells the rest.",
            ),
        ),
        (
            "license",
            Node::map([
                ("name", Node::text("Apache-2.0")),
                ("url", Node::text("https://www.apache.org/licenses/LICENSE-2.0")),
            ]),
        ),
    ])
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
    let key =
        Node::map([("type", Node::text("string")), ("description", Node::text(topic.guide().key))]);
    let binding = Node::map([
        ("key", key),
        ("schemaIdLocation", Node::text("payload")),
        ("schemaIdPayloadEncoding", Node::text("confluent")),
        ("schemaLookupStrategy", Node::text("TopicNameStrategy")),
        ("bindingVersion", Node::text(BINDING)),
    ]);
    let name = format!("{:?}", spec.schema);
    Node::map([
        ("name", Node::text(spec.event_type)),
        ("contentType", Node::text("application/avro")),
        ("headers", Node::to("components/schemas/headers")),
        ("payload", Node::to(&format!("components/schemas/{name}"))),
        ("bindings", Node::map([("kafka", binding)])),
    ])
}

fn operations() -> Node {
    let mut all = Vec::new();
    for topic in Topic::ALL {
        let Guide { writers, readers, summary, .. } = topic.guide();
        for (action, stages) in [("send", writers), ("receive", readers)] {
            if stages.is_empty() {
                continue;
            }
            let channel = format!("channels/{topic}");
            let message = format!("{channel}/messages/{:?}", topic.spec().schema);
            let operation = Node::map([
                ("action", Node::text(action)),
                ("channel", Node::to(&channel)),
                ("summary", Node::text(summary)),
                ("description", Node::text(format!("By {}.", listed(stages)))),
                ("messages", Node::List(vec![Node::to(&message)])),
            ]);
            all.push((format!("{action}.{topic}"), operation));
        }
    }
    Node::Map(all)
}

/// `api, processor`
fn listed(stages: &[Stage]) -> String {
    stages.iter().map(|stage| stage.as_str()).collect::<Vec<_>>().join(", ")
}

fn components() -> Node {
    let mut schemas = vec![("headers".to_owned(), headers())];
    schemas.extend(SchemaName::ALL.iter().map(|name| {
        let schema = Node::map([
            ("schemaFormat", Node::text(AVRO)),
            ("schema", Node::Json(name.schema().text)),
        ]);
        (format!("{name:?}"), schema)
    }));
    Node::map([("schemas", Node::Map(schemas))])
}

/// CloudEvents in the Kafka binding's binary mode.
fn headers() -> Node {
    let header = |name: &str, text: &str| {
        let of = [("type", Node::text("string")), ("description", Node::text(text))];
        (name.to_owned(), Node::map(of))
    };
    let properties = vec![
        header("ce_specversion", "1.0"),
        header("ce_id", "Unique within the source; the same when the record is made again."),
        header("ce_source", "tidemark"),
        header("ce_type", "What happened: the name of the message."),
        header("ce_time", "When it happened, RFC 3339."),
        header("content-type", "application/avro"),
        header("traceparent", "W3C trace context, where the cause had one."),
    ];
    let required = ["ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "content-type"];
    Node::map([
        ("type", Node::text("object")),
        ("required", Node::List(required.map(Node::text).into())),
        ("properties", Node::Map(properties)),
    ])
}
