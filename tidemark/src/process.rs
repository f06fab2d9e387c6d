//! A process: some stages on the back ends that the configuration names, from start to stop.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use anyhow::Context;
use log::Log;
use runtime::task::{Phase, Tasks};
use runtime::{Clock, Readiness, SystemClock, telemetry};
use tokio::net::TcpListener;

use crate::back_end::announce::{self, Found};
use crate::back_end::{fit, open_log, open_tables};
use crate::metrics::describe_all;
use crate::settings::Settings;
use crate::stage::Stage;
use crate::start::Starter;

/// What is known once the stages are started.
pub(crate) struct Started {
    pub(crate) log: Arc<dyn Log>,
    /// Where the api listens, if it runs here.
    pub(crate) address: Option<SocketAddr>,
}

/// Runs stages until SIGINT or SIGTERM. Metrics and readiness are served before any back end is opened;
/// while one is unavailable, the process waits.
pub(crate) async fn run(settings: Settings, stages: &[Stage]) -> anyhow::Result<()> {
    telemetry::init_log(&settings.telemetry)?;
    announce::configuration(&settings.process);
    let mut tasks = Tasks::new(settings.process.stop_deadline);
    let readiness = Readiness::default();
    let starting = readiness.part("stages", "starting");
    start_telemetry(&mut tasks, &settings, &readiness).await?;
    let mut stop = pin!(stop_signal());
    let started = tokio::select! {
        // Signals are watched before anything is opened, which may take long and hold this thread.
        biased;
        () = &mut stop => {
            tasks.run(std::future::ready(())).await?;
            tracing::info!("stopped before it was ready");
            return Ok(());
        }
        started = start(&mut tasks, &settings, stages, &readiness, None) => started?,
    };
    let version = env!("CARGO_PKG_VERSION");
    match started.address {
        Some(address) => tracing::info!(version, "started; the api listens on {address}"),
        None => tracing::info!(version, "started"),
    }
    drop(starting);
    tasks.run(stop).await?;
    tracing::info!("stopped");
    Ok(())
}

async fn start_telemetry(
    tasks: &mut Tasks,
    settings: &Settings,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    if let Some(listen) = settings.telemetry.listen {
        let metrics = telemetry::init_metrics()?;
        describe_all();
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot serve telemetry on {listen}"))?;
        let readiness = readiness.clone();
        tasks.future(Phase::Support, "telemetry", move |stop| async move {
            telemetry::serve(listener, metrics, readiness, stop.cancelled_owned())
                .await
                .map_err(Into::into)
        });
    }
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

/// Opens the back ends that the stages need, as soon as they are available, and starts the stages. The demo's api
/// has a test buyer.
///
/// # Errors
/// A failure that will not pass by waiting.
pub(crate) async fn start(
    tasks: &mut Tasks,
    settings: &Settings,
    stages: &[Stage],
    readiness: &Readiness,
    buyer: Option<Arc<dyn api::TestBuyer>>,
) -> anyhow::Result<Started> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let open_files = runtime::open_files::raise_limit();
    let found = Found::in_folder(settings);
    let log = open_log(settings, &clock, readiness).await?;
    let tables = if stages.iter().any(|stage| stage.needs_tables()) {
        let tables = open_tables(settings, readiness).await?;
        fit::check(&log, &*tables).await?;
        Some(tables)
    } else {
        None
    };
    found.announce(settings);
    let mut starter =
        Starter { settings, open_files, log: log.clone(), clock, readiness, tasks, buyer };
    let wanted = |stage| stages.contains(&stage);
    if settings.shop.wallets.is_empty() && (wanted(Stage::Api) || wanted(Stage::Ingest)) {
        tracing::warn!("no order can be paid: the configuration has no wallet, add [[wallets]]");
    }
    let mut address = None;
    if let Some(tables) = tables {
        if wanted(Stage::Projector) {
            starter.projector(&tables)?;
        }
        if wanted(Stage::Api) {
            address = Some(starter.api(tables).await?);
        }
    }
    if wanted(Stage::Processor) {
        starter.processor()?;
    }
    if wanted(Stage::Webhooks) {
        starter.webhooks()?;
    }
    if wanted(Stage::Ingest) {
        starter.ingest()?;
    }
    Ok(Started { log, address })
}
