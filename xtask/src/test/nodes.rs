//! CQL servers that run already.

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// CQL servers, each as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nodes(Vec<String>);

impl Nodes {
    /// Parses a list with commas; fails if one of its items is not `host:port`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let nodes: Vec<_> = text.split(',').map(|node| node.trim().to_owned()).collect();
        for node in &nodes {
            let parts = node.rsplit_once(':');
            let is_node = parts.is_some_and(|(host, port)| {
                let is_of_host = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
                !host.is_empty()
                    && host.chars().all(is_of_host)
                    && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            ensure!(is_node, "--nodes needs host:port,host:port,…: {node:?} is none");
        }
        Ok(Self(nodes))
    }

    /// Checks that each listens, before anything is built.
    ///
    /// # Errors
    /// The error names the first that does not.
    pub(crate) fn reach(&self) -> Result<()> {
        for node in &self.0 {
            let reached = node.to_socket_addrs().and_then(|mut found| {
                let address = found.next().ok_or(std::io::ErrorKind::NotFound)?;
                TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
            });
            reached.with_context(|| format!("no CQL server listens at {node}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn nodes_are_hosts_with_ports() {
        assert_eq!(Nodes::parse("a:1, b.c:9042").unwrap().to_string(), "a:1,b.c:9042");
        for wrong in ["", "a", "a:", ":9042", "a:0", "a:70000", "a:1,", "a:1;b:2"] {
            let error = Nodes::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("host:port"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_node_that_does_not_listen_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Nodes::parse(&address).unwrap().reach().unwrap();
        let error = Nodes::parse("127.0.0.1:1").unwrap().reach().unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    }
}
