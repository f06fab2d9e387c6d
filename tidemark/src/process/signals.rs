//! Signals: an orderly stop, and a reload of the configuration.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Stop,
    Reload,
}

/// The signals of a process from now on; a signal that cannot be watched has its default effect.
pub(crate) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn watch() -> Self {
        Self { hangup: watch(SignalKind::hangup(), "SIGHUP"), ..Self::of_stop() }
    }

    fn of_stop() -> Self {
        Self {
            interrupt: watch(SignalKind::interrupt(), "SIGINT"),
            terminate: watch(SignalKind::terminate(), "SIGTERM"),
            hangup: None,
        }
    }

    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            () = received(&mut self.interrupt) => Asked::Stop,
            () = received(&mut self.terminate) => Asked::Stop,
            () = received(&mut self.hangup) => Asked::Reload,
        }
    }
}

fn watch(kind: SignalKind, name: &str) -> Option<Signal> {
    let watched = signal(kind);
    watched.inspect_err(|error| tracing::error!(%error, "cannot watch for {name}")).ok()
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

/// Runs work that blocks; SIGINT or SIGTERM cancels its token.
pub(crate) async fn until_stopped<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let mut working = tokio::task::spawn_blocking(move || work(&stopped));
    tokio::select! {
        ended = &mut working => ended?,
        () = stop_signal() => {
            stop.cancel();
            working.await?
        }
    }
}

/// Completes on SIGINT or SIGTERM. SIGHUP keeps its default effect, and ends a command whose terminal is gone.
pub(crate) async fn stop_signal() {
    Signals::of_stop().next().await;
}
