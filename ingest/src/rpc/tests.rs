//! The client against endpoints that limit batches and answers, and its masking of keys.

use std::sync::Arc;

use schemas::Secret;

use super::*;
use crate::config::ApiKey;
use crate::machine::{Outcome, Policy};
use crate::simulation::{Answers, Served, chain, replies, wallet as wallet_of};

/// The key of [`with_key`].
const KEY: &str = "0123456789abcdef";

fn ask(count: i64) -> Ask {
    Ask { blocks: (1..=count).map(Point::Number).collect(), ..Ask::default() }
}

/// Takes at most this many calls at once and refuses more in these words; 0 refuses every request.
fn at_most(calls_max: usize, status: u16, refusal: &'static str) -> Answers {
    Arc::new(move |calls: &[Value]| {
        if calls.len() > calls_max {
            return (status, refusal.to_owned());
        }
        replies(calls, |_| json!({ "result": null }))
    })
}

async fn endpoint(answers: Answers) -> (Endpoint, Served) {
    let served = Served::start(answers).await;
    (served.client(), served)
}

#[tokio::test]
async fn refused_batch_is_halved_and_stays_small() {
    let whole = r#"{"id":null,"error":{"code":-32600,"message":"batch limit exceeded"}}"#;
    for (calls_max, status, refusal, sizes) in [
        (3, 200, whole, vec![10, 5, 2, 2, 2, 2, 2]),
        (5, 400, "", vec![10, 5, 5]),
        (1, 413, "<html>", vec![10, 5, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
    ] {
        let (endpoint, served) = endpoint(at_most(calls_max, status, refusal)).await;
        assert_eq!(endpoint.fetch(&ask(10)).await.unwrap().blocks.len(), 10);
        assert_eq!(served.sizes(), sizes);
        endpoint.fetch(&ask(2)).await.unwrap();
        let again = if calls_max == 1 { vec![1, 1] } else { vec![2] };
        assert_eq!(served.sizes()[sizes.len()..], again);
    }
}

/// An outage makes no batch smaller for good, and a rate limit is not retried with smaller batches.
#[tokio::test]
async fn batches_that_are_refused_at_any_size() {
    for (status, refusal, sizes) in
        [(400, Refusal::Transient, vec![4, 2, 1]), (429, Refusal::Rate, vec![4])]
    {
        let (endpoint, served) = endpoint(at_most(0, status, "")).await;
        for _ in 0..2 {
            assert_eq!(endpoint.fetch(&ask(4)).await.unwrap_err().refusal, refusal, "{status}");
        }
        assert_eq!(served.sizes(), [sizes.clone(), sizes].concat(), "{status}");
    }
}

/// A node that has one block, and refuses to show more logs than this at once.
fn fat_block(logs: Vec<Value>, logs_max: usize, has_receipts: bool) -> Answers {
    Arc::new(move |calls: &[Value]| {
        let reply = |call: &Value| {
            let filter = &call["params"][0];
            let is_in =
                |list: &Value, what| list.as_array().is_some_and(|list| list.contains(what));
            let hits = logs.iter().filter(|log| {
                let topics = &filter["topics"];
                is_in(&filter["address"], &log["address"]) && is_in(&topics[2], &log["topics"][2])
            });
            let hits: Vec<_> = hits.collect();
            let error = |message| json!({ "code": -32000, "message": message });
            let answered = match call["method"].as_str().unwrap() {
                "eth_getLogs" if hits.len() > logs_max => Err(error("backend response too large")),
                "eth_getLogs" => Ok(json!(hits)),
                "eth_getBlockReceipts" if has_receipts => {
                    let (a, b) = logs.split_at(1);
                    let hash = Hash([5; 32]);
                    let receipt = |logs| {
                        json!({
                            "transactionHash": hash, "blockHash": hash, "blockNumber": "0x5",
                            "status": "0x1", "logs": logs,
                        })
                    };
                    Ok(json!([receipt(a), receipt(b)]))
                }
                "eth_getBlockReceipts" => Err(error("backend response too large")),
                _ => Ok(Value::Null),
            };
            match answered {
                Ok(result) => json!({ "result": result }),
                Err(error) => json!({ "error": error }),
            }
        };
        replies(calls, reply)
    })
}

fn wire_log(index: u64, wallet: u8, units: u64) -> Value {
    let topics = [TRANSFER_TOPIC, topic(&wallet_of(9)), topic(&wallet_of(wallet))];
    let hash = Hash([5; 32]);
    json!({
        "address": format!("0x{}", "aa".repeat(20)), "topics": topics.map(|topic| Hash(topic).to_string()),
        "data": format!("0x{units:064x}"), "blockNumber": "0x5", "blockHash": hash,
        "transactionHash": hash, "logIndex": format!("{index:#x}"),
    })
}

#[tokio::test]
async fn a_block_that_is_too_large_is_asked_for_in_parts() {
    let logs: Vec<_> = (0..12).map(|index| wire_log(index, (index % 3) as u8, index % 4)).collect();
    let span = Span::Block(Hash([5; 32]));
    let one = Ask { blocks: vec![Point::Latest], logs: vec![span], ..Ask::default() };
    // Logs of zero value are dropped.
    let expected: Vec<_> = (0..12).filter(|index| index % 4 != 0).collect();
    for (logs_max, requests) in [(100, 1), (8, 5), (4, 7)] {
        let (endpoint, served) = endpoint(fat_block(logs.clone(), logs_max, true)).await;
        let answer = endpoint.fetch(&one).await.unwrap();
        let mut found: Vec<_> = answer.logs[0].iter().map(|log| log.log_index).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{logs_max}");
        assert_eq!(served.sizes().len(), requests, "{logs_max}");
    }
    // The payments to one wallet are too many: only receipts remain.
    let (by_receipts, _served) = endpoint(fat_block(logs.clone(), 3, true)).await;
    let answer = by_receipts.fetch(&one).await.unwrap();
    let found: Vec<_> = answer.logs[0].iter().map(|log| log.log_index).collect();
    assert_eq!(found, expected);
    let (refused, _served) = endpoint(fat_block(logs.clone(), 3, false)).await;
    let size = Refusal::Size { hint: None };
    assert_eq!(refused.fetch(&one).await.unwrap_err().refusal, size);
    // Several blocks are not fetched in parts: the cursor asks for a shorter range first.
    let range = Ask { logs: vec![Span::Range { from: 4, to: 5 }], ..Ask::default() };
    let (endpoint, served) = endpoint(fat_block(logs, 6, true)).await;
    assert_eq!(endpoint.fetch(&range).await.unwrap_err().refusal, size);
    assert_eq!(served.sizes(), [1]);
}

/// An endpoint with a key, and with one answer to every call.
async fn with_key(reply: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (Endpoint, Served) {
    let served = Served::of(reply).await;
    let key = ApiKey { header: "x-key".parse().unwrap(), key: Secret::new(KEY) };
    let config = EndpointConfig { api_key: Some(key), ..served.endpoint() };
    // The answers are long, and the machine may be busy.
    let request_timeout = std::time::Duration::from_secs(60);
    let chain = ChainConfig { request_timeout, ..chain(Policy::flat(Some(3), None)) };
    (Endpoint::new(&chain, &config, 0).unwrap(), served)
}

#[tokio::test]
async fn what_does_not_parse_is_short_and_hides_keys() {
    let text = format!("{KEY} {}", "x".repeat(3_000_000));
    let reply = move |_: &Value| json!({ "result": text });
    let (endpoint, _served) = with_key(reply).await;
    let chain = chain(Policy::flat(Some(3), None));
    let (transaction, block_hash) = (Hash([1; 32]), Hash([2; 32]));
    let outcome = Outcome { number: 1, transaction, block_hash, is_final: false };
    let logs = vec![Span::Range { from: 1, to: 9 }];
    let failures = [
        endpoint.fetch(&ask(1)).await.unwrap_err(),
        endpoint.fetch(&Ask { logs, ..Ask::default() }).await.unwrap_err(),
        endpoint.fetch(&Ask { receipts: vec![outcome], ..Ask::default() }).await.unwrap_err(),
        endpoint.fetch_chain_id().await.unwrap_err(),
        endpoint.fetch_contract(chain.contracts[0].address).await.unwrap_err(),
    ];
    let probes = [
        endpoint.block(Point::Latest).await.map(|_| ()).unwrap_err(),
        endpoint.scan(1, 9).await.unwrap_err(),
    ];
    for Failure { message, .. } in failures.into_iter().chain(probes) {
        assert!(message.contains("malformed") && message.chars().count() <= 200, "{message}");
        assert!(!message.contains("0123"), "{message}");
    }
}

#[tokio::test]
async fn no_refusal_shows_a_key() {
    let error = json!({ "code": -32000, "message": format!("not for key {KEY}") });
    let reply = move |_: &Value| json!({ "error": error });
    let (endpoint, _served) = with_key(reply).await;
    let chain = chain(Policy::flat(Some(3), None));
    let (address, hash) = (chain.contracts[0].address, Hash([1; 32]));
    let block = schemas::record::Block { number: 1, hash, timestamp: schemas::UnixSeconds(1) };
    let (single, whole) = endpoint.has_receipts(block, hash).await;
    let failures = [
        endpoint.fetch(&ask(1)).await.unwrap_err(),
        endpoint.fetch_chain_id().await.unwrap_err(),
        endpoint.fetch_contract(address).await.unwrap_err(),
        endpoint.latency().await.unwrap_err(),
        endpoint.block(Point::Latest).await.map(|_| ()).unwrap_err(),
        endpoint.scan(1, 9).await.unwrap_err(),
        endpoint.count_logs(block).await.unwrap_err(),
        endpoint.has_state(address, 1).await.unwrap_err(),
        endpoint.balance(address, address).await.unwrap_err(),
        single.unwrap_err(),
        whole.unwrap_err(),
    ];
    for Failure { message, .. } in failures {
        assert_eq!(message, "error -32000: not for key ***");
    }
}

#[tokio::test]
async fn answers_are_asked_for_without_compression() {
    let (endpoint, served) = endpoint(at_most(9, 200, "")).await;
    endpoint.fetch(&ask(1)).await.unwrap();
    assert_eq!(served.header("accept-encoding"), "identity");
}

#[tokio::test]
async fn logs_of_blocks_need_not_agree_with_their_bloom() {
    let (block_hash, transaction) = (Hash([5; 32]), Hash([6; 32]));
    let receipt = |logs: Value| json!({ "logs": logs });
    let one = || receipt(json!([wire_log(0, 0, 1)]));
    let absent = json!({ "code": -32601, "message": "Method not found" });
    let block =
        schemas::record::Block { number: 5, hash: block_hash, timestamp: schemas::UnixSeconds(1) };
    for (transactions, whole, single, has_logs) in [
        (1, Ok(json!([one()])), json!(null), Ok(true)),
        (1, Ok(json!([receipt(json!([]))])), json!(null), Ok(false)),
        (2, Err(()), one(), Ok(true)),
        (2, Err(()), receipt(json!([])), Ok(false)),
        // An incomplete list of a block's receipts does not count.
        (1, Ok(json!([])), one(), Ok(true)),
        (2, Err(()), json!(null), Err(Refusal::Behind)),
        (0, Err(()), json!(null), Ok(false)),
    ] {
        let absent = absent.clone();
        let reply = move |call: &Value| match call["method"].as_str().unwrap() {
            "eth_getBlockReceipts" => match &whole {
                Ok(receipts) => json!({ "result": receipts }),
                Err(()) => json!({ "error": absent }),
            },
            _ => json!({ "result": single }),
        };
        let (endpoint, _served) = with_key(reply).await;
        let probed = Listed { block, transactions: vec![transaction; transactions] };
        let found = endpoint.has_logs(&probed).await.map_err(|failure| failure.refusal);
        assert_eq!(found, has_logs);
    }
}

/// Without the limit an endpoint could exhaust memory.
#[tokio::test]
async fn an_answer_has_a_limit_of_bytes() {
    for (bytes, refusal) in
        [(BODY_BYTES_MAX, None), (BODY_BYTES_MAX + 1, Some(Refusal::Size { hint: None }))]
    {
        let answers: Answers = Arc::new(move |calls: &[Value]| {
            let reply =
                json!({ "jsonrpc": "2.0", "id": calls[0]["id"], "result": null }).to_string();
            let spaces = " ".repeat(bytes - reply.len());
            (200, reply + &spaces)
        });
        let (served, mut chain) =
            (Served::start(answers).await, chain(Policy::flat(Some(3), None)));
        // Longer than a busy machine takes for such an answer.
        chain.request_timeout = std::time::Duration::from_secs(120);
        let endpoint = Endpoint::new(&chain, &served.endpoint(), 0).unwrap();
        assert_eq!(endpoint.fetch(&ask(1)).await.err().map(|failure| failure.refusal), refusal);
    }
}
