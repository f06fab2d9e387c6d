//! `[store]`: which back end, and how to reach it.

use std::path::PathBuf;

use runtime::config::Reader;
use schemas::Secret;

/// What the tables are kept in.
#[derive(Debug, Clone)]
pub enum BackEnd {
    /// SQLite in `data.dir`.
    Embedded,
    /// ScyllaDB or Cassandra.
    Cql(CqlConfig),
}

/// How to reach ScyllaDB or Cassandra.
#[derive(Debug, Clone)]
pub struct CqlConfig {
    /// `host:port` of some nodes; the others are found through them.
    pub nodes: Vec<String>,
    /// Keyspace of the tables.
    pub keyspace: String,
    /// How many nodes keep each row, for `tidemark schema migrate`.
    pub replication: u16,
    /// Data centre to prefer, and to keep rows in.
    pub datacenter: Option<String>,
    /// User.
    pub username: Option<String>,
    /// Password.
    pub password: Option<Secret>,
    /// Certificates (PEM) that nodes must be signed by; given, connections are encrypted.
    pub ca_file: Option<PathBuf>,
}

impl BackEnd {
    /// The commented defaults of the section.
    pub const DEFAULTS: &str = include_str!("config/default.toml");

    /// Reads the section `store`, and reports its problems in it.
    #[must_use]
    pub fn read(mut section: Reader) -> Self {
        let back_end = Self::read_keys(&mut section);
        section.finish();
        back_end
    }

    fn read_keys(store: &mut Reader) -> Self {
        let backend = store.text("backend");
        let cql = CqlConfig {
            nodes: store.texts("nodes").unwrap_or_default(),
            keyspace: store.text("keyspace"),
            replication: u16::try_from(store.integer("replication", 1..=99)).unwrap_or(1),
            datacenter: store.optional_text("datacenter"),
            username: store.optional_text("username"),
            password: store.secret("password"),
            ca_file: store.optional_text("ca_file").map(PathBuf::from),
        };
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts = cql.keyspace.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts || cql.keyspace.len() > 48 || !cql.keyspace.chars().all(legal) {
            store.problem(
                "keyspace",
                "must be at most 48 lower-case letters, digits and '_', a letter first",
            );
        }
        match backend.as_str() {
            "cql" => {
                if cql.nodes.iter().all(String::is_empty) {
                    store.problem("nodes", "is missing: CQL needs [\"host:port\"]");
                }
                Self::Cql(cql)
            }
            "embedded" => Self::Embedded,
            _ => {
                store.problem("backend", "must be \"embedded\" or \"cql\"");
                Self::Embedded
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::config::{Problems, Source};

    use super::*;

    fn read(text: &str) -> (BackEnd, Vec<String>) {
        let mut source =
            Source::parse(BackEnd::DEFAULTS, &format!("[store]\nbackend = \"cql\"\n{text}"), []);
        let back_end = BackEnd::read(source.section("store"));
        let Err(Problems(lines)) = source.finish() else { return (back_end, Vec::new()) };
        (back_end, lines.into_iter().filter(|line| line.starts_with("store.")).collect())
    }

    #[test]
    fn cql_is_two_lines() {
        let (back_end, problems) = read("nodes = [\"c:3\"]\n");
        let BackEnd::Cql(cql) = back_end else { panic!("{back_end:?}") };
        assert_eq!(cql.nodes, ["c:3"]);
        assert_eq!(cql.keyspace, "tidemark");
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn what_cql_needs_is_asked_for() {
        let (_, problems) = read("keyspace = \"T-1\"\n");
        let [keyspace, nodes] = &*problems else { panic!("{problems:?}") };
        assert!(keyspace.starts_with("store.keyspace: must be"), "{problems:?}");
        assert!(nodes.starts_with("store.nodes: is missing"), "{problems:?}");
    }
}
