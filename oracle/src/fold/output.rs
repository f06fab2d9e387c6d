//! The outputs on the log, by the machine that wrote them.

use std::collections::HashMap;
use std::sync::Arc;

use log::{NewRecord, Record, TopicPartition};
use processor::machine::orders;
use processor::replay::is_output;
use processor::wire::Wire;
use schemas::record::{
    Alert, ChainBody, ChainProgress, ChainRecord, DeadLetter, Deposit, DepositCommand,
    DepositCommandBody, MatchingEntry, Order, OrderCommand, OrderCommandBody, OrdersEntry,
    Transfer,
};
use schemas::{Address, CommandId, OrderId, Partition, SchemaName, Topic};

use super::reading::{Reading, is_changelog, is_steps};
use super::{Flaw, FlawKind, Position};

/// The machine that wrote a record: matching or orders, and its partition. Its records in one partition form a line,
/// even if several processes wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Author {
    is_orders: bool,
    partition: Partition,
}

impl Author {
    pub(super) fn of<M: Wire>(partition: Partition) -> Self {
        Self { is_orders: M::GROUP == orders::State::GROUP, partition }
    }

    fn lane(partition: Partition) -> Self {
        Self { is_orders: false, partition }
    }

    fn orders(partition: Partition) -> Self {
        Self { is_orders: true, partition }
    }
}

#[derive(Debug, Default)]
pub(super) struct Outputs {
    lines: HashMap<(Author, TopicPartition), Vec<Arc<Record>>>,
    count: usize,
}

/// Number of explained records in each line of a machine.
pub(super) type Fronts = HashMap<TopicPartition, usize>;

impl Outputs {
    /// Finds the author of every output.
    ///
    /// # Errors
    /// An output that no machine can have written.
    pub(super) fn of(reading: &Reading) -> Result<Self, Flaw> {
        let authors = Authors::of(reading);
        let mut outputs = Self::default();
        let has_outputs = |of: &TopicPartition| {
            of.topic != Topic::TransfersRaw && !is_changelog(of.topic) && !is_steps(of.topic)
        };
        for of in reading.partitions().filter(has_outputs) {
            for record in reading.records(of).iter().filter(|record| is_output(record)) {
                let author = authors.author(record).ok_or_else(|| {
                    let what = brief(of.topic, record.value.as_deref());
                    let text = format!("{} is of no machine: {what}", position(record));
                    Flaw::new(FlawKind::Foreign, text)
                })?;
                outputs.lines.entry((author, of)).or_default().push(record.clone());
                outputs.count += 1;
            }
        }
        Ok(outputs)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn line(&self, author: Author, of: TopicPartition) -> &[Arc<Record>] {
        self.lines.get(&(author, of)).map_or(&[], Vec::as_slice)
    }

    /// Compares the expected records with the next ones of an author's lines. Returns their positions.
    pub(super) fn pass(
        &self,
        author: Author,
        fronts: &mut Fronts,
        input: Position,
        expected: &[NewRecord],
    ) -> Result<Vec<Position>, Flaw> {
        let next = |expected: &NewRecord| {
            let line = self.line(author, expected.to);
            let front = fronts.entry(expected.to).or_default();
            if let Some(flaw) = difference(input, expected, line, *front) {
                return Err(flaw);
            }
            *front += 1;
            Ok(position(&line[*front - 1]))
        };
        expected.iter().map(next).collect()
    }

    /// The first record of an author that follows from none of its inputs, and an equal record before it, if any.
    pub(super) fn left(
        &self,
        author: Author,
        fronts: &Fronts,
    ) -> Option<(&Record, Option<&Record>)> {
        let lines = self.lines.iter().filter(|((of, _), _)| *of == author);
        let left = lines.filter_map(|((_, partition), line)| {
            let front = fronts.get(partition).copied().unwrap_or_default();
            let record = line.get(front)?;
            let is_same = |earlier: &&Arc<Record>| {
                (&earlier.key, &earlier.value) == (&record.key, &record.value)
            };
            Some((&**record, line[..front].iter().find(is_same).map(|earlier| &**earlier)))
        });
        left.min_by_key(|(record, _)| position(record))
    }
}

/// Indexes to find the author of a record that does not name its machine.
struct Authors<'a> {
    reading: &'a Reading,
    /// Requested lane of a deposit, by order, slot and wallet.
    asked: HashMap<(OrderId, i32, Address), Partition>,
    /// The lane that opened a deposit, by order and slot.
    opened: HashMap<(OrderId, i32), Partition>,
    /// Lane of an attach, by the operator's command.
    attaching: HashMap<CommandId, Partition>,
}

