//! A merchant's backend: creates an order and prints the signed last part of its checkout link.
//!
//! ```sh
//! MERCHANT_SECRET=… cargo run -p tidemark-tests --example signed_client -- \
//!     http://127.0.0.1:8080 A-1001 49.90 https://shop.example/hooks/orders
//! ```

#![expect(clippy::disallowed_methods, reason = "a program of its own, outside the pipeline")]

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// Validity of the checkout link: the default of `orders.ttl`, and a day to read the outcome of the
/// payment.
const LINK_SECONDS: u64 = 1800 + 24 * 3600;

fn hmac_sha256(secret: &str, message: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
    mac.update(message.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secret = std::env::var("MERCHANT_SECRET")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [base, reference, amount, webhook_url] = &arguments[..] else {
        return Err("usage: signed_client <base url> <order id> <amount> <webhook url>".into());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();

    // The signature covers the exact bytes that are sent, so the body is made once.
    let body = json!({ "order_id": reference, "amount": amount, "webhook_url": webhook_url });
    let body = body.to_string();
    let signature = STANDARD.encode(hmac_sha256(&secret, &format!("{now}.{body}"))?);

    // This workspace builds reqwest without a TLS provider of its own.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().timeout(Duration::from_secs(15)).build()?;
    let answer = client
        .post(format!("{base}/api/v1/service/orders"))
        .header("Content-Type", "application/json")
        .header("Service-Signature", format!("{now}.{signature}"))
        // A repeated request returns the first order; without the key it would make a second one.
        .header("Idempotency-Key", reference)
        .body(body)
        .send()
        .await?;
    let (status, text) = (answer.status(), answer.text().await?);
    if !status.is_success() {
        return Err(format!("{status}: {text}").into());
    }

    let order: Value = serde_json::from_str(&text)?;
    let order_id = order["order_id"].as_str().ok_or("an answer without order_id")?;
    let exp = now + LINK_SECONDS;
    let sig = hmac_sha256(&secret, &format!("checkout.v1.{order_id}.{exp}"))?;
    println!("{order}");
    println!("{order_id}?exp={exp}&sig={}", URL_SAFE_NO_PAD.encode(sig));
    Ok(())
}
