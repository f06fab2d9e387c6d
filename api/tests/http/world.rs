//! A served api with its dependencies, and switches that make its log or its store fail.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use log::embedded::EmbeddedLog;
use log::{LayeredLog, Log, LogLayer, NewRecord, Offset, StageContext, TopicPartition};
use reqwest::{Client, RequestBuilder};
use runtime::config::{Connections, Source};
use runtime::{Clock, ManualClock, Readiness};
use schemas::record::{
    Block, ChainBody, ChainProgress, ChainRecord, Delivery, Observation, Order, OrderCommand,
    OrderCommandBody, Record, StopScope, Transfer, Watch, example,
};
use schemas::{
    Address, AddressFamily, Blockchain, Layout, OrderId, Partition, Secret, Stablecoin, Topic,
    TransferId, UnixMicros, UnixSeconds, Wallet, sign_checkout, sign_service, stablecoin_contracts,
};
use serde_json::{Value, json};
use store::{Change, LayeredStore, Store, StoreLayer};
use testkit::tables::{self, Tables};
use tidemark_api::{ChainTerms, Config, Feed, Server, Sockets, TestBuyer, feed};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::openapi;
use crate::operators::{OPERATOR, READER};

/// Second in which every world begins. Its clock starts within that second, as a real clock does.
pub(crate) const NOW: i64 = 1_790_000_000;
pub(crate) const MERCHANT_SECRET: &str = "merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5";
/// The merchant's key before its rotation.
pub(crate) const OLD_SECRET: &str = "merchant-secret-of-last-year-9Qm3Zt7Vw1Yk5Xr8Bn2H";
pub(crate) const ADMIN_SECRET: &str = "admin-5vN8xK2qL7wR";
pub(crate) const UNKNOWN_URL: &str = "https://shop.test/unknown";
pub(crate) const NO_FREE_AMOUNT: &str =
    "no free amount is left for the selected chain and coin, choose another";
pub(crate) const NOT_FOLLOWED: &str = "payments on the selected chain cannot be seen at present, \
                                       choose another chain or try again later";
/// An origin that may call the checkout.
pub(crate) const ORIGIN: &str = "https://shop.test";
/// An order that no test creates.
pub(crate) const UNKNOWN_ORDER: &str = "01996d3c-5b00-7abc-8def-0123456789ab";

/// One served api, its log, tables and clock. Stops when dropped.
pub(crate) struct World {
    base: String,
    /// `true` if the next server has an address for operators.
    pub(crate) is_apart: bool,
    /// Operators' address of the present server.
    pub(crate) operators: Option<String>,
    client: Client,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) faults: Faults,
    pub(crate) readiness: Readiness,
    feed: Feed,
    /// Settings of the next server.
    pub(crate) buyer: Option<Arc<dyn TestBuyer>>,
    pub(crate) connections: Connections,
    pub(crate) customer_requests: Option<NonZeroU32>,
    pub(crate) stop: CancellationToken,
    /// The server, until a test waits for its end.
    pub(crate) server: Option<tokio::task::JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    /// Temporary folder of tables and log. Declared last, so that it is dropped after its users.
    _tables: Tables,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Address of the wallet with this number on an EVM chain; only some are configured.
pub(crate) fn wallet(number: u8) -> Address {
    Address::new(AddressFamily::Evm, [number; 20])
}

pub(crate) fn config() -> Config {
    use Stablecoin::{Dai, Usdc, Usdt};
    let wallet = |blockchain: Blockchain, number, stablecoins: &[Stablecoin]| Wallet {
        blockchain,
        address: Address::new(blockchain.address_family(), [number; 20]),
        stablecoins: stablecoins.to_vec(),
        retired: false,
    };
    let text = format!(
        "[admin]
         secret = '{ADMIN_SECRET}'
         [merchant]
         name = 'Shop'
         secret = '{MERCHANT_SECRET}'
         previous_secret = '{OLD_SECRET}'
         allowed_origins = ['{ORIGIN}']
         unknown_transfer_webhook_url = '{UNKNOWN_URL}'"
    );
    let mut config = Config::read(&mut Source::parse(Config::DEFAULTS, &text, []));
    // Tests advance the clock by weeks without a new block, so the limit of staleness is raised.
    config.matching.head_age_max = Duration::from_secs(1_000_000);
    config.wallets = vec![
        wallet(Blockchain::Eth, 0xab, &[Usdt, Dai]),
        wallet(Blockchain::Eth, 0x02, &[Usdt]),
        wallet(Blockchain::Polygon, 0xab, &[Usdc]),
        wallet(Blockchain::Tron, 0x04, &[Usdt]),
    ];
    config
}

