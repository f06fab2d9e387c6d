//! Metrics that a process exports at its start.

use std::cell::RefCell;
use std::collections::BTreeSet;

use testkit::eventually_or;
use testkit::harness::{Chain, Tidemark, WALLET, WEBHOOK, free_port};
use testkit::repository::read;

/// Gauges without a value in a process without endpoints, orders and rows: 0 would be false.
const UNKNOWN: [&str; 17] = [
    "tidemark_log_lag_records",
    "tidemark_log_queue_requests",
    "tidemark_ingest_head_block",
    "tidemark_ingest_finalized_block",
    "tidemark_ingest_last_block_timestamp_seconds",
    "tidemark_ingest_lag_blocks",
    "tidemark_ingest_checked_block",
    "tidemark_ingest_range_blocks",
    "tidemark_processor_clock_ahead_seconds",
    "tidemark_processor_amounts_in_use_ratio",
    "tidemark_processor_stops",
    "tidemark_processor_rows",
    "tidemark_api_lane_head_block",
    "tidemark_api_lane_head_age_seconds",
    "tidemark_api_lane_unconfirmed_age_seconds",
    "tidemark_webhooks_alerts_waiting",
    "tidemark_webhooks_endpoint_failing_seconds",
];

/// The names in `docs/operate/metrics.md`.
fn documented() -> BTreeSet<String> {
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    read("docs/operate/metrics.md").lines().filter_map(name).collect()
}

/// The names that have a series.
async fn exported(address: &str) -> BTreeSet<String> {
    let text =
        reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap();
    let name = |line: &str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let parts = ["_bucket", "_sum", "_count"];
        parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name).to_owned()
    };
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(name).collect()
}

/// A series that appears with its first event shows no increase to alert on.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_process_exports_every_metric() {
    let dir = tempfile::tempdir().unwrap();
    let free = format!("127.0.0.1:{}", free_port());
    let chain = Chain::at("eth", "http://127.0.0.1:9", WALLET, "");
    let variables = [("TIDEMARK__TELEMETRY__LISTEN", free.clone())];
    let mut tidemark = Tidemark::spawn(dir.path(), &[chain], WEBHOOK, "", &variables);
    tidemark.healthy().await;
    let documented = documented();
    assert!(documented.contains("process_cpu_seconds_total"), "{documented:?}");
    let unknown: BTreeSet<_> = UNKNOWN.map(str::to_owned).into();
    assert!(unknown.is_subset(&documented), "{unknown:?}");
    let missing = RefCell::new(Vec::new());
    let is_complete = || async {
        let exported = exported(&free).await;
        let left = documented.difference(&exported).filter(|name| !unknown.contains(*name));
        missing.replace(left.cloned().collect());
        missing.borrow().is_empty().then_some(())
    };
    eventually_or("every metric", is_complete, || format!("{:?}", missing.borrow())).await;
    let undocumented: Vec<_> = exported(&free).await.difference(&documented).cloned().collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
    assert!(tidemark.stop().await.success());
}
