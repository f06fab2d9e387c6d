//! `tidemark tables prune`: removes old final rows from the tables, with a copy of each in a file.

use std::path::PathBuf;
use std::pin::pin;

use anyhow::ensure;
use clap::Args;
use runtime::{Clock, Readiness, SystemClock, telemetry};
use store::prune::{Day, Export, FileExport, Kept, Pruned, Removed, WithoutExport, prune};

use super::{Outcome, misuse};
use crate::back_end::open_tables;
use crate::output::say;
use crate::process;
use crate::settings::Settings;

/// The rows to remove, and their copy.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Remove what was created before this day of UTC, such as 2026-09-21, and is final. Yesterday at the latest.
    #[arg(long, value_name = "DAY", value_parser = past_day)]
    before: Day,
    /// Write each row to this new file before it is removed, as a line of JSON.
    #[arg(long, value_name = "FILE", value_parser = new_file, conflicts_with = "without_export")]
    export: Option<PathBuf>,
    /// Keep no copy.
    #[arg(long)]
    without_export: bool,
}

fn past_day(text: &str) -> Result<Day, String> {
    let day: Day = text.parse().map_err(|error: store::prune::NotADay| error.to_string())?;
    let today = Day::of(SystemClock.now().seconds());
    if day < today {
        return Ok(day);
    }
    Err(format!("must be in the past: {} at the latest", today.back(1)))
}

fn new_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.try_exists() {
        Ok(false) => Ok(path),
        Ok(true) => Err("is there already; name a new file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Removes the rows, day by day.
///
/// # Errors
/// Neither `--export` nor `--without-export` is given; or a failure of tables or
/// file, after which it can be run again.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    let Options { before, export, without_export } = options;
    if export.is_none() && !without_export {
        let what =
            "--export: name a file that gets a copy of each row that goes, or say --without-export";
        return Err(misuse(what));
    }
    settings.check_tables()?;
    telemetry::init_log(&settings.telemetry)?;
    if let store::config::BackEnd::Embedded = &settings.store {
        let dir = settings.process.data_dir.display();
        ensure!(
            store::embedded::are_in(&settings.process.data_dir),
            "there are no tables in {dir}"
        );
    }
    let tables = open_tables(&settings, &Readiness::default()).await?;
    let file = export.map(FileExport::to);
    let export: &dyn Export = file.as_ref().map_or(&WithoutExport, |file| file);
    let (mut last, mut all) = (None, Pruned::default());
    let work = prune(&*tables, before, &SystemClock, export, |day, pruned| {
        if pruned != Pruned::default() {
            say(&format!("{day}: {}", text(pruned)));
        }
        last = Some(day);
        all += pruned;
    });
    let ended = tokio::select! {
        ended = work => Some(ended),
        () = pin!(process::stop_signal()) => None,
    };
    let is_complete = matches!(ended, Some(Ok(_)));
    let mut lines = Vec::new();
    if is_complete {
        lines.push(format!("before {before}: {}", text(all)));
    } else {
        let until = last.map_or_else(String::new, |day: Day| format!(" up to {day}"));
        say(&format!("stopped{until}: {}. Run it again, with a new file", text(all)));
    }
    if let Some(path) = file.as_ref().and_then(FileExport::path) {
        lines.push(format!("each row that went is in {}", path.display()));
    }
    if let Some(ended) = ended {
        ended?;
    }
    Ok(Outcome { lines, is_success: is_complete })
}

/// The counts in words.
fn text(Pruned { removed, kept }: Pruned) -> String {
    let Removed { orders, deposits, transfers, attempts } = removed;
    let mut text = format!(
        "removed {orders} orders, {deposits} closed deposits, {transfers} transfers, {attempts} webhook attempts"
    );
    let Kept { pending, open, waiting, unreadable, busy } = kept;
    let mut joint = "; kept ";
    for (count, what) in [
        (pending, "pending orders"),
        (open, "orders with an open deposit"),
        (waiting, "transfers that wait"),
        (unreadable, "rows of a newer version"),
        (busy, "lists or rows that were written a moment ago"),
    ] {
        if count > 0 {
            text += &format!("{joint}{count} {what}");
            joint = ", ";
        }
    }
    text
}
