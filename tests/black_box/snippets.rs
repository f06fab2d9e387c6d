//! The programs of `examples/` in other languages, and our own code, agree with `examples/vectors.json`.

use std::path::{Path, PathBuf};
use std::process::Command;

use schemas::{OrderId, Secret, UnixSeconds, sign_checkout, sign_service, verify_service};
use serde_json::Value;

/// What is started, and the program below `examples/`. Of PHP and Go neither the tests nor CI have one.
const PROGRAMS: [(&str, &str); 4] = [
    ("python3", "python/tidemark.py"),
    ("node", "node/tidemark.js"),
    ("java", "java/Tidemark.java"),
    ("bash", "shell/tidemark.sh"),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn vectors() -> Value {
    let text = std::fs::read_to_string(examples().join("vectors.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The arguments of each call of a program, and what it has to print.
fn calls(vectors: &Value) -> Vec<(Vec<String>, String)> {
    let rows = |name: &str| vectors[name].as_array().unwrap().iter();
    let text = |value: &Value| match value {
        Value::Bool(true) => "genuine".to_owned(),
        Value::Bool(false) => "refused".to_owned(),
        Value::Number(number) => number.to_string(),
        other => other.as_str().unwrap().to_owned(),
    };
    let mut calls = Vec::new();
    for (command, fields, answer) in [
        ("sign", &["timestamp", "body"][..], "signature"),
        ("verify", &["now", "header", "body"], "genuine"),
        ("link", &["order_id", "exp"], "query"),
    ] {
        calls.extend(rows(command).map(|row| {
            let arguments = fields.iter().map(|field| text(&row[field]));
            let arguments = std::iter::once(command.to_owned()).chain(arguments);
            (arguments.collect(), text(&row[answer]))
        }));
    }
    calls
}

/// What our own code answers.
fn ours(secret: &str, arguments: &[String]) -> String {
    let secret = Secret::new(secret);
    let seconds = |text: &String| UnixSeconds(text.parse().unwrap());
    match arguments {
        [command, timestamp, body] if command == "sign" => {
            sign_service(&secret, seconds(timestamp), body.as_bytes())
        }
        [_, now, header, body] => {
            let checked = verify_service(&[secret], header, body.as_bytes(), seconds(now));
            if checked.is_ok() { "genuine".into() } else { "refused".into() }
        }
        [_, order_id, exp] => {
            let order_id: OrderId = order_id.parse().unwrap();
            format!("exp={exp}&sig={}", sign_checkout(&secret, order_id, seconds(exp)))
        }
        _ => panic!("{arguments:?}"),
    }
}

#[test]
fn every_program_agrees_with_the_vectors() {
    let vectors = vectors();
    let secret = vectors["secret"].as_str().unwrap();
    let calls = calls(&vectors);
    assert!(calls.len() >= 19, "{} vectors", calls.len());
    for (arguments, wanted) in &calls {
        assert_eq!(ours(secret, arguments), *wanted, "{arguments:?}");
    }
    for (program, path) in PROGRAMS {
        for (arguments, wanted) in &calls {
            let mut command = Command::new(program);
            command.arg(examples().join(path)).args(arguments).env("MERCHANT_SECRET", secret);
            let output = command.output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(printed.trim_end(), wanted, "{path} {arguments:?}: {errors}");
        }
    }
}
