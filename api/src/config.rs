//! The sections `[admin]`, `[merchant]`, `[[wallets]]`, `[orders]` and `[matching]`. The executable passes
//! other stages the values that they need.

use std::collections::HashSet;
use std::str::FromStr;
use std::time::Duration;

use runtime::config::{Reader, Source};
use schemas::{
    Address, Amount, Blockchain, ReceiverPolicy, Secret, Stablecoin, StablecoinContract, Wallet,
    known_contract,
};

use strength::{ADMIN_BITS_MIN, SIGNING_BITS_MIN};

/// Reads a setting that is one of two words.
macro_rules! two_words {
    ($setting:ident: $first:literal = $one:ident, $second:literal = $other:ident) => {
        impl FromStr for $setting {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $first => Ok(Self::$one),
                    $second => Ok(Self::$other),
                    _ => Err(concat!("must be \"", $first, "\" or \"", $second, "\"")),
                }
            }
        }
    };
}

pub(crate) mod admin;
mod merchant;
mod strength;

pub use admin::{AdminSecret, Scope};
pub use merchant::Merchant;

/// Minimum of `head_age_max`. An idle chain has a new head only every 30 s: a lower maximum would often exclude it.
const HEAD_AGE_LEAST: Duration = Duration::from_secs(60);
const HEAD_TOO_YOUNG: &str = "must be at least 1m: an idle chain is published every 30 s";

/// Configuration of the shop: secrets, wallets and rules. Ingest and webhooks are passed the values that they need; the
/// processor gets its values in records.
#[derive(Debug, Clone)]
pub struct Config {
    /// Value of `Service-Admin-Authorization` (spec 5.2).
    pub admin_secret: Secret,
    /// Further secrets of operators.
    pub operators: Vec<AdminSecret>,
    pub merchant: Merchant,
    /// In the order of the file (spec 2.6).
    pub wallets: Vec<Wallet>,
    pub orders: Orders,
    pub matching: Matching,
    /// Allowed webhook destinations; set by the executable from `[webhooks]`.
    pub receivers: ReceiverPolicy,
}

/// `[orders]`.
#[derive(Debug, Clone, Copy)]
pub struct Orders {
    /// Maximum wait of an order for its payment.
    pub ttl: Duration,
    /// Maximum time for which a closed deposit keeps its amount.
    pub late_window: Duration,
    /// Treatment of a payment within the late window.
    pub late_payments: LatePayments,
}

/// Treatment of a payment within the late window of an expired or cancelled order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatePayments {
    /// It pays nothing and is reported.
    Report,
    /// It pays its order.
    Accept,
}

two_words!(LatePayments: "report" = Report, "accept" = Accept);

/// `[matching]`.
#[derive(Debug, Clone, Copy)]
pub struct Matching {
    /// Amounts for customers who choose chain or coin at checkout.
    pub amounts: Amounts,
    /// Number of decimal places of a raised amount.
    pub digits: u8,
    /// Maximum raise of an amount, as a share of it, but at least one cent (ten with two digits). 0% forbids any raise.
    pub limit: Percent,
    /// Maximum wait of a transfer for its deposit, in chain time from its block.
    pub match_window: Duration,
    /// Maximum age of a chain's last scanned block for a deposit to open.
    pub head_age_max: Duration,
}

/// Amounts for customers who choose chain or coin at checkout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amounts {
    /// The order's own while it is free, otherwise one raised within [`Matching::limit`].
    ExactFirst,
    /// The order's own with drawn digits added below one cent, and with cents too if none of these is free. With
    /// [`Matching::digits`] of 2 there are none below one cent, so the order's own comes first.
    Unique,
}

two_words!(Amounts: "exact_first" = ExactFirst, "unique" = Unique);

/// A part of an amount, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Percent(u32);

impl Percent {
    const MILLIONTHS: u128 = 1_000_000;

    /// This part of an amount.
    #[must_use]
    pub fn of(self, amount: Amount) -> Amount {
        let parts = amount.parts() / Self::MILLIONTHS * u128::from(self.0);
        Amount::from_parts(parts).unwrap_or(amount)
    }
}

