//! Signatures by Python's standard library: code that shares nothing with ours.

use std::io::Write;
use std::process::{Command, Stdio};

const SIGN: &str = r#"
import base64, hashlib, hmac, sys
secret, prefix, alphabet = sys.argv[1:4]
body = sys.stdin.buffer.read()
mac = hmac.new(secret.encode(), prefix.encode() + body, hashlib.sha256).digest()
url = alphabet == "url"
text = (base64.urlsafe_b64encode(mac).rstrip(b"=") if url else base64.b64encode(mac)).decode()
sys.stdout.write(text)
"#;

const VERIFY: &str = r#"
import base64, hashlib, hmac, sys
secret, header = sys.argv[1:3]
body = sys.stdin.buffer.read()
timestamp, signature = header.split(".", 1)
mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).digest()
sys.exit(0 if hmac.compare_digest(base64.b64decode(signature, validate=True), mac) else 1)
"#;

fn python(script: &str, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut child = Command::new("python3")
        .arg("-c")
        .arg(script)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed for the tests");
    child.stdin.take().expect("an input").write_all(input).expect("python3 reads");
    let output = child.wait_with_output().expect("python3 ends");
    (output.status.success(), String::from_utf8(output.stdout).expect("text"))
}

/// `Service-Signature` of a body (spec 5.1).
#[must_use]
pub fn sign_service(secret: &str, timestamp: i64, body: &str) -> String {
    let (_, text) = python(SIGN, &[secret, &format!("{timestamp}."), "std"], body.as_bytes());
    format!("{timestamp}.{text}")
}

/// `sig` of a checkout link.
#[must_use]
pub fn sign_checkout(secret: &str, order_id: &str, expires_at: i64) -> String {
    let text = format!("checkout.v1.{order_id}.{expires_at}");
    python(SIGN, &[secret, &text, "url"], b"").1
}

/// Whether a webhook's `Service-Signature` fits its body (spec 5.3).
#[must_use]
pub fn signature_holds(secret: &str, header: &str, body: &[u8]) -> bool {
    python(VERIFY, &[secret, header], body).0
}
