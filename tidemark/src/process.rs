//! A process: some stages on the back ends that the configuration names, from start to stop.

mod exporter;
mod listeners;
mod signals;
mod starter;

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use log::Log;
use runtime::process::Process;
use runtime::task::{self, Phase, Tasks};
use runtime::telemetry::PrometheusHandle;
use runtime::{Clock, Readiness, SystemClock, telemetry, traces};

use exporter::Exporter;
pub(crate) use listeners::Listeners;
use listeners::Purpose;
use signals::{Asked, Signals};
pub(crate) use signals::{stop_signal, until_stopped};
use starter::Starter;

use crate::back_end::{announce, exposure, fit, open_log, open_tables};
use crate::command::code;
use crate::metrics::describe_all;
use crate::settings::Settings;
use crate::stage::Stage;

/// The log and the address of stages that have started.
pub(crate) struct Started {
    pub(crate) log: Arc<dyn Log>,
    /// Address on which the api listens, if it runs here.
    pub(crate) address: Option<SocketAddr>,
}

/// A process that runs stages until SIGINT or SIGTERM, and again with another configuration after SIGHUP.
struct Service<'a> {
    /// The configuration file, which is read again on SIGHUP.
    file: Option<&'a Path>,
    stages: &'a [Stage],
    listeners: Listeners,
    signals: Signals,
    process: Process,
    /// Handle of the only metrics recorder of the process; a reload keeps it.
    metrics: Option<PrometheusHandle>,
    /// `true` if the stages have started with the present configuration.
    is_started: bool,
}

/// Runs stages until SIGINT or SIGTERM. Metrics and readiness are served before any back end is opened; while one is
/// unavailable, the process waits. SIGHUP makes the process read the configuration file again: if it is valid, the
/// stages stop in order and start with it, or with the earlier one if they fail, while connections wait; if not,
/// nothing changes. An error that ends the process is logged.
///
/// # Errors
/// A permanent failure, or a failed part of the process.
pub(crate) async fn run(
    settings: Settings,
    file: Option<&Path>,
    stages: &[Stage],
) -> anyhow::Result<()> {
    telemetry::init_log(&settings.telemetry)?;
    let ended = run_logged(settings, file, stages).await;
    if let Err(error) = &ended {
        let code = code::of(error).map(tracing::field::display);
        tracing::error!(
            cause = format!("{error:#}"),
            code,
            "this process ends: it cannot continue"
        );
    }
    ended
}

async fn run_logged(
    mut settings: Settings,
    file: Option<&Path>,
    stages: &[Stage],
) -> anyhow::Result<()> {
    // Signals are watched before anything is opened: an unwatched one would end the process at once.
    let (listeners, signals) = (Listeners::default(), Signals::watch());
    let process = Process::starting(env!("CARGO_PKG_VERSION"), settings.data_folder());
    let mut service =
        Service { file, stages, listeners, signals, process, metrics: None, is_started: false };
    let mut earlier: Option<Settings> = None;
    loop {
        match service.run(&settings).await {
            Ok(None) => break,
            Ok(Some(next)) => earlier = Some(std::mem::replace(&mut settings, next)),
            Err(error) => {
                let before = earlier.take().filter(|_| !service.is_started);
                let Some(before) = before else { return Err(error) };
                tracing::error!(
                    cause = format!("{error:#}"),
                    "SIGHUP: the stages do not start with the configuration, and start again with the one before"
                );
                settings = before;
            }
        }
    }
    tracing::info!("stopped");
    Ok(())
}

