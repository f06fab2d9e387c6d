//! Every state of the page, from rows alone: `states.cjs` opens each of [`STATES`], inspects it, and fails if a text
//! of the page is in no state.

use std::path::Path;
use std::sync::Arc;

use api::{ChainTerms, Config, Feed, LatePayments, Server, Sockets, TestBuyer, TestPayment, feed};
use async_trait::async_trait;
use log::embedded::EmbeddedLog;
use log::{Log, StageContext};
use runtime::config::{Connections, Source};
use runtime::{Readiness, SystemClock};
use schemas::record::{ChainProgress, Order, OrderDeposit, StopScope, Transfer, Watch, example};
use schemas::{
    Address, AddressFamily, Amount, Blockchain, DepositId, DepositState, Hash, Layout, OrderId,
    OrderStatus, Secret, Stablecoin, TransferId, TransferStatus, UnixSeconds, UnknownReason,
    Wallet, sign_checkout, stablecoin_contracts,
};
use serde_json::{Value, json};
use store::embedded::EmbeddedStore;
use store::{Change, Store};
use testkit::harness::{MERCHANT_SECRET, now};
use testkit::repository::read;
use tokio::net::TcpListener;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::play;

/// Not Base's chain id: a test network, without real money.
const TEST_CHAIN_ID: u64 = 84_532;
const DUE: &str = "49.904217";
/// The query for the transaction of every transfer here.
const BY_NUMBER: &str = "tx=0202020202020202020202020202020202020202020202020202020202020202";
/// The states that are inspected in every language.
const IN_ALL_LANGUAGES: [&str; 11] = [
    "stopped",
    "cancel",
    "cancelled-late",
    "arrived",
    "possible",
    "possible-unknown",
    "late",
    "late-waiting",
    "underpaid",
    "overpaid",
    "lookup-none",
];

/// Rows that the tables have of the order with this number.
type Rows = fn(i64) -> (Order, Option<Transfer>);

/// A contract that is stopped.
const STOPPED: Address = Address::new(AddressFamily::Evm, [0x5e; 20]);

