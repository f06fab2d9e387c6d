//! The rules of `deploy/prometheus/` by promtool, their pages, and the dashboard.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use testkit::process::{given, text};
use testkit::repository::{read, root};

const RULES: &str = "deploy/prometheus/tidemark.rules.yml";
const RULE_TESTS: &str = "deploy/prometheus/tidemark.rules.test.yml";
const RUNBOOK: &str = "docs/operate/runbook";

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&read(file)).unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

/// Each rule by its name.
fn rules() -> BTreeMap<String, Value> {
    let file = yaml(RULES);
    let rules = list(&file["groups"]).flat_map(|group| list(&group["rules"]));
    rules.map(|rule| (rule["alert"].as_str().unwrap().to_owned(), rule.clone())).collect()
}

#[test]
fn rules_fire_for_their_fault_alone() {
    let promtool = given("TIDEMARK_TEST_PROMTOOL");
    for arguments in [["check", "rules", RULES], ["test", "rules", RULE_TESTS]] {
        let output = Command::new(&promtool).args(arguments).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn each_rule_is_seen_to_fire_and_to_be_silent() {
    let file = yaml(RULE_TESTS);
    let cases = list(&file["tests"]).flat_map(|test| list(&test["alert_rule_test"]));
    let (mut fires, mut is_silent) = (BTreeSet::new(), BTreeSet::new());
    for case in cases {
        let kinds = match list(&case["exp_alerts"]).count() {
            0 => &mut is_silent,
            _ => &mut fires,
        };
        kinds.insert(case["alertname"].as_str().unwrap().to_owned());
    }
    let rules: BTreeSet<_> = rules().into_keys().collect();
    assert!(rules.len() >= 26, "{rules:?}");
    assert_eq!((&fires, &is_silent), (&rules, &rules));
}

#[test]
fn each_rule_has_a_page() {
    let mut used = BTreeSet::new();
    for (name, rule) in rules() {
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["page", "ticket"].contains(&severity), "{name}: {severity}");
        let file = rule["annotations"]["runbook"].as_str().unwrap();
        let page = read(file);
        let alerts = page.lines().find(|line| line.starts_with("Alerts: ")).unwrap();
        assert!(alerts.contains(&format!("`{name}`")), "{file}: {alerts}");
        let headings: Vec<_> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, ["## You see", "## It means", "## Do", "## Do not"], "{file}");
        used.insert(file.to_owned());
    }
    let files = std::fs::read_dir(root().join(RUNBOOK)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<_> = names.map(|name| format!("{RUNBOOK}/{name}")).collect();
    assert_eq!(used, pages);
}

/// The metrics of Tidemark and of its process that a text names.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tidemark_") || word.starts_with("process_")).collect()
}

#[test]
fn rules_and_dashboard_ask_for_metrics_that_exist() {
    let documented = read("docs/operate/metrics.md");
    let known = metrics(&documented);
    for file in [RULES, RULE_TESTS, "deploy/grafana/tidemark.json"] {
        let text = read(file);
        let named = metrics(&text);
        assert!(named.len() >= 20, "{file}: {named:?}");
        let is_unknown = |name: &&&str| !known.contains(name.trim_end_matches("_bucket"));
        let unknown: Vec<_> = named.iter().filter(is_unknown).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn each_stage_of_the_example_is_scraped() {
    let compose = yaml("docker-compose.yml");
    let services = compose["services"].as_object().unwrap().iter();
    let stages = services.filter(|(_, service)| service["command"][0] == "run");
    let expected: BTreeSet<_> = stages.map(|(name, _)| format!("{name}:9464")).collect();
    let prometheus = yaml("deploy/prometheus/prometheus.yml");
    let targets = &prometheus["scrape_configs"][0]["static_configs"][0]["targets"];
    let targets: BTreeSet<_> =
        list(targets).map(|target| target.as_str().unwrap().to_owned()).collect();
    assert_eq!(targets, expected);
}
