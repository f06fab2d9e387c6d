//! History of an order or a payment, and health of an installation: read from log and tables by
//! `tidemark find`, `tidemark status` and the operators' console alike (decision 86).

pub mod gather;
pub mod reader;
pub mod search;
pub mod survey;
pub mod wanted;

use std::sync::Arc;

use log::{Bounds, Log, Offset, Record, TopicPartition};

use self::reader::Pages;
use crate::error::{Answer, Refusal};

/// The log of this process.
pub(crate) struct Served(pub(crate) Arc<dyn Log>);

impl Pages for Served {
    type Error = Refusal;

    fn bounds(&self, of: TopicPartition) -> Answer<Bounds> {
        Ok(self.0.bounds(of)?)
    }

    fn page(&self, of: TopicPartition, from: Offset, max: usize) -> Answer<Vec<Arc<Record>>> {
        Ok(self.0.read(of, from, max)?)
    }
}
