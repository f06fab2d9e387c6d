//! The producer of a name: a new one replaces it once it is unusable, as after a step whose end is uncertain.

use std::sync::Arc;

use super::producer::StepProducer;
use crate::Error;
use crate::kafka::client::settings::Reports;
use crate::kafka::shared::Shared;

pub(crate) struct NamedProducer {
    shared: Arc<Shared>,
    /// The transactional id.
    name: String,
    reports: Reports,
    current: Option<StepProducer>,
}

impl NamedProducer {
    /// Opens no producer yet.
    pub(crate) const fn new(shared: Arc<Shared>, name: String, reports: Reports) -> Self {
        Self { shared, name, reports, current: None }
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut StepProducer> {
        self.current.as_mut()
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.current.as_ref().is_some_and(StepProducer::is_usable)
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.current.as_ref().is_some_and(StepProducer::is_begun)
    }

    pub(crate) fn serve_callbacks(&self) {
        if let Some(producer) = &self.current {
            producer.serve_callbacks();
        }
    }

    pub(crate) fn abort_begun(&mut self) {
        if let Some(producer) = &mut self.current {
            producer.abort_begun();
        }
    }

    pub(crate) fn close(&mut self) {
        self.current = None;
    }

    /// Opens a producer unless there is a usable one. Its start fences earlier producers of the name, and
    /// completes or aborts their transaction.
    ///
    /// # Errors
    /// [`Error::Transient`] if the broker cannot be reached, or another producer of the name was opened
    /// meanwhile: group and claim decide which of the two may continue.
    pub(crate) fn renew(&mut self) -> Result<(), Error> {
        if !self.is_usable() {
            self.close();
            self.current = Some(StepProducer::open(&self.shared, &self.name, self.reports)?);
        }
        Ok(())
    }
}
