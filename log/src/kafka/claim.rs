//! Holder of a name: the worker or the writer that claimed it last.
//!
//! A claim is an offset whose metadata marks its holder, in a group that no consumer joins. A
//! holder writes it before it fences earlier ones. A fenced holder reads it: if another holder
//! wrote it, the name is lost for good; otherwise no other instance was started, and the holder
//! continues.

use rdkafka::Offset as KafkaOffset;
use rdkafka::consumer::{CommitMode, Consumer};
use uuid::Uuid;

use super::client::context::PlainContext;
use super::client::{PlainConsumer, open, settings};
use super::read::query::QUERY_TIMEOUT;
use super::shared::Shared;
use crate::{Error, TopicPartition};

pub(super) struct Claim {
    /// Group that has only this claim.
    group: String,
    /// Any partition that exists would do: it is not read.
    at: TopicPartition,
    mark: String,
    is_taken: bool,
}

impl Claim {
    pub(super) fn new(name: &str, at: TopicPartition) -> Self {
        let mark = Uuid::now_v7().simple().to_string();
        Self { group: format!("{name}.claim"), at, mark, is_taken: false }
    }

    /// Takes the name the first time, and checks later that it is still this holder's. A claim that
    /// expired, because it was not renewed for days, is renewed.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another holder took it; [`Error::Transient`] if the group's broker cannot be
    /// reached.
    pub(super) fn hold(&mut self, shared: &Shared) -> Result<(), Error> {
        let settings = settings::claim(&shared.config, &self.group);
        let client: PlainConsumer = open(&settings, PlainContext::default())?;
        let transient = |error| Error::Transient(client.context().last.explain(error));
        let list = shared.names.list([(self.at, KafkaOffset::Offset(0))])?;
        if self.is_taken {
            let found = client.committed_offsets(list.clone(), QUERY_TIMEOUT).map_err(transient)?;
            for element in found.elements() {
                element.error().map_err(transient)?;
                if element.offset() == KafkaOffset::Invalid {
                    continue;
                }
                return if element.metadata() == self.mark {
                    Ok(())
                } else {
                    Err(Error::Fenced(format!("another instance took {}", self.group).into()))
                };
            }
        }
        for mut element in list.elements() {
            element.set_metadata(&self.mark);
        }
        client.commit(&list, CommitMode::Sync).map_err(transient)?;
        self.is_taken = true;
        Ok(())
    }
}
