//! `tidemark demo`: every stage, two development chains, a merchant and a buyer, in one process; or the
//! merchant and the buyer alone, against an installation that runs already.

mod chain;
mod external;
mod merchant;
mod narrator;
mod script;
mod shop;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use devnet::Devnet;
use runtime::task::Tasks;
use runtime::{Clock, Readiness, SystemClock, telemetry};
use schemas::{Blockchain, Secret, Stablecoin, stablecoin_contract};

use crate::back_end::data_folder;
use crate::process::{self, Listeners};
use crate::settings::Settings;
use crate::stage::Stage;
use chain::{Button, Chain};
use merchant::Merchant;
use narrator::Narrator;
use script::Script;
use shop::ShopClient;

const MERCHANT_SECRET: &str = "demo-merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5";
const ADMIN_SECRET: &str = "demo-admin-7Qx2mV9kT4wZ";
/// The demo shop's wallet. Its key is unknown and not needed.
const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";
/// Maximum wait of the script for a webhook.
const WEBHOOK_WAIT_MAX: Duration = Duration::from_secs(60);

/// `tidemark demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Exit after the script: 0 if every step happened.
    #[arg(long)]
    once: bool,
    /// Address on which the API listens.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Show log lines too, for example "info" or "ingest=debug".
    #[arg(long, default_value = "error")]
    log: String,
    /// Play against the installation whose API is at this URL. Its configuration must have anvil nodes as chains, and
    /// the URL of the demo's merchant as merchant.unknown_transfer_webhook_url.
    #[arg(long, requires = "config")]
    against: Option<String>,
    /// The configuration file of that installation.
    #[arg(long, short, requires = "against")]
    config: Option<PathBuf>,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let narrator = Narrator::start();
    narrator.title("Tidemark demo: stablecoin payments from the chain to a signed webhook");
    match &options.against {
        Some(base) => external::run(base, options.config.as_deref(), &narrator).await,
        None => run_alone(&options, &narrator).await,
    }
}

async fn run_alone(options: &Options, narrator: &Narrator) -> anyhow::Result<()> {
    let dir = DataDir::make()?;
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let secret = Secret::new(MERCHANT_SECRET);
    let merchant = Merchant::start(secret.clone(), listen, None, WEBHOOK_WAIT_MAX).await?;
    let ethereum = start_chain(Blockchain::Eth).await?;
    let polygon = start_chain(Blockchain::Polygon).await?;
    let settings = settings(options, &dir, &merchant, &ethereum, &polygon)?;
    telemetry::init_log(&settings.telemetry)?;
    let mut tasks = Tasks::new(settings.process.stop_deadline);
    let chains = vec![(Blockchain::Eth, ethereum.chain()), (Blockchain::Polygon, polygon.chain())];
    let button: Arc<dyn api::TestBuyer> = Arc::new(Button(chains));
    let ready = Readiness::default();
    let listeners = Listeners::default();
    let started =
        process::start(&mut tasks, &settings, &Stage::ALL, &listeners, &ready, Some(button))
            .await?;
    let address = started.address.context("the api did not start")?;
    narrator.say(&format!("all stages run in this process; the API listens on http://{address}"));
    let (ethereum, polygon) = (Chain::BuiltIn(ethereum), Chain::BuiltIn(polygon));
    ethereum.keep_mining().await?;

    let base = format!("http://{address}");
    let shop = ShopClient::new(base, secret, Secret::new(ADMIN_SECRET), merchant.url())?;
    let story = Script {
        narrator,
        shop: &shop,
        merchant: &merchant,
        ethereum: &ethereum,
        polygon: &polygon,
        log: started.log.clone(),
        order_ttl: settings.shop.orders.ttl,
    };
    let result = tokio::select! {
        result = story.play() => result,
        () = process::stop_signal() => Err(anyhow::anyhow!("stopped before the script ended")),
    };
    if result.is_ok() && !options.once {
        polygon.keep_mining().await?;
        let link = shop.checkout("page-1", "19.90").await?;
        narrator.invitation(&shop, &merchant, &ethereum.url(), &link);
        tokio::select! {
            stopped = tasks.run(process::stop_signal()) => stopped?,
            () = print_webhooks(narrator, &merchant) => {}
        }
    } else {
        tasks.run(std::future::ready(())).await?;
    }
    ethereum.shutdown().await;
    polygon.shutdown().await;
    result.inspect(|()| narrator.say("the end"))
}

