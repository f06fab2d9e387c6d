//! What may be wrong with an endpoint, and what that makes of its answers.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::scene::{Scene, hex_number};
use super::server::Reply;
use super::words::{REFUSALS, TRON_REFUSAL, TRON_SENTENCE};

/// What happens to some requests in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Each call is refused in these of the known words.
    Refuses(usize),
    /// The batch as a whole is, with HTTP 200.
    RefusesBatch(usize),
    /// Only calls for logs are.
    RefusesLogs(usize),
    /// 429; with seconds to wait, if there are any.
    Rate(Option<u8>),
    Unavailable,
    Html,
    /// HTTP 200 without a body.
    Empty,
    EmptyList,
    TronRefusal,
    TronSentence,
    Reset,
    Cut,
    Drip,
    Silence,
    /// Every second answer of the batch is missing.
    PartialBatch,
    NullBlocks,
    /// No answer has a log.
    NoLogs,
    /// The last log of each answer is missing.
    PartialLogs,
    /// The head lags by this many blocks; where logs of later ones are asked for, there are none.
    Behind(u64),
    /// Every block is of a fork that the chain left.
    Stale,
    /// Logs are of that fork as far as it goes, and blocks of the chain.
    Mixed,
    /// A log of that fork is there too, marked removed.
    Removed,
    /// Every log comes twice.
    Stutter,
    /// Two different logs have one index.
    Collides,
    /// Another chain answers.
    Foreign,
}

/// How an endpoint behaves, until it is set anew.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// And for how many more requests.
    pub fault: Option<(Fault, u32)>,
    /// For how long, by the chain's time, a block has no logs yet; or only every second one, for as long.
    pub trail_seconds: i64,
    pub trail_is_partial: bool,
    /// Most blocks of a range of logs, and the words that refuse more.
    pub range_max: Option<(u64, usize)>,
    /// Transactions whose logs it leaves out, while their receipts are complete.
    pub omits: HashSet<String>,
    /// Logs that no block has, and whether there are receipts of them.
    pub invents: Vec<(Value, bool)>,
}

impl Behaviour {
    /// The fault of the next request.
    pub(super) fn take(&mut self) -> Option<Fault> {
        let (fault, requests) = self.fault.take()?;
        self.fault = requests.checked_sub(1).filter(|left| *left > 0).map(|left| (fault, left));
        Some(fault)
    }

    /// What the endpoint makes of a log.
    fn hides(&self, log: &Value, scene: &Scene) -> bool {
        let text = |name: &str| log[name].as_str().unwrap_or_default().to_owned();
        let born = scene.born(&text("blockHash"));
        let is_young = born.is_some_and(|(_, at)| scene.now() < at + self.trail_seconds);
        let trails =
            !self.trail_is_partial || hex_number(&log["logIndex"]).is_some_and(|i| i % 2 == 1);
        (is_young && trails) || self.omits.contains(&text("transactionHash"))
    }

    /// The answer to one call, from what a node answers.
    pub(super) fn distort(
        &self,
        fault: Option<Fault>,
        call: &Value,
        reply: Value,
        scene: &Scene,
    ) -> Value {
        let method = call["method"].as_str().unwrap_or_default();
        if let Some(words) = self.refuses(fault, call) {
            let (_, code, message, _) = REFUSALS[words % REFUSALS.len()];
            return json!({ "error": { "code": code, "message": message } });
        }
        let mut reply = reply;
        match method {
            "eth_getBlockByNumber" if fault == Some(Fault::NullBlocks) => {
                reply["result"] = Value::Null
            }
            "eth_getLogs" => {
                let result = reply.get_mut("result").and_then(Value::as_array_mut);
                if let Some(logs) = result {
                    self.distort_logs(fault, &call["params"][0], logs, scene);
                }
            }
            "eth_getTransactionReceipt" => {
                let invented = self.invents.iter().filter(|(_, has_receipt)| *has_receipt);
                let mut invented =
                    invented.filter(|(log, _)| log["transactionHash"] == call["params"][0]);
                if let Some((log, _)) = invented.next() {
                    reply["result"] = json!({
                        "status": "0x1", "blockHash": log["blockHash"], "logs": [log],
                        "blockNumber": log["blockNumber"], "transactionHash": log["transactionHash"],
                    });
                }
            }
            _ => {}
        }
        if let Some(Fault::Behind(blocks)) = fault {
            hide_above(scene.height().saturating_sub(blocks), method, &mut reply);
        }
        reply
    }

