//! The programs of `examples/` in other languages, and our own code, agree with `examples/vectors.json`; a running
//! service accepts their signatures, and they its webhooks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use schemas::{
    OrderId, Secret, UnixSeconds, sign_checkout, sign_return, sign_service, verify_service,
};
use serde_json::{Value, json};
use testkit::harness::{Chain, MERCHANT_SECRET, Merchant, Tidemark, WALLET, evm_node, now};
use testkit::process::text;
use testkit::repository::{read, root};

use crate::java::java;

/// Commands, and the programs below `examples/` that they run.
const PROGRAMS: [(&str, &str); 6] = [
    ("python3", "python/tidemark.py"),
    ("node", "node/tidemark.js"),
    ("java", "java/Tidemark.java"),
    ("bash", "shell/tidemark.sh"),
    ("go", "go/tidemark.go"),
    ("php", "php/tidemark.php"),
];

/// The program in Go, which is built once.
fn built_by_go() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
        let program = folder.join("tidemark");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&program).arg(examples().join("go/tidemark.go"));
        let output = build.env("GOCACHE", folder.join("cache")).output().expect("go runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    })
}

fn examples() -> PathBuf {
    root().join("examples")
}

/// The arguments of each call of a program, and its expected output.
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
        ("proof", &["order_id", "status", "proof"], "genuine"),
    ] {
        calls.extend(rows(command).map(|row| {
            let arguments = fields.iter().map(|field| text(&row[field]));
            let arguments = std::iter::once(command.to_owned()).chain(arguments);
            (arguments.collect(), text(&row[answer]))
        }));
    }
    calls
}