/// Timeouts longer than every wait of a test. A test that needs a shorter one sets it.
pub(crate) const CONNECTIONS: Connections = Connections {
    max: 100,
    header_timeout: Duration::from_secs(3600),
    idle_timeout: Duration::from_secs(3600),
    body_timeout: Duration::from_secs(3600),
    stop_grace: Duration::from_secs(5),
};

/// Every transfer needs three confirmations.
fn terms(blockchain: Blockchain) -> ChainTerms {
    let depths = vec![(None, Some(3))];
    ChainTerms { blockchain, chain_id: blockchain.chain_id(), depths }
}

impl World {
    /// A world with the processor.
    pub(crate) async fn start() -> Self {
        Self::with(config(), true).await
    }

    /// A world without a processor, for behaviour of the api alone.
    pub(crate) async fn alone() -> Self {
        Self::with(config(), false).await
    }

    /// A world whose operators have an address of their own.
    pub(crate) async fn apart(config: Config, processed: bool) -> Self {
        let mut world = Self::with(config.clone(), processed).await;
        world.is_apart = true;
        world.serve(config).await;
        world
    }

    pub(crate) async fn with(config: Config, processed: bool) -> Self {
        // Fails if another test has installed a provider already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let tables = Tables::new(tables::chosen());
        let clock = Arc::new(ManualClock::new(UnixMicros(NOW * 1_000_000 + 654_321)));
        let layout = Layout { lanes: 1, orders: 2, webhooks: 2 };
        let log = EmbeddedLog::open(tables.dir(), layout, clock.clone()).unwrap();
        let log: Arc<dyn Log> = Arc::new(log);
        let store = tables.open().await;
        let wallets = config.wallets.clone();
        let stop = CancellationToken::new();
        let context = StageContext {
            log: log.clone(),
            clock: clock.clone(),
            member: "api".to_owned(),
            handle: tokio::runtime::Handle::current(),
            stop: stop.clone(),
        };
        let feed = Feed::default();
        let (following, followed) = (feed.clone(), context.clone());
        let follow = move || feed::run(&following, &followed).unwrap();
        let mut threads = vec![std::thread::spawn(follow)];
        if processed {
            for run in [processor::run_orders, processor::run_matching] {
                let context = context.clone();
                threads.push(std::thread::spawn(move || run(&context).unwrap()));
            }
        }
        let redirects = reqwest::redirect::Policy::none();
        let client = Client::builder().no_proxy().redirect(redirects).build().unwrap();
        let mut world = Self {
            base: String::new(),
            is_apart: false,
            operators: None,
            client,
            clock,
            log,
            store,
            faults: Faults::default(),
            readiness: Readiness::default(),
            feed,
            buyer: None,
            connections: CONNECTIONS,
            customer_requests: None,
            stop,
            server: None,
            threads,
            _tables: tables,
        };
        world.serve(config).await;
        for wallet in wallets {
            world.watch(&wallet).await;
        }
        world
    }

