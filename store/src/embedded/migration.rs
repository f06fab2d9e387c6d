//! Brings the tables of an older program to this one's form.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::fault::classify;
use crate::Error;

/// Every change of the tables, in order; the version of a file is how many of them it has had.
/// Never change one that was released: add another.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_tables.sql")];

/// Applies what is missing, all of it or none.
///
/// # Errors
/// [`Error::Fatal`] if a newer program made the tables: this one would not keep what it added.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    apply(connection, MIGRATIONS)
}

fn apply(connection: &mut Connection, migrations: &[&str]) -> Result<(), Error> {
    let fail = |cause| classify(&cause);
    let step =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    step.execute_batch("CREATE TABLE IF NOT EXISTS meta (version INTEGER NOT NULL) STRICT")
        .map_err(fail)?;
    let found: Option<i64> = step
        .query_row("SELECT version FROM meta", [], |row| row.get(0))
        .optional()
        .map_err(fail)?;
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let done = usize::try_from(found.unwrap_or(0)).unwrap_or(usize::MAX);
    let Some(missing) = migrations.get(done..) else {
        return Err(Error::Fatal(format!(
            "the tables have version {done}, and this program knows versions up to {known}"
        )));
    };
    for migration in missing {
        step.execute_batch(migration).map_err(fail)?;
    }
    step.execute_batch("DELETE FROM meta").map_err(fail)?;
    step.execute("INSERT INTO meta (version) VALUES (?)", [known]).map_err(fail)?;
    step.commit().map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(connection: &Connection) -> i64 {
        connection.query_row("SELECT version FROM meta", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn each_migration_runs_once_and_in_order() {
        let mut connection = Connection::open_in_memory().unwrap();
        let first = "CREATE TABLE a (x INTEGER)";
        let second = "ALTER TABLE a ADD COLUMN y INTEGER";
        apply(&mut connection, &[first]).unwrap();
        assert_eq!(version(&connection), 1);
        for _ in 0..2 {
            apply(&mut connection, &[first, second]).unwrap();
            assert_eq!(version(&connection), 2);
        }
        connection.execute("INSERT INTO a (x, y) VALUES (1, 2)", []).unwrap();
    }

    #[test]
    fn a_migration_that_fails_leaves_the_tables_as_they_were() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, &["CREATE TABLE a (x INTEGER)"]).unwrap();
        let broken = ["", "CREATE TABLE b (x INTEGER)", "CREATE TABLE a (x INTEGER)"];
        assert!(matches!(apply(&mut connection, &broken), Err(Error::Fatal(_))));
        assert_eq!(version(&connection), 1);
        assert!(connection.prepare("SELECT * FROM b").is_err());
    }

    #[test]
    fn tables_of_a_newer_program_are_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, &["", "", ""]).unwrap();
        let error = migrate(&mut connection).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the store failed: the tables have version 3, and this program knows versions up to 1"
        );
    }
}
