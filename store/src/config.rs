//! `[store]`: the back end and its connection.

use std::path::PathBuf;

use runtime::config::Reader;
use schemas::Secret;

/// Minimum retention in days. The log keeps records for 91 days: rows removed sooner would return
/// when tables are rebuilt.
const RETENTION_DAYS_MIN: u64 = 92;
const RETENTION_DAYS_MAX: u64 = 36_500;
/// Value of `retention_export` that disables copies.
const NO_EXPORT: &str = "none";

/// Storage of the tables.
#[derive(Debug, Clone)]
pub enum BackEnd {
    /// SQLite in `data.dir`.
    Embedded,
    /// ScyllaDB or Cassandra.
    Cql(CqlConfig),
}

/// Connection to ScyllaDB or Cassandra.
#[derive(Debug, Clone)]
pub struct CqlConfig {
    /// `host:port` of some nodes; the others are found through them.
    pub nodes: Vec<String>,
    pub keyspace: String,
    /// Number of nodes that keep each row, for `tidemark schema migrate`.
    pub replication: u16,
    /// Data centre to prefer, and to keep rows in.
    pub datacenter: Option<String>,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// CA certificates (PEM) of the nodes; if given, connections use TLS.
    pub ca_file: Option<PathBuf>,
}

/// Retention of final rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Number of whole UTC days for which rows are kept, not counting the present one.
    pub days: u32,
    /// Folder for copies of removed rows; none to keep no copies.
    pub export: Option<PathBuf>,
}

impl Retention {
    fn read(store: &mut Reader) -> Option<Self> {
        let days = store.integer("retention_days", 0..=RETENTION_DAYS_MAX);
        let export = store.given_text("retention_export");
        if days == 0 {
            return None;
        }
        if days < RETENTION_DAYS_MIN {
            let what = "must be 0 or at least 92: the log keeps 91 days, and tables that are made again from it would show \
                        again what was removed before";
            store.problem("retention_days", what);
        }
        if export.is_none() {
            let what = "is missing: a folder that gets a copy of what is removed, or \"none\" to keep no copy";
            store.problem("retention_export", what);
        }
        let export = export.filter(|folder| folder != NO_EXPORT);
        let export = export.map(|folder| store.located(&folder));
        Some(Self { days: u32::try_from(days).unwrap_or(u32::MAX), export })
    }
}

/// Reads the section `store`. Its problems are reported through `section`. Without a retention
/// everything is kept.
#[must_use]
pub fn read(mut section: Reader) -> (BackEnd, Option<Retention>) {
    let back_end = BackEnd::read_keys(&mut section);
    let retention = Retention::read(&mut section);
    section.finish();
    (back_end, retention)
}

impl BackEnd {
    /// The commented defaults of the section.
    pub const DEFAULTS: &str = include_str!("config/default.toml");

    fn read_keys(store: &mut Reader) -> Self {
        let backend = store.text("backend");
        let cql = CqlConfig {
            nodes: store.texts("nodes").unwrap_or_default(),
            keyspace: store.text("keyspace"),
            replication: u16::try_from(store.integer("replication", 1..=99)).unwrap_or(1),
            datacenter: store.optional_text("datacenter"),
            username: store.optional_text("username"),
            password: store.secret("password"),
            ca_file: store.path("ca_file"),
        };
        if let Err(problem) = check_keyspace(&cql.keyspace) {
            store.problem("keyspace", problem);
        }
        if cql.username.is_none() && cql.password.is_some() {
            store.problem("password", "has no effect without store.username");
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

/// Checks the name of a keyspace. Servers read upper case in a statement as lower case, so names in
/// upper case are rejected.
///
/// # Errors
/// The rule that the name breaks.
pub fn check_keyspace(name: &str) -> Result<(), &'static str> {
    let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if begins && name.len() <= 48 && name.chars().all(is_legal) {
        return Ok(());
    }
    Err("must be at most 48 lower-case letters, digits and '_', a letter first")
}

#[cfg(test)]
mod tests {
    use runtime::config::{Problems, Source};

    use super::*;

    fn read_all(text: &str) -> (BackEnd, Option<Retention>, Vec<String>) {
        let mut source =
            Source::parse(BackEnd::DEFAULTS, &format!("[store]\nbackend = \"cql\"\n{text}"), []);
        let (back_end, retention) = super::read(source.section("store"));
        let lines = source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines);
        let lines = lines.into_iter().filter(|line| line.starts_with("store."));
        (back_end, retention, lines.collect())
    }

    fn read(text: &str) -> (BackEnd, Vec<String>) {
        let (back_end, _, problems) = read_all(text);
        (back_end, problems)
    }

    #[test]
    fn rows_go_without_a_copy_only_where_that_is_said() {
        let kept = |days, export: Option<&str>| {
            Some(Retention { days, export: export.map(PathBuf::from) })
        };
        for (text, expected, problem) in [
            ("", None, None),
            ("retention_export = \"/old\"\n", None, None),
            ("retention_days = 92\nretention_export = \"/old\"\n", kept(92, Some("/old")), None),
            ("retention_days = 365\nretention_export = \"none\"\n", kept(365, None), None),
            ("retention_days = 365\n", kept(365, None), Some("store.retention_export: is missing")),
            (
                "retention_days = 365\nretention_export = \"\"\n",
                kept(365, None),
                Some("store.retention_export: is missing"),
            ),
            (
                "retention_days = 91\nretention_export = \"none\"\n",
                kept(91, None),
                Some("store.retention_days: must be 0 or at least 92"),
            ),
        ] {
            let (_, retention, problems) = read_all(&format!("nodes = [\"c:3\"]\n{text}"));
            assert_eq!(retention, expected, "{text}");
            assert_eq!(problems.len(), usize::from(problem.is_some()), "{problems:?}");
            assert!(problems.iter().zip(problem).all(|(line, start)| line.starts_with(start)));
        }
    }

    #[test]
    fn rows_are_kept_for_a_hundred_years_at_most() {
        for (days, problems) in [(RETENTION_DAYS_MAX, 0), (RETENTION_DAYS_MAX + 1, 1)] {
            let (.., lines) = read_all(&format!(
                "nodes = [\"c:3\"]\nretention_days = {days}\nretention_export = \"none\"\n"
            ));
            assert_eq!(lines.len(), problems, "{lines:?}");
        }
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
