//! Valid and invalid records, their golden files, and other versions of a schema.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use apache_avro::writer::datum::GenericDatumWriter;
use serde::Deserialize as _;
use serde_json::{Value as Json, json};

use super::*;
use crate::record::example::{self, each_example};
use crate::record::{
    Alert, DepositCommand, DepositCommandBody, DepositEntry, LaneEntry, MatchingEntry, Order,
    OrderCommand, OrderCommandBody, Settle, StopScope, Watch,
};
use crate::{CloseReason, RefusalReason, TransferId, UnixMicros, UnixSeconds, UnknownReason};

/// Refusals of a record without the part that its kind needs.
const CONTRADICTIONS: [&str; 3] = [
    "kind and parts do not agree",
    "the part that its kind needs is missing",
    "it is not one of lane, deposit, transfer and watch",
];

/// The error distinguishes a record of a newer version, readable after an update, from garbage.
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
/// error must name its field. So `SchemaName::words` lists every field that holds a word.
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

/// Replaces the text at position `number`, counted from 0, and returns the name of its field.
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

/// The bytes of each example are a file, so that a change of the wire format cannot go unnoticed.
/// Deliberately, no variable rewrites them: delete a file to make a new one, and say why in the commit.
fn compare<R: Record + PartialEq + std::fmt::Debug>(name: &str, record: &R) {
    let bytes = encode(record).unwrap();
    assert_eq!(&decode::<R>(&bytes).unwrap(), record, "{name} reads back");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.hex"));
    let text = alloy_primitives::hex::encode(&bytes);
    match std::fs::read_to_string(&path) {
        Ok(golden) => assert_eq!(golden.trim(), text, "{name} differs from {}", path.display()),
        Err(_) => {
            std::fs::write(&path, format!("{text}\n")).unwrap();
            panic!("wrote a new golden file {}: commit it", path.display());
        }
    }
}

#[test]
fn golden_files_hold_the_examples() {
    each_example!(compare);
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
    entries().iter().for_each(|entry| check("", entry));
}

/// Entries of the changelog that are not examples.
fn entries() -> [MatchingEntry; 3] {
    let deposit = example::deposit();
    let lane = LaneEntry { head: Some(example::chain_record().block), ..LaneEntry::default() };
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

/// Commands of the kinds that no example has.
fn commands() -> (Vec<OrderCommand>, Vec<DepositCommand>) {
    use {DepositCommandBody as Deposit, OrderCommandBody as Order};
    let (order, deposit) = (example::order(), example::deposit());
    let (transfer_id, wallet_address) = (TransferId(3), deposit.wallet_address);
    let payment = example::orders_entry().pending.remove(0).payment;
    let settle = Settle {
        transfer_id,
        slot: 0,
        deposit_id: deposit.deposit_id,
        blockchain: deposit.blockchain,
        wallet_address,
        accepts_late: true,
    };
    let reason = RefusalReason::AmountsTaken;
    let of_orders = [
        Order::ChoosePayment(payment),
        Order::Cancel,
        Order::MarkPaid(None),
        Order::ResendWebhook(Some(order.clone().into())),
        Order::DepositOpened { slot: 1, deposit_id: deposit.deposit_id, value: deposit.value },
        Order::DepositRefused { slot: 1, wallet_address, reason },
        Order::DepositClosed { slot: 1, reason: CloseReason::Expired },
        Order::CandidateSeen { transfer_id },
        Order::CandidateGone { transfer_id },
        Order::Settle(settle),
        Order::AttachRefused(Some(order.into())),
        Order::Tick,
    ];
    let scope =
        StopScope { blockchain: None, stablecoin: None, address: Some(deposit.wallet_address) };
    let of_deposits = [
        Deposit::Close { reason: CloseReason::OrderPaid },
        Deposit::Settled { transfer_id },
        Deposit::Refused { transfer_id, reason: UnknownReason::AlreadyPaid },
        Deposit::Attached { transfer_id },
        Deposit::AttachRefused { transfer_id },
        Deposit::Resume(scope),
    ];
    let of_order = |body| OrderCommand { body, command_id: None, ..example::order_command() };
    let of_deposit = |body| DepositCommand { body, ..example::deposit_command() };
    (of_orders.map(of_order).to_vec(), of_deposits.map(of_deposit).to_vec())
}

/// Every kind of command goes through its schema unchanged.
#[test]
fn all_kinds_of_commands_read_back() {
    let (of_orders, of_deposits) = commands();
    for command in of_orders {
        assert_eq!(decode::<OrderCommand>(&encode(&command).unwrap()).unwrap(), command);
    }
    for command in of_deposits {
        assert_eq!(decode::<DepositCommand>(&encode(&command).unwrap()).unwrap(), command);
    }
}

/// Adds the names of the fields of each record in a value, nested ones included.
fn fields_of(value: &Value, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Record(fields) => {
            found.push(fields.iter().map(|(name, _)| name.clone()).collect());
            fields.iter().for_each(|(_, value)| fields_of(value, found));
        }
        Value::Union(_, inner) => fields_of(inner, found),
        Value::Array(items) => items.iter().for_each(|item| fields_of(item, found)),
        _ => {}
    }
}

