//! A merchant's backend, its customer and its operator, over HTTP.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use runtime::{Clock, SystemClock};
use schemas::{OrderId, Secret, UnixSeconds, sign_checkout, sign_service};
use serde_json::{Value, json};

use super::{ADMIN_SECRET, MERCHANT_SECRET, eventually};
use crate::DEADLINE;

/// Timeout of one poll; the next one follows within [`DEADLINE`].
const POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one running service.
#[derive(Debug, Clone)]
pub struct Client {
    base: String,
    http: reqwest::Client,
    /// `true` if reads of the tables may time out: see [`Client::on_servers`].
    on_servers: bool,
}

/// Converts an amount of USDT, as the API shows it, to its smallest units.
pub fn units(amount: &Value) -> u128 {
    let (whole, fraction) = amount.as_str().expect("an amount").split_once('.').expect("digits");
    format!("{whole}{fraction:0<6}").parse().expect("at most six digits after the point")
}

pub fn now() -> i64 {
    SystemClock.now().seconds().0
}

fn secret() -> Secret {
    Secret::new(MERCHANT_SECRET)
}

/// Body of a request for an order that is to be paid in USDT on a chain.
pub fn payable(reference: &str, amount: &str, chain: &str, webhook: &str) -> Value {
    json!({
        "order_id": reference, "amount": amount, "webhook_url": webhook,
        "blockchain": chain, "stablecoin": "USDT",
    })
}

/// The id of a created order.
fn id(order: &Value) -> String {
    order["order_id"].as_str().expect("an id").to_owned()
}

