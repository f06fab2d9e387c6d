//! Answers of an endpoint about transactions and blocks, and their interpretation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use schemas::Hash;
use serde_json::{Value, json};

use super::*;
use crate::machine::{TRANSFER_TOPIC, topic};
use crate::rpc::support::SILENT_MAX;
use crate::simulation::{Answers, Served, replies, wallet};

const BLOCK: BlockHash = Hash([5; 32]);
const PAID: TxHash = Hash([1; 32]);

fn error(code: i64, message: &str) -> Value {
    json!({ "error": { "code": code, "message": message } })
}

fn absent() -> Value {
    error(-32601, "the method does not exist/is not available")
}

fn result(value: Value) -> Value {
    json!({ "result": value })
}

fn transfer(number: i64, transaction: TxHash, index: u8, contract: &str) -> Value {
    let topics = [TRANSFER_TOPIC, topic(&wallet(9)), topic(&wallet(1))];
    json!({
        "address": format!("0x{}", contract.repeat(20)),
        "topics": topics.map(|topic| Hash(topic).to_string()), "data": format!("0x{:064x}", 7),
        "blockNumber": wire::quantity(number), "blockHash": BLOCK, "transactionHash": transaction,
        "logIndex": format!("{index:#x}"),
    })
}

fn receipt(number: i64, transaction: TxHash, status: &str, logs: &[Value]) -> Value {
    json!({
        "transactionHash": transaction, "blockHash": BLOCK, "blockNumber": wire::quantity(number),
        "status": status, "logs": logs,
    })
}

fn block(number: i64, transactions: &[TxHash]) -> Value {
    json!({
        "number": wire::quantity(number), "hash": BLOCK, "parentHash": BLOCK, "timestamp": "0x1",
        "transactions": transactions,
    })
}