    /// The words by which a call is refused.
    fn refuses(&self, fault: Option<Fault>, call: &Value) -> Option<usize> {
        let is_logs = call["method"] == "eth_getLogs";
        match fault {
            Some(Fault::Refuses(words)) => return Some(words),
            Some(Fault::RefusesLogs(words)) if is_logs => return Some(words),
            _ => {}
        }
        let (blocks_max, words) = self.range_max.filter(|_| is_logs)?;
        let filter = &call["params"][0];
        let blocks = hex_number(&filter["toBlock"])? + 1 - hex_number(&filter["fromBlock"])?;
        (blocks > blocks_max).then_some(words)
    }

    fn distort_logs(
        &self,
        fault: Option<Fault>,
        filter: &Value,
        logs: &mut Vec<Value>,
        scene: &Scene,
    ) {
        logs.retain(|log| !self.hides(log, scene));
        logs.extend(
            self.invents.iter().map(|(log, _)| log.clone()).filter(|log| fits(filter, log)),
        );
        match fault {
            Some(Fault::NoLogs) => logs.clear(),
            Some(Fault::PartialLogs) => drop(logs.pop()),
            Some(Fault::Stutter) => logs.extend(logs.clone()),
            Some(Fault::Removed) => {
                let removed = scene.removed().into_iter().filter(|log| fits(filter, log));
                logs.extend(removed);
            }
            Some(Fault::Collides) => {
                let mut other = logs.clone();
                for log in &mut other {
                    log["transactionHash"] = json!(format!("0x{:064x}", 0xdead));
                }
                logs.extend(other);
            }
            _ => {}
        }
    }
}

/// Whether a filter asks for a log's block.
fn fits(filter: &Value, log: &Value) -> bool {
    if let Some(hash) = filter.get("blockHash") {
        return *hash == log["blockHash"];
    }
    let number = hex_number(&log["blockNumber"]);
    number >= hex_number(&filter["fromBlock"]) && number <= hex_number(&filter["toBlock"])
}

/// A node that lags has no later block.
fn hide_above(height: u64, method: &str, reply: &mut Value) {
    let Some(result) = reply.get_mut("result") else { return };
    let is_above = |number: &Value| hex_number(number).is_some_and(|number| number > height);
    match method {
        "eth_getBlockByNumber" if is_above(&result["number"]) => *result = Value::Null,
        "eth_getTransactionReceipt" if is_above(&result["blockNumber"]) => *result = Value::Null,
        "eth_getLogs" => {
            if let Some(logs) = result.as_array_mut() {
                logs.retain(|log| !is_above(&log["blockNumber"]));
            }
        }
        _ => {}
    }
}

/// What becomes of a request as a whole; none if its calls are answered one by one.
pub(super) fn whole(fault: Option<Fault>) -> Option<Reply> {
    Some(match fault? {
        Fault::RefusesBatch(words) => {
            let (_, code, message, _) = REFUSALS[words % REFUSALS.len()];
            let error = json!({ "code": code, "message": message });
            Reply::ok(json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string())
        }
        Fault::Rate(None) => Reply::Answer(429, "", "slow down".into()),
        Fault::Rate(Some(0)) => Reply::Answer(429, "retry-after: 0\r\n", String::new()),
        Fault::Rate(Some(_)) => Reply::Answer(429, "retry-after: 1\r\n", String::new()),
        Fault::Unavailable => Reply::Answer(503, "", "no backend".into()),
        Fault::Html => Reply::ok("<html><body>Just a moment...</body></html>".into()),
        Fault::Empty => Reply::ok(String::new()),
        Fault::EmptyList => Reply::ok("[]".into()),
        Fault::TronRefusal => Reply::ok(TRON_REFUSAL.into()),
        Fault::TronSentence => Reply::ok(TRON_SENTENCE.into()),
        Fault::Silence => Reply::Silence,
        _ => return None,
    })
}
