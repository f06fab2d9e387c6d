//! Builds the parts of the api from its configuration and serves them.

use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use log::Log;
use runtime::config::{Connections, Network};
use runtime::{Clock, Readiness};
use schemas::StablecoinContract;
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::auth::Auth;
use crate::client::Entrance;
use crate::commands::Commands;
use crate::customers::{Customers, TOO_MANY_REQUESTS};
use crate::events::Events;
use crate::events::views::Views;
use crate::links::Links;
use crate::listener::Listener;
use crate::machine::catalog::Catalog;
use crate::page::Shop;
use crate::reads::Reads;
use crate::router::{Parts, Routes};
use crate::routes::checkout::Checkouts;
use crate::routes::console::Console;
use crate::routes::health::Health;
use crate::{ChainTerms, Config, Error, Feed, TestBuyer, metrics};

/// Interval between reads of the tables for metrics.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum open connections of operators at their own address, which the public cannot exhaust.
const OPERATOR_CONNECTIONS_MAX: u32 = 64;

/// Listening sockets.
#[derive(Debug)]
pub struct Sockets {
    /// For merchants and customers.
    pub public: TcpListener,
    /// For operators; `None` if they use the public one.
    pub operators: Option<TcpListener>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
}

/// Dependencies of the server.
pub struct Server {
    pub config: Config,
    /// Limits of client connections.
    pub connections: Connections,
    /// Maximum requests per second of the customers of one address; `None` if unlimited.
    pub customer_requests: Option<NonZeroU32>,
    /// Public URL of the service, without a trailing slash.
    pub public_url: Option<String>,
    /// The stablecoin contracts of the configured chains.
    pub contracts: Vec<StablecoinContract>,
    /// Terms of those chains for customers.
    pub chains: Vec<ChainTerms>,
    /// The demo's test buyer, who pays at the push of a button on the checkout page.
    pub buyer: Option<Arc<dyn TestBuyer>>,
    /// Prefix of the names of topics, and so of their schemas' subjects.
    pub topic_prefix: String,
    /// Version in the health check (spec 4.2).
    pub version: &'static str,
    pub log: Arc<dyn Log>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// States reported by other parts of this process.
    pub readiness: Readiness,
    /// Feed of `orders`, run by [`feed::run`](crate::feed::run) on another thread.
    pub feed: Feed,
}

impl Server {
    /// Serves until `stop`, then completes requests in progress within the grace of
    /// [`Connections`]. Accepts none before the feed follows the log, lest an answer is missed.
    ///
    /// # Errors
    /// [`Error::Feed`] if the log fails for good.
    pub async fn run(self, sockets: Sockets, stop: CancellationToken) -> Result<(), Error> {
        metrics::register();
        tokio::select! {
            () = self.feed.following() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let Some(installation) = self.installation(&stop).await? else { return Ok(()) };
        let Sockets { public, operators, trusted_proxies } = sockets;
        let proxies: Arc<[Network]> = trusted_proxies.into();
        announce(&public, "the api accepts requests");
        warn_of_proxy(&public, self.public_url.as_deref(), &proxies);
        let bounds = self.connections;
        let clock = self.clock.clone();
        let listener =
            Listener::new(Entrance::Public, bounds, proxies.clone(), clock.clone(), stop.clone());
        let lanes = measure_lanes(self.store.clone(), self.clock.clone());
        let routes = self.routes(&installation, stop.clone());
        let serving = async {
            let Some(operators) = operators else {
                return listener.serve(public, routes.together()).await;
            };
            announce(&operators, "the api accepts requests of operators");
            let bounds = Connections { max: bounds.max.min(OPERATOR_CONNECTIONS_MAX), ..bounds };
            let apart = Listener::new(Entrance::Operators, bounds, proxies, clock, stop);
            let (of_public, of_operators) = routes.apart();
            tokio::join!(listener.serve(public, of_public), apart.serve(operators, of_operators));
        };
        tokio::select! {
            () = serving => Ok(()),
            never = lanes => match never {},
        }
    }

    /// Name space of idempotency keys; none if the process stops first.
    async fn installation(&self, stop: &CancellationToken) -> Result<Option<String>, Error> {
        let (log, stop) = (self.log.clone(), stop.clone());
        let ask = move || log::retry(&stop, "the api", || log.installation());
        let asked = tokio::task::spawn_blocking(ask).await;
        Ok(asked.map_err(std::io::Error::from)??)
    }

    fn routes(self, installation: &str, stop: CancellationToken) -> Routes {
        let Self { config, buyer, version, log, store, clock, readiness, feed, .. } = self;
        let catalog = Arc::new(Catalog::new(&config, self.contracts, self.chains));
        let auth = Arc::new(Auth::new(&config, clock.clone()));
        let reads = Reads::new(store.clone(), clock.clone(), catalog.clone());
        let events = Events {
            reads: reads.clone(),
            feed: feed.clone(),
            clock: clock.clone(),
            stop,
            views: Views::default(),
        };
        let links = Links::new(config.merchant.link_key().clone(), self.public_url.as_deref());
        let shop = Arc::new(Shop {
            name: config.merchant.name.clone(),
            return_url: config.merchant.return_url.clone(),
            links: links.clone(),
            version,
            has_test_buyer: buyer.is_some(),
        });
        let checkouts = Checkouts {
            auth: auth.clone(),
            reads: reads.clone(),
            events,
            clock: clock.clone(),
            shop,
            buyer,
        };
        let alerts = Arc::default();
        let health = Health { version, readiness, log: log.clone(), clock: clock.clone(), alerts };
        let console = Console {
            auth: auth.clone(),
            reads: reads.clone(),
            links: links.clone(),
            log: log.clone(),
            store: store.clone(),
            clock: clock.clone(),
            sessions: Arc::default(),
            overview: Arc::default(),
            redriving: Arc::default(),
            version,
        };
        let customers =
            Arc::new(Customers::new(self.customer_requests, TOO_MANY_REQUESTS, clock.clone()));
        let merchant = &config.merchant;
        let commands =
            Commands::new(log.clone(), store, clock, feed, catalog, merchant, installation);
        let parts =
            Parts { auth, reads, commands, links, log, health, checkouts, customers, console };
        Routes::new(parts, config.merchant.allowed_origins, self.topic_prefix)
    }
}

/// Logs the listening address.
fn announce(listener: &TcpListener, what: &str) {
    match listener.local_addr() {
        Ok(address) => tracing::info!(%address, "{what}"),
        Err(error) => tracing::info!(%error, "{what}"),
    }
}

/// Warns of a probable proxy that is not trusted: all its clients would share one limit.
fn warn_of_proxy(listener: &TcpListener, public_url: Option<&str>, proxies: &[Network]) {
    let is_behind = listener.local_addr().is_ok_and(|address| is_private(address.ip()));
    if public_url.is_some() && is_behind && proxies.is_empty() {
        tracing::warn!(
            "server.public_url is set, server.listen is private, and server.trusted_proxies is empty: if a proxy is in \
             front, name it there, or all its clients share one limit"
        );
    }
}

fn is_private(address: IpAddr) -> bool {
    // A container listens on all addresses.
    match address.to_canonical() {
        address if address.is_unspecified() => true,
        IpAddr::V4(address) => address.is_loopback() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    }
}

/// Measures the progress of lanes. The last rows age while the tables do not answer.
async fn measure_lanes(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Infallible {
    let mut rows = Vec::new();
    loop {
        if let Ok(read) = store.chains().await {
            rows = read;
        }
        metrics::lanes(&rows, clock.now().seconds());
        tokio::time::sleep(MEASURE_INTERVAL).await;
    }
}