    /// Serves the installation by this configuration; requests go there from now on.
    pub(crate) async fn serve(&mut self, config: Config) {
        let chains = config.wallets.iter().map(|wallet| wallet.blockchain);
        let server = Server {
            contracts: chains.clone().flat_map(stablecoin_contracts).copied().collect(),
            chains: chains.map(terms).collect(),
            buyer: self.buyer.clone(),
            connections: self.connections,
            customer_requests: self.customer_requests,
            public_url: Some("https://pay.test".to_owned()),
            config,
            topic_prefix: "shop.".into(),
            version: "1.2.3",
            log: Arc::new(LayeredLog::new(self.log.clone(), self.faults.clone())),
            store: Arc::new(LayeredStore::new(self.store.clone(), self.faults.clone())),
            clock: self.clock.clone(),
            readiness: self.readiness.clone(),
            feed: self.feed.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.base = format!("http://{}", listener.local_addr().unwrap());
        self.operators = None;
        let trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
        let mut sockets = Sockets { public: listener, operators: None, trusted_proxies };
        if self.is_apart {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            self.operators = Some(format!("http://{}", listener.local_addr().unwrap()));
            sockets.operators = Some(listener);
        }
        let serving = server.run(sockets, self.stop.clone());
        self.server = Some(tokio::spawn(async move { serving.await.unwrap() }));
    }

    /// Writes the records and rows of ingest and the processor for a wallet that is watched from now on. Its chain is
    /// scanned up to now.
    pub(crate) async fn watch(&self, wallet: &Wallet) {
        let blockchain = wallet.blockchain;
        let contracts = stablecoin_contracts(blockchain).map(|contract| contract.address).collect();
        let watch = Watch { wallet_address: wallet.address, contracts };
        let head = example::chain_head().body;
        for body in [ChainBody::Watch(watch.clone()), head] {
            let observed_at = self.clock.now();
            let block = Block { timestamp: observed_at.seconds(), ..example::chain_record().block };
            let record =
                ChainRecord { blockchain, block, observed_at, body, ..example::chain_record() };
            self.write(Topic::TransfersRaw, Partition(blockchain.index()), &record).await;
        }
        let rows = self.store.chains().await.unwrap();
        let lane = Some(blockchain.index().cast_signed());
        let row = rows.into_iter().find(|row| row.blockchain == blockchain && row.lane == lane);
        let (mut watched, updated_at) =
            row.map_or((Vec::new(), UnixMicros(0)), |row| (row.watched, row.updated_at));
        watched.push(watch);
        let block = example::chain_record().block;
        let head = Block { timestamp: self.clock.now().seconds(), ..block };
        let updated_at = updated_at.next(self.clock.now());
        let scan =
            ChainProgress { blockchain, head, watched, updated_at, ..example::chain_progress() };
        let processed = ChainProgress { lane, ..scan.clone() };
        self.apply([scan, processed].map(Change::Chain)).await;
    }

    /// Writes these stops to the row of a lane.
    pub(crate) async fn stop(&self, blockchain: Blockchain, stopped: Vec<StopScope>) {
        let rows = self.store.chains().await.unwrap();
        let mut lanes = rows.into_iter().filter(|row| row.lane.is_some());
        let lane = lanes.find(|row| row.blockchain == blockchain).unwrap();
        let updated_at = lane.updated_at.next(lane.updated_at);
        self.apply([Change::Chain(ChainProgress { stopped, updated_at, ..lane })]).await;
    }

    /// Address of the server, as `host:port`.
    pub(crate) fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    /// A request to a route such as `GET /health`.
    pub(crate) fn request(&self, route: &str) -> RequestBuilder {
        self.request_at(&self.base, route)
    }

    /// A request to a route at the operators' address.
    pub(crate) fn at_operators(&self, route: &str) -> RequestBuilder {
        self.request_at(self.operators.as_deref().unwrap(), route)
    }

    fn request_at(&self, base: &str, route: &str) -> RequestBuilder {
        let (method, path) = route.split_once(' ').unwrap();
        self.client.request(method.parse().unwrap(), format!("{base}{path}"))
    }

    /// The status of an operator's request for a path, at their address or the public one.
    pub(crate) async fn status_at(&self, base: Option<&str>, path: &str) -> u16 {
        let request = self.request_at(base.unwrap_or(&self.base), &format!("GET {path}"));
        let answer = request.header("Service-Admin-Authorization", ADMIN_SECRET).send().await;
        answer.unwrap().status().as_u16()
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
            .request(&format!("POST /api/v1/service{path}"))
            .header("Content-Type", "application/json")
            .header("Service-Signature", signature)
            .body(body.to_owned());
        Answer::to(change(request)).await
    }

    /// A signed create request with an idempotency key.
    pub(crate) async fn create_once(&self, key: &str, body: &Value) -> Answer {
        let key = |request: RequestBuilder| request.header("Idempotency-Key", key);
        self.service_with("/orders", &body.to_string(), key).await
    }

    /// An authorized request to a route of the admin API.
    pub(crate) async fn admin(&self, route: &str) -> Answer {
        let request = self.request(&route.replacen(' ', " /api/v1/admin", 1));
        Answer::to(request.header("Service-Admin-Authorization", ADMIN_SECRET)).await
    }

    /// The value of one field in every object of a list of the admin API.
    pub(crate) async fn list(&self, path: &str, field: &str) -> Vec<Value> {
        let answer = self.admin(&format!("GET {path}")).await.with_status(200);
        answer.json().as_array().unwrap().iter().map(|object| object[field].clone()).collect()
    }

    /// A request about an order to the checkout's API, with a good link for that order.
    pub(crate) async fn user(&self, id: &str, method: &str, path: &str, body: &Value) -> Answer {
        let route = format!("{method} /api/v1/user/orders/{id}/{path}?{}", self.link(id));
        Answer::to(self.request(&route).body(body.to_string())).await
    }

    pub(crate) async fn pay(&self, id: &str, blockchain: &str, stablecoin: &str) -> Answer {
        let body = json!({ "blockchain": blockchain, "stablecoin": stablecoin });
        self.user(id, "POST", "payment", &body).await
    }

    pub(crate) async fn cancel(&self, id: &str) -> Answer {
        self.user(id, "POST", "cancel", &json!({})).await
    }

    /// `exp` and `sig` for an order, valid for an hour.
    pub(crate) fn link(&self, order_id: &str) -> String {
        link(MERCHANT_SECRET, order_id, self.clock.now().seconds().0 + 3600)
    }

    /// Creates an order and returns its id.
    pub(crate) async fn create(&self, body: &Value) -> String {
        let answer = self.service("/orders", body).await.with_status(201);
        answer.json()["order_id"].as_str().unwrap().to_owned()
    }

    /// The world, and an order that it created.
    pub(crate) async fn with_order(self) -> (Self, String) {
        let id = self.create(&new_order()).await;
        (self, id)
    }

    pub(crate) async fn row(&self, order_id: &str) -> Option<Order> {
        self.store.order(order_id.parse().unwrap()).await.unwrap().map(|row| row.order)
    }

    /// Writes a later row of an order.
    pub(crate) async fn change(&self, order_id: &str, change: impl FnOnce(&mut Order)) {
        let mut row = self.row(order_id).await.unwrap();
        row.updated_at = row.updated_at.next(row.updated_at);
        change(&mut row);
        self.apply([Change::Order(row)]).await;
    }

    pub(crate) async fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        self.store.apply(changes.into_iter().collect()).await.unwrap();
    }

