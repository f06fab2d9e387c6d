//! A server as a child process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guard::Guard;

/// Longer than any of the servers takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a port is tried.
const LOOK: Duration = Duration::from_millis(50);
/// How much of its output is told when a server ends by itself.
const TOLD_BYTES: usize = 4000;

/// A running server, killed when this value is dropped or this process ends.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    output: PathBuf,
    /// Dropped when the child was waited for.
    _guard: Guard,
}

impl Server {
    /// Starts it with its output in `dir/name.out`, and waits until `port` takes connections.
    pub(crate) fn start(name: &str, mut command: Command, dir: &Path, port: u16) -> Result<Self> {
        let output = dir.join(format!("{name}.out"));
        let file = File::options().create(true).append(true).open(&output)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let guard = Guard::of(child.id())?;
        let mut server = Self { child, output, _guard: guard };
        let started = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        while TcpStream::connect_timeout(&address, LOOK).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} ended with {status}:\n{}", server.told());
            }
            if started.elapsed() > PATIENCE {
                bail!("{name} did not listen within {PATIENCE:?}:\n{}", server.told());
            }
            std::thread::park_timeout(LOOK);
        }
        Ok(server)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of what it printed.
    fn told(&self) -> String {
        let text = std::fs::read_to_string(&self.output).unwrap_or_default();
        let start = text.len().saturating_sub(TOLD_BYTES);
        let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(start);
        text.get(start..).unwrap_or_default().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Every jar of a folder, as Java's class path has it.
pub(crate) fn class_path(lib: &Path) -> String {
    lib.join("*").display().to_string()
}
