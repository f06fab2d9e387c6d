//! A Java server as a child process.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::guard::Guard;

/// Maximum time that a server takes to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A server of a test lives for seconds: Java's optimising compiler would take half of its processor
/// time. Measurements are release builds and use it.
pub(crate) const COMPILER: &str =
    if cfg!(debug_assertions) { "-XX:TieredStopAtLevel=1" } else { "-XX:+TieredCompilation" };
/// Maximum number of bytes of a server's output in the error when it does not start.
const QUOTED_BYTES: usize = 4000;

/// A server with its data in a folder of the caller's. It is killed when this value is dropped, and
/// when this process ends.
#[derive(Debug)]
pub struct Server {
    arguments: Vec<String>,
    output: PathBuf,
    address: SocketAddr,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Kept until the child has been waited for.
    _guard: Guard,
}

impl Server {
    /// Starts it with these arguments for `java` and with its output in `dir`, and waits until it listens.
    pub(crate) fn start(arguments: Vec<String>, dir: &Path, address: SocketAddr) -> Result<Self> {
        let mut server = Self { arguments, output: dir.join("output"), address, running: None };
        server.restart()?;
        Ok(server)
    }

    /// `host:port` for clients.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The file that it prints to.
    #[must_use]
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// SIGSTOP: it keeps its connections and answers nothing, until [`Server::resume`].
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().context("it does not run")?;
        let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status()?;
        ensure!(status.success(), "kill -s {name} ended with {status}");
        Ok(())
    }

    /// SIGKILL. Its data stay, and [`Server::restart`] resumes with them.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Starts it again, on the same port and data, and waits until it listens.
    ///
    /// # Errors
    /// If Java is missing, or the server ends or does not listen in time; with its output.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let file = File::options().create(true).append(true).open(&self.output)?;
        let mut command = Command::new("java");
        command.arg(COMPILER).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().context("cannot run java")?;
        let guard = Guard::of(child.id())?;
        let child = &mut self.running.insert(Running { child, _guard: guard }).child;
        let started = Instant::now();
        while TcpStream::connect_timeout(&self.address, POLL_INTERVAL).is_err() {
            let flaw = match child.try_wait()? {
                Some(status) => format!("ended with {status}"),
                None if started.elapsed() > START_TIMEOUT => "does not listen".to_owned(),
                None => {
                    std::thread::park_timeout(POLL_INTERVAL);
                    continue;
                }
            };
            let printed = std::fs::read(&self.output).unwrap_or_default();
            let end = printed.split_at(printed.len().saturating_sub(QUOTED_BYTES)).1;
            let output = self.output.display();
            bail!("the server of {output} {flaw}:\n{}", String::from_utf8_lossy(end));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // May have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Java class path of every jar of a folder.
pub(crate) fn class_path(lib: &Path) -> Result<String> {
    ensure!(lib.is_dir(), "no jars at {}: run `cargo xtask services`", lib.display());
    Ok(lib.join("*").display().to_string())
}
