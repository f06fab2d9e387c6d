//! `[merchant]`: the shop, and the keys that it shares.

use runtime::config::Reader;
use schemas::Secret;

use super::strength::{self, SIGNING_BITS_MIN};
use crate::machine::return_url::{ReturnUrl, origin_problem};

/// `[merchant]`.
#[derive(Debug, Clone)]
pub struct Merchant {
    /// Name of the shop, shown to customers.
    pub name: String,
    /// Key of Service-Signature (spec 5.1): verifies requests and signs webhooks.
    pub secret: Secret,
    /// Key of checkout links; without one, `secret` signs them.
    pub link_secret: Option<Secret>,
    /// The key before the last rotation: accepted on requests. It adds a second signature to webhooks, in the header of
    /// Standard Webhooks.
    pub previous_secret: Option<Secret>,
    /// The link key before the last rotation: accepted on links, never used to sign.
    pub previous_link_secret: Option<Secret>,
    /// Origins whose pages may call the checkout's API.
    pub allowed_origins: Vec<String>,
    /// URL to which the checkout page leads back.
    pub return_url: Option<ReturnUrl>,
    /// The destination of unknown_transfer webhooks (spec 6.2); without it none is sent.
    pub unknown_transfer_webhook_url: Option<String>,
}

impl Merchant {
    /// Accepted keys of incoming signatures.
    #[must_use]
    pub fn accepted_secrets(&self) -> Vec<Secret> {
        std::iter::once(&self.secret).chain(&self.previous_secret).cloned().collect()
    }

    /// The key of checkout links, proofs of a status, and the drawn digits that distinguish amounts.
    #[must_use]
    pub const fn link_key(&self) -> &Secret {
        match &self.link_secret {
            Some(secret) => secret,
            None => &self.secret,
        }
    }

    /// Accepted keys of links. A link signed with a previous key, or with `secret`, is valid until it expires.
    #[must_use]
    pub fn accepted_link_secrets(&self) -> Vec<Secret> {
        let of_links = self.link_secret.iter().chain(&self.previous_link_secret).cloned();
        of_links.chain(self.accepted_secrets()).collect()
    }

    pub(super) fn read(section: &mut Reader) -> Self {
        let url = section.text("unknown_transfer_webhook_url");
        let allowed_origins = section.texts("allowed_origins").unwrap_or_default();
        for origin in &allowed_origins {
            if let Some(problem) = origin_problem(origin) {
                section.problem("allowed_origins", &format!("{origin:?} {problem}"));
            }
        }
        let merchant = Self {
            name: section.text("name"),
            secret: section.required_secret("secret"),
            link_secret: section.shared_secret("link_secret"),
            previous_secret: section.shared_secret("previous_secret"),
            previous_link_secret: section.shared_secret("previous_link_secret"),
            allowed_origins,
            return_url: read_return_url(section),
            unknown_transfer_webhook_url: Some(url).filter(|url| !url.is_empty()),
        };
        let link = merchant.link_secret.as_ref().map(|secret| ("link_secret", secret));
        for (key, secret) in link.into_iter().chain([("secret", &merchant.secret)]) {
            strength::check(section, key, secret, SIGNING_BITS_MIN);
        }
        merchant
    }
}

fn read_return_url(section: &mut Reader) -> Option<ReturnUrl> {
    let text = section.text("return_url");
    if text.is_empty() {
        return None;
    }
    text.parse().map_err(|problem| section.problem("return_url", problem)).ok()
}
