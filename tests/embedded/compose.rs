//! docker-compose.yml and the Dockerfile, as far as they can be tested without a container engine: the executable
//! accepts their commands, and all files that they name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Map, Value};
use testkit::harness::executable;
use testkit::repository::{read, root};

/// Path of the configuration in the services, and in the repository.
const CONFIG: (&str, &str) = ("/etc/tidemark.toml", "docker/tidemark.toml");

fn compose() -> Value {
    serde_saphyr::from_str(&read("docker-compose.yml")).unwrap()
}

fn services(compose: &Value) -> &Map<String, Value> {
    compose["services"].as_object().unwrap()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().map_or_else(Vec::new, |list| list.iter().map(|v| v.as_str().unwrap()).collect())
}

/// The services that run our executable, with their arguments.
fn ours(compose: &Value) -> BTreeMap<&str, Vec<&str>> {
    services(compose)
        .iter()
        .filter(|(_, service)| service["image"] == "tidemark")
        .map(|(name, service)| (name.as_str(), texts(&service["command"])))
        .collect()
}

/// Runs the executable as a service does, but for the path of its configuration.
fn tidemark(service: &Value, arguments: &[&str]) -> (bool, String) {
    let config = root().join(CONFIG.1);
    let mut command = Command::new(executable());
    for argument in arguments {
        if *argument == CONFIG.0 {
            command.arg(&config);
        } else {
            command.arg(argument);
        }
    }
    for (name, value) in service["environment"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap());
    }
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_process_runs_a_known_command() {
    let compose = compose();
    let ours = ours(&compose);
    assert!(ours.len() >= 11, "{ours:?}");
    let builds = |name: &&&str| services(&compose)[**name]["build"].is_string();
    assert_eq!(ours.keys().filter(builds).count(), 1, "one image, one build");
    for (name, arguments) in &ours {
        let service = &services(&compose)[*name];
        // `--check-config` checks the command, the keys and the required secrets, and starts nothing. For other
        // commands, `--help` refuses unknown commands and options.
        let check = if arguments.first() == Some(&"run") { "--check-config" } else { "--help" };
        let (is_valid, error) = tidemark(service, &[arguments.as_slice(), &[check]].concat());
        assert!(is_valid, "{name}: {error}");
        let mounted = format!("./{}:{}:ro", CONFIG.1, CONFIG.0);
        assert_eq!(texts(&service["volumes"]), [mounted], "{name}");
    }
}

#[test]
fn every_stage_has_its_own_process() {
    let compose = compose();
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (service, arguments) in ours(&compose) {
        let ["run", stage, "--config", _] = arguments[..] else { continue };
        let service = &services(&compose)[service];
        let name = service["environment"]["TIDEMARK__PROCESS__NAME"].as_str().unwrap();
        names.entry(stage).or_default().push(name);
        assert_eq!(texts(&service["healthcheck"]["test"])[..3], ["CMD", "tidemark", "health"]);
    }
    let stages: Vec<_> = names.keys().copied().collect();
    assert_eq!(stages, ["api", "ingest", "processor", "projector", "webhooks"]);
    for (stage, names) in names {
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{stage}: {names:?}");
        assert!(stage == "api" || names.len() == 2, "{stage}: {names:?}");
    }
}

#[test]
fn everything_that_is_named_is_there() {
    let compose = compose();
    let all = services(&compose);
    let declared = |kind: &str, name: &str| compose[kind].as_object().unwrap().contains_key(name);
    for (name, service) in all {
        for (dependency, rule) in service["depends_on"].as_object().into_iter().flatten() {
            let on = &all[dependency];
            match rule["condition"].as_str().unwrap() {
                "service_healthy" => assert!(on["healthcheck"].is_object(), "{dependency}"),
                "service_completed_successfully" => {
                    assert!(on["restart"].is_null(), "{dependency}")
                }
                other => panic!("{name}: {other}"),
            }
        }
        for network in texts(&service["networks"]) {
            assert!(declared("networks", network), "{name}: {network}");
        }
        for volume in texts(&service["volumes"]) {
            let from = volume.split(':').next().unwrap();
            let exists = root().join(from).exists();
            assert!(exists || declared("volumes", from), "{name}: {volume}");
        }
        let image = service["image"].as_str().unwrap();
        let tag = image.rsplit('/').next().unwrap().split_once(':').map(|(_, tag)| tag);
        assert!(image == "tidemark" || tag.is_some_and(|tag| tag != "latest"), "{image}");
    }
    // Hosts that the configuration names are services.
    let config = read(CONFIG.1);
    let hosts: Vec<_> = config
        .split(['"', '/'])
        .filter_map(|part| part.split_once(':'))
        .filter(|(host, port)| !host.starts_with("0.") && port.parse::<u16>().is_ok())
        .map(|(host, _)| host)
        .collect();
    assert!(hosts.len() >= 5, "{hosts:?}");
    for host in hosts {
        assert!(all.contains_key(host), "no service is {host}");
    }
}

#[test]
fn the_image_has_every_file_that_is_compiled_in() {
    const DOCUMENT: &str = "docs/openapi.json";
    assert!(read("api/src/reference.rs").contains(&format!("include_str!(\"../../{DOCUMENT}\")")));
    let ignored = read(".dockerignore");
    // In `.dockerignore` the last matching line counts.
    let mut lines = ignored.lines().filter(|line| line.trim_start_matches('!').starts_with("docs"));
    assert_eq!(lines.next_back(), Some(&*format!("!{DOCUMENT}")), "{ignored}");
    assert!(lines.eq(["docs/*"]), "a folder that is left out cannot have files that are not");
}

/// A volume is made with the owner of the folder that it covers, or for root if the image has none.
#[test]
fn the_place_of_a_volume_belongs_to_the_user() {
    let dockerfile = read("Dockerfile");
    let after = |start: &str| dockerfile.lines().find_map(|line| line.strip_prefix(start)).unwrap();
    let (user, folder) = (after("USER "), after("ENV TIDEMARK__DATA__DIR="));
    let made = format!("install --directory --owner={user} --mode=0700 {folder}\n");
    assert!(dockerfile.contains(&made), "{made}");
}

#[test]
fn versions_are_those_of_the_tests() {
    let compose = compose();
    let (services, of_tests) = (services(&compose), read("xtask/src/fetch.rs"));
    let version = |service: &str| {
        let image = services[service]["image"].as_str().unwrap();
        image.rsplit_once(':').unwrap().1.trim_start_matches('v').to_owned()
    };
    assert!(of_tests.contains(&format!(":kafka_2.13:{}\"", version("kafka"))));
    for anvil in ["anvil-eth", "anvil-polygon"] {
        assert!(of_tests.contains(&format!("@foundry-rs/anvil@{}\"", version(anvil))));
    }
    let toolchain = read("rust-toolchain.toml");
    let dockerfile = read("Dockerfile");
    let compiler = toolchain.split('"').nth(1).unwrap();
    assert!(dockerfile.contains(&format!("ENV RUSTUP_TOOLCHAIN={compiler}\n")), "{compiler}");
    assert!(dockerfile.contains(&format!("FROM rust:{compiler}-bookworm AS")), "{compiler}");
}
