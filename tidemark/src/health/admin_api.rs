//! Client of a running process's Admin API, for commands that need the process.

use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::{Client, Method, StatusCode, header};
use serde_json::Value;
use url::Url;

use super::reachable;
use crate::settings::Settings;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Base URL of the API, its secret, and a client.
pub(crate) struct Api {
    base: Url,
    secret: String,
    http: Client,
}

impl Api {
    /// Makes a client. `base` defaults to the configured address.
    pub(crate) fn new(settings: &Settings, base: Option<Url>) -> anyhow::Result<Self> {
        let secret = String::from_utf8_lossy(settings.shop.admin_secret.expose()).into_owned();
        ensure!(
            !secret.is_empty(),
            "admin.secret is missing: give --config, or TIDEMARK__ADMIN__SECRET"
        );
        let listen = settings.process.operators_listen();
        let own = listen.map(|listen| format!("http://{}/", reachable(listen)));
        let base = match base {
            Some(base) => base,
            None => own.context("server.listen is missing: give --api")?.parse()?,
        };
        // The provider is process-wide; another part may have installed it already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        Ok(Self { base, secret, http })
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// Returns an answer with the status success, conflict or not found; any other is an error.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, String)> {
        let url = self.base.join(&format!("/api/v1/admin/{path}"))?;
        let mut request = self.http.request(method, url.clone());
        request = request.header("Service-Admin-Authorization", &self.secret);
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json");
            request = request.body(body.to_string());
        }
        let response = request.send().await.with_context(|| format!("{url} does not answer"))?;
        let (status, text) = (response.status(), response.text().await?);
        let is_answer =
            status.is_success() || [StatusCode::CONFLICT, StatusCode::NOT_FOUND].contains(&status);
        ensure!(is_answer, "{url} answers {status}: {text}");
        Ok((status, text))
    }
}
