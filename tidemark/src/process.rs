//! Puts the stages together, on the back ends that the configuration names.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use runtime::log::Log;
use runtime::log::embedded::EmbeddedLog;
use runtime::task::{Phase, Tasks};
use runtime::{Clock, SystemClock, telemetry};
use store::Store;
use store::embedded::EmbeddedStore;
use tokio::net::TcpListener;

use crate::settings::Settings;

/// Names this process in consumer groups.
const MEMBER: &str = "tidemark-1";

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

/// A process whose stages are started.
pub(crate) struct Node {
    pub(crate) tasks: Tasks,
    pub(crate) log: Arc<dyn Log>,
    /// Where the api listens, if it runs here.
    pub(crate) address: Option<SocketAddr>,
}

/// Runs stages until the process is told to stop.
pub(crate) async fn run(settings: Settings, stages: &[Stage]) -> anyhow::Result<()> {
    telemetry::init_log(&settings.telemetry)?;
    let metrics = telemetry::init_metrics()?;
    ingest::metrics::describe();
    webhooks::metrics::describe();
    let listen = settings.telemetry.listen;
    let mut node = start(settings, stages).await?;
    if let Some(listen) = listen {
        node.tasks.future(Phase::Support, "telemetry", move |stop| async move {
            telemetry::serve(listen, metrics, async move { stop.cancelled().await })
                .await
                .map_err(Into::into)
        });
    }
    match node.address {
        Some(address) => tracing::info!(version = env!("CARGO_PKG_VERSION"), "ready on {address}"),
        None => tracing::info!(version = env!("CARGO_PKG_VERSION"), "ready"),
    }
    node.tasks.run(stop_signal()).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Completes on SIGINT or SIGTERM.
pub(crate) async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::error!(%error, "cannot watch for SIGTERM; stop with SIGINT");
            drop(tokio::signal::ctrl_c().await);
            return;
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Opens the back ends and starts the named stages; none means all.
pub(crate) async fn start(settings: Settings, stages: &[Stage]) -> anyhow::Result<Node> {
    let wanted = |stage| stages.is_empty() || stages.contains(&stage);
    let mut tasks = Tasks::new(settings.process.stop_deadline);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let dir = &settings.process.data_dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let log: Arc<dyn Log> =
        Arc::new(EmbeddedLog::open(dir, settings.process.layout, clock.clone())?);
    let tables: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir)?);

    let mut address = None;
    if wanted(Stage::Api) {
        let listen = settings.process.listen.context("server.listen is missing")?;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen on {listen}"))?;
        address = Some(listener.local_addr()?);
        start_api(&mut tasks, &settings, &log, &tables, &clock, listener)?;
    }
    if wanted(Stage::Processor) {
        let (log, clock) = (log.clone(), clock.clone());
        let (log2, clock2) = (log.clone(), clock.clone());
        tasks.thread(Phase::Process, "processor.orders", move |stop| {
            processor::run_orders(&log, &clock, MEMBER, &stop).map_err(Into::into)
        })?;
        tasks.thread(Phase::Process, "processor.matching", move |stop| {
            processor::run_matching(&log2, &clock2, MEMBER, &stop).map_err(Into::into)
        })?;
    }
    if wanted(Stage::Projector) {
        let (log, tables, handle) = (log.clone(), tables, tokio::runtime::Handle::current());
        tasks.thread(Phase::Deliver, "projector", move |stop| {
            store::projector::run(log, tables, handle, MEMBER.to_owned(), stop).map_err(Into::into)
        })?;
    }
    if wanted(Stage::Webhooks) {
        start_webhooks(&mut tasks, settings.webhooks, &log, &clock)?;
    }
    if wanted(Stage::Ingest) {
        for chain in settings.ingest.chains {
            let (log, clock) = (log.clone(), clock.clone());
            let name = format!("ingest.{}", chain.blockchain);
            tasks.future(Phase::Intake, name, move |stop| async move {
                ingest::run(chain, log, clock, stop).await.map_err(Into::into)
            });
        }
    }
    Ok(Node { tasks, log, address })
}

fn start_api(
    tasks: &mut Tasks,
    settings: &Settings,
    log: &Arc<dyn Log>,
    tables: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    listener: TcpListener,
) -> anyhow::Result<()> {
    let config = api::Config {
        listen: listener.local_addr()?,
        merchant: settings.shop.merchant.clone(),
        admin_secret: settings.shop.admin_secret.clone(),
        wallets: settings.shop.wallets.clone(),
        orders: settings.shop.orders,
        matching: settings.shop.matching,
        tokens: settings.ingest.tokens(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let feed = api::Feed::new();
    let (tailed, follower) = (log.clone(), feed.clone());
    tasks.thread(Phase::Support, "api.feed", move |stop| {
        api::feed::run(tailed, follower, stop).map_err(Into::into)
    })?;
    let (log, tables, clock) = (log.clone(), tables.clone(), clock.clone());
    tasks.future(Phase::Intake, "api", move |stop| async move {
        api::serve(config, log, tables, clock, feed, listener, stop).await.map_err(Into::into)
    });
    Ok(())
}

fn start_webhooks(
    tasks: &mut Tasks,
    config: webhooks::Config,
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<()> {
    let (log, clock, dispatch) = (log.clone(), clock.clone(), config.clone());
    let (log2, handle) = (log.clone(), tokio::runtime::Handle::current());
    tasks.thread(Phase::Deliver, "webhooks.dispatcher", move |stop| {
        webhooks::run_dispatcher(&*log, &dispatch, &stop).map_err(Into::into)
    })?;
    tasks.thread(Phase::Deliver, "webhooks.deliverer", move |stop| {
        webhooks::run_deliverer(&*log2, &config, clock, handle, &stop).map_err(Into::into)
    })?;
    Ok(())
}