impl<'a> Authors<'a> {
    fn of(reading: &'a Reading) -> Self {
        let (asked, opened, attaching) = Default::default();
        let mut authors = Self { reading, asked, opened, attaching };
        for of in reading.partitions() {
            for record in reading.records(of) {
                if let (Topic::DepositsCommands, Some(command)) =
                    (of.topic, record.read::<DepositCommand>().ok())
                {
                    if let DepositCommandBody::Attach(attach) = &command.body {
                        authors.attaching.insert(attach.command_id, of.partition);
                        continue;
                    }
                    let asked = (command.order_id, command.slot, command.wallet_address);
                    authors.asked.insert(asked, of.partition);
                } else if let (Topic::OrdersCommands, Some(command)) =
                    (of.topic, record.read::<OrderCommand>().ok())
                    && let OrderCommandBody::DepositOpened { slot, deposit_id, .. } = command.body
                {
                    authors.opened.insert((command.order_id, slot), deposit_id.partition());
                }
            }
        }
        authors
    }

    fn author(&self, record: &Record) -> Option<Author> {
        let partition = record.from.partition;
        match record.from.topic {
            Topic::Orders => Some(Author::orders(partition)),
            Topic::DepositsCommands => {
                let order_id = record.read::<DepositCommand>().ok()?.order_id;
                Some(Author::orders(self.reading.layout().order(&order_id.to_string())))
            }
            Topic::OrdersCommands => self.of_order_command(&record.read().ok()?).map(Author::lane),
            Topic::Chains => {
                let lane = record.read::<ChainProgress>().ok()?.lane?;
                Some(Author::lane(Partition(lane.cast_unsigned())))
            }
            Topic::Alerts => self.of_alert(&record.read().ok()?).map(Author::lane),
            Topic::DeadLetters => {
                let letter: DeadLetter = record.read().ok()?;
                let is_orders = letter.group == orders::State::GROUP;
                let partition = Partition(u32::try_from(letter.partition).ok()?);
                Some(Author { is_orders, partition })
            }
            _ => Some(Author::lane(partition)),
        }
    }

    fn of_order_command(&self, command: &OrderCommand) -> Option<Partition> {
        use OrderCommandBody as Body;
        let order_id = command.order_id;
        match command.body {
            Body::DepositOpened { deposit_id, .. } => Some(deposit_id.partition()),
            Body::DepositRefused { slot, wallet_address, .. } => {
                self.asked.get(&(order_id, slot, wallet_address)).copied()
            }
            Body::DepositClosed { slot, .. } => self.opened.get(&(order_id, slot)).copied(),
            Body::CandidateSeen { transfer_id } | Body::CandidateGone { transfer_id } => {
                Some(transfer_id.partition())
            }
            Body::Settle(settle) => Some(settle.transfer_id.partition()),
            Body::Attach(attach, _) => Some(attach.transfer_id.partition()),
            Body::AttachRefused(_) => self.attaching.get(&command.command_id?).copied(),
            Body::Create(_)
            | Body::ChoosePayment(_)
            | Body::Cancel
            | Body::MarkPaid(_)
            | Body::ResendWebhook(_)
            | Body::Tick => None,
        }
    }

    /// Finds the lane of an alert by its transfer's id, else by its text: one about a head begins with the lane, one
    /// about a deposit without an amount quotes the wallet, any other transaction and value.
    fn of_alert(&self, alert: &Alert) -> Option<Partition> {
        let quoted = |record: &Arc<Record>| {
            let Some(ChainBody::Transfer(seen)) = record.read().ok().map(|r: ChainRecord| r.body)
            else {
                return false;
            };
            let quotes = [seen.tx_hash.to_string(), format!("{} {}", seen.value, seen.stablecoin)];
            quotes.iter().all(|quote| alert.message.contains(quote))
        };
        let blockchain = alert.blockchain?;
        let lanes = || self.reading.layout().lanes_of(blockchain);
        let asked = |lane: &Partition| {
            self.asked.iter().any(|((order, _, wallet), of)| {
                of == lane
                    && alert.order_id == Some(*order)
                    && alert.message.contains(&wallet.to_string())
            })
        };
        let observed = |lane: &Partition| {
            let raw = TopicPartition { topic: Topic::TransfersRaw, partition: *lane };
            self.reading.records(raw).iter().any(quoted)
        };
        let begins = |lane: &Partition| alert.message.starts_with(&format!("lane {lane}: "));
        let named = alert.transfer_id.map(schemas::TransferId::partition);
        let named = named.or_else(|| lanes().find(begins));
        named.or_else(|| lanes().find(asked)).or_else(|| lanes().find(observed))
    }
}

pub(super) fn position(record: &Record) -> Position {
    Position { of: record.from, offset: record.offset }
}

