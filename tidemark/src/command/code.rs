//! Codes of the errors that end a process or a command, each with a section of `docs/operate/errors.md`.

use std::error::Error as StdError;
use std::fmt;

use log::StepError;
use runtime::config::Problems;

/// Declares the codes with their texts.
macro_rules! codes {
    ($($name:ident = $text:literal,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code { $($name,)+ }

        impl Code {
            /// Every code, in the order of the sections of `docs/operate/errors.md`.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)+];

            const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

codes! {
    Configuration = "TM-101",
    Certificates = "TM-102",
    LogUnavailable = "TM-201",
    LogFenced = "TM-202",
    LogFailed = "TM-203",
    TablesUnavailable = "TM-301",
    TablesFailed = "TM-302",
    SchemaMissing = "TM-303",
    SchemaOutdated = "TM-304",
    SchemaNewer = "TM-305",
    TablesDropped = "TM-306",
    Replication = "TM-307",
    WrongChain = "TM-401",
    WrongContract = "TM-402",
    ChainRecords = "TM-403",
    WatchVanished = "TM-404",
    NewerRecord = "TM-501",
    Changelog = "TM-502",
    Mismatch = "TM-503",
    Broken = "TM-504",
    Defect = "TM-901",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Returns the code of an error, by the first cause that has one.
pub(crate) fn of(error: &anyhow::Error) -> Option<Code> {
    error.chain().find_map(of_cause)
}

fn of_cause(cause: &(dyn StdError + 'static)) -> Option<Code> {
    None.or_else(|| cause.downcast_ref().map(|_: &Problems| Code::Configuration))
        .or_else(|| cause.downcast_ref().map(of_log))
        .or_else(|| cause.downcast_ref().map(of_step))
        .or_else(|| cause.downcast_ref().map(of_tables))
        .or_else(|| cause.downcast_ref().map(of_ingest))
        .or_else(|| cause.downcast_ref().map(of_processor))
        .or_else(|| cause.downcast_ref().map(of_projector))
        .or_else(|| cause.downcast_ref().map(of_webhooks))
}

fn of_log(error: &log::Error) -> Code {
    match error {
        log::Error::Transient(_) => Code::LogUnavailable,
        log::Error::Fenced(_) => Code::LogFenced,
        log::Error::Fatal(_) => Code::LogFailed,
    }
}

fn of_step(error: &StepError) -> Code {
    of_log(&error.clone().into())
}

fn of_tables(error: &store::Error) -> Code {
    match error {
        store::Error::Transient(_) => Code::TablesUnavailable,
        store::Error::Fatal(_) => Code::TablesFailed,
        store::Error::SchemaMissing { .. } => Code::SchemaMissing,
        store::Error::SchemaOutdated { .. } => Code::SchemaOutdated,
        store::Error::SchemaNewer { .. } => Code::SchemaNewer,
        store::Error::TablesMissing { .. } | store::Error::Dropped { .. } => Code::TablesDropped,
        store::Error::Replication { .. } => Code::Replication,
    }
}

fn of_ingest(error: &ingest::Error) -> Code {
    use ingest::Error;
    match error {
        Error::ChainId { .. } => Code::WrongChain,
        Error::Contract { .. } => Code::WrongContract,
        Error::Client(_) => Code::Certificates,
        Error::Log(error) => of_log(error),
        Error::Step(error) => of_step(error),
        Error::Restore { .. } => Code::ChainRecords,
        Error::Vanished { .. } => Code::WatchVanished,
        Error::Encode(_) | Error::Task(_) => Code::Defect,
    }
}

fn of_processor(error: &processor::Error) -> Code {
    use processor::Error;
    match error {
        Error::Log(error) => of_log(error),
        Error::Step(error) => of_step(error),
        Error::Changelog { .. } => Code::Changelog,
        Error::Newer(_) => Code::NewerRecord,
        Error::Broken { .. } => Code::Broken,
        Error::Encode(_) => Code::Defect,
    }
}

fn of_projector(error: &projector::Error) -> Code {
    use projector::Error;
    match error {
        Error::Log(error) => of_log(error),
        Error::Step(error) => of_step(error),
        Error::Store(error) => of_tables(error),
        Error::Newer(_) => Code::NewerRecord,
        Error::Unfit(_) => Code::Mismatch,
        Error::Letter(_) => Code::Defect,
    }
}

fn of_webhooks(error: &webhooks::Error) -> Code {
    use webhooks::Error;
    match error {
        Error::Log(error) => of_log(error),
        Error::Step(error) => of_step(error),
        Error::Newer(_) => Code::NewerRecord,
        Error::Changelog { .. } => Code::Changelog,
        Error::Client(_) | Error::Mail(_) => Code::Certificates,
        Error::Codec(_) | Error::Attempt(_) => Code::Defect,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn each_code_has_a_section() {
        let page = include_str!("../../../docs/operate/errors.md");
        let sections = page.lines().filter_map(|line| line.strip_prefix("## "));
        let sections: Vec<_> = sections.filter_map(|title| title.split(':').next()).collect();
        let codes: Vec<_> = Code::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(sections, codes);
    }

    #[test]
    fn a_cause_has_its_code_below_others() {
        let missing = store::Error::SchemaMissing { keyspace: "shop".to_owned() };
        let wrapped = anyhow::Error::from(projector::Error::Store(missing)).context("a stage");
        assert_eq!(of(&wrapped), Some(Code::SchemaMissing));
        let problems = Err::<(), _>(Problems(Vec::new())).context("at the start").unwrap_err();
        assert_eq!(of(&problems), Some(Code::Configuration));
        assert_eq!(of(&anyhow::anyhow!("none")), None);
    }
}
