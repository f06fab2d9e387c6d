//! Brings the tables of an older program to this program's form, and refuses those of a newer program that this one
//! must not use.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::config::{CqlConfig, check_keyspace};
use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::statement::Statement;

use super::{connection, fault, read_rows};
use crate::Error;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS migrations (component text, version int, name text, \
    readable_from int, PRIMARY KEY ((component), version))";
const RECORD: &str = "INSERT INTO migrations (component, version, name, readable_from) \
    VALUES ('tables', ?, ?, ?)";
const VERSIONS: &str = "version, readable_from FROM migrations WHERE component = 'tables'";
const TABLES: &str = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
const KEYSPACES: &str = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";

/// A change of the tables.
#[derive(Debug)]
struct Migration {
    name: &'static str,
    text: &'static str,
    /// Version of the oldest program that may use the tables afterwards. It is the migration's own
    /// number, unless older programs can ignore the additions: rows that they write meanwhile are
    /// missing in new tables until `tidemark tables rebuild`.
    readable_from: i32,
}

/// The migrations that a keyspace has had: for each version the oldest program that may use the tables.
type Found = BTreeMap<i32, i32>;

/// Changes made by [`migrate`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Names of the migrations that were applied.
    pub applied: Vec<String>,
    /// Tables of earlier migrations that had been dropped; created again, empty.
    pub created: Vec<String>,
}

/// Changes that [`migrate`] would make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    /// Names of the migrations that are to be applied.
    pub migrations: Vec<String>,
    /// Tables that are to be created again.
    pub missing: Vec<String>,
    /// The version that the tables have; 0 if there are none.
    pub found: usize,
    /// Version of the oldest program that may use the tables afterwards.
    pub readable_from: usize,
}

/// Migrations of the tables, in order; a keyspace's version is the number of those applied to it.
/// Never change one that was released: add another.
const MIGRATIONS: &[Migration] = &[Migration {
    name: "0001_tables",
    text: include_str!("migrations/0001_tables.cql"),
    readable_from: 1,
}];

/// Creates a missing keyspace, applies pending migrations, and creates dropped tables again.
/// Idempotent; continues after an interruption. Concurrent calls send their changes to the same
/// node, which serializes them.
///
/// # Errors
/// [`Error::Transient`] if the nodes are unavailable; [`Error::Fatal`] if they refuse, or there are
/// several data centres and none is configured; [`Error::SchemaNewer`]; [`Error::Replication`], with
/// the migrations applied.
pub async fn migrate(config: &CqlConfig) -> Result<Migrated, Error> {
    let session = connection::connect(config).await?;
    let datacenter = datacenter(&session, config)?;
    // Both become part of a statement. The configuration checks the keyspace too, but not every caller takes it
    // from there.
    if let Err(problem) = check_keyspace(&config.keyspace) {
        return Err(Error::Fatal(format!("keyspace {:?} {problem}", config.keyspace).into()));
    }
    if datacenter.contains('\'') {
        return Err(Error::Fatal(format!("data centre {datacenter:?} has a quote").into()));
    }
    let keyspace = format!(
        "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', '{datacenter}': {}}}",
        config.keyspace, config.replication
    );
    let by_one = one_node(&session)?;
    let change = async |text: &str| {
        let mut statement = Statement::new(text);
        statement.set_execution_profile_handle(Some(by_one.clone()));
        session.query_unpaged(statement, ()).await
    };
    change(&keyspace).await?;
    session.use_keyspace(&config.keyspace, false).await?;
    change(TABLE).await?;
    let select = format!("SELECT {VERSIONS}");
    let found = versions(session.query_unpaged(select, ()).await?)?;
    let done = version(&found, MIGRATIONS.len(), &config.keyspace)?;
    let created = missing(&session, &config.keyspace, done).await?;
    // A table created again lacks the changes of later migrations.
    let kept = if created.is_empty() { done } else { 0 };
    let mut applied = Vec::new();
    for (number, migration) in (1_i32..).zip(MIGRATIONS).skip(kept) {
        for statement in statements(migration.text) {
            change(&statement).await?;
        }
        if found.contains_key(&number) {
            continue;
        }
        let Migration { name, readable_from, .. } = *migration;
        session.query_unpaged(RECORD, (number, name, readable_from)).await?;
        applied.push(name.to_owned());
    }
    check_replication(&session, config).await?;
    Ok(Migrated { applied, created })
}

