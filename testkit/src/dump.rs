//! The tables in CQL as they are: each column of each row, and when it was written.

use std::collections::BTreeMap;

use scylla::client::session_builder::SessionBuilder;
use scylla::value::CqlValue;

/// Every row of every table, its write times too.
pub type Dump = BTreeMap<String, Vec<String>>;

/// What a keyspace has, but for what it says of itself.
pub async fn dump(node: &str, keyspace: &str) -> Dump {
    let session =
        SessionBuilder::new().known_node(node).fetch_schema_metadata(false).build().await.unwrap();
    let columns = "SELECT table_name, column_name, kind FROM system_schema.columns \
                   WHERE keyspace_name = ?";
    let answer = session.query_unpaged(columns, (keyspace,)).await.unwrap();
    let answer = answer.into_rows_result().unwrap();
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for column in answer.rows::<(String, String, String)>().unwrap() {
        let (table, column, kind) = column.unwrap();
        let selected = tables.entry(table).or_default();
        selected.push(column.clone());
        if kind == "regular" {
            selected.push(format!("writetime({column})"));
        }
    }
    let mut dump = Dump::new();
    // What it says is about the keyspace and not about the shop.
    tables.remove("migrations").expect("it was migrated");
    for (table, columns) in tables {
        let query = format!("SELECT {} FROM {keyspace}.{table}", columns.join(", "));
        let answer = session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
        let rows = answer.rows::<scylla::value::Row>().unwrap();
        let row = |row: scylla::value::Row| -> String {
            let values: Vec<Option<CqlValue>> = row.columns;
            format!("{values:?}")
        };
        let mut rows: Vec<_> = rows.map(|found| row(found.unwrap())).collect();
        rows.sort();
        dump.insert(table, rows);
    }
    dump
}

/// They are the same, or it says where not.
pub fn assert_same(before: &Dump, after: &Dump, what: &str) {
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{what}");
    for (table, rows) in before {
        let after = &after[table];
        let differs = rows.iter().zip(after).find(|(before, after)| before != after);
        assert_eq!(differs, None, "{what}: a row of {table}");
        assert_eq!(rows.len(), after.len(), "{what}: rows of {table}");
    }
}
