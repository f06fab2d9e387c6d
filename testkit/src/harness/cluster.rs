//! Every stage in separate processes, on Kafka and CQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use serde_json::Value;
use uuid::Uuid;
use xtask::Guard;

use super::process::{Process, executable, read};
use super::tidemark::configuration;
use super::{Chain, Client, free_port};
use crate::process::{given, lines_of, signal};
use crate::{DEADLINE, eventually_or};

/// Two of each stage that divides its partitions or chains among processes, and one api.
const PROCESSES: [(&str, &str); 9] = [
    ("ingest-1", "ingest"),
    ("ingest-2", "ingest"),
    ("processor-1", "processor"),
    ("processor-2", "processor"),
    ("projector-1", "projector"),
    ("projector-2", "projector"),
    ("webhooks-1", "webhooks"),
    ("webhooks-2", "webhooks"),
    ("api-1", "api"),
];
/// Gives each process its own port for `/ready`.
const LISTEN: &str = "TIDEMARK__TELEMETRY__LISTEN";

/// Separate topics and tables on the shared servers of the tests, and the configuration for them.
#[derive(Debug, Clone)]
pub struct Installation {
    dir: PathBuf,
    file: PathBuf,
    port: u16,
    blockchains: Vec<&'static str>,
    /// Additional configuration of its processes.
    variables: Vec<(&'static str, String)>,
}

impl Installation {
    /// Writes the configuration into `dir`. Topics and tables do not exist yet. `more` is TOML that continues section
    /// `[log]`.
    pub fn new(dir: &Path, chains: &[Chain], webhook_url: &str, more: &str) -> Self {
        let (kafka, cql) = (given("TIDEMARK_TEST_KAFKA"), given("TIDEMARK_TEST_CQL"));
        Self::on((&kafka, &cql), dir, chains, webhook_url, more)
    }

    /// As [`Installation::new`], on a given broker and node.
    pub fn on(
        (kafka, cql): (&str, &str),
        dir: &Path,
        chains: &[Chain],
        webhook_url: &str,
        more: &str,
    ) -> Self {
        let (port, id) = (free_port(), Uuid::now_v7().simple());
        let back_ends = format!(
            r#"
[store]
backend = "cql"
nodes = ["{cql}"]
keyspace = "t_{id}"
[log]
backend = "kafka"
brokers = "{kafka}"
prefix = "{id}."
"#
        );
        let file = dir.join("tidemark.toml");
        let text = configuration(port, chains, webhook_url) + &back_ends + more;
        std::fs::write(&file, text).expect("config");
        let blockchains = chains.iter().map(|chain| chain.blockchain).collect();
        Self { dir: dir.to_owned(), file, port, blockchains, variables: Vec::new() }
    }

