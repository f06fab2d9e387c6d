//! The demo's story against an installation that runs already, as processes or containers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use log::{Log, TopicPartition};
use reqwest::Url;
use runtime::{Clock, Readiness, SystemClock};
use schemas::{Blockchain, Partition, Topic};

use super::WEBHOOK_WAIT_MAX;
use super::chain::{Anvil, Chain};
use super::merchant::Merchant;
use super::narrator::Narrator;
use super::script::Script;
use super::shop::ShopClient;
use crate::back_end::open_log;
use crate::process;
use crate::settings::Settings;
use crate::stage::Stage;

/// Maximum wait until both chains are followed: ingest checks its contracts again every 30 s.
const FOLLOWED_WAIT_MAX: Duration = Duration::from_secs(90);

/// Plays the story against the API at `base`.
pub(super) async fn run(
    base: &str,
    file: Option<&Path>,
    narrator: &Narrator,
) -> anyhow::Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let settings = Settings::load(file, &[Stage::Api])?;
    ensure!(
        matches!(settings.log.back_end, log::config::BackEnd::Kafka(_)),
        "log.backend is \"embedded\": only its own process can read it, run the demo without --against"
    );
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let log = open_log(&settings, &clock, &Readiness::default()).await?;
    let merchant = start_merchant(&settings).await?;
    let ethereum = open_chain(&settings, Blockchain::Eth).await?;
    let polygon = open_chain(&settings, Blockchain::Polygon).await?;
    until_followed(&*log, [Blockchain::Eth, Blockchain::Polygon]).await?;
    narrator.say(&format!("the installation answers at {base}"));
    let shop = ShopClient::new(
        base.trim_end_matches('/').to_owned(),
        settings.shop.merchant.secret.clone(),
        settings.shop.admin_secret.clone(),
        merchant.url(),
    )?;
    let story = Script {
        narrator,
        shop: &shop,
        merchant: &merchant,
        ethereum: &ethereum,
        polygon: &polygon,
        log,
        order_ttl: settings.shop.orders.ttl,
    };
    tokio::select! {
        result = story.play() => result?,
        () = process::stop_signal() => bail!("stopped before the script ended"),
    }
    narrator.say("the end");
    Ok(())
}

/// Waits until both chains are followed: ingest finds the demo's new contracts at its next check.
async fn until_followed(log: &dyn Log, chains: [Blockchain; 2]) -> anyhow::Result<()> {
    let deadline = Instant::now() + FOLLOWED_WAIT_MAX;
    for blockchain in chains {
        let partition = Partition(blockchain.index());
        let of = TopicPartition { topic: Topic::Chains, partition };
        while log.bounds(of)?.end <= log.bounds(of)?.start {
            ensure!(Instant::now() < deadline, "no process follows {blockchain}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// Starts the merchant at the URL for unknown transfers.
async fn start_merchant(settings: &Settings) -> anyhow::Result<Merchant> {
    let shop = &settings.shop;
    let url = shop.merchant.unknown_transfer_webhook_url.clone();
    let url = url.context("merchant.unknown_transfer_webhook_url is missing")?;
    let port = Url::parse(&url)?.port_or_known_default().context("the URL has no port")?;
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let patience = WEBHOOK_WAIT_MAX.saturating_add(shop.orders.ttl);
    Merchant::start(shop.merchant.secret.clone(), listen, Some(url), patience).await
}

async fn open_chain(settings: &Settings, blockchain: Blockchain) -> anyhow::Result<Chain> {
    let chain = settings.ingest.chains.iter().find(|chain| chain.blockchain == blockchain);
    let chain = chain.with_context(|| format!("chains.{blockchain} is missing"))?;
    let endpoint = chain.endpoints.first().context("a chain has an endpoint")?;
    let chain = Chain::Anvil(Anvil::open(&endpoint.url.to_string(), &chain.contracts).await?);
    chain.keep_mining().await?;
    Ok(chain)
}