/// A state: its name, a text unique to it, the query of the page, its rows.
const STATES: [(&str, &str, &str, Rows); 53] = [
    ("choose", "Choose how to pay", "", |n| (of_eth(n), None)),
    ("choose-test", "Test network", "", |n| (order(n), None)),
    ("choose-anew", "Choose how to pay", "change=1", |n| (awaiting(n), None)),
    ("none", "No payment can be taken", "", |n| {
        (Order { blockchain: Some(Blockchain::Linea), ..order(n) }, None)
    }),
    ("never", "no way to pay fits it", "", |n| {
        (Order { blockchain: Some(Blockchain::Arb), ..order(n) }, None)
    }),
    ("pay", "The other digits identify your payment", "", |n| (awaiting(n), None)),
    ("pay-plain", "no more and no less", "", |n| (paying(n, Blockchain::Eth, "49.90"), None)),
    ("pay-sender", "Only a payment from this address", "", |n| (from_sender(n), None)),
    ("pay-tron", "on Tron (TRC20)", "", |n| (paying(n, Blockchain::Tron, DUE), None)),
    ("pay-test", "Test network", "", |n| (paying(n, Blockchain::Base, DUE), None)),
    ("pay-demo", "the demo's test buyer", "", |n| (awaiting(n), None)),
    ("problem-unseen", "Payments on this network cannot be seen", "problem=unseen", |n| {
        (awaiting(n), None)
    }),
    ("problem-full", "is not available for your amount", "problem=full", |n| (awaiting(n), None)),
    ("problem-ended", "The order is no longer open", "problem=ended", |n| (awaiting(n), None)),
    ("problem-seen", "cannot be cancelled", "problem=seen", |n| (awaiting(n), None)),
    ("problem-busy", "The service is busy", "problem=busy", |n| (awaiting(n), None)),
    ("problem-other", "could not be carried out", "problem=other", |n| (of_eth(n), None)),
    ("over", "The time to pay is over", "", |n| {
        (Order { expires_at: UnixSeconds(now() - 5), ..awaiting(n) }, None)
    }),
    ("stopped", "Do not pay now", "", |n| {
        let mut order = awaiting(n);
        order.deposits[0].contract = STOPPED;
        (order, None)
    }),
    ("seen", "2 of 12 confirmations", "", |n| (confirming(n), Some(on(Blockchain::Eth, n)))),
    ("seen-final", "the network calls it final", "", |n| {
        (confirming(n), Some(on(Blockchain::Polygon, n)))
    }),
    ("seen-at-once", "Payment seen", "", |n| (confirming(n), None)),
    ("paid", "Thank you", "", |n| (paid(n), Some(on(Blockchain::Eth, n)))),
    ("paid-manual", "marked this order as paid", "", |n| {
        (Order { paid_by: None, ..paid(n) }, None)
    }),
    ("paid-twice", "A further payment of", "", |n| {
        (Order { paid_by: None, ..paid(n) }, Some(stray(n, DUE, UnknownReason::AlreadyPaid)))
    }),
    ("expired", "The order has expired", "", |n| (ended(n, OrderStatus::Expired), None)),
    ("expired-late", "it may still pay this order", "", |n| (ended(n, OrderStatus::Expired), None)),
    ("late", "after the time to pay was over", "", |n| {
        (ended(n, OrderStatus::Expired), Some(stray(n, DUE, UnknownReason::Late)))
    }),
    ("cancelled", "The order was cancelled", "", |n| (ended(n, OrderStatus::Cancelled), None)),
    ("cancelled-late", "it may still pay this order", "", |n| {
        (ended(n, OrderStatus::Cancelled), None)
    }),
    ("cancelled-paid", "and the order has been cancelled", "", |n| {
        let transfer = stray(n, DUE, UnknownReason::OrderCancelled);
        (ended(n, OrderStatus::Cancelled), Some(transfer))
    }),
    ("cancel", "Cancel the order", "", |n| (awaiting(n), None)),
    ("arrived", "has arrived. The order awaits", "", |n| {
        (awaiting(n), Some(waiting(n, "39.904217", 60)))
    }),
    ("arrived-long-ago", "we are checking this payment.", "", |n| {
        (awaiting(n), Some(waiting(n, "39.904217", 700)))
    }),
    ("arrived-plain", "has arrived and is being checked", "", |n| {
        (awaiting(n), Some(waiting(n, DUE, 60)))
    }),
    ("arrived-again", "Waiting for your payment", "again=1", |n| {
        (awaiting(n), Some(waiting(n, "39.904217", 60)))
    }),
    ("possible", "A payment has arrived that may be yours", "", |n| {
        (awaiting(n), Some(waiting(n, "49.90", 60)))
    }),
    ("possible-long-ago", "do not send again yet: we are checking it.", "", |n| {
        (awaiting(n), Some(waiting(n, "49.90", 700)))
    }),
    ("possible-unknown", "may be yours and does not pay", "", |n| {
        (awaiting(n), Some(stray(n, "49.90", UnknownReason::AmountMismatch)))
    }),
    ("late-waiting", "A payment has arrived: see above", "", |n| {
        let order = Order { expires_at: UnixSeconds(now() - 120), ..awaiting(n) };
        let status = OrderStatus::Expired;
        (Order { status, ..order }, Some(waiting(n, DUE, 60)))
    }),
    ("late-pays", "It will pay this order", "", |n| {
        let tied = Transfer { deposit_id: Some(DepositId(n)), ..waiting(n, DUE, 60) };
        (ended(n, OrderStatus::Expired), Some(tied))
    }),
    ("lookup-malformed", "This is no transaction number", "tx=1", |n| (awaiting(n), None)),
    ("lookup-none", "No payment with this number", BY_NUMBER, |n| (awaiting(n), None)),
    ("lookup-seen", "It pays this order, or will", BY_NUMBER, |n| {
        (confirming(n), Some(on(Blockchain::Eth, n)))
    }),
    ("lookup-other", "It belongs to another order", BY_NUMBER, |n| {
        let other = Transfer { deposit_id: Some(DepositId(0)), ..waiting(n, DUE, 60) };
        (awaiting(n), Some(other))
    }),
    ("underpaid", "Do not send the difference", "", |n| {
        (awaiting(n), Some(stray(n, "40.904217", UnknownReason::AmountMismatch)))
    }),
    ("underpaid-seen", "less than asked for", "", |n| {
        // The candidate, which is to pay the order, has no row yet.
        let order = Order { candidates: vec![TransferId(n + 1000)], ..awaiting(n) };
        (order, Some(stray(n, "40.904217", UnknownReason::AmountMismatch)))
    }),
    ("overpaid", "more than asked for", "", |n| {
        (awaiting(n), Some(stray(n, "60.904217", UnknownReason::AmountMismatch)))
    }),
    ("sender", "that this order does not accept", "", |n| {
        (from_sender(n), Some(stray(n, DUE, UnknownReason::SenderMismatch)))
    }),
    ("stray", "arrived that does not pay this order", "", |n| {
        (awaiting(n), Some(stray(n, DUE, UnknownReason::BeforeDeposit)))
    }),
    ("stray-contract", "in another token contract", "", |n| {
        (awaiting(n), Some(stray(n, DUE, UnknownReason::OtherContract)))
    }),
    ("stray-stopped", "had stopped payments", "", |n| {
        (awaiting(n), Some(stray(n, DUE, UnknownReason::Stopped)))
    }),
    ("link", "This link does not work", "exp=1&sig=A", |n| (order(n), None)),
];

