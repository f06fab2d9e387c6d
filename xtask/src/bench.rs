//! Measurements, with machine and commit: reported, never judged.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::fetch;
use crate::need::Need;
use crate::shell::{self, cargo, output, print};
use crate::test;
use crate::tools::{self, Kit};

/// Names of the measurements, in the order in which all of them run.
const NAMES: [&str; 7] = ["machine", "pipeline", WEBHOOKS, "api", "process", "reconcile", KAFKA];
const WEBHOOKS: &str = "webhooks";
const KAFKA: &str = "kafka";

/// Runs one measurement with its arguments, or all.
pub(crate) fn run(name: Option<&str>, arguments: &[&str]) -> Result<()> {
    ensure!(name.is_none_or(|name| NAMES.contains(&name)), "there is {}", NAMES.join(", "));
    let commit = output(Command::new("git").current_dir(shell::root()).args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
    ]))?;
    let machine = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = machine.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |text| text.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism()?;
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory = memory.map_or("memory unknown", str::trim);
    let executable = test::release()?;
    print(&format!("commit  {commit}\nmachine {model}, {cores} cores, {memory}"));
    for name in NAMES.iter().filter(|known| name.is_none_or(|name| name == **known)) {
        let mut command = cargo();
        command.args(["bench", "--quiet", "--package", "tidemark-tests", "--bench", name]);
        command.arg("--").args(arguments);
        command.env("TIDEMARK_TEST_EXECUTABLE", &executable);
        let needs: &[Need] = match *name {
            WEBHOOKS | KAFKA => &[Need::Jars],
            _ => &[],
        };
        if !needs.is_empty() {
            tools::check(Kit::Services)?;
            command.envs(fetch::fetch(&needs.iter().copied().collect())?);
        }
        shell::run(&mut command)?;
    }
    Ok(())
}
