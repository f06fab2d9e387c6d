//! Both interfaces of a node at one address: their use, and the answers that are rejected.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::RpcUrl;
use crate::machine::{Policy, Span};
use crate::rpc::support::ASK_AGAIN;
use crate::simulation::{self, Answers, Served, chain, replies};

const NUMBER: i64 = 16;

fn word(byte: u8) -> String {
    hex::encode([byte; 32])
}

/// The transactions of the block: a call, a transfer of TRX, a call that failed and kept its log.
fn transactions() -> Vec<String> {
    [1, 2, 3].map(word).into()
}

fn block() -> Listed {
    let hash = Hash([9; 32]);
    let block = Block { number: NUMBER, hash, timestamp: UnixSeconds(1_700_000_000) };
    Listed { block, transactions: [1, 2, 3].map(|byte| Hash([byte; 32])).into() }
}

fn infos() -> Value {
    let log = json!({ "address": "a614f803b6fd780986a42c78ec9c7f77e6ded13c", "topics": [word(7)], "data": "0102" });
    let info = |id: &String, more: Value| {
        let mut info = json!({
            "id": id, "fee": 1, "blockNumber": NUMBER, "blockTimeStamp": 1_700_000_000_000_i64,
            "contractResult": [""],
        });
        for (name, value) in more.as_object().unwrap() {
            info[name] = value.clone();
        }
        info
    };
    let ids = transactions();
    json!([
        info(&ids[0], json!({ "receipt": { "result": "SUCCESS" }, "log": [log, log] })),
        info(&ids[1], json!({ "receipt": { "net_fee": 267_000 } })),
        info(
            &ids[2],
            json!({ "result": "FAILED", "receipt": { "result": "OUT_OF_TIME" }, "log": [log] })
        ),
    ])
}

fn read(infos: &Value) -> Result<Vec<(TxHash, Receipt)>, Refusal> {
    let infos = serde_json::from_value(infos.clone()).unwrap();
    receipts(&block(), infos).map_err(|failure| failure.refusal)
}

#[test]
fn only_what_succeeded_has() {
    let receipts = read(&infos()).unwrap();
    let short = receipts.iter().map(|(_, receipt)| {
        assert_eq!(receipt.block_hash, block().block.hash);
        let indexes = receipt.logs.iter().map(|log| log.log_index);
        (receipt.succeeded, indexes.collect::<Vec<_>>())
    });
    assert_eq!(short.collect::<Vec<_>>(), [(true, vec![0, 1]), (false, vec![]), (false, vec![2])]);
    let log = &receipts[0].1.logs[1];
    assert_eq!(
        (log.address[0], &log.topics[..], &log.data[..]),
        (0xa6, &[[7; 32]][..], &[1, 2][..])
    );
    assert_eq!((log.block_number, log.tx_hash), (NUMBER, Hash([1; 32])));
    let mut reverted = infos();
    reverted[0]["receipt"]["result"] = json!("REVERT");
    assert!(!read(&reverted).unwrap()[0].1.succeeded);
    let mut contradicting = infos();
    contradicting[0]["result"] = json!("FAILED");
    assert!(!read(&contradicting).unwrap()[0].1.succeeded);
}

#[test]
fn outcomes_must_be_of_all_transactions_asked() {
    let changed = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut infos = infos();
        change(infos.as_array_mut().unwrap());
        read(&infos).unwrap_err()
    };
    assert_eq!(changed(&Vec::clear), Refusal::Behind);
    assert_eq!(changed(&|infos| drop(infos.remove(1))), Refusal::Behind);
    assert_eq!(changed(&|infos| infos.push(infos[0].clone())), Refusal::Transient);
    assert_eq!(changed(&|infos| infos.swap(0, 1)), Refusal::Transient);
    assert_eq!(changed(&|infos| infos[1]["blockNumber"] = json!(17)), Refusal::Transient);
    assert_eq!(changed(&|infos| infos[1]["blockTimeStamp"] = json!(3)), Refusal::Transient);
    assert_eq!(changed(&|infos| infos[0]["log"][0]["data"] = json!("0")), Refusal::Transient);
}

/// A node whose native interface gives these answers.
fn node(solidified: (u16, String), infos: (u16, String)) -> Answers {
    Arc::new(move |calls: &[Value]| {
        if calls[0].get("detail").is_some() {
            return solidified.clone();
        }
        if calls[0].get("num").is_some() {
            return infos.clone();
        }
        let reply = |call: &Value| {
            let prefixed: Vec<_> = transactions().iter().map(|id| format!("0x{id}")).collect();
            let result = match call["method"].as_str().unwrap() {
                "eth_getBlockByNumber" => json!({
                    "number": format!("{NUMBER:#x}"), "hash": format!("0x{}", word(9)),
                    "parentHash": format!("0x{}", word(8)), "timestamp": "0x6553f100",
                    "transactions": prefixed,
                }),
                "eth_getBlockReceipts" => {
                    let error = json!({ "code": -32601, "message": "Method not found" });
                    return json!({ "error": error });
                }
                "eth_getTransactionReceipt" => json!({
                    "blockHash": format!("0x{}", word(6)), "status": "0x1", "logs": [],
                }),
                _ => json!([]),
            };
            json!({ "result": result })
        };
        replies(calls, reply)
    })
}

