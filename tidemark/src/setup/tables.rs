//! `tidemark tables rebuild`: rebuilds the tables from the log.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use log::Log;
use projector::Verified;
use runtime::{Readiness, telemetry};
use store::config::{BackEnd, CqlConfig, check_keyspace};
use store::cql::CqlStore;
use store::embedded::{EmbeddedStore, FILE, Kept, Replacement, are_in, create_dropped};
use store::{Defect, Store};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Different, Outcome, misuse};
use crate::back_end::{data_folder, fit, open_existing_log, open_tables};
use crate::output::{Progress, print};
use crate::process::stop_signal;
use crate::settings::Settings;

/// Characters of a full bar.
const BAR: u64 = 30;
pub(super) const INTERRUPTED: &str = "interrupted: run it again, from the beginning";

/// The place of the new tables.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// CQL: make new tables in this keyspace, with the rows of the present one and of the log, and keep them up with
    /// the log until SIGINT or SIGTERM.
    #[arg(long, value_name = "KEYSPACE")]
    into: Option<String>,
}

/// Rebuilds the tables: embedded ones in a new file, which replaces the old one when complete; on CQL in place, or in
/// another keyspace.
///
/// # Errors
/// `--into` does not fit the tables; rows differ afterwards ([`Different`]); or log or tables failed, or a stop came.
pub(crate) async fn rebuild(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    settings.check_tables()?;
    let work = match (&settings.store, options.into) {
        (BackEnd::Embedded, Some(_)) => {
            return Err(misuse(
                "--into: is for store.backend = \"cql\"; embedded tables are replaced when the new ones are complete",
            ));
        }
        (BackEnd::Cql(old), Some(into)) if old.keyspace == into => {
            return Err(misuse(
                "--into: store.keyspace is this keyspace already; without --into it is made again in place",
            ));
        }
        (BackEnd::Cql(_), Some(into)) if let Err(problem) = check_keyspace(&into) => {
            return Err(misuse(format!("--into: {problem}")));
        }
        (BackEnd::Embedded, None) => Work::Replace,
        (BackEnd::Cql(_), None) => Work::InPlace,
        (BackEnd::Cql(old), Some(into)) => {
            let mut new = old.clone();
            new.keyspace = into;
            Work::Into(Box::new([old.clone(), new]))
        }
    };
    telemetry::init_log(&settings.telemetry)?;
    let readiness = Readiness::default();
    let log = open_existing_log(&settings, &readiness).await?;
    let (shown, stopped) = Shown::until_stopped();
    match work {
        Work::Replace => {
            let dir = settings.process.data_dir;
            let replace = move || replace(&dir, &log, shown);
            tokio::task::spawn_blocking(replace).await?
        }
        Work::InPlace => {
            // Waits for nodes that do not respond.
            let tables = tokio::select! {
                tables = open_tables(&settings, &readiness) => tables?,
                () = stopped.cancelled() => bail!(INTERRUPTED),
            };
            fit::refuse_others(&*log, &*tables).await?;
            tokio::task::spawn_blocking(move || in_place(&*log, &*tables, shown)).await?
        }
        Work::Into(keyspaces) => into(log, &keyspaces, shown).await,
    }
}

enum Work {
    Replace,
    InPlace,
    /// Copies from one keyspace to another.
    Into(Box<[CqlConfig; 2]>),
}

/// Rebuilds the tables, returns the counts. Blocks.
fn make(
    log: &dyn Log,
    tables: &dyn Store,
    shown: &mut Shown,
) -> anyhow::Result<(String, projector::Rebuilt)> {
    let begun = Instant::now();
    let made = projector::rebuild(log, tables, &Handle::current(), &mut |at| shown.made(at))?;
    shown.progress.end();
    let Some(made) = made else { bail!(INTERRUPTED) };
    let seconds = begun.elapsed().as_secs_f64();
    let line = format!("made {} rows from {} records in {seconds:.1} s", made.rows, made.records);
    Ok((line, made))
}

/// Writes the rows, and reads each one back: newer tombstones would hide it. Blocks.
fn in_place(log: &dyn Log, tables: &dyn Store, mut shown: Shown) -> anyhow::Result<Outcome> {
    let (made, _) = make(log, tables, &mut shown)?;
    print(&made);
    let (mut hidden, mut others) = (0_u64, 0_u64);
    let report = &mut |at| shown.made(at);
    let compared = projector::verify(log, tables, &Handle::current(), report, &mut |difference| {
        match difference.defect {
            // A newer record, which the running projector has not written yet.
            _ if !difference.is_read => {}
            Defect::Missing | Defect::Older => hidden += 1,
            Defect::Newer | Defect::Changed => others += 1,
        }
    })?;
    shown.progress.end();
    let Some(Verified { rows, .. }) = compared else { bail!(INTERRUPTED) };
    if hidden > 0 {
        let text = format!(
            "{hidden} rows are hidden by deletions made outside: run `tidemark tables rebuild --into KEYSPACE`; \
             `tidemark tables verify` lists them"
        );
        return Err(Different(text).into());
    }
    if others > 0 {
        let text = format!(
            "{others} rows are not as the log has them: `tidemark tables verify` lists them"
        );
        return Err(Different(text).into());
    }
    Ok(Outcome::success(vec![format!("{rows} rows are as the log has them")], ""))
}