/// Creates dropped tables again in a fully migrated keyspace; returns their names.
///
/// # Errors
/// As of [`migrate`]; [`Error::SchemaMissing`] or [`Error::SchemaOutdated`] if it is not fully
/// migrated.
pub async fn create_missing(config: &CqlConfig) -> Result<Vec<String>, Error> {
    let session = connection::connect(config).await?;
    match check(&session, config).await {
        Err(Error::TablesMissing { .. }) => Ok(migrate(config).await?.created),
        checked => checked.map(|()| Vec::new()),
    }
}

/// Returns the changes that [`migrate`] would make. Changes nothing.
///
/// # Errors
/// [`Error::Transient`] if the nodes are unavailable; [`Error::Fatal`] if they refuse; [`Error::SchemaNewer`].
pub async fn pending(config: &CqlConfig) -> Result<Pending, Error> {
    let session = connection::connect(config).await?;
    let found = match found(&session, &config.keyspace).await {
        Err(Error::SchemaMissing { .. }) => Found::new(),
        found => found?,
    };
    let done = version(&found, MIGRATIONS.len(), &config.keyspace)?;
    let missing = missing(&session, &config.keyspace, done).await?;
    let pending = MIGRATIONS.get(done..).unwrap_or_default();
    let migrations = pending.iter().map(|migration| migration.name.to_owned()).collect();
    let oldest = pending.iter().map(|migration| migration.readable_from);
    let oldest = oldest.chain(found.into_values()).max().unwrap_or(0);
    let readable_from = usize::try_from(oldest).unwrap_or(0);
    Ok(Pending { migrations, missing, found: done, readable_from })
}

/// The tables of the first `done` migrations that the keyspace lacks.
async fn missing(session: &Session, keyspace: &str, done: usize) -> Result<Vec<String>, Error> {
    // The servers store names without quotes in lower case.
    let answer = session.query_unpaged(TABLES, (keyspace.to_lowercase(),)).await?;
    let rows = answer.into_rows_result().map_err(fault::bad_row)?;
    let present = read_rows(&rows, |(name,): (String,)| Ok(Some(name)))?;
    let statements = MIGRATIONS.iter().take(done).flat_map(|one| statements(one.text));
    let made = statements.filter_map(|statement| made_table(&statement).map(str::to_owned));
    Ok(made.filter(|name| !present.contains(name)).collect())
}

/// The table that a statement makes.
fn made_table(statement: &str) -> Option<&str> {
    statement.strip_prefix("CREATE TABLE IF NOT EXISTS ")?.split_whitespace().next()
}

/// Node that makes every schema change: nodes cannot merge concurrent changes, but each serializes
/// its own. It is the same for all clients that see the same nodes.
fn one_node(session: &Session) -> Result<ExecutionProfileHandle, Error> {
    let state = session.get_cluster_state();
    let connected = state.get_nodes_info().iter().filter(|node| node.is_connected());
    let node = connected.map(|node| node.host_id).min();
    let node = node.ok_or_else(|| Error::Transient("no node is connected".into()))?;
    let policy = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::HostId(node), None);
    let profile = session.get_default_execution_profile_handle().pointee_to_builder();
    Ok(profile.load_balancing_policy(policy).build().into_handle())
}

/// Checks that the tables have this program's form, and the configured number of copies.
///
/// # Errors
/// [`Error::SchemaMissing`], [`Error::SchemaOutdated`], [`Error::SchemaNewer`],
/// [`Error::TablesMissing`] or [`Error::Replication`] if not; [`Error::Transient`] if no node answers.
pub(super) async fn check(session: &Session, config: &CqlConfig) -> Result<(), Error> {
    let keyspace = &config.keyspace;
    let needed = MIGRATIONS.len();
    match version(&found(session, keyspace).await?, needed, keyspace)? {
        0 => Err(Error::SchemaMissing { keyspace: keyspace.clone() }),
        found if found < needed => {
            Err(Error::SchemaOutdated { keyspace: keyspace.clone(), found, needed })
        }
        _ => {
            check_tables(session, keyspace).await?;
            check_replication(session, config).await
        }
    }
}