fn solidified() -> (u16, String) {
    let raw = json!({ "number": 12, "parentHash": word(4), "timestamp": 1_699_999_988_000_i64 });
    let block = json!({ "blockID": word(5), "block_header": { "raw_data": raw } });
    (200, block.to_string())
}

async fn endpoint(answers: Answers, is_given: bool) -> (Endpoint, Served) {
    let served = Served::start(answers).await;
    let mut config = served.endpoint();
    config.native = Some(NativeConfig { url: config.url.clone(), is_given });
    config.api_key = Some(crate::config::ApiKey {
        header: "tron-pro-api-key".parse().unwrap(),
        key: schemas::Secret::new("k3y-of-the-shop"),
    });
    (Endpoint::new(&chain(Policy::flat(Some(3), None)), &config, 0).unwrap(), served)
}

/// A head, a tag and a block, in this order, and transactions of which one is not final.
fn question() -> Ask {
    let outcome = |byte, is_final| {
        let (transaction, block_hash) = (Hash([byte; 32]), block().block.hash);
        Outcome { transaction, number: NUMBER, block_hash, is_final }
    };
    Ask {
        blocks: vec![Point::Latest, Point::Finalized, Point::Number(NUMBER)],
        logs: vec![Span::Range { from: 1, to: NUMBER }],
        receipts: vec![outcome(1, true), outcome(1, false), outcome(1, true), outcome(7, true)],
        ..Ask::default()
    }
}

/// The first byte of the block hash of each receipt.
fn hashes(answer: &Answer) -> Vec<Option<u8>> {
    let receipts = answer.receipts.iter().map(Proof::receipt);
    receipts.map(|receipt| receipt.map(|receipt| receipt.block_hash.0[0])).collect()
}

#[tokio::test]
async fn what_is_final_is_asked_of_the_native_interface() {
    let (endpoint, served) = endpoint(node(solidified(), (200, infos().to_string())), true).await;
    let answer = endpoint.fetch(&question()).await.unwrap();
    let numbers: Vec<_> = answer.blocks.iter().map(|b| b.map(|b| b.block.number)).collect();
    assert_eq!(numbers, [Some(NUMBER), Some(12), Some(NUMBER)]);
    let solid = answer.blocks[1].unwrap();
    assert_eq!((solid.block.hash, solid.parent), (Hash([5; 32]), Hash([4; 32])));
    assert_eq!(solid.block.timestamp.0, 1_699_999_988);
    assert_eq!(hashes(&answer), [Some(9), Some(6), Some(9), None]);
    assert_eq!(answer.receipts[3], Proof::Unlisted);
    assert_eq!(served.header("tron-pro-api-key"), "k3y-of-the-shop");
    assert_eq!(served.sizes(), [4, 1, 1, 1], "JSON-RPC, solidified, transactions, outcomes");
    // A question about blocks that are not final costs no further request.
    let plain = Ask { blocks: vec![Point::Latest, Point::Number(1)], ..Ask::default() };
    endpoint.fetch(&plain).await.unwrap();
    assert_eq!(served.sizes()[4..], [2]);
}

#[tokio::test]
async fn only_a_guessed_native_url_is_given_up() {
    let lite = "this API is closed because this node is a lite fullnode".to_owned();
    for (solid, infos) in
        [((404, String::new()), (200, infos().to_string())), (solidified(), (200, lite))]
    {
        let answers = || node(solid.clone(), infos.clone());
        let (guessed, served) = endpoint(answers(), false).await;
        let answer = guessed.fetch(&question()).await.unwrap();
        assert_eq!(hashes(&answer), [Some(6); 4]);
        assert_eq!(answer.blocks[1].map(|header| header.block.number), Some(NUMBER));
        let before = served.sizes().len();
        guessed.fetch(&question()).await.unwrap();
        assert_eq!(served.sizes()[before..], [8], "JSON-RPC alone");
        let (given, _served) = endpoint(answers(), true).await;
        assert_eq!(given.fetch(&question()).await.unwrap_err().refusal, Refusal::Fatal);
    }
}

