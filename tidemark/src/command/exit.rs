//! The end of a command: what is printed, and its exit code.

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use runtime::config::Problems;

use super::code::{self, Code};
use crate::inspect::find::Findings;
use crate::inspect::status::Health;
use crate::output::{self, say};
use crate::setup::{Different, Outcome};

/// Exit code of a wrong configuration or command line use (BSD's EX_USAGE).
pub(super) const EXIT_USAGE: u8 = 64;
/// Exit code of a comparison that found differences.
const EXIT_DIFFERENT: u8 = 2;
/// Exit code of a question that could not be answered.
const EXIT_UNKNOWN: u8 = 2;
/// Maximum wait at the end of the process for a back-end call that does not answer.
const BLOCKED_MAX: Duration = Duration::from_secs(1);

pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(BLOCKED_MAX);
    result
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

pub(super) fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<Problems>() {
            Some(problems) => refuse(problems),
            None => {
                say(&failure(&error));
                let is_different = error.is::<Different>();
                if is_different { ExitCode::from(EXIT_DIFFERENT) } else { ExitCode::FAILURE }
            }
        },
    }
}

/// The text of an error, with its code if it has one.
fn failure(error: &anyhow::Error) -> String {
    let code = code::of(error).map(|code| format!(" [{code}]")).unwrap_or_default();
    format!("tidemark: {error:#}{code}")
}

pub(super) fn refuse(problems: &Problems) -> ExitCode {
    say(&format!("configuration is not valid [{}]:\n{problems}", Code::Configuration));
    ExitCode::from(EXIT_USAGE)
}

/// Prints the whole of a command's output.
pub(super) fn show(text: &str) -> ExitCode {
    match output::stdout().text(text) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, having read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("tidemark: the output is not complete: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints the findings of a search, or its error.
pub(super) fn answer(result: anyhow::Result<Findings>) -> ExitCode {
    match result {
        Ok(Findings { outcome, is_known }) => {
            let code = report(Ok(outcome));
            if is_known { code } else { ExitCode::from(EXIT_UNKNOWN) }
        }
        Err(error) => unknown(error),
    }
}

pub(super) fn verdict(result: anyhow::Result<Health>) -> ExitCode {
    match result {
        Ok(Health::Well) => ExitCode::SUCCESS,
        Ok(Health::NotWell) => ExitCode::FAILURE,
        Ok(Health::Unknown) => ExitCode::from(EXIT_UNKNOWN),
        Err(error) => unknown(error),
    }
}

fn unknown(error: anyhow::Error) -> ExitCode {
    if error.is::<Problems>() {
        return finish(Err(error));
    }
    say(&failure(&error));
    ExitCode::from(EXIT_UNKNOWN)
}

pub(super) fn report(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome { lines, is_success }) => {
            let shown = show(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
            if is_success { shown } else { ExitCode::FAILURE }
        }
        Err(error) => finish(Err(error)),
    }
}