impl Client {
    /// For the service at `base`.
    pub fn new(base: &str) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(DEADLINE)
            .build()
            .expect("an HTTP client");
        Self { base: base.to_owned(), http, on_servers: false }
    }

    /// For a service whose tables are on servers: on a busy machine a read may time out, and the service returns 500.
    /// This client's polls are then repeated.
    pub fn on_servers(self) -> Self {
        Self { on_servers: true, ..self }
    }

    /// `true` if the health check answers 200.
    pub async fn is_healthy(&self) -> bool {
        let request = self.http.get(format!("{}/health", self.base)).timeout(POLL_TIMEOUT);
        let answer = request.send().await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }

    /// Waits until the API offers all these chains, so that orders can be created.
    pub async fn offers(&self, blockchains: &[&str]) {
        eventually(&format!("{blockchains:?} to be offered"), || async {
            let path = "/api/v1/user/chains";
            let (status, text) = self.send(Method::GET, path, &[], None).await.ok()?;
            let offered: Vec<Value> =
                serde_json::from_str(&text).ok().filter(|_| status.is_success())?;
            let is_offered =
                |word: &&str| offered.iter().any(|chain| chain["blockchain"] == **word);
            blockchains.iter().all(is_offered).then_some(())
        })
        .await;
    }

    /// Sends any request; an error is a broken connection or a timeout.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> reqwest::Result<(StatusCode, String)> {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let response = request.send().await?;
        Ok((response.status(), response.text().await?))
    }

    /// A signed request of the Service API.
    pub async fn service(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> reqwest::Result<(StatusCode, String)> {
        let body = body.to_string();
        let signature = sign_service(&secret(), UnixSeconds(now()), body.as_bytes());
        let mut all = vec![("Service-Signature", signature.as_str())];
        all.extend_from_slice(headers);
        self.send(Method::POST, &format!("/api/v1/service{path}"), &all, Some(body)).await
    }

    /// Creates an order that is to be paid in USDT on a chain.
    pub async fn create(&self, reference: &str, amount: &str, chain: &str, webhook: &str) -> Value {
        self.created(&payable(reference, amount, chain, webhook)).await
    }

    async fn created(&self, body: &Value) -> Value {
        let (status, text) = self.service("/orders", body, &[]).await.expect("an answer");
        assert_eq!(status, StatusCode::CREATED, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// As [`Client::create`]; returns the order's id.
    pub async fn order(&self, reference: &str, amount: &str, chain: &str, webhook: &str) -> String {
        id(&self.create(reference, amount, chain, webhook).await)
    }

    /// Creates an order whose customer chooses how to pay; returns its id.
    pub async fn unpriced_order(&self, reference: &str, amount: &str, webhook: &str) -> String {
        let body = json!({ "order_id": reference, "amount": amount, "webhook_url": webhook });
        id(&self.created(&body).await)
    }

    /// As [`Client::order`] with a key, retried after errors and while unavailable.
    pub async fn keyed_order(
        &self,
        reference: &str,
        amount: &str,
        chain: &str,
        webhook: &str,
    ) -> String {
        let body = payable(reference, amount, chain, webhook);
        eventually(&format!("order {reference} to be created"), || async {
            self.try_order(&body).await.ok()?
        })
        .await
    }

    /// Tries to create an order, whose reference is its key: a retry after a lost response is safe. Returns its id;
    /// `None` while unavailable.
    pub async fn try_order(&self, body: &Value) -> reqwest::Result<Option<String>> {
        let key = [("Idempotency-Key", body["order_id"].as_str().expect("a reference"))];
        let (status, text) = self.service("/orders", body, &key).await?;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return Ok(None);
        }
        assert_eq!(status, StatusCode::CREATED, "{text}");
        Ok(Some(id(&serde_json::from_str(&text).expect("JSON"))))
    }

    /// A GET of the Admin API.
    pub async fn admin(&self, path: &str) -> reqwest::Result<Value> {
        let request = self.http.get(format!("{}/api/v1/admin{path}", self.base));
        let request = request.header("Service-Admin-Authorization", ADMIN_SECRET);
        let response = request.timeout(POLL_TIMEOUT).send().await?;
        let status = response.status();
        if self.on_servers && status.is_server_error() {
            response.error_for_status_ref()?;
        }
        let text = response.text().await?;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        Ok(serde_json::from_str(&text).expect("JSON"))
    }

    /// A POST of the Admin API.
    pub async fn admin_post(&self, path: &str) -> (StatusCode, String) {
        let headers = [("Service-Admin-Authorization", ADMIN_SECRET)];
        let path = format!("/api/v1/admin{path}");
        self.send(Method::POST, &path, &headers, None).await.expect("an answer")
    }

    /// A request of the checkout, by its signed link.
    pub async fn user(
        &self,
        method: Method,
        order_id: &str,
        action: &str,
        body: Option<Value>,
    ) -> (StatusCode, String) {
        let expires = UnixSeconds(now() + 3600);
        let order = OrderId(order_id.parse().expect("an order's id"));
        let signature = sign_checkout(&secret(), order, expires);
        let path = format!("/api/v1/user/orders/{order_id}/{action}?exp={expires}&sig={signature}");
        self.send(method, &path, &[], body.map(|b| b.to_string())).await.expect("an answer")
    }

    /// Waits until an open deposit of an order is listed, and returns the newest.
    pub async fn deposit(&self, order_id: &str) -> Value {
        eventually(&format!("the deposit of {order_id}"), || async {
            let list = self.admin(&format!("/deposits?order_id={order_id}")).await.ok()?;
            list.as_array()?.first().cloned()
        })
        .await
    }

    /// Waits until an order has a status.
    pub async fn order_with_status(&self, order_id: &str, status: &str) -> Value {
        let what = format!("order {order_id} to be {status}");
        eventually(&what, || async {
            self.shown(order_id).await.filter(|order| order["status"] == status)
        })
        .await
    }

    /// An order as its status request shows it, if the service answers.
    pub async fn shown(&self, order_id: &str) -> Option<Value> {
        let body = json!({ "order_id": order_id });
        let (code, text) = self.service("/orders/status", &body, &[]).await.ok()?;
        serde_json::from_str(&text).ok().filter(|_| code.is_success())
    }

    /// Waits until a transaction's transfer at a wallet has a status.
    pub async fn transfer_with_status(&self, wallet: &str, tx: &str, status: &str) -> Value {
        let what = format!("transfer {tx} to be {status}");
        eventually(&what, || async {
            let path = format!("/wallets/{wallet}/transfers?status={status}&limit=200");
            let list = self.admin(&path).await.ok()?;
            list.as_array()?.iter().find(|transfer| transfer["txn_hash"] == tx).cloned()
        })
        .await
    }
}