/// Each record of each schema, nested ones included, has a Rust type with its fields in their order. Encoding is by
/// position, so a field out of order would be read as another one.
#[test]
fn fields_have_the_order_of_their_schema() {
    fn check<R: Record>(_: &str, record: &R) -> [Vec<Vec<String>>; 2] {
        let mut written = Vec::new();
        fields_of(&apache_avro::to_value(record).unwrap(), &mut written);
        let declared = records(&parse(R::SCHEMA.schema().text));
        [declared.iter().map(field_names).collect(), written]
    }
    let more = commands().0.iter().map(|command| check("", command)).collect::<Vec<_>>();
    let more = more.into_iter().chain(entries().map(|entry| check("", &entry)));
    let checked: Vec<_> = each_example!(check).into_iter().chain(more).collect();
    let [declared, written] =
        [0, 1].map(|of| checked.iter().flat_map(|all| &all[of]).collect::<BTreeSet<_>>());
    assert_eq!(declared, written);
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

/// Damaged bytes are refused, or both readers read another valid record; neither panics.
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

/// The records that a schema declares.
fn records(schema: &Json) -> Vec<Json> {
    let inner = match schema {
        Json::Array(all) => all.iter().flat_map(records).collect(),
        Json::Object(parts) => parts.values().flat_map(records).collect(),
        _ => Vec::new(),
    };
    let own = (schema["type"] == "record").then(|| schema.clone());
    own.into_iter().chain(inner).collect()
}

fn field_names(record: &Json) -> Vec<String> {
    let fields = record["fields"].as_array().unwrap().iter();
    fields.map(|field| field["name"].as_str().unwrap().to_owned()).collect()
}

/// Removes a field from each record that has these fields.
fn remove(value: &mut Value, field: &str, of: &[String]) {
    match value {
        Value::Record(fields) => {
            fields.iter_mut().for_each(|(_, value)| remove(value, field, of));
            if fields.iter().map(|(name, _)| name).eq(of) {
                fields.retain(|(name, _)| name != field);
            }
        }
        Value::Union(_, inner) => remove(inner, field, of),
        Value::Array(items) => items.iter_mut().for_each(|item| remove(item, field, of)),
        _ => {}
    }
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

/// Removes each field with a default in turn, as in a version that lacks it. The record must still be
/// read, unless its kind needs the field.
#[test]
fn what_a_version_may_lack_gets_its_default() {
    fn check<R: Record>(_: &str, record: &R) -> usize {
        let whole = codec(R::SCHEMA).value(&encode(record).unwrap()).unwrap();
        let mut count = 0;
        for kind in records(&parse(R::SCHEMA.schema().text)) {
            let fields = kind["fields"].as_array().unwrap().iter();
            for field in fields.filter(|field| field.get("default").is_some()) {
                let field = field["name"].as_str().unwrap();
                let mut value = whole.clone();
                remove(&mut value, field, &field_names(&kind));
                if let Err(error) = apache_avro::from_value::<R>(&value) {
                    let text = error.to_string();
                    let is_empty = CONTRADICTIONS.iter().any(|cause| text.contains(cause));
                    assert!(is_empty, "without {}.{field}: {error}", kind["name"]);
                }
                count += 1;
            }
        }
        count
    }
    let optional = each_example!(check);
    assert!(optional.iter().sum::<usize>() > 50, "{optional:?}");
}
