//! Distortion of a node's replies by the faults of an endpoint.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::fault::{Behaviour, Fault, Numbering};
use super::node_state::{NodeState, hex_number};
use super::server::Reply;
use super::words::{REFUSALS, TRON_REFUSAL, TRON_SENTENCE};

const BLOCK_BY_NUMBER: &str = "eth_getBlockByNumber";
const BLOCK_BY_HASH: &str = "eth_getBlockByHash";
pub(super) const BLOCK_RECEIPTS: &str = "eth_getBlockReceipts";
const LOGS: &str = "eth_getLogs";
pub(super) const RECEIPT: &str = "eth_getTransactionReceipt";

impl Behaviour {
    /// The calls as the endpoint forwards them.
    pub(super) fn as_seen(
        &self,
        fault: Option<Fault>,
        calls: &[Value],
        node_state: &NodeState,
    ) -> Vec<Value> {
        let mut calls = calls.to_vec();
        for call in calls.iter_mut().filter(|call| call["method"] == BLOCK_BY_NUMBER) {
            let tag = &mut call["params"][0];
            if self.tags_are_young && (*tag == "safe" || *tag == "finalized") {
                *tag = json!("latest");
            }
            if let Some(Fault::Behind(blocks)) = fault
                && *tag == "latest"
            {
                *tag = json!(format!("{:#x}", node_state.height().saturating_sub(blocks)));
            }
        }
        calls
    }

    /// The reply to one call, from the node's reply.
    pub(super) fn distort(
        &self,
        fault: Option<Fault>,
        call: &Value,
        mut reply: Value,
        node_state: &NodeState,
    ) -> Value {
        if let Some((code, message)) = self.refuses(fault, call, &reply, node_state) {
            return json!({ "error": { "code": code, "message": message } });
        }
        let asked = &call["params"][0];
        let method = call["method"].as_str().unwrap_or_default();
        if let Some(instead) = self.block_receipts.as_ref().filter(|_| method == BLOCK_RECEIPTS) {
            return instead.clone();
        }
        match method {
            BLOCK_BY_NUMBER if fault == Some(Fault::NullBlocks) => reply["result"] = Value::Null,
            BLOCK_BY_NUMBER | BLOCK_BY_HASH => {
                list(&mut reply["result"], &self.with_receipt(fault, node_state));
            }
            LOGS => {
                if let Some(logs) = reply.get_mut("result").and_then(Value::as_array_mut) {
                    self.distort_logs(fault, asked, logs, node_state);
                }
            }
            BLOCK_RECEIPTS => {
                if let Some(receipts) = reply.get_mut("result").and_then(Value::as_array_mut) {
                    let block = receipts.first().map(|receipt| receipt["blockHash"].clone());
                    let is_here = |log: &&Value| {
                        is_of(asked, log) && block.as_ref().is_none_or(|b| *b == log["blockHash"])
                    };
                    let invented = self.with_receipt(fault, node_state);
                    receipts.extend(invented.iter().filter(is_here).map(receipt));
                }
            }
            RECEIPT => {
                let transaction = asked.as_str().unwrap_or_default();
                let invented = self.with_receipt(fault, node_state);
                let invented = invented.iter().find(|log| log["transactionHash"] == *asked);
                if self.lacks_receipts.contains(transaction) {
                    reply["result"] = Value::Null;
                } else if let Some(log) = invented {
                    reply["result"] = receipt(log);
                }
            }
            _ => {}
        }
        if let Some(Fault::Behind(blocks)) = fault {
            hide_above(node_state.height().saturating_sub(blocks), method, &mut reply);
        }
        reply
    }

    /// Logs that are not in the block and have receipts: invented ones, and one of an orphaned fork.
    fn with_receipt(&self, fault: Option<Fault>, node_state: &NodeState) -> Vec<Value> {
        let invented = self.invents.iter().filter(|(_, has_receipt)| *has_receipt);
        let removed = node_state.removed().filter(|_| fault == Some(Fault::Removed));
        invented.map(|(log, _)| log.clone()).chain(removed).collect()
    }

