//! The records emitted to a partition, matched one by one with the replayed ones.
//!
//! Several machines may write to a partition. A replay takes their steps in time order, which is nearly that of the
//! records: a record is searched for near the last one found.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use log::{NewRecord, Offset, Record};
use processor::replay::{is_output, is_shared};

use super::identity::identity;
use super::pages::Pages;

/// Maximum distance of a searched record from the last one found, in offsets: more than all
/// machines write to one partition while one of them makes a step.
const WINDOW: i64 = 100_000;

/// Result of the search for a record that the replay made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its key and value were emitted, byte for byte.
    Same,
    /// This was emitted in its place.
    Different(Arc<Record>),
    Missing,
}

pub(super) struct Line {
    pages: Pages,
    /// Offsets to compare: records outside may follow from steps before or after the replay.
    judged: Range<Offset>,
    /// Emitted records that the replay has not made yet.
    pending: BTreeMap<Offset, Arc<Record>>,
    by_content: HashMap<u64, Vec<Offset>>,
    by_identity: HashMap<String, Vec<Offset>>,
    /// Last offset of the pending records that `by_identity` has.
    identified: Offset,
    /// Offset after the last record found, advanced by one for each missing one: the search window begins here.
    passed: Offset,
}

impl Line {
    pub(super) fn new(pages: Pages, judged: Range<Offset>, pending: Vec<Arc<Record>>) -> Self {
        let passed = pages.position();
        let mut line = Self {
            pages,
            judged,
            pending: BTreeMap::new(),
            by_content: HashMap::new(),
            by_identity: HashMap::new(),
            identified: Offset(-1),
            passed,
        };
        pending.into_iter().for_each(|record| line.insert(record));
        line
    }

    /// Extends the line to `end`: all outputs of the replayed steps are before it.
    pub(super) fn extend(&mut self, end: Offset) {
        self.pages.extend(end);
    }

    /// Finds the emitted record for a replayed one. Adds records without a step to `extra`.
    pub(super) fn find(
        &mut self,
        made: &NewRecord,
        extra: &mut Vec<Arc<Record>>,
    ) -> anyhow::Result<Found> {
        if let Some(offset) = self.pending_same(made) {
            self.remove(offset);
            self.evict(extra);
            return Ok(Found::Same);
        }
        let ahead = Offset(self.passed.0.saturating_add(WINDOW));
        while self.pages.position() < ahead
            && let Some(record) = self.pages.take()?
        {
            if is_same(made, &record) {
                self.passed = record.offset.next();
                self.evict(extra);
                return Ok(Found::Same);
            }
            if is_output(&record) {
                self.insert(record);
            }
        }
        let wanted = identity(made.to.topic, made.value.as_deref());
        self.identify();
        let places = self.by_identity.get(&wanted);
        let place = places.and_then(|places| self.first_pending(places));
        let found = place.and_then(|offset| self.remove(offset));
        if found.is_none() {
            // Advances the window, which a series of missing records would keep in place.
            self.passed = self.passed.next();
        }
        self.evict(extra);
        Ok(found.map_or(Found::Missing, Found::Different))
    }

    /// Reads on until `is_over`. Records that `is_young`, or past the compared range, remain pending. Others in the
    /// range that no step made are added to `extra`, except resolved alerts, which operators write too.
    pub(super) fn finish(
        &mut self,
        is_over: impl Fn(&Record) -> bool,
        is_young: impl Fn(&Record) -> bool,
        extra: &mut Vec<Arc<Record>>,
    ) -> anyhow::Result<()> {
        let mut left: Vec<_> = std::mem::take(&mut self.pending).into_values().collect();
        while self.pages.peek()?.is_some_and(|record| !is_over(record)) {
            left.extend(self.pages.take()?.filter(|record| is_output(record)));
        }
        for record in left {
            if record.offset >= self.judged.end || is_young(&record) {
                self.pending.insert(record.offset, record);
            } else if record.offset >= self.judged.start && !is_shared(&record) {
                extra.push(record);
            }
        }
        Ok(())
    }

    /// The next offset to read, and the records before it that are pending.
    pub(super) fn position(&self) -> (Offset, Vec<Offset>) {
        (self.pages.position(), self.pending.keys().copied().collect())
    }

    /// First offset that is compared.
    pub(super) fn judged_from(&self) -> Offset {
        self.judged.start
    }

    fn insert(&mut self, record: Arc<Record>) {
        let content = content(&record.key, record.value.as_deref());
        self.by_content.entry(content).or_default().push(record.offset);
        self.pending.insert(record.offset, record);
    }

    fn remove(&mut self, offset: Offset) -> Option<Arc<Record>> {
        let record = self.pending.remove(&offset)?;
        let content = content(&record.key, record.value.as_deref());
        if let Some(places) = self.by_content.get_mut(&content) {
            places.retain(|place| *place != offset);
            if places.is_empty() {
                self.by_content.remove(&content);
            }
        }
        if offset >= self.passed {
            self.passed = offset.next();
        }
        Some(record)
    }

    fn pending_same(&self, made: &NewRecord) -> Option<Offset> {
        if self.pending.is_empty() {
            return None;
        }
        let places = self.by_content.get(&content(&made.key, made.value.as_deref()))?;
        let is_same =
            |offset: &&Offset| self.pending.get(offset).is_some_and(|record| is_same(made, record));
        places.iter().find(is_same).copied()
    }

    fn first_pending(&self, places: &[Offset]) -> Option<Offset> {
        places.iter().find(|offset| self.pending.contains_key(offset)).copied()
    }

    /// Evicts pending records far behind the last one found into `extra`: no later step can have emitted them.
    fn evict(&mut self, extra: &mut Vec<Arc<Record>>) {
        let behind = Offset(self.passed.0.saturating_sub(WINDOW)).min(self.judged.end);
        while let Some((offset, _)) = self.pending.first_key_value()
            && *offset < behind
        {
            let offset = *offset;
            let record = self.remove(offset);
            let is_extra = |record: &Arc<Record>| offset >= self.judged.start && !is_shared(record);
            extra.extend(record.filter(is_extra));
        }
    }

    fn identify(&mut self) {
        if self.by_identity.len() > self.pending.len().saturating_mul(2) {
            self.by_identity.clear();
            self.identified = Offset(-1);
        }
        for (offset, record) in self.pending.range(self.identified.next()..) {
            let identity = identity(record.from.topic, record.value.as_deref());
            self.by_identity.entry(identity).or_default().push(*offset);
            self.identified = *offset;
        }
    }
}

fn is_same(made: &NewRecord, record: &Record) -> bool {
    made.value == record.value && made.key == record.key
}

fn content(key: &[u8], value: Option<&[u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}