impl Service<'_> {
    /// Runs the stages with one configuration. Returns the next one, or `None` after a stop.
    async fn run(&mut self, settings: &Settings) -> anyhow::Result<Option<Settings>> {
        announce::configuration(&settings.process);
        exposure::warn(settings);
        self.listeners.keep(settings, self.stages);
        let mut tasks = Tasks::new(settings.process.stop_deadline);
        let readiness = Readiness::default();
        let starting = readiness.part("stages", "starting");
        self.start_telemetry(&mut tasks, settings, &readiness)?;
        start_traces(&mut tasks, settings)?;
        self.is_started = false;
        let Self { file, stages, listeners, signals, .. } = self;
        let early = {
            let opening = start(&mut tasks, settings, stages, listeners, &readiness, None);
            let mut opening = pin!(opening);
            loop {
                tokio::select! {
                    // Signals first: opening may take long and block this thread.
                    biased;
                    asked = signals.next() => match asked {
                        Asked::Stop => break Err(None),
                        Asked::Reload => match Settings::load(*file, stages) {
                            Ok(next) => break Err(Some(next)),
                            Err(problems) => refuse(&problems.into()),
                        },
                    },
                    started = &mut opening => break Ok(started?),
                }
            }
        };
        let started = match early {
            Ok(started) => started,
            Err(next) => {
                tasks.run(std::future::ready(())).await?;
                tracing::info!("stopped before it was ready");
                return Ok(next);
            }
        };
        let version = env!("CARGO_PKG_VERSION");
        match started.address {
            Some(address) => tracing::info!(version, "started; the api listens on {address}"),
            None => tracing::info!(version, "started"),
        }
        drop(starting);
        self.is_started = true;
        let mut next = None;
        let log = started.log;
        let ended = tasks.run(async { next = self.next_settings(settings, log).await }).await;
        match ended {
            // The stages start with the next configuration anyway.
            Err(error @ task::Error::Stuck(_)) if next.is_some() => {
                tracing::error!(cause = %error, "a part of the process did not stop in time");
            }
            ended => ended?,
        }
        Ok(next)
    }

    /// Waits for the settings to continue with after SIGHUP; `None` after SIGINT or SIGTERM.
    async fn next_settings(&mut self, present: &Settings, log: Arc<dyn Log>) -> Option<Settings> {
        while self.signals.next().await == Asked::Reload {
            match self.read_again(log.clone()).await {
                Ok(next) => {
                    tracing::info!(
                        "SIGHUP: the stages start again with the configuration as it is now"
                    );
                    return Some(next);
                }
                Err(error) => {
                    self.listeners.keep(present, self.stages);
                    refuse(&error);
                }
            }
        }
        None
    }

    /// Reads the configuration, and checks it as the stages will, before the present ones are stopped.
    async fn read_again(&self, log: Arc<dyn Log>) -> anyhow::Result<Settings> {
        let next = Settings::load(self.file, self.stages)?;
        if self.stages.contains(&Stage::Ingest) {
            let chains = next.ingest.chains.clone();
            let check = move || ingest::check_watched(&*log, &chains);
            tokio::task::spawn_blocking(check).await??;
        }
        self.listeners.prepare(&next, self.stages)?;
        Ok(next)
    }

    fn start_telemetry(
        &mut self,
        tasks: &mut Tasks,
        settings: &Settings,
        readiness: &Readiness,
    ) -> anyhow::Result<()> {
        let Some(listen) = settings.telemetry.listen else {
            if let Some(metrics) = self.metrics.clone() {
                tasks.future(Phase::Support, "metrics", move |stop| async move {
                    stop.run_until_cancelled(telemetry::upkeep(metrics)).await;
                    Ok(())
                });
            }
            return Ok(());
        };
        let metrics = match &self.metrics {
            Some(metrics) => metrics.clone(),
            None => {
                let metrics = telemetry::init_metrics()?;
                describe_all();
                self.metrics.insert(metrics).clone()
            }
        };
        let listener = self.listeners.listen(Purpose::Telemetry, listen)?;
        let (readiness, process) = (readiness.clone(), self.process.clone());
        tasks.future(Phase::Support, "telemetry", move |stop| async move {
            let stopped = stop.cancelled_owned();
            let served = telemetry::serve(listener, metrics, process, readiness, stopped);
            served.await.map_err(Into::into)
        });
        Ok(())
    }
}

/// Exports spans, where there is a collector.
fn start_traces(tasks: &mut Tasks, settings: &Settings) -> anyhow::Result<()> {
    let Some(otlp) = &settings.telemetry.otlp else { return Ok(()) };
    let exporter = Exporter::new(otlp, &settings.process.name)?;
    let spans = traces::start();
    tasks.future(Phase::Support, "traces", move |stop| async move {
        exporter.run(spans, stop).await;
        Ok(())
    });
    Ok(())
}

fn refuse(error: &anyhow::Error) {
    tracing::error!(
        cause = format!("{error:#}"),
        "SIGHUP: the configuration is not valid, and nothing changes"
    );
}

/// Opens the back ends that the stages need, as soon as they are available, and starts the stages. Only the demo passes
/// a `buyer`, for its checkout page.
pub(crate) async fn start(
    tasks: &mut Tasks,
    settings: &Settings,
    stages: &[Stage],
    listeners: &Listeners,
    readiness: &Readiness,
    buyer: Option<Arc<dyn api::TestBuyer>>,
) -> anyhow::Result<Started> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let open_files = runtime::open_files::raise_limit();
    let is_new = announce::is_new(settings);
    let log = open_log(settings, &clock, readiness).await?;
    let tables = if stages.iter().any(|stage| stage.needs_tables()) {
        let tables = open_tables(settings, readiness).await?;
        fit::check(&log, &*tables).await?;
        Some(tables)
    } else {
        None
    };
    announce::back_ends(settings, is_new);
    let mut starter = Starter {
        settings,
        open_files,
        log: log.clone(),
        clock,
        listeners,
        readiness,
        tasks,
        buyer,
    };
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
            address = Some(starter.api(tables)?);
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
