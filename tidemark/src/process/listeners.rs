//! Listening sockets that outlive a reload: connections wait in them until the stages run again.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

use crate::settings::Settings;
use crate::stage::Stage;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Telemetry,
    Api,
    Operators,
}

#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Vec<(Purpose, SocketAddr, TcpListener)>>);

impl Listeners {
    /// Returns the socket of a purpose at an address, or opens it.
    pub(crate) fn listen(
        &self,
        purpose: Purpose,
        address: SocketAddr,
    ) -> anyhow::Result<tokio::net::TcpListener> {
        let what = match purpose {
            Purpose::Telemetry => "serve telemetry",
            Purpose::Api | Purpose::Operators => "listen",
        };
        let listener = self.open(purpose, address);
        let listener = listener.and_then(tokio::net::TcpListener::from_std);
        listener.with_context(|| format!("cannot {what} on {address}"))
    }

    fn open(&self, purpose: Purpose, address: SocketAddr) -> io::Result<TcpListener> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, open)) = all.iter().find(|(of, at, _)| (*of, *at) == (purpose, address))
        {
            return open.try_clone();
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        all.push((purpose, address, listener.try_clone()?));
        Ok(listener)
    }

    /// Opens the additional sockets of new settings, before the present ones are replaced.
    pub(crate) fn prepare(&self, settings: &Settings, stages: &[Stage]) -> anyhow::Result<()> {
        for (purpose, address) in wanted(settings, stages) {
            self.listen(purpose, address)?;
        }
        Ok(())
    }

    /// Closes the sockets that a process with these settings does not need.
    pub(crate) fn keep(&self, settings: &Settings, stages: &[Stage]) {
        let wanted = wanted(settings, stages);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(purpose, address, _)| wanted.contains(&(*purpose, *address)));
    }
}

fn wanted(settings: &Settings, stages: &[Stage]) -> Vec<(Purpose, SocketAddr)> {
    let process = &settings.process;
    let api = stages.contains(&Stage::Api);
    let of = |purpose, address: Option<SocketAddr>| address.map(|address| (purpose, address));
    let wanted = [
        of(Purpose::Telemetry, settings.telemetry.listen),
        of(Purpose::Api, process.listen.filter(|_| api)),
        of(Purpose::Operators, process.admin_listen.filter(|_| api)),
    ];
    wanted.into_iter().flatten().collect()
}
