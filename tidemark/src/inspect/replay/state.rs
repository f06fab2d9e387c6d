//! Saved state of a replay: position and entries of each machine, and compared offsets.
//!
//! One file: a line of JSON, then the rows of each machine, each as the length and the bytes of its key and of its
//! entry as the changelog has it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use log::{Offset, TopicPartition};
use schemas::{Layout, Partition, Topic};
use serde_json::{Map, Value, json};

use super::driver::{Position, Rows};
use crate::back_end::data_folder;

const FILE: &str = "state";
/// Name of the file until it is whole.
const FILE_NEW: &str = "state.new";
const FORMAT: i64 = 1;
/// Mode of the file, for the owner alone: it contains orders and transfers.
const MODE: u32 = 0o600;
/// Maximum length of a key or an entry; a longer one is damage.
const BYTES_MAX: u32 = 16 * 1024 * 1024;

/// Identity of the log that a state was taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) installation: String,
    /// Changes with each restore.
    pub(super) incarnation: i64,
    pub(super) layout: Layout,
}

/// A machine, by its group and partition.
pub(super) type MachineName = (String, Partition);

/// Progress of the comparison of a partition's records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) next: Offset,
    /// First record to judge: earlier ones may be outputs of steps before the state.
    pub(super) judged_from: Offset,
    /// Emitted records before `next` that the replay has not made yet.
    pub(super) pending: Vec<Offset>,
}

/// Content of the saved file that the module describes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) machines: BTreeMap<MachineName, (Position, Rows)>,
    pub(super) outputs: BTreeMap<TopicPartition, Compared>,
}

/// `true` if the folder has a state.
pub(super) fn is_in(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

impl State {
    /// Replaces the state in the folder, atomically.
    pub(super) fn save(&self, dir: &Path, origin: &Origin) -> anyhow::Result<()> {
        let write = || {
            data_folder::prepare(dir)?;
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(MODE);
            let mut writer = BufWriter::new(file.open(dir.join(FILE_NEW))?);
            writeln!(writer, "{}", self.header(origin))?;
            for (key, entry) in self.machines.values().flat_map(|(_, rows)| rows) {
                for part in [key.as_bytes(), entry] {
                    let length = u32::try_from(part.len()).map_err(std::io::Error::other)?;
                    writer.write_all(&length.to_le_bytes())?;
                    writer.write_all(part)?;
                }
            }
            writer.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
            std::fs::rename(dir.join(FILE_NEW), dir.join(FILE))?;
            File::open(dir)?.sync_all()
        };
        write().with_context(|| format!("the state cannot be saved in {}", dir.display()))
    }

    /// Loads the state in the folder; fails if there is none, or it is damaged, of another format or of another log.
    pub(super) fn load(dir: &Path, origin: &Origin) -> anyhow::Result<Self> {
        let read = || {
            let mut reader = BufReader::new(File::open(dir.join(FILE))?);
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let header: Value = serde_json::from_str(&line)?;
            ensure!(
                number(&header, "format")? == FORMAT,
                "another version of this program wrote it"
            );
            check(&header, origin)?;
            let mut state = Self::default();
            for machine in list(&header, "machines")? {
                let mut rows = Rows::new();
                for _ in 0..number(machine, "rows")? {
                    rows.push((String::from_utf8(part(&mut reader)?)?, part(&mut reader)?));
                }
                let name = (text(machine, "machine")?.to_owned(), partition(machine)?);
                state.machines.insert(name, (position(machine)?, rows));
            }
            ensure!(reader.read(&mut [0])? == 0, "it is longer than it says");
            for output in list(&header, "outputs")? {
                let topic = topic(text(output, "topic")?)?;
                let of = TopicPartition { topic, partition: partition(output)? };
                state.outputs.insert(of, compared(output)?);
            }
            anyhow::Ok(state)
        };
        read().with_context(|| format!("the state in {} cannot be used", dir.display()))
    }

    fn header(&self, origin: &Origin) -> Value {
        let machines = self.machines.iter().map(|((group, partition), (position, rows))| {
            let inputs: Map<_, _> = position
                .inputs
                .iter()
                .map(|(topic, next)| (topic.name().to_owned(), next.0.into()))
                .collect();
            json!({
                "machine": group, "partition": partition.0, "steps": position.steps.0,
                "inputs": inputs, "rows": rows.len(),
            })
        });
        let outputs = self.outputs.iter().map(|(of, compared)| {
            let pending: Vec<_> = compared.pending.iter().map(|offset| offset.0).collect();
            json!({
                "topic": of.topic.name(), "partition": of.partition.0, "next": compared.next.0,
                "judged_from": compared.judged_from.0, "pending": pending,
            })
        });
        json!({
            "format": FORMAT,
            "installation": origin.installation,
            "incarnation": origin.incarnation,
            "layout": layout(origin),
            "program": env!("CARGO_PKG_VERSION"),
            "machines": machines.collect::<Vec<_>>(),
            "outputs": outputs.collect::<Vec<_>>(),
        })
    }
}

fn layout(origin: &Origin) -> Value {
    let Layout { lanes, orders, webhooks } = origin.layout;
    json!([lanes, orders, webhooks])
}

fn check(header: &Value, origin: &Origin) -> anyhow::Result<()> {
    let installation = text(header, "installation")?;
    ensure!(
        installation == origin.installation,
        "it is of the installation {installation:?}, and this is {:?}",
        origin.installation
    );
    ensure!(
        number(header, "incarnation")? == origin.incarnation,
        "it is older than the last restore of the log: take another one with --now"
    );
    ensure!(
        header.get("layout") == Some(&layout(origin)),
        "the configuration has another number of lanes or partitions"
    );
    Ok(())
}

fn part(reader: &mut impl Read) -> anyhow::Result<Vec<u8>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > BYTES_MAX {
        bail!("it is damaged");
    }
    let mut part = Vec::new();
    let read = reader.take(u64::from(length)).read_to_end(&mut part)?;
    ensure!(u32::try_from(read) == Ok(length), "it is cut off");
    Ok(part)
}

