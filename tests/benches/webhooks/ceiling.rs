//! A bare loop of signed POSTs: the rate of the client alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use runtime::{Clock, SystemClock};
use schemas::{Secret, sign_service, sign_standard};
use testkit::harness::MERCHANT_SECRET;
use testkit::measure::rate;
use uuid::Uuid;

/// Requests in flight: the default of `webhooks.concurrency`.
const IN_FLIGHT: usize = 256;
const BODY: &str = r#"{"event_type":"order_status_changed","order_id":"01996d3c-5b00-7abc-8def-0123456789ab","merchant_order_id":"A-1001","status":"paid","amount":"10.50","timestamp":1790000012}"#;

/// Returns the requests a second, sent to the URLs in turn.
pub(crate) async fn measure(urls: Vec<String>, duration: Duration) -> u64 {
    drop(rustls::crypto::ring::default_provider().install_default());
    // With the redirects, proxies, retries and idle time of the sender's client.
    let client = Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .retry(reqwest::retry::never())
        .pool_idle_timeout(Duration::from_secs(1))
        .build()
        .expect("a client");
    let (next, urls) = (Arc::new(AtomicUsize::new(0)), Arc::new(urls));
    let started = Instant::now();
    let requests = || {
        let (client, next, urls) = (client.clone(), next.clone(), urls.clone());
        async move {
            let secret = Secret::new(MERCHANT_SECRET);
            let mut count = 0;
            while started.elapsed() < duration {
                let number = next.fetch_add(1, Ordering::Relaxed);
                post(&client, &urls[number % urls.len()], &secret, number).await;
                count += 1;
            }
            count
        }
    };
    let tasks: Vec<_> = (0..IN_FLIGHT).map(|_| tokio::spawn(requests())).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.expect("no panic");
    }
    rate(count, started.elapsed())
}

async fn post(client: &Client, url: &str, secret: &Secret, number: usize) {
    let id = format!("{}.3", Uuid::from_u128(number as u128));
    let now = SystemClock.now().seconds();
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .header("service-signature", sign_service(secret, now, BODY.as_bytes()))
        .header("webhook-id", &id)
        .header("webhook-timestamp", now.0)
        .header("webhook-signature", sign_standard([secret], &id, now, BODY.as_bytes()))
        .header("webhook-attempt", 1)
        .body(BODY);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    response.bytes().await.expect("its end");
}
