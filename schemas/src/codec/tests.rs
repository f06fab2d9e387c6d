//! Valid and invalid records, and other versions of a schema.

use std::collections::{BTreeMap, BTreeSet};

use apache_avro::writer::datum::GenericDatumWriter;
use serde::Deserialize as _;
use serde_json::{Value as Json, json};

use super::*;
use crate::record::example::{self, each_example};
use crate::record::{
    Alert, DepositEntry, LaneEntry, MatchingEntry, Order, OrderCommand, OrderCommandBody, Settle,
    Watch,
};
use crate::{CloseReason, Epoch, TransferId, UnixMicros, UnixSeconds};

/// Refusals of a record without the part that its kind needs.
const CONTRADICTIONS: [&str; 3] = [
    "kind and parts do not agree",
    "the part that its kind needs is missing",
    "it is not one of lane, deposit, transfer and watch",
];

/// A newer version can read its records, no version can read garbage: they have different errors.
#[test]
fn bytes_that_are_no_record_have_their_own_errors() {
    let good = encode(&example::alert()).unwrap();
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let kind = |error: &CodecError| match error {
        CodecError::Framing => "framing",
        CodecError::SchemaId { .. } => "schema",
        CodecError::Avro { .. } => "avro",
        CodecError::Trailing(1) => "trailing",
        _ => "other",
    };
    for (what, bytes, expected, is_newer) in [
        ("no header", good[..4].to_vec(), "framing", false),
        ("another magic byte", changed(0), "framing", false),
        ("an unknown schema", changed(1), "schema", true),
        ("another record", encode(&example::order()).unwrap(), "schema", false),
        ("cut off", good[..good.len() - 1].to_vec(), "avro", false),
        ("longer", [&good[..], &[0]].concat(), "trailing", false),
    ] {
        let error = decode::<Alert>(&bytes).unwrap_err();
        assert_eq!((kind(&error), error.is_newer()), (expected, is_newer), "{what}: {error}");
    }
    assert_eq!(decode::<Alert>(&good).unwrap(), example::alert());
}

/// Replaces every text of every example by one that is in no vocabulary. If the text was a word, the
/// error must name its field, so no field with a word is missing in the list.
#[test]
fn every_word_of_a_newer_version_is_named() {
    fn check<R: Record + PartialEq + std::fmt::Debug>(_: &str, record: &R) -> usize {
        let name = R::SCHEMA;
        let bytes = encode(record).unwrap();
        let mut named = 0;
        for number in 0.. {
            let mut value = codec(name).value(&bytes).unwrap();
            let Some(field) = replace(&mut value, &mut { number }, "") else { break };
            let read = decode::<R>(&record_of(name.schema(), value));
            let is_word = name.words().iter().any(|(word, _)| *word == field);
            let text = read.as_ref().map_or_else(ToString::to_string, |_| String::new());
            assert!(is_word || !text.contains("is not one of"), "{name:?}.{field}: {text}");
            if let Err(error @ CodecError::Word { field: found, .. }) = &read {
                assert!(*found == field && error.is_newer());
                named += 1;
            }
            assert_eq!(matches!(read, Err(CodecError::Word { .. })), is_word, "{name:?}.{field}");
        }
        named
    }
    let named = each_example!(check);
    assert!(named.iter().sum::<usize>() > 30, "{named:?}");
}

/// Replaces the text with this number, and returns its field.
fn replace(value: &mut Value, number: &mut usize, field: &str) -> Option<String> {
    match value {
        Value::Record(fields) => {
            fields.iter_mut().find_map(|(name, value)| replace(value, number, name))
        }
        Value::Union(_, inner) => replace(inner, number, field),
        Value::Array(items) => items.iter_mut().find_map(|item| replace(item, number, field)),
        Value::String(text) => match number.checked_sub(1) {
            Some(left) => {
                *number = left;
                None
            }
            None => {
                *text = "newer".to_owned();
                Some(field.to_owned())
            }
        },
        _ => None,
    }
}

