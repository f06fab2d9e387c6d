//! Brings the tables of an older program to this program's form.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::Error;

/// Migrations of the tables, in order; a file's version is the number of those applied to it. Never
/// change one that was released: add another.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_tables.sql")];

/// Applies pending migrations, all or none.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    apply(connection, MIGRATIONS)
}

/// Checks that [`migrate`] can bring the tables to this form, and that none was dropped.
pub(super) fn check(connection: &Connection) -> Result<(), Error> {
    let is_made = connection.table_exists(None, "meta")?;
    // Tables of an earlier version are compared only after their migration.
    if is_made && missing(connection, MIGRATIONS)?.is_empty() {
        refuse_dropped(connection)?;
    }
    Ok(())
}

pub(super) struct Dropped {
    pub(super) table: String,
    /// Statements that create it and its indexes again.
    statements: Vec<String>,
}

impl Dropped {
    pub(super) fn create(&self, connection: &Connection) -> Result<(), Error> {
        Ok(connection.execute_batch(&self.statements.join(";"))?)
    }
}

/// Tables of this program's form that the file lacks.
pub(super) fn dropped(connection: &Connection) -> Result<Vec<Dropped>, Error> {
    let mut made = Connection::open_in_memory()?;
    migrate(&mut made)?;
    let names = |of: &Connection| {
        let mut select = of.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        let names = select.query_map([], |row| row.get(0))?;
        names.collect::<Result<BTreeSet<String>, _>>()
    };
    let (wanted, present) = (names(&made)?, names(connection)?);
    let statements = |table: &str| {
        let sql = "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type DESC";
        let mut select = made.prepare(sql)?;
        let statements = select.query_map([table], |row| row.get(0))?;
        statements.collect::<Result<Vec<String>, _>>()
    };
    let dropped = wanted
        .difference(&present)
        .map(|table| Ok(Dropped { table: table.clone(), statements: statements(table)? }));
    dropped.collect()
}

/// Checks that no table of this program's form was dropped.
///
/// # Errors
/// [`Error::Dropped`].
pub(super) fn refuse_dropped(connection: &Connection) -> Result<(), Error> {
    let tables: Vec<_> = dropped(connection)?.into_iter().map(|one| one.table).collect();
    if tables.is_empty() {
        return Ok(());
    }
    Err(Error::Dropped { file: connection.path().unwrap_or("memory").to_owned(), tables })
}

/// Pending migrations.
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
    fn dropped_tables_are_named_and_made_again() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        let schema = |connection: &Connection| {
            let mut select =
                connection.prepare("SELECT sql FROM sqlite_schema ORDER BY name").unwrap();
            let all = select.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
            all.map(Result::unwrap).collect::<Vec<_>>()
        };
        let before = schema(&connection);
        connection.execute_batch("DROP TABLE orders; DROP TABLE positions").unwrap();
        let Err(Error::Dropped { tables, .. }) = check(&connection) else { panic!("a refusal") };
        assert_eq!(tables, ["orders", "positions"]);
        dropped(&connection).unwrap().iter().for_each(|one| one.create(&connection).unwrap());
        check(&connection).unwrap();
        assert_eq!(schema(&connection), before);
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