/// Result of our own code.
fn ours(secret: &str, arguments: &[String]) -> String {
    let secret = Secret::new(secret);
    let seconds = |text: &String| UnixSeconds(text.parse().unwrap());
    match arguments {
        [command, timestamp, body] if command == "sign" => {
            sign_service(&secret, seconds(timestamp), body.as_bytes())
        }
        [command, order_id, status, proof] if command == "proof" => {
            let (order_id, status) = (order_id.parse().unwrap(), status.parse().unwrap());
            let time = proof.split('.').next().unwrap().parse().unwrap_or(-1);
            let made = sign_return(&secret, order_id, status, UnixSeconds(time));
            if *proof == format!("{time}.{made}") { "genuine".into() } else { "refused".into() }
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
    let vectors: Value = serde_json::from_str(&read("examples/vectors.json")).unwrap();
    let secret = vectors["secret"].as_str().unwrap();
    let calls = calls(&vectors);
    assert!(calls.len() >= 28, "{} vectors", calls.len());
    for (arguments, wanted) in &calls {
        assert_eq!(ours(secret, arguments), *wanted, "{arguments:?}");
    }
    for (program, path) in PROGRAMS {
        for (arguments, wanted) in &calls {
            let (printed, errors) = run((program, path), secret, arguments);
            assert_eq!(printed, *wanted, "{path} {arguments:?}: {errors}");
        }
    }
}

/// Anyone can send a request without the header.
#[test]
fn an_absent_header_or_proof_is_refused() {
    let code = |name: &str, before: &str, after: &str| {
        let path = examples().join(name);
        format!("{before}{}{after}", path.to_str().unwrap())
    };
    let python = code("python", "import sys; sys.path.append('", "')\n")
        + "from tidemark import is_genuine, is_proof\n"
        + "print(is_genuine(b's', 1, None, b''), is_proof(b's', 'o', 'paid', None))";
    let node = code("node/tidemark.js", "const {isGenuine, isProof} = require('", "');")
        + "console.log(isGenuine('s', 1, undefined, ''), isProof('s', 'o', 'paid', undefined))";
    let php = code("php/tidemark.php", "require '", "';")
        + "var_dump(is_genuine('s', 1, null, ''), is_proof('s', 'o', 'paid', null));";
    for (program, flag, code) in
        [("python3", "-c", python), ("node", "-e", node), ("php", "-r", php)]
    {
        let output = Command::new(program).args([flag, &code]).output().unwrap();
        let printed = text(&output).to_lowercase();
        assert_eq!(printed.matches("false").count(), 2, "{program}: {printed}");
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("Absent.java");
    let java_code = "class Absent { public static void main(String[] none) throws Exception { \
        Tidemark of = new Tidemark(new byte[1]); \
        System.out.println(of.isGenuine(1, null, new byte[0]) + \" \" + of.isProof(\"o\", \"paid\", null)); } }";
    std::fs::write(&source, java_code).unwrap();
    java(&examples().join("java/Tidemark.java"), "");
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java/Tidemark");
    let output = java(&source, classes.to_str().unwrap()).output().unwrap();
    assert_eq!(text(&output).trim(), "false false");
}

/// The Python of `docs/merchant/checkout.md`, unmodified: its link equals ours, and outlives the order by a day.
#[test]
fn python_of_the_document_makes_our_links() {
    let document = read("docs/merchant/checkout.md");
    let (_, rest) = document.split_once("\n```python\n").unwrap();
    let (code, rest) = rest.split_once("\n```\n").unwrap();
    assert!(!rest.contains("```python"), "one block of Python is run");
    let print = "import sys\nprint(checkout_query(sys.argv[1].encode(), sys.argv[2]))";
    let order = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let (begun, secret) = (now(), "a secret of the shop");
    let mut python = Command::new("python3");
    python.args(["-c", &format!("{code}\n{print}\n"), secret, order]);
    let output = python.output().unwrap();
    let query = String::from_utf8(output.stdout).unwrap().trim_end().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let exp = query.split(['=', '&']).nth(1).unwrap_or_else(|| panic!("{query}: {errors}"));
    let arguments = ["link", order, exp].map(str::to_owned);
    assert_eq!(query, ours(secret, &arguments));
    let lasts = exp.parse::<i64>().unwrap() - begun;
    assert!((1800 + 24 * 3600..).contains(&lasts), "{lasts} s");
}

/// Runs a program; returns its output and its errors.
fn run((program, path): (&str, &str), secret: &str, arguments: &[String]) -> (String, String) {
    let mut command = match program {
        "go" => Command::new(built_by_go()),
        "java" => java(&examples().join(path), ""),
        _ => {
            let mut command = Command::new(program);
            command.arg(examples().join(path));
            command
        }
    };
    command.args(arguments).env("MERCHANT_SECRET", secret);
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap().trim_end().to_owned();
    (printed, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_takes_what_every_program_signs() {
    let (devnet, merchant) = (evm_node(1, 60, 60).await, Merchant::start().await);
    let chains = [Chain::of("eth", &devnet, WALLET, "")];
    let dir = tempfile::tempdir().unwrap();
    let tidemark = Tidemark::start(dir.path(), &chains, merchant.url(), "").await;
    let (client, http) =
        (tidemark.client(), reqwest::Client::builder().no_proxy().build().unwrap());
    let base = format!("http://{}/api/v1", tidemark.address());
    for program in PROGRAMS {
        let call = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|&text| text.to_owned()).collect();
            let (printed, errors) = run(program, MERCHANT_SECRET, &arguments);
            assert!(!printed.is_empty(), "{program:?} {arguments:?}: {errors}");
            printed
        };
        let order =
            json!({ "order_id": program.1, "amount": "10.00", "webhook_url": merchant.url() });
        let (body, time) = (order.to_string(), now().to_string());
        let create = http.post(format!("{base}/service/orders")).body(body.clone());
        let create = create.header("Service-Signature", call(&["sign", &time, &body]));
        let answer = create.send().await.unwrap();
        assert_eq!(answer.status(), 201, "{program:?}");
        let order: Value = answer.json().await.unwrap();
        let id = order["order_id"].as_str().unwrap();

        let query = call(&["link", id, &(now() + 600).to_string()]);
        let status = http.get(format!("{base}/user/orders/{id}/status?{query}"));
        assert_eq!(status.send().await.unwrap().status(), 200, "{program:?}");

        let (marked, text) = client.admin_post(&format!("/orders/{id}/mark-paid")).await;
        assert_eq!(marked, 200, "{text}");
        let webhook = merchant.awaited("order_id", &order["order_id"]).await.remove(0);
        let body = String::from_utf8(webhook.body).unwrap();
        let verdict = call(&["verify", &now().to_string(), &webhook.signature, &body]);
        assert_eq!(verdict, "genuine", "{program:?}");
    }
    assert!(tidemark.stop().await.success());
}
