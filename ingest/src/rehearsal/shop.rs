//! The pipeline behind ingest, in this process: the processor and the tables on the embedded back ends, and a shop with
//! its orders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::embedded::EmbeddedLog;
use log::{Log, NewRecord, StageContext, Tail};
use runtime::{Clock, ManualClock};
use schemas::record::{
    AmountRule, CreateOrder, Deposit, OrderCommand, OrderCommandBody, PaymentRequest,
};
use schemas::{
    Address, AddressFamily, Amount, Blockchain, DepositState, Layout, OrderId, Stablecoin, Topic,
    TransferStatus, UnixSeconds,
};
use store::embedded::EmbeddedStore;
use store::{Page, Store, TransferFilter};
use testkit::DEADLINE;
use testkit::faults::{Booked, Claim, Ordered, Verdict};
use tokio_util::sync::CancellationToken;

use super::chain::TOKEN;
use crate::simulation::wallet;

pub(crate) const BLOCKCHAIN: Blockchain = Blockchain::Eth;
const LAYOUT: Layout = Layout { lanes: 1, orders: 1, webhooks: 1 };
const WALLETS: u8 = 3;
const DECIMALS: u8 = 6;

pub(crate) fn wallets() -> Vec<Address> {
    (0..WALLETS).map(wallet).collect()
}

/// The address in lower case, as the oracle compares addresses.
pub(crate) fn text(address: &Address) -> String {
    address.to_string().to_lowercase()
}

pub(crate) fn contract() -> Address {
    Address::new(AddressFamily::Evm, TOKEN.0.0)
}

pub(crate) fn units(amount: Amount) -> u128 {
    amount.to_units(DECIMALS).unwrap()
}

pub(crate) struct Shop {
    pub(crate) log: EmbeddedLog,
    pub(crate) clock: Arc<ManualClock>,
    store: Arc<EmbeddedStore>,
    deposits: Box<dyn Tail>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
    /// Wallet, amount and expiry that each order asks for.
    orders: BTreeMap<OrderId, (Address, Amount, UnixSeconds)>,
    /// The last published deposit of each order.
    opened: BTreeMap<OrderId, Deposit>,
    _dir: tempfile::TempDir,
}

impl Shop {
    /// Opens the shop at the chain's time.
    pub(crate) fn open(seconds: u64) -> Self {
        let clock = Arc::new(ManualClock::new(UnixSeconds(seconds.cast_signed()).micros()));
        let dir = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(&dir.path().join("log"), LAYOUT, clock.clone()).unwrap();
        let store = Arc::new(EmbeddedStore::open(&dir.path().join("tables")).unwrap());
        let (stop, handle) = (CancellationToken::new(), tokio::runtime::Handle::current());
        let context = StageContext {
            log: Arc::new(log.clone()),
            clock: clock.clone(),
            member: "a".to_owned(),
            handle,
            stop: stop.clone(),
        };
        let spawn = |run: Box<dyn FnOnce(&StageContext) + Send>| {
            let context = context.clone();
            std::thread::spawn(move || run(&context))
        };
        let tables = store.clone();
        let threads = vec![
            spawn(Box::new(|context| processor::run_matching(context).unwrap())),
            spawn(Box::new(|context| processor::run_orders(context).unwrap())),
            spawn(Box::new(|context| {
                projector::run(tables, None, projector::Level::DEBUG, context).unwrap();
            })),
        ];
        let deposits = log.tail(&[Topic::Deposits]).unwrap();
        let opened = BTreeMap::new();
        let orders = BTreeMap::new();
        Self { log, clock, store, deposits, stop, threads, orders, opened, _dir: dir }
    }

    /// Moves the clock of the stages to the chain's time.
    pub(crate) fn set_clock(&self, seconds: u64) {
        let ahead = UnixSeconds(seconds.cast_signed()).micros().0 - self.clock.now().0;
        self.clock.advance(Duration::from_micros(u64::try_from(ahead).unwrap_or(0)));
    }

    /// New order of a unique amount.
    pub(crate) async fn order(&mut self, wallet: Address, ttl_seconds: i64) -> OrderId {
        let amount = 11 + self.orders.len() as u128;
        self.order_of(wallet, amount, ttl_seconds).await
    }

