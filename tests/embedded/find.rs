//! `tidemark find` on a planted history, and its requests to endpoints.

use std::path::Path;
use std::sync::Arc;

use alloy_primitives::TxHash;
use log::embedded::EmbeddedLog;
use log::{Log, NewRecord};
use runtime::ManualClock;
use schemas::record::{
    Alert, Attempt, AuditEntry, ChainBody, ChainRecord, ConfirmedTier, Deposit, Head, Order,
    Record, Transfer, example,
};
use schemas::{
    AlertKind, Amount, AttemptOutcome, CloseReason, DepositState, OrderCause, OrderId, OrderStatus,
    Partition, Topic, TransferId, TransferStatus, UnixMicros, UnixSeconds, UnknownReason,
};
use serde_json::Value;
use store::embedded::EmbeddedStore;
use store::{Change, Store};
use testkit::harness::{LAYOUT, USDT, WALLET, errand, evm_node, transfer_usdt};
use uuid::Uuid;

const CREATED: i64 = 1_790_000_000;
const STRANGER: &str = "0x00000000000000000000000000000000DeaDBeef";
/// The history is older than the default search period.
const SINCE: [&str; 2] = ["--since", "2026-09-21T00:00:00Z"];

fn at(second: i64) -> UnixMicros {
    UnixSeconds(CREATED + second).micros()
}

