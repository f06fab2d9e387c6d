//! A served api with everything around it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use log::embedded::EmbeddedLog;
use log::{Envelope, LayeredLog, Log, Offset, StageContext, TopicPartition};
use reqwest::{Client, Method, RequestBuilder, Response};
use runtime::{Clock, ManualClock};
use schemas::record::{
    Block, ChainBody, ChainRecord, Delivery, Order, OrderCommand, OrderCommandBody, Record, example,
};
use schemas::{
    Address, AddressFamily, Amount, Blockchain, Layout, OrderId, Partition, Secret, Stablecoin,
    Topic, UnixSeconds, Wallet, sign_checkout, sign_service, stablecoin_contracts,
};
use serde_json::{Value, json};
use store::embedded::EmbeddedStore;
use store::{Change, LayeredStore, Store};
use tempfile::TempDir;
use tidemark_api::{Config, Feed, Matching, Merchant, Orders, Server, feed};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::fault::{FaultyLog, FaultyStore, Switch};

/// When every world begins.
pub(crate) const NOW: i64 = 1_790_000_000;
/// The merchant's key.
pub(crate) const MERCHANT_SECRET: &str = "merchant-secret";
/// The merchant's key before its rotation.
pub(crate) const OLD_SECRET: &str = "merchant-secret-of-last-year";
/// The operator's secret.
pub(crate) const ADMIN_SECRET: &str = "admin-secret";
/// Where unknown transfers are told.
pub(crate) const UNKNOWN_URL: &str = "https://shop.test/unknown";
/// An origin that may call the checkout.
pub(crate) const ORIGIN: &str = "https://shop.test";

/// Everything around one served api. Stops when dropped.
pub(crate) struct World {
    pub(crate) base: String,
    pub(crate) client: Client,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) log_writes: Switch,
    pub(crate) store_writes: Switch,
    pub(crate) store_reads: Switch,
    pub(crate) stop: CancellationToken,
    /// The server, until a test waits for its end.
    pub(crate) server: Option<tokio::task::JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    /// Removed last.
    _dir: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The configured wallet with this number on an EVM chain.
pub(crate) fn wallet(number: u8) -> Address {
    Address::new(AddressFamily::Evm, [number; 20])
}

pub(crate) fn config() -> Config {
    use Stablecoin::{Dai, Usdc, Usdt};
    let wallet = |blockchain: Blockchain, number, stablecoins: &[Stablecoin]| Wallet {
        blockchain,
        address: Address::new(blockchain.address_family(), [number; 20]),
        stablecoins: stablecoins.to_vec(),
    };
    Config {
        merchant: Merchant {
            name: "Shop".into(),
            secret: Secret::new(MERCHANT_SECRET),
            previous_secret: Some(Secret::new(OLD_SECRET)),
            allowed_origins: vec![ORIGIN.into()],
            unknown_transfer_webhook_url: Some(UNKNOWN_URL.into()),
        },
        admin_secret: Secret::new(ADMIN_SECRET),
        wallets: vec![
            wallet(Blockchain::Eth, 0xab, &[Usdt, Dai]),
            wallet(Blockchain::Eth, 0x02, &[Usdt]),
            wallet(Blockchain::Polygon, 0xab, &[Usdc]),
            wallet(Blockchain::Tron, 0x04, &[Usdt]),
        ],
        orders: Orders { ttl: Duration::from_secs(1800), late_window: Duration::from_secs(86_400) },
        matching: Matching {
            nudge_step: Amount::parse("0.01").unwrap(),
            nudge_limit: Amount::parse("1").unwrap(),
            match_window: Duration::from_secs(3600),
            skew: Duration::from_secs(120),
        },
    }
}

impl World {
    /// With the processor.
    pub(crate) async fn start() -> Self {
        Self::with(config(), true).await
    }

    /// Without a processor: what the api does alone.
    pub(crate) async fn alone() -> Self {
        Self::with(config(), false).await
    }

