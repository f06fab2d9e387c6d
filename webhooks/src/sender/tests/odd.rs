//! Receivers with header lines that strict parsers refuse and other clients accept.

use tokio::io::AsyncWriteExt;

use super::{send, serve_raw};
use crate::sender::*;

/// Sends an attempt that is answered with 200 and these header lines.
async fn answered(lines: String) -> Answer {
    let head = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\nok");
    let address = serve_raw(move |mut stream| {
        let head = head.clone();
        async move { stream.write_all(head.as_bytes()).await.unwrap() }
    });
    send(format!("http://{}/", address.await)).await
}

#[tokio::test]
async fn spec_6_3_1_status_decides_whatever_the_headers() {
    for lines in [
        "PHP Warning:  PHP Startup: Unable to load 'x.so' in Unknown on line 0\r\n",
        "Warning without a colon\r\n",
        "X Frame Options: DENY\r\n",
        "X-Powered-By : PHP\r\n",
        "X-Folded: one,\r\n two,\r\n\tthree\r\n",
        " folded at once\r\n",
        ": no name\r\n",
        "Set-Cookie: a=\x7f\r\n",
        "Set-Cookie: a=\x01\r\n",
        "S\u{e9}cure: yes\r\n",
        "X-Bare: line feed\n",
        "X-Empty:\r\n",
    ] {
        let answer = answered(lines.to_owned()).await;
        let found = (answer.outcome, answer.http_status, &*answer.answer);
        assert_eq!(found, (AttemptOutcome::Delivered, Some(200), "ok"), "{lines:?}");
    }
}

/// The odd header frames the body, so the body is read whole only if the header is understood.
#[tokio::test]
async fn headers_that_are_odd_still_count() {
    for line in ["Transfer-Encoding : chunked", "Transfer-Encoding:\r\n chunked"] {
        let address = serve_raw(move |mut stream| async move {
            let head = format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n2\r\nok\r\n0\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
        });
        assert_eq!(send(format!("http://{}/", address.await)).await.answer, "ok", "{line}");
    }
}

#[tokio::test]
async fn hundreds_of_headers_are_read() {
    let answer = answered("Set-Cookie: a=b\r\n".repeat(HEADERS_MAX - 1)).await;
    assert_eq!((answer.outcome, answer.cause), (AttemptOutcome::Delivered, None));
}

/// The client refuses each of these response heads as a whole, so their status 200 does not count.
#[tokio::test]
async fn what_the_client_cannot_read_is_no_delivery() {
    for lines in [
        "Set-Cookie: a=\0\r\n".to_owned(),
        "X-Return: a\rb\r\n".to_owned(),
        "Content-Length: two\r\n".to_owned(),
        "Content-Length: 3\r\n".to_owned(),
        "Set-Cookie: a=b\r\n".repeat(HEADERS_MAX),
    ] {
        let answer = answered(lines.clone()).await;
        assert_eq!(answer.outcome, AttemptOutcome::Protocol, "{lines:?}");
        assert_eq!(answer.http_status, None);
    }
}
