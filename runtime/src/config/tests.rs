//! Files, variables and secrets, good and bad.

use std::time::Duration;

use proptest::prelude::*;

use super::exposed::URL_KEY_CHARS_MIN;
use super::reader::parse_duration;
use super::*;
use crate::telemetry;

fn source(text: &str, variables: &[(&str, &str)]) -> Source {
    Source::parse(DEFAULTS, text, variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
}

/// Reads the sections of the process, with all problems.
fn read(text: &str, variables: &[(&str, &str)]) -> (Process, telemetry::Config, Vec<String>) {
    let mut source = source(text, variables);
    let process = Process::read(&mut source);
    let telemetry = telemetry::Config::read(source.section("telemetry"));
    let problems = source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines);
    (process, telemetry, problems)
}

#[test]
fn variables_override_a_file_and_both_the_defaults() {
    let (process, ..) = read(
        "[server]\nlisten = \"127.0.0.1:1\"\n[process]\nworkers = 2\n",
        &[("TIDEMARK__PROCESS__WORKERS", "3"), ("OTHER__PROCESS__WORKERS", "9")],
    );
    assert_eq!(process.listen, Some("127.0.0.1:1".parse().unwrap()));
    assert_eq!((process.workers, process.admin_listen), (3, None));
}

#[test]
fn operators_have_another_address_or_none() {
    let (process, _, problems) = read("[server]\nadmin_listen = \"127.0.0.1:1\"\n", &[]);
    assert_eq!(process.admin_listen, Some("127.0.0.1:1".parse().unwrap()));
    assert_eq!(problems, Vec::<String>::new());
    let (.., problems) = read("[server]\nadmin_listen = \"127.0.0.1:8080\"\n", &[]);
    assert!(problems[0].starts_with("server.admin_listen: must be another"), "{problems:?}");
}

#[test]
fn proxies_are_trusted_by_address_or_network() {
    let text = "[server]\ntrusted_proxies = [\"10.0.0.7\", \"192.0.2.0/24\"]\n";
    let variable = &[("TIDEMARK__SERVER__TRUSTED_PROXIES", "10.0.0.7,192.0.2.0/24")];
    for (text, variables) in [(text, &[][..]), ("", variable)] {
        let (process, _, problems) = read(text, variables);
        assert_eq!(problems, Vec::<String>::new());
        let proxies = ["10.0.0.7", "192.0.2.0/24"].map(|of| of.parse().unwrap());
        assert_eq!(process.trusted_proxies, proxies);
    }
    let (process, ..) = read("", &[("TIDEMARK__SERVER__TRUSTED_PROXIES", "")]);
    assert_eq!(process.trusted_proxies, []);
}

#[test]
fn all_problems_are_reported_at_once() {
    let (.., lines) = read(
        "[server]\nlisten = \"nowhere\"\nadmin_listen = \"there\"\nstop_deadline = \"soon\"\ncolour = 1\n\
         max_connections = 0\nheader_timeout = \"0s\"\nidle_timeout = \"2h\"\nbody_timeout = 20\n\
         trusted_proxies = [\"10.0.0.0/33\", \"10.0.0.7\", \"proxy\"]\n[process]\nworkers = 0\n[tabel]\n",
        &[],
    );
    let found = |start: &str| lines.iter().any(|line| line.starts_with(start));
    assert!(found("server.listen: "), "{lines:?}");
    assert!(found("server.admin_listen: "), "{lines:?}");
    for proxy in ["10.0.0.0/33", "proxy"] {
        let text = format!("server.trusted_proxies: \"{proxy}\" must be an address");
        assert!(found(&text), "{lines:?}");
    }
    assert!(found("server.stop_deadline: must be a duration"), "{lines:?}");
    assert!(found("server.colour: unknown key"), "{lines:?}");
    assert!(found("server.max_connections: must be a whole number from 16"), "{lines:?}");
    for key in ["header_timeout", "idle_timeout"] {
        let bounds = "must be more than 0s and at most 1h";
        assert!(found(&format!("server.{key}: {bounds}")), "{lines:?}");
    }
    assert!(found("server.body_timeout: must be a duration"), "{lines:?}");
    assert!(found("process.workers: must be a whole number"), "{lines:?}");
    assert!(found("tabel: unknown section"), "{lines:?}");
    assert_eq!(lines.len(), 12, "{lines:?}");
}