/// Runs `tidemark find`, which must exit with this code; returns its standard output.
#[track_caller]
fn printed(dir: &Path, arguments: &[&str], code: i32) -> String {
    let output = errand(dir, &[&["find"], arguments, &SINCE].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn configure(dir: &Path, more: &str) {
    let data = dir.join("data");
    let text = format!("[data]\ndir = \"{}\"\n{more}", data.display());
    std::fs::write(dir.join("tidemark.toml"), text).unwrap();
}

fn order(number: u128, version: i64, second: i64, cause: OrderCause, status: OrderStatus) -> Order {
    Order {
        order_id: OrderId(Uuid::from_u128(number)),
        version,
        updated_at: at(second),
        cause,
        status,
        status_changed: version == 1 || status != OrderStatus::Pending,
        merchant_order_id: format!("A-{number}"),
        created_at: UnixSeconds(CREATED),
        expires_at: UnixSeconds(CREATED + 1800),
        candidates: vec![],
        expecting_wallet_address: None,
        ..example::order()
    }
}

fn transfer(number: i64, second: i64, status: TransferStatus) -> Transfer {
    Transfer {
        transfer_id: TransferId(number),
        updated_at: at(second),
        blockchain_confirmed: status != TransferStatus::WaitingForConfirmation,
        created_at: UnixSeconds(CREATED + 20),
        status,
        order_id: None,
        deposit_id: None,
        fulfillment_id: None,
        ..example::transfer()
    }
}

/// Planted records of an installation without a process.
struct Planted {
    log: Arc<EmbeddedLog>,
    tables: EmbeddedStore,
}

impl Planted {
    fn new(dir: &Path) -> Self {
        configure(dir, "");
        let data = dir.join("data");
        let clock = Arc::new(ManualClock::new(at(0)));
        let log = Arc::new(EmbeddedLog::open(&data, LAYOUT, clock).unwrap());
        Self { log, tables: EmbeddedStore::open(&data).unwrap() }
    }

    async fn write<R: Record>(&self, topic: Topic, partition: Partition, key: &str, record: &R) {
        let record = NewRecord::encode(topic, partition, key, record).unwrap();
        self.log.produce(vec![record]).await.unwrap();
    }

    async fn order(&self, order: Order) {
        let key = order.order_id.to_string();
        self.write(Topic::Orders, LAYOUT.order(&key), &key, &order).await;
        self.tables.apply(vec![Change::Order(order)]).await.unwrap();
    }

    async fn transfer(&self, topic: Topic, transfer: Transfer) {
        let key = transfer.transfer_id.to_string();
        self.write(topic, Partition(0), &key, &transfer).await;
        self.tables.apply(vec![Change::Transfer(transfer)]).await.unwrap();
    }

    /// A normally paid order, with a webhook delivered at the second attempt.
    async fn paid(&self) {
        use OrderStatus::{Paid, Pending};
        self.order(order(1, 1, 0, OrderCause::Created, Pending)).await;
        self.order(order(1, 2, 4, OrderCause::PaymentChosen, Pending)).await;
        let open = Deposit {
            order_id: OrderId(Uuid::from_u128(1)),
            updated_at: at(5),
            expires_at: UnixSeconds(CREATED + 1800),
            ..example::deposit()
        };
        self.write(Topic::Deposits, Partition(0), "1", &open).await;
        self.order(order(1, 3, 6, OrderCause::DepositOpened, Pending)).await;
        let seen = transfer(7, 20, TransferStatus::WaitingForConfirmation);
        self.transfer(Topic::TransfersDetected, seen.clone()).await;
        let seen_by = Order {
            candidates: vec![TransferId(7)],
            ..order(1, 4, 21, OrderCause::CandidateSeen, Pending)
        };
        self.order(seen_by).await;
        for (second, confirmed) in [(15, -13), (39, 0)] {
            let tier = ConfirmedTier {
                below: None,
                number: seen.block.number + confirmed,
                timestamp: None,
            };
            let head = Head { confirmed: vec![tier], held: vec![], ..head() };
            let mut block = seen.block;
            block.number += confirmed + 12;
            let body = ChainBody::Head(head);
            let observed_at = at(second);
            let record = ChainRecord { block, observed_at, body, ..example::chain_head() };
            self.write(Topic::TransfersRaw, Partition(0), "eth", &record).await;
        }
        let order_id = Some(OrderId(Uuid::from_u128(1)));
        let matched = Transfer { order_id, ..transfer(7, 40, TransferStatus::Matched) };
        self.transfer(Topic::TransfersMatched, matched).await;
        let by = Order {
            paid_by: Some(TransferId(7)),
            paid_value: Some(example::transfer().observation.value),
            ..order(1, 5, 40, OrderCause::Paid, Paid)
        };
        self.order(by).await;
        let closed = Deposit {
            updated_at: at(41),
            state: DepositState::Closed,
            close_reason: Some(CloseReason::Settled),
            ..open
        };
        self.write(Topic::Deposits, Partition(0), "1", &closed).await;
        for (number, outcome) in [(1, AttemptOutcome::Status), (2, AttemptOutcome::Delivered)] {
            let attempt = Attempt {
                event_id: "e".into(),
                order_id,
                attempt: number,
                attempted_at: at(41 + i64::from(number)),
                http_status: Some(if number == 1 { 503 } else { 200 }),
                answer: if number == 1 { "\u{9b}31mclosed".into() } else { String::new() },
                outcome,
                ..example::attempt()
            };
            self.tables.apply(vec![Change::Attempt(attempt)]).await.unwrap();
        }
        let alert = Alert { order_id, raised_at: at(50), ..example::alert() };
        self.write(Topic::Alerts, Partition(0), "", &alert).await;
        let entry = AuditEntry { order_id, requested_at: at(60), ..example::audit_entry() };
        self.write(Topic::Audit, Partition(0), "", &entry).await;
    }

    /// An expired order, whose payment was 20 seconds late and slightly too small.
    async fn late(&self) {
        self.order(order(2, 1, 0, OrderCause::Created, OrderStatus::Pending)).await;
        self.order(order(2, 2, 1801, OrderCause::Expired, OrderStatus::Expired)).await;
        let mut late = Transfer {
            reason: Some(UnknownReason::Late),
            candidate_order_id: Some(OrderId(Uuid::from_u128(2))),
            value_text: "10.00".into(),
            ..transfer(8, 1860, TransferStatus::NoMatchedDeposit)
        };
        late.observation.value = Amount::parse("10.00").unwrap();
        late.observation.tx_hash = schemas::Hash([0xcc; 32]);
        late.block.timestamp = UnixSeconds(CREATED + 1820);
        self.transfer(Topic::TransfersUnknown, late).await;
    }

    fn close(self) {
        self.log.close();
    }
}

fn head() -> Head {
    let ChainBody::Head(head) = example::chain_head().body else { panic!("no head") };
    head
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_of_an_order_is_on_one_screen() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let planted = Planted::new(dir);
    planted.paid().await;
    planted.late().await;
    let golden = include_str!("find/paid.txt");
    let id = Uuid::from_u128(1).to_string();
    let hash = example::transfer().observation.tx_hash.to_string();
    // Also while a process has the files open.
    for what in [&id, "A-1", "7", "1", &hash, hash.trim_start_matches("0x")] {
        assert_eq!(printed(dir, &[what], 0), golden, "{what}");
    }
    planted.close();
    assert_eq!(printed(dir, &[&id], 0), golden, "the same when the process has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_pays_nothing_says_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::new(dir.path());
    planted.late().await;
    let text = printed(dir.path(), &["8"], 0);
    assert!(text.starts_with(&format!("order {}  expired", Uuid::from_u128(2))), "{text}");
    let meaning =
        "Not paid: transfer 8 brought 10.00 USDT of 10.50, 20 s after the order's deadline.";
    assert!(text.contains(meaning), "{text}");
    let help = format!(
        "transfers/8/attach {{\"order_id\":\"{}\",\"accept_less\":true}}",
        Uuid::from_u128(2)
    );
    assert!(text.contains(&help), "{text}");
    let of_order = printed(dir.path(), &["A-2"], 0);
    assert!(of_order.contains(meaning) && of_order.contains(&help), "{of_order}");
    assert!(of_order.contains("; otherwise send it back\n"), "{of_order}");
    let restored = Alert::raise(AlertKind::Restored, None, &"1", String::new(), at(0));
    planted.write(Topic::Alerts, Partition(0), "", &restored).await;
    let of_order = printed(dir.path(), &["A-2"], 0);
    assert!(of_order.contains("(docs/operate/backup.md)\n"), "{of_order}");
}

/// The payment seemed to be for the second order, and an operator attached it to the third.
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_attached_elsewhere_is_not_sent_back() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::new(dir.path());
    planted.late().await;
    let id = Uuid::from_u128(3);
    planted.order(order(3, 1, 0, OrderCause::Created, OrderStatus::Pending)).await;
    let mut attached =
        Transfer { order_id: Some(OrderId(id)), ..transfer(8, 1900, TransferStatus::Matched) };
    attached.observation.tx_hash = schemas::Hash([0xcc; 32]);
    planted.transfer(Topic::TransfersMatched, attached).await;
    let paid = Order {
        paid_by: Some(TransferId(8)),
        paid_value: Some(example::transfer().observation.value),
        ..order(3, 2, 1900, OrderCause::Attached, OrderStatus::Paid)
    };
    planted.order(paid).await;
    let text = printed(dir.path(), &["A-2"], 0);
    assert!(text.contains(&format!("8 pays order {id}")), "{text}");
    assert!(!text.contains("Not paid: transfer 8") && !text.contains("send it back"), "{text}");
    // By its hash there is one hit, the order that it pays.
    let text = printed(dir.path(), &[&"cc".repeat(32)], 0);
    assert!(text.starts_with(&format!("order {id}  paid")), "{text}");
}

/// Deposit 1 is of the first order, and the second one has the reference 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_an_id_and_a_reference() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::new(dir.path());
    planted.paid().await;
    let second = order(2, 1, 0, OrderCause::Created, OrderStatus::Pending);
    planted.order(Order { merchant_order_id: "1".to_owned(), ..second }).await;
    let text = printed(dir.path(), &["1"], 0);
    for id in [1, 2].map(Uuid::from_u128) {
        assert!(text.contains(&format!("tidemark find {id}")), "{id}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_hits_are_listed_the_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::new(dir.path());
    planted.paid().await;
    planted.late().await;
    let [first, second] = [1, 2].map(|number| Uuid::from_u128(number).to_string());
    let sender = example::transfer().observation.from_address.to_string();
    let hits = |what: &str| {
        let text = printed(dir.path(), &[what], 0);
        let ids = text.lines().filter_map(|line| line.split("tidemark find ").nth(1));
        ids.map(|id| id.trim_end_matches("` shows one").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(hits("10.50"), [&second, &first, "ID"]);
    // The transfers have the same time, so the greater subject comes first.
    assert_eq!(hits(&sender), ["8", &first, "ID"], "{sender}");
    let json = printed(dir.path(), &["10.50", "--json"], 0);
    let json: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = json.iter().map(|hit| hit["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&second, &first]);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_get_each_event_as_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::new(dir.path());
    planted.paid().await;
    let text = printed(dir.path(), &["A-1", "--json"], 0);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    let expected = [
        "order", "order", "deposit", "order", "transfer", "order", "head", "transfer", "order",
        "deposit", "webhook", "webhook", "alert", "operator", "meaning",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(lines[0]["record"]["merchant_order_id"], "A-1");
    assert_eq!(lines[6]["record"]["head"], 21_000_012);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_says_where_it_was_searched() {
    let dir = tempfile::tempdir().unwrap();
    Planted::new(dir.path()).close();
    let text = printed(dir.path(), &["A-9"], 1);
    assert_eq!(
        text,
        "Nothing is known of A-9. It was searched for as an order's reference, in the tables and in the topics from \
         2026-09-21T00:00:00Z on (--since).\n"
    );
    let hash = format!("0x{}", "ab".repeat(32));
    let text = printed(dir.path(), &[&hash], 1);
    assert!(
        text.contains("The configuration has no endpoint to ask for transaction 0xabab"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_is_not_complete_has_its_own_code() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Planted::new(dir.path());
    let order = NewRecord::encode(Topic::Orders, Partition(0), "1", &example::order()).unwrap();
    let garbage = NewRecord { value: Some(vec![9]), ..order };
    planted.log.produce(vec![garbage]).await.unwrap();
    let text = printed(dir.path(), &["A-9"], 2);
    assert!(text.contains("Not complete: 1 records cannot be read"), "{text}");
    planted.close();
    std::fs::remove_file(dir.path().join("data/tables.sqlite")).unwrap();
    let text = printed(dir.path(), &["A-9"], 2);
    assert!(text.contains("Not complete: there are no tables."), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_say_what_an_unknown_transaction_did() {
    let dir = tempfile::tempdir().unwrap();
    Planted::new(dir.path()).close();
    let devnet = evm_node(1, 600, 60).await;
    let rpc = devnet.url();
    let wallet = format!(
        "[[wallets]]\nblockchain = \"eth\"\naddress = \"{WALLET}\"\nenabled_coins = [\"USDT\"]\n"
    );
    let tokens = format!("tokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]");
    configure(dir.path(), &format!("{wallet}[chains.eth]\nrpc = \"{rpc}\"\n{tokens}\n"));
    let node = devnet.chain();
    let pay = |to: &str| {
        let hash = transfer_usdt(&node, to, 12_500_000);
        node.mine(1).unwrap();
        hash.to_string()
    };
    let (ours, other) = (pay(WALLET), pay(STRANGER));
    let text = printed(dir.path(), &[&ours], 1);
    let moved = format!(
        "12.50 USDT from 0x2222222222222222222222222222222222222222 to {WALLET}, a wallet of"
    );
    for part in [&moved, "`tidemark rescan eth ", rpc.trim_end_matches('/')] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = printed(dir.path(), &[&other], 1);
    for part in [&format!("to {STRANGER}\n"), "None of it went to a wallet of the configuration"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = printed(dir.path(), &[&TxHash::repeat_byte(0xab).to_string()], 1);
    for part in ["has no such transaction in a block", "it is not mined yet, on another chain"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop(devnet);
    let text = printed(dir.path(), &[&ours], 2);
    for part in ["does not answer", "No endpoint of eth answered"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
