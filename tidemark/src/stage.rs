//! The stages, and how each is started on what it needs.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use log::{Log, StageContext, WatchedLog};
use runtime::task::{BoxError, Phase, Tasks};
use runtime::{Clock, Readiness};
use store::{Store, WatchedStore};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::settings::Settings;

/// A stage that can be run by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// Chain blocks to transfers.raw.
    Ingest,
    /// Matching and orders.
    Processor,
    /// The log to the tables.
    Projector,
    /// HTTP.
    Api,
    /// Signed delivery.
    Webhooks,
}

impl Stage {
    /// Every stage.
    pub(crate) const ALL: [Self; 5] =
        [Self::Ingest, Self::Processor, Self::Projector, Self::Api, Self::Webhooks];

    /// Whether it reads or writes the tables.
    pub(crate) const fn needs_tables(self) -> bool {
        matches!(self, Self::Projector | Self::Api)
    }
}

/// What stages are started with.
pub(crate) struct Ground<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) readiness: &'a Readiness,
}

impl Ground<'_> {
    /// The names of this process's workers in the groups of a stage.
    fn members(&self) -> impl Iterator<Item = String> + use<> {
        let name = self.settings.process.name.clone();
        (0..self.settings.process.workers).map(move |number| format!("{name}.{number}"))
    }

    /// The log as one thread reads it: the process is not ready before it does.
    fn log_of(&self, thread: &str) -> Arc<dyn Log> {
        Arc::new(WatchedLog::over(self.log.clone(), self.readiness.clone(), thread))
    }

    /// Starts a thread that is a member of a group.
    fn start<E: Into<BoxError>>(
        &self,
        tasks: &mut Tasks,
        phase: Phase,
        thread: String,
        member: String,
        run: impl FnOnce(&StageContext) -> Result<(), E> + Send + 'static,
    ) -> std::io::Result<()> {
        let (log, clock, handle) = (self.log_of(&thread), self.clock.clone(), Handle::current());
        tasks.thread(phase, thread, move |stop| {
            run(&StageContext { log, clock, member, handle, stop }).map_err(Into::into)
        })
    }

    pub(crate) fn start_ingest(&self, tasks: &mut Tasks) -> anyhow::Result<()> {
        // One worker: it shares out chains, which are followed side by side anyway.
        let Some(member) = self.members().next() else { return Ok(()) };
        let config = self.settings.ingest.clone();
        self.start(tasks, Phase::Intake, "ingest".to_owned(), member, move |context| {
            ingest::run(config, context)
        })?;
        Ok(())
    }

    pub(crate) fn start_processor(&self, tasks: &mut Tasks) -> anyhow::Result<()> {
        for member in self.members() {
            let thread = format!("processor.orders {member}");
            let (log, clock, name) = (self.log_of(&thread), self.clock.clone(), member.clone());
            tasks.thread(Phase::Process, thread, move |stop| {
                processor::run_orders(&log, &clock, &name, &stop).map_err(Into::into)
            })?;
            let thread = format!("processor.matching {member}");
            let (log, clock) = (self.log_of(&thread), self.clock.clone());
            tasks.thread(Phase::Process, thread, move |stop| {
                processor::run_matching(&log, &clock, &member, &stop).map_err(Into::into)
            })?;
        }
        Ok(())
    }

    pub(crate) fn start_projector(
        &self,
        tasks: &mut Tasks,
        tables: &Arc<dyn Store>,
    ) -> anyhow::Result<()> {
        for member in self.members() {
            let thread = format!("projector {member}");
            let part = self.readiness.part(format!("tables of projector {member}"), "opening them");
            let tables = Arc::new(WatchedStore::over(tables.clone(), part));
            self.start(tasks, Phase::Deliver, thread, member, move |context| {
                projector::run(tables, context)
            })?;
        }
        Ok(())
    }

    pub(crate) fn start_webhooks(&self, tasks: &mut Tasks) -> anyhow::Result<()> {
        let config = self.settings.webhooks.clone().shared_by(self.settings.process.workers);
        for member in self.members() {
            let (dispatcher, deliverer) = (config.clone(), config.clone());
            let thread = format!("webhooks.dispatcher {member}");
            self.start(tasks, Phase::Deliver, thread, member.clone(), move |context| {
                webhooks::run_dispatcher(&dispatcher, context)
            })?;
            let thread = format!("webhooks.deliverer {member}");
            self.start(tasks, Phase::Deliver, thread, member, move |context| {
                webhooks::run_deliverer(&deliverer, context)
            })?;
        }
        Ok(())
    }

    /// Returns where it listens.
    pub(crate) async fn start_api(
        &self,
        tasks: &mut Tasks,
        tables: Arc<dyn Store>,
    ) -> anyhow::Result<SocketAddr> {
        let listen = self.settings.process.listen.context("server.listen is missing")?;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr()?;
        let feed = api::Feed::new();
        let (log, follower) = (self.log_of("api.feed"), feed.clone());
        tasks.thread(Phase::Support, "api.feed", move |stop| {
            api::feed::run(log, follower, stop).map_err(Into::into)
        })?;
        let server = api::Server {
            config: self.settings.shop.clone(),
            contracts: self.settings.ingest.contracts(),
            topic_prefix: self.settings.log.topic_prefix().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            log: self.log.clone(),
            store: tables,
            clock: self.clock.clone(),
            feed,
        };
        tasks.future(Phase::Intake, "api", move |stop| async move {
            server.run(listener, stop).await.map_err(Into::into)
        });
        Ok(address)
    }
}
