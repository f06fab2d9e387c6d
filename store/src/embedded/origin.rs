//! Origin of the tables: the log that they are made from, and their positions in it.

use rusqlite::{Connection, OptionalExtension};
use schemas::{Incarnation, Partition, Topic};

use super::upsert::Upsert;
use crate::{Error, Origin, Position};

const SET_ORIGIN: &str =
    "INSERT OR REPLACE INTO origin (part, installation, incarnation) VALUES (0, ?, ?)";
const SET_POSITION: &str =
    "INSERT OR REPLACE INTO positions (topic, partition, next) VALUES (?, ?, ?)";

pub(super) fn origin(connection: &Connection) -> Result<Option<Origin>, Error> {
    let mut select = connection.prepare_cached("SELECT installation, incarnation FROM origin")?;
    let found = select.query_row([], |row| {
        Ok(Origin { installation: row.get(0)?, incarnation: Incarnation(row.get(1)?) })
    });
    Ok(found.optional()?)
}

pub(super) fn set_origin(origin: &Origin) -> Upsert {
    let Origin { installation, incarnation } = origin;
    Upsert { sql: SET_ORIGIN, values: vec![installation.clone().into(), incarnation.0.into()] }
}

pub(super) fn positions(connection: &Connection) -> Result<Vec<Position>, Error> {
    let mut select = connection.prepare_cached("SELECT topic, partition, next FROM positions")?;
    let found = select.query_map([], |row| {
        let topic = Topic::named(&row.get::<_, String>(0)?);
        let (partition, next) = (Partition(row.get(1)?), row.get(2)?);
        Ok(topic.map(|topic| Position { topic, partition, next }))
    })?;
    let found = found.collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

pub(super) fn set_position(position: &Position) -> Upsert {
    let Position { topic, partition, next } = position;
    let topic = topic.name().to_owned();
    Upsert { sql: SET_POSITION, values: vec![topic.into(), partition.0.into(), (*next).into()] }
}
