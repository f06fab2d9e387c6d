//! The command line as a user sees it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use testkit::harness::{
    Chain, Tidemark, WALLET, WEBHOOK, errand, eventually, executable, exits, tron_address,
};
use testkit::process::signal;

fn tidemark(arguments: &[&str]) -> Output {
    Command::new(executable()).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn all_configuration_errors_and_exit_64() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = r#"
        [server]
        listen = "here"
        [admin]
        secret = "hush-hush"
        [orders]
        ttl = "soon"
        colour = "blue"
        [[wallets]]
        blockchain = "eth"
        address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"
        enabled_coins = ["USDT"]
        [chains.polygon]
        rpc = ["not a url"]
    "#;
    std::fs::write(dir.path().join("tidemark.toml"), wrong).unwrap();
    let printed = exits(dir.path(), &["run"], 64);
    for part in [
        "server.listen: ",
        "merchant.secret: is missing",
        "orders.ttl: must be a duration",
        "orders.colour: unknown key",
        "wallets[0].address: has a wrong EIP-55 checksum",
        "chains.polygon.rpc: ",
    ] {
        assert!(printed.contains(part), "{part} is not in:\n{printed}");
    }
    assert!(!printed.contains("hush-hush"), "a secret was printed:\n{printed}");
}

/// Tron has no DAI.
#[test]
fn a_coin_that_is_not_on_its_chain_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let address = tron_address(WALLET);
    let wallet = format!("blockchain = \"tron\"\naddress = \"{address}\"");
    let config = format!(
        "[admin]\nsecret = \"a\"\n[merchant]\nsecret = \"m\"\n[[wallets]]\n{wallet}\nenabled_coins = [\"USDT\", \
         \"DAI\"]\n[chains.tron]\nrpc = \"http://127.0.0.1:9/jsonrpc\"\n"
    );
    std::fs::write(dir.path().join("tidemark.toml"), config).unwrap();
    for command in ["run", "doctor"] {
        let printed = exits(dir.path(), &[command], 64);
        let expected = "chains.tron.tokens: no contract of DAI on tron is known, and a wallet takes it: take it out of";
        assert!(printed.contains(expected), "{printed}");
        assert_eq!(printed.matches("chains.tron").count(), 1, "nothing else is wrong: {printed}");
    }
}

/// Refused commands query no endpoint and create no log.
#[test]
fn commands_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let config = format!(
        "[data]\ndir = {data:?}\n[[wallets]]\nblockchain = \"eth\"\naddress = \"{WALLET}\"\n\
         enabled_coins = [\"USDT\"]\n[chains.eth]\nrpc = \"http://127.0.0.1:9\"\n"
    );
    std::fs::write(dir.path().join("tidemark.toml"), config).unwrap();
    for (line, code, expected) in [
        ("find A-1", 2, "there is no log at"),
        ("find A-1 --since yesterday", 64, "--since"),
        ("reconcile --day yesterday", 64, "must be a day such as 2026-11-25"),
        ("reconcile --from 5", 64, "--to"),
        ("reconcile --from 9 --to 5", 64, "reconcile: the period must begin before it ends"),
        ("reconcile --from 0 --to 99999999", 64, "the period must have at most 366 days"),
        ("reconcile --chain polygon", 64, "chains.polygon: there is no such section"),
        ("reconcile --against books", 64, "invalid value 'books'"),
        ("reconcile --against tables", 64, "reconcile: --against needs chain and raw"),
        ("reconcile --day 2026-11-25", 1, "there is no log at"),
        ("rescan eth 9 5", 64, "the first block 9 is after the last one 5"),
        ("rescan polygon 1 5", 64, "chains.polygon: there is no such section"),
        ("rescan eth 0 5", 64, "0 is not in 1.."),
        ("rescan eth 1 5", 1, "there is no log at"),
        ("tail orders --until-end", 1, "there is no log at"),
        ("tail order", 64, "there is no such topic; there are transfers.raw, orders.commands"),
        ("tail orders --from noon", 64, "must be beginning, end, offset:N"),
        ("tail orders --where status", 64, "must be FIELD=VALUE"),
        ("tail orders --text --json", 64, "cannot be used with"),
        ("webhook dead redrive --rate 0", 64, "0 is not in 1..=100000"),
        ("webhook dead redrive --rate 2000000000", 64, "is not in 1..=100000"),
        ("tail orders --partition 9", 64, "tail: orders has partitions 0 to "),
        ("tail orders --where state=paid", 64, "tail: records of orders have no field state"),
    ] {
        let output = errand(dir.path(), &line.split(' ').collect::<Vec<_>>());
        let refusal = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {refusal}");
        assert!(refusal.contains(expected), "{line}: {refusal}");
        assert_eq!(text(&output.stdout), "", "{line}");
    }
    assert!(!data.exists(), "nothing is made");
    let kafka = "[log]\nbackend = \"kafka\"\nbrokers = \"127.0.0.1:9\"\n";
    std::fs::write(dir.path().join("tidemark.toml"), kafka).unwrap();
    let refused = exits(dir.path(), &["find", "A-1"], 64);
    assert!(refused.contains("store.backend: \"embedded\" is one process's own"), "{refused}");
}

