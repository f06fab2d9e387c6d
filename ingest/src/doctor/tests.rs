//! Tests of the doctor's checks of logs and tags.

use runtime::{ManualClock, SystemClock};
use schemas::{Hash, UnixSeconds};

use super::*;
use crate::machine::Policy;
use crate::simulation::{Served, chain};

/// A node that answers `eth_getLogs` with an empty list; each block has a receipt with `logs`.
async fn without_logs(logs: Value) -> Served {
    Served::of(move |call| {
        let hash = Hash([5; 32]);
        let result = match call["method"].as_str().unwrap() {
            "eth_getBlockByNumber" => json!({
                "number": call["params"][0], "hash": hash, "parentHash": hash, "timestamp": "0x1",
                "logsBloom": format!("0x{}", "f".repeat(512)), "transactions": [hash],
            }),
            "eth_getBlockReceipts" => json!([{ "logs": logs }]),
            "eth_getLogs" => json!([]),
            _ => json!("0x0"),
        };
        json!({ "result": result })
    })
    .await
}

fn doctor(served: &Served) -> Doctor {
    Doctor {
        endpoint: served.client(),
        chain: chain(Policy::flat(Some(3), None)),
        wallets: Vec::new(),
        clock: Arc::new(SystemClock),
        findings: Vec::new(),
    }
}

/// A tag is too young within the two epochs that Ethereum needs for finality.
#[tokio::test]
async fn a_young_tag_is_a_warning() {
    for (seconds, level) in [(768, Level::Fine), (767, Level::Warning)] {
        let served = Served::of(move |call| {
            let age = if call["params"][0] == "latest" { 0 } else { seconds };
            let (time, hash) = (format!("{:#x}", 10_000 - age), Hash([5; 32]));
            let block = json!({
                "number": "0x32", "hash": hash, "parentHash": hash, "timestamp": time,
                "logsBloom": format!("0x{}", "f".repeat(512)), "transactions": [],
            });
            json!({ "result": block })
        })
        .await;
        let mut doctor = doctor(&served);
        doctor.blocks().await;
        let found = doctor.findings.iter().find(|found| found.check == "finalized").unwrap();
        assert_eq!(found.level, level, "{}", found.text);
    }
}

#[tokio::test]
async fn logs_are_missing_where_receipts_have_some() {
    for (logs, level, words) in [
        (json!([]), Level::Fine, "back to block 1, 49 deep"),
        (
            json!([{}]),
            Level::Warning,
            "back to block 50, 0 deep, and not to block 42 (its logs are left out without a word)",
        ),
    ] {
        let served = without_logs(logs).await;
        let mut doctor = doctor(&served);
        let head = Block { number: 50, hash: Hash([5; 32]), timestamp: UnixSeconds(1) };
        doctor.depth(head).await;
        let found = &doctor.findings[0];
        assert_eq!((found.check, found.level), ("logs_depth", level));
        assert!(found.text.starts_with(words), "{}", found.text);
    }
}

/// The head is ahead of the clock, and the answer's date is another one than the clock's.
#[tokio::test]
async fn clocks_that_differ_are_a_warning() {
    let served = without_logs(json!([])).await;
    for (ahead, level) in [(SKEW_SECONDS_MAX, Level::Fine), (SKEW_SECONDS_MAX + 1, Level::Warning)]
    {
        let mut doctor = doctor(&served);
        let clock = ManualClock::new(UnixSeconds(1000).micros());
        doctor.clock = Arc::new(clock);
        let timestamp = UnixSeconds(1000 + ahead);
        doctor.clocks(Block { number: 50, hash: Hash([5; 32]), timestamp }).await;
        let levels: Vec<_> =
            doctor.findings.iter().map(|found| (found.check, found.level)).collect();
        // The node's answers have today's date, far from that of the manual clock.
        assert_eq!(levels, [("head", level), ("clock", Level::Warning)]);
    }
}
