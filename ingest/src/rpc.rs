//! The client of one endpoint: questions of the cursor are sent as batches of JSON-RPC calls. On Tron the native HTTP
//! interface serves final blocks (`native.rs`).
//!
//! An answer is complete, or a [`Failure`] with possible keys masked in its text. Retries here only change the form: a
//! refused batch is sent in smaller ones, one block in parts (`block.rs`), and block receipts are replaced by
//! `eth_getLogs` (`outcome.rs`). Only the fields that the cursor needs are read, so that the same code serves chains
//! with other headers.

mod block;
mod failure;
mod native;
mod outcome;
mod pace;
mod probe;
mod support;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub(crate) use failure::Failure;
use metrics::{counter, gauge};
use native::Native;
use pace::Pace;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};
use runtime::metrics::NO_VALUE;
use schemas::{Address, Blockchain, Hash};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::Support;
use wire::Call;
pub(crate) use wire::Listed;

use crate::machine::{Answer, Ask, Point, Proof, Refusal, Span, TRANSFER_TOPIC, Watch, topic};
use crate::metrics as names;
use crate::{ChainConfig, EndpointConfig, Error, RpcUrl};

/// Maximum number of calls in one request. Providers limit batches to 100 or more; some count each call.
const BATCH_CALLS_MAX: usize = 50;
/// Maximum number of wallets in one filter: nodes accept 1,000 topics in a position.
const FILTER_WALLETS_MAX: usize = 500;
/// Maximum length of a body in bytes. With our filters answers are small; a longer one is a size error.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Selectors of ERC-20's optional methods.
const DECIMALS: &str = "0x313ce567";
const SYMBOL: &str = "0x95d89b41";

/// A contract as an endpoint shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contract {
    pub(crate) has_code: bool,
    /// `None` if the contract has no such method, or returns no number below 256.
    pub(crate) decimals: Option<u8>,
    pub(crate) symbol: Option<String>,
}

