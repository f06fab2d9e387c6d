//! Brings the tables of an older program to this one's form, and refuses others.

use std::collections::{BTreeSet, HashMap};

use crate::config::{CqlConfig, check_keyspace};
use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::statement::Statement;

use super::{connection, fault};
use crate::{Error, Replication};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS migrations \
    (component text, version int, name text, PRIMARY KEY ((component), version))";
const RECORD: &str = "INSERT INTO migrations (component, version, name) VALUES ('tables', ?, ?)";
const VERSIONS: &str = "version FROM migrations WHERE component = 'tables'";
const KEYSPACES: &str = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";

/// A change of the tables.
#[derive(Debug)]
struct Migration {
    name: &'static str,
    text: &'static str,
}

/// Every change of the tables, in order; the version of a keyspace is how many of them it has had.
/// Never change one that was released: add another.
const MIGRATIONS: &[Migration] =
    &[Migration { name: "0001_tables", text: include_str!("migrations/0001_tables.cql") }];

/// Makes the keyspace if it is missing, and applies the migrations that it has not had; their
/// names. Another call does nothing, and one after an interruption continues. Of two at the same time each gives its
/// changes to the same node, which makes one after the other.
///
/// # Errors
/// [`Error::Transient`] if the nodes cannot be asked; [`Error::Fatal`] if they refuse, or there are
/// several data centres and none is configured; [`Error::SchemaNewer`]; [`Error::Replication`], with
/// the migrations applied.
pub async fn migrate(config: &CqlConfig) -> Result<Vec<String>, Error> {
    let session = connection::connect(config).await?;
    let datacenter = datacenter(&session, config)?;
    // Both become part of a statement. The configuration checks the keyspace too, but not every caller has it from there.
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
    let found = versions(session.query_unpaged(format!("SELECT {VERSIONS}"), ()).await?)?;
    let done = version(&found, MIGRATIONS.len(), &config.keyspace)?;
    let mut applied = Vec::new();
    for (number, migration) in (1_i32..).zip(MIGRATIONS).skip(done) {
        for statement in statements(migration.text) {
            change(&statement).await?;
        }
        session.query_unpaged(RECORD, (number, migration.name)).await?;
        applied.push(migration.name.to_owned());
    }
    check_replication(&session, config).await?;
    Ok(applied)
}

/// The node that makes every change of the schema: nodes cannot merge two changes of one schema, but each makes those
/// that it is given in order. It is the same for all who see the same nodes.
fn one_node(session: &Session) -> Result<ExecutionProfileHandle, Error> {
    let state = session.get_cluster_state();
    let connected = state.get_nodes_info().iter().filter(|node| node.is_connected());
    let node = connected.map(|node| node.host_id).min();
    let node = node.ok_or_else(|| Error::Transient("no node is connected".into()))?;
    let policy = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::HostId(node), None);
    let profile = session.get_default_execution_profile_handle().pointee_to_builder();
    Ok(profile.load_balancing_policy(policy).build().into_handle())
}

/// Checks that the tables have this program's form, and as many copies as are configured.
///
/// # Errors
/// [`Error::SchemaMissing`], [`Error::SchemaOutdated`], [`Error::SchemaNewer`] or
/// [`Error::Replication`] if not; [`Error::Transient`] if no node answers.
pub(super) async fn check(session: &Session, config: &CqlConfig) -> Result<(), Error> {
    let keyspace = &config.keyspace;
    let missing = || Error::SchemaMissing { keyspace: keyspace.clone() };
    let select = format!("SELECT {}", VERSIONS.replace("FROM ", &format!("FROM {keyspace}.")));
    let answer = session.query_unpaged(select, ()).await.map_err(|cause| {
        let is_missing =
            matches!(&cause, ExecutionError::LastAttemptError(cause) if fault::is_missing(cause));
        if is_missing { missing() } else { cause.into() }
    })?;
    let needed = MIGRATIONS.len();
    match version(&versions(answer)?, needed, keyspace)? {
        0 => Err(missing()),
        found if found < needed => {
            Err(Error::SchemaOutdated { keyspace: keyspace.clone(), found, needed })
        }
        _ => check_replication(session, config).await,
    }
}

/// `CREATE KEYSPACE IF NOT EXISTS` changes nothing of a keyspace that is there.
async fn check_replication(session: &Session, config: &CqlConfig) -> Result<(), Error> {
    let rows = session.query_unpaged(KEYSPACES, (&config.keyspace,)).await?;
    let rows = rows.into_rows_result().map_err(fault::bad_row)?;
    let row = rows.maybe_first_row::<(HashMap<String, String>,)>().map_err(fault::bad_row)?;
    let copies = row.and_then(|(options,)| copies(&options, config.datacenter.as_deref()));
    match copies {
        Some((datacenter, found)) if found != config.replication => {
            let (keyspace, configured) = (config.keyspace.clone(), config.replication);
            Err(Error::Replication(Replication { keyspace, datacenter, found, configured }))
        }
        // Nothing that can be compared: an operator made the keyspace in another way.
        Some(_) | None => Ok(()),
    }
}

/// How many copies of each row a keyspace keeps in a data centre, or in its only one. None if that is not a number, or
/// which one counts is not known.
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

/// How many migrations were applied. The first that is missing ends the count: one that was
/// interrupted runs again, with all after it.
fn version(found: &BTreeSet<i32>, known: usize, keyspace: &str) -> Result<usize, Error> {
    let found = (1_i32..).take_while(|number| found.contains(number)).count();
    if found > known {
        return Err(Error::SchemaNewer { tables: keyspace.to_owned(), found, known });
    }
    Ok(found)
}

fn versions(answer: QueryResult) -> Result<BTreeSet<i32>, Error> {
    let rows = answer.into_rows_result().map_err(fault::bad_row)?;
    let versions = rows.rows::<(i32,)>().map_err(fault::bad_row)?;
    versions.map(|row| row.map(|(version,)| version).map_err(fault::bad_row)).collect()
}

/// Where the replicas are to be.
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
/// Neither is ever inside a text there.
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
        for (number, migration) in (1..).zip(MIGRATIONS) {
            assert!(migration.name.starts_with(&format!("{number:04}_")), "{}", migration.name);
            let statements = statements(migration.text);
            assert!(!statements.is_empty(), "{}", migration.name);
            for statement in statements {
                assert!(statement.contains(" IF NOT EXISTS "), "{statement}");
                assert!(!statement.contains(';') && !statement.contains("--"), "{statement}");
            }
        }
    }

    /// The servers' default goes by what reads took lately: while a node is away, seconds.
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
        for (found, version_found) in
            [(vec![], 0), (vec![1], 1), (vec![1, 2], 2), (vec![2], 0), (vec![1, 3], 1)]
        {
            assert_eq!(version(&found.into_iter().collect(), 2, "k").unwrap(), version_found);
        }
        let newer = version(&BTreeSet::from([1, 2, 3]), 2, "k");
        assert!(matches!(newer, Err(Error::SchemaNewer { found: 3, known: 2, .. })), "{newer:?}");
    }
}
