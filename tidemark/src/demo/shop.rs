//! HTTP requests of a merchant's backend, of its customer and of an operator.

use anyhow::{Context, ensure};
use reqwest::{Client, Response, StatusCode};
use runtime::{Clock, SystemClock};
use schemas::{Blockchain, Secret, sign_checkout, sign_service};
use serde_json::{Value, json};

/// Validity of a checkout link of the demo, in seconds.
const LINK_SECONDS: i64 = 3600;

pub(super) struct ShopClient {
    base: String,
    secret: Secret,
    admin_secret: Secret,
    webhook_url: String,
    http: Client,
}

/// A payment that a customer owes: value and wallet.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) value: String,
    pub(super) wallet: String,
}

impl ShopClient {
    pub(super) fn new(
        base: String,
        secret: Secret,
        admin_secret: Secret,
        webhook_url: &str,
    ) -> anyhow::Result<Self> {
        // The provider is process-wide; another part may have installed it already.
        drop(rustls::crypto::ring::default_provider().install_default());
        Ok(Self {
            base,
            secret,
            admin_secret,
            webhook_url: webhook_url.to_owned(),
            http: Client::builder().no_proxy().build()?,
        })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// The merchant creates an order and gets its id.
    pub(super) async fn create(&self, reference: &str, amount: &str) -> anyhow::Result<String> {
        self.create_with(json!({
            "order_id": reference, "amount": amount, "webhook_url": self.webhook_url,
        }))
        .await
    }

    /// Creates an order for a customer with a browser, and returns its checkout link. Only on eth, as the script has
    /// moved the time of the other chain ahead.
    pub(super) async fn checkout(&self, reference: &str, amount: &str) -> anyhow::Result<String> {
        let order = json!({
            "order_id": reference, "amount": amount, "webhook_url": self.webhook_url,
            "blockchain": "eth",
        });
        let id = self.create_with(order).await?;
        Ok(format!("{}/checkout/{id}?{}", self.base, self.link(&id)?))
    }

    /// Paid value of an order in the operator's list; `None` until it is paid.
    pub(super) async fn received(&self, reference: &str) -> anyhow::Result<Option<String>> {
        let list = self.admin(&format!("orders?merchant_order_id={reference}")).await?;
        Ok(list[0]["paid_value"].as_str().map(str::to_owned))
    }

    /// The query of the signed link of an order.
    fn link(&self, order_id: &str) -> anyhow::Result<String> {
        let expires = SystemClock.now().seconds().plus(LINK_SECONDS);
        let signature = sign_checkout(&self.secret, order_id.parse()?, expires);
        Ok(format!("exp={expires}&sig={signature}"))
    }

    async fn create_with(&self, order: Value) -> anyhow::Result<String> {
        let body = order.to_string();
        let signature = sign_service(&self.secret, SystemClock.now().seconds(), body.as_bytes());
        let response = self
            .http
            .post(format!("{}/api/v1/service/orders", self.base))
            .header("Content-Type", "application/json")
            .header("Service-Signature", signature)
            .body(body)
            .send()
            .await?;
        let order = expect(response, StatusCode::CREATED).await?;
        Ok(order["order_id"].as_str().context("order_id is missing")?.to_owned())
    }

    /// `true` if the API offers payment on all these chains.
    pub(super) async fn offers(&self, blockchains: &[Blockchain]) -> anyhow::Result<bool> {
        let response = self.http.get(format!("{}/api/v1/user/chains", self.base)).send().await?;
        let list = expect(response, StatusCode::OK).await?;
        let offered: Vec<_> = list.as_array().context("not a list")?.iter().collect();
        let is_offered = |of: &Blockchain| offered.iter().any(|c| c["blockchain"] == of.as_str());
        Ok(blockchains.iter().all(is_offered))
    }

    /// Chooses chain and stablecoin; returns the payment due.
    pub(super) async fn choose(
        &self,
        order_id: &str,
        blockchain: &str,
        stablecoin: &str,
    ) -> anyhow::Result<Due> {
        let link = self.link(order_id)?;
        let response = self
            .http
            .post(format!("{}/api/v1/user/orders/{order_id}/payment?{link}", self.base))
            .json(&json!({ "blockchain": blockchain, "stablecoin": stablecoin }))
            .send()
            .await?;
        let deposit = expect(response, StatusCode::CREATED).await?;
        let field = |name: &str| {
            deposit[name].as_str().map(str::to_owned).with_context(|| format!("{name} is missing"))
        };
        Ok(Due { value: field("value")?, wallet: field("wallet_address")? })
    }

    /// The answer of the Admin API to a path.
    async fn admin(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.http.get(format!("{}/api/v1/admin/{path}", self.base));
        let secret = self.admin_secret.expose();
        let request = request.header("Service-Admin-Authorization", secret);
        expect(request.send().await?, StatusCode::OK).await
    }

    /// The operator's list of the transfers of a wallet.
    pub(super) async fn transfers(&self, wallet: &str, query: &str) -> anyhow::Result<Vec<Value>> {
        let list = self.admin(&format!("wallets/{wallet}/transfers?{query}")).await?;
        Ok(list.as_array().context("not a list")?.clone())
    }
}

async fn expect(response: Response, status: StatusCode) -> anyhow::Result<Value> {
    let (got, text) = (response.status(), response.text().await?);
    ensure!(got == status, "expected {status}, got {got}: {text}");
    Ok(serde_json::from_str(&text)?)
}
