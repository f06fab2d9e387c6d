//! A merchant's receiver of webhooks: verifies each, acts once on each event, and answers 200 to the genuine ones.
//!
//! ```sh
//! MERCHANT_SECRET=… cargo run -p tidemark-tests --example webhook_receiver -- 127.0.0.1:9000
//! ```

#![expect(clippy::disallowed_methods, reason = "a program of its own, outside the pipeline")]

use std::collections::HashSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

/// Maximum difference between a signature's timestamp and the local clock, against later replays.
const AGE_MAX_SECONDS: u64 = 300;

struct Shop {
    secret: String,
    /// The events that were handled. A real shop has a table with a unique key, and writes to it in the
    /// same transaction as the effects of the event.
    seen: Mutex<HashSet<String>>,
}

/// `true` if the header is a recent signature of these bytes with the merchant's secret.
fn is_genuine(secret: &str, header: &str, body: &[u8], now: u64) -> bool {
    let Some((time, encoded)) = header.split_once('.') else { return false };
    let (Ok(timestamp), Ok(signature)) = (time.parse::<u64>(), STANDARD.decode(encoded)) else {
        return false;
    };
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return false };
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body);
    // Compares in constant time.
    mac.verify_slice(&signature).is_ok() && now.abs_diff(timestamp) <= AGE_MAX_SECONDS
}

/// Deduplication key of an event: equal for all its deliveries, whereas a resend by an operator has another
/// `Webhook-Id`. `None` for an event type that this receiver does not know.
fn key(event: &Value) -> Option<String> {
    match event["event_type"].as_str()? {
        "order_status_changed" => Some(format!("{}/{}", event["order_id"], event["status"])),
        "unknown_transfer" => Some(format!("transfer/{}", event["transfer_id"])),
        _ => None,
    }
}

/// Takes the raw body: a body that was parsed and serialized again has another signature.
async fn receive(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let signature = headers.get("service-signature").and_then(|value| value.to_str().ok());
    if !signature.is_some_and(|header| is_genuine(&shop.secret, header, &body, now)) {
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(event) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST };
    if let Some(key) = key(&event) {
        let mut seen = shop.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.insert(key) {
            println!("{event}"); // Here: ship the goods, release the hold.
        }
    }
    // 200 also for a duplicate and for an unknown event type: Tidemark would send either again after any other status.
    StatusCode::OK
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secret = std::env::var("MERCHANT_SECRET")?;
    let listen = std::env::args().nth(1).ok_or("usage: webhook_receiver <address>")?;
    let shop = Arc::new(Shop { secret, seen: Mutex::default() });
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/", post(receive)).with_state(shop)).await?;
    Ok(())
}
