//! The sections `[admin]`, `[merchant]`, `[[wallets]]`, `[orders]` and `[matching]`. The executable passes
//! what other stages need of them.

use std::collections::HashSet;
use std::time::Duration;

use runtime::config::{Reader, Source};
use schemas::{Address, Amount, Blockchain, Secret, Stablecoin, Wallet};

#[derive(Debug, Clone)]
pub struct Config {
    /// Value of `Service-Admin-Authorization` (spec 5.2).
    pub admin_secret: Secret,
    pub merchant: Merchant,
    /// In the order of the file (spec 2.6).
    pub wallets: Vec<Wallet>,
    pub orders: Orders,
    pub matching: Matching,
}

/// `[merchant]`.
#[derive(Debug, Clone)]
pub struct Merchant {
    /// Shown to customers.
    pub name: String,
    /// Key of Service-Signature (spec 5.1): signs webhooks and checkout links.
    pub secret: Secret,
    /// The key before the last rotation: accepted on incoming requests, never used to sign.
    pub previous_secret: Option<Secret>,
    /// Origins that may embed or call the checkout.
    pub allowed_origins: Vec<String>,
    /// The destination of unknown_transfer webhooks (spec 6.2); without it none is sent.
    pub unknown_transfer_webhook_url: Option<String>,
}

impl Merchant {
    /// Every key that incoming signatures may be made with.
    #[must_use]
    pub fn accepted_secrets(&self) -> Vec<Secret> {
        std::iter::once(&self.secret).chain(&self.previous_secret).cloned().collect()
    }
}

/// `[orders]`.
#[derive(Debug, Clone, Copy)]
pub struct Orders {
    /// How long an order waits for its payment.
    pub ttl: Duration,
    /// How long a closed deposit keeps its amount.
    pub late_window: Duration,
}

/// `[matching]`.
#[derive(Debug, Clone, Copy)]
pub struct Matching {
    /// By how much to raise an amount that is taken.
    pub nudge_step: Amount,
    /// By how much at most.
    pub nudge_limit: Amount,
    /// How long, in chain time, a confirmed transfer waits for its deposit.
    pub match_window: Duration,
    /// By how much a block's time may lie before its deposit's start.
    pub skew: Duration,
    /// How old a chain's last scanned block may be for a deposit to open.
    pub head_age_max: Duration,
}

impl Config {
    /// The commented defaults of the sections.
    pub const DEFAULTS: &str = include_str!("config/default.toml");

    /// Reads the sections; `source` collects what is wrong with them.
    #[must_use]
    pub fn read(source: &mut Source) -> Self {
        let mut admin = source.section("admin");
        let admin_secret = admin.required_secret("secret");
        admin.finish();
        let merchant = Merchant::read(source.section("merchant"));
        let wallets = read_wallets(source);
        let mut section = source.section("orders");
        let orders =
            Orders { ttl: section.duration("ttl"), late_window: section.duration("late_window") };
        section.finish();
        let mut section = source.section("matching");
        let matching = Matching {
            nudge_step: section.parsed("nudge_step").unwrap_or_default(),
            nudge_limit: section.parsed("nudge_limit").unwrap_or_default(),
            match_window: section.duration("match_window"),
            skew: section.duration("skew"),
            head_age_max: section.duration("head_age_max"),
        };
        if matching.nudge_step == Amount::ZERO && matching.nudge_limit > Amount::ZERO {
            section.problem("nudge_step", "must be greater than zero");
        }
        section.finish();
        Self { admin_secret, merchant, wallets, orders, matching }
    }
}

impl Merchant {
    fn read(mut section: Reader) -> Self {
        let url = section.text("unknown_transfer_webhook_url");
        if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
            section.problem("unknown_transfer_webhook_url", "must be an http or https URL");
        }
        let merchant = Self {
            name: section.text("name"),
            secret: section.required_secret("secret"),
            previous_secret: section.secret("previous_secret"),
            allowed_origins: section.texts("allowed_origins").unwrap_or_default(),
            unknown_transfer_webhook_url: Some(url).filter(|url| !url.is_empty()),
        };
        section.finish();
        merchant
    }
}

fn read_wallets(source: &mut Source) -> Vec<Wallet> {
    let mut wallets = Vec::new();
    let mut seen = HashSet::new();
    for mut section in source.sections("wallets") {
        let blockchain: Option<Blockchain> = section.parsed("blockchain");
        let address: Option<Address> = section.parsed("address");
        let names = section.texts("enabled_coins").unwrap_or_default();
        let mut stablecoins = Vec::new();
        for name in &names {
            match name.parse::<Stablecoin>() {
                Ok(stablecoin) if stablecoins.contains(&stablecoin) => {
                    section.problem("enabled_coins", &format!("{name} is listed twice"));
                }
                Ok(stablecoin) => stablecoins.push(stablecoin),
                Err(error) => section.problem("enabled_coins", &error.to_string()),
            }
        }
        let retired = section.optional_flag("retired").unwrap_or_default();
        if names.is_empty() {
            section.problem("enabled_coins", "must name at least one coin");
        }
        if let (Some(blockchain), Some(address)) = (blockchain, address) {
            if address.family() != blockchain.address_family() {
                section.problem("address", &format!("is not an address of {blockchain}"));
            } else if !seen.insert((blockchain, address)) {
                section.problem("address", "is listed twice for this chain");
            } else {
                wallets.push(Wallet { blockchain, address, stablecoins, retired });
            }
        }
        section.finish();
    }
    wallets
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::config::Problems;

    const GOOD: &str = r#"
        [admin]
        secret = "a"
        [merchant]
        secret = "m"
        [[wallets]]
        blockchain = "eth"
        address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
        enabled_coins = ["USDT", "DAI"]
        retired = true
    "#;

    #[test]
    fn only_secrets_have_no_default() {
        let config = Config::read(&mut Source::parse(Config::DEFAULTS, GOOD, []));
        assert_eq!(config.orders.ttl, Duration::from_secs(1800));
        assert_eq!(config.matching.nudge_limit, Amount::parse("1").unwrap());
        assert_eq!(config.wallets[0].stablecoins, [Stablecoin::Usdt, Stablecoin::Dai]);
        assert!(config.wallets[0].retired);
        assert_eq!(config.merchant.unknown_transfer_webhook_url, None);
        assert!(!format!("{config:?}").contains("\"m\""));
    }

    #[test]
    fn wrong_wallets_are_named_by_position() {
        let text = r#"
            [[wallets]]
            blockchain = "tron"
            address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
            enabled_coins = ["USDT", "USDT", "BTC"]
            [[wallets]]
            blockchain = "bsc"
            address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"
            [[wallets]]
            blockchain = ""
            address = ""
            enabled_coins = ["USDT"]
        "#;
        let mut source = Source::parse(Config::DEFAULTS, text, []);
        let config = Config::read(&mut source);
        assert_eq!(config.wallets, []);
        let Problems(lines) = source.finish().unwrap_err();
        for line in [
            "admin.secret: is missing: give secret, secret_file, or its variable",
            "merchant.secret: is missing: give secret, secret_file, or its variable",
            "wallets[0].address: is not an address of tron",
            "wallets[0].enabled_coins: USDT is listed twice",
            "wallets[0].enabled_coins: \"BTC\" is not one of USDT, USDC, DAI",
            "wallets[1].address: has a wrong EIP-55 checksum",
            "wallets[1].enabled_coins: must name at least one coin",
            "wallets[2].blockchain: must not be empty",
            "wallets[2].address: must not be empty",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line} is not in {lines:#?}");
        }
    }
}
