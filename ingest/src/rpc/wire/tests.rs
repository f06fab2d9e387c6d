//! Forms of answers, as nodes and gateways send them.

use super::*;

const HASH: &str = "0xabababababababababababababababababababababababababababababababab";

fn block_json() -> Value {
    json!({
        "number": "0x10", "hash": HASH, "parentHash": HASH, "timestamp": "0x6553f100",
        "stateRoot": "0x", "gasLimit": 5,
    })
}

fn log_json() -> Value {
    json!({
        "address": "0x00000000000000000000000000000000000000AA", "topics": [HASH],
        "data": "0x0102", "blockNumber": "0x10", "blockHash": HASH, "transactionHash": HASH,
        "transactionIndex": "0x0", "logIndex": "0x7", "removed": false,
    })
}

#[test]
fn blocks_need_four_fields_and_tolerate_the_rest() {
    let header = header(block_json()).unwrap().unwrap();
    assert_eq!((header.block.number, header.block.timestamp.0), (16, 1_700_000_000));
    assert_eq!(header.block.hash, Hash([0xab; 32]));
    assert_eq!(super::header(Value::Null), Ok(None));
    for (field, value) in [
        ("number", json!(16)),
        ("number", json!("16")),
        ("number", json!("0x")),
        ("number", json!("0x+1")),
        ("number", json!("0xffffffffffffffff")),
        ("hash", json!("0x12")),
        ("hash", Value::Null),
        ("parentHash", json!(5)),
    ] {
        let mut broken = block_json();
        broken[field] = value;
        let failure = super::header(broken.clone()).unwrap_err();
        assert_eq!(failure.refusal, Refusal::Transient, "{broken}");
    }
}

#[test]
fn logs_parse_whole_or_not_at_all() {
    let logs = logs(json!([log_json(), log_json()])).unwrap();
    assert_eq!(logs.len(), 2);
    assert_eq!((logs[0].log_index, &logs[0].data[..]), (7, &[1, 2][..]));
    assert_eq!(logs[0].address[19], 0xaa);
    for (field, value) in [
        ("address", json!("0xaa")),
        ("data", json!("0x1")),
        ("logIndex", json!("0x80000000")),
        ("blockNumber", Value::Null),
        ("topics", json!(["0x1"])),
        ("removed", json!("no")),
    ] {
        let mut broken = log_json();
        broken[field] = value;
        assert!(super::logs(json!([log_json(), broken])).is_err(), "{field}");
    }
    assert!(super::logs(Value::Null).is_err());
    let mut worthless = log_json();
    worthless["data"] = json!(format!("0x{}", "0".repeat(64)));
    assert_eq!(super::logs(json!([worthless, log_json()])).unwrap().len(), 1);
}

