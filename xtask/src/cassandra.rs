//! Apache Cassandra: a CQL server of one node, in the place of ScyllaDB.

use std::path::Path;

use anyhow::Result;

use crate::port::free_port;
use crate::server::{Server, class_path};

/// Packages of the JDK that it opens by reflection.
const OPENS: &str = "java.base/java.io java.base/java.lang java.base/java.lang.module \
     java.base/java.lang.reflect java.base/java.math java.base/java.net java.base/java.nio \
     java.base/java.util java.base/java.util.concurrent java.base/java.util.concurrent.atomic \
     java.base/java.nio.charset";
/// Packages of the JDK that it also uses directly.
const EXPORTS: &str = "java.base/java.lang.ref java.base/jdk.internal.math \
     java.base/jdk.internal.misc java.base/jdk.internal.module java.base/jdk.internal.ref \
     java.base/jdk.internal.util.jar java.base/sun.nio.ch \
     java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry \
     java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql \
     jdk.management/com.sun.management.internal";

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

/// Starts a node with the jars in `lib` and its data in `dir`. It is fast, and forgets the last writes
/// when it is killed: of its commit log, only what lies before the last mark is read again, and it makes
/// a mark every 100 ms.
///
/// # Errors
/// If Java or the jars are missing, or it does not listen in time; with what it printed.
pub fn start(lib: &Path, dir: &Path) -> Result<Server> {
    start_with(lib, dir, SYNC_PERIODIC)
}

/// As [`start`], but what it acknowledged is there after [`Server::kill`].
///
/// # Errors
/// As [`start`].
pub fn start_durable(lib: &Path, dir: &Path) -> Result<Server> {
    start_with(lib, dir, SYNC_EACH)
}

fn start_with(lib: &Path, dir: &Path, sync: &str) -> Result<Server> {
    let jars = class_path(lib)?;
    let (port, storage) = (free_port()?, free_port()?);
    let (conf, data) = (dir.join("conf"), dir.join("data").display().to_string());
    std::fs::create_dir_all(&conf)?;
    let yaml = format!(
        "cluster_name: tidemark\nnum_tokens: 1\n\
         partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
         data_file_directories: [{data}/rows]\ncommitlog_directory: {data}/commitlog\n\
         hints_directory: {data}/hints\nsaved_caches_directory: {data}/caches\n\
         cdc_raw_directory: {data}/cdc\n\
         endpoint_snitch: SimpleSnitch\nlisten_address: 127.0.0.1\nrpc_address: 127.0.0.1\n\
         native_transport_port: {port}\nstorage_port: {storage}\n\
         seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
         parameters:\n      - seeds: \"127.0.0.1:{storage}\"\n\
         {sync}auto_snapshot: false\nconcurrent_reads: 8\nconcurrent_writes: 8\n",
    );
    std::fs::write(conf.join("cassandra.yaml"), yaml)?;
    std::fs::write(conf.join("logback.xml"), LOGGING)?;
    let mut arguments = vec![
        "-cp".to_owned(),
        format!("{}:{jars}", conf.display()),
        format!("-javaagent:{}", lib.join("jamm-0.4.0.jar").display()),
        format!("-Dcassandra.config=file://{}/cassandra.yaml", conf.display()),
        format!("-Dcassandra.storagedir={data}"),
    ];
    let options = "-Dcassandra.jmx.local.port=0 -Dcassandra-foreground=yes \
                   -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=100 \
                   -Djdk.attach.allowAttachSelf=true -Xms512m -Xmx1g";
    arguments.extend(options.split(' ').map(str::to_owned));
    let opened = OPENS.split(' ').chain(EXPORTS.split(' '));
    arguments.extend(opened.map(|package| format!("--add-opens={package}=ALL-UNNAMED")));
    let exported = EXPORTS.split(' ');
    arguments.extend(exported.map(|package| format!("--add-exports={package}=ALL-UNNAMED")));
    arguments.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
    Server::start(arguments, dir, port)
}