fn id(n: i64) -> OrderId {
    OrderId(Uuid::from_u128(n.unsigned_abs().into()))
}

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

fn wallet(blockchain: Blockchain) -> Address {
    Address::new(blockchain.address_family(), [0xab; 20])
}

/// Wallet of the order with this number, distinct so that payments match only it.
fn wallet_of(blockchain: Blockchain, n: i64) -> Address {
    Address::new(blockchain.address_family(), [u8::try_from(n).unwrap(); 20])
}

/// Order without a chosen payment.
fn order(n: i64) -> Order {
    Order {
        order_id: id(n),
        amount: amount("49.90"),
        amount_text: "49.90".to_owned(),
        expecting_wallet_address: None,
        blockchain: None,
        stablecoin: None,
        created_at: UnixSeconds(now() - 900),
        expires_at: UnixSeconds(now() + 1700),
        candidates: Vec::new(),
        deposits: Vec::new(),
        ..example::order()
    }
}

fn of_eth(n: i64) -> Order {
    Order { blockchain: Some(Blockchain::Eth), ..order(n) }
}

fn paying(n: i64, blockchain: Blockchain, value: &str) -> Order {
    let deposit = OrderDeposit {
        blockchain,
        state: DepositState::Open,
        deposit_id: Some(DepositId(n)),
        wallet_address: wallet_of(blockchain, n),
        value: Some(amount(value)),
        started_at: UnixSeconds(now() - 900),
        ..example::order().deposits[0].clone()
    };
    Order { deposits: vec![deposit], ..order(n) }
}

fn awaiting(n: i64) -> Order {
    let order = paying(n, Blockchain::Eth, DUE);
    Order { blockchain: Some(Blockchain::Eth), ..order }
}

fn from_sender(n: i64) -> Order {
    let sender = Address::new(AddressFamily::Evm, [0x22; 20]);
    Order { expecting_wallet_address: Some(sender), ..awaiting(n) }
}