fn replace(dir: &std::path::Path, log: &Arc<dyn Log>, mut shown: Shown) -> anyhow::Result<Outcome> {
    // Old tables that cannot be read are refused by `Replacement::finish`.
    let created = if are_in(dir) { create_dropped(dir).unwrap_or_default() } else { Vec::new() };
    for table in created {
        print(&format!("created table {table}, which the old tables lacked: it is empty"));
    }
    // The replacement keeps rows of the old tables, so these must belong to this log.
    if are_in(dir)
        && let Ok(old) = EmbeddedStore::open(dir)
    {
        Handle::current().block_on(fit::check(log, &old))?;
    }
    let replacement = Replacement::begin(dir)?;
    let (made, _) = make(&**log, replacement.store()?, &mut shown)?;
    let Kept { orders, deposits, transfers, attempts, chains } = replacement.finish()?;
    data_folder::hand_over(dir, &[FILE]).with_context(|| dir.display().to_string())?;
    let kept = format!(
        "kept what the log no longer has: {orders} orders, {deposits} deposits, {transfers} transfers, {attempts} \
         attempts, {chains} chains"
    );
    Ok(Outcome::success(vec![made, kept], ""))
}

async fn into(
    log: Arc<dyn Log>,
    [old, new]: &[CqlConfig; 2],
    mut shown: Shown,
) -> anyhow::Result<Outcome> {
    for table in store::cql::create_missing(old).await? {
        print(&format!(
            "created table {table}, which keyspace {} lacked: it is empty",
            old.keyspace
        ));
    }
    let present = CqlStore::open(old).await?;
    fit::refuse_others(&*log, &present).await?;
    store::cql::migrate(new).await?;
    let tables = CqlStore::open(new).await?;
    fit::refuse_others(&*log, &tables).await?;
    let copied = present.copy_to(&tables, |count| shown.copied(count)).await?;
    shown.progress.end();
    let Some(copied) = copied else { bail!(INTERRUPTED) };
    print(&format!("copied {copied} rows of keyspace {}", old.keyspace));
    let keyspace = new.keyspace.clone();
    let follow = move || {
        let (made, rebuilt) = make(&*log, &tables, &mut shown)?;
        print(&made);
        let mut is_said = false;
        projector::follow(&*log, &tables, &Handle::current(), rebuilt.ends, &mut |at| {
            if at.has_everything && !std::mem::replace(&mut is_said, true) {
                print(&format!(
                    "keyspace {keyspace} has everything and is kept so: set store.keyspace = {keyspace:?}, reload or \
                     restart the projectors and the apis, then end this command"
                ));
            }
            shown.flow()
        })?;
        let end = format!("keyspace {keyspace} is not kept up with the log any more");
        Ok(Outcome::success(vec![end], ""))
    };
    tokio::task::spawn_blocking(follow).await?
}

/// Progress of a rebuild.
pub(super) struct Shown {
    stop: Arc<AtomicBool>,
    pub(super) progress: Progress,
}

impl Shown {
    /// Shows progress until SIGINT or SIGTERM, which the token reports.
    pub(super) fn until_stopped() -> (Self, CancellationToken) {
        let (stop, stopped) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let (stopping, cancelled) = (stop.clone(), stopped.clone());
        tokio::spawn(async move {
            stop_signal().await;
            stopping.store(true, Ordering::Relaxed);
            cancelled.cancel();
        });
        (Self { stop, progress: Progress::begin() }, stopped)
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn copied(&mut self, rows: u64) -> ControlFlow<()> {
        self.show(|_| format!("copied {rows} rows of the present tables"))
    }

    pub(super) fn made(&mut self, at: projector::Progress) -> ControlFlow<()> {
        self.show(|millis| progress_line(at, millis))
    }

    fn show(&mut self, line: impl FnOnce(u64) -> String) -> ControlFlow<()> {
        self.progress.show(line);
        self.flow()
    }
}

fn progress_line(at: projector::Progress, millis: u64) -> String {
    let of = at.of.max(1);
    let full = (at.read * BAR / of).min(BAR);
    let bar: String = (0..BAR).map(|number| if number < full { '#' } else { '.' }).collect();
    let percent = (at.read * 100 / of).min(100);
    let rate = at.read.saturating_mul(1_000) / millis.max(1);
    let left = at.of.saturating_sub(at.read) / rate.max(1);
    format!("[{bar}] {percent} %, {} rows, {rate} records/s, {left} s left", at.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_at_the_end() {
        let at = |read| projector::Progress { read, of: 400, rows: 100 };
        let dots = ".".repeat(30);
        assert_eq!(
            progress_line(at(0), 1_000),
            format!("[{dots}] 0 %, 100 rows, 0 records/s, 400 s left")
        );
        let full = "#".repeat(30);
        assert_eq!(
            progress_line(at(400), 2_000),
            format!("[{full}] 100 %, 100 rows, 200 records/s, 0 s left")
        );
        let empty = progress_line(projector::Progress::default(), 0);
        assert!(empty.contains(" 0 %"), "{empty}");
    }
}
