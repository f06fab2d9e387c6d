//! The files of `deploy/`: the executable accepts their commands, and they forward only public routes.

use std::process::Command;

use testkit::harness::{ADMIN_SECRET, MERCHANT_SECRET, executable};
use testkit::process::text;
use testkit::repository::read;

const CONFIG: &str = "/etc/tidemark/tidemark.toml";
const STAGES: [&str; 5] = ["api", "ingest", "processor", "projector", "webhooks"];

/// The arguments of the commands of a unit, for one instance of it.
fn commands(unit: &str, instance: &str) -> Vec<Vec<String>> {
    let text = read(&format!("deploy/{unit}")).replace("%i", instance);
    let lines = text.lines().filter_map(|line| line.strip_prefix("ExecStart"));
    let commands = lines.map(|line| {
        let (_, command) = line.split_once('=').unwrap();
        let (program, arguments) = command.split_once(' ').unwrap();
        assert_eq!(program, "/usr/local/bin/tidemark");
        arguments.split(' ').map(str::to_owned).collect()
    });
    commands.collect()
}

#[test]
fn units_run_known_commands() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tidemark.toml");
    let secrets = format!(
        "[admin]\nsecret = \"{ADMIN_SECRET}\"\n[merchant]\nsecret = \"{MERCHANT_SECRET}\"\n"
    );
    let servers = "[log]\nbackend = \"kafka\"\nbrokers = \"kafka:9092\"\n\
                   [store]\nbackend = \"cql\"\nnodes = [\"cassandra:9042\"]\n";
    let one = vec![commands("systemd/tidemark.service", "")];
    let staged = STAGES.map(|stage| commands("systemd/tidemark@.service", stage)).to_vec();
    for (units, sections) in [(one, secrets.clone()), (staged, secrets + servers)] {
        std::fs::write(&config, sections).unwrap();
        for unit in units {
            // RestartPreventExitStatus= is about the exit of ExecStart= alone: a refusal by ExecStartPre= would be
            // repeated for ever.
            assert_eq!(unit.len(), 1, "a start alone: {unit:?}");
            for arguments in &unit {
                let arguments = arguments.iter().map(|word| match word.as_str() {
                    CONFIG => config.to_str().unwrap(),
                    other => other,
                });
                // With the flag, the start command ends after its check.
                let arguments = arguments.chain(["--check-config"]);
                let output = Command::new(executable()).args(arguments).output().unwrap();
                assert!(output.status.success(), "{}", text(&output));
            }
        }
    }
}

/// The operators' API and the registry are not for the public.
#[test]
fn proxies_forward_the_public_routes_alone() {
    for (file, pattern) in [
        ("proxy/nginx.conf", "location ~ ^/(checkout|api/v1/service|api/v1/user)(/|$) {"),
        ("proxy/Caddyfile", "@shop path /checkout /checkout/* /api/v1/service/* /api/v1/user/*\n"),
    ] {
        let text = read(&format!("deploy/{file}"));
        assert!(text.contains(pattern), "{file}");
        let forwards = text.matches("proxy_pass ").count() + text.matches("reverse_proxy ").count();
        assert_eq!(forwards, 1, "{file}");
    }
}