fn confirming(n: i64) -> Order {
    Order { candidates: vec![TransferId(n)], ..awaiting(n) }
}

fn ended(n: i64, status: OrderStatus) -> Order {
    Order { status, ..awaiting(n) }
}

fn paid(n: i64) -> Order {
    let paid_by = Some(TransferId(n));
    Order { paid_by, paid_value: Some(amount(DUE)), ..ended(n, OrderStatus::Paid) }
}

/// Transfer that is to pay the order, in the block before the head.
fn on(blockchain: Blockchain, n: i64) -> Transfer {
    let mut transfer = Transfer {
        transfer_id: TransferId(n),
        blockchain,
        status: TransferStatus::WaitingForConfirmation,
        orphaned_at: None,
        ..example::transfer()
    };
    transfer.block.number = example::chain_progress().head.number - 1;
    transfer.created_at = UnixSeconds(now() - 60);
    transfer.block.timestamp = transfer.created_at;
    transfer.observation.tx_hash = Hash([2; 32]);
    transfer.observation.to_address = wallet_of(blockchain, n);
    transfer.observation.value = amount(DUE);
    transfer
}

/// Transfer of this many seconds ago, without a verdict yet.
fn waiting(n: i64, value: &str, ago: i64) -> Transfer {
    let mut transfer = Transfer {
        fulfillment_id: None,
        order_id: None,
        deposit_id: None,
        reason: None,
        candidate_order_id: None,
        ..on(Blockchain::Eth, n)
    };
    transfer.block.timestamp = UnixSeconds(now() - ago);
    transfer.observation.value = amount(value);
    transfer
}

/// Transfer that was meant for the order, and does not pay it.
fn stray(n: i64, value: &str, reason: UnknownReason) -> Transfer {
    Transfer {
        status: TransferStatus::NoMatchedDeposit,
        reason: Some(reason),
        candidate_order_id: Some(id(n)),
        ..waiting(n, value, 60)
    }
}

/// A test buyer whose button is not used.
struct Nobody;

#[async_trait]
impl TestBuyer for Nobody {
    async fn pay(&self, payment: TestPayment) -> Result<(), String> {
        Err(format!("{payment:?}"))
    }
}

/// An api on separate tables.
struct Shop {
    store: Arc<dyn Store>,
    log: Arc<dyn Log>,
    feed: Feed,
    stop: CancellationToken,
}

impl Shop {
    fn open(dir: &Path) -> Self {
        let (clock, stop, feed) =
            (Arc::new(SystemClock), CancellationToken::new(), Feed::default());
        let layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
        let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(dir, layout, clock.clone()).unwrap());
        let store = Arc::new(EmbeddedStore::open(dir).unwrap());
        let handle = tokio::runtime::Handle::current();
        let member = "api".to_owned();
        let context = StageContext { log: log.clone(), clock, member, handle, stop: stop.clone() };
        let followed = feed.clone();
        drop(std::thread::spawn(move || feed::run(&followed, &context).unwrap()));
        Self { store, log, feed, stop }
    }

    /// Serves it at a new address.
    async fn serve(&self, buyer: Option<Arc<dyn TestBuyer>>, late: LatePayments) -> String {
        use Blockchain::{Base, Eth, Linea, Polygon, Tron};
        let text = format!(
            "[admin]\nsecret = 'a'\n[merchant]\nname = 'Shop'\nsecret = '{MERCHANT_SECRET}'\n\
             return_url = 'https://shop.test/done'"
        );
        let mut config = Config::read(&mut Source::parse(Config::DEFAULTS, &text, []));
        config.orders.late_payments = late;
        // Linea is not scanned at present.
        let chains = [
            (Eth, Some(12)),
            (Polygon, None),
            (Tron, Some(19)),
            (Base, Some(12)),
            (Linea, Some(12)),
        ];
        config.wallets = Vec::from(chains.map(|(blockchain, _)| Wallet {
            blockchain,
            address: wallet(blockchain),
            stablecoins: vec![Stablecoin::Usdt, Stablecoin::Usdc],
            retired: false,
        }));
        let terms = chains.map(|(blockchain, depth)| ChainTerms {
            blockchain,
            chain_id: if blockchain == Base { TEST_CHAIN_ID } else { blockchain.chain_id() },
            depths: vec![(None, depth)],
        });
        let brief = Duration::from_secs(60);
        let server = Server {
            contracts: chains
                .iter()
                .flat_map(|(of, _)| stablecoin_contracts(*of))
                .copied()
                .collect(),
            chains: Vec::from(terms),
            buyer,
            connections: Connections {
                max: 100,
                header_timeout: brief,
                idle_timeout: brief,
                body_timeout: brief,
                stop_grace: brief,
            },
            customer_requests: None,
            public_url: None,
            config,
            topic_prefix: String::new(),
            version: "1",
            log: self.log.clone(),
            store: self.store.clone(),
            clock: Arc::new(SystemClock),
            readiness: Readiness::default(),
            feed: self.feed.clone(),
        };
        let public = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", public.local_addr().unwrap());
        let sockets = Sockets { public, operators: None, trusted_proxies: Vec::new() };
        drop(tokio::spawn(server.run(sockets, self.stop.clone())));
        base
    }
}

