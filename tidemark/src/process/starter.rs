//! Starts the stages of a process as its tasks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use log::{Log, StageContext, WatchedLog};
use runtime::config::Connections;
use runtime::metrics::register;
use runtime::readiness::Part;
use runtime::task::{BoxError, Phase, Tasks};
use runtime::{Clock, Readiness};
use store::{Store, WatchedStore};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::listeners::{Listeners, Purpose};
use crate::settings::Settings;

/// Interval of the checks that all tables are there.
const TABLES_INTERVAL: Duration = Duration::from_secs(10);

/// Back ends, sockets and settings of a process, on which its stages start.
pub(super) struct Starter<'a> {
    pub(super) settings: &'a Settings,
    /// Maximum number of open files of the process; `None` is unlimited.
    pub(super) open_files: Option<u64>,
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) listeners: &'a Listeners,
    pub(super) readiness: &'a Readiness,
    pub(super) tasks: &'a mut Tasks,
    /// The demo's test buyer.
    pub(super) buyer: Option<Arc<dyn api::TestBuyer>>,
}

impl Starter<'_> {
    /// The names of this process's workers in the groups of a stage.
    fn members(&self) -> impl Iterator<Item = String> + use<> {
        let name = self.settings.process.name.clone();
        (0..self.settings.process.workers).map(move |number| format!("{name}.{number}"))
    }

    /// Starts a thread of a stage. The process is not ready until the thread reads its log.
    fn thread<E: Into<BoxError>>(
        &mut self,
        phase: Phase,
        stage: &str,
        member: &str,
        run: impl FnOnce(&StageContext) -> Result<(), E> + Send + 'static,
    ) -> std::io::Result<()> {
        let name = format!("{stage} {member}");
        let log = Arc::new(WatchedLog::over(self.log.clone(), self.readiness.clone(), &name));
        let (clock, member, handle) = (self.clock.clone(), member.to_owned(), Handle::current());
        self.tasks.thread(phase, name, move |stop| {
            run(&StageContext { log, clock, member, handle, stop }).map_err(Into::into)
        })
    }

    pub(super) fn ingest(&mut self) -> std::io::Result<()> {
        // One member is enough: it follows its chains concurrently.
        let Some(member) = self.members().next() else { return Ok(()) };
        let (config, readiness) = (self.settings.ingest.clone(), self.readiness.clone());
        self.thread(Phase::Intake, "ingest", &member, |context| {
            ingest::run(config, readiness, context)
        })
    }

    pub(super) fn processor(&mut self) -> std::io::Result<()> {
        for member in self.members() {
            let orders = processor::run_orders;
            self.thread(Phase::Process, "processor.orders", &member, orders)?;
            let matching = processor::run_matching;
            self.thread(Phase::Process, "processor.matching", &member, matching)?;
        }
        Ok(())
    }

    pub(super) fn projector(&mut self, tables: &Arc<dyn Store>) -> std::io::Result<()> {
        register(projector::metrics::METRICS, &[]);
        for member in self.members() {
            let part = self.readiness.part(format!("tables of projector {member}"), "opening them");
            let tables = Arc::new(WatchedStore::over(tables.clone(), part));
            let (retention, level) = (self.settings.retention.clone(), self.settings.life_level());
            self.thread(Phase::Deliver, "projector", &member, move |context| {
                projector::run(tables, retention, level, context)
            })?;
        }
        Ok(())
    }

    pub(super) fn webhooks(&mut self) -> anyhow::Result<()> {
        let config = &self.settings.webhooks;
        config.check_files();
        register(webhooks::metrics::METRICS, &[]);
        let engine = webhooks::Engine::new(config, self.clock.clone(), Handle::current())?;
        // Alerts have one partition: one member of each process is enough.
        if let Some(member) = self.members().next() {
            let (alerts, config) = (self.settings.alerts.clone(), config.clone());
            self.thread(Phase::Deliver, "webhooks.alerts", &member, move |context| {
                webhooks::run_herald(&alerts, &config, context)
            })?;
        }
        for member in self.members() {
            let (config, engine) = (config.clone(), engine.clone());
            self.thread(Phase::Deliver, "webhooks.dispatcher", &member, move |context| {
                webhooks::run_dispatcher(&config, context)
            })?;
            self.thread(Phase::Deliver, "webhooks.deliverer", &member, move |context| {
                webhooks::run_deliverer(&engine, context)
            })?;
        }
        Ok(())
    }

    /// Connection limits of the api, within the limit on open files.
    fn connections(&self) -> Connections {
        let wanted = self.settings.process.connections;
        let connections = wanted.within(self.open_files);
        if connections.max < wanted.max {
            tracing::warn!(
                wanted = wanted.max,
                accepted = connections.max,
                "this process may have too few files open for server.max_connections: raise its limit (LimitNOFILE, ulimit -n)"
            );
        }
        connections
    }

    /// Starts the api, and returns the address on which it listens.
    pub(super) fn api(&mut self, tables: Arc<dyn Store>) -> anyhow::Result<SocketAddr> {
        let listen = self.settings.process.listen.context("server.listen is missing")?;
        let public = self.listeners.listen(Purpose::Api, listen)?;
        let operators = self.settings.process.admin_listen;
        let operators = operators.map(|listen| self.listeners.listen(Purpose::Operators, listen));
        let operators = operators.transpose()?;
        let address = public.local_addr()?;
        let trusted_proxies = self.settings.process.trusted_proxies.clone();
        let sockets = api::Sockets { public, operators, trusted_proxies };
        let (feed, name) = (api::Feed::default(), self.settings.process.name.clone());
        let followed = feed.clone();
        self.thread(Phase::Support, "api.feed", &name, move |context| {
            api::feed::run(&followed, context)
        })?;
        let (watched, part) = (tables.clone(), self.readiness.part("tables of the api", "asking"));
        self.tasks.future(Phase::Support, "tables of the api", move |stop| async move {
            watch_tables(&*watched, &part, &stop).await;
            Ok(())
        });
        let server = api::Server {
            config: self.settings.shop.clone(),
            connections: self.connections(),
            public_url: self.settings.process.public_url.clone(),
            customer_requests: self.settings.process.customer_requests,
            contracts: self.settings.ingest.contracts(),
            chains: self.settings.chain_terms(),
            buyer: self.buyer.take(),
            topic_prefix: self.settings.log.topic_prefix().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            log: self.log.clone(),
            store: tables,
            clock: self.clock.clone(),
            readiness: self.readiness.clone(),
            feed,
        };
        self.tasks.future(Phase::Intake, "api", move |stop| async move {
            server.run(sockets, stop).await.map_err(Into::into)
        });
        Ok(address)
    }
}

/// Checks until `stop` that all tables are there: without them an api is not ready. Tables that do not answer leave the
/// readiness unchanged: the api's responses report the outage.
async fn watch_tables(tables: &dyn Store, part: &Part, stop: &CancellationToken) {
    loop {
        match tables.check().await {
            Ok(()) => part.ready(),
            Err(error @ store::Error::TablesMissing { .. }) => part.waiting(error.to_string()),
            Err(error) => tracing::debug!(%error, "it is not known whether all tables are there"),
        }
        tokio::select! {
            () = tokio::time::sleep(TABLES_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
    }
}
