//! Records as JSON, for people and for programs without Avro.

use apache_avro::types::Value;
use serde_json::Value as Json;

use crate::codec::codec;
use crate::{Amount, CodecError, SchemaName, UnixMicros};

/// The fields of a value as JSON: amounts as texts such as `"10.50"`, times in microseconds as RFC 3339 in
/// UTC, bytes as hexadecimal digits; everything else as it is.
pub fn decode_json(name: SchemaName, bytes: &[u8]) -> Result<Json, CodecError> {
    let codec = codec(name);
    to_json(codec.value(bytes)?).map_err(|cause| codec.misfit(cause))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "schemas use few of Avro's types")]
fn to_json(value: Value) -> Result<Json, &'static str> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Boolean(flag) => flag.into(),
        Value::Int(number) => number.into(),
        Value::Long(number) => number.into(),
        Value::String(text) => text.into(),
        Value::Bytes(bytes) => alloy_primitives::hex::encode(bytes).into(),
        Value::TimestampMicros(micros) => UnixMicros(micros).to_rfc3339().into(),
        Value::Decimal(decimal) => {
            let bytes = Vec::<u8>::try_from(&decimal).map_err(|_| "a decimal without digits")?;
            let amount = Amount::from_decimal_bytes(&bytes).ok_or("not a decimal(38,18)")?;
            amount.to_string().into()
        }
        Value::Union(_, inner) => to_json(*inner)?,
        Value::Array(items) => {
            Json::Array(items.into_iter().map(to_json).collect::<Result<_, _>>()?)
        }
        Value::Record(fields) => {
            let field = |(name, value)| Ok::<_, &'static str>((name, to_json(value)?));
            Json::Object(fields.into_iter().map(field).collect::<Result<_, _>>()?)
        }
        _ => return Err("a type that no record uses"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::encode;
    use crate::record::example;

    #[test]
    fn records_are_readable() {
        let record = encode(&example::chain_head()).unwrap();
        let block = json!({
            "number": 21_000_000,
            "hash": format!("0x{}", "aa".repeat(32)),
            "timestamp": 1_790_000_011,
        });
        let transfer = encode(&example::chain_record()).unwrap();
        let transfer = decode_json(SchemaName::ChainRecord, &transfer).unwrap()["transfer"].take();
        assert_eq!((&transfer["value"], &transfer["ordinal"]), (&json!("10.50"), &json!(0)));
        let head = json!({
            "confirmed": [
                { "below": "1000.00", "number": 20_999_988, "timestamp": 1_789_999_867 },
                { "below": null, "number": 20_999_936, "timestamp": null },
            ],
            "finalized": 20_999_936,
            "match_window_seconds": 3600,
            "held": [{ "block": block, "transfer": transfer }],
            "has_gap": false,
        });
        let expected = json!({
            "kind": "head",
            "blockchain": "eth",
            "epoch": 3,
            "block": block,
            "observed_at": "2026-09-21T14:13:32.345678Z",
            "transfer": null,
            "value_text": null,
            "head": head,
            "watch": null,
            "confirmed": false,
        });
        assert_eq!(decode_json(SchemaName::ChainRecord, &record).unwrap(), expected);
        let letter = encode(&example::dead_letter()).unwrap();
        let letter = decode_json(SchemaName::DeadLetter, &letter).unwrap();
        assert_eq!(letter["key"], json!("6b6579"));
    }

    #[test]
    fn every_example_has_a_json_form() {
        for (name, bytes) in example::values().unwrap() {
            let json = decode_json(name, &bytes).unwrap();
            assert!(json.as_object().is_some_and(|fields| !fields.is_empty()), "{name:?}");
        }
    }
}
