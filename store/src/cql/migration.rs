//! Brings the tables of an older program to this one's form, and refuses others.

use std::collections::BTreeSet;

use crate::config::CqlConfig;
use scylla::client::session::Session;
use scylla::errors::{ExecutionError, UseKeyspaceError};

use super::{connection, fault};
use crate::Error;

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

const TABLE: &str = "CREATE TABLE IF NOT EXISTS migrations \
    (component text, version int, name text, PRIMARY KEY ((component), version))";
const RECORD: &str = "INSERT INTO migrations (component, version, name) VALUES ('tables', ?, ?)";
const VERSIONS: &str = "SELECT version FROM migrations WHERE component = 'tables'";

/// Makes the keyspace if it is missing, and applies the migrations that it has not had; their
/// names. Another call does nothing, and one after an interruption goes on. Two at the same time
/// must not be: servers cannot merge two changes of one schema.
///
/// # Errors
/// [`Error::Transient`] if the nodes cannot be asked; [`Error::Fatal`] if they refuse, if there are
/// several data centres and none is configured, or if a newer program made the tables.
pub async fn migrate(config: &CqlConfig) -> Result<Vec<String>, Error> {
    let session = connection::connect(config).await?;
    let datacenter = datacenter(&session, config)?;
    // Checked by the configuration, but not only from there can a value come.
    if !is_plain(&config.keyspace) || datacenter.contains('\'') {
        return Err(Error::Fatal(format!(
            "cannot make the keyspace {:?} in {datacenter:?}: these are no plain names",
            config.keyspace
        )));
    }
    let keyspace = format!(
        "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', '{datacenter}': {}}}",
        config.keyspace, config.replication
    );
    run(&session, &keyspace).await?;
    session
        .use_keyspace(&config.keyspace, false)
        .await
        .map_err(|cause| fault::of_use_keyspace(&cause))?;
    run(&session, TABLE).await?;
    let found = versions(&session).await.map_err(|cause| fault::classify(&cause))?;
    let done = version(&found, MIGRATIONS.len(), &config.keyspace)?;
    let mut applied = Vec::new();
    for (number, migration) in (1_i32..).zip(MIGRATIONS).skip(done) {
        for statement in statements(migration.text) {
            run(&session, &statement).await?;
        }
        session
            .query_unpaged(RECORD, (number, migration.name))
            .await
            .map_err(|cause| fault::classify(&cause))?;
        applied.push(migration.name.to_owned());
    }
    Ok(applied)
}

/// Chooses the keyspace and looks whether its tables have this program's form.
///
/// # Errors
/// [`Error::Fatal`] if not, with what to do about it; [`Error::Transient`] if nobody answers.
pub(super) async fn check(session: &Session, keyspace: &str) -> Result<(), Error> {
    let missing = || {
        Error::Fatal(format!(
            "the keyspace {keyspace} has no tables of this program: run `tidemark schema migrate`"
        ))
    };
    match session.use_keyspace(keyspace, false).await {
        Ok(()) => {}
        Err(UseKeyspaceError::RequestError(cause)) if fault::is_missing(&cause) => {
            return Err(missing());
        }
        Err(cause) => return Err(fault::of_use_keyspace(&cause)),
    }
    let found = match versions(session).await {
        Ok(found) => found,
        Err(ExecutionError::LastAttemptError(cause)) if fault::is_missing(&cause) => {
            return Err(missing());
        }
        Err(cause) => return Err(fault::classify(&cause)),
    };
    match version(&found, MIGRATIONS.len(), keyspace)? {
        0 => Err(missing()),
        done if done < MIGRATIONS.len() => Err(Error::Fatal(format!(
            "the tables in {keyspace} have version {done}, and this program needs version {}: run \
             `tidemark schema migrate`",
            MIGRATIONS.len()
        ))),
        _ => Ok(()),
    }
}

/// How many migrations were applied. The first that is missing ends the count: one that was
/// interrupted runs again, with all after it.
fn version(found: &BTreeSet<i32>, known: usize, keyspace: &str) -> Result<usize, Error> {
    let done = (1_i32..).zip(0_usize..).find(|(number, _)| !found.contains(number));
    let done = done.map_or(0, |(_, done)| done);
    if done > known {
        return Err(Error::Fatal(format!(
            "the tables in {keyspace} have version {done}, and this program knows versions up to \
             {known}"
        )));
    }
    Ok(done)
}

async fn versions(session: &Session) -> Result<BTreeSet<i32>, ExecutionError> {
    let answer = session.query_unpaged(VERSIONS, ()).await?;
    let mut found = BTreeSet::new();
    if let Ok(rows) = answer.into_rows_result()
        && let Ok(rows) = rows.rows::<(i32,)>()
    {
        found.extend(rows.flatten().map(|(version,)| version));
    }
    Ok(found)
}

async fn run(session: &Session, statement: &str) -> Result<(), Error> {
    session.query_unpaged(statement, ()).await.map_err(|cause| fault::classify(&cause))?;
    Ok(())
}

/// Where the rows are to be.
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
        (None, _) => Err(Error::Transient("the nodes have not told their data centre".into())),
        _ => Err(Error::Fatal(format!(
            "the nodes are in the data centres {found:?}: name one in store.datacenter"
        ))),
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
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
    fn files_are_numbered_and_every_statement_may_run_twice() {
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

    #[test]
    fn statements_end_at_the_end_of_a_line() {
        let text = "-- first; not this\nCREATE A ( -- why\n  x text\n);\n\nCREATE B;\n";
        assert_eq!(statements(text), ["CREATE A (\n  x text\n)", "CREATE B"]);
    }

    #[test]
    fn the_version_is_the_number_of_migrations_without_a_gap() {
        for (found, version_found) in
            [(vec![], 0), (vec![1], 1), (vec![1, 2], 2), (vec![2], 0), (vec![1, 3], 1)]
        {
            assert_eq!(version(&found.into_iter().collect(), 2, "k"), Ok(version_found));
        }
        let newer = version(&BTreeSet::from([1, 2, 3]), 2, "k");
        let text = "the store failed: the tables in k have version 3, and this program knows \
                    versions up to 2";
        assert_eq!(newer.unwrap_err().to_string(), text);
    }
}
