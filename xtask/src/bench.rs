//! Measurements, with machine and commit: told, never judged.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::services;
use crate::shell::{self, cargo, output};

/// Those that start servers of their own come last.
const NAMES: [&str; 5] = ["machine", "pipeline", "api", "process", KAFKA];
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
    shell::run(cargo().args(["build", "--release", "--package", "tidemark"]))?;
    println(&format!("commit  {commit}\nmachine {model}, {cores} cores"));
    for name in NAMES.iter().filter(|known| name.is_none_or(|name| name == **known)) {
        let mut command = cargo();
        command.args(["bench", "--quiet", "--package", "tidemark-tests", "--bench", name]);
        if *name == KAFKA {
            command.envs(services::fetch()?);
        }
        shell::run(&mut command)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a command line tool")]
fn println(line: &str) {
    println!("{line}");
}
