//! The whole configuration, read once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime::config::{Problems, Process, Source};
use runtime::telemetry;
use schemas::Blockchain;

use crate::schema_registry;
use crate::stage::Stage;

/// Every section, parsed and validated.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) process: Process,
    pub(crate) log: log::Config,
    pub(crate) store: store::config::BackEnd,
    /// Retention of final rows in the tables; `None` keeps everything.
    pub(crate) retention: Option<store::config::Retention>,
    pub(crate) shop: api::Config,
    pub(crate) ingest: ingest::Config,
    pub(crate) webhooks: webhooks::Config,
    pub(crate) alerts: webhooks::AlertsConfig,
    pub(crate) telemetry: telemetry::Config,
    pub(crate) schemas: schema_registry::Config,
    /// Files that secrets were read from.
    pub(crate) secret_files: Vec<PathBuf>,
}

/// The commented defaults of every section.
pub(crate) fn defaults() -> String {
    [
        runtime::config::DEFAULTS,
        log::Config::DEFAULTS,
        store::config::BackEnd::DEFAULTS,
        schema_registry::Config::DEFAULTS,
        api::Config::DEFAULTS,
        ingest::Config::DEFAULTS,
        webhooks::Config::DEFAULTS,
        webhooks::AlertsConfig::DEFAULTS,
    ]
    .join("\n")
}

impl Settings {
    /// Reads a file and the environment over the defaults, for a process that runs some stages, or none.
    /// Reports every problem at once.
    pub(crate) fn load(file: Option<&Path>, stages: &[Stage]) -> Result<Self, Problems> {
        Self::read(Source::load(&defaults(), file), stages)
    }

    /// As [`Settings::load`], from a text only.
    pub(crate) fn parse(text: &str, stages: &[Stage]) -> Result<Self, Problems> {
        Self::read(Source::parse(&defaults(), text, []), stages)
    }

    /// Configuration of the chain that a command names.
    pub(crate) fn chain(&self, name: Blockchain) -> Result<ingest::ChainConfig, Problems> {
        let chain = self.ingest.chains.iter().find(|chain| chain.blockchain == name);
        let problem = || Problems(vec![format!("chains.{name}: there is no such section")]);
        chain.cloned().ok_or_else(problem)
    }

    /// The folder of the embedded files, if log or tables are embedded.
    pub(crate) fn data_folder(&self) -> Option<PathBuf> {
        let is_here = matches!(self.log.back_end, log::config::BackEnd::Embedded)
            || matches!(self.store, store::config::BackEnd::Embedded);
        is_here.then(|| self.process.data_dir.clone())
    }

    /// Level of log lines about payments: INFO with an embedded log, DEBUG on Kafka.
    pub(crate) fn life_level(&self) -> projector::Level {
        match &self.log.back_end {
            log::config::BackEnd::Embedded => projector::Level::INFO,
            log::config::BackEnd::Kafka(_) => projector::Level::DEBUG,
        }
    }

    /// Facts about the chains that customers have to know.
    pub(crate) fn chain_terms(&self) -> Vec<api::ChainTerms> {
        // A tier with a tag waits until the network sets it, at no fixed depth, so no depth is shown.
        let depth = |tier: &ingest::Tier| tier.depth.filter(|_| tier.tag.is_none());
        let terms = |chain: &ingest::ChainConfig| api::ChainTerms {
            blockchain: chain.blockchain,
            chain_id: chain.chain_id,
            depths: chain.policy.tiers.iter().map(|tier| (tier.below, depth(tier))).collect(),
        };
        self.ingest.chains.iter().map(terms).collect()
    }

