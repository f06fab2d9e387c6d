//! Apache Kafka: one node that is broker and controller.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::port::free_port;
use crate::process::{Server, class_path};

/// A running broker with its data in a folder of the caller's.
#[derive(Debug)]
pub struct Kafka {
    lib: PathBuf,
    dir: PathBuf,
    port: u16,
    server: Option<Server>,
}

/// What every broker of ours has. Cleaning and retention run at once, sessions may be short, and lost
/// transactions are aborted soon, so that tests need not wait for minutes.
const PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
auto.create.topics.enable=false
log.initial.task.delay.ms=0
log.retention.check.interval.ms=200
log.segment.delete.delay.ms=100
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=33554432
message.max.bytes=16777216
replica.fetch.max.bytes=16777216
num.io.threads=4
num.network.threads=3
";

impl Kafka {
    /// Starts a broker with the jars in `lib` and its data in `dir`. `more` are further lines of its
    /// properties.
    ///
    /// # Errors
    /// If Java or the jars are missing, or it does not listen in time; with what it printed.
    pub fn start(lib: &Path, dir: &Path, more: &str) -> Result<Self> {
        Self::start_formatted(lib, dir, more, &[])
    }

    /// As [`Kafka::start`], with further arguments for the formatting of its storage. `{port}` and
    /// `{controller}` in `more` stand for the ports that were chosen, for other listeners beside them.
    ///
    /// # Errors
    /// As [`Kafka::start`].
    pub fn start_formatted(lib: &Path, dir: &Path, more: &str, format: &[&str]) -> Result<Self> {
        ensure!(lib.is_dir(), "no jars at {}: run `cargo xtask services`", lib.display());
        let (port, controller) = (free_port()?, free_port()?);
        let data = dir.join("data");
        let more = more
            .replace("{port}", &port.to_string())
            .replace("{controller}", &controller.to_string());
        let text = format!(
            "{PROPERTIES}controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
             SASL_SSL:SASL_SSL,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT\n\
             log.dirs={}\n{more}",
            data.display()
        );
        std::fs::create_dir_all(dir)?;
        let properties = dir.join("server.properties");
        std::fs::write(&properties, text)?;
        let output = java(lib)
            .args(["-Xmx256m", "kafka.tools.StorageTool", "format"])
            .args(["-t", "dGlkZW1hcmstdGVzdHMtMQ", "-c"])
            .arg(&properties)
            .args(format)
            .output()
            .context("cannot run java")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the storage cannot be formatted: {told}");
        let mut kafka = Self { lib: lib.to_owned(), dir: dir.to_owned(), port, server: None };
        kafka.restart()?;
        Ok(kafka)
    }

    /// `host:port` for clients.
    #[must_use]
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// SIGKILL. Its data stay, and [`Kafka::restart`] goes on with them.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it again, on the same port and data, and waits until it listens.
    ///
    /// # Errors
    /// As [`Kafka::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut command = java(&self.lib);
        command.args(["-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "kafka.Kafka"]);
        command.arg(self.dir.join("server.properties"));
        self.server = Some(Server::start("kafka", command, &self.dir, self.port)?);
        Ok(())
    }
}

/// Java with the jars of a folder.
fn java(lib: &Path) -> Command {
    let mut command = Command::new("java");
    command.arg("-cp").arg(class_path(lib));
    command
}
