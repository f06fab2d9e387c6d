//! The HTTP edge and the background tasks of a served chain.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::param::RpcError;
use crate::rpc::Method;
use crate::{Chain, Config, Error, Fault, rpc, tron};

/// Most bytes of a request body.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum wait of a shutdown for requests under way.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A chain that is served over HTTP, at every path, until [`Devnet::shutdown`] or drop.
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

    /// As [`Devnet::serve`], as a node of Tron: its URL is that of JSON-RPC, and `/walletsolidity/` is beside it.
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

    /// Refuses new requests, gives in-flight ones a few seconds, and ends all tasks.
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

/// The served chain and its shutdown token.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) chain: Chain,
    /// Cancelled when the server shuts down.
    token: CancellationToken,
}

fn router(served: Served) -> Router {
    Router::new().fallback(json_rpc(rpc::call_method)).with_state(served)
}

/// Answers the POSTs of JSON-RPC by `method`.
pub(crate) fn json_rpc(method: Method) -> MethodRouter<Served> {
    post(move |State(served): State<Served>, body: Bytes| async move {
        respond(&served, &body, method).await
    })
}

/// Answers a request of JSON-RPC, unless a fault is armed.
async fn respond(served: &Served, body: &[u8], method: Method) -> Response {
    let Served { chain, token } = served;
    let body: Option<Value> = serde_json::from_slice(body).ok();
    if let Some(body) = &body {
        rpc::count(chain, body);
    }
    let answer = |refusal: Option<&RpcError>| {
        let answer = body.as_ref().map(|body| rpc::answer(chain, body, method, refusal));
        Json(answer.unwrap_or_else(rpc::parse_error)).into_response()
    };
    let fault = chain.switches().take_fault();
    match fault {
        None => answer(None),
        Some(Fault::HttpStatus(status)) => as_is(status, "fault injected"),
        Some(Fault::Body { status, text }) => as_is(status, text),
        Some(Fault::RpcError { code, message }) => answer(Some(&RpcError { code, message })),
        Some(Fault::Malformed) => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            (json, r#"{"jsonrpc":"2.0","id":1,"result":["#).into_response()
        }
        Some(Fault::Hang(duration)) => {
            // Cut short by a shutdown, which must not wait for it.
            drop(tokio::time::timeout(duration, token.cancelled()).await);
            answer(None)
        }
    }
}

/// Response of this status and body.
pub(crate) fn as_is(status: u16, text: impl IntoResponse) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, text).into_response()
}
