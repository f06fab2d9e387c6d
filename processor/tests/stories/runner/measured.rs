//! Measurements that the runner takes of its machines.

use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use schemas::record::StopScope;

use crate::chain::{open, stop};

/// Runs matching with a recorder; ends it when `is_done`. Returns the metrics at that time and at the end.
fn measured(context: StageContext, mut is_done: impl FnMut(&str) -> bool) -> [String; 2] {
    let recorder = PrometheusBuilder::new().build_recorder();
    let measured = recorder.handle();
    let stop = context.stop.clone();
    let run = move || tidemark_processor::run_matching(&context);
    let runner = std::thread::spawn(move || metrics::with_local_recorder(&recorder, run));
    let (started, mut text) = (Instant::now(), String::new());
    while !is_done(&text) {
        assert!(started.elapsed() < PATIENCE, "{text}");
        std::thread::yield_now();
        text = measured.render();
    }
    stop.cancel();
    runner.join().unwrap().unwrap();
    [text, measured.render()]
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|found| found == line)
}

/// Every step is aborted once.
#[test]
fn alert_of_an_aborted_step_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(UnixSeconds(1000).micros()));
    let log = EmbeddedLog::open(dir.path(), LAYOUT, clock.clone()).unwrap();
    let tokio = Runtime::new().unwrap();
    let everything = StopScope { blockchain: None, stablecoin: None, address: None };
    let Input::Command(command) = stop(everything) else { panic!() };
    let command = wrap(Topic::DepositsCommands, Partition(0), "stop", &command);
    tokio.block_on(log.produce(vec![chain_record(head(100)), command])).unwrap();
    let watch = Arc::new(Watch::default());
    let unlucky = Unlucky { log: log.clone(), watch: watch.clone(), fails: true };
    let log: Arc<dyn Log> = Arc::new(LayeredLog::new(Arc::new(log), unlucky));
    let stopped = r#"tidemark_processor_stops{blockchain="eth"} 1"#;
    let [text, _] = measured(context(log, &clock, &tokio), |text| has(text, stopped));
    assert!(watch.aborts() > 0);
    let line = r#"tidemark_processor_alerts_total{kind="payments_stopped",blockchain="eth"} 1"#;
    assert!(has(&text, line), "{text}");
}

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
    let lines = [
        r#"tidemark_processor_amounts_in_use_ratio{blockchain="eth",stablecoin="USDT"} 0.5"#,
        r#"tidemark_processor_rows{machine="processor.matching"} 6"#,
    ];
    let context = context(Arc::new(log), &clock, &tokio);
    let [_, text] = measured(context, |text| lines.iter().all(|line| has(text, line)));
    let withdrawn =
        r#"tidemark_processor_amounts_in_use_ratio{blockchain="eth",stablecoin="USDT"} NaN"#;
    let stops = r#"tidemark_processor_stops{blockchain="eth"} NaN"#;
    for line in [withdrawn, stops] {
        assert!(has(&text, line), "{line} in {text}");
    }
}