impl FromStr for Percent {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let millionths = || {
            let percent = Amount::parse(text.strip_suffix('%')?).ok()?.to_units(4)?;
            u32::try_from(percent).ok().filter(|of| u128::from(*of) <= Self::MILLIONTHS)
        };
        millionths().map(Self).ok_or("must be a percentage from 0% to 100%, such as \"1%\"")
    }
}

impl Config {
    /// The commented defaults of the sections.
    pub const DEFAULTS: &str = include_str!("config/default.toml");

    /// Reads the sections; `source` collects their problems.
    #[must_use]
    pub fn read(source: &mut Source) -> Self {
        let mut admin = source.section("admin");
        let admin_secret = admin.required_secret("secret");
        strength::check(&admin, "secret", &admin_secret, ADMIN_BITS_MIN);
        let operators = admin::read_secrets(&mut admin);
        let mut section = source.section("merchant");
        let merchant = Merchant::read(&mut section);
        let named = |number| format!("admin.secrets[{number}].secret");
        // The previous merchant secret may equal the current one, before and after a rotation.
        let previous = merchant.previous_secret.as_ref().unwrap_or(&merchant.secret);
        let mut secrets = vec![
            ("merchant.secret".to_owned(), &merchant.secret),
            ("admin.secret".to_owned(), &admin_secret),
        ];
        if !previous.matches(merchant.secret.expose()) {
            secrets.insert(1, ("merchant.previous_secret".to_owned(), previous));
        }
        let link = merchant.link_secret.as_ref();
        secrets.extend(link.map(|secret| ("merchant.link_secret".to_owned(), secret)));
        secrets.extend(operators.iter().enumerate().map(|(n, of)| (named(n), &of.secret)));
        for (key, other) in admin::same(&secrets) {
            source.problem(&key, &format!("must differ from {other}"));
        }
        admin.finish();
        section.finish();
        let wallets = read_wallets(source);
        let mut section = source.section("orders");
        let orders = Orders {
            ttl: at_least(&mut section, "ttl", Duration::from_secs(1), "must be at least 1s"),
            late_window: section.duration("late_window"),
            late_payments: section.parsed("late_payments").unwrap_or(LatePayments::Report),
        };
        section.finish();
        let mut section = source.section("matching");
        let matching = Matching {
            amounts: section.parsed("amounts").unwrap_or(Amounts::ExactFirst),
            digits: u8::try_from(section.integer("digits", 2..=6)).unwrap_or(2),
            limit: section.parsed("limit").unwrap_or_default(),
            match_window: section.duration("match_window"),
            head_age_max: at_least(&mut section, "head_age_max", HEAD_AGE_LEAST, HEAD_TOO_YOUNG),
        };
        if matching.amounts == Amounts::Unique && matching.limit == Percent::default() {
            section.problem("limit", "must be greater than 0% for unique amounts");
        }
        section.finish();
        let receivers = ReceiverPolicy::default();
        Self { admin_secret, operators, merchant, wallets, orders, matching, receivers }
    }

    /// Warnings about previous keys that are easy to guess. Such keys are accepted, so that a weak key can be rotated
    /// without an outage.
    #[must_use]
    pub fn weak_secrets(&self) -> Vec<String> {
        let Merchant { previous_secret, previous_link_secret, .. } = &self.merchant;
        let previous = [
            ("merchant.previous_secret", previous_secret),
            ("merchant.previous_link_secret", previous_link_secret),
        ];
        let weak = |(key, secret): (&str, &Option<Secret>)| {
            let problem = strength::problem(secret.as_ref()?, SIGNING_BITS_MIN);
            problem.map(|_| {
                format!("{key} is too easy to guess: remove it as soon as nothing signs with it")
            })
        };
        previous.into_iter().filter_map(weak).collect()
    }

