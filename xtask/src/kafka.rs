//! Apache Kafka: one node that is broker and controller.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::port::free_port;
use crate::server::{COMPILER, Server, class_path};

/// Settings of every broker. Cleaning and retention run each second, sessions may be short, and lost transactions are
/// aborted soon, so that tests need not wait for minutes. Each run of the cleaner and of retention visits every
/// partition: more frequent ones would take a third of the broker's processor time.
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
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
auto.create.topics.enable=false
log.initial.task.delay.ms=0
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=100
log.cleaner.backoff.ms=1000
log.cleaner.dedupe.buffer.size=33554432
message.max.bytes=16777216
replica.fetch.max.bytes=16777216
num.io.threads=4
num.network.threads=3
";

/// Starts a broker with the jars in `lib` and its data in `dir`. `more` are further lines of its
/// properties.
///
/// # Errors
/// If Java or the jars are missing, or it does not listen in time; with what it printed.
pub fn start(lib: &Path, dir: &Path, more: &str) -> Result<Server> {
    start_formatted(lib, dir, more, &[])
}

/// As [`start`], with further arguments for the formatting of its storage. `{port}` and `{controller}`
/// in `more` are replaced by the ports that were chosen, for other listeners beside them.
///
/// # Errors
/// As [`start`].
pub fn start_formatted(lib: &Path, dir: &Path, more: &str, format: &[&str]) -> Result<Server> {
    let class_path = class_path(lib)?;
    let (port, controller) = (free_port()?, free_port()?);
    let more =
        more.replace("{port}", &port.to_string()).replace("{controller}", &controller.to_string());
    let text = format!(
        "{PROPERTIES}controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
         SASL_SSL:SASL_SSL,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT\n\
         log.dirs={}\n{more}",
        dir.join("data").display()
    );
    std::fs::create_dir_all(dir)?;
    let properties = dir.join("server.properties");
    std::fs::write(&properties, text)?;
    let output = Command::new("java")
        .args([COMPILER, "-cp", &class_path, "-Xmx256m", "kafka.tools.StorageTool", "format"])
        .args(["-t", "dGlkZW1hcmstdGVzdHMtMQ", "-c"])
        .arg(&properties)
        .args(format)
        .output()
        .context("cannot run java")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the storage cannot be formatted: {printed}");
    let properties = properties.display().to_string();
    let arguments =
        ["-cp", &class_path, "-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "kafka.Kafka", &properties];
    Server::start(arguments.map(str::to_owned).into(), dir, (Ipv4Addr::LOCALHOST, port).into())
}