impl Contract {
    /// Returns its difference from a stablecoin with these decimals, in words.
    pub(crate) fn unlike(&self, decimals: u8) -> Option<String> {
        match self.decimals {
            _ if !self.has_code => Some("has no code".to_owned()),
            None => Some("has no decimals()".to_owned()),
            Some(found) if found != decimals => Some(format!("has decimals() = {found}")),
            Some(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    blockchain: Blockchain,
    client: reqwest::Client,
    url: RpcUrl,
    /// Tron's own interface.
    native: Option<Native>,
    /// Scheme, host and port: no part of it is a key.
    name: String,
    pace: Option<Pace>,
    /// Masked in messages.
    secrets: Vec<String>,
    /// Maximum calls in one request, as known so far; only shrinks.
    batch_calls: AtomicUsize,
    /// Support of `eth_getBlockReceipts`.
    outcomes: Support,
    /// Contracts, as `address` of a log filter.
    contracts: Value,
    /// Topics, one list for each log filter.
    topics: Vec<Value>,
    /// Sifts logs that were requested without a filter.
    watch: Watch,
}

impl Endpoint {
    /// A client for one of the chain's endpoints; connects on first use. `same` is the number of earlier endpoints with
    /// the same name.
    pub(crate) fn new(
        chain: &ChainConfig,
        endpoint: &EndpointConfig,
        same: usize,
    ) -> Result<Self, Error> {
        // Fails only if the process has a provider already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let key = endpoint.api_key.iter().filter_map(|api| {
            let mut value = HeaderValue::from_bytes(api.key.expose()).ok()?;
            value.set_sensitive(true);
            Some((api.header.clone(), value))
        });
        let mut headers: HeaderMap = key.collect();
        // Without this header a server may choose any content coding; the client decodes none.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .timeout(chain.request_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent("tidemark")
            .build()
            .map_err(|error| Error::Client(error.without_url()))?;
        let contracts = chain.read_contracts().map(|c| json!(wire::hex(c.address)));
        let topics = chain.wallets.chunks(FILTER_WALLETS_MAX).map(|wallets| {
            let wallets: Vec<_> =
                wallets.iter().map(|wallet| Hash(topic(wallet)).to_string()).collect();
            json!([transfer_topic(), null, wallets])
        });
        Ok(Self {
            blockchain: chain.blockchain,
            client,
            name: match same {
                0 => endpoint.url.to_string(),
                others => format!("{} ({})", endpoint.url, others + 1),
            },
            url: endpoint.url.clone(),
            native: endpoint.native.clone().map(Native::new),
            pace: endpoint.requests_per_second.map(Pace::new),
            secrets: endpoint.secrets(),
            batch_calls: AtomicUsize::new(BATCH_CALLS_MAX),
            outcomes: Support::default(),
            contracts: contracts.collect(),
            topics: topics.collect(),
            watch: chain.watch(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Initializes its counters to zero, so that the first count is an increase.
    pub(crate) fn register(&self) {
        let (blockchain, endpoint) = (self.blockchain.as_str(), &*self.name);
        let labels = [("blockchain", blockchain.to_owned()), ("endpoint", endpoint.to_owned())];
        counter!(names::RPC_REQUESTS_TOTAL, &labels).increment(0);
        for class in names::CLASSES {
            let (endpoint, class) = (endpoint.to_owned(), *class);
            counter!(
                names::RPC_ERRORS_TOTAL,
                "blockchain" => blockchain, "endpoint" => endpoint, "class" => class
            )
            .increment(0);
        }
    }

    /// Sets its gauges: in use, and put aside.
    pub(crate) fn measure(&self, is_used: bool, is_aside: bool) {
        self.set(names::ENDPOINT_IN_USE, f64::from(u8::from(is_used)));
        self.set(names::ENDPOINT_ASIDE, f64::from(u8::from(is_aside)));
    }

    /// Clears its gauges: this process no longer uses it.
    pub(crate) fn withdraw(&self) {
        self.set(names::ENDPOINT_IN_USE, NO_VALUE);
        self.set(names::ENDPOINT_ASIDE, NO_VALUE);
    }

    fn set(&self, metric: &'static str, value: f64) {
        let (blockchain, endpoint) = (self.blockchain.as_str(), self.name.clone());
        gauge!(metric, "blockchain" => blockchain, "endpoint" => endpoint).set(value);
    }

    pub(crate) async fn fetch_chain_id(&self) -> Result<u64, Failure> {
        wire::chain_id(&self.one(Call::plain("eth_chainId")).await?)
    }

    /// Reads the code, decimals and symbol of a contract.
    ///
    /// # Errors
    /// [`Failure`] if the endpoint does not serve this, which says nothing about the contract.
    pub(crate) async fn fetch_contract(&self, contract: Address) -> Result<Contract, Failure> {
        let view = |selector| Call::view(contract, selector, "latest");
        let calls = [Call::code(contract), view(DECIMALS), view(SYMBOL)];
        let results = self.call(&calls).await?;
        let [code, decimals, symbol] = results.try_into().map_err(|_| Failure::missing())?;
        let decimals = match decimals {
            Err(failure) if failure.is_revert() => None,
            answered => wire::output(&answered?)?,
        };
        let symbol = symbol.ok().and_then(|symbol| wire::output(&symbol).ok()?);
        Ok(Contract {
            has_code: wire::output(&code?)?.is_some(),
            decimals: decimals.as_deref().and_then(wire::small_number),
            symbol: symbol.as_deref().and_then(wire::text),
        })
    }

    async fn fetch_at_once(&self, ask: &Ask) -> Result<Answer, Failure> {
        let blocks = ask.blocks.iter().map(|point| Call::block(*point));
        let logs = ask.logs.iter().flat_map(|span| self.log_calls(*span));
        let receipts = ask.receipts.iter().map(|outcome| Call::receipt(outcome.transaction));
        let calls: Vec<Call> = blocks.chain(logs).chain(receipts).collect();
        let mut answer = self.read(ask, self.call_all(&calls).await?)?;
        self.ask_blocks(&ask.receipts, &mut answer.receipts).await?;
        Ok(answer)
    }

    /// Sends one call.
    async fn one(&self, call: Call) -> Result<Value, Failure> {
        let results = self.call(&[call]).await?;
        results.into_iter().next().ok_or_else(Failure::missing)?
    }

    /// Sends any number of calls.
    async fn call_all(&self, calls: &[Call]) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let mut results = Vec::with_capacity(calls.len());
        for calls in calls.chunks(BATCH_CALLS_MAX) {
            results.extend(self.call(calls).await?);
        }
        Ok(results)
    }

    fn read(&self, ask: &Ask, results: Vec<Result<Value, Failure>>) -> Result<Answer, Failure> {
        let missing = Failure::missing;
        let mut results = results.into_iter();
        let mut answer = Answer::default();
        for point in &ask.blocks {
            let result = results.next().ok_or_else(missing)?;
            answer.blocks.push(match (point, result) {
                (_, Ok(value)) => wire::header(value)?,
                (Point::Safe | Point::Finalized, Err(_)) => None,
                (Point::Latest | Point::Number(_), Err(failure)) => return Err(failure),
            });
        }
        for _ in &ask.logs {
            let mut found = Vec::new();
            for _ in &self.topics {
                found.extend(wire::logs(results.next().ok_or_else(missing)??)?);
            }
            answer.logs.push(found);
        }
        for _ in &ask.receipts {
            let receipt = match results.next().ok_or_else(missing)? {
                Err(failure) if failure.is_limit() => return Err(failure),
                Err(_) => None,
                Ok(value) => wire::receipt(value)?,
            };
            answer.receipts.push(receipt.map_or(Proof::Unknown, Proof::Receipt));
        }
        Ok(answer)
    }

    fn log_calls(&self, span: Span) -> impl Iterator<Item = Call> + '_ {
        self.topics.iter().map(move |topics| log_call(span, &self.contracts, topics))
    }

    /// Sends calls in as few requests as the endpoint takes, one after another. A batch that is refused as such is
    /// halved, down to single calls. A smaller size is kept only after a success, so that an outage does not shrink it.
    async fn call(&self, calls: &[Call]) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let first = self.batch_calls.load(Ordering::Relaxed).min(calls.len()).max(1);
        let mut size = first;
        loop {
            match self.call_by(size, calls).await {
                Err(failure) if failure.smaller_batch_may_do && size > 1 => size /= 2,
                Ok(results) => {
                    if size < first && results.iter().any(Result::is_ok) {
                        self.batch_calls.fetch_min(size, Ordering::Relaxed);
                        tracing::warn!(
                            endpoint = self.name,
                            calls = size,
                            "the endpoint refuses larger batches: it is asked in smaller ones"
                        );
                    }
                    return Ok(results);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn call_by(
        &self,
        size: usize,
        calls: &[Call],
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let mut results = Vec::with_capacity(calls.len());
        for batch in calls.chunks(size) {
            results.extend(self.send(batch).await?);
        }
        Ok(results)
    }

    /// Masks possible keys in a failure that quotes the endpoint: `send` and `send_one` call it for refusals, their
    /// callers for results that do not parse.
    fn masked<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| failure.masked(&self.secrets))
    }

    /// Sends one request.
    async fn send(&self, calls: &[Call]) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let body = self.masked(self.post(calls, BODY_BYTES_MAX).await)?;
        let results = self.masked(wire::results(&body, calls.len()))?;
        Ok(results.into_iter().map(|result| self.masked(result)).collect())
    }

    /// Sends one call about one block. The answer may be long, so it is parsed without an intermediate [`Value`].
    /// Returns `None` for `null`.
    async fn send_one<T: DeserializeOwned>(&self, call: &Call) -> Result<Option<T>, Failure> {
        let calls = std::slice::from_ref(call);
        let body = self.masked(self.post(calls, block::BLOCK_BYTES_MAX).await)?;
        self.masked(wire::result(&body))
    }

    async fn post(&self, calls: &[Call], bytes_max: usize) -> Result<Vec<u8>, Failure> {
        let url = self.url.url().clone();
        self.post_to(url, &wire::body(calls), calls.len(), bytes_max).await
    }

    /// Returns the body of a success. A failure has the pause that the endpoint asks for.
    async fn post_to(
        &self,
        url: reqwest::Url,
        body: &Value,
        calls: usize,
        bytes_max: usize,
    ) -> Result<Vec<u8>, Failure> {
        if let Some(pace) = &self.pace {
            tokio::time::sleep(pace.take(calls, Instant::now())).await;
        }
        let (blockchain, endpoint) = (self.blockchain.as_str(), self.name.clone());
        counter!(names::RPC_REQUESTS_TOTAL, "blockchain" => blockchain, "endpoint" => endpoint)
            .increment(1);
        let request = self.client.post(url).json(body);
        let mut response = request.send().await.map_err(broken)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > bytes_max {
                return Err(Failure::new(Refusal::Size { hint: None }, "the answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        let status = response.status();
        if !status.is_success() {
            let failure = Failure::from_status(status.as_u16(), &failure::start(&body));
            return Err(failure.with_pause(response.headers()));
        }
        Ok(body)
    }
}

fn transfer_topic() -> Value {
    json!(Hash(TRANSFER_TOPIC).to_string())
}

fn log_call(span: Span, contracts: &Value, topics: &Value) -> Call {
    let mut filter = match span {
        Span::Range { from, to } | Span::Receipts { from, to } => {
            json!({ "fromBlock": wire::quantity(from), "toBlock": wire::quantity(to) })
        }
        Span::Block(hash) => json!({ "blockHash": hash }),
    };
    filter["address"] = contracts.clone();
    filter["topics"] = topics.clone();
    Call { method: "eth_getLogs", params: json!([filter]) }
}

fn broken(error: reqwest::Error) -> Failure {
    let refusal = if error.is_timeout() { Refusal::Timeout } else { Refusal::Transient };
    Failure::new(refusal, describe(error))
}

/// The error with its causes and without the URL.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}
