//! Origin of the tables: the log that they are made from, and their positions in it.

use runtime::{Clock, SystemClock};
use schemas::{Incarnation, Partition, Topic};
use scylla::response::PagingState;
use scylla::response::query_result::QueryRowsResult;
use scylla::value::CqlValue::{BigInt, Int, Text};

use super::fault::bad_row;
use super::statement::Statement;
use super::write::Write;
use super::{Tables, read_rows};
use crate::{Error, Origin, Position};

/// Number of positions in one page.
const POSITION_ROWS: i32 = 1_000;

pub(super) async fn origin(tables: &Tables) -> Result<Option<Origin>, Error> {
    let (rows, _) =
        tables.page(Statement::SelectOrigin, &[Int(0)], 1, PagingState::start()).await?;
    let found = rows.maybe_first_row::<(String, i64)>().map_err(bad_row)?;
    Ok(found
        .map(|(installation, number)| Origin { installation, incarnation: Incarnation(number) }))
}

pub(super) async fn set_origin(tables: &Tables, origin: &Origin) -> Result<(), Error> {
    let installation = Text(origin.installation.clone());
    let at = BigInt(SystemClock.now().0);
    let rows = vec![vec![Int(0), installation, BigInt(origin.incarnation.0), at]];
    tables.write(&Write { statement: Statement::InsertOrigin, rows }).await
}

pub(super) async fn positions(tables: &Tables) -> Result<Vec<Position>, Error> {
    let read = |rows: &QueryRowsResult| {
        read_rows(rows, |(topic, partition, next): (String, i32, i64)| {
            let partition = Partition(partition.cast_unsigned());
            Ok(Topic::named(&topic).map(|topic| Position { topic, partition, next }))
        })
    };
    tables.all(Statement::SelectPositions, &[Int(0)], POSITION_ROWS, read).await
}

pub(super) async fn set_positions(tables: &Tables, positions: &[Position]) -> Result<(), Error> {
    let at = SystemClock.now().0;
    let row = |position: &Position| {
        let Position { topic, partition, next } = position;
        let (topic, partition) = (topic.name().to_owned(), partition.0.cast_signed());
        vec![Int(0), Text(topic), Int(partition), BigInt(*next), BigInt(at)]
    };
    let rows: Vec<_> = positions.iter().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    tables.write(&Write { statement: Statement::InsertPosition, rows }).await
}