#[test]
fn single_results_are_what_was_asked_for_or_a_failure() {
    let logs = |body: &str| {
        result::<Vec<WireLog>>(body.as_bytes()).map(|logs| logs.map(|logs| logs.len()))
    };
    assert_eq!(logs(r#"{"id":0,"result":[],"error":null}"#), Ok(Some(0)));
    assert_eq!(logs(r#"{"id":0,"result":null}"#), Ok(None));
    for (body, refusal) in [
        (r#"{"id":0,"error":{"code":-32000,"message":"unknown block"}}"#, Refusal::Behind),
        (r#"{"Error":"lack of computing resources"}"#, Refusal::Rate),
        (r#"{"id":0,"result":null,"error":{"code":4444,"message":"gone"}}"#, Refusal::Pruned),
        (r#"{"id":0}"#, Refusal::Transient),
        (r#"{"id":0,"result":[{}]}"#, Refusal::Transient),
        ("<html>", Refusal::Transient),
    ] {
        assert_eq!(logs(body).unwrap_err().refusal, refusal, "{body}");
    }
}

#[test]
fn outputs_of_contracts() {
    let word = |last| [[0; 31].as_slice(), &[last]].concat();
    assert_eq!(output(&json!("0x")), Ok(None));
    assert_eq!(output(&json!("0x0102")), Ok(Some(vec![1, 2])));
    assert!(output(&Value::Null).is_err());
    assert_eq!(small_number(&word(18)), Some(18));
    for other in [vec![1; 32], word(6)[1..].to_vec(), Vec::new()] {
        assert_eq!(small_number(&other), None);
    }
    let string = [word(32), word(4), b"USDC".to_vec(), vec![0; 28]].concat();
    assert_eq!(text(&string), Some("USDC".to_owned()));
    let fixed = [b"DAI".to_vec(), vec![0; 29]].concat();
    assert_eq!(text(&fixed), Some("DAI".to_owned()));
    for other in [[word(32), word(200)].concat(), vec![0xff; 32], b"a\n".to_vec()] {
        assert_eq!(text(&other), None);
    }
}

#[test]
fn receipts_succeeded_or_not() {
    let json = |status: Value| json!({ "blockHash": HASH, "status": status, "logs": [] });
    let block_hash = Hash([0xab; 32]);
    let receipt = |succeeded| Some(Receipt { block_hash, succeeded, logs: Vec::new() });
    assert_eq!(super::receipt(json(json!("0x1"))), Ok(receipt(true)));
    assert_eq!(super::receipt(json(json!("0x0"))), Ok(receipt(false)));
    assert_eq!(super::receipt(Value::Null), Ok(None));
    for status in [json!("0x2"), Value::Null, json!(1)] {
        assert!(super::receipt(json(status)).is_err());
    }
}

#[test]
fn replies_are_matched_by_id() {
    let body = json!([
        { "id": 1, "result": "b" },
        { "id": 0, "error": { "code": -32000, "message": "unknown block" } },
        { "id": 2, "result": null },
    ]);
    let loose = json!([{ "id": "2", "result": null }, null, body[1], body[0], null]);
    for body in [body, loose] {
        let results = results(body.to_string().as_bytes(), 3).unwrap();
        assert_eq!(results[0].as_ref().unwrap_err().refusal, Refusal::Behind);
        assert_eq!(results[1], Ok(json!("b")));
        assert_eq!(results[2], Ok(Value::Null));
    }
}

#[test]
fn a_single_call_is_answered_without_a_batch() {
    let one = |reply: Value| results(reply.to_string().as_bytes(), 1);
    assert_eq!(one(json!({ "id": 0, "result": null })), Ok(vec![Ok(Value::Null)]));
    assert_eq!(one(json!([{ "id": 0, "result": "a" }])), Ok(vec![Ok(json!("a"))]));
    let error = json!({ "code": -32000, "message": "unknown block" });
    let refused = one(json!({ "id": 0, "error": error })).unwrap();
    assert_eq!(refused[0].as_ref().unwrap_err().refusal, Refusal::Behind);
    // Refused before it was read.
    let refused = one(json!({ "id": null, "error": error })).unwrap_err();
    assert_eq!(refused.refusal, Refusal::Behind);
    let tron = one(json!({ "Error": "lack of computing resources" })).unwrap_err();
    assert_eq!(tron.refusal, Refusal::Rate);
}

#[test]
fn batches_that_are_not_answered_as_such() {
    let whole = json!({ "id": null, "error": { "code": -32005, "message": "slow down" } });
    let first = json!([{ "id": null, "error": { "code": -32005, "message": "slow down" } }]);
    for (body, refusal) in [
        (whole.to_string(), Refusal::Rate),
        (first.to_string(), Refusal::Rate),
        (r#"{"Error":"lack of computing resources"}"#.to_owned(), Refusal::Rate),
        (r#"[{"id":0,"result":1}]"#.to_owned(), Refusal::Transient),
        (r#"[{"id":0,"result":1},{"id":9,"result":1}]"#.to_owned(), Refusal::Transient),
        (r#"[{"id":0,"result":1},{"id":1}]"#.to_owned(), Refusal::Transient),
        (r#"[{"id":0,"result":1},null]"#.to_owned(), Refusal::Transient),
        (r#"[{"id":0,"result":1},{"id":"one","result":1}]"#.to_owned(), Refusal::Transient),
        ("[{\"id\":0".to_owned(), Refusal::Transient),
        (String::new(), Refusal::Transient),
    ] {
        assert_eq!(results(body.as_bytes(), 2).unwrap_err().refusal, refusal, "{body}");
    }
}

#[test]
fn calls_have_the_shape_of_the_standard() {
    let calls = [Call::block(Point::Latest), Call::block(Point::Number(255))];
    let block = |id, which| {
        let method = "eth_getBlockByNumber";
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": [which, false] })
    };
    assert_eq!(body(&calls), json!([block(0, "latest"), block(1, "0xff")]));
    assert_eq!(body(&calls[..1]), block(0, "latest"));
}

fn outcome_json() -> Value {
    json!({
        "transactionHash": HASH, "blockHash": HASH, "blockNumber": "0x10", "status": "0x1",
        "logs": [log_json()],
    })
}

#[test]
fn receipts_of_a_block_are_all_of_it() {
    let read = |span, list: Value| {
        let list = serde_json::from_value(list).unwrap();
        outcomes(span, list).map_err(|failure| failure.refusal)
    };
    let hash = Hash([0xab; 32]);
    let (by_hash, by_number) = (Span::Block(hash), Span::Receipts { from: 16, to: 16 });
    for span in [by_hash, by_number] {
        let mut failed = outcome_json();
        failed["status"] = json!("0x0");
        let read_two = read(span, json!([outcome_json(), failed])).unwrap();
        let short: Vec<_> = read_two
            .iter()
            .map(|(transaction, receipt)| {
                (*transaction, receipt.block_hash, receipt.succeeded, receipt.logs.len())
            })
            .collect();
        assert_eq!(short, [(hash, hash, true, 1), (hash, hash, false, 1)]);
        assert_eq!(read(span, json!([])), Ok(Vec::new()));
    }
    let other = HASH.replace("ab", "cd");
    for (field, value, span) in [
        ("/0/blockHash", json!(other), by_hash),
        ("/1/blockHash", json!(other), by_number),
        ("/1/blockNumber", json!("0x11"), by_number),
        ("/0/logs/0/blockHash", json!(other), by_number),
        ("/0/logs/0/blockNumber", json!("0x11"), by_number),
        ("/0/logs/0/transactionHash", json!(other), by_number),
        ("/0/logs/0/data", json!("0x1"), by_number),
        ("/0/status", json!("0x2"), by_hash),
    ] {
        let mut broken = json!([outcome_json(), outcome_json()]);
        *broken.pointer_mut(field).unwrap() = value;
        assert_eq!(read(span, broken), Err(Refusal::Transient), "{field}");
    }
}
