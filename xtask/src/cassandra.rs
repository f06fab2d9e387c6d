//! Apache Cassandra: a CQL server of one node, standing in for ScyllaDB.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::port::free_port;
use crate::process::{Server, class_path};

/// A running node with its data in a folder of the caller's.
#[derive(Debug)]
pub struct Cassandra {
    lib: PathBuf,
    dir: PathBuf,
    port: u16,
    server: Option<Server>,
}

/// Packages that it opens by reflection.
const OPENS: [&str; 11] = [
    "java.io",
    "java.lang",
    "java.lang.module",
    "java.lang.reflect",
    "java.math",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.nio.charset",
];
/// Packages of the JDK that it uses directly.
const EXPORTS: [&str; 13] = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.management/com.sun.management.internal",
];

const LOGGING: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"#;

/// As servers are set up when a write is on several of them: what was acknowledged may take so long
/// to be on disk.
const SYNC_PERIODIC: &str = "commitlog_sync: periodic\ncommitlog_sync_period: 1000ms\n";
/// For a node that is alone: an acknowledgement waits for the disk.
const SYNC_EACH: &str = "commitlog_sync: batch\n";

impl Cassandra {
    /// Starts a node with the jars in `lib` and its data in `dir`. It is fast, and forgets the last
    /// writes when it is killed: of its commit log, only what lies before the last mark is read
    /// again, and it makes a mark every 100 ms.
    ///
    /// # Errors
    /// If Java or the jars are missing, or it does not listen in time; with what it printed.
    pub fn start(lib: &Path, dir: &Path) -> Result<Self> {
        Self::start_with(lib, dir, SYNC_PERIODIC)
    }

    /// As [`Cassandra::start`], but what it acknowledged is there after [`Cassandra::kill`].
    ///
    /// # Errors
    /// As [`Cassandra::start`].
    pub fn start_durable(lib: &Path, dir: &Path) -> Result<Self> {
        Self::start_with(lib, dir, SYNC_EACH)
    }

    fn start_with(lib: &Path, dir: &Path, sync: &str) -> Result<Self> {
        ensure!(lib.is_dir(), "no jars at {}: run `cargo xtask services`", lib.display());
        let (port, storage) = (free_port()?, free_port()?);
        let conf = dir.join("conf");
        std::fs::create_dir_all(&conf)?;
        let at = |name: &str| dir.join("data").join(name).display().to_string();
        let yaml = format!(
            "cluster_name: tidemark\nnum_tokens: 1\n\
             partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             data_file_directories: [{}]\ncommitlog_directory: {}\nhints_directory: {}\n\
             saved_caches_directory: {}\ncdc_raw_directory: {}\n\
             endpoint_snitch: SimpleSnitch\nlisten_address: 127.0.0.1\nrpc_address: 127.0.0.1\n\
             native_transport_port: {port}\nstorage_port: {storage}\n\
             seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
             parameters:\n      - seeds: \"127.0.0.1:{storage}\"\n\
             {sync}auto_snapshot: false\nconcurrent_reads: 8\nconcurrent_writes: 8\n",
            at("rows"),
            at("commitlog"),
            at("hints"),
            at("caches"),
            at("cdc"),
        );
        std::fs::write(conf.join("cassandra.yaml"), yaml)?;
        std::fs::write(conf.join("logback.xml"), LOGGING)?;
        let mut node = Self { lib: lib.to_owned(), dir: dir.to_owned(), port, server: None };
        node.restart()?;
        Ok(node)
    }

    /// `host:port` for clients.
    #[must_use]
    pub fn node(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// SIGKILL. Its data stay, and [`Cassandra::restart`] goes on with them.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// Starts it again, on the same port and data, and waits until it listens.
    ///
    /// # Errors
    /// As [`Cassandra::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let conf = self.dir.join("conf");
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(format!("{}:{}", conf.display(), class_path(&self.lib)))
            .arg(format!("-javaagent:{}", self.lib.join("jamm-0.4.0.jar").display()))
            .arg(format!("-Dcassandra.config=file://{}", conf.join("cassandra.yaml").display()))
            .arg(format!("-Dcassandra.storagedir={}", self.dir.join("data").display()))
            .arg("-Dcassandra.jmx.local.port=0")
            .args(["-Dcassandra-foreground=yes", "-Dcassandra.skip_wait_for_gossip_to_settle=0"])
            .args(["-Dcassandra.ring_delay_ms=100", "-Djdk.attach.allowAttachSelf=true"])
            .args(["-Xms512m", "-Xmx1g"]);
        for package in OPENS {
            command.arg("--add-opens").arg(format!("java.base/{package}=ALL-UNNAMED"));
        }
        for package in EXPORTS {
            command.arg("--add-opens").arg(format!("{package}=ALL-UNNAMED"));
            command.arg("--add-exports").arg(format!("{package}=ALL-UNNAMED"));
        }
        command.arg("org.apache.cassandra.service.CassandraDaemon");
        self.server = Some(Server::start("cassandra", command, &self.dir, self.port)?);
        Ok(())
    }
}
