//! Identity of a record, and the fields in which two of them differ.

use schemas::{Topic, decode_json};
use serde_json::Value;

/// A field in which a record differs from the replayed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// Its path, with a dot between a field and one inside it.
    pub(super) name: String,
    pub(super) emitted: Value,
    pub(super) replayed: Value,
}

/// The fields that identify an output of this topic: their combination is unique.
fn names(topic: Topic) -> &'static [&'static str] {
    match topic {
        Topic::Orders => &["order_id", "version"],
        Topic::Deposits => &["deposit_id", "updated_at"],
        Topic::OrdersCommands => &[
            "kind",
            "order_id",
            "deposit.slot",
            "candidate_transfer_id",
            "settle.transfer_id",
            "attach.transfer_id",
            "command_id",
            "issued_at",
        ],
        Topic::DepositsCommands => &["kind", "order_id", "slot", "transfer_id", "issued_at"],
        Topic::Alerts => &["kind", "blockchain", "transfer_id", "order_id", "raised_at"],
        Topic::DeadLetters => &["topic", "partition", "offset"],
        Topic::TransfersDetected
        | Topic::TransfersConfirmed
        | Topic::TransfersMatched
        | Topic::TransfersUnknown
        | Topic::TransfersFailed => &["transfer_id", "updated_at"],
        Topic::TransfersRaw
        | Topic::MatchingChangelog
        | Topic::OrdersChangelog
        | Topic::MatchingSteps
        | Topic::OrdersSteps
        | Topic::WebhooksDispatch
        | Topic::WebhooksRetry(_)
        | Topic::WebhooksDefer(_)
        | Topic::WebhooksChangelog
        | Topic::WebhooksAttempts
        | Topic::WebhooksDead
        | Topic::Chains
        | Topic::Audit => &[],
    }
}

/// Returns the identity of a record, such as `order_id 0199… version 3`.
pub(super) fn identity(topic: Topic, value: Option<&[u8]>) -> String {
    let Some(record) = decoded(topic, value) else {
        return "a record that cannot be read".to_owned();
    };
    let part = |name: &&str| {
        let value = name.split('.').try_fold(&record, |value, part| value.get(part))?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (!value.is_null()).then(|| format!("{name} {text}"))
    };
    names(topic).iter().filter_map(part).collect::<Vec<_>>().join(" ")
}

/// The fields in which two values of a topic differ.
pub(super) fn fields(topic: Topic, emitted: Option<&[u8]>, replayed: Option<&[u8]>) -> Vec<Field> {
    let [emitted, replayed] =
        [emitted, replayed].map(|value| decoded(topic, value).unwrap_or_default());
    let mut found = Vec::new();
    compare(String::new(), &emitted, &replayed, &mut found);
    found
}

fn compare(name: String, emitted: &Value, replayed: &Value, found: &mut Vec<Field>) {
    if let (Value::Object(all), Value::Object(others)) = (emitted, replayed) {
        let dot = if name.is_empty() { "" } else { "." };
        for (inner, value) in all {
            let other = others.get(inner).unwrap_or(&Value::Null);
            compare(format!("{name}{dot}{inner}"), value, other, found);
        }
    } else if emitted != replayed {
        found.push(Field { name, emitted: emitted.clone(), replayed: replayed.clone() });
    }
}

/// Returns the value as JSON; `None` if there is none or it is garbage.
pub(super) fn decoded(topic: Topic, value: Option<&[u8]>) -> Option<Value> {
    decode_json(topic.spec().schema, value?).ok()
}