#[test]
fn defaults_and_two_secrets_suffice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("default.toml");
    let defaults = tidemark(&["default-config"]);
    assert!(defaults.status.success());
    std::fs::write(&file, &defaults.stdout).unwrap();
    let check = ["run", "--check-config", "--config", file.to_str().unwrap()];
    let output = Command::new(executable())
        .args(check)
        .env("TIDEMARK__ADMIN__SECRET", "admin-5vN8xK2qL7wR")
        .env("TIDEMARK__MERCHANT__SECRET", "merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A log collector gets the cause as a line of JSON.
#[test]
fn the_reason_a_process_ends_is_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = format!(
        "[admin]\nsecret = \"0123456789012345\"\n[merchant]\nsecret = \"merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5\"\n\
         [telemetry]\nlisten = \"{address}\"\nformat = \"json\"\n[data]\ndir = \"data\"\n"
    );
    std::fs::write(dir.path().join("tidemark.toml"), config).unwrap();
    let printed = exits(dir.path(), &["run"], 1);
    let lines: Vec<_> = printed.lines().collect();
    let (last, log) = lines.split_last().unwrap();
    let parsed = log.iter().map(|line| serde_json::from_str(line).unwrap());
    let parsed: Vec<serde_json::Value> = parsed.collect();
    let ended = parsed.last().unwrap();
    assert_eq!(ended["level"], "ERROR", "{printed}");
    assert!(ended["timestamp"].is_string(), "{printed}");
    let cause = ended["fields"]["cause"].as_str().unwrap();
    assert!(cause.contains(&format!("cannot serve telemetry on {address}")), "{printed}");
    assert_eq!(*last, format!("tidemark: {cause}"));
}

/// The first start has no wallet, because an operator may choose wallets later. The second one uses a folder and a file
/// that other users can open.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_warns_of_what_is_open_or_lacking() {
    let root = tempfile::tempdir().unwrap();
    let (data, config) = (root.path().join("data"), root.path().join("tidemark.toml"));
    std::fs::write(&config, "").unwrap();
    let warnings = [
        format!("other users of this machine can open {}", data.display()),
        format!("can read {}, which has a secret", config.display()),
        "the configuration has no wallet".to_owned(),
    ];
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let chain = Chain::at("eth", "http://127.0.0.1:9", WALLET, "");
    for (chains, file_mode, folder_mode, counts) in
        [(vec![], 0o600, 0o700, [0, 0, 1]), (vec![chain], 0o644, 0o755, [1, 1, 1])]
    {
        set(&config, file_mode);
        // The first start makes the folder, closed to others.
        if data.exists() {
            set(&data, folder_mode);
        }
        let mut tidemark = Tidemark::spawn(root.path(), &chains, WEBHOOK, "", &[]);
        tidemark.healthy().await;
        assert!(tidemark.stop().await.success());
        let mode = std::fs::metadata(&data).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, folder_mode);
        let log = std::fs::read_to_string(root.path().join("tidemark.log")).unwrap();
        let found = warnings.each_ref().map(|warning| log.matches(warning).count());
        assert_eq!(found, counts, "{log}");
    }
}

