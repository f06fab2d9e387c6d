//! The projector on both stores: rows a second from committed records.

use std::sync::Arc;

use log::kafka::KafkaLog;
use store::Store;

use crate::metered::{Report, Tally, metered};

/// Projects all `rows` records of a log, each a row of its own.
pub(crate) async fn project(log: KafkaLog, store: Arc<dyn Store>, rows: u64) -> Report {
    let tally = Tally::new(rows);
    let kafka = log.with_observer(tally.clone());
    let log = metered(kafka, tally.clone());
    let (stop, handle) = (tally.done().clone(), tokio::runtime::Handle::current());
    let run = move || projector::run(log, store, handle, "bench".to_owned(), stop);
    let thread = std::thread::spawn(run);
    tally.done().cancelled().await;
    thread.join().expect("the projector").expect("ends well");
    tally.report()
}
