//! Read-only access to the tables of another process.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row};
use schemas::{CodecError, UnixSeconds, decode};

use super::upsert::{ORDER_COLUMNS, TRANSFER_COLUMNS, Upsert};
use super::{FILE, migration, origin, prune, reader};
use crate::{Change, Defect, Error, Origin, Position};

/// Reads the tables in a folder, also while another process writes them. Blocks.
#[derive(Debug)]
pub struct ReadOnlyTables(Connection);

impl ReadOnlyTables {
    /// Opens the tables in a folder.
    ///
    /// # Errors
    /// [`Error::SchemaNewer`]; [`Error::Dropped`]; another error if there are no tables, or they cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let open = || {
            let connection = reader::open(&path, reader::BUSY_MAX)?;
            migration::check(&connection)?;
            Ok(Self(connection))
        };
        open().map_err(|error: Error| error.context(path.display()))
    }

    /// As [`Store::positions`](crate::Store::positions).
    pub fn positions(&self) -> Result<Vec<Position>, Error> {
        origin::positions(&self.0)
    }

    /// As [`Store::pruned_before`](crate::Store::pruned_before).
    pub fn pruned_before(&self) -> Result<Option<UnixSeconds>, Error> {
        prune::pruned_before(&self.0)
    }

    /// As [`Store::origin`](crate::Store::origin).
    pub fn origin(&self) -> Result<Option<Origin>, Error> {
        origin::origin(&self.0)
    }

    /// Passes each row's change to `take`.
    ///
    /// # Errors
    /// The file cannot be read, has a row that this program cannot read, or an error of `take`.
    pub fn walk_rows<E: From<Error>>(
        &self,
        mut take: impl FnMut(Change) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk("orders", |row| decode(row).map(Change::Order), &mut take)?;
        self.walk("deposits", |row| decode(row).map(Change::Deposit), &mut take)?;
        self.walk("transfers", |row| decode(row).map(Change::Transfer), &mut take)?;
        self.walk("attempts", |row| decode(row).map(Change::Attempt), &mut take)?;
        self.walk("chains", |row| decode(row).map(Change::Chain), &mut take)
    }

    fn walk<E: From<Error>>(
        &self,
        table: &str,
        read: impl Fn(&[u8]) -> Result<Change, CodecError>,
        take: &mut impl FnMut(Change) -> Result<(), E>,
    ) -> Result<(), E> {
        let select = self.0.prepare_cached(&format!("SELECT record FROM {table}"));
        let mut select = select.map_err(Error::from)?;
        let mut rows = select.query([]).map_err(Error::from)?;
        while let Some(row) = rows.next().map_err(Error::from)? {
            let record: Vec<u8> = row.get(0).map_err(Error::from)?;
            take(read(&record).map_err(Error::from)?)?;
        }
        Ok(())
    }

    /// Compares the newest record of an order or a transfer with its row: the stored record, and
    /// the columns of lists. None if they agree. Any other record is [`Defect::Missing`]: its row is
    /// not read.
    pub fn compare(&self, record: &Change) -> Result<Option<Defect>, Error> {
        let (table, key, columns) = match record {
            Change::Order(_) => ("orders", "order_id", ORDER_COLUMNS),
            Change::Transfer(_) => ("transfers", "transfer_id", TRANSFER_COLUMNS),
            Change::Deposit(_) | Change::Attempt(_) | Change::Chain(_) => {
                return Ok(Some(Defect::Missing));
            }
        };
        let expected = Upsert::of(record)?.values;
        let sql = format!("SELECT {columns}, record FROM {table} WHERE {key} = ?");
        let mut select = self.0.prepare_cached(&sql)?;
        let count = expected.len();
        let read = |row: &Row<'_>| (0..count - 1).map(|at| row.get(at)).collect();
        let row: Option<Vec<Value>> = select.query_row([expected.first()], read).optional()?;
        let Some((Value::Blob(bytes), found)) = row.as_deref().and_then(<[Value]>::split_last)
        else {
            return Ok(Some(Defect::Missing));
        };
        let kept = match record {
            Change::Order(_) => decode(bytes).map(Change::Order),
            Change::Transfer(_) | Change::Deposit(_) | Change::Attempt(_) | Change::Chain(_) => {
                decode(bytes).map(Change::Transfer)
            }
        };
        let defect = kept.map_or(Some(Defect::Changed), |kept| Defect::of(record, Some(&kept)));
        let is_listed_so = expected.get(1..count - 1) == Some(found);
        Ok(defect.or((!is_listed_so).then_some(Defect::Changed)))
    }
}

#[cfg(test)]
mod tests {
    use schemas::UnixMicros;
    use schemas::record::{Order, Transfer, example};

    use super::super::EmbeddedStore;
    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn every_row_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let rows = vec![
            Change::Order(example::order()),
            Change::Deposit(example::deposit()),
            Change::Transfer(example::transfer()),
            Change::Attempt(example::attempt()),
            Change::Chain(example::chain_progress()),
        ];
        store.apply(rows.clone()).await.unwrap();
        let tables = ReadOnlyTables::open(dir.path()).unwrap();
        let mut found = Vec::new();
        let take = |row| -> Result<(), Error> {
            found.push(row);
            Ok(())
        };
        tables.walk_rows(take).unwrap();
        assert_eq!(found, rows);
    }

    #[tokio::test]
    async fn rows_are_compared_beside_their_writer() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ReadOnlyTables::open(dir.path()).is_err(), "nothing is made");
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let tables = ReadOnlyTables::open(dir.path()).unwrap();
        let (order, transfer) = (example::order(), example::transfer());
        let records = [Change::Order(order.clone()), Change::Transfer(transfer.clone())];
        for record in &records {
            assert_eq!(tables.compare(record).unwrap(), Some(Defect::Missing));
        }
        store.apply(records.to_vec()).await.unwrap();
        for record in &records {
            assert_eq!(tables.compare(record).unwrap(), None);
        }
        let later = UnixMicros(order.updated_at.0 + 1);
        let newer = Change::Order(Order { updated_at: later, ..order });
        assert_eq!(tables.compare(&newer).unwrap(), Some(Defect::Older));
        let other = Transfer { blockchain_confirmed: !transfer.blockchain_confirmed, ..transfer };
        assert_eq!(tables.compare(&Change::Transfer(other)).unwrap(), Some(Defect::Changed));
        // By hand, as an operator would.
        let by_hand = Connection::open(dir.path().join(FILE)).unwrap();
        by_hand.execute("UPDATE orders SET status = 'cancelled'", []).unwrap();
        assert_eq!(tables.compare(&records[0]).unwrap(), Some(Defect::Changed));
    }
}
