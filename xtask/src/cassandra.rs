//! Apache Cassandra: a CQL server of one node or of several, in the place of ScyllaDB.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::port::free_port;
use crate::server::{Server, class_path};

/// Packages of the JDK that Cassandra opens by reflection.
const OPENS: &str = "java.base/java.io java.base/java.lang java.base/java.lang.module \
     java.base/java.lang.reflect java.base/java.math java.base/java.net java.base/java.nio \
     java.base/java.util java.base/java.util.concurrent java.base/java.util.concurrent.atomic \
     java.base/java.nio.charset";
/// Packages of the JDK that Cassandra also uses directly.
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

/// Setting of nodes that replicate each write, or that may lose the last ones: the commit log is synced each second,
/// after acknowledgements.
const SYNC_PERIODIC: &str = "commitlog_sync: periodic\ncommitlog_sync_period: 1000ms\n";
/// Time-outs of a single node: it is slow on a busy machine, and no other replica can answer.
const TIMEOUTS: &str = "write_request_timeout: 10000ms\nread_request_timeout: 10000ms\n\
    range_request_timeout: 20000ms\n";
/// Setting of a durable node: an acknowledgement waits for the disk.
const SYNC_EACH: &str = "commitlog_sync: batch\n";

/// Heap of a single node.
const HEAP: &str = "-Xms512m -Xmx1g";
/// Heap of each node of a cluster: three of them need about the memory of a single node.
const HEAP_SMALL: &str = "-Xms256m -Xmx384m -XX:+UseSerialGC";

/// Starts a node with the jars in `lib` and its data in `dir`. It is fast, and loses the last writes
/// when it is killed: its commit log is replayed only up to the last sync mark, and it writes
/// one every 100 ms.
///
/// # Errors
/// If Java or the jars are missing, or it does not listen in time; with what it printed.
pub fn start(lib: &Path, dir: &Path) -> Result<Server> {
    Node::alone(SYNC_PERIODIC)?.start(lib, dir)
}

/// As [`start`], but acknowledged writes survive [`Server::kill`].
///
/// # Errors
/// As [`start`].
pub fn start_durable(lib: &Path, dir: &Path) -> Result<Server> {
    Node::alone(SYNC_EACH)?.start(lib, dir)
}

/// Starts nodes of one cluster, the first before the others, with small heaps and their data below `dir`. They listen
/// on one port of 127.0.0.1, 127.0.0.2 and so on, which Linux has by default. They may discover each other a moment
/// after all listen.
///
/// # Errors
/// As [`start`].
pub fn start_cluster(lib: &Path, dir: &Path, nodes: u8) -> Result<Vec<Server>> {
    let (port, storage) = (free_port()?, free_port()?);
    let hosts: Vec<_> = (1..=nodes).map(|number| Ipv4Addr::new(127, 0, 0, number)).collect();
    let seeds = format!("127.0.0.1:{storage}");
    let start = |host: Ipv4Addr| {
        let (sync, heap, seeds) = (SYNC_PERIODIC, HEAP_SMALL, seeds.clone());
        let node = Node { host, port, storage, seeds, tokens: 4, sync, timeouts: "", heap };
        node.start(lib, &dir.join(format!("node-{host}")))
    };
    let (first, others) = hosts.split_first().context("no nodes")?;
    // The other nodes copy the schema of the first. If each created one, they might never agree.
    let mut servers = vec![start(*first)?];
    std::thread::scope(|threads| {
        let starting: Vec<_> = others.iter().map(|host| threads.spawn(|| start(*host))).collect();
        for node in starting {
            servers.push(node.join().map_err(|_| anyhow!("the start of a node panicked"))??);
        }
        Ok(servers)
    })
}

#[derive(Debug)]
struct Node {
    host: Ipv4Addr,
    /// Port for clients.
    port: u16,
    /// Port for other nodes.
    storage: u16,
    seeds: String,
    tokens: u8,
    sync: &'static str,
    timeouts: &'static str,
    heap: &'static str,
}

impl Node {
    fn alone(sync: &'static str) -> Result<Self> {
        let (host, port, storage) = (Ipv4Addr::LOCALHOST, free_port()?, free_port()?);
        let seeds = format!("{host}:{storage}");
        Ok(Self { host, port, storage, seeds, tokens: 1, sync, timeouts: TIMEOUTS, heap: HEAP })
    }

    fn start(self, lib: &Path, dir: &Path) -> Result<Server> {
        let jars = class_path(lib)?;
        let (conf, data) = (dir.join("conf"), dir.join("data").display().to_string());
        std::fs::create_dir_all(&conf)?;
        std::fs::write(conf.join("cassandra.yaml"), self.yaml(&data))?;
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
                       -Dcassandra.migration_delay_ms=500 -Dcassandra.schema_pull_interval_ms=1000 \
                       -Djdk.attach.allowAttachSelf=true";
        arguments.extend(options.split(' ').chain(self.heap.split(' ')).map(str::to_owned));
        let opened = OPENS.split(' ').chain(EXPORTS.split(' '));
        arguments.extend(opened.map(|package| format!("--add-opens={package}=ALL-UNNAMED")));
        let exported = EXPORTS.split(' ');
        arguments.extend(exported.map(|package| format!("--add-exports={package}=ALL-UNNAMED")));
        arguments.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
        Server::start(arguments, dir, (self.host, self.port).into())
    }

    fn yaml(&self, data: &str) -> String {
        let Self { host, port, storage, seeds, tokens, sync, timeouts, .. } = self;
        format!(
            "cluster_name: tidemark\nnum_tokens: {tokens}\nauto_bootstrap: false\n\
             partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             data_file_directories: [{data}/rows]\ncommitlog_directory: {data}/commitlog\n\
             hints_directory: {data}/hints\nsaved_caches_directory: {data}/caches\n\
             cdc_raw_directory: {data}/cdc\n\
             endpoint_snitch: SimpleSnitch\nlisten_address: {host}\nrpc_address: {host}\n\
             native_transport_port: {port}\nstorage_port: {storage}\n\
             seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
             parameters:\n      - seeds: \"{seeds}\"\n\
             {sync}{timeouts}hints_flush_period: 1000ms\nauto_snapshot: false\nconcurrent_reads: 8\nconcurrent_writes: 8\n",
        )
    }
}
