//! The projector on both stores: rows a second from committed records.

use std::sync::Arc;

use log::StageContext;
use log::kafka::KafkaLog;
use runtime::SystemClock;
use store::Store;

use crate::metered::{Report, Tally, metered};

/// Projects all `rows` records of a log, each a separate row.
pub(crate) async fn project(log: KafkaLog, store: Arc<dyn Store>, rows: u64) -> Report {
    let tally = Tally::new(rows);
    let kafka = log.with_observer(tally.clone());
    let log = metered(kafka, tally.clone());
    let (stop, handle) = (tally.done().clone(), tokio::runtime::Handle::current());
    let (clock, member) = (Arc::new(SystemClock), "bench".to_owned());
    let context = StageContext { log, clock, member, handle, stop };
    let thread =
        std::thread::spawn(move || projector::run(store, None, projector::Level::DEBUG, &context));
    tally.done().cancelled().await;
    thread.join().expect("the projector").expect("ends well");
    tally.report()
}