/// Prints every webhook that a person's own requests cause.
async fn print_webhooks(narrator: &Narrator, merchant: &Merchant) {
    while let Some(event) = merchant.next().await {
        narrator.say(&format!("webhook, signature verified: {event}"));
    }
}

async fn start_chain(blockchain: Blockchain) -> anyhow::Result<Devnet> {
    let now = u64::try_from(SystemClock.now().seconds().0)?;
    let token = |stablecoin| {
        let contract = stablecoin_contract(blockchain, stablecoin)
            .context("every demo chain has this stablecoin")?;
        anyhow::Ok(devnet::Token {
            address: (*contract.address.bytes()).into(),
            decimals: contract.decimals,
            symbol: stablecoin.to_string(),
        })
    };
    let config = devnet::Config {
        chain_id: chain_id(blockchain),
        genesis_timestamp: now,
        block_interval_secs: chain::BLOCK_INTERVAL.as_secs(),
        finalized_depth: 12,
        safe_depth: 6,
        tokens: vec![token(Stablecoin::Usdt)?, token(Stablecoin::Usdc)?],
        seed: u64::from(blockchain.index()),
    };
    Ok(Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await?)
}

/// A chain id that no real network has: a browser wallet cannot send real money from the demo.
fn chain_id(blockchain: Blockchain) -> u64 {
    31_337 + u64::from(blockchain.index())
}

fn settings(
    options: &Options,
    dir: &DataDir,
    merchant: &Merchant,
    ethereum: &Devnet,
    polygon: &Devnet,
) -> anyhow::Result<Settings> {
    let text = format!(
        r#"
        [server]
        listen = "{listen}"
        [data]
        dir = "{dir}"
        [telemetry]
        listen = ""
        filter = "{filter}"
        [admin]
        secret = "{ADMIN_SECRET}"
        [merchant]
        name = "Demo shop"
        secret = "{MERCHANT_SECRET}"
        unknown_transfer_webhook_url = "{url}"
        [[wallets]]
        blockchain = "eth"
        address = "{WALLET}"
        enabled_coins = ["USDT", "USDC"]
        [[wallets]]
        blockchain = "polygon"
        address = "{WALLET}"
        enabled_coins = ["USDT", "USDC"]
        [chains.eth]
        rpc = ["{ethereum}"]
        chain_id = {ethereum_id}
        confirmations = 3
        poll_interval = "200ms"
        [chains.polygon]
        rpc = ["{polygon}"]
        chain_id = {polygon_id}
        confirmations = 3
        poll_interval = "200ms"
        [matching]
        match_window = "10m"
        [webhooks]
        allow_private_addresses = true
        "#,
        listen = options.listen,
        dir = dir.0.display(),
        filter = options.log,
        url = merchant.url(),
        ethereum = ethereum.url(),
        polygon = polygon.url(),
        ethereum_id = chain_id(Blockchain::Eth),
        polygon_id = chain_id(Blockchain::Polygon),
    );
    Ok(Settings::parse(&text, &Stage::ALL)?)
}

/// A folder removed when the demo ends.
struct DataDir(PathBuf);

impl DataDir {
    fn make() -> anyhow::Result<Self> {
        let name = format!("tidemark-demo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        data_folder::prepare(&path)?;
        Ok(Self(path))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // A failure is harmless: the system clears its temporary folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
