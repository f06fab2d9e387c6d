//! What the tests need from package registries: fetched once, kept outside the repository.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;
use crate::test::Need;

/// A real EVM node, as an npm package with a prebuilt binary.
const ANVIL: &str = "@foundry-rs/anvil@1.7.1";

/// The folder for downloads.
fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("tidemark"))
}

/// The path of anvil, which is fetched if it is not there.
fn anvil() -> Result<PathBuf> {
    let folder = cache()?.join(ANVIL.replace(['@', '/'], "-"));
    if binary(&folder).is_none() {
        std::fs::create_dir_all(&folder)?;
        shell::run(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .arg(ANVIL),
        )?;
    }
    let program = binary(&folder).context("the npm package has no binary for this machine")?;
    let version = shell::output(Command::new(&program).arg("--version"))?;
    ensure!(version.contains("anvil"), "{} is not anvil: {version}", program.display());
    Ok(program)
}

/// The program itself, from the package of this machine's kind. The launcher that npm puts into `.bin`
/// starts it as a child, which would outlive a launcher that is killed.
fn binary(folder: &Path) -> Option<PathBuf> {
    let packages = std::fs::read_dir(folder.join("node_modules").join("@foundry-rs")).ok()?;
    let programs = packages.flatten().map(|package| package.path().join("bin").join("anvil"));
    programs.into_iter().find(|program| {
        let is_launcher =
            program.parent().and_then(Path::parent).is_some_and(|p| p.ends_with("anvil"));
        !is_launcher && program.is_file()
    })
}

/// Kafka's jars with those of its tools and of Streams, as Maven has them.
const KAFKA: Jars = Jars {
    folder: "kafka-4.1.1",
    group: "org.apache.kafka",
    artifacts: &["kafka_2.13", "kafka-tools", "kafka-streams"],
    version: "4.1.1",
};
/// Cassandra's jars.
const CASSANDRA: Jars = Jars {
    folder: "cassandra-5.0.6",
    group: "org.apache.cassandra",
    artifacts: &["cassandra-all"],
    version: "5.0.6",
};
/// Clients of other languages: they must read what we write.
const AVRO: Jars = Jars {
    folder: "avro-1.12.1",
    group: "org.apache.avro",
    artifacts: &["avro"],
    version: "1.12.1",
};
/// The client's own list of extras for Avro cannot be had from every mirror: it wants the newest certificates.
const PYTHON: [&str; 7] = [
    "confluent-kafka==2.16.1",
    "fastavro==1.13.1",
    "attrs",
    "authlib",
    "cachetools",
    "certifi",
    "httpx",
];
const NODE: &str = "avsc@5.7.9";

struct Jars {
    folder: &'static str,
    group: &'static str,
    artifacts: &'static [&'static str],
    version: &'static str,
}

/// Written into a folder when everything that belongs there is there.
const COMPLETE: &str = "complete";

impl Jars {
    /// The folder of the jars, which are fetched if they are not there.
    fn fetch(&self) -> Result<PathBuf> {
        let folder = cache()?.join(self.folder);
        let lib = folder.join("lib");
        if !folder.join(COMPLETE).is_file() {
            std::fs::create_dir_all(&lib)?;
            std::fs::write(folder.join("pom.xml"), self.pom())?;
            shell::run(
                Command::new("mvn")
                    .args(["--quiet", "--batch-mode", "dependency:copy-dependencies"])
                    .arg(format!("-DoutputDirectory={}", lib.display()))
                    .current_dir(&folder),
            )?;
            std::fs::write(folder.join(COMPLETE), "")?;
        }
        Ok(lib)
    }

    fn pom(&self) -> String {
        let dependency = |artifact: &&str| {
            format!(
                "<dependency><groupId>{}</groupId><artifactId>{artifact}</artifactId>\
                 <version>{}</version></dependency>",
                self.group, self.version
            )
        };
        let all: String = self.artifacts.iter().map(dependency).collect();
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>tidemark</groupId><artifactId>services</artifactId><version>1</version>\
             <dependencies>{all}</dependencies></project>"
        )
    }
}

/// A Python with the client libraries.
fn python() -> Result<PathBuf> {
    let folder = cache()?.join("python-confluent-kafka-2.16.1");
    let program = folder.join("bin").join("python");
    // The program is a link to the system's Python, which may have got another version.
    if !(folder.join(COMPLETE).is_file() && program.exists()) {
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        shell::run(
            Command::new(&program)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(PYTHON),
        )?;
        std::fs::write(folder.join(COMPLETE), "")?;
    }
    Ok(program)
}

/// A folder of npm modules with the client library.
fn node_modules() -> Result<PathBuf> {
    let folder = cache()?.join(NODE.replace('@', "-"));
    let modules = folder.join("node_modules");
    if !modules.join("avsc").is_dir() {
        std::fs::create_dir_all(&folder)?;
        shell::run(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .arg(NODE),
        )?;
    }
    Ok(modules)
}

/// What tests find their servers and clients by: variables and their values.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// The variable with the folder of Kafka's jars.
pub(crate) const KAFKA_LIB: &str = "TIDEMARK_TEST_KAFKA_LIB";
/// The variable with the folder of Cassandra's jars.
pub(crate) const CASSANDRA_LIB: &str = "TIDEMARK_TEST_CASSANDRA_LIB";

/// Fetches what is needed and not there yet, and returns where it is.
///
/// # Errors
/// If a registry cannot be reached or the tools of [`crate::tools`] are missing.
pub(crate) fn fetch(needs: &BTreeSet<Need>) -> Result<Variables> {
    let folder = cache()?;
    std::fs::create_dir_all(&folder)?;
    // Two that fetch at once would write the same files.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let mut variables = Variables::new();
    let mut add = |name, path: PathBuf| variables.push((name, path.display().to_string()));
    for need in needs {
        match need {
            Need::Anvil => add("TIDEMARK_TEST_ANVIL", anvil()?),
            Need::Jars => {
                add(KAFKA_LIB, KAFKA.fetch()?);
                add(CASSANDRA_LIB, CASSANDRA.fetch()?);
            }
            Need::Clients => {
                add("TIDEMARK_TEST_AVRO_LIB", AVRO.fetch()?);
                add("TIDEMARK_TEST_PYTHON", python()?);
                add("TIDEMARK_TEST_NODE_MODULES", node_modules()?);
            }
            Need::Servers | Need::Python => {}
        }
    }
    Ok(variables)
}