/// The written version has its own reader and writer, which must agree with `apache-avro`.
#[test]
fn apache_avro_has_the_same_bytes() {
    fn check<R: Record + PartialEq + std::fmt::Debug>(_: &str, record: &R) {
        let bytes = encode(record).unwrap();
        let value = codec(R::SCHEMA).value(&bytes).unwrap();
        let by_name: R = apache_avro::from_value(&value).unwrap();
        assert_eq!((&by_name, &decode::<R>(&bytes).unwrap()), (record, record));
        assert_eq!(record_of(R::SCHEMA.schema(), value), bytes, "{:?}", R::SCHEMA);
    }
    each_example!(check);
}

/// Entries of the changelog that are not examples.
fn entries() -> [MatchingEntry; 3] {
    let (block, deposit) = (example::chain_record().block, example::deposit());
    let lane = LaneEntry {
        epoch: Epoch(3),
        head: Some(block),
        finalized: 1,
        confirmed: 2,
        match_window_seconds: 3,
        sequence: 4,
        went_back_at: Some(UnixSeconds(5)),
        too_far_at: Some(UnixSeconds(6)),
        progress_at: Some(UnixMicros(7)),
        progress_time: Some(UnixSeconds(8)),
        progress_due: true,
        has_gap: false,
        newest: Some(UnixSeconds(9)),
        stopped: Vec::new(),
        id_partition: Some(10),
    };
    let entry = DepositEntry {
        deposit_id: deposit.deposit_id,
        updated_at: UnixMicros(1),
        order_id: deposit.order_id,
        slot: 2,
        close_reason: Some(CloseReason::Expired),
        stablecoin: deposit.stablecoin,
        contracts: vec![deposit.wallet_address],
        user_address: None,
        wallet_address: deposit.wallet_address,
        value: deposit.value,
        started_at: UnixSeconds(3),
        expires_at: UnixSeconds(4),
        opened_above: 5,
        opened_at: 6,
        late_window_seconds: 7,
        accepts_late: true,
        release_at: Some(UnixSeconds(8)),
    };
    let watch = Watch { wallet_address: deposit.wallet_address, contracts: Vec::new() };
    [MatchingEntry::Lane(lane), MatchingEntry::Deposit(entry), MatchingEntry::Watch(watch)]
}

/// Checks each record type of each schema, nested ones included.
#[test]
fn fields_have_the_order_of_their_schema() {
    fn names(
        value: &Value,
        schema: &Json,
        all: &BTreeMap<String, Json>,
        seen: &mut BTreeSet<String>,
    ) {
        let named = |name| all.get(name).or_else(|| all.get(&format!("tidemark.{name}")));
        let schema = schema.as_str().and_then(named).unwrap_or(schema);
        match value {
            Value::Record(fields) => {
                let declared = schema["fields"].as_array().unwrap();
                let of = |field: &Json| field["name"].as_str().unwrap().to_owned();
                let written: Vec<_> = fields.iter().map(|(name, _)| name.clone()).collect();
                assert_eq!(written, declared.iter().map(of).collect::<Vec<_>>());
                seen.insert(full_name(schema));
                for ((_, value), field) in fields.iter().zip(declared) {
                    names(value, &field["type"], all, seen);
                }
            }
            Value::Union(branch, inner) => names(inner, &schema[*branch as usize], all, seen),
            Value::Array(items) => {
                items.iter().for_each(|item| names(item, &schema["items"], all, seen));
            }
            _ => {}
        }
    }
    fn check<R: Record>(_: &str, record: &R) -> (BTreeSet<String>, BTreeSet<String>) {
        let schema = parse(R::SCHEMA.schema().text);
        let (mut all, mut seen) = (BTreeMap::new(), BTreeSet::new());
        named(&schema, &mut all);
        names(&apache_avro::to_value(record).unwrap(), &schema, &all, &mut seen);
        (all.into_keys().collect(), seen)
    }
    let answer = OrderCommandBody::DepositClosed { slot: 0, reason: CloseReason::Expired };
    let answer = OrderCommand { body: answer, ..example::order_command() };
    let deposit = example::deposit();
    let settle = OrderCommandBody::Settle(Settle {
        transfer_id: TransferId(7),
        slot: 0,
        deposit_id: deposit.deposit_id,
        blockchain: deposit.blockchain,
        wallet_address: deposit.wallet_address,
        accepts_late: false,
    });
    let settle = OrderCommand { body: settle, ..example::order_command() };
    let [lane, deposit, watch] = entries();
    let more = [
        check("", &answer),
        check("", &settle),
        check("", &lane),
        check("", &deposit),
        check("", &watch),
    ];
    let checked: Vec<_> = each_example!(check).into_iter().chain(more).collect();
    let all: BTreeSet<_> = checked.iter().flat_map(|(all, _)| all).collect();
    let seen: BTreeSet<_> = checked.iter().flat_map(|(_, seen)| seen).collect();
    let lacking: Vec<_> = all.difference(&seen).collect();
    assert!(lacking.is_empty(), "no example has {lacking:?}");
}