#[test]
fn the_demo_runs_and_exits_0() {
    let output = tidemark(&["demo", "--once", "--listen", "127.0.0.1:0"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", text(&output.stderr));
    for part in [
        "order A-1 over 10.00 paid, signature verified",
        "each has its own payable amount",
        "the order is paid once",
        "reason amount_mismatch, probably meant for D-1",
        "order E-1 expired, signature verified",
        "the end",
    ] {
        assert!(printed.contains(part), "{part} is not in:\n{printed}");
    }
    assert!(!printed.contains('\u{1b}'), "readable without colour");
}

/// Opens the printed checkout link, chooses, and presses the test buyer's button, as a browser without scripts does.
async fn press_the_button(printed: &str, story: &Path) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let redirects = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().no_proxy().redirect(redirects).build().unwrap();
    let link = printed.lines().find(|line| line.contains("/checkout/")).unwrap().trim();
    let (page, _) = link.split_once('?').unwrap();
    let entered = client.get(link.replacen("?", "/enter?", 1)).send().await.unwrap();
    assert_eq!(entered.status(), 303, "{link}");
    let cookie = entered.headers()[SET_COOKIE].to_str().unwrap();
    let cookie = cookie.split_once(';').unwrap().0;
    for (action, form) in [("payment", "way=eth.USDT"), ("test-payment", "")] {
        let pressed = client.post(format!("{page}/{action}")).header(COOKIE, cookie);
        let kind = "application/x-www-form-urlencoded";
        let pressed = pressed.header(CONTENT_TYPE, kind).body(form).send().await.unwrap();
        let to = pressed.headers()[LOCATION].to_str().unwrap();
        assert!(!to.contains("problem="), "{action} leads to {to}");
    }
    eventually("the order of the page to be paid", || async {
        let printed = std::fs::read_to_string(story).unwrap();
        let webhook = |line: &str| line.contains("page-1") && line.contains("\"paid\"");
        printed.lines().any(webhook).then_some(())
    })
    .await;
    let shown = client.get(page).header(COOKIE, cookie).send().await.unwrap();
    assert!(shown.text().await.unwrap().contains("<h1>Paid</h1>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_stays_up_until_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let story = dir.path().join("story");
    let mut child = Command::new(executable())
        .args(["demo", "--listen", "127.0.0.1:0"])
        .stdout(std::fs::File::create(&story).unwrap())
        .spawn()
        .unwrap();
    let printed = eventually("the commands to try", || async {
        let printed = std::fs::read_to_string(&story).unwrap();
        printed.contains("It stays up until Ctrl-C").then_some(printed)
    })
    .await;
    assert!(printed.contains("curl -s http://127.0.0.1:"), "{printed}");
    press_the_button(&printed, &story).await;
    signal(child.id(), "INT");
    let status = eventually("the end", || {
        let ended = child.try_wait().unwrap();
        async move { ended }
    })
    .await;
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_can_be_tested_against_a_receiver() {
    let dir = tempfile::tempdir().unwrap();
    let received = dir.path().join("received");
    let mut listener = Command::new(executable())
        .args(["webhook", "listen", "--address", "127.0.0.1:0"])
        .env("TIDEMARK__MERCHANT__SECRET", "merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5")
        .stdout(std::fs::File::create(&received).unwrap())
        .spawn()
        .unwrap();
    let url = eventually("the receiver's address", || async {
        let printed = std::fs::read_to_string(&received).unwrap();
        printed.strip_prefix("listening on ")?.split_once('\n').map(|(url, _)| url.to_owned())
    })
    .await;
    let test = |allowed: &str, secret: &str| {
        Command::new(executable())
            .args(["webhook", "test", &url])
            .env("TIDEMARK__MERCHANT__SECRET", secret)
            .env("TIDEMARK__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES", allowed)
            .output()
            .unwrap()
    };
    let (refused, genuine, foreign) = (
        test("false", "merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5"),
        test("true", "merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5"),
        test("true", "another-secret-7uJ3nB5vC8xZ1aS6dF2gH9"),
    );
    listener.kill().unwrap();
    listener.wait().unwrap();
    for (output, code, part) in [
        (refused, 1, "must not be the private address 127.0.0.1: webhooks.allowed_networks"),
        (genuine, 0, "acknowledged with 200 after "),
        (foreign, 1, "answered with 401 after "),
    ] {
        let printed = text(&output.stdout);
        assert!(printed.contains(part), "{part} is not in:\n{printed}{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{printed}");
    }
    let printed = std::fs::read_to_string(&received).unwrap();
    for part in ["webhook test.", "signature verified, answered 200", "\"event_type\":\"test\""] {
        assert!(printed.contains(part), "{part} is not in:\n{printed}");
    }
}