    /// All records of a topic as they are on the log.
    pub(crate) fn raw_records(&self, topic: Topic) -> Vec<Arc<log::Record>> {
        let layout = self.log.layout();
        let read = |partition| {
            let of = TopicPartition { topic, partition };
            self.log.read(of, Offset(0), 10_000).unwrap()
        };
        topic.all_partitions(&layout).flat_map(read).collect()
    }

    pub(crate) fn records<R: Record>(&self, topic: Topic) -> Vec<R> {
        let records = self.raw_records(topic);
        let values = records.iter().map(|record| record.value.as_deref().unwrap());
        values.map(|value| schemas::decode(value).unwrap()).collect()
    }

    pub(crate) fn commands(&self) -> Vec<OrderCommand> {
        self.records(Topic::OrdersCommands)
    }

    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.records(Topic::WebhooksDispatch)
    }

    /// Writes a command about an order without the api, and does not wait.
    pub(crate) async fn command(&self, order_id: &str, body: OrderCommandBody) {
        let issued_at = self.clock.now();
        let id = order_id.parse().unwrap();
        let command = OrderCommand { order_id: id, command_id: None, issued_at, body };
        let partition = self.log.layout().order(order_id);
        self.write(Topic::OrdersCommands, partition, &command).await;
    }

    /// Writes a record of ingest for the block after the example block of Ethereum, with the present time.
    pub(crate) async fn chain(&self, body: ChainBody) {
        let observed_at = self.clock.now();
        let Block { number, hash, .. } = example::chain_record().block;
        let block = Block { number: number + 1, hash, timestamp: observed_at.seconds() };
        let record = ChainRecord { block, observed_at, body, ..example::chain_record() };
        self.write(Topic::TransfersRaw, Partition(0), &record).await;
    }

    pub(crate) async fn write<R: Record>(&self, topic: Topic, partition: Partition, record: &R) {
        let record = NewRecord::encode(topic, partition, "key", record).unwrap();
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
    pub(crate) async fn to(request: RequestBuilder) -> Self {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = client.execute(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Self { status, headers, body: response.text().await.unwrap() };
        let names_scheme = answer.header("www-authenticate").starts_with("Service-");
        assert_eq!(names_scheme, status == 401, "{path}: {answer:?}");
        let kind = answer.header("content-type");
        openapi::check((&method, &path), status, kind, &answer.body);
        let text = format!("{answer:?}");
        for secret in [MERCHANT_SECRET, OLD_SECRET, ADMIN_SECRET, READER, OPERATOR] {
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

    /// The answer itself, which must have this status.
    #[track_caller]
    pub(crate) fn with_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// The answer must be this refusal, in plain text.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, text: &str) {
        assert_eq!((self.status, &*self.body), (status, text));
        assert!(self.header("content-type").starts_with("text/plain"));
        assert_eq!(self.header("cache-control"), "no-store");
    }
}

/// The query of a checkout link.
pub(crate) fn link(secret: &str, order_id: &str, exp: i64) -> String {
    let order_id = order_id.parse().unwrap();
    let sig = sign_checkout(&Secret::new(secret), order_id, UnixSeconds(exp));
    format!("exp={exp}&sig={sig}")
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

/// The fields of spec 2.2.
pub(crate) const ORDER_FIELDS: [&str; 5] =
    ["amount", "created_at", "merchant_order_id", "order_id", "status"];

/// An order of the example record with another id.
pub(crate) fn order(number: u128) -> Order {
    let order_id = OrderId(uuid::Uuid::from_u128(number));
    Order { order_id, ..example::order() }
}

/// The transfer of the example record with another id, to the first wallet, this many seconds after the world began.
pub(crate) fn transfer(number: i64) -> Transfer {
    let observation = Observation { to_address: wallet(0xab), ..example::transfer().observation };
    Transfer {
        transfer_id: TransferId(number),
        created_at: UnixSeconds(NOW + number),
        observation,
        ..example::transfer()
    }
}

/// Switch that makes one kind of operation fail.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<AtomicBool>);

impl Switch {
    pub(crate) fn set(&self, broken: bool) {
        self.0.store(broken, Ordering::SeqCst);
    }

    fn check<C: From<&'static str>, E>(&self, error: fn(C) -> E) -> Result<(), E> {
        if self.0.load(Ordering::SeqCst) { Err(error("disk full".into())) } else { Ok(()) }
    }
}

/// The switches of one world; the layer over its log and its store.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    pub(crate) log_writes: Switch,
    /// Failure of audit entries alone.
    pub(crate) audit_writes: Switch,
    pub(crate) store_writes: Switch,
    pub(crate) store_reads: Switch,
}

#[async_trait]
impl LogLayer for Faults {
    async fn produce(&self, log: &dyn Log, records: Vec<NewRecord>) -> Result<(), log::Error> {
        self.log_writes.check(log::Error::Transient)?;
        if records.iter().any(|record| record.to.topic == Topic::Audit) {
            self.audit_writes.check(log::Error::Transient)?;
        }
        log.produce(records).await
    }
}

#[async_trait]
impl StoreLayer for Faults {
    async fn apply(&self, store: &dyn Store, changes: Vec<Change>) -> Result<(), store::Error> {
        self.store_writes.check(store::Error::Transient)?;
        store.apply(changes).await
    }

    async fn read<T, F>(&self, read: impl Fn() -> F + Send + Sync) -> Result<T, store::Error>
    where
        T: Send,
        F: Future<Output = Result<T, store::Error>> + Send,
    {
        self.store_reads.check(store::Error::Transient)?;
        read().await
    }
}