#[test]
fn numbers_of_any_size_are_written_as_avro_has_them() {
    let edges =
        (0..63).flat_map(|bits| [(1_i64 << bits) - 1, 1 << bits, -(1 << bits), -(1 << bits) - 1]);
    for number in edges.chain([i64::MIN, i64::MAX]) {
        let mut written = Vec::new();
        number.serialize(Writer(&mut written)).unwrap();
        let schema = apache_avro::Schema::Long;
        let writer = GenericDatumWriter::builder(&schema).build().unwrap();
        assert_eq!(written, writer.write_value_to_vec(Value::Long(number)).unwrap(), "{number}");
        assert_eq!(i64::deserialize(&mut Reader(&written)).unwrap(), number);
    }
}

#[test]
fn what_no_schema_has_is_refused() {
    #[derive(Serialize)]
    struct Left {
        #[serde(skip_serializing_if = "Option::is_none")]
        out: Option<i32>,
    }
    fn refused(what: &impl Serialize) -> String {
        what.serialize(Writer(&mut Vec::new())).unwrap_err().to_string()
    }
    assert_eq!(refused(&1.5), "no schema has what serialize_f64 writes");
    assert_eq!(refused(&Some(u64::MAX)), "out of range integral type conversion attempted");
    assert_eq!(refused(&Ok::<i32, i32>(1)), "no schema has the variants of Result");
    assert_eq!(refused(&Left { out: None }), "out is left out");
}

#[test]
fn arrays_are_read_in_blocks_of_any_size() {
    let read = |bytes: &[u8]| Vec::<i32>::deserialize(&mut Reader(bytes)).ok();
    assert_eq!(read(&[4, 2, 4, 2, 6, 0]), Some(vec![1, 2, 3]));
    // Two items in a block that names its size of two bytes.
    assert_eq!(read(&[3, 4, 2, 4, 0]), Some(vec![1, 2]));
    assert_eq!(read(&[4, 2]), None);
    assert_eq!(read(&[0]), Some(Vec::new()));
    assert_eq!(read(&[0xff; 11]), None);
}