    /// Returns the installation with variables for the processes that it starts.
    pub fn with_variables(self, variables: &[(&'static str, String)]) -> Self {
        Self { variables: variables.to_vec(), ..self }
    }

    /// Returns the installation with one more wallet in the configuration.
    pub fn with_wallet(&self, blockchain: &str, address: &str) -> Self {
        let text = std::fs::read_to_string(&self.file).expect("config");
        let wallet = format!(
            "[[wallets]]\nblockchain = \"{blockchain}\"\naddress = \"{address}\"\nenabled_coins = [\"USDT\"]\n"
        );
        let file = self.dir.join(format!("with-{address}.toml"));
        std::fs::write(&file, text + &wallet).expect("config");
        Self { file, ..self.clone() }
    }

    /// Returns the installation with a text of the configuration replaced.
    pub fn changed(&self, name: &str, from: &str, to: &str) -> Self {
        let text = std::fs::read_to_string(&self.file).expect("config");
        assert!(text.contains(from), "{from} is not in {text}");
        let file = self.dir.join(format!("{name}.toml"));
        std::fs::write(&file, text.replace(from, to)).expect("config");
        Self { file, ..self.clone() }
    }

    /// Prefix of its topics, groups and transactions.
    pub fn prefix(&self) -> String {
        self.value("prefix")
    }

    pub fn keyspace(&self) -> String {
        self.value("keyspace")
    }

    /// The same installation with the tables of another keyspace.
    pub fn on_keyspace(&self, keyspace: &str) -> Self {
        self.changed(keyspace, &self.keyspace(), keyspace)
    }

    /// Value of a text key of the configuration.
    fn value(&self, key: &str) -> String {
        let text = std::fs::read_to_string(&self.file).expect("config");
        let (_, rest) = text.split_once(&format!("{key} = \"")).expect("a value");
        rest.split('"').next().unwrap_or_default().to_owned()
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn api(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(executable());
        command.args(arguments).arg("--config").arg(&self.file);
        command
    }

    /// Runs a command, such as `topics create`, to its end.
    pub fn errand(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("tidemark runs")
    }

    pub fn provide(&self) {
        for arguments in [["topics", "create"], ["schema", "migrate"]] {
            let output = self.errand(&arguments);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {error}");
        }
    }

    /// Copies the tables to a new keyspace by `tables rebuild --into`, stopped once complete; returns its name.
    pub fn copy_tables(&self) -> String {
        let keyspace = format!("t_{}", Uuid::now_v7().simple());
        let mut command = self.command(&["tables", "rebuild", "--into", &keyspace]);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("tidemark runs");
        let _guard = Guard::of(process.id()).expect("a guard");
        let lines = lines_of(&mut process);
        loop {
            let line = lines.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|end| panic!("{end}: {:?}", process.try_wait()));
            if line.contains("has everything") {
                break;
            }
        }
        signal(process.id(), "TERM");
        assert!(process.wait().expect("its end").success());
        keyspace
    }

    /// `true` if `tidemark health` succeeds for one of its processes.
    pub fn is_healthy(&self, member: &Member) -> bool {
        let mut command = self.command(&["health"]);
        command.env(LISTEN, format!("127.0.0.1:{}", member.telemetry));
        command.output().expect("tidemark runs").status.success()
    }

    /// Starts a process for one stage.
    pub fn start(&self, name: &str, stage: &str) -> Member {
        let telemetry = free_port();
        let mut variables = self.variables.clone();
        variables.push(("TIDEMARK__PROCESS__NAME", name.to_owned()));
        variables.push((LISTEN, format!("127.0.0.1:{telemetry}")));
        let file = self.file.display().to_string();
        let arguments = ["run", stage, "--config", &file];
        Member { process: Process::start(name, &self.dir, &arguments, &variables), telemetry }
    }
}

/// One process of an installation.
#[derive(Debug)]
pub struct Member {
    pub process: Process,
    /// Port of `/ready` and `/metrics`.
    pub telemetry: u16,
}

impl Member {
    /// Waits until it is ready.
    pub async fn ready(&mut self) {
        self.waiting_for("nothing", |lines| lines.is_empty()).await;
    }

    /// Waits until its pending conditions match, and returns them.
    pub async fn waiting_for(
        &mut self,
        what: &str,
        is_wanted: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let what = format!("{} to wait for {what}", self.process.name());
        let (telemetry, is_wanted) = (self.telemetry, &is_wanted);
        let (seen, log) = (&Mutex::new(None), self.process.log_file().to_owned());
        let check = || {
            self.process.assert_running();
            async move {
                let lines = readiness(telemetry).await;
                seen.lock().expect("no panic").clone_from(&lines);
                lines.filter(|lines| is_wanted(lines))
            }
        };
        let explain = || format!("it waits for {seen:?}; its log:\n{}", read(&log));
        eventually_or(&what, check, explain).await
    }
}

/// All processes of an installation.
#[derive(Debug)]
pub struct Cluster {
    installation: Installation,
    members: Vec<Member>,
}

impl Cluster {
    /// Makes topics and tables, starts every stage, and waits until all are ready and the chains offered.
    pub async fn start(dir: &Path, chains: &[Chain], webhook_url: &str, more: &str) -> Self {
        Self::run(Installation::new(dir, chains, webhook_url, more)).await
    }

    /// As [`Cluster::start`], for an installation that has no topics and tables yet.
    pub async fn run(installation: Installation) -> Self {
        installation.provide();
        let start = |(name, stage)| installation.start(name, stage);
        let members = PROCESSES.into_iter().map(start).collect();
        let mut cluster = Self { installation, members };
        cluster.ready().await;
        cluster.client().offers(&cluster.installation.blockchains).await;
        cluster
    }

    /// Waits until all of them are ready.
    pub async fn ready(&mut self) {
        for member in &mut self.members {
            member.ready().await;
        }
    }

    pub fn assert_running(&mut self) {
        for member in &mut self.members {
            member.process.assert_running();
        }
    }

    pub fn members(&mut self) -> &mut [Member] {
        &mut self.members
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    pub fn client(&self) -> Client {
        Client::new(&self.installation.api()).on_servers()
    }

    /// Kills the process of this name by SIGKILL.
    pub fn kill(&mut self, name: &str) {
        let found = self.members.iter().position(|member| member.process.name() == name);
        self.members.remove(found.expect("its name")).process.kill();
    }

    /// SIGTERM to all, and waits for their orderly ends.
    pub async fn stop(self) {
        for member in &self.members {
            member.process.signal("TERM");
        }
        for member in self.members {
            let name = member.process.name().to_owned();
            let log = self.installation.dir.join(format!("{name}.log"));
            let status = member.process.end().await;
            let logged = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(status.success(), "{name} ended with {status}:\n{}", logged());
        }
    }
}

/// Conditions that `/ready` at a port still waits for; `None` without an answer.
async fn readiness(port: u16) -> Option<Vec<String>> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
    let response = http.get(format!("http://127.0.0.1:{port}/ready")).send().await.ok()?;
    let status = response.status();
    let body: Value = response.json().await.ok()?;
    let lines = body["waiting_for"].as_array().into_iter().flatten();
    let lines: Vec<_> = lines.filter_map(Value::as_str).map(str::to_owned).collect();
    let is_ready = lines.is_empty();
    assert_eq!((&body["ready"], status.is_success()), (&Value::Bool(is_ready), is_ready), "{body}");
    Some(lines)
}