/// Checks that no table was dropped.
///
/// # Errors
/// [`Error::TablesMissing`]; [`Error::Transient`] if no node answers.
pub(super) async fn check_tables(session: &Session, keyspace: &str) -> Result<(), Error> {
    let tables = missing(session, keyspace, MIGRATIONS.len()).await?;
    if tables.is_empty() {
        return Ok(());
    }
    Err(Error::TablesMissing { keyspace: keyspace.to_owned(), tables })
}

/// Returns the migrations that a keyspace has had.
///
/// # Errors
/// [`Error::SchemaMissing`] if the keyspace does not exist or has no tables.
async fn found(session: &Session, keyspace: &str) -> Result<Found, Error> {
    let select = format!("SELECT {}", VERSIONS.replace("FROM ", &format!("FROM {keyspace}.")));
    let answer = session.query_unpaged(select, ()).await.map_err(|cause| {
        let is_missing =
            matches!(&cause, ExecutionError::LastAttemptError(cause) if fault::is_missing(cause));
        if is_missing {
            Error::SchemaMissing { keyspace: keyspace.to_owned() }
        } else {
            cause.into()
        }
    })?;
    versions(answer)
}

/// Checks the number of copies: `CREATE KEYSPACE IF NOT EXISTS` does not change an existing
/// keyspace.
async fn check_replication(session: &Session, config: &CqlConfig) -> Result<(), Error> {
    let rows = session.query_unpaged(KEYSPACES, (&config.keyspace,)).await?;
    let rows = rows.into_rows_result().map_err(fault::bad_row)?;
    let row = rows.maybe_first_row::<(HashMap<String, String>,)>().map_err(fault::bad_row)?;
    let copies = row.and_then(|(options,)| copies(&options, config.datacenter.as_deref()));
    match copies {
        Some((datacenter, found)) if found != config.replication => {
            let (keyspace, configured) = (config.keyspace.clone(), config.replication);
            Err(Error::Replication { keyspace, datacenter, found, configured })
        }
        // `None` is not comparable: an operator made the keyspace in another way.
        Some(_) | None => Ok(()),
    }
}

/// Returns the data centre whose copies count (the given one, or the only one), and the number of copies of each row
/// in it. None with another strategy, a value that is not a number, or neither a given nor a single data centre.
fn copies(options: &HashMap<String, String>, datacenter: Option<&str>) -> Option<(String, u16)> {
    let class = options.get("class")?;
    if !class.ends_with("NetworkTopologyStrategy") {
        return None;
    }
    let mut places = options.iter().filter(|(name, _)| *name != "class");
    let (name, number) = match datacenter {
        Some(wanted) => (wanted, options.get(wanted).map_or("0", String::as_str)),
        None => match (places.next(), places.next()) {
            (Some((name, number)), None) => (name.as_str(), number.as_str()),
            _ => return None,
        },
    };
    Some((name.to_owned(), number.parse().ok()?))
}

/// Returns the number of applied migrations that this program knows. The count ends at the first
/// missing one: an interrupted migration runs again, with all after it.
fn version(found: &Found, known: usize, keyspace: &str) -> Result<usize, Error> {
    let count = (1_i32..).take_while(|number| found.contains_key(number)).count();
    let oldest = found.values().copied().max().unwrap_or(0);
    if count > known && usize::try_from(oldest).is_ok_and(|oldest| known < oldest) {
        let (tables, found) = (keyspace.to_owned(), count);
        return Err(Error::SchemaNewer { tables, found, known });
    }
    Ok(count.min(known))
}

/// Reads the versions. One without `readable_from` may be used by programs of that version or a
/// later one.
fn versions(answer: QueryResult) -> Result<Found, Error> {
    let rows = answer.into_rows_result().map_err(fault::bad_row)?;
    let versions = rows.rows::<(i32, Option<i32>)>().map_err(fault::bad_row)?;
    let version =
        |(version, readable_from): (i32, Option<i32>)| (version, readable_from.unwrap_or(version));
    versions.map(|row| row.map(version).map_err(fault::bad_row)).collect()
}