    /// Secrets that none of the stages uses may be absent.
    fn read(mut source: Source, stages: &[Stage]) -> Result<Self, Problems> {
        let process = Process::read(&mut source);
        let mut shop = api::Config::read(&mut source);
        let merchant = &shop.merchant;
        let webhooks = webhooks::Config::read(
            source.section("webhooks"),
            merchant.secret.clone(),
            merchant.previous_secret.clone(),
            merchant.unknown_transfer_webhook_url.clone(),
        );
        shop.receivers = webhooks.receivers.clone();
        let alerts = webhooks::AlertsConfig::read(source.section("alerts"), &webhooks.receivers);
        let log = log::Config::read(source.section("log"));
        let (store, retention) = store::config::read(source.section("store"));
        let settings = Self {
            log,
            store,
            retention,
            ingest: ingest::Config::read(&mut source, &shop.wallets, shop.matching.match_window),
            webhooks,
            alerts,
            telemetry: telemetry::Config::read(source.section("telemetry")),
            schemas: schema_registry::Config::read(&mut source),
            secret_files: source.secret_files(),
            process,
            shop,
        };
        if !stages.contains(&Stage::Api) {
            source.forgive("admin.secret");
        }
        if !stages.contains(&Stage::Api) && !stages.contains(&Stage::Webhooks) {
            source.forgive("merchant.secret");
        }
        if !stages.contains(&Stage::Webhooks) {
            source.forgive_within("alerts.sinks");
        }
        let misfit = if stages.is_empty() { None } else { misfit(&settings, stages) };
        // A misspelt back end is one problem, not two.
        let is_known = !["log.backend", "store.backend"].iter().any(|key| source.is_refused(key));
        let mut problems = source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines);
        problems.extend(misfit.filter(|_| is_known).map(str::to_owned));
        if stages.contains(&Stage::Webhooks) {
            problems.extend(settings.misfit_of_times());
        }
        let contracts = settings.ingest.chains.iter().map(|chain| chain.contracts.as_slice());
        problems.extend(settings.shop.misfits(&contracts.collect::<Vec<_>>().concat()));
        if problems.is_empty() { Ok(settings) } else { Err(Problems(problems)) }
    }
}

impl Settings {
    /// Returns the problem if a webhook may take too long: a stop waits for in-flight requests for half its deadline at
    /// most.
    fn misfit_of_times(&self) -> Option<String> {
        let (timeout, stop) = (self.webhooks.timeout, self.process.stop_deadline);
        let fits = timeout.saturating_add(Duration::from_secs(1)) <= stop / 2;
        (!stop.is_zero() && !fits).then(|| {
            format!(
                "webhooks.timeout: {timeout:?} and a second must be at most half of server.stop_deadline ({stop:?}), or \
                 a stop repeats requests"
            )
        })
    }

    /// Refuses embedded tables with the Kafka log: no process could use them.
    pub(crate) fn check_tables(&self) -> Result<(), Problems> {
        misfit_of_tables(self).map_or(Ok(()), |what| Err(Problems(vec![what.to_owned()])))
    }
}

/// Returns the reason why no process that needs tables can use these back ends.
fn misfit_of_tables(settings: &Settings) -> Option<&'static str> {
    match (&settings.log.back_end, &settings.store) {
        (log::config::BackEnd::Kafka(_), store::config::BackEnd::Embedded) => Some(
            "store.backend: \"embedded\" is one process's own, but with Kafka there may be others: set \
             \"cql\"",
        ),
        _ => None,
    }
}

