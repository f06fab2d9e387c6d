//! The chain over real HTTP: framing, faults, bounds, automatic mining and shutdown.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;
use std::time::Duration;

use alloy_primitives::{Address, U256};
use serde_json::{Value, json};
use tidemark_devnet::{Config, Devnet, Error, Fault, Reorg, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const TOKEN: Address = Address::repeat_byte(0xaa);
const BUYER: Address = Address::repeat_byte(1);
const WALLET: Address = Address::repeat_byte(2);

async fn start() -> Devnet {
    let tokens = vec![Token { address: TOKEN, decimals: 6, symbol: "USDC".to_owned() }];
    let config = Config { tokens, ..Config::default() };
    Devnet::start(config, SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap()
}

/// Posts a body on a separate connection; returns status and body.
async fn post(devnet: &Devnet, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(devnet.address()).await.unwrap();
    let length = body.len();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: devnet\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A refused body may be answered before it is sent completely.
    drop(stream.write_all(body.as_bytes()).await);
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn ask(devnet: &Devnet, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let (status, body) = post(devnet, &body.to_string()).await;
    assert_eq!(status, 200);
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn transfer_survives_a_reorg_in_another_block() {
    let devnet = start().await;
    assert_eq!(devnet.url(), format!("http://{}", devnet.address()));
    let chain = devnet.chain();
    chain.mine(2).unwrap();
    let tx = chain.transfer(TOKEN, BUYER, WALLET, U256::from(5)).unwrap();
    chain.mine(1).unwrap();
    let filter =
        json!([{ "fromBlock": "0x0", "toBlock": "latest", "address": [TOKEN.to_string()] }]);
    let before = ask(&devnet, "eth_getLogs", filter.clone()).await["result"][0].take();
    chain.reorg(2, Reorg::Move { tx, to_offset: 0 }).unwrap();
    let after = ask(&devnet, "eth_getLogs", filter).await["result"][0].take();
    assert_eq!(before["blockNumber"], "0x3");
    assert_eq!(after["blockNumber"], "0x2");
    assert_eq!(before["transactionHash"], after["transactionHash"]);
    assert_ne!(before["blockHash"], after["blockHash"]);
    let old = ask(&devnet, "eth_getLogs", json!([{ "blockHash": before["blockHash"] }])).await;
    assert_eq!(old["error"], json!({ "code": -32000, "message": "unknown block" }));
    assert_eq!(chain.request_count("eth_getLogs"), 3);
    devnet.shutdown().await;
}

#[tokio::test]
async fn batches_and_malformed_bodies_get_their_answers() {
    let devnet = start().await;
    let call = |id, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
    let batch = json!([call(7, "eth_chainId"), call(8, "eth_nothing")]).to_string();
    let (status, body) = post(&devnet, &batch).await;
    let answers: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &answers[0]["id"], &answers[0]["result"]),
        (200, &json!(7), &json!("0x7a69"))
    );
    assert_eq!(answers[1]["error"]["code"], -32601);
    let (status, body) = post(&devnet, "{").await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32700)));
    let (status, _) = post(&devnet, &" ".repeat(8 * 1024 * 1024 + 1)).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn faults_end_after_their_count() {
    let devnet = start().await;
    let chain = devnet.chain();
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber" }).to_string();
    chain.fail_next(2, Fault::HttpStatus(429));
    assert_eq!(post(&devnet, &request).await.0, 429);
    assert_eq!(post(&devnet, &request).await.0, 429);
    assert_eq!(post(&devnet, &request).await.0, 200);
    chain.fail_next(1, Fault::Malformed);
    let (status, body) = post(&devnet, &request).await;
    assert_eq!(status, 200);
    assert!(serde_json::from_str::<Value>(&body).is_err());
    chain.fail_next(1, Fault::RpcError { code: -32005, message: "slow down".to_owned() });
    let refused = ask(&devnet, "eth_blockNumber", json!([])).await;
    assert_eq!(refused["error"], json!({ "code": -32005, "message": "slow down" }));
    chain.fail_next(1, Fault::Hang(Duration::from_millis(20)));
    assert_eq!(ask(&devnet, "eth_blockNumber", json!([])).await["result"], "0x0");
    assert_eq!(chain.request_count("eth_blockNumber"), 6);
    chain.fail_next(9, Fault::HttpStatus(500));
    chain.limit_range(Some(1));
    chain.clear_faults();
    chain.mine(3).unwrap();
    let wide = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    assert_eq!(ask(&devnet, "eth_getLogs", wide.clone()).await["result"], json!([]));
    chain.limit_range(Some(2));
    let refused = ask(&devnet, "eth_getLogs", wide).await["error"].take();
    assert_eq!(refused["code"], -32005);
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("query returned more than 10000 results"), "{message}");
    assert!(message.contains("[0x0, 0x1]"), "{message}");
}

#[tokio::test]
async fn a_shutdown_cuts_a_hanging_request_short() {
    let devnet = start().await;
    devnet.chain().fail_next(1, Fault::Hang(Duration::from_secs(3_600)));
    let mut stream = TcpStream::connect(devnet.address()).await.unwrap();
    let request = b"POST / HTTP/1.1\r\nHost: devnet\r\nContent-Length: 2\r\n\r\n{}";
    stream.write_all(request).await.unwrap();
    while devnet.chain().request_count("unknown") == 0 {
        tokio::task::yield_now().await;
    }
    timeout(Duration::from_secs(60), devnet.shutdown()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn mining_continues_by_itself_until_stopped() {
    let devnet = start().await;
    let chain = devnet.chain();
    assert!(matches!(devnet.mine_every(Duration::ZERO), Err(Error::Period)));
    chain.transfer(TOKEN, BUYER, WALLET, U256::from(5)).unwrap();
    devnet.mine_every(Duration::from_millis(1)).unwrap();
    let three_blocks = async {
        while chain.head().number < 3 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), three_blocks).await.unwrap();
    let pending = ask(&devnet, "eth_getBlockByNumber", json!(["pending", false])).await;
    assert_eq!(pending["result"]["transactions"], json!([]));
    devnet.stop_mining();
    let head = chain.head();
    devnet.shutdown().await;
    assert_eq!(chain.head(), head);
}

#[tokio::test]
async fn a_taken_address_is_an_error() {
    let devnet = start().await;
    let second = Devnet::serve(devnet.chain(), devnet.address()).await;
    assert!(matches!(second, Err(Error::Listen { .. })));
}
