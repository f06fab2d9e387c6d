//! Our signatures equal those of Python's standard library, an independent implementation.

use std::io::Write;
use std::process::{Command, Stdio};

use schemas::{OrderId, Secret, UnixSeconds, sign_checkout, sign_service};

const SECRET: &str = "whsec-\u{1f511}";
const NOW: UnixSeconds = UnixSeconds(1_790_000_000);
/// Prints the digest of standard input in both alphabets.
const SIGN: &str = r#"
import base64, hashlib, hmac, sys
mac = hmac.new(sys.argv[1].encode(), sys.stdin.buffer.read(), hashlib.sha256).digest()
print(base64.b64encode(mac).decode(), base64.urlsafe_b64encode(mac).rstrip(b"=").decode())
"#;

fn python(text: &[u8]) -> (String, String) {
    let mut child = Command::new("python3")
        .args(["-c", SIGN, SECRET])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed for the tests");
    child.stdin.take().unwrap().write_all(text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let (padded, url_safe) = printed.trim().split_once(' ').unwrap();
    (padded.to_owned(), url_safe.to_owned())
}

/// Spec 5.1 and 5.3.
#[test]
fn signatures_are_those_of_python() {
    let secret = Secret::new(SECRET);
    for body in [&b""[..], br#"{"order_id":"A-1","amount":"12.50"}"#, b"\xff\x00 no text \n"] {
        let (padded, _) = python(&[format!("{NOW}.").as_bytes(), body].concat());
        assert_eq!(sign_service(&secret, NOW, body), format!("{NOW}.{padded}"));
    }
    let order = OrderId("01988f3a-7b1e-7c3d-9a4b-5e6f708192a3".parse().unwrap());
    let (_, url_safe) = python(format!("checkout.v1.{order}.{NOW}").as_bytes());
    assert_eq!(sign_checkout(&secret, order, NOW), url_safe);
}
