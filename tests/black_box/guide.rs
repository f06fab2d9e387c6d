//! The code blocks of `docs/merchant/guide.md`, run in order, lead to a paid order.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::harness::{eventually, executable, free_port};
use testkit::process::Killed;
use testkit::repository;
use xtask::Guard;

/// Ports of demo and receiver in the guide, replaced here by free ones.
const PORTS: [&str; 2] = ["8080", "9000"];
const SECRET: (&str, &str) = ("MERCHANT_SECRET", "demo-merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5");

/// The blocks up to "Going live", each with its language.
fn blocks() -> Vec<(String, String)> {
    let text = repository::read("docs/merchant/guide.md");
    let (text, _) = text.split_once("## Going live").unwrap();
    let parts = text.split("\n```").collect::<Vec<_>>();
    let blocks = parts.iter().skip(1).step_by(2);
    let block = |part: &&str| part.split_once('\n').map(|(of, code)| (of.into(), code.into()));
    blocks.map(|part| block(part).unwrap()).collect()
}

/// A program of the guide, which ends with the test.
struct Running {
    _child: Killed,
    /// Declared last, so that it outlives the child.
    _guard: Guard,
}

impl Running {
    fn start(command: &mut Command, printed: &Path) -> Self {
        let file = File::create(printed).unwrap();
        let child = command.stdin(Stdio::null()).stdout(file).spawn().unwrap();
        let guard = Guard::of(child.id()).unwrap();
        Self { _child: Killed(child), _guard: guard }
    }
}

async fn printed(path: &Path, text: &str) -> String {
    let read =
        || async { Some(std::fs::read_to_string(path).unwrap()).filter(|of| of.contains(text)) };
    eventually(text, read).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_works_as_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let here = PORTS.map(|_| free_port().to_string());
    let address = format!("127.0.0.1:{}", here[0]);
    let mut blocks = blocks();
    for (_, code) in &mut blocks {
        for (port, own) in PORTS.iter().zip(&here) {
            *code = code.replace(port, own);
        }
    }
    let languages: Vec<_> = blocks.iter().map(|(language, _)| &**language).collect();
    assert_eq!(languages, ["sh", "python", "sh", "sh", "", "sh", "sh", "sh"]);
    let code: Vec<_> = blocks.iter().map(|(_, code)| &**code).collect();
    let [start, receiver, receive, create, answer, link, pay, status] = code[..] else { panic!() };

    // The executable is built already.
    assert!(start.ends_with("target/release/tidemark demo"), "{start}");
    let story = dir.path().join("story");
    let mut demo = Command::new(executable());
    let _demo = Running::start(demo.args(["demo", "--listen", &address]), &story);
    std::fs::write(dir.path().join("receiver.py"), receiver).unwrap();
    assert_eq!(receive, format!("{}={} python3 receiver.py", SECRET.0, SECRET.1));
    let webhooks = dir.path().join("webhooks");
    let mut python = Command::new("python3");
    python.arg("receiver.py").env(SECRET.0, SECRET.1).current_dir(dir.path());
    let _receiver = Running::start(&mut python, &webhooks);
    printed(&story, "It stays up until Ctrl-C").await;

    // One terminal for the other blocks, which ends at a failing command.
    let terminal = dir.path().join("terminal");
    let mut bash = Command::new("bash")
        .args(["-euo", "pipefail"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(File::create(&terminal).unwrap())
        .spawn()
        .unwrap();
    let mut keyboard = bash.stdin.take().unwrap();
    writeln!(keyboard, "{create}\n{link}\n{pay}").unwrap();
    printed(&webhooks, "shop-1 paid\n").await;
    writeln!(keyboard, "{status}").unwrap();
    drop(keyboard);
    let ended = tokio::task::block_in_place(|| bash.wait()).unwrap();
    let shown = std::fs::read_to_string(&terminal).unwrap();
    assert!(ended.success(), "{shown}");

    let lines: Vec<_> = shown.lines().collect();
    let [created, link, paid] = lines[..] else { panic!("{shown}") };
    let [created, paid, sample]: [Value; 3] =
        [created, paid, answer].map(|text| serde_json::from_str(text).unwrap());
    let names = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&created), names(&sample), "the guide shows another answer");
    assert_eq!((&created["status"], &paid["status"]), (&"pending".into(), &"paid".into()));
    let order = created["order_id"].as_str().unwrap();
    assert!(link.starts_with(&format!("http://{address}/checkout/{order}?exp=")), "{link}");
}
