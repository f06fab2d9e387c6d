//! One example of every record, for the golden files and the documents.

use uuid::Uuid;

use super::*;
use crate::{
    Address, AddressFamily, AlertKind, Amount, AttemptOutcome, AuditAction, Blockchain, CodecError,
    CommandId, DeliveryKind, DepositId, DepositState, Draws, Epoch, FulfillmentId, Hash,
    OrderCause, OrderId, OrderStatus, SchemaName, Stablecoin, TransferId, TransferStatus,
    UnixMicros, UnixSeconds, UnknownReason, encode,
};

const SEEN: UnixMicros = UnixMicros(1_790_000_012_345_678);

fn order_id() -> OrderId {
    OrderId(Uuid::from_u128(0x0199_6d3c_5b00_7abc_8def_0123_4567_89ab))
}

fn wallet() -> Address {
    Address::new(AddressFamily::Evm, [0x11; 20])
}

fn amount(cents: u128) -> Amount {
    Amount::from_parts(cents * 10_u128.pow(16)).unwrap_or(Amount::ZERO)
}

fn block() -> Block {
    Block { number: 21_000_000, hash: Hash([0xaa; 32]), timestamp: UnixSeconds(1_790_000_011) }
}

fn observation() -> Observation {
    Observation {
        stablecoin: Stablecoin::Usdt,
        contract: Address::new(AddressFamily::Evm, [0xda; 20]),
        from_address: Address::new(AddressFamily::Evm, [0x22; 20]),
        to_address: wallet(),
        tx_hash: Hash([0xbb; 32]),
        log_index: 42,
        ordinal: 0,
        value: amount(1050),
        from_own_wallet: false,
    }
}

/// An example: a transfer in a block.
pub fn chain_record() -> ChainRecord {
    ChainRecord {
        blockchain: Blockchain::Eth,
        epoch: Epoch(3),
        block: block(),
        observed_at: SEEN,
        body: ChainBody::Transfer(observation()),
        confirmed: false,
    }
}

/// An example: a head.
pub fn chain_head() -> ChainRecord {
    let confirmed = vec![
        ConfirmedTier {
            below: Some(amount(100_000)),
            number: 20_999_988,
            timestamp: Some(UnixSeconds(1_789_999_867)),
        },
        ConfirmedTier { below: None, number: 20_999_936, timestamp: None },
    ];
    let head = Head {
        confirmed,
        finalized: 20_999_936,
        match_window_seconds: 3600,
        held: vec![Held { block: block(), transfer: observation() }],
        has_gap: false,
    };
    ChainRecord { body: ChainBody::Head(head), ..chain_record() }
}

fn watch() -> Watch {
    Watch { wallet_address: wallet(), contracts: vec![observation().contract] }
}

/// An example: a wallet is watched from a block on.
pub fn chain_watch() -> ChainRecord {
    ChainRecord { body: ChainBody::Watch(watch()), ..chain_record() }
}

fn amounts() -> AmountRule {
    let draws = Draws([0x5d; 32]);
    AmountRule { exact_first: true, digits: 6, limit: amount(10), draws }
}

fn payment() -> PaymentRequest {
    PaymentRequest {
        blockchain: Blockchain::Eth,
        stablecoin: Stablecoin::Usdt,
        contract: observation().contract,
        decimals: 6,
        contracts: vec![observation().contract],
        wallets: vec![wallet()],
        amounts: amounts(),
        late_window_seconds: 86_400,
        accepts_late: true,
        head_age_max_seconds: 600,
    }
}

/// An example: an order is created.
pub fn order_command() -> OrderCommand {
    OrderCommand {
        order_id: order_id(),
        command_id: Some(CommandId(Uuid::from_u128(5))),
        issued_at: SEEN,
        body: OrderCommandBody::Create(create()),
    }
}

fn create() -> CreateOrder {
    CreateOrder {
        merchant_order_id: "A-1001".into(),
        amount: amount(1050),
        amount_text: "10.50".into(),
        webhook_url: "https://shop.example/hooks".into(),
        expecting_wallet_address: None,
        blockchain: Some(Blockchain::Eth),
        stablecoin: Some(Stablecoin::Usdt),
        expires_at: UnixSeconds(1_790_001_812),
        first_version: 1,
        payment: Some(payment()),
    }
}

/// An example: an operator marks an order paid that the processor may have forgotten.
pub fn mark_paid() -> OrderCommand {
    let body = OrderCommandBody::MarkPaid(Some(expired().into()));
    OrderCommand { body, ..order_command() }
}

fn expired() -> Order {
    Order { status: OrderStatus::Expired, cause: OrderCause::Expired, ..order() }
}

/// An example: a late payment is attached to its order.
pub fn attach() -> DepositCommand {
    let unknown = Transfer {
        status: TransferStatus::NoMatchedDeposit,
        fulfillment_id: None,
        order_id: None,
        deposit_id: None,
        reason: Some(UnknownReason::Late),
        candidate_order_id: Some(order_id()),
        ..transfer()
    };
    let attach = AttachTransfer {
        command_id: CommandId(Uuid::from_u128(5)),
        transfer: unknown,
        order: Some(expired().into()),
    };
    DepositCommand { body: DepositCommandBody::Attach(attach.into()), ..deposit_command() }
}