#[test]
fn spans_are_sent_to_a_url_with_a_secret_header() {
    let read = |keys: &str| {
        let (_, config, problems) = read(&format!("[telemetry]\n{keys}"), &[]);
        (config, problems)
    };
    let (config, problems) = read("");
    assert_eq!((config.otlp.is_none(), problems), (true, Vec::new()));
    let endpoint = "otlp_endpoint = \"http://collector:4318/\"\n";
    let (config, problems) = read(&format!("{endpoint}otlp_header = \"X-Key: secret-key\""));
    assert_eq!(problems, Vec::<String>::new());
    assert!(!format!("{config:?}").contains("secret-key"), "{config:?}");
    let otlp = config.otlp.unwrap();
    assert_eq!(otlp.url, "http://collector:4318/v1/traces");
    let (name, value) = otlp.header.unwrap();
    assert_eq!((name.as_str(), value.as_bytes()), ("x-key", &b"secret-key"[..]));
    for (keys, start) in [
        ("otlp_endpoint = \"collector:4318\"", "telemetry.otlp_endpoint: must be an http"),
        ("otlp_header = \"X-Key: secret-key\"", "telemetry.otlp_header: has no effect"),
        (&format!("{endpoint}otlp_header = \"secret-key\""), "telemetry.otlp_header: must be a"),
    ] {
        let (_, problems) = read(keys);
        assert!(problems.len() == 1 && problems[0].starts_with(start), "{keys}: {problems:?}");
        assert!(!problems[0].contains("secret-key"), "{problems:?}");
    }
}

#[test]
fn a_client_has_an_hour_at_most() {
    let max = process::TIMEOUT_MAX.as_secs();
    for (seconds, problems) in [(max, 0), (max + 1, 3)] {
        let text = ["header_timeout", "idle_timeout", "body_timeout"]
            .map(|key| format!("{key} = \"{seconds}s\"\n"));
        let (.., lines) = read(&format!("[server]\n{}", text.concat()), &[]);
        assert_eq!(lines.len(), problems, "{lines:?}");
    }
}

#[test]
fn syntax_error_names_the_line_without_its_text() {
    let source = source("[merchant]\nsecret = whsec_abc\n", &[]);
    let Problems(lines) = source.finish().unwrap_err();
    assert!(lines[0].starts_with("configuration file: line 2: "), "{lines:?}");
    assert!(!lines[0].contains("whsec_abc"), "{lines:?}");
}

proptest! {
    /// A text key gets the variable's text, even if TOML would parse it as another type.
    #[test]
    fn text_of_a_variable_is_unchanged(text in "[ -~é]{0,40}") {
        let mut source = source("", &[("TIDEMARK__LOG__PREFIX", &text)]);
        let mut section = source.section("log");
        prop_assert_eq!(section.optional_text("prefix"), Some(text));
    }
}

#[test]
fn variables_are_read_by_the_type_of_the_key() {
    let texts = ["0x10", "1_0", "12345e67", "true", "2026-01-01", "7.5", "[1]", "\"x\"", "{}"];
    for text in texts {
        let mut source = source("", &[("TIDEMARK__PROCESS__NAME", text)]);
        assert_eq!(source.section("process").optional_text("name").as_deref(), Some(text));
    }
    let variables = [
        ("TIDEMARK__A__NUMBER", "0x10"),
        ("TIDEMARK__A__FLAG", "true"),
        ("TIDEMARK__A__LIST", "[\"x\", \"y\"]"),
        ("TIDEMARK__A__TIME", "90s"),
        ("TIDEMARK__A__INNER", "{ name = \"z\" }"),
    ];
    let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let mut source = Source::parse("", "", variables);
    let mut section = source.section("a");
    assert_eq!((section.integer("number", 0..=99), section.flag("flag")), (16, true));
    assert_eq!(section.texts("list").unwrap(), ["x", "y"]);
    assert_eq!(section.duration("time"), Duration::from_secs(90));
    assert_eq!(section.section("inner").text("name"), "z");
    section.finish();
    source.finish().unwrap();
}

