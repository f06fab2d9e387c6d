//! The programs in `examples/`, against a running service.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use reqwest::Method;
use serde_json::Value;
use testkit::harness::{Client, MERCHANT_SECRET, Tidemark, eventually, executable};
use testkit::process::given_path;

/// A program of `examples/`, built together with the tests.
fn example(name: &str) -> Command {
    let mut command = Command::new(given_path("TIDEMARK_TEST_EXAMPLES").join(name));
    command.env("MERCHANT_SECRET", MERCHANT_SECRET);
    command
}

/// A running `webhook_receiver`, and its output.
struct Receiver {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Receiver {
    fn start() -> Self {
        let mut command = example("webhook_receiver");
        let mut child = command.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = format!("http://{}/", lines.next().unwrap().unwrap());
        Self { child, lines, url }
    }

    /// Ends it; returns its output.
    fn printed(mut self) -> Vec<Value> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }
}

/// Creates the order A-1 with `signed_client`; returns its id and its checkout query.
fn create(tidemark: &Tidemark, receiver: &Receiver) -> (String, String) {
    let base = format!("http://{}", tidemark.address());
    let output =
        example("signed_client").args([&base, "A-1", "10.00", &receiver.url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (order, link) = text.trim_end().split_once('\n').unwrap();
    let order: Value = serde_json::from_str(order).unwrap();
    let order_id = order["order_id"].as_str().unwrap().to_owned();
    let (linked, query) = link.split_once('?').unwrap();
    assert_eq!(linked, order_id);
    (order_id, query.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_client_and_receiver_work() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let tidemark = Tidemark::start(dir.path(), &[], &receiver.url, "").await;
    let client = tidemark.client();

    let (order_id, link) = create(&tidemark, &receiver);
    assert_eq!(create(&tidemark, &receiver).0, order_id, "the key makes it one order");
    let status = format!("/api/v1/user/orders/{order_id}/status?{link}");
    assert_eq!(client.send(Method::GET, &status, &[], None).await.unwrap().0, 200);

    let attempts = |count: i64| {
        let client = client.clone();
        eventually("an acknowledged attempt", move || {
            let client = client.clone();
            async move {
                let orders = client.admin("/orders").await.unwrap();
                (orders[0]["webhook_retry_count"] == count).then_some(())
            }
        })
    };
    assert_eq!(client.admin_post(&format!("/orders/{order_id}/mark-paid")).await.0, 200);
    attempts(1).await;
    assert_eq!(client.admin_post(&format!("/orders/{order_id}/resend-webhook")).await.0, 200);
    attempts(2).await;

    let forged = [("Service-Signature", "1790000000.AAAA")];
    for headers in [&[][..], &forged] {
        let body = r#"{"event_type":"unknown_transfer","transfer_id":1}"#.to_owned();
        let (status, _) =
            Client::new(&receiver.url).send(Method::POST, "", headers, Some(body)).await.unwrap();
        assert_eq!(status, 401, "{headers:?}");
    }

    let printed = receiver.printed();
    assert_eq!(printed.len(), 1, "sent twice, acted upon once: {printed:?}");
    assert_eq!(printed[0]["order_id"], order_id.as_str());
    assert_eq!(printed[0]["status"], "paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_developer_sees_what_the_service_sends() {
    let mut child = Command::new(executable())
        .args(["webhook", "listen", "--address", "127.0.0.1:0", "--answer", "503"])
        .env("TIDEMARK__MERCHANT__SECRET", MERCHANT_SECRET)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let url = lines.next().unwrap().strip_prefix("listening on ").unwrap().to_owned();
    let dir = tempfile::tempdir().unwrap();
    let tidemark = Tidemark::start(dir.path(), &[], &url, "").await;
    let order_id = tidemark.client().unpriced_order("A-1", "10.00", &url).await;
    let paid = tidemark.client().admin_post(&format!("/orders/{order_id}/mark-paid")).await;
    assert_eq!(paid.0, 200);
    for attempt in 1..=2 {
        let line = lines.next().unwrap();
        let wanted =
            format!(" / webhook {order_id}.2 attempt {attempt}: signature verified, answered 503");
        assert!(line.ends_with(&wanted), "{line}");
        assert!(lines.next().unwrap().contains(r#""status":"paid""#));
    }
    let forged = [("Service-Signature", "1790000000.AAAA")];
    let body = Some("forged\u{1b}[2J".to_owned());
    let answer = Client::new(&url).send(Method::POST, "x?y=1", &forged, body).await.unwrap();
    assert_eq!(answer.0, 401);
    let line = lines.find(|line| line.contains("REFUSED")).unwrap();
    let wanted = " /x?y=1 webhook without id attempt ?: REFUSED: signature timestamp is out of range, answered 401";
    assert!(line.ends_with(wanted), "{line}");
    assert_eq!(lines.next().unwrap(), "  forged\\u001b[2J");
    child.kill().unwrap();
    child.wait().unwrap();
}