    /// A new order of a whole amount.
    pub(crate) async fn order_of(
        &mut self,
        wallet: Address,
        amount: u128,
        ttl_seconds: i64,
    ) -> OrderId {
        let number = self.orders.len() as u128 + 1;
        let order_id = OrderId(uuid::Uuid::from_u128(number << 64 | 0x7000_8000_0000_0000_0000));
        let amount = Amount::parse(&amount.to_string()).unwrap();
        let issued_at = self.clock.now();
        let expires_at = issued_at.seconds().plus(ttl_seconds);
        self.orders.insert(order_id, (wallet, amount, expires_at));
        let payment = PaymentRequest {
            blockchain: BLOCKCHAIN,
            stablecoin: Stablecoin::Usdt,
            contract: contract(),
            decimals: 6,
            contracts: vec![contract()],
            wallets: vec![wallet],
            amounts: AmountRule::EXACT,
            late_window_seconds: 30,
            accepts_late: false,
            head_age_max_seconds: u32::MAX,
        };
        let create = CreateOrder {
            merchant_order_id: format!("m-{number}"),
            amount,
            amount_text: amount.to_string(),
            webhook_url: "https://shop.example/hooks".into(),
            expecting_wallet_address: None,
            blockchain: Some(BLOCKCHAIN),
            stablecoin: Some(Stablecoin::Usdt),
            expires_at,
            first_version: 1,
            payment: Some(payment),
        };
        let body = OrderCommandBody::Create(create);
        let command = OrderCommand { order_id, command_id: None, issued_at, body };
        let key = order_id.to_string();
        let partition = self.log.layout().order(&key);
        let record = NewRecord::encode(Topic::OrdersCommands, partition, key, &command).unwrap();
        self.log.produce(vec![record]).await.unwrap();
        order_id
    }

    /// Reads the deposits published since the last call.
    fn read_deposits(&mut self) {
        let wait = Duration::from_millis(5);
        let records = tokio::task::block_in_place(|| self.deposits.poll(wait)).unwrap();
        for value in records.iter().filter_map(|record| record.value.as_ref()) {
            let deposit = schemas::decode::<Deposit>(value).unwrap();
            self.opened.insert(deposit.order_id, deposit);
        }
    }

    /// The deposit of a new order, once it has opened.
    pub(crate) async fn opened(&mut self, id: OrderId) -> Result<Deposit, String> {
        let started = Instant::now();
        loop {
            if let Some(deposit) = self.opened.get(&id) {
                return Ok(deposit.clone());
            }
            if started.elapsed() > DEADLINE {
                return Err(format!("the deposit of order {id} does not open"));
            }
            self.read_deposits();
            tokio::task::yield_now().await;
        }
    }

    /// Deposits that a payment could be for.
    pub(crate) fn open_deposits(&self) -> Vec<Deposit> {
        let open = self.opened.values().filter(|deposit| deposit.state == DepositState::Open);
        open.cloned().collect()
    }

    /// Returns `true` if payments are seen: the tables show that a lane has read the watches.
    pub(crate) async fn is_ready(&mut self) -> bool {
        self.store.chains().await.unwrap().iter().any(|row| row.lane.is_some())
    }

    /// Compares the tables with the chain behind a URL.
    pub(crate) async fn verdict(&mut self, url: &str) -> Verdict {
        let wallets: Vec<_> = wallets().iter().map(text).collect();
        let token = TOKEN.to_string().to_lowercase();
        Verdict::of(url, &token, &wallets, &self.books().await).await
    }

    /// Returns the content of the tables. An order whose deposit never opened has the values that it asked for; nothing
    /// pays it.
    pub(crate) async fn books(&mut self) -> Booked {
        let mut booked = Booked::default();
        for wallet in wallets() {
            for offset in (0..).step_by(200) {
                let page = Page { limit: 200, offset };
                let rows = self.store.transfers(wallet, TransferFilter::default(), page).await;
                let rows = rows.unwrap();
                if rows.is_empty() {
                    break;
                }
                booked.claims.extend(rows.into_iter().map(|row| Claim {
                    tx: row.observation.tx_hash.to_string(),
                    to: text(&row.observation.to_address),
                    units: units(row.observation.value),
                    is_confirmed: row.blockchain_confirmed,
                    has_left: row.status == TransferStatus::FailedToConfirm
                        || row.orphaned_at.is_some(),
                    order: row.order_id.map(|order| order.to_string()),
                }));
            }
        }
        // Deposits may have opened since the last read. Nobody pays those any more.
        self.read_deposits();
        for (id, asked) in &self.orders {
            let opened = self.opened.get(id);
            let opened = opened.map(|own| (own.wallet_address, own.value, own.expires_at));
            let (to, value, UnixSeconds(expires_at)) = opened.unwrap_or(*asked);
            let status = self.store.order(*id).await.unwrap();
            booked.orders.push(Ordered {
                id: id.to_string(),
                status: status.map_or("missing", |row| row.order.status.as_str()).to_owned(),
                to: text(&to),
                units: units(value),
                expires_at,
            });
        }
        booked
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A panic of the thread was already printed.
            drop(thread.join());
        }
    }
}
