//! A table against maps: random steps, committed and undone.

use std::collections::{BTreeMap, BTreeSet};

use schemas::DepositId;

use super::*;

/// Ids on the same page, at page borders, and far apart.
const IDS: [i64; 8] = [1, 2, 3, 1023, 1024, 5000, (7 << 40) | 1, i64::MAX];
/// Number of names: fewer than ids, so that rows collide.
const NAMES: u64 = 6;

#[derive(Debug, Clone, PartialEq)]
struct Named {
    id: DepositId,
    name: u64,
    due: u64,
}

impl Row for Named {
    type Key = DepositId;

    fn key(&self) -> DepositId {
        self.id
    }
}

#[derive(Debug, Clone, Default)]
struct Indexes {
    by_name: Lookup,
    by_due: BTreeSet<(u64, DepositId)>,
}

fn is_called(rows: &Rows<Named>, name: u64) -> impl Fn(RowNumber) -> bool {
    move |number| rows.get(number).is_some_and(|row| row.name == name)
}

impl Index<Named> for Indexes {
    const ROW: &'static str = "row";
    const INVARIANT: u8 = 1;

    fn update(
        &mut self,
        rows: &Rows<Named>,
        number: RowNumber,
        old: Option<&Named>,
        new: Option<&Named>,
    ) -> Result<(), Broken> {
        let due = |row: &Named| (row.due, row.id);
        let agrees = moved(&mut self.by_due, old.map(due), new.map(due));
        invariant!(1, agrees, "by due");
        if let Some(old) = old {
            invariant!(1, self.by_name.remove(&old.name, number), "by name");
        }
        if let Some(new) = new {
            let others = self.by_name.insert(&new.name, number, is_called(rows, new.name));
            invariant!(1, others.is_ok(), "two of a name");
        }
        Ok(())
    }
}

/// Expected content of a table.
type Model = BTreeMap<DepositId, Named>;

/// Checks that all indexes find exactly the rows.
fn check(table: &Table<Named, Indexes>, model: &Model) {
    assert_eq!(table.len(), model.len());
    assert_eq!(table.sorted(), model.values().collect::<Vec<_>>());
    for id in IDS.map(DepositId) {
        assert_eq!(table.get(id), model.get(&id), "by id");
    }
    for name in 0..NAMES {
        let found = table.index.by_name.find(&name, is_called(&table.rows, name));
        let expected = model.values().find(|row| row.name == name);
        assert_eq!(found.and_then(|number| table.rows.get(number)), expected, "by name");
    }
    let due: BTreeSet<_> = model.values().map(|row| (row.due, row.id)).collect();
    assert_eq!(table.index.by_due, due);
}

/// A number below `bound`, from a fixed sequence.
fn roll(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

#[test]
fn an_undone_step_leaves_nothing_behind() {
    let (mut table, mut model) = (Table::<Named, Indexes>::default(), Model::new());
    let mut dice = 1;
    for _ in 0..5_000 {
        let before = model.clone();
        let mut touched = BTreeSet::new();
        for _ in 0..roll(&mut dice, 8) {
            let id = DepositId(IDS[roll(&mut dice, IDS.len() as u64) as usize]);
            let (name, due) = (roll(&mut dice, NAMES), roll(&mut dice, 4));
            let is_free = model.values().all(|row| row.name != name || row.id == id);
            if roll(&mut dice, 3) == 0 {
                touched.extend(model.remove(&id).map(|row| row.id));
                table.remove(id).unwrap();
            } else if is_free {
                let row = Named { id, name, due };
                touched.insert(id);
                model.insert(id, row.clone());
                table.put(row).unwrap();
            }
            check(&table, &model);
        }
        let changes: Vec<_> = table.touched().collect();
        let expected: Vec<_> = touched.iter().map(|id| (*id, model.get(id))).collect();
        assert_eq!(changes, expected, "in the order of the keys, also those that came and went");
        if roll(&mut dice, 2) == 0 {
            table.commit();
        } else {
            model = before;
            table.undo().unwrap();
        }
        assert_eq!(table.touched().count(), 0);
        check(&table, &model);
    }
    for id in IDS.map(DepositId) {
        table.remove(id).unwrap();
    }
    table.commit();
    let mut numbers = Vec::new();
    for _ in IDS {
        let number = table.rows.give_number().unwrap();
        assert!(!numbers.contains(&number), "a number was taken back twice");
        numbers.push(number);
    }
}