/// Serves an endpoint that answers each call by `reply`; a reply outside JSON-RPC is a status.
async fn endpoint(reply: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (Endpoint, Served) {
    let answers: Answers = Arc::new(move |calls| match reply(&calls[0]).as_u64() {
        Some(status) => (u16::try_from(status).unwrap(), String::new()),
        None => replies(calls, &reply),
    });
    let served = Served::start(answers).await;
    (served.client(), served)
}

fn asked(transaction: TxHash) -> Outcome {
    Outcome { transaction, number: 5, block_hash: BLOCK, is_final: false }
}

/// Returns the proof by a receipt, the block's receipts and the block, and the request count.
async fn proof(single: Value, whole: Value, listed: Value) -> Result<(Proof, usize), Refusal> {
    let (endpoint, served) = endpoint(move |call| match call["method"].as_str().unwrap() {
        "eth_getTransactionReceipt" => single.clone(),
        "eth_getBlockReceipts" => whole.clone(),
        "eth_getBlockByHash" => listed.clone(),
        _ => result(Value::Null),
    })
    .await;
    let ask = Ask { receipts: vec![asked(PAID)], ..Ask::default() };
    let answer = endpoint.fetch(&ask).await.map_err(|failure| failure.refusal)?;
    Ok((answer.receipts[0].clone(), served.sizes().len()))
}

#[tokio::test]
async fn missing_receipts_are_asked_of_the_block() {
    let null = || result(Value::Null);
    let paid = || receipt(5, PAID, "0x1", &[transfer(5, PAID, 0, "aa")]);
    let other = || receipt(5, Hash([2; 32]), "0x1", &[]);
    let (with, without) = (result(block(5, &[PAID, BLOCK])), result(block(5, &[Hash([2; 32])])));
    let found = Proof::Receipt(Receipt {
        block_hash: BLOCK,
        succeeded: true,
        logs: wire::logs(json!([transfer(5, PAID, 0, "aa")])).unwrap(),
    });
    let mut foreign = block(5, &[]);
    foreign["hash"] = json!(PAID);
    let internal = || error(-32603, "internal error");
    for (single, whole, listed, expected) in [
        // No more is asked where there is a receipt.
        (result(paid()), 503.into(), 503.into(), (found.clone(), 1)),
        (null(), result(json!([other(), paid()])), without.clone(), (found.clone(), 3)),
        (internal(), result(json!([paid()])), with.clone(), (found, 3)),
        (null(), result(json!([other()])), without.clone(), (Proof::Unlisted, 3)),
        (null(), absent(), without.clone(), (Proof::Unlisted, 3)),
        (internal(), null(), without, (Proof::Unlisted, 3)),
        (null(), result(json!([other()])), with.clone(), (Proof::Unknown, 3)),
        (null(), absent(), with, (Proof::Unknown, 3)),
        (null(), null(), null(), (Proof::Unknown, 3)),
        (null(), absent(), result(foreign), (Proof::Unknown, 3)),
        (internal(), internal(), internal(), (Proof::Unknown, 3)),
    ] {
        let cause = format!("{single} {whole} {listed}");
        assert_eq!(proof(single, whole, listed).await, Ok(expected), "{cause}");
    }
}

#[tokio::test]
async fn limits_and_outages_are_no_proof() {
    let slow = || error(-32005, "too many requests");
    let null = || result(Value::Null);
    for (single, whole, listed, refusal) in [
        (slow(), null(), null(), Refusal::Rate),
        (null(), slow(), null(), Refusal::Rate),
        (null(), null(), slow(), Refusal::Rate),
        (null(), null(), 503.into(), Refusal::Transient),
    ] {
        assert_eq!(proof(single, whole, listed).await, Err(refusal));
    }
}

#[tokio::test]
async fn each_block_is_asked_once() {
    let (endpoint, served) = endpoint(|call| match call["method"].as_str().unwrap() {
        "eth_getBlockReceipts" => absent(),
        "eth_getBlockByHash" => result(block(5, &[PAID])),
        _ => result(Value::Null),
    })
    .await;
    let receipts = vec![asked(PAID), asked(Hash([2; 32])), asked(PAID)];
    let ask = Ask { receipts, ..Ask::default() };
    let expected = [Proof::Unknown, Proof::Unlisted, Proof::Unknown];
    assert_eq!(endpoint.fetch(&ask).await.unwrap().receipts, expected);
    assert_eq!(served.sizes(), [3, 1, 1]);
    // The endpoint is known to lack the method now.
    endpoint.fetch(&ask).await.unwrap();
    assert_eq!(served.sizes()[3..], [3, 1]);
}

/// Asks for the logs of two blocks by their receipts, from an endpoint that serves these receipts.
async fn logs(
    receipts: impl Fn(i64) -> Value + Send + Sync + 'static,
    listed: Vec<TxHash>,
) -> (Result<Answer, Refusal>, Vec<usize>) {
    let number = |call: &Value| {
        let digits = call["params"][0].as_str().unwrap().trim_start_matches("0x").to_owned();
        i64::from_str_radix(&digits, 16).unwrap()
    };
    let (endpoint, served) = endpoint(move |call| match call["method"].as_str().unwrap() {
        "eth_getBlockReceipts" => receipts(number(call)),
        "eth_getBlockByNumber" => result(block(number(call), &listed)),
        "eth_getLogs" => result(json!([transfer(8, PAID, 9, "aa")])),
        _ => absent(),
    })
    .await;
    let spans = vec![Span::Receipts { from: 7, to: 8 }, Span::Range { from: 1, to: 8 }];
    let ask = Ask { blocks: vec![Point::Number(8)], logs: spans, ..Ask::default() };
    let first = endpoint.fetch(&ask).await;
    if first.as_ref().is_ok_and(|answer| !answer.by_receipts) {
        let again = endpoint.fetch(&ask).await.unwrap();
        assert_eq!(Some(&again), first.as_ref().ok());
    }
    (first.map_err(|failure| failure.refusal), served.sizes())
}

fn places(answer: &Answer) -> Vec<Vec<(i64, i32)>> {
    let of =
        |logs: &Vec<EventLog>| logs.iter().map(|log| (log.block_number, log.log_index)).collect();
    answer.logs.iter().map(of).collect()
}

#[tokio::test]
async fn logs_come_from_receipts_of_each_block() {
    let receipts = |number: i64| {
        let (failed, foreign) = (Hash([2; 32]), Hash([3; 32]));
        result(json!([
            receipt(number, PAID, "0x1", &[transfer(number, PAID, 0, "aa")]),
            receipt(number, failed, "0x0", &[transfer(number, failed, 1, "aa")]),
            receipt(number, foreign, "0x1", &[transfer(number, foreign, 2, "bb")]),
        ]))
    };
    let (answer, sizes) = logs(receipts, Vec::new()).await;
    let answer = answer.unwrap();
    assert!(answer.by_receipts);
    assert_eq!(places(&answer), [vec![(7, 0), (8, 0)], vec![(8, 9)]]);
    assert_eq!((answer.blocks.len(), sizes), (1, vec![2, 1, 1]));
}

#[tokio::test]
async fn blocks_without_receipts_have_no_transactions() {
    let none = |_| result(json!([]));
    let (answer, sizes) = logs(none, Vec::new()).await;
    assert_eq!(places(&answer.unwrap()), [vec![], vec![(8, 9)]]);
    assert_eq!(sizes, [2, 1, 1, 1, 1]);
    assert_eq!(logs(none, vec![PAID]).await.0, Err(Refusal::Behind));
}

#[tokio::test]
async fn ranges_are_asked_where_receipts_are_not_served() {
    let (answer, sizes) = logs(|_| absent(), Vec::new()).await;
    assert_eq!(places(&answer.unwrap()), [vec![(8, 9)], vec![(8, 9)]]);
    assert_eq!(sizes, [2, 1, 3, 3], "the refusal costs the first answer alone");
}

/// Behind a load balancer one node may lack the method that the others serve.
#[tokio::test]
async fn ranges_are_asked_once_receipts_are_not_served() {
    let is_served = Arc::new(AtomicBool::new(true));
    let serves = is_served.clone();
    let (endpoint, _served) = endpoint(move |call| match call["method"].as_str().unwrap() {
        "eth_getBlockReceipts" if serves.load(Relaxed) => {
            result(json!([receipt(8, PAID, "0x1", &[transfer(8, PAID, 0, "aa")])]))
        }
        "eth_getLogs" => result(json!([transfer(8, PAID, 0, "aa")])),
        _ => absent(),
    })
    .await;
    let ask = Ask { logs: vec![Span::Receipts { from: 8, to: 8 }], ..Ask::default() };
    let first = endpoint.fetch(&ask).await.unwrap();
    is_served.store(false, Relaxed);
    let second = endpoint.fetch(&ask).await.unwrap();
    assert_eq!((first.by_receipts, second.by_receipts), (true, false));
    assert_eq!(first.logs, second.logs);
}

/// Some endpoints answer a method that they do not serve with `null`.
#[tokio::test]
async fn ranges_are_asked_once_receipts_stay_null() {
    let is_shown = Arc::new(AtomicBool::new(false));
    let shows = is_shown.clone();
    let (endpoint, served) = endpoint(move |call| match call["method"].as_str().unwrap() {
        "eth_getBlockByNumber" if shows.load(Relaxed) => result(block(8, &[PAID])),
        "eth_getLogs" => result(json!([transfer(8, PAID, 0, "aa")])),
        _ => result(Value::Null),
    })
    .await;
    let ask = Ask { logs: vec![Span::Receipts { from: 8, to: 8 }], ..Ask::default() };
    let refusal = async || endpoint.fetch(&ask).await.unwrap_err().refusal;
    let before = || Instant::now().checked_sub(SILENT_MAX).unwrap();
    // An endpoint that lacks the block is behind, however long.
    assert_eq!((refusal().await, refusal().await), (Refusal::Behind, Refusal::Behind));
    is_shown.store(true, Relaxed);
    assert_eq!(refusal().await, Refusal::Behind, "it may be indexed in a moment");
    endpoint.outcomes.served();
    assert!(!endpoint.outcomes.is_silent(before()));
    let answer = endpoint.fetch(&ask).await.unwrap();
    assert_eq!((answer.by_receipts, places(&answer)), (false, vec![vec![(8, 0)]]));
    // The endpoint is known to be silent now.
    let requests = served.sizes().len();
    assert_eq!(endpoint.fetch(&ask).await.unwrap(), answer);
    assert_eq!(served.sizes()[requests..], [1]);
}

#[tokio::test]
async fn other_refusals_of_receipts_refuse_the_answer() {
    for (reply, refusal) in [
        (result(Value::Null), Refusal::Behind),
        (error(-32000, "header not found"), Refusal::Behind),
        (error(-32005, "too many requests"), Refusal::Rate),
        (error(-32603, "internal error"), Refusal::Transient),
        (error(4444, "pruned history unavailable"), Refusal::Pruned),
        (error(-32000, "invalid api key"), Refusal::Fatal),
        (401.into(), Refusal::Fatal),
        (result(json!([receipt(9, PAID, "0x1", &[])])), Refusal::Transient),
    ] {
        let cause = reply.to_string();
        let (answer, _) = logs(move |_| reply.clone(), Vec::new()).await;
        assert_eq!(answer, Err(refusal), "{cause}");
    }
}

/// A stranger can fill a block with logs of any size, which no endpoint's limit may turn into a halt.
#[tokio::test]
async fn logs_are_asked_where_receipts_are_too_large() {
    let (endpoint, _served) = endpoint(|call| match call["method"].as_str().unwrap() {
        "eth_getBlockReceipts" => error(-32008, "response too large"),
        "eth_getLogs" => result(json!([transfer(8, PAID, 0, "aa")])),
        _ => absent(),
    })
    .await;
    let receipts = |from| Ask { logs: vec![Span::Receipts { from, to: 8 }], ..Ask::default() };
    let refused = endpoint.fetch(&receipts(7)).await.unwrap_err();
    assert!(matches!(refused.refusal, Refusal::Size { .. }), "fewer blocks may do");
    let answer = endpoint.fetch(&receipts(8)).await.unwrap();
    assert_eq!((answer.by_receipts, places(&answer)), (false, vec![vec![(8, 0)]]));
    assert!(endpoint.outcomes.is_expected(Instant::now()), "the next block may be smaller");
}