/// Changes after which each wallet but Linea's is watched, up to a head of the present time.
fn followed() -> impl Iterator<Item = Change> {
    use Blockchain::{Base, Eth, Polygon, Tron};
    [Eth, Polygon, Tron, Base].into_iter().flat_map(|blockchain| {
        let contracts = stablecoin_contracts(blockchain).map(|of| of.address).collect();
        let watched = vec![Watch { wallet_address: wallet(blockchain), contracts }];
        let mut scan = ChainProgress { blockchain, watched, ..example::chain_progress() };
        scan.head.timestamp = UnixSeconds(now());
        let stopped =
            vec![StopScope { blockchain: None, stablecoin: None, address: Some(STOPPED) }];
        [scan.clone(), ChainProgress { lane: Some(0), stopped, ..scan }].map(Change::Chain)
    })
}

/// Languages besides English in which a state is inspected.
fn languages(state: &str) -> &'static [&'static str] {
    if IN_ALL_LANGUAGES.contains(&state) { &["de", "es", "ar", "zh"] } else { &[] }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_is_seen_and_inspected() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path());
    let base = shop.serve(None, LatePayments::Report).await;
    let demo = shop.serve(Some(Arc::new(Nobody)), LatePayments::Report).await;
    let late = shop.serve(None, LatePayments::Accept).await;
    shop.store.apply(followed().collect()).await.unwrap();
    let mut states = Vec::<Value>::new();
    for (n, (name, shows, query, rows)) in (1..).zip(STATES) {
        let (order, transfer) = rows(n);
        let (exp, secret) = (UnixSeconds(now() + 3600), Secret::new(MERCHANT_SECRET));
        let link = format!("exp={exp}&sig={}", sign_checkout(&secret, order.order_id, exp));
        let base = match name {
            "pay-demo" => &demo,
            "expired-late" | "late-pays" | "cancelled-late" => &late,
            _ => &base,
        };
        let page = format!("{base}/checkout/{}", order.order_id);
        states.push(json!({
            "name": name, "shows": shows, "page": page, "link": link, "query": query,
            "languages": languages(name),
        }));
        let transfer = transfer.map(Change::Transfer);
        shop.store
            .apply([Change::Order(order)].into_iter().chain(transfer).collect())
            .await
            .unwrap();
    }
    let (states, texts) = (Value::from(states).to_string(), read("api/src/page/texts/en.txt"));
    play("states.cjs", &[("BASE", &base), ("STATES", &states), ("TEXTS", &texts)]).await;
    shop.stop.cancel();
}
