//! All stages in one process, on the embedded back ends.

use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::process::{Process, executable};
use super::{ADMIN_SECRET, Client, MERCHANT_SECRET, USDT, eventually, free_port};

#[derive(Debug, Clone)]
pub struct Chain {
    /// Identifier (spec 2.1).
    pub blockchain: &'static str,
    /// One URL, or several with commas between them.
    pub rpc: String,
    pub wallet: &'static str,
    /// Further keys of its section.
    pub more: String,
}

impl Chain {
    /// Chain of a development node with USDT; `keys` are lines of its section.
    pub fn of(
        blockchain: &'static str,
        node: &devnet::Devnet,
        wallet: &'static str,
        keys: &str,
    ) -> Self {
        let more = format!(
            "tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]\n{keys}"
        );
        Self::at(blockchain, node.url(), wallet, &more)
    }

    /// Chain at a URL, or at several with commas between them; `keys` are lines of its section.
    pub fn at(blockchain: &'static str, rpc: &str, wallet: &'static str, keys: &str) -> Self {
        Self { blockchain, rpc: rpc.to_owned(), wallet, more: keys.to_owned() }
    }
}

#[derive(Debug)]
pub struct Tidemark {
    process: Process,
    port: u16,
    started: Instant,
    /// From the start of the process to its first answer.
    pub healthy_after: Duration,
}

impl Tidemark {
    /// As [`Tidemark::spawn`], and waits until it is healthy and offers its chains.
    pub async fn start(dir: &Path, chains: &[Chain], webhook_url: &str, more: &str) -> Self {
        Self::start_with(dir, chains, webhook_url, more, &[]).await
    }

    /// As [`Tidemark::start`], with variables that override the configuration.
    pub async fn start_with(
        dir: &Path,
        chains: &[Chain],
        webhook_url: &str,
        more: &str,
        variables: &[(&str, String)],
    ) -> Self {
        let mut tidemark = Self::spawn(dir, chains, webhook_url, more, variables);
        tidemark.healthy().await;
        let words: Vec<_> = chains.iter().map(|chain| chain.blockchain).collect();
        tidemark.client().offers(&words).await;
        tidemark
    }

    /// Writes a configuration into `dir` and starts all stages on it. `more` is further TOML; `variables` override.
    pub fn spawn(
        dir: &Path,
        chains: &[Chain],
        webhook_url: &str,
        more: &str,
        variables: &[(&str, String)],
    ) -> Self {
        let port = free_port();
        let file = dir.join("tidemark.toml");
        let embedded =
            format!("[telemetry]\nlisten = \"\"\n[data]\ndir = \"{}/data\"\n", dir.display());
        let text = configuration(port, chains, webhook_url) + &embedded + more;
        std::fs::write(&file, text).expect("config");
        // The executable's path is found before the time is taken.
        executable();
        let started = Instant::now();
        let file = file.display().to_string();
        let process = Process::start("tidemark", dir, &["run", "--config", &file], variables);
        Self { process, port, started, healthy_after: Duration::ZERO }
    }

    /// Waits for its first answer.
    pub async fn healthy(&mut self) {
        let client = &self.client();
        eventually("tidemark to be healthy", || {
            self.process.assert_running();
            async move { client.is_healthy().await.then_some(()) }
        })
        .await;
        self.healthy_after = self.started.elapsed();
    }

    pub fn client(&self) -> Client {
        Client::new(&format!("http://127.0.0.1:{}", self.port))
    }

    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A signal, as `kill` names it.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// SIGKILL, without cleanup.
    pub fn kill(self) {
        self.process.kill();
    }

    /// SIGTERM, and waits for the orderly end.
    pub async fn stop(self) -> ExitStatus {
        self.process.stop().await
    }
}

/// Base configuration of every test; a test may append sections. Timeouts exceed any delay on a busy machine: a late
/// attempt would be retried.
pub(super) fn configuration(port: u16, chains: &[Chain], webhook_url: &str) -> String {
    let mut text = format!(
        r#"
[server]
listen = "127.0.0.1:{port}"
stop_deadline = "100s"
[admin]
secret = "{ADMIN_SECRET}"
[merchant]
secret = "{MERCHANT_SECRET}"
unknown_transfer_webhook_url = "{webhook_url}"
[webhooks]
allow_private_addresses = true
timeout = "30s"
"#
    );
    for chain in chains {
        let Chain { blockchain, rpc, wallet, more } = chain;
        text.push_str(&format!(
            r#"
[[wallets]]
blockchain = "{blockchain}"
address = "{wallet}"
enabled_coins = ["USDT"]
[chains.{blockchain}]
rpc = "{rpc}"
poll_interval = "100ms"
{more}
"#
        ));
    }
    text
}