/// Returns the flaw of the next record of a line, if it is not the expected one.
fn difference(
    input: Position,
    expected: &NewRecord,
    line: &[Arc<Record>],
    front: usize,
) -> Option<Flaw> {
    let is = |there: &Arc<Record>| {
        (&there.key, &there.value, &there.headers)
            == (&expected.key, &expected.value, &expected.headers)
    };
    let topic = expected.to.topic;
    let wanted = brief(topic, expected.value.as_deref());
    let Some(there) = line.get(front) else {
        let text = format!("what follows from {input} is not on {}: {wanted}", expected.to);
        return Some(Flaw::new(FlawKind::Lost, text));
    };
    if is(there) {
        return None;
    }
    let at = position(there);
    let same = |earlier: &Arc<Record>| (&earlier.key, &earlier.value) == (&there.key, &there.value);
    if let Some(first) = line[..front].iter().find(|earlier| same(earlier)) {
        let what = brief(topic, there.value.as_deref());
        let text = format!("{what} is written twice, at {} and at {at}", position(first));
        return Some(Flaw::new(FlawKind::Doubled, text));
    }
    if let Some(later) = line[front..].iter().find(|later| is(later)) {
        let text = format!("{at} comes before {}, which follows from {input}", position(later));
        return Some(Flaw::new(FlawKind::Disordered, text));
    }
    let is_alteration = is_alteration(topic, expected.value.as_deref(), there.value.as_deref());
    if there.key != expected.key || !is_alteration {
        let text = format!("what follows from {input} is not on {} at {at}: {wanted}", expected.to);
        return Some(Flaw::new(FlawKind::Lost, text));
    }
    let made = changed(topic, expected.value.as_deref(), there.value.as_deref());
    Some(Flaw::new(FlawKind::Changed, format!("what follows from {input} at {at}: {made}")))
}

/// `true` if `altered` is `record` with at most two fields changed, still readable and of the same machine; in a
/// changelog, if the value is changed at all.
pub(crate) fn is_altered(reading: &Reading, record: &Record, altered: &Record) -> bool {
    let (topic, authors) = (record.from.topic, Authors::of(reading));
    let [before, after] = [record, altered].map(|record| record.value.as_deref());
    is_changelog(topic) && before != after
        || is_alteration(topic, before, after) && authors.author(record) == authors.author(altered)
}

/// `true` if the machine's next output in this partition is this one with at most two fields changed.
pub(crate) fn is_before_similar(reading: &Reading, records: &[Arc<Record>], at: usize) -> bool {
    let (authors, record) = (Authors::of(reading), &records[at]);
    let author = authors.author(record);
    let mut later = records[at + 1..].iter().filter(|later| is_output(later));
    let next = later.find(|later| authors.author(later) == author);
    next.is_some_and(|next| {
        let [value, next_value] = [record, next].map(|record| record.value.as_deref());
        record.key == next.key && is_alteration(record.from.topic, value, next_value)
    })
}

/// `true` if `there` is the expected value with at most two fields changed, not another record.
fn is_alteration(topic: Topic, expected: Option<&[u8]>, there: Option<&[u8]>) -> bool {
    let [wanted, found] = [expected, there].map(|value| describe(topic, value));
    let (wanted, found): (Vec<_>, Vec<_>) = (wanted.lines().collect(), found.lines().collect());
    let differing = wanted.iter().zip(&found).filter(|(wanted, found)| wanted != found).count();
    wanted.len() == found.len() && differing <= 2
}

/// The first three lines in which two values of a topic differ.
pub(super) fn changed(topic: Topic, wanted: Option<&[u8]>, found: Option<&[u8]>) -> String {
    let [wanted, found] = [wanted, found].map(|value| describe(topic, value));
    let lines = wanted.lines().zip(found.lines()).filter(|(wanted, found)| wanted != found);
    let lines: Vec<_> = lines
        .take(3)
        .map(|(wanted, found)| format!("{} where {} follows", found.trim(), wanted.trim()))
        .collect();
    format!("it says {}", lines.join(" "))
}

/// A value as one line of at most 24 words.
pub(super) fn brief(topic: Topic, value: Option<&[u8]>) -> String {
    let words: Vec<_> =
        describe(topic, value).split_whitespace().take(24).map(str::to_owned).collect();
    words.join(" ")
}

/// A value as text, one field a line.
fn describe(topic: Topic, value: Option<&[u8]>) -> String {
    fn show<R: schemas::record::Record + std::fmt::Debug>(value: &[u8]) -> String {
        schemas::decode::<R>(value)
            .map_or_else(|error| format!("unreadable: {error}"), |record| format!("{record:#?}"))
    }
    let Some(value) = value else { return "nothing".to_owned() };
    match topic.spec().schema {
        SchemaName::Order => show::<Order>(value),
        SchemaName::Deposit => show::<Deposit>(value),
        SchemaName::Transfer => show::<Transfer>(value),
        SchemaName::OrderCommand => show::<OrderCommand>(value),
        SchemaName::DepositCommand => show::<DepositCommand>(value),
        SchemaName::Alert => show::<Alert>(value),
        SchemaName::ChainProgress => show::<ChainProgress>(value),
        SchemaName::DeadLetter => show::<DeadLetter>(value),
        SchemaName::MatchingEntry => show::<MatchingEntry>(value),
        SchemaName::OrdersEntry => show::<OrdersEntry>(value),
        _ => format!("{} bytes", value.len()),
    }
}
