//! The built executable as a process, killed when the test lets go of it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{Client, eventually, free_port};

/// `[merchant] secret` of every test.
pub const MERCHANT_SECRET: &str = "test-merchant-secret";
/// `[admin] secret` of every test.
pub const ADMIN_SECRET: &str = "test-admin-secret";

/// A chain to follow.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Identifier (spec 2.1).
    pub blockchain: &'static str,
    /// JSON-RPC endpoint.
    pub rpc: String,
    /// Wallet on it.
    pub wallet: &'static str,
    /// Further keys of its section.
    pub more: String,
}

/// A running `tidemark run`.
#[derive(Debug)]
pub struct Tidemark {
    child: Child,
    port: u16,
    /// From the start of the process to its first answer.
    pub healthy_after: Duration,
}

/// The executable, built by the cargo that runs the tests: never a stale one.
///
/// # Panics
/// If it cannot be built.
pub fn executable() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = std::env::current_exe().expect("the test's path");
        let folder = test.parent().and_then(Path::parent).expect("target/debug or /release");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "tidemark"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        assert!(build.status().expect("cargo runs").success(), "tidemark is built");
        folder.join("tidemark")
    })
}

impl Tidemark {
    /// Writes a configuration into `dir` and starts all stages on it. `more` is further TOML.
    ///
    /// # Panics
    /// If the process cannot be started.
    pub async fn start(dir: &Path, chains: &[Chain], webhook_url: &str, more: &str) -> Self {
        let port = free_port();
        let file = dir.join("tidemark.toml");
        std::fs::write(&file, configuration(dir, port, chains, webhook_url, more)).expect("config");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join("tidemark.log"))
            .expect("log file");
        let executable = executable();
        let started = Instant::now();
        let child = Command::new(executable)
            .arg("run")
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("tidemark starts");
        let mut node = Self { child, port, healthy_after: Duration::ZERO };
        let client = node.client();
        eventually("tidemark to be healthy", Duration::from_secs(20), || {
            let ended = node.child.try_wait().expect("its state");
            let log = || std::fs::read_to_string(dir.join("tidemark.log")).unwrap_or_default();
            assert!(ended.is_none(), "tidemark ended with {ended:?}:\n{}", log());
            let client = &client;
            async move { client.is_healthy().await.then_some(()) }
        })
        .await;
        node.healthy_after = started.elapsed();
        node
    }

    /// A client of its API.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&format!("http://127.0.0.1:{}", self.port))
    }

    /// Where its API listens.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: no chance to tidy up.
    ///
    /// # Panics
    /// If it was gone already.
    pub fn kill(mut self) {
        assert!(self.child.try_wait().expect("its state").is_none(), "it ended before the kill");
        self.child.kill().expect("kill");
        self.child.wait().expect("its end");
    }

    /// SIGTERM, and waits for the orderly end.
    ///
    /// # Panics
    /// If it does not end in time.
    pub async fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(status.success());
        eventually("tidemark to stop", Duration::from_secs(25), || {
            let ended = self.child.try_wait().expect("its state");
            async move { ended }
        })
        .await
    }
}

impl Drop for Tidemark {
    fn drop(&mut self) {
        // Already gone is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn configuration(dir: &Path, port: u16, chains: &[Chain], webhook_url: &str, more: &str) -> String {
    let mut text = format!(
        r#"
[server]
listen = "127.0.0.1:{port}"
[data]
dir = "{dir}/data"
[telemetry]
listen = ""
[admin]
secret = "{ADMIN_SECRET}"
[merchant]
secret = "{MERCHANT_SECRET}"
unknown_transfer_webhook_url = "{webhook_url}"
[webhooks]
allow_private_addresses = true
"#,
        dir = dir.display()
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
rpc = ["{rpc}"]
poll_interval = "100ms"
{more}
"#
        ));
    }
    text + more
}