#[test]
fn only_missing_keys_are_forgiven() {
    let mut source = Source::parse("", "[a]\nnumber = \"x\"\n", []);
    let mut section = source.section("a");
    let _ = (section.integer("number", 0..=9), section.text("text"), section.flag("flag"));
    ["a.number", "a.text"].iter().for_each(|key| source.forgive(key));
    assert!(source.is_refused("a.flag") && !source.is_refused("a.text"));
    let Problems(lines) = source.finish().unwrap_err();
    assert_eq!(lines, ["a.number: must be a whole number from 0 to 9", "a.flag: is missing"]);
}

#[test]
fn a_secret_of_digits_is_a_text() {
    for text in ["007", "1234567890123456", "1_000", "1e9", "true", "[1]", "\"quoted\""] {
        for (variable, key) in
            [("TIDEMARK__ADMIN__SECRET", "secret"), ("TIDEMARK__ADMIN__PASSWORD", "password")]
        {
            let mut source = source("", &[(variable, text)]);
            let secret = source.section("admin").secret(key).unwrap();
            assert_eq!(secret.expose(), text.as_bytes());
        }
    }
}

#[test]
fn variables_that_set_nothing_are_problems() {
    let text = "[[admin.secrets]]\nsecret = \"old\"\n[process]\nworkers = 2\n";
    let of = |name| Source::parse("", text, [(String::from(name), String::from("new"))]);
    for name in ["TIDEMARK__ADMIN__SECRETS__0__SECRET", "TIDEMARK__PROCESS__WORKERS__X"] {
        let Problems(lines) = of(name).finish().unwrap_err();
        assert!(lines[0].starts_with(&format!("{name}: no variable leads into")), "{lines:?}");
    }
    let mut known = source("[dust]\nUSDT = \"1\"\n", &[("TIDEMARK__DUST__USDT", "2")]);
    let mut dust = known.section("dust");
    assert_eq!(dust.optional_text("USDT").as_deref(), Some("2"));
    assert!(dust.keys().is_empty());
}

#[test]
fn secrets_that_no_header_can_have_are_problems() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    for (text, problem) in [
        ("s3cret\r\n", None),
        ("s3 cret\n", None),
        ("\n", Some("is missing: ")),
        ("  ", Some("is missing: ")),
        ("s3cret \n", Some("must not begin or end")),
        (" s3cret", Some("must not begin or end")),
        ("s3\ncret\n", Some("nor have a control character")),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut source = source(&format!("[admin]\nsecret_file = {file:?}\n"), &[]);
        drop(source.section("admin").shared_secret("secret"));
        let lines = source.shared.lines();
        assert_eq!(lines.len(), usize::from(problem.is_some()), "{text:?}: {lines:?}");
        assert!(problem.is_none_or(|what| lines[0].contains(what)), "{text:?}: {lines:?}");
        assert!(!lines.concat().contains("cret \n"), "{lines:?}");
        // A broker's password may have any character.
        let known = problem.filter(|what| what.starts_with("is missing"));
        let mut source = self::source(&format!("[log]\npassword_file = {file:?}\n"), &[]);
        let secret = source.section("log").secret("password");
        assert_eq!(secret.is_none(), known.is_some(), "{text:?}");
        assert_eq!(source.shared.lines().len(), usize::from(known.is_some()), "{text:?}");
    }
}

#[test]
fn a_secret_file_of_no_use_may_be_absent() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["absent", "empty"].map(|name| dir.path().join(name)) {
        if file.ends_with("empty") {
            std::fs::write(&file, "\n").unwrap();
        }
        let mut source = source(&format!("[admin]\nsecret_file = {file:?}\n"), &[]);
        source.section("admin").required_secret("secret");
        let lines = source.shared.lines();
        assert!(lines[0].contains(&file.display().to_string()), "{lines:?}");
        source.forgive("admin.secret");
        assert!(source.shared.lines().is_empty(), "{lines:?}");
    }
}

