//! Group positions set by hand, as with Kafka's tools.

use log::{Committed, Event, Step, WorkerSpec};
use tidemark_processor::machine::orders::State;
use tidemark_processor::wire::Wire;

use super::*;

fn set(log: &EmbeddedLog, of: TopicPartition, offset: Offset) {
    let (group, topics) = (State::GROUP, vec![of.topic]);
    let spec = WorkerSpec { group, member: "tool".to_owned(), topics, batch_max: 1 };
    let mut worker = log.worker(spec).unwrap();
    while !matches!(worker.poll(Duration::from_secs(1)).unwrap(), Event::Assigned(_)) {}
    let committed = Committed { offset, metadata: String::new() };
    worker.commit(Step { records: Vec::new(), offsets: vec![(of, committed)] }).unwrap();
}

/// Records that are read again may be of forgotten orders; skipped ones are lost.
#[test]
fn a_group_that_was_set_elsewhere_is_refused() {
    let mut processor = TestProcessor::new(Treatment::Kind);
    processor.send(order_command(&create('A', None))).send(order_command(&mark_paid('A', 2)));
    let cancelled = order_command(&cancel('A', 3));
    let of = cancelled.to;
    let end_before = processor.log().bounds(of).unwrap().end;
    processor.running.take().unwrap().stop();
    let log = EmbeddedLog::open(processor.dir.path(), LAYOUT, processor.clock.clone()).unwrap();
    processor.tokio.block_on(log.produce(vec![cancelled])).unwrap();
    for (offset, expected) in [(Offset(0), "back"), (end_before.next(), "forward")] {
        set(&log, of, offset);
        let context = context(Arc::new(log.clone()), &processor.clock, &processor.tokio);
        let error = end(std::thread::spawn(move || tidemark_processor::run_orders(&context)));
        let text = error.to_string();
        assert!(text.contains(&format!("Somebody has set the group {expected}: ")), "{text}");
        assert!(text.contains(&format!("Set it to {end_before} ")), "{text}");
    }
    set(&log, of, end_before);
    log.close();
    processor.restart();
    processor.wait_until("the command is read", |processor| processor.history('A').len() == 3);
}
