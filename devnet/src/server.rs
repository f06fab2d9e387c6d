//! The HTTP edge and the background tasks of a served chain.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::answer::{Served, json_rpc};
use crate::{Chain, Config, Error, rpc, tron};

/// Most bytes of a request body.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum wait of a shutdown for requests under way.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A chain that is served over HTTP until [`Devnet::shutdown`] or drop.
#[derive(Debug)]
pub struct Devnet {
    chain: Chain,
    address: SocketAddr,
    url: String,
    /// Ends the server when the value is dropped.
    cancel: DropGuard,
    server: JoinHandle<()>,
    /// The task that mines, aborted on drop.
    miner: Mutex<JoinSet<()>>,
}

impl Devnet {
    /// Binds `listen`, port 0 for any free one, and serves a new chain there.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::Listen`] if the address is not free.
    pub async fn start(config: Config, listen: SocketAddr) -> Result<Self, Error> {
        Self::serve(Chain::new(config)?, listen).await
    }

    /// Binds `listen` and serves a chain there. Several servers may serve the same chain.
    pub async fn serve(chain: Chain, listen: SocketAddr) -> Result<Self, Error> {
        Self::serve_as(chain, listen, router, "").await
    }

    /// As [`Devnet::serve`], but as a Tron node: [`Devnet::url`] is the URL of its JSON-RPC, and the paths of its HTTP
    /// interface begin with `/walletsolidity/`.
    pub async fn serve_tron(chain: Chain, listen: SocketAddr) -> Result<Self, Error> {
        Self::serve_as(chain, listen, tron::router, "/jsonrpc").await
    }

    async fn serve_as(
        chain: Chain,
        listen: SocketAddr,
        router: fn(Served) -> Router,
        path: &str,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = CancellationToken::new();
        let router = router(Served { chain: chain.clone(), token: token.clone() });
        let router = router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
        let stopped = token.clone().cancelled_owned();
        let server = tokio::spawn(async move {
            // Never an error: axum retries a failed accept.
            drop(axum::serve(listener, router).with_graceful_shutdown(stopped).await);
        });
        let (cancel, url) = (token.drop_guard(), format!("http://{address}{path}"));
        Ok(Self { chain, address, url, cancel, server, miner: Mutex::default() })
    }

    /// URL of the JSON-RPC server, such as `http://127.0.0.1:8545`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn chain(&self) -> Chain {
        self.chain.clone()
    }

    /// Mines one block now and one every `period` from now on, instead of an earlier period. Timestamps step by the
    /// configured interval, whatever the period is. Missed ticks are made up for, so that with an equal period and
    /// interval chain time keeps pace with the clock. Ends when the chain is full.
    pub fn mine_every(&self, period: Duration) -> Result<(), Error> {
        if period.is_zero() {
            return Err(Error::Period);
        }
        let (chain, mut miner) = (self.chain(), JoinSet::new());
        miner.spawn(async move {
            let mut ticks = tokio::time::interval(period);
            loop {
                ticks.tick().await;
                if chain.mine(1).is_err() {
                    return;
                }
            }
        });
        self.set_miner(miner);
        Ok(())
    }

    pub fn stop_mining(&self) {
        self.set_miner(JoinSet::new());
    }

    /// Refuses new requests, gives in-flight ones a few seconds, and ends the tasks of the server and the miner.
    pub async fn shutdown(self) {
        self.stop_mining();
        self.cancel.disarm().cancel();
        let mut server = self.server;
        if tokio::time::timeout(SHUTDOWN_GRACE, &mut server).await.is_err() {
            server.abort();
        }
    }

    fn set_miner(&self, miner: JoinSet<()>) {
        *self.miner.lock().unwrap_or_else(PoisonError::into_inner) = miner;
    }
}

fn router(served: Served) -> Router {
    Router::new().fallback(json_rpc(rpc::call_method)).with_state(served)
}