/// Damaged bytes are refused, or are some other record; nothing else happens.
#[test]
fn damaged_bytes_are_refused_or_another_record() {
    fn check<R: Record + PartialEq + std::fmt::Debug>(_: &str, record: &R) -> usize {
        let good = encode(record).unwrap();
        let mut refused = 0;
        let damaged = (HEADER_BYTES..good.len()).flat_map(|at| {
            let cut = good[..at].to_vec();
            let changed = [0, 1, 2, 0x7f, 0x80, 0xff].map(|byte| {
                let mut changed = good.clone();
                changed[at] = byte;
                changed
            });
            changed.into_iter().chain([cut])
        });
        for bytes in damaged {
            let Ok(read) = decode::<R>(&bytes) else {
                refused += 1;
                continue;
            };
            let again = encode(&read).unwrap();
            assert_eq!(decode::<R>(&again).unwrap(), read);
            assert!(codec(R::SCHEMA).value(&bytes).is_ok(), "{bytes:?} is read in one way only");
        }
        refused
    }
    let refused = each_example!(check);
    assert!(refused.iter().all(|count| *count > 50), "{refused:?}");
}

/// Returns a codec that writes the present version and also reads one with this text, and that
/// version.
fn with_other(name: SchemaName, text: String) -> (Codec, &'static Schema) {
    let first = name.schema().text;
    let second: &'static str = Box::leak(text.into_boxed_str());
    let versions: &'static _ = Box::leak(Box::new(Versions::new(name, &[first, second], first)));
    (Codec::new(versions), versions.all().last().unwrap())
}

/// A value as `apache-avro` writes it, as a record of this version.
fn record_of(schema: &Schema, value: Value) -> Vec<u8> {
    let writer = GenericDatumWriter::builder(&schema.parsed).build().unwrap();
    let binary = writer.write_value_to_vec(value).unwrap();
    [&[MAGIC][..], &schema.id.to_be_bytes(), &binary].concat()
}

/// The named types of a schema, by full name.
fn named(schema: &Json, found: &mut BTreeMap<String, Json>) {
    match schema {
        Json::Array(all) => all.iter().for_each(|part| named(part, found)),
        Json::Object(parts) => {
            if schema["type"] == "record" {
                found.insert(full_name(schema), schema.clone());
            }
            parts.values().for_each(|part| named(part, found));
        }
        _ => {}
    }
}

/// A schema whose named types are known, and one of their fields that is to be left out.
struct Cut {
    named: BTreeMap<String, Json>,
    record: String,
    field: String,
}

impl Cut {
    /// The fields of a record's schema that stay.
    fn kept<'a>(&self, schema: &'a Json) -> impl Iterator<Item = &'a Json> {
        let here = full_name(schema) == self.record;
        let fields = schema["fields"].as_array().unwrap().iter();
        fields.filter(move |field| !here || field["name"] != self.field.as_str())
    }

    fn schema(&self, schema: &Json, defined: &mut BTreeSet<String>) -> Json {
        match schema {
            Json::String(name) if self.named.contains_key(name) && !defined.contains(name) => {
                self.schema(&self.named[name], defined)
            }
            Json::Array(parts) => parts.iter().map(|part| self.schema(part, defined)).collect(),
            Json::Object(_) if schema["type"] == "record" => {
                let name = full_name(schema);
                if !defined.insert(name.clone()) {
                    return name.into();
                }
                let field = |field: &Json| json!({ "name": field["name"], "type": self.schema(&field["type"], defined) });
                let fields: Vec<_> = self.kept(schema).map(field).collect();
                json!({ "type": "record", "name": name, "fields": fields })
            }
            Json::Object(_) if schema["type"] == "array" => {
                json!({ "type": "array", "items": self.schema(&schema["items"], defined) })
            }
            other => other.clone(),
        }
    }

    fn value(&self, value: Value, schema: &Json) -> Value {
        let schema = schema.as_str().and_then(|name| self.named.get(name)).unwrap_or(schema);
        match value {
            Value::Record(fields) => {
                let mut fields: BTreeMap<_, _> = fields.into_iter().collect();
                let field = |field: &Json| {
                    let name = field["name"].as_str().unwrap();
                    (name.to_owned(), self.value(fields.remove(name).unwrap(), &field["type"]))
                };
                Value::Record(self.kept(schema).map(field).collect())
            }
            Value::Union(branch, inner) => {
                let inner = self.value(*inner, &schema[branch as usize]);
                Value::Union(branch, Box::new(inner))
            }
            Value::Array(items) => {
                let item = |item| self.value(item, &schema["items"]);
                Value::Array(items.into_iter().map(item).collect())
            }
            other => other,
        }
    }
}