/// An example: a lane asks an order whether a late payment may be attached to it.
pub fn attach_asks() -> OrderCommand {
    let attach = Attach {
        transfer_id: TransferId(7),
        value: amount(1050),
        blockchain: Blockchain::Eth,
        wallet_address: wallet(),
    };
    let body = OrderCommandBody::Attach(attach, Some(expired().into()));
    OrderCommand { body, ..order_command() }
}

/// An example: a deposit is opened.
pub fn deposit_command() -> DepositCommand {
    DepositCommand {
        order_id: order_id(),
        slot: 0,
        blockchain: Blockchain::Eth,
        wallet_address: wallet(),
        issued_at: SEEN,
        body: DepositCommandBody::Open(OpenDeposit {
            stablecoin: Stablecoin::Usdt,
            contract: observation().contract,
            contracts: vec![observation().contract],
            value: amount(1050),
            user_address: None,
            started_at: SEEN.seconds(),
            expires_at: UnixSeconds(1_790_001_812),
            amounts: amounts(),
            late_window_seconds: 86_400,
            accepts_late: true,
            head_age_max_seconds: 600,
        }),
    }
}

fn stop_scope() -> StopScope {
    StopScope {
        blockchain: None,
        stablecoin: Some(Stablecoin::Usdt),
        address: Some(observation().contract),
    }
}

/// An example: an operator stops a contract.
pub fn stop() -> DepositCommand {
    DepositCommand::to_lane(Blockchain::Eth, SEEN, DepositCommandBody::Stop(stop_scope()))
}

/// An example: a pending order.
pub fn order() -> Order {
    Order {
        version: 2,
        cause: OrderCause::DepositOpened,
        expecting_wallet_address: Some(observation().from_address),
        candidates: vec![TransferId(7)],
        deposits: vec![OrderDeposit {
            slot: 0,
            blockchain: Blockchain::Eth,
            stablecoin: Stablecoin::Usdt,
            contract: observation().contract,
            decimals: 6,
            state: DepositState::Open,
            deposit_id: Some(DepositId(1)),
            wallet_address: wallet(),
            value: Some(amount(1050)),
            started_at: SEEN.seconds(),
        }],
        ..create().first_record(&order_command())
    }
}

/// An example: an open deposit.
pub fn deposit() -> Deposit {
    Deposit {
        deposit_id: DepositId(1),
        updated_at: SEEN,
        order_id: order_id(),
        slot: 0,
        state: DepositState::Open,
        close_reason: None,
        blockchain: Blockchain::Eth,
        stablecoin: Stablecoin::Usdt,
        contracts: vec![observation().contract],
        user_address: None,
        wallet_address: wallet(),
        value: amount(1050),
        value_text: "10.50".into(),
        started_at: SEEN.seconds(),
        expires_at: UnixSeconds(1_790_001_812),
    }
}

/// An example: a transfer.
pub fn transfer() -> Transfer {
    Transfer {
        transfer_id: TransferId(7),
        updated_at: SEEN,
        blockchain: Blockchain::Eth,
        block: block(),
        observation: observation(),
        value_text: "10.50".into(),
        blockchain_confirmed: true,
        created_at: SEEN.seconds(),
        status: TransferStatus::Matched,
        fulfillment_id: Some(FulfillmentId(9)),
        order_id: Some(order_id()),
        deposit_id: Some(DepositId(1)),
        reason: None,
        candidate_order_id: None,
        orphaned_at: None,
    }
}

/// An example: a transfer that is matched.
pub fn matching_entry() -> MatchingEntry {
    let (block, seen) = (block(), observation());
    MatchingEntry::Transfer(TransferEntry {
        transfer_id: TransferId(7),
        updated_at: SEEN,
        block_number: block.number,
        block_hash: block.hash,
        block_timestamp: block.timestamp,
        stablecoin: seen.stablecoin,
        contract: seen.contract,
        from_address: seen.from_address,
        to_address: seen.to_address,
        tx_hash: seen.tx_hash,
        log_index: seen.log_index,
        ordinal: seen.ordinal,
        value: seen.value,
        created_at: SEEN.seconds(),
        listed_at: 2,
        status: TransferStatus::Matched,
        fulfillment_id: Some(FulfillmentId(9)),
        order_id: Some(order_id()),
        deposit_id: Some(DepositId(1)),
        reason: None,
        candidate_order_id: None,
        epoch: Epoch(3),
        orphaned_at: None,
        orphan_due: false,
        settling: false,
        unanswered: false,
        asked_at: None,
        match_deadline: None,
        forget_at: Some(UnixSeconds(1_790_086_412)),
        from_own_wallet: false,
    })
}

/// An example: an order that waits for a choice's deposit.
pub fn orders_entry() -> OrdersEntry {
    OrdersEntry {
        order: order(),
        pending: vec![PendingChoice {
            slot: 1,
            command_id: None,
            asked_at: SEEN.seconds(),
            payment: payment(),
        }],
        late_window_seconds: 86_400,
        asked_at: Some(UnixSeconds(1_790_003_600)),
    }
}

