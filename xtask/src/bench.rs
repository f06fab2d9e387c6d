//! Measurements, with machine and commit: reported, never judged.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::fetch;
use crate::need::Need;
use crate::shell::{self, cargo, output, print};
use crate::test;
use crate::tools::{self, Kit};

/// Those that start servers of their own come last.
const NAMES: [&str; 9] =
    ["amounts", "machine", INGEST, "pipeline", "orders", WEBHOOKS, "api", "process", KAFKA];
const INGEST: &str = "ingest";
const WEBHOOKS: &str = "webhooks";
const KAFKA: &str = "kafka";

/// Runs one measurement, or all.
pub(crate) fn run(name: Option<&str>) -> Result<()> {
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
    let executable = test::release()?;
    print(&format!("commit  {commit}\nmachine {model}, {cores} cores"));
    for name in NAMES.iter().filter(|known| name.is_none_or(|name| name == **known)) {
        let mut command = cargo();
        command.args(["bench", "--quiet", "--package", "tidemark-tests", "--bench", name]);
        command.env("TIDEMARK_TEST_EXECUTABLE", &executable);
        let needs: &[Need] = match *name {
            WEBHOOKS | KAFKA => &[Need::Jars],
            INGEST => &[Need::Anvil],
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
