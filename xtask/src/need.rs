//! Needs to be fetched or started before a test or a measurement.

/// A need of a test beside the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// An EVM node.
    Anvil,
    /// Jars of Kafka and Cassandra, and Java: the test starts its servers.
    Jars,
    /// A running Kafka and a running Cassandra.
    Servers,
    /// Readers and writers in Java, Python and JavaScript.
    Clients,
    /// Signatures by Python's standard library.
    Python,
    /// Chromium, with the packages that drive it and check accessibility.
    Browser,
    /// A program that makes requests from an OpenAPI document.
    Schemathesis,
    /// Prometheus' checker of rules.
    Promtool,
}

impl Need {
    pub(crate) const ALL: [Self; 8] = [
        Self::Anvil,
        Self::Jars,
        Self::Servers,
        Self::Clients,
        Self::Python,
        Self::Browser,
        Self::Schemathesis,
        Self::Promtool,
    ];
}