    /// Returns the problems of this configuration with these contracts: amounts of `[matching]`
    /// with too many decimal places, and a refused URL for unknown transfers.
    #[must_use]
    pub fn misfits(&self, contracts: &[StablecoinContract]) -> Vec<String> {
        let url = self.merchant.unknown_transfer_webhook_url.as_deref();
        let refusal = url.and_then(|url| self.receivers.check(url).err());
        let unreachable =
            refusal.map(|refusal| format!("merchant.unknown_transfer_webhook_url: {refusal}"));
        let Matching { digits, limit, .. } = self.matching;
        let coarse =
            contracts.iter().filter(|of| of.decimals < digits && limit != Percent::default());
        let misfit = |of: &StablecoinContract| {
            let (coin, chain, decimals) = (of.stablecoin, of.blockchain, of.decimals);
            format!(
                "matching.digits: is {digits}, and {coin} on {chain} has {decimals} digits after the point"
            )
        };
        coarse.map(misfit).chain(unreachable).collect()
    }
}

fn at_least(section: &mut Reader, key: &str, least: Duration, problem: &str) -> Duration {
    let given = section.optional_duration(key);
    if given.is_some_and(|given| given < least) {
        section.problem(key, problem);
    }
    given.unwrap_or(least)
}

/// Describes an address to which nobody has a key, and which cannot be a merchant's contract.
fn nobodys(address: Address) -> Option<String> {
    if let Some(StablecoinContract { blockchain, stablecoin, .. }) = known_contract(address) {
        return Some(format!("the contract of {stablecoin} on {blockchain}, not a wallet"));
    }
    // Addresses of precompiles and predeploys: one leading byte, zeros, a number of two bytes.
    let [first, middle @ .., _, _] = address.bytes();
    let is_low = middle.iter().all(|byte| *byte == 0);
    match (is_low, *first) {
        (true, 0) if address.bytes() == &[0; 20] => Some("the zero address".into()),
        (true, _) => Some("an address of the chain itself, such as a precompile".into()),
        (false, _) => None,
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
                if let Some(whose) = nobodys(address) {
                    section.problem("address", &format!("is {whose}: what is sent there is lost"));
                }
                // Kept even if just refused, so that later checks report its other problems in the same run.
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
        secret = "admin-5vN8xK2qL7wR"
        [merchant]
        secret = "merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5"
        [[wallets]]
        blockchain = "eth"
        address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
        enabled_coins = ["USDT", "DAI"]
        retired = true
    "#;

    /// The configuration of a text, and its problems.
    pub(super) fn read(text: &str) -> (Config, Vec<String>) {
        let mut source = Source::parse(Config::DEFAULTS, text, []);
        let config = Config::read(&mut source);
        (config, source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines))
    }

    #[test]
    fn only_secrets_have_no_default() {
        let (config, _) = read(GOOD);
        assert_eq!(config.orders.ttl, Duration::from_secs(1800));
        let amount = Amount::parse("250").unwrap();
        assert_eq!(config.matching.limit.of(amount), Amount::parse("2.50").unwrap());
        assert_eq!(config.wallets[0].stablecoins, [Stablecoin::Usdt, Stablecoin::Dai]);
        assert!(config.wallets[0].retired);
        assert_eq!(config.merchant.unknown_transfer_webhook_url, None);
        assert!(!format!("{config:?}").contains("merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5"));
    }

    #[test]
    fn an_order_and_a_head_last_for_a_while() {
        for (setting, value, problem) in [
            ("[orders]\nttl", "0s", Some("orders.ttl: must be at least 1s")),
            ("[orders]\nttl", "999ms", Some("orders.ttl: must be at least 1s")),
            (
                "[orders]\nttl",
                "soon",
                Some("orders.ttl: must be a duration such as \"90s\" or \"24h\""),
            ),
            ("[orders]\nttl", "1s", None),
            (
                "[matching]\nhead_age_max",
                "500ms",
                Some("matching.head_age_max: must be at least 1m"),
            ),
            ("[matching]\nhead_age_max", "59s", Some("matching.head_age_max: must be at least 1m")),
            ("[matching]\nhead_age_max", "1m", None),
        ] {
            let (_, lines) = read(&format!("{GOOD}\n{setting} = \"{value}\""));
            assert_eq!(lines.len(), usize::from(problem.is_some()), "{setting} {value}: {lines:?}");
            let starts = |(line, start): (&String, &str)| line.starts_with(start);
            assert!(lines.iter().zip(problem).all(starts), "{setting} {value}: {lines:?}");
        }
    }

    #[test]
    fn wrong_addresses_of_the_shop_are_all_reported() {
        let text = GOOD.replace(
            "[merchant]",
            "[merchant]\nallowed_origins = ['*', 'https://shop.example', 'https://shop.example/']\n\
             return_url = 'https://{merchant_order_id}/'",
        );
        let (_, lines) = read(&text);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        for (line, start) in lines.iter().zip([
            "merchant.allowed_origins: \"*\" must name one origin",
            "merchant.allowed_origins: \"https://shop.example/\" must be written as browsers send it",
            "merchant.return_url: must not have a hole before its path",
        ]) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn amounts_that_nobody_can_pay_are_refused() {
        let read = |matching: &str| read(&format!("{GOOD}\n[matching]\n{matching}"));
        let contract = |decimals| StablecoinContract {
            decimals,
            ..*schemas::stablecoin_contract(Blockchain::Eth, Stablecoin::Usdt).unwrap()
        };
        let contracts = [contract(6), contract(5), contract(18)];
        let (config, problems) = read("");
        assert_eq!(problems, [""; 0]);
        let problem = "matching.digits: is 6, and USDT on eth has 5 digits after the point";
        assert_eq!(config.misfits(&contracts), [problem]);
        assert_eq!(read("digits = 5").0.misfits(&contracts), [""; 0]);
        let never = "amounts = \"exact_first\"\nlimit = \"0%\"";
        assert_eq!(read(never).0.misfits(&contracts), [""; 0], "no amount is raised");
        let (_, problems) = read("amounts = \"plain\"\ndigits = 7\nlimit = \"101%\"");
        assert_eq!(
            problems,
            [
                "matching.amounts: must be \"exact_first\" or \"unique\"",
                "matching.digits: must be a whole number from 2 to 6",
                "matching.limit: must be a percentage from 0% to 100%, such as \"1%\"",
            ]
        );
        let (_, problems) = read("limit = \"0%\"");
        assert_eq!(problems, ["matching.limit: must be greater than 0% for unique amounts"]);
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
        let (config, lines) = read(text);
        assert_eq!(config.wallets, []);
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

    /// Payments to such addresses are lost.
    #[test]
    fn a_wallet_that_only_loses_money_is_refused() {
        let tron = |bytes| Address::new(schemas::AddressFamily::Tron, bytes).to_string();
        let tether = *schemas::stablecoin_contract(Blockchain::Tron, Stablecoin::Usdt).unwrap();
        let usdt = Some("the contract of USDT on eth");
        let usdc = Some("the contract of USDC on eth");
        let bridged = Some("the contract of USDC on polygon");
        for (chain, address, expected) in [
            ("eth", "0xdAC17F958D2ee523a2206206994597C13D831ec7", usdt),
            ("eth", "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", usdc),
            // A contract of another chain.
            ("polygon", "0xdAC17F958D2ee523a2206206994597C13D831ec7", usdt),
            // A contract of a bridged coin.
            ("polygon", "0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174", bridged),
            ("tron", &tether.address.to_string(), Some("the contract of USDT on tron")),
            ("eth", "0x0000000000000000000000000000000000000000", Some("the zero address")),
            ("tron", &tron([0; 20]), Some("the zero address")),
            ("eth", "0x0000000000000000000000000000000000000009", Some("a precompile")),
            ("polygon", "0x0000000000000000000000000000000000001010", Some("a precompile")),
            ("op", "0x4200000000000000000000000000000000000006", Some("a precompile")),
            ("avaxc", "0x0200000000000000000000000000000000000005", Some("a precompile")),
            ("eth", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", None),
            ("tron", &tron([7; 20]), None),
        ] {
            let text = format!(
                "[[wallets]]\nblockchain = \"{chain}\"\naddress = \"{address}\"\nenabled_coins = [\"USDT\"]"
            );
            let mut source = Source::parse("", &text, []);
            let wallets = read_wallets(&mut source);
            let lines = source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines);
            assert_eq!((wallets.len(), lines.len()), (1, usize::from(expected.is_some())));
            if let Some(expected) = expected {
                assert!(lines[0].starts_with("wallets[0].address: is "), "{lines:?}");
                assert!(lines[0].contains(expected) && lines[0].ends_with("is lost"), "{lines:?}");
            }
        }
    }
}