    /// Code and words of a refusal.
    fn refuses(
        &self,
        fault: Option<Fault>,
        call: &Value,
        reply: &Value,
        node_state: &NodeState,
    ) -> Option<(i64, &'static str)> {
        let known = |words: usize| {
            let (_, code, message, _) = REFUSALS[words % REFUSALS.len()];
            (code, message)
        };
        let method = call["method"].as_str().unwrap_or_default();
        match fault {
            Some(Fault::Refuses(words)) => return Some(known(words)),
            Some(Fault::RefusesLogs(words)) if method == LOGS => return Some(known(words)),
            _ => {}
        }
        if method == BLOCK_RECEIPTS && !self.lacks_receipts.is_empty() {
            let words = "the method eth_getBlockReceipts does not exist/is not available";
            return Some((-32_601, words));
        }
        if lowest(call, reply, node_state).is_some_and(|number| number < self.pruned_below) {
            return Some((4444, "pruned history unavailable"));
        }
        let (blocks_max, words) = self.range_max.filter(|_| method == LOGS)?;
        let filter = &call["params"][0];
        let blocks = hex_number(&filter["toBlock"])? + 1 - hex_number(&filter["fromBlock"])?;
        (blocks > blocks_max).then(|| known(words))
    }

    fn distort_logs(
        &self,
        fault: Option<Fault>,
        filter: &Value,
        logs: &mut Vec<Value>,
        node_state: &NodeState,
    ) {
        let by_form =
            if filter.get("blockHash").is_some() { &self.hashes_omit } else { &self.ranges_omit };
        let omits = |log: &Value| {
            let transaction = log["transactionHash"].as_str().unwrap_or_default();
            self.omits.contains(transaction) || by_form.contains(transaction)
        };
        logs.retain(|log| !self.trails(log, node_state) && !omits(log));
        let invented = self.invents.iter().map(|(log, _)| log.clone());
        logs.extend(invented.filter(|log| fits(filter, log)));
        match fault {
            Some(Fault::NoLogs) => logs.clear(),
            Some(Fault::PartialLogs) => drop(logs.pop()),
            Some(Fault::Stutter) => logs.extend(logs.clone()),
            Some(Fault::Removed) => {
                let removed = node_state.removed().into_iter().filter(|log| fits(filter, log));
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

    /// `true` if a log is not visible yet.
    fn trails(&self, log: &Value, node_state: &NodeState) -> bool {
        let born = node_state.born(log["blockHash"].as_str().unwrap_or_default());
        let is_young = born.is_some_and(|(_, at)| node_state.now() < at + self.trail_seconds);
        let trails =
            !self.trail_is_partial || hex_number(&log["logIndex"]).is_some_and(|i| i % 2 == 1);
        is_young && trails
    }

    /// Renumbers logs. `first` is the index of the first log of each transaction.
    pub(super) fn renumber(&self, replies: &mut [Value], first: &HashMap<String, u64>) {
        if self.numbering == Numbering::Block {
            return;
        }
        each_log(replies, &mut |log| {
            let transaction = log["transactionHash"].as_str().unwrap_or_default();
            let before = first.get(transaction).copied().unwrap_or_default();
            let index = match self.numbering {
                Numbering::Zero => 0,
                _ => hex_number(&log["logIndex"]).unwrap_or_default().saturating_sub(before),
            };
            log["logIndex"] = json!(format!("{index:#x}"));
        });
    }
}

/// Visits each log of the replies and of receipts.
pub(super) fn each_log(replies: &mut [Value], change: &mut impl FnMut(&mut Value)) {
    let mut change_all = |logs: &mut Value| {
        let logs = logs.as_array_mut().into_iter().flatten();
        logs.filter(|log| log.get("logIndex").is_some()).for_each(&mut *change);
    };
    for reply in replies {
        let Some(result) = reply.get_mut("result") else { continue };
        for receipt in result.as_array_mut().into_iter().flatten() {
            receipt.get_mut("logs").into_iter().for_each(&mut change_all);
        }
        result.get_mut("logs").into_iter().for_each(&mut change_all);
        change_all(result);
    }
}

fn receipt(log: &Value) -> Value {
    json!({
        "status": "0x1", "blockHash": log["blockHash"], "logs": [log],
        "blockNumber": log["blockNumber"], "transactionHash": log["transactionHash"],
    })
}

/// Lists these logs' transactions in a block.
fn list(block: &mut Value, logs: &[Value]) {
    let hash = block["hash"].clone();
    if let Some(listed) = block.get_mut("transactions").and_then(Value::as_array_mut) {
        let here = logs.iter().filter(|log| log["blockHash"] == hash);
        listed.extend(here.map(|log| log["transactionHash"].clone()));
    }
}

/// The lowest block whose logs or receipts a call requests.
fn lowest(call: &Value, reply: &Value, node_state: &NodeState) -> Option<u64> {
    let asked = &call["params"][0];
    let of_hash = |hash: &Value| node_state.born(hash.as_str()?).map(|(number, _)| number);
    match call["method"].as_str()? {
        LOGS => hex_number(&asked["fromBlock"]).or_else(|| of_hash(&asked["blockHash"])),
        BLOCK_RECEIPTS => of_hash(asked).or_else(|| hex_number(asked)),
        RECEIPT => hex_number(&reply["result"]["blockNumber"]),
        _ => None,
    }
}

/// `true` if a log belongs to the block of this hash or number.
fn is_of(block: &Value, log: &Value) -> bool {
    *block == log["blockHash"] || *block == log["blockNumber"]
}

/// `true` if a filter covers the block of a log.
fn fits(filter: &Value, log: &Value) -> bool {
    if let Some(hash) = filter.get("blockHash") {
        return *hash == log["blockHash"];
    }
    let number = hex_number(&log["blockNumber"]);
    number >= hex_number(&filter["fromBlock"]) && number <= hex_number(&filter["toBlock"])
}

/// Hides everything above a height, as a lagging node does.
fn hide_above(height: u64, method: &str, reply: &mut Value) {
    let Some(result) = reply.get_mut("result") else { return };
    let is_above = |number: &Value| hex_number(number).is_some_and(|number| number > height);
    let number = match method {
        BLOCK_BY_NUMBER | BLOCK_BY_HASH => &result["number"],
        RECEIPT => &result["blockNumber"],
        BLOCK_RECEIPTS => &result[0]["blockNumber"],
        LOGS => {
            if let Some(logs) = result.as_array_mut() {
                logs.retain(|log| !is_above(&log["blockNumber"]));
            }
            return;
        }
        _ => return,
    };
    if is_above(number) {
        *result = Value::Null;
    }
}

/// Reply to a request as a whole; `None` if its calls have separate replies.
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
        Fault::Unauthorized => Reply::Answer(401, "", "invalid API key".into()),
        Fault::Html => Reply::ok("<html><body>Just a moment...</body></html>".into()),
        Fault::Empty => Reply::ok(String::new()),
        Fault::EmptyList => Reply::ok("[]".into()),
        Fault::TronRefusal => Reply::ok(TRON_REFUSAL.into()),
        Fault::TronSentence => Reply::ok(TRON_SENTENCE.into()),
        Fault::Silence => Reply::Silence,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::node_state::invented;
    use super::*;

    const TX: &str = "0x01";

    fn log(index: u64) -> Value {
        let mut log = invented((7, "0xb7"), TX, ["0x0a", "0x0b", "0x0c"], 5);
        log["logIndex"] = json!(format!("{index:#x}"));
        log
    }

    fn call(method: &str, params: Value) -> Value {
        json!({ "method": method, "params": [params] })
    }

    fn answer(behaviour: &Behaviour, method: &str, params: Value, result: Value) -> Value {
        let reply = json!({ "result": result });
        behaviour.distort(None, &call(method, params), reply, &NodeState::default())
    }

    fn only(transaction: &str) -> std::collections::HashSet<String> {
        [transaction.to_owned()].into()
    }

    #[test]
    fn receipts_of_blocks_alone_have_another_reply() {
        let null = json!({ "result": null });
        let behaviour = Behaviour { block_receipts: Some(null.clone()), ..Behaviour::default() };
        let reply = |method| answer(&behaviour, method, json!("0x7"), json!([]));
        assert_eq!((reply(BLOCK_RECEIPTS), &reply(RECEIPT)["result"]), (null, &json!([])));
    }

    #[test]
    fn one_form_of_question_hides_a_transaction() {
        let (range, hash) =
            (json!({ "fromBlock": "0x1", "toBlock": "0x9" }), json!({ "blockHash": "0xb7" }));
        let ranges = Behaviour { ranges_omit: only(TX), ..Behaviour::default() };
        let hashes = Behaviour { hashes_omit: only(TX), ..Behaviour::default() };
        for (behaviour, filter, count) in
            [(&ranges, &range, 0), (&ranges, &hash, 1), (&hashes, &range, 1), (&hashes, &hash, 0)]
        {
            let reply = answer(behaviour, LOGS, filter.clone(), json!([log(3)]));
            assert_eq!(reply["result"].as_array().map(Vec::len), Some(count), "{filter}");
        }
    }

    #[test]
    fn receipt_is_absent_and_its_block_lists_it() {
        let lacking = Behaviour { lacks_receipts: only(TX), ..Behaviour::default() };
        let block = json!({ "hash": "0xb7", "transactions": [TX] });
        let receipt = answer(&lacking, RECEIPT, json!(TX), receipt(&log(0)));
        assert_eq!(receipt["result"], Value::Null);
        let all = answer(&lacking, BLOCK_RECEIPTS, json!("0x7"), json!([]));
        assert_eq!(all["error"]["code"], -32_601);
        let shown = answer(&lacking, BLOCK_BY_HASH, json!("0xb7"), block.clone());
        assert_eq!(shown["result"], block);
    }

    #[test]
    fn invention_with_a_receipt_is_in_its_block() {
        for (has_receipt, count) in [(true, 1), (false, 0)] {
            let liar = Behaviour { invents: vec![(log(0), has_receipt)], ..Behaviour::default() };
            let block = json!({ "hash": "0xb7", "transactions": [] });
            let shown = answer(&liar, BLOCK_BY_NUMBER, json!("0x7"), block);
            assert_eq!(shown["result"]["transactions"].as_array().map(Vec::len), Some(count));
            for which in ["0x7", "0xb7"] {
                let all = answer(&liar, BLOCK_RECEIPTS, json!(which), json!([]));
                assert_eq!(all["result"].as_array().map(Vec::len), Some(count));
            }
            let other = answer(&liar, BLOCK_RECEIPTS, json!("0x8"), json!([]));
            assert_eq!(other["result"], json!([]));
        }
    }

    #[test]
    fn logs_are_counted_in_the_ways_of_nodes() {
        let first = HashMap::from([(TX.to_owned(), 3)]);
        for (numbering, expected) in [
            (Numbering::Block, ["0x3", "0x4"]),
            (Numbering::Transaction, ["0x0", "0x1"]),
            (Numbering::Zero, ["0x0", "0x0"]),
        ] {
            let behaviour = Behaviour { numbering, ..Behaviour::default() };
            let logs = json!([log(3), log(4)]);
            for result in [logs.clone(), json!({ "logs": logs }), json!([{ "logs": logs }])] {
                let mut replies = [json!({ "result": result })];
                behaviour.renumber(&mut replies, &first);
                let mut seen = Vec::new();
                each_log(&mut replies, &mut |log| seen.push(log["logIndex"].clone()));
                assert_eq!(seen, expected);
            }
        }
    }

    #[test]
    fn what_is_deleted_is_refused_below_a_height() {
        let node_state = NodeState::default();
        node_state.mined(7, "0xb7");
        let pruned = Behaviour { pruned_below: 8, ..Behaviour::default() };
        let range = |from: &str| json!({ "fromBlock": from, "toBlock": "0x9" });
        for (method, asked, result, is_refused) in [
            (LOGS, range("0x7"), json!([]), true),
            (LOGS, range("0x8"), json!([]), false),
            (LOGS, json!({ "blockHash": "0xb7" }), json!([]), true),
            (BLOCK_RECEIPTS, json!("0xb7"), json!([]), true),
            (BLOCK_RECEIPTS, json!("0x8"), json!([]), false),
            (RECEIPT, json!(TX), receipt(&log(0)), true),
            (BLOCK_BY_NUMBER, json!("0x7"), json!({}), false),
        ] {
            let reply = json!({ "result": result });
            let reply = pruned.distort(None, &call(method, asked.clone()), reply, &node_state);
            assert_eq!(reply["error"]["code"] == 4444, is_refused, "{method} {asked}");
        }
    }

    #[test]
    fn young_tags_are_the_newest_block() {
        let young = Behaviour { tags_are_young: true, ..Behaviour::default() };
        let node_state = NodeState::default();
        node_state.mined(20, "0xb7");
        let calls = [call(BLOCK_BY_NUMBER, json!("finalized"))];
        let seen = |fault| young.as_seen(fault, &calls, &node_state)[0]["params"][0].clone();
        assert_eq!([seen(None), seen(Some(Fault::Behind(4)))], ["latest", "0x10"]);
    }
}
