//! Receivers that answer with what they got.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::form_urlencoded::byte_serialize;

use super::{listen, send, sender_of, serve, to};
use crate::sender::*;

const SIGNATURES: [&str; 2] = ["service-signature", "webhook-signature"];

/// Sends an attempt. Returns its signature headers, and the kept part of the answer made by `echo`.
async fn echoed(
    echo: impl Fn(&str) -> String + Clone + Send + Sync + 'static,
) -> ([String; 2], String) {
    let seen = Arc::new(Mutex::new(None));
    let note = seen.clone();
    let routes = Router::new().fallback(async move |headers: HeaderMap| {
        let values = SIGNATURES.map(|name| headers[name].to_str().unwrap().to_owned());
        let lines =
            SIGNATURES.iter().zip(&values).map(|(name, value)| format!("{name}: {value}\n"));
        let text = echo(&lines.collect::<String>());
        note.lock().unwrap().replace(values);
        (StatusCode::INTERNAL_SERVER_ERROR, text)
    });
    let answer = send(format!("http://{}/hooks", serve(routes).await)).await;
    assert_eq!((answer.outcome, answer.cause), (AttemptOutcome::Status, None));
    (seen.lock().unwrap().take().unwrap(), answer.answer)
}

/// The longest part of a signature that a text has.
fn leaked<'a>(text: &str, values: &'a [String]) -> &'a str {
    let digests = values.iter().flat_map(|value| value.split(['.', ',', ' ']));
    let parts = digests.filter(|part| part.len() > 40).flat_map(|digest| {
        (0..digest.len())
            .flat_map(move |from| (from..=digest.len()).map(move |to| &digest[from..to]))
    });
    parts.filter(|part| text.contains(part)).max_by_key(|part| part.len()).unwrap_or_default()
}

#[tokio::test]
async fn echoed_signatures_are_masked() {
    let (values, plain) = echoed(str::to_owned).await;
    assert_eq!(plain, "service-signature: 1790000012.*** webhook-signature: v1,*** v1,*** ");
    assert_eq!(values[1].split(' ').count(), 2, "one of each secret");
    let json =
        |text: &str| text.replace('/', "\\/").replace('+', "\\u002b").replace('=', "\\u003D");
    let html = |text: &str| text.replace('/', "&sol;").replace('+', "&#43;").replace('=', "&#x3D;");
    let url = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    for answer in [echoed(json).await, echoed(html).await, echoed(url).await] {
        let (values, kept) = answer;
        assert_eq!(kept.matches("***").count(), 3, "{kept}");
        assert!(leaked(&kept, &values).len() < 8, "{kept}");
    }
}

/// Cuts the kept text at different bytes of the signatures.
#[tokio::test]
async fn echoed_signatures_are_masked_at_the_cut() {
    for before in (ANSWER_BYTES_MAX - 200..ANSWER_BYTES_MAX).step_by(7) {
        let around = move |text: &str| "x".repeat(before) + text + &"y".repeat(ANSWER_BYTES_MAX);
        let (values, kept) = echoed(around).await;
        assert!(leaked(&kept, &values).len() < 8, "{before}: {kept}");
        assert!(kept.starts_with(&"x".repeat(before)), "{kept}");
        assert_eq!(kept.len(), ANSWER_BYTES_MAX, "{kept}");
    }
}

#[tokio::test]
async fn signatures_that_a_receiver_cuts_off_are_masked() {
    for length in (20..190).step_by(7) {
        let (values, kept) = echoed(move |text| text[..length].to_owned() + "...").await;
        assert!(leaked(&kept, &values).len() < 8, "{length}: {kept}");
    }
}

#[tokio::test]
async fn echoed_urls_are_masked() {
    let routes =
        Router::new().fallback(async |uri: Uri| (StatusCode::NOT_FOUND, format!("POST {uri}")));
    let address = serve(routes).await;
    let answer = send(format!("http://{address}/hooks/s3cr3t-t0ken?key=abc+%2F1")).await;
    assert_eq!(answer.answer, "POST ***?***");
}

/// The error page of the proxy echoes its credentials.
#[tokio::test]
async fn credentials_of_the_proxy_are_masked() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        let text = String::from_utf8_lossy(&head[..read]);
        let line = text.lines().find(|line| line.to_lowercase().starts_with("proxy-")).unwrap();
        let answer = format!("HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n{line}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let (config, problems) = crate::config::tests::read(&format!(
        "[webhooks]\nproxy = \"http://shop:p%40ssword@localhost:{}\"\n",
        address.port()
    ));
    assert_eq!(problems, [""; 0]);
    let answer = sender_of(&config).send(&to("http://shop.example/hooks")).await;
    assert_eq!(answer.http_status, Some(502), "{:?}", answer.cause);
    assert_eq!(answer.answer.to_lowercase(), "proxy-authorization: basic ***");
}