    pub(crate) async fn with(config: Config, processed: bool) -> Self {
        // Another test may have been first.
        drop(rustls::crypto::ring::default_provider().install_default());
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(UnixSeconds(NOW).micros()));
        let layout = Layout { lanes: 1, orders: 2, webhooks: 2 };
        let (log_writes, store_writes, store_reads) =
            (Switch::default(), Switch::default(), Switch::default());
        let inner: Arc<dyn Log> =
            Arc::new(EmbeddedLog::open(dir.path(), layout, clock.clone()).unwrap());
        let faulty = FaultyLog { writes: log_writes.clone() };
        let served_log: Arc<dyn Log> = Arc::new(LayeredLog::new(inner.clone(), faulty));
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir.path()).unwrap());
        let (writes, reads) = (store_writes.clone(), store_reads.clone());
        let faulty = FaultyStore { writes, reads };
        let served_store = Arc::new(LayeredStore::new(store.clone(), faulty));
        let stop = CancellationToken::new();
        let feed = Feed::new();
        let context = StageContext {
            log: served_log.clone(),
            clock: clock.clone(),
            member: "api".to_owned(),
            handle: tokio::runtime::Handle::current(),
            stop: stop.clone(),
        };
        let mut threads = Vec::new();
        threads.push({
            let feed = feed.clone();
            std::thread::spawn(move || feed::run(&feed, &context).unwrap())
        });
        if processed {
            for run in [processor::run_orders, processor::run_matching] {
                let (log, stop) = (inner.clone(), stop.clone());
                let clock: Arc<dyn Clock> = clock.clone();
                threads.push(std::thread::spawn(move || run(&log, &clock, "one", &stop).unwrap()));
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let chains = config.wallets.iter().map(|wallet| wallet.blockchain);
        let contracts = chains.flat_map(stablecoin_contracts).copied().collect();
        let serving = Server {
            config,
            contracts,
            topic_prefix: "shop.".into(),
            version: "1.2.3",
            log: served_log,
            store: served_store,
            clock: clock.clone(),
            feed,
        };
        let serving = serving.run(listener, stop.clone());
        let server = Some(tokio::spawn(async move { serving.await.unwrap() }));
        Self {
            base,
            client: Client::builder().no_proxy().build().unwrap(),
            clock,
            log: inner,
            store,
            log_writes,
            store_writes,
            store_reads,
            stop,
            server,
            threads,
            _dir: dir,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// A signed request to the service API.
    pub(crate) async fn service(&self, path: &str, body: &Value) -> Answer {
        self.service_with(path, &body.to_string(), |request| request).await
    }

    /// A signed request to the service API, changed before it is sent.
    pub(crate) async fn service_with(
        &self,
        path: &str,
        body: &str,
        change: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Answer {
        let secret = Secret::new(MERCHANT_SECRET);
        let signature = sign_service(&secret, self.clock.now().seconds(), body.as_bytes());
        let request = self
            .request(Method::POST, &format!("/api/v1/service{path}"))
            .header("Content-Type", "application/json")
            .header("Service-Signature", signature)
            .body(body.to_owned());
        Answer::of(change(request).send().await.unwrap()).await
    }

    /// An authorized request to the admin API.
    pub(crate) async fn admin(&self, method: Method, path: &str) -> Answer {
        let request = self
            .request(method, &format!("/api/v1/admin{path}"))
            .header("Service-Admin-Authorization", ADMIN_SECRET);
        Answer::of(request.send().await.unwrap()).await
    }

    /// A request to the checkout's API with a good link for the order.
    pub(crate) async fn user(
        &self,
        method: Method,
        path: &str,
        order_id: &str,
        body: &Value,
    ) -> Answer {
        let path = format!("/api/v1/user{path}?{}", self.link(order_id));
        Answer::of(self.request(method, &path).body(body.to_string()).send().await.unwrap()).await
    }

    /// `exp` and `sig` for an order, good for an hour.
    pub(crate) fn link(&self, order_id: &str) -> String {
        let expires_at = self.clock.now().seconds().plus(3600);
        let secret = Secret::new(MERCHANT_SECRET);
        let signature = sign_checkout(&secret, order_id.parse().unwrap(), expires_at);
        format!("exp={expires_at}&sig={signature}")
    }

    /// Creates an order and answers its id.
    pub(crate) async fn create(&self, body: &Value) -> String {
        let answer = self.service("/orders", body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["order_id"].as_str().unwrap().to_owned()
    }

    /// The row of an order.
    pub(crate) async fn row(&self, order_id: &str) -> Option<Order> {
        self.store.order(order_id.parse().unwrap()).await.unwrap().map(|row| row.order)
    }

    pub(crate) async fn apply(&self, changes: Vec<Change>) {
        self.store.apply(changes).await.unwrap();
    }

    /// All records of a topic.
    pub(crate) fn records<R: Record>(&self, topic: Topic) -> Vec<R> {
        let layout = self.log.layout();
        let read = |partition| {
            let of = TopicPartition { topic, partition };
            self.log.read(of, Offset(0), 10_000).unwrap()
        };
        let decode =
            |record: Arc<log::Record>| schemas::decode(record.value.as_deref().unwrap()).unwrap();
        topic.all_partitions(&layout).flat_map(read).map(decode).collect()
    }

    pub(crate) fn commands(&self) -> Vec<OrderCommand> {
        self.records(Topic::OrdersCommands)
    }

    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.records(Topic::WebhooksDispatch)
    }

    /// Writes a command about an order past the api, which does not wait for its outcome.
    pub(crate) async fn command(&self, order_id: &str, body: OrderCommandBody) {
        let issued_at = self.clock.now();
        let id = order_id.parse().unwrap();
        let command = OrderCommand { order_id: id, command_id: None, issued_at, body };
        let partition = self.log.layout().order(order_id);
        self.write(Topic::OrdersCommands, partition, &command).await;
    }

    /// Writes what ingest would about Ethereum at the present time.
    pub(crate) async fn chain(&self, body: ChainBody) {
        let observed_at = self.clock.now();
        let block = Block { timestamp: observed_at.seconds(), ..example::chain_record().block };
        let record = ChainRecord { block, observed_at, body, ..example::chain_record() };
        self.write(Topic::TransfersRaw, Partition(0), &record).await;
    }

    async fn write<R: Record>(&self, topic: Topic, partition: Partition, record: &R) {
        let mut envelope = Envelope::from_outside("test".into(), self.clock.now(), None);
        let record = envelope.wrap(topic, partition, "key", record).unwrap();
        self.log.produce(vec![record]).await.unwrap();
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

/// An answer, read to its end. No answer of any test holds a secret.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Self { status, headers, body: response.text().await.unwrap() };
        let text = format!("{answer:?}");
        for secret in [MERCHANT_SECRET, OLD_SECRET, ADMIN_SECRET] {
            assert!(!text.contains(secret), "an answer with a secret: {text}");
        }
        answer
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/json", "{}", self.body);
        assert_eq!(self.header("cache-control"), "no-store");
        serde_json::from_str(&self.body).unwrap()
    }

    /// The answer must be this refusal, in plain text.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, text: &str) {
        assert_eq!((self.status, &*self.body), (status, text));
        assert!(self.header("content-type").starts_with("text/plain"));
        assert_eq!(self.header("cache-control"), "no-store");
    }
}

/// A good body of a create request.
pub(crate) fn new_order() -> Value {
    json!({ "order_id": "A-1", "amount": "10.50", "webhook_url": "https://shop.test/hook" })
}

/// The same with more fields.
pub(crate) fn new_order_with(fields: &[(&str, &str)]) -> Value {
    let mut body = new_order();
    for (name, value) in fields {
        body[*name] = json!(value);
    }
    body
}

/// The names of an object's fields, sorted.
#[track_caller]
pub(crate) fn fields(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// An order of the example record with another id.
pub(crate) fn order(number: u128) -> Order {
    let order_id = OrderId(uuid::Uuid::from_u128(number));
    Order { order_id, ..example::order() }
}
