//! The session with the nodes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::config::CqlConfig;
use openssl::ssl::{SslConnector, SslMethod};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use schemas::Secret;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;

use crate::Error;
use crate::error::Cause;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time-out of setup requests, for schema and versions; a change of the schema waits for all nodes.
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Keepalive interval and time-out of a connection. A node that hangs without closing its
/// connections is abandoned after both; until then speculative execution uses a second node.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects.
///
/// # Errors
/// [`Error::Transient`] if no node can be reached now; [`Error::Fatal`] if they refuse this
/// program, or the certificates cannot be read.
pub(super) async fn connect(config: &CqlConfig) -> Result<Session, Error> {
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::LocalQuorum)
        .request_timeout(Some(SETUP_TIMEOUT))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(config.nodes.iter().filter(|node| !node.is_empty()))
        .connection_timeout(CONNECT_TIMEOUT)
        .keepalive_interval(KEEPALIVE_INTERVAL)
        .keepalive_timeout(KEEPALIVE_TIMEOUT)
        .default_execution_profile_handle(profile.into_handle())
        .keyspaces_to_fetch([&config.keyspace]);
    if let Some(datacenter) = &config.datacenter {
        builder = builder.prefer_datacenter(datacenter.clone());
    }
    if let Some(username) = &config.username {
        let password = config.password.as_ref().map(Secret::expose).unwrap_or_default();
        let password = str::from_utf8(password)
            .map_err(|_| Error::Fatal("store.password is not UTF-8 text".into()))?;
        builder = builder.user(username, password);
    }
    if let Some(path) = &config.ca_file {
        builder = builder.tls_context(Some(trust(path)?));
    }
    Ok(builder.build().await?)
}

/// TLS that accepts only nodes whose certificates name their IP addresses and are signed by a
/// certificate of this file.
fn trust(path: &Path) -> Result<TlsContext, Error> {
    let read = || -> Result<TlsContext, Cause> {
        let pem = fs::read(path).map_err(Cause::of)?;
        let certificates = X509::stack_from_pem(&pem).map_err(Cause::of)?;
        if certificates.is_empty() {
            return Err("it has no certificate".into());
        }
        let mut trusted = X509StoreBuilder::new().map_err(Cause::of)?;
        for certificate in certificates {
            trusted.add_cert(certificate).map_err(Cause::of)?;
        }
        let mut connector = SslConnector::builder(SslMethod::tls_client()).map_err(Cause::of)?;
        connector.set_cert_store(trusted.build());
        Ok(connector.into())
    };
    let what = || format!("cannot use store.ca_file {}", path.display());
    read().map_err(|cause| Error::Fatal(cause.context(what())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = trust(file.path()).err().unwrap();
        assert!(
            matches!(&error, Error::Fatal(cause) if cause.to_string().contains("store.ca_file")),
            "{error}"
        );
        let missing = file.path().with_extension("none");
        assert!(matches!(trust(&missing), Err(Error::Fatal(_))));
    }
}
