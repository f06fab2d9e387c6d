//! Prints the demo's events with times.

use std::time::Instant;

use schemas::{Blockchain, Stablecoin, stablecoin_contract};

use super::merchant::Merchant;
use super::shop::ShopClient;
use crate::output::print;

/// Writes the story to standard output.
#[derive(Debug)]
pub(super) struct Narrator {
    started: Instant,
}

impl Narrator {
    pub(super) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(super) fn title(&self, text: &str) {
        print(&format!("{text}\n"));
    }

    pub(super) fn chapter(&self, number: u32, text: &str) {
        print(&format!("\n{number}. {text}"));
    }

    /// Prints an event, with its time.
    pub(super) fn say(&self, text: &str) {
        let elapsed = self.started.elapsed();
        let tenths = elapsed.subsec_millis() / 100;
        print(&format!("  [{:>3}.{tenths} s] {text}", elapsed.as_secs()));
    }

    /// Prints commands that a person can try now.
    pub(super) fn invitation(
        &self,
        shop: &ShopClient,
        merchant: &Merchant,
        chain: &str,
        link: &str,
    ) {
        print(&format!(
            r#"
It stays up until Ctrl-C. Open the checkout page of an order in a browser; its button pays like a customer:

  {link}

Things to try in another terminal (bash, curl, openssl):

  # a signed order of 12.34 USDT on Ethereum
  BODY='{{"order_id":"try-1","amount":"12.34","webhook_url":"{webhook}","blockchain":"eth","stablecoin":"USDT"}}'
  TS=$(date +%s)
  SIG=$(printf '%s.%s' "$TS" "$BODY" | openssl dgst -sha256 -hmac {merchant_secret} -binary | base64)
  curl -s {base}/api/v1/service/orders -H 'Content-Type: application/json' -H "Service-Signature: $TS.$SIG" -d "$BODY"; echo

  # what it waits for
  curl -s {base}/api/v1/admin/deposits -H 'Service-Admin-Authorization: {admin_secret}'; echo

  # pay it on the development chain: 12.34 USDT is 12340000 base units (use the deposit's exact value)
  curl -s {chain} -H 'Content-Type: application/json' -d '{{"jsonrpc":"2.0","id":1,"method":"devnet_transfer","params":[{{"token":"{token}","from":"0x2222222222222222222222222222222222222222","to":"{wallet}","value":"12340000"}}]}}'; echo

  # a few seconds later
  curl -s '{base}/api/v1/admin/orders?limit=3' -H 'Service-Admin-Authorization: {admin_secret}'; echo
  curl -s {base}/api/v1/admin/wallets/{wallet}/transfers -H 'Service-Admin-Authorization: {admin_secret}'; echo
"#,
            webhook = merchant.url(),
            merchant_secret = super::MERCHANT_SECRET,
            admin_secret = super::ADMIN_SECRET,
            base = shop.base(),
            token = stablecoin_contract(Blockchain::Eth, Stablecoin::Usdt)
                .map_or_else(String::new, |contract| contract.address.to_string()),
            wallet = super::WALLET,
        ));
    }
}