/// Returns the reason why these stages cannot run: an embedded back end serves one process.
fn misfit(settings: &Settings, stages: &[Stage]) -> Option<&'static str> {
    let has_all = Stage::ALL.iter().all(|stage| stages.contains(stage));
    let has_tables = stages.iter().any(|stage| stage.needs_tables());
    match &settings.log.back_end {
        log::config::BackEnd::Embedded if !has_all => Some(
            "log.backend: \"embedded\" is one process with all stages: run without naming stages, or \
             set \"kafka\"",
        ),
        log::config::BackEnd::Kafka(_) if has_tables => misfit_of_tables(settings),
        log::config::BackEnd::Embedded | log::config::BackEnd::Kafka(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: &str = "[admin]\nsecret = \"admin-5vN8xK2qL7wR\"\n[merchant]\nsecret = \"merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5\"\n";
    const KAFKA: &str = "[log]\nbackend = \"kafka\"\nbrokers = \"b:1\"\n";
    const CQL: &str = "[store]\nbackend = \"cql\"\nnodes = [\"c:1\"]\n";

    #[track_caller]
    fn check(parts: &[&str], stages: &[Stage], expected: &[&str]) {
        let text = parts.concat();
        let problems =
            Settings::parse(&text, stages).err().map_or_else(Vec::new, |Problems(lines)| lines);
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (line, start) in problems.iter().zip(expected) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn what_is_embedded_is_for_one_process() {
        check(&[SECRETS], &Stage::ALL, &[]);
        check(&[SECRETS, CQL], &Stage::ALL, &[]);
        check(&[SECRETS, KAFKA, CQL], &Stage::ALL, &[]);
        check(&[SECRETS], &[Stage::Ingest], &["log.backend: "]);
        check(&[SECRETS, CQL], &[Stage::Api, Stage::Projector], &["log.backend: "]);
        check(&[SECRETS, KAFKA], &Stage::ALL, &["store.backend: "]);
        check(&[SECRETS, KAFKA], &[Stage::Projector], &["store.backend: "]);
        for stage in [Stage::Ingest, Stage::Processor, Stage::Webhooks] {
            check(&[SECRETS, KAFKA], &[stage], &[]);
        }
        check(&[], &[], &[]);
        let misspelt = "[store]\nbackend = \"scylla\"\n";
        check(&[SECRETS, KAFKA, misspelt], &Stage::ALL, &["store.backend: must be"]);
    }

    /// Every such wallet is reported, together with other problems.
    #[test]
    fn wallets_that_only_lose_money_are_refused() {
        let wallet = |chain: &str, address: &str| {
            format!(
                "[[wallets]]\nblockchain = \"{chain}\"\naddress = \"{address}\"\nenabled_coins = [\"USDT\"]\n"
            )
        };
        let token = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
        let text = [
            wallet("eth", "0xdAC17F958D2ee523a2206206994597C13D831ec7"),
            wallet("eth", "0x0000000000000000000000000000000000000000"),
            wallet("eth", "0x0000000000000000000000000000000000000001"),
            // The contract of a coin on another chain.
            wallet("eth", token),
            "[chains.eth]\nrpc = \"http://127.0.0.1:1\"\n[chains.polygon]\nrpc = \"http://127.0.0.1:1\"\n".to_owned(),
            format!("tokens = [{{ coin = \"USDT\", contract = \"{token}\", decimals = 6 }}]\n"),
        ];
        let expected = [
            "wallets[0].address: is the contract of USDT on eth",
            "wallets[1].address: is the zero address",
            "wallets[2].address: is an address of the chain itself",
            "chains.polygon.tokens: 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed is the contract of USDT",
        ];
        check(&[SECRETS, &text.concat()], &Stage::ALL, &expected);
    }

    #[test]
    fn unknown_transfers_go_where_webhooks_may_go() {
        let key = "merchant.unknown_transfer_webhook_url: ";
        let networks = "[webhooks]\nallowed_networks = [\"10.0.0.0/24\"]\n";
        for (url, webhooks, expected) in [
            ("https://shop.example/", "", &[][..]),
            ("http://", "", &[key]),
            ("ftp://shop.example/", "", &[key]),
            ("http://10.0.0.5/", "", &[key]),
            ("http://10.0.0.5/", networks, &[]),
            ("http://10.0.1.5/", networks, &[key]),
        ] {
            let url = format!("unknown_transfer_webhook_url = \"{url}\"\n");
            check(&[SECRETS, &url, webhooks], &Stage::ALL, expected);
        }
    }

    #[test]
    fn only_who_sends_webhooks_needs_time_for_them() {
        let short = "[server]\nstop_deadline = \"5s\"\n";
        check(&[SECRETS, KAFKA, CQL, short], &[Stage::Webhooks], &["webhooks.timeout: "]);
        for stage in [Stage::Ingest, Stage::Processor, Stage::Projector, Stage::Api] {
            check(&[SECRETS, KAFKA, CQL, short], &[stage], &[]);
        }
        check(&[short], &[], &[]);
    }

    /// Only the process that sends alerts may have read access to the files of the sinks' secrets.
    #[test]
    fn keys_of_sinks_are_for_those_who_send() {
        let sink = "[[alerts.sinks]]\nname = \"a\"\ntype = \"webhook\"\nurl_file = \"/no/such/file\"\nsecret = \"s\"\n";
        check(
            &[SECRETS, KAFKA, CQL, sink],
            &[Stage::Webhooks],
            &["alerts.sinks[0].url: is missing"],
        );
        check(&[KAFKA, CQL, sink], &[Stage::Ingest], &[]);
        check(&[sink], &[], &[]);
        let misspelt = "[[alerts.sinks]]\nname = \"a\"\ntype = \"fax\"\n";
        check(&[misspelt], &[], &["alerts.sinks[0].type: must be"]);
    }

    #[test]
    fn secrets_are_required_only_where_they_are_used() {
        let (admin, merchant) = ("admin.secret: is missing", "merchant.secret: is missing");
        for (stage, expected) in [
            (Stage::Ingest, &[][..]),
            (Stage::Processor, &[]),
            (Stage::Projector, &[]),
            (Stage::Api, &[admin, merchant]),
            (Stage::Webhooks, &[merchant]),
        ] {
            check(&[KAFKA, CQL], &[stage], expected);
        }
    }
}
