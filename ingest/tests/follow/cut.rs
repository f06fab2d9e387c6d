//! A log that stops ingest right after a step that retracts.

use log::{Error, Log, LogLayer, NewRecord, StepError, Writer};
use schemas::Topic;
use schemas::record::{ChainBody, ChainRecord};
use tokio_util::sync::CancellationToken;

pub(crate) struct CutAfterRetract {
    pub(crate) stop: CancellationToken,
}

struct CutWriter {
    writer: Box<dyn Writer>,
    stop: CancellationToken,
}

impl Writer for CutWriter {
    fn commit(&mut self, records: Vec<NewRecord>) -> Result<(), StepError> {
        let retracts =
            records.iter().filter(|record| record.to.topic == Topic::TransfersRaw).any(|record| {
                let value = record.value.as_deref().unwrap();
                let decoded: ChainRecord = schemas::decode(value).unwrap();
                matches!(decoded.body, ChainBody::Retract(_))
            });
        self.writer.commit(records)?;
        if retracts {
            self.stop.cancel();
        }
        Ok(())
    }
}

impl LogLayer for CutAfterRetract {
    fn writer(&self, log: &dyn Log, name: &str) -> Result<Box<dyn Writer>, Error> {
        let writer = log.writer(name)?;
        Ok(Box::new(CutWriter { writer, stop: self.stop.clone() }))
    }
}