fn compared(output: &Value) -> anyhow::Result<Compared> {
    let pending = list(output, "pending")?.iter().filter_map(Value::as_i64).map(Offset);
    Ok(Compared {
        next: Offset(number(output, "next")?),
        judged_from: Offset(number(output, "judged_from")?),
        pending: pending.collect(),
    })
}

fn position(machine: &Value) -> anyhow::Result<Position> {
    let inputs = machine.get("inputs").and_then(Value::as_object).context("it has no inputs")?;
    let input = |(name, next): (&String, &Value)| {
        anyhow::Ok((topic(name)?, Offset(next.as_i64().context("an offset is no number")?)))
    };
    let inputs = inputs.iter().map(input).collect::<Result<_, _>>()?;
    Ok(Position { steps: Offset(number(machine, "steps")?), inputs })
}

fn partition(of: &Value) -> anyhow::Result<Partition> {
    Ok(Partition(u32::try_from(number(of, "partition")?)?))
}

fn topic(name: &str) -> anyhow::Result<Topic> {
    Topic::named(name).with_context(|| format!("it names the topic {name:?}"))
}

fn number(of: &Value, name: &str) -> anyhow::Result<i64> {
    of.get(name).and_then(Value::as_i64).with_context(|| format!("it has no {name}"))
}

fn text<'a>(of: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    of.get(name).and_then(Value::as_str).with_context(|| format!("it has no {name}"))
}

fn list<'a>(of: &'a Value, name: &str) -> anyhow::Result<&'a [Value]> {
    let list = of.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice).with_context(|| format!("it has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        let layout = Layout { lanes: 2, orders: 3, webhooks: 1 };
        Origin { installation: "one".to_owned(), incarnation: 0, layout }
    }

    fn example() -> State {
        let inputs = [(Topic::TransfersRaw, Offset(7)), (Topic::DepositsCommands, Offset(2))];
        let position = Position { steps: Offset(5), inputs: inputs.into() };
        let rows = vec![("lane".to_owned(), vec![0, 1, 255]), ("d/1".to_owned(), Vec::new())];
        let name = ("processor.matching".to_owned(), Partition(3));
        let of = TopicPartition { topic: Topic::Orders, partition: Partition(1) };
        let pending = vec![Offset(4), Offset(6)];
        let compared = Compared { next: Offset(9), judged_from: Offset(8), pending };
        State { machines: [(name, (position, rows))].into(), outputs: [(of, compared)].into() }
    }

    fn refusal(dir: &Path, origin: &Origin) -> String {
        format!("{:#}", State::load(dir, origin).unwrap_err())
    }

    #[test]
    fn it_reads_back_and_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("replay");
        assert!(refusal(&folder, &origin()).contains("cannot be used"));
        State::default().save(&folder, &origin()).unwrap();
        example().save(&folder, &origin()).unwrap();
        assert_eq!(State::load(&folder, &origin()).unwrap(), example());
        assert!(is_in(&folder) && !folder.join(FILE_NEW).exists());
    }

    #[test]
    fn what_is_damaged_or_of_another_log_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        example().save(dir.path(), &origin()).unwrap();
        let elsewhere = Origin { installation: "two".to_owned(), ..origin() };
        assert!(refusal(dir.path(), &elsewhere).contains("of the installation \"one\""));
        let restored = Origin { incarnation: 9, ..origin() };
        assert!(refusal(dir.path(), &restored).contains("older than the last restore"));
        let other = Origin { layout: Layout { lanes: 1, ..origin().layout }, ..origin() };
        assert!(refusal(dir.path(), &other).contains("another number of lanes"));
        let whole = std::fs::read(dir.path().join(FILE)).unwrap();
        for length in 0..whole.len() {
            std::fs::write(dir.path().join(FILE), &whole[..length]).unwrap();
            State::load(dir.path(), &origin()).unwrap_err();
        }
        std::fs::write(dir.path().join(FILE), [&whole[..], b"x"].concat()).unwrap();
        assert!(refusal(dir.path(), &origin()).contains("longer than it says"));
        let at = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let too_long = [&whole[..at], &(BYTES_MAX + 1).to_le_bytes()].concat();
        std::fs::write(dir.path().join(FILE), too_long).unwrap();
        assert!(refusal(dir.path(), &origin()).contains("damaged"));
    }
}
