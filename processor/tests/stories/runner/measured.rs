//! Measurements that the runner takes of its machines.

use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::chain::open;

/// Each order tries the amounts of those before it first: of six raised amounts that were tried, three were taken.
#[test]
fn amounts_in_use_are_those_of_the_fullest_lane() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(UnixSeconds(1000).micros()));
    let log = EmbeddedLog::open(dir.path(), Layout { lanes: 2, ..LAYOUT }, clock.clone()).unwrap();
    let tokio = Runtime::new().unwrap();
    for (lane, orders) in (0..).zip(["ABCD", "EF"]) {
        let chain = [watch(100, 1, CONTRACT), head(100).into()];
        let deposits = orders.chars().map(|order| open(order, "10.00").into());
        let record = |input| match input {
            Input::Chain(record) => wrap(Topic::TransfersRaw, Partition(lane), "wallet", &record),
            Input::Command(open) => wrap(Topic::DepositsCommands, Partition(lane), "wallet", &open),
        };
        tokio
            .block_on(log.produce(chain.into_iter().chain(deposits).map(record).collect()))
            .unwrap();
    }
    let recorder = PrometheusBuilder::new().build_recorder();
    let measured = recorder.handle();
    let context = context(Arc::new(log), &clock, &tokio);
    let stop = context.stop.clone();
    let run = move || tidemark_processor::run_matching(&context);
    let runner = std::thread::spawn(move || metrics::with_local_recorder(&recorder, run));
    let lines = [
        r#"tidemark_processor_amounts_in_use_ratio{blockchain="eth",stablecoin="USDT"} 0.5"#,
        r#"tidemark_processor_rows{machine="processor.matching"} 6"#,
    ];
    let (started, mut text) = (Instant::now(), String::new());
    while !lines.iter().all(|line| text.lines().any(|found| found == *line)) {
        assert!(started.elapsed() < PATIENCE, "{lines:?} in {text}");
        std::thread::yield_now();
        text = measured.render();
    }
    stop.cancel();
    runner.join().unwrap().unwrap();
    let text = measured.render();
    let withdrawn =
        r#"tidemark_processor_amounts_in_use_ratio{blockchain="eth",stablecoin="USDT"} NaN"#;
    let stops = r#"tidemark_processor_stops{blockchain="eth"} NaN"#;
    for line in [withdrawn, stops] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}