/// Behind a load balancer one node may lack the interface that the others serve.
#[tokio::test]
async fn a_guessed_native_url_is_given_up_for_a_while() {
    let is_served = Arc::new(AtomicBool::new(true));
    let serves = is_served.clone();
    let with = node(solidified(), (200, infos().to_string()));
    let without = node((404, String::new()), (404, String::new()));
    let answers = move |calls: &[Value]| {
        let node = if serves.load(Relaxed) { &with } else { &without };
        node(calls)
    };
    let (guessed, served) = endpoint(Arc::new(answers), false).await;
    let native = [Some(9), Some(6), Some(9), None];
    assert_eq!(hashes(&guessed.fetch(&question()).await.unwrap()), native);
    is_served.store(false, Relaxed);
    assert_eq!(hashes(&guessed.fetch(&question()).await.unwrap()), [Some(6); 4]);
    is_served.store(true, Relaxed);
    let before = served.sizes().len();
    assert_eq!(hashes(&guessed.fetch(&question()).await.unwrap()), [Some(6); 4]);
    assert_eq!(served.sizes()[before..], [8], "JSON-RPC alone");
    let lacking = &guessed.native.as_ref().unwrap().outcomes;
    lacking.lacked(Instant::now().checked_sub(ASK_AGAIN).unwrap());
    assert_eq!(hashes(&guessed.fetch(&question()).await.unwrap()), native);
    assert!(guessed.has_native());
}

#[tokio::test]
async fn busy_native_interface_is_not_absent() {
    let busy = r#"{"Error":"request rate exceeded for k3y-of-the-shop: suspended for 5 s"}"#;
    let (endpoint, _served) =
        endpoint(node((503, busy.to_owned()), (200, "[]".into())), false).await;
    for _ in 0..2 {
        let failure = endpoint.fetch(&question()).await.unwrap_err();
        assert_eq!(failure.refusal, Refusal::Rate);
        assert_eq!(failure.retry_after.map(|pause| pause.as_secs()), Some(5));
        assert!(!failure.message.contains("k3y") && failure.message.contains("***"));
    }
}

#[test]
fn addresses_keep_what_providers_put_into_them() {
    let at = |url: &str| RpcUrl::parse(url).unwrap().at(BLOCK).to_string();
    assert_eq!(at("http://n:8091"), "http://n:8091/walletsolidity/getblock");
    assert_eq!(at("https://p.example/k3y/"), "https://p.example/k3y/walletsolidity/getblock");
    assert_eq!(
        at("https://p.example/a?key=1"),
        "https://p.example/a/walletsolidity/getblock?key=1"
    );
    assert!(simulation::endpoint("http://n/jsonrpc").native.is_none());
}

#[tokio::test]
async fn blocks_that_are_not_ours_say_nothing() {
    let (endpoint, _served) = endpoint(node(solidified(), (200, infos().to_string())), true).await;
    let outcome = |byte| Outcome {
        transaction: Hash([byte; 32]),
        number: NUMBER,
        block_hash: Hash([8; 32]),
        is_final: true,
    };
    let ask = Ask { receipts: vec![outcome(1), outcome(7)], ..Ask::default() };
    let answer = endpoint.fetch(&ask).await.unwrap();
    assert_eq!(hashes(&answer), [Some(9), None]);
    assert_eq!(answer.receipts[1], Proof::Unknown);
}

/// The outcomes with transfers to our wallets, of which one failed.
fn payments() -> Value {
    let topics = [
        hex::encode(crate::machine::TRANSFER_TOPIC),
        word(7),
        hex::encode(crate::machine::topic(&simulation::wallet(1))),
    ];
    let log = json!({ "address": "aa".repeat(20), "topics": topics, "data": word(1) });
    let mut infos = infos();
    for info in infos.as_array_mut().unwrap() {
        if let Some(logs) = info.get_mut("log") {
            logs[0] = log.clone();
        }
    }
    infos
}

#[tokio::test]
async fn logs_of_final_blocks_come_from_outcomes() {
    let head = |number: i64| {
        let (status, text) = solidified();
        (status, text.replace("\"number\":12", &format!("\"number\":{number}")))
    };
    let spans = vec![Span::Range { from: 1, to: 2 }, Span::Receipts { from: NUMBER, to: NUMBER }];
    let ask = Ask { logs: spans, ..Ask::default() };
    let infos = payments().to_string();
    let (solid_node, served) = endpoint(node(head(NUMBER), (200, infos.clone())), true).await;
    let answer = solid_node.fetch(&ask).await.unwrap();
    assert!(answer.by_receipts);
    let places: Vec<_> = answer.logs[1].iter().map(|log| (log.tx_hash, log.log_index)).collect();
    assert_eq!((answer.logs[0].len(), places), (0, vec![(Hash([1; 32]), 0)]));
    assert_eq!(served.sizes(), [1, 1, 1, 1], "the range, solidified, transactions, outcomes");
    for (solid, infos) in [(head(NUMBER - 1), infos.clone()), (head(NUMBER), "[]".to_owned())] {
        let (early, _served) = endpoint(node(solid, (200, infos)), true).await;
        assert_eq!(early.fetch(&ask).await.unwrap_err().refusal, Refusal::Behind);
    }
    // Without a native interface, and without block receipts in JSON-RPC, all logs come from `eth_getLogs`.
    let (guessed, _served) = endpoint(node((404, String::new()), (200, infos)), false).await;
    let answer = guessed.fetch(&ask).await.unwrap();
    assert_eq!((answer.by_receipts, answer.logs.len()), (false, 2));
}