#[test]
fn an_empty_variable_removes_a_secret_file() {
    let text = "[admin]\nsecret_file = \"/run/secrets/admin\"\n";
    let empty = ("TIDEMARK__ADMIN__SECRET_FILE", "");
    let given = ("TIDEMARK__ADMIN__SECRET", "s3cret");
    let mut source = source(text, &[empty, given]);
    assert_eq!(source.section("admin").required_secret("secret").expose(), b"s3cret");
    let mut without = self::source(text, &[empty]);
    assert!(without.section("admin").shared_secret("secret").is_none());
    assert_eq!([source, without].map(|source| source.shared.lines().len()), [0, 0]);
}

#[test]
fn durations() {
    for (text, seconds) in [("90s", 90), ("2m", 120), ("24h", 86_400), ("1d", 86_400)] {
        assert_eq!(parse_duration(text), Some(Duration::from_secs(seconds)));
    }
    assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
    for text in ["", "s", "1", "-1s", "1.5s", "1w", "99999999999999999999s"] {
        assert_eq!(parse_duration(text), None, "{text:?}");
    }
}

#[test]
fn files_with_secrets_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let [file, secret] = ["tidemark.toml", "secret"].map(|name| dir.path().join(name));
    std::fs::write(&secret, "s3cret").unwrap();
    let inside = "[[admin.secrets]]\nsecret = \"s\"\n";
    let key = "[chains.eth]\nrpc = [{ url = \"http://a\", api_key = \"k\" }]\n";
    let password = "[log]\nsasl_password = \"p\"\n";
    for (text, expected) in [
        ("[admin]\nsecret_file = \"secret\"\n", vec![&secret]),
        ("[admin]\nsecret_file = \"absent\"\nsecret = \"\"\n", vec![]),
        ("[merchant]\nname = \"secret\"\n", vec![]),
        (inside, vec![&file]),
        (key, vec![&file]),
        (password, vec![&file]),
        ("[telemetry]\notlp_header = \"Authorization: Bearer t\"\n", vec![&file]),
        ("[[alerts.sinks]]\nurl = \"https://chat.test/bot1:abc\"\n", vec![&file]),
        ("[[alerts.sinks]]\nheaders = { Authorization = \"a\" }\n", vec![&file]),
        ("[[alerts.sinks]]\nbody = \"{}\"\n", vec![&file]),
        ("[[alerts.sinks]]\nurl_file = \"url\"\nhost = \"mail.test\"\n", vec![]),
        ("[server]\nproxy = \"http://user:pw@proxy:1\"\n", vec![&file]),
        ("[chains.eth]\nrpc = [\"https://rpc.test/v3/0a1b2c3d4e5f6a7b\"]\n", vec![&file]),
        ("[chains.eth]\nrpc = [\"https://rpc.test?key=0a1b2c3d4e5f6a7b\"]\n", vec![&file]),
        (
            "[chains.eth]\nrpc = [\"https://rpc.test/ethereum-mainnet\", \"http://a:8545\"]\n",
            vec![],
        ),
    ] {
        assert_eq!("0a1b2c3d4e5f6a7b".len(), URL_KEY_CHARS_MIN);
        std::fs::write(&file, text).unwrap();
        let mut source = Source::load(DEFAULTS, Some(&file));
        drop(source.section("admin").secret("secret"));
        assert_eq!(source.secret_files().iter().collect::<Vec<_>>(), expected, "{text}");
    }
}

/// Otherwise a process started in another directory would create an empty installation.
#[test]
fn relative_paths_count_from_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidemark.toml");
    std::fs::write(dir.path().join("admin-secret"), "s3cret\n").unwrap();
    std::fs::write(
        &file,
        "[admin]\nsecret_file = \"admin-secret\"\n[log]\nca_file = \"/etc/ca.pem\"\n",
    )
    .unwrap();
    let mut source = Source::load(DEFAULTS, Some(&file));
    assert_eq!(source.section("admin").required_secret("secret").expose(), b"s3cret");
    assert_eq!(source.section("log").path("ca_file"), Some("/etc/ca.pem".into()));
    let process = Process::read(&mut source);
    assert_eq!(process.data_dir, dir.path().join("data"));
    assert_eq!(process.config_file, Some(file));
    let process = Process::read(&mut Source::load(DEFAULTS, None));
    assert_eq!((process.data_dir, process.config_file), (PathBuf::from("./data"), None));
}