fn full_name(schema: &Json) -> String {
    format!("tidemark.{}", schema["name"].as_str().unwrap())
}

/// A value reduced to a schema's fields, with null for missing ones.
fn fitted(value: Value, schema: &Json) -> Value {
    let Value::Record(fields) = value else { panic!("{value:?}") };
    let mut fields: BTreeMap<_, _> = fields.into_iter().collect();
    let field = |field: &Json| {
        let name = field["name"].as_str().unwrap();
        let null = Value::Union(0, Box::new(Value::Null));
        (name.to_owned(), fields.remove(name).unwrap_or(null))
    };
    Value::Record(schema["fields"].as_array().unwrap().iter().map(field).collect())
}

fn parse(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

#[test]
fn old_and_new_schemas_read_each_other() {
    let mut schema = parse(SchemaName::Order.schema().text);
    let fields = schema["fields"].as_array_mut().unwrap();
    fields.retain(|field| field["name"] != "expecting_wallet_address");
    let added = json!({ "name": "added", "type": ["null", "string"], "default": null });
    fields.insert(1, added);
    let (codec, other) = with_other(SchemaName::Order, schema.to_string());
    assert_ne!(codec.written.id, other.id);

    let order = example::order();
    assert!(order.expecting_wallet_address.is_some());
    let first = codec.encode(&order).unwrap();
    let second = record_of(other, fitted(codec.value(&first).unwrap(), &schema));
    assert_eq!(split(&first).unwrap().0, codec.written.id);

    assert_eq!(codec.decode::<Order>(&first).unwrap(), order);
    let reduced = Order { expecting_wallet_address: None, ..order.clone() };
    assert_eq!(codec.decode::<Order>(&second).unwrap(), reduced);
    for bytes in [first.as_slice(), &second] {
        let long = [bytes, &[0]].concat();
        assert!(matches!(codec.decode::<Order>(&long), Err(CodecError::Trailing(1))));
        assert!(matches!(codec.decode::<Order>(&bytes[..9]), Err(CodecError::Avro { .. })));
    }
    assert!(matches!(decode::<Order>(&second), Err(CodecError::SchemaId { .. })));
}

/// A record is read without any field that a version may lack, so the Rust types have the defaults
/// that the schemas promise.
#[test]
fn what_a_version_may_lack_gets_its_default() {
    fn check<R: Record + PartialEq + std::fmt::Debug>(_: &str, record: &R) -> usize {
        let name = R::SCHEMA;
        let schema = parse(name.schema().text);
        let bytes = encode(record).unwrap();
        let mut types = BTreeMap::new();
        named(&schema, &mut types);
        let mut count = 0;
        for (record, field) in types.iter().flat_map(|(record, schema)| {
            let fields = schema["fields"].as_array().unwrap().iter();
            let optional = fields.filter(|field| field.get("default").is_some());
            optional.map(move |field| (record, field["name"].as_str().unwrap()))
        }) {
            let cut = Cut { named: types.clone(), record: record.clone(), field: field.to_owned() };
            let text = cut.schema(&schema, &mut BTreeSet::new()).to_string();
            let (codec_of_both, other) = with_other(name, text);
            let value = cut.value(codec(name).value(&bytes).unwrap(), &schema);
            if let Err(error) = codec_of_both.decode::<R>(&record_of(other, value)) {
                let text = error.to_string();
                let is_empty = CONTRADICTIONS.iter().any(|cause| text.contains(cause));
                assert!(is_empty, "without {record}.{field}: {error}");
            }
            count += 1;
        }
        count
    }
    let optional = each_example!(check);
    assert!(optional.iter().sum::<usize>() > 50, "{optional:?}");
}
