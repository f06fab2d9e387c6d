//! `tidemark tables verify`: compares rows of the tables with the newest records.

use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use projector::{Difference, Verified};
use runtime::{Readiness, telemetry};
use serde_json::json;
use store::config::BackEnd;
use store::cql::CqlStore;
use store::embedded::{EmbeddedStore, are_in};
use store::{Defect, Store};
use tokio::runtime::Handle;

use super::tables::{INTERRUPTED, Shown};
use super::{Different, Outcome};
use crate::back_end::{fit, open_existing_log};
use crate::output::print;
use crate::settings::Settings;

/// Cure for changed rows on CQL: neither a rebuild in place nor a copy overwrites them.
pub(crate) const MADE_ANEW: &str = "set store.keyspace to a new one, and run `tidemark schema migrate` and `tidemark tables rebuild`";

/// Output format.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A JSON object a line, the last one with the totals.
    #[arg(long)]
    json: bool,
}

/// Compares tables and log, and prints each difference with the command that mends it. Changes
/// nothing.
///
/// # Errors
/// [`Different`]; or the log or the tables failed, or it was interrupted.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    settings.check_tables()?;
    telemetry::init_log(&settings.telemetry)?;
    let tables = open(&settings).await?;
    let log = open_existing_log(&settings, &Readiness::default()).await?;
    fit::refuse_others(&*log, &*tables).await?;
    let (mut shown, _) = Shown::until_stopped();
    let is_cql = matches!(settings.store, BackEnd::Cql(_));
    let compare = move || {
        let differs = &mut |difference| print(&line(&difference, is_cql, options.json));
        let report = &mut |at| shown.made(at);
        let verified = projector::verify(&*log, &*tables, &Handle::current(), report, differs);
        shown.progress.end();
        verified
    };
    let Some(verified) = tokio::task::spawn_blocking(compare).await?? else { bail!(INTERRUPTED) };
    let Verified { records, rows, differences } = verified;
    let lines = match (options.json, differences) {
        (true, _) => {
            vec![
                json!({ "records": records, "rows": rows, "differences": differences }).to_string(),
            ]
        }
        (false, 0) => vec![format!("{rows} rows are as the log has them")],
        (false, _) => Vec::new(),
    };
    if differences == 0 {
        return Ok(Outcome { lines, is_success: true });
    }
    lines.iter().for_each(|line| print(line));
    Err(Different(format!("{differences} of {rows} rows are not as the log has them")).into())
}

/// Opens the tables, without waiting for a schema.
async fn open(settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    let dir = &settings.process.data_dir;
    Ok(match &settings.store {
        BackEnd::Cql(config) => Arc::new(CqlStore::open(config).await?),
        BackEnd::Embedded if are_in(dir) => Arc::new(EmbeddedStore::open(dir)?),
        BackEnd::Embedded => bail!("there are no tables in {}", dir.display()),
    })
}

fn line(difference: &Difference, is_cql: bool, is_json: bool) -> String {
    let Difference { newest, from, offset, defect, is_read } = difference;
    let (table, id, at) = (newest.table(), newest.id(), format!("{from}@{offset}"));
    let defect = if *is_read { defect.as_str() } else { "unread" };
    let cure = cure(difference, is_cql);
    if is_json {
        let value =
            json!({ "table": table, "id": id, "difference": defect, "at": at, "cure": cure });
        return value.to_string();
    }
    format!("{table} {id} {defect} ({at}): {cure}")
}

/// Returns the command that mends a difference.
const fn cure(difference: &Difference, is_cql: bool) -> &'static str {
    match difference.defect {
        _ if !difference.is_read => {
            "start the projector, and wait until tidemark_log_lag_records is 0"
        }
        _ if !is_cql => "stop every process, and run `tidemark tables rebuild`",
        Defect::Missing | Defect::Older => "run `tidemark tables rebuild --into KEYSPACE`",
        Defect::Newer | Defect::Changed => MADE_ANEW,
    }
}