/// Returns the data centre for the replicas.
fn datacenter(session: &Session, config: &CqlConfig) -> Result<String, Error> {
    if let Some(datacenter) = &config.datacenter {
        return Ok(datacenter.clone());
    }
    let state = session.get_cluster_state();
    let found: BTreeSet<&str> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    let mut names = found.iter();
    match (names.next(), names.next()) {
        (Some(only), None) => Ok((*only).to_owned()),
        (None, _) => Err(Error::Transient("the nodes have not reported their data centre".into())),
        (Some(_), Some(_)) => Err(Error::Fatal(
            format!("the nodes are in the data centres {found:?}: name one in store.datacenter")
                .into(),
        )),
    }
}

/// The statements of a file: each ends with `;` at the end of a line; `--` begins a comment.
/// Neither occurs inside a string literal there.
fn statements(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default().trim_end());
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    code.split(";\n")
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_and_may_run_twice() {
        for (number, migration) in (1_i32..).zip(MIGRATIONS) {
            assert!(migration.name.starts_with(&format!("{number:04}_")), "{}", migration.name);
            let (statements, oldest) = (statements(migration.text), migration.readable_from);
            assert!(!statements.is_empty(), "{}", migration.name);
            assert!((1..=number).contains(&oldest), "{}: {oldest}", migration.name);
            for statement in statements {
                assert!(statement.contains(" IF NOT EXISTS "), "{statement}");
                assert!(!statement.contains(';') && !statement.contains("--"), "{statement}");
            }
        }
    }

    /// The servers' default delay follows recent read latency, which is seconds while a node is down.
    #[test]
    fn every_table_asks_a_second_copy_soon() {
        let tables = statements(MIGRATIONS[0].text);
        for table in tables {
            assert!(table.contains("speculative_retry = '50ms'"), "{table}");
        }
    }

    #[test]
    fn statements_end_at_the_end_of_a_line() {
        let text = "-- first; not this\nCREATE A ( -- why\n  x text\n);\n\nCREATE B;\n";
        assert_eq!(statements(text), ["CREATE A (\n  x text\n)", "CREATE B"]);
    }

    #[test]
    fn copies_are_counted_where_the_rows_are_read() {
        let options = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let class = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");
        let one = options(&[class, ("a", "3")]);
        assert_eq!(copies(&one, None), Some(("a".to_owned(), 3)));
        assert_eq!(copies(&one, Some("a")), Some(("a".to_owned(), 3)));
        assert_eq!(copies(&one, Some("b")), Some(("b".to_owned(), 0)), "none of its rows is there");
        let two = options(&[class, ("a", "3"), ("b", "2")]);
        assert_eq!(copies(&two, Some("b")), Some(("b".to_owned(), 2)));
        assert_eq!(copies(&two, None), None);
        assert_eq!(copies(&options(&[class, ("a", "['r1']")]), None), None);
        let simple = ("class", "org.apache.cassandra.locator.SimpleStrategy");
        assert_eq!(copies(&options(&[simple, ("replication_factor", "1")]), None), None);
    }

    #[test]
    fn version_counts_the_migrations_without_a_gap() {
        let found = |versions: &[(i32, i32)]| versions.iter().copied().collect::<Found>();
        for (versions, expected) in [
            (vec![], 0),
            (vec![(1, 1)], 1),
            (vec![(1, 1), (2, 2)], 2),
            (vec![(2, 2)], 0),
            (vec![(1, 1), (3, 3)], 1),
        ] {
            assert_eq!(version(&found(&versions), 2, "k").unwrap(), expected);
        }
    }

    #[test]
    fn an_older_program_uses_what_it_may() {
        let found = |readable_from: [i32; 3]| (1..).zip(readable_from).collect::<Found>();
        for readable_from in [[1, 1, 1], [1, 2, 2], [1, 2, 1]] {
            assert_eq!(version(&found(readable_from), 2, "k").unwrap(), 2, "{readable_from:?}");
        }
        for readable_from in [[1, 1, 3], [1, 3, 1]] {
            let newer = version(&found(readable_from), 2, "k");
            assert!(
                matches!(newer, Err(Error::SchemaNewer { found: 3, known: 2, .. })),
                "{newer:?}"
            );
        }
    }

    #[test]
    fn the_tables_of_a_migration_are_known() {
        let made: Vec<_> = statements(MIGRATIONS[0].text);
        let made: Vec<_> = made.iter().filter_map(|statement| made_table(statement)).collect();
        assert_eq!(made.len(), statements(MIGRATIONS[0].text).len(), "{made:?}");
        assert!(made.contains(&"orders_by_day"), "{made:?}");
    }
}
