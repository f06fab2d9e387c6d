//! `tidemark doctor`: checks that all configured endpoints, the log and the tables can be used.

use std::sync::Arc;

use clap::Args;
use ingest::{Examination, Finding, Level};
use log::embedded::ReadOnlyLog;
use runtime::config::Problems;
use runtime::{Clock, SystemClock};
use schemas::Blockchain;
use serde_json::{Value, json};
use store::cql::CqlStore;
use store::embedded;

use crate::back_end::{IMPORTING, TABLES_TIMEOUT, Verdict, topic_differences};
use crate::settings::Settings;
use crate::setup::Outcome;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// A chain, and the results of its endpoints.
struct Chain {
    blockchain: Blockchain,
    endpoints: Vec<Examination>,
}

impl Chain {
    fn usable(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| endpoint.is_usable()).count()
    }
}

/// Examines endpoints, log and tables. Succeeds if log and tables do not fail and each chain has a usable endpoint.
pub(crate) async fn run(settings: Settings, options: Options) -> anyhow::Result<Outcome> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut chains = Vec::new();
    for chain in &settings.ingest.chains {
        let endpoints = ingest::examine(chain, &settings.shop.wallets, clock.clone()).await?;
        chains.push(Chain { blockchain: chain.blockchain, endpoints });
    }
    let back_ends = [log(&settings).await?, tables(&settings).await];
    let is_success = back_ends.iter().all(|finding| finding.level < Level::Failure)
        && chains.iter().all(|chain| chain.usable() > 0);
    let lines = if options.json {
        vec![document(&chains, &back_ends, is_success).to_string()]
    } else {
        text(&chains, &back_ends)
    };
    Ok(Outcome { lines, is_success })
}

fn finding(check: &'static str, level: Level, text: impl Into<String>) -> Finding {
    Finding { check, level, text: text.into(), value: Value::Null }
}

/// Checks that the log can be used.
async fn log(settings: &Settings) -> anyhow::Result<Finding> {
    let found = match &settings.log.back_end {
        log::config::BackEnd::Embedded => {
            let dir = settings.process.data_dir.clone();
            let opened = tokio::task::spawn_blocking(move || {
                if !ReadOnlyLog::is_in(&dir) && !embedded::are_in(&dir) {
                    return Ok(format!("{} is made by the first start", dir.display()));
                }
                ReadOnlyLog::open(&dir).map(|_| format!("in {}", dir.display()))
            });
            opened.await?
        }
        log::config::BackEnd::Kafka(config) => {
            let (config, layout) = (config.clone(), settings.log.layout);
            let check = tokio::task::spawn_blocking(move || {
                topic_differences(&config, &layout).map(|found| (config.brokers, found))
            });
            match check.await? {
                Ok((_, None)) => return Ok(finding("log", Level::Failure, IMPORTING)),
                Ok((brokers, Some(found))) if found.is_empty() => {
                    Ok(format!("{brokers} has all topics"))
                }
                Ok((_, Some(found))) => {
                    let Verdict { wrong, lacking, odd } = Verdict::of(found);
                    let is_usable = wrong.is_empty() && lacking.is_empty();
                    let level = if is_usable { Level::Warning } else { Level::Failure };
                    let cure = "run `tidemark topics create`".to_owned();
                    let cure = Some(cure).filter(|_| wrong.is_empty() && !lacking.is_empty());
                    let lines = cure.into_iter().chain(wrong).chain(lacking).chain(odd);
                    return Ok(finding("log", level, lines.collect::<Vec<_>>().join("; ")));
                }
                Err(error) => Err(error),
            }
        }
    };
    Ok(match found {
        Ok(text) => finding("log", Level::Fine, text),
        Err(error) => finding("log", Level::Failure, error.to_string()),
    })
}

/// Checks that the tables can be used.
async fn tables(settings: &Settings) -> Finding {
    match &settings.store {
        store::config::BackEnd::Embedded => {
            if let Err(Problems(lines)) = settings.check_tables() {
                return finding("tables", Level::Warning, lines.join("; "));
            }
            let dir = settings.process.data_dir.clone();
            let check = move || match embedded::are_in(&dir) {
                true => embedded::check(&dir).map(|()| format!("in {}", dir.display())),
                false => Ok("are made by the next start".to_owned()),
            };
            match tokio::task::spawn_blocking(check).await {
                Ok(Ok(text)) => finding("tables", Level::Fine, text),
                Ok(Err(error)) => finding("tables", Level::Failure, error.to_string()),
                Err(error) => finding("tables", Level::Failure, error.to_string()),
            }
        }
        store::config::BackEnd::Cql(config) => {
            let nodes = config.nodes.join(",");
            match tokio::time::timeout(TABLES_TIMEOUT, CqlStore::open(config)).await {
                Ok(Ok(_)) => finding("tables", Level::Fine, format!("{nodes} has all tables")),
                Ok(Err(error)) => finding("tables", Level::Failure, format!("{nodes}: {error}")),
                Err(_) => finding("tables", Level::Failure, format!("{nodes}: no answer")),
            }
        }
    }
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::Fine => "ok",
        Level::Warning => "warning",
        Level::Failure => "FAILURE",
    }
}

fn line(indent: &str, finding: &Finding) -> String {
    format!("{indent}{:<8} {:<12} {}", word(finding.level), finding.check, finding.text)
}

fn text(chains: &[Chain], back_ends: &[Finding]) -> Vec<String> {
    let mut lines: Vec<String> = back_ends.iter().map(|finding| line("", finding)).collect();
    for chain in chains {
        let (usable, all) = (chain.usable(), chain.endpoints.len());
        let verdict = match (usable, all) {
            (0, _) => "CANNOT BE FOLLOWED".to_owned(),
            (usable, all) if usable < all => {
                format!("can be followed, by {usable} of {all} endpoints")
            }
            (_, 1) => "can be followed; no second endpoint checks what this one says".to_owned(),
            _ => "can be followed".to_owned(),
        };
        lines.push(format!("{}: {verdict}", chain.blockchain));
        for examined in &chain.endpoints {
            lines.push(format!("  {}", examined.endpoint));
            lines.extend(examined.findings.iter().map(|finding| line("    ", finding)));
        }
    }
    lines
}

fn document(chains: &[Chain], back_ends: &[Finding], is_success: bool) -> Value {
    let one = |finding: &Finding| {
        json!({
            "check": finding.check,
            "level": word(finding.level).to_lowercase(),
            "text": finding.text,
            "value": finding.value,
        })
    };
    let endpoint = |examined: &Examination| {
        json!({
            "endpoint": examined.endpoint,
            "usable": examined.is_usable(),
            "findings": examined.findings.iter().map(one).collect::<Value>(),
        })
    };
    let chain = |chain: &Chain| {
        json!({
            "blockchain": chain.blockchain,
            "usable": chain.usable() > 0,
            "endpoints": chain.endpoints.iter().map(endpoint).collect::<Value>(),
        })
    };
    json!({
        "success": is_success,
        "back_ends": back_ends.iter().map(one).collect::<Value>(),
        "chains": chains.iter().map(chain).collect::<Value>(),
    })
}