/// An example: the second attempt for an order's event is due.
pub fn delivery() -> Delivery {
    Delivery {
        event_id: format!("{}.2", order_id()),
        kind: DeliveryKind::OrderStatusChanged,
        order_id: Some(order_id()),
        transfer_id: None,
        url: "https://shop.example/hooks".into(),
        body: r#"{"event_type":"order_status_changed"}"#.into(),
        attempt: 2,
        manual: false,
        emitted_at: SEEN,
        due_at: SEEN,
        version: Some(2),
        follows: false,
        deferrals: 0,
        requests: 1,
        last_outcome: Some(AttemptOutcome::Status),
        last_status: Some(503),
    }
}

/// An example: an attempt that failed.
pub fn attempt() -> Attempt {
    Attempt {
        event_id: format!("{}.2", order_id()),
        kind: DeliveryKind::OrderStatusChanged,
        order_id: Some(order_id()),
        transfer_id: None,
        attempt: 1,
        manual: false,
        attempted_at: SEEN,
        outcome: AttemptOutcome::Status,
        http_status: Some(503),
        duration_ms: 41,
        cause: String::new(),
        answer: "the shop is closed".into(),
    }
}

/// An example: three records of a chain and a command.
pub fn processor_step() -> ProcessorStep {
    let run = |topic: &str, first, count| InputRun { topic: topic.to_owned(), first, count };
    let inputs = vec![run("transfers.raw", 1200, 3), run("deposits.commands", 17, 1)];
    ProcessorStep { inputs }
}

/// An example: the last event that was dispatched of an order.
pub fn webhook_entry() -> WebhookEntry {
    WebhookEntry { order_id: order_id(), version: 2, dispatched_at: SEEN }
}

/// An example: progress of a chain.
pub fn chain_progress() -> ChainProgress {
    ChainProgress {
        blockchain: Blockchain::Eth,
        epoch: Epoch(3),
        head: block(),
        confirmed: 20_999_988,
        finalized: 20_999_936,
        watched: vec![watch()],
        updated_at: SEEN,
        lane: None,
        oldest_unconfirmed: None,
        stopped: Vec::new(),
    }
}

/// An example: progress of a lane.
pub fn lane_progress() -> ChainProgress {
    ChainProgress {
        lane: Some(0),
        oldest_unconfirmed: Some(block().timestamp.plus(-24)),
        stopped: vec![StopScope {
            blockchain: None,
            stablecoin: Some(Stablecoin::Dai),
            address: None,
        }],
        ..chain_progress()
    }
}

/// An example: a confirmed transfer was taken back.
pub fn alert() -> Alert {
    let (transfer_id, order_id) = (TransferId(7), order_id());
    let message = "transfer 7 was confirmed and its block is no longer in the chain".to_owned();
    let subject = format!("{transfer_id}/{order_id}");
    let (kind, chain) = (AlertKind::ConfirmedTransferRetracted, Some(Blockchain::Eth));
    let alert = Alert::raise(kind, chain, &subject, message, SEEN);
    Alert { transfer_id: Some(transfer_id), order_id: Some(order_id), ..alert }
}

/// An example: an operator marked an order paid.
pub fn audit_entry() -> AuditEntry {
    AuditEntry {
        operator: "support".into(),
        client: Some("198.51.100.9".into()),
        action: AuditAction::MarkPaid,
        order_id: Some(order_id()),
        transfer_id: None,
        command_id: Some(CommandId(Uuid::from_u128(5))),
        subject: None,
        requested_at: SEEN,
    }
}

/// An example: a record that no reader understood.
pub fn dead_letter() -> DeadLetter {
    DeadLetter {
        topic: "transfers.raw".into(),
        partition: 2,
        offset: 77,
        group: "processor.matching".into(),
        reason: "not in the Confluent wire format".into(),
        key: b"key".to_vec(),
        value: b"garbage".to_vec(),
        failed_at: SEEN,
    }
}

/// Array of a function's results for each example with its name, whatever the record's type.
macro_rules! each_example {
    ($visit:ident) => {
        each_example! {
            $visit: chain_record chain_head chain_watch order_command mark_paid deposit_command
            attach stop attach_asks order deposit transfer matching_entry orders_entry delivery
            attempt processor_step webhook_entry chain_progress lane_progress alert audit_entry
            dead_letter
        }
    };
    ($visit:ident: $($name:ident)+) => {
        [$($visit(stringify!($name), &$crate::record::example::$name())),+]
    };
}
#[cfg(test)]
pub(crate) use each_example;

/// Every example as a value of a topic. A schema whose records have several kinds comes more than once.
pub fn values() -> Result<Vec<(SchemaName, Vec<u8>)>, CodecError> {
    fn value<R: Record>(_: &str, record: &R) -> Result<(SchemaName, Vec<u8>), CodecError> {
        Ok((R::SCHEMA, encode(record)?))
    }
    each_example!(value).into_iter().collect()
}
