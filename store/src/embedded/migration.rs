//! Brings the tables of an older program to this one's form.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::Error;

/// Every change of the tables, in order; the version of a file is how many of them it has had.
/// Never change one that was released: add another.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_tables.sql")];

/// Applies what is missing, all of it or none.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    apply(connection, MIGRATIONS)
}

/// Whether [`migrate`] can bring the tables to this form.
pub(super) fn check(connection: &Connection) -> Result<(), Error> {
    if connection.table_exists(None, "meta")? {
        missing(connection, MIGRATIONS)?;
    }
    Ok(())
}

/// The migrations that the tables have not had yet.
fn missing<'a>(connection: &Connection, migrations: &'a [&'a str]) -> Result<&'a [&'a str], Error> {
    let found: Option<u32> =
        connection.query_row("SELECT version FROM meta", [], |row| row.get(0)).optional()?;
    let (found, known) = (found.unwrap_or(0) as usize, migrations.len());
    let tables = || connection.path().unwrap_or("memory").to_owned();
    migrations.get(found..).ok_or_else(|| Error::SchemaNewer { tables: tables(), found, known })
}

fn apply(connection: &mut Connection, migrations: &[&str]) -> Result<(), Error> {
    let step = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    step.execute_batch("CREATE TABLE IF NOT EXISTS meta (version INTEGER NOT NULL) STRICT")?;
    for migration in missing(&step, migrations)? {
        step.execute_batch(migration)?;
    }
    step.execute_batch("DELETE FROM meta")?;
    step.execute("INSERT INTO meta (version) VALUES (?)", [migrations.len() as u32])?;
    Ok(step.commit()?)
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
    fn failed_migration_leaves_the_tables_as_they_were() {
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
        let count = MIGRATIONS.len();
        apply(&mut connection, &vec![""; count + 2]).unwrap();
        for error in [check(&connection).unwrap_err(), migrate(&mut connection).unwrap_err()] {
            let Error::SchemaNewer { found, known, .. } = error else { panic!("{error}") };
            assert_eq!((found, known), (count + 2, count));
        }
    }

    #[test]
    fn tables_of_this_form_and_older_ones_can_be_used() {
        let mut connection = Connection::open_in_memory().unwrap();
        check(&connection).unwrap();
        apply(&mut connection, &[]).unwrap();
        check(&connection).unwrap();
        migrate(&mut connection).unwrap();
        check(&connection).unwrap();
    }
}
