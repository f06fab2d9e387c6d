//! Commands to the two machines of the processor.

use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use super::{AmountRule, Order, StopScope, Transfer};
use crate::{
    Address, Amount, Blockchain, CloseReason, CommandId, DepositCommandKind, DepositId, OrderCause,
    OrderCommandKind, OrderId, OrderStatus, RefusalReason, Stablecoin, TransferId, UnixMicros,
    UnixSeconds, UnknownReason,
};

/// A record of `orders.commands`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "OrderCommandWire")]
pub struct OrderCommand {
    pub order_id: OrderId,
    /// Correlates the command with its reply. The processor's own have none, except about an attach.
    pub command_id: Option<CommandId>,
    pub issued_at: UnixMicros,
    pub body: OrderCommandBody,
}

/// The kinds of [`OrderCommand`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderCommandBody {
    Create(CreateOrder),
    ChoosePayment(PaymentRequest),
    /// The customer or an operator cancels.
    Cancel,
    /// An operator forces the status `paid`.
    MarkPaid(EndedOrder),
    /// An operator wants the webhook of its status sent again.
    ResendWebhook(EndedOrder),
    DepositOpened {
        slot: i32,
        deposit_id: DepositId,
        value: Amount,
    },
    DepositRefused {
        slot: i32,
        /// The refusing wallet: a repeated refusal must not count for the next wallet.
        wallet_address: Address,
        reason: RefusalReason,
    },
    DepositClosed {
        slot: i32,
        reason: CloseReason,
    },
    CandidateSeen {
        transfer_id: TransferId,
    },
    /// The candidate will not pay.
    CandidateGone {
        transfer_id: TransferId,
    },
    /// A confirmed transfer asks to pay the order.
    Settle(Settle),
    /// A transfer asks to pay the order that an operator named.
    Attach(Attach, EndedOrder),
    /// The transfer that an operator named must not pay.
    AttachRefused(EndedOrder),
    /// The order's own timer is due.
    Tick,
}

/// The order if it had ended when the sender of a command read the tables: the processor may have forgotten it.
pub type EndedOrder = Option<Box<Order>>;

/// A merchant's new order (spec 4.1), validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOrder {
    pub merchant_order_id: String,
    pub amount: Amount,
    pub amount_text: String,
    pub webhook_url: String,
    /// Only transfers from this sender count, if set.
    pub expecting_wallet_address: Option<Address>,
    pub blockchain: Option<Blockchain>,
    pub stablecoin: Option<Stablecoin>,
    /// Transfers in blocks after this time do not pay it, unless its deposit accepts late ones.
    pub expires_at: UnixSeconds,
    /// Version of its first record, if above 1: after a restore it exceeds those of an earlier order of this id.
    #[serde(default)]
    pub first_version: i64,
    /// The deposit to open at once, when both chain and stablecoin are fixed.
    pub payment: Option<PaymentRequest>,
}

impl CreateOrder {
    /// The first record of the order that `command` creates from this. The api shows it before the
    /// processor has written it: both must be equal at the same version.
    #[must_use]
    pub fn first_record(&self, command: &OrderCommand) -> Order {
        Order {
            order_id: command.order_id,
            version: self.first_version.max(1),
            updated_at: command.issued_at,
            cause: OrderCause::Created,
            command_id: command.command_id,
            status: OrderStatus::Pending,
            status_changed: false,
            merchant_order_id: self.merchant_order_id.clone(),
            amount: self.amount,
            amount_text: self.amount_text.clone(),
            webhook_url: self.webhook_url.clone(),
            expecting_wallet_address: self.expecting_wallet_address,
            blockchain: self.blockchain,
            stablecoin: self.stablecoin,
            created_at: command.issued_at.seconds(),
            expires_at: self.expires_at,
            paid_by: None,
            paid_value: None,
            candidates: Vec::new(),
            deposits: Vec::new(),
        }
    }
}

/// A choice of chain and stablecoin, with its configured settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentRequest {
    pub blockchain: Blockchain,
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    /// The stablecoin's contract that the customer is shown.
    pub contract: Address,
    /// Digits after the point that the contract counts in.
    pub decimals: u8,
    /// Every contract whose transfers pay, the one that is shown among them.
    #[serde(default)]
    pub contracts: Vec<Address>,
    /// Wallets that take it, in the order to try.
    #[serde(default)]
    pub wallets: Vec<Address>,
    /// Amounts that the deposit may have.
    pub amounts: AmountRule,
    /// Seconds for which a closed deposit keeps its amount for a late payer.
    pub late_window_seconds: u32,
    /// `true` if a late payment counts.
    #[serde(default)]
    pub accepts_late: bool,
    /// Maximum seconds by which the chain's last scanned block may be older than the command.
    pub head_age_max_seconds: u32,
}

/// A confirmed transfer and the deposit it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub transfer_id: TransferId,
    /// Slot of the order's deposit that it fits.
    pub slot: i32,
    pub deposit_id: DepositId,
    /// Chain of the lane that gets the reply.
    pub blockchain: Blockchain,
    /// Wallet of the lane that gets the reply.
    pub wallet_address: Address,
    /// `true` if it also pays an order that has expired or was cancelled.
    #[serde(default)]
    pub accepts_late: bool,
}

/// A transfer named by an operator as the order's payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    pub transfer_id: TransferId,
    /// Amount that it brought; it need not be what the order asks for.
    pub value: Amount,
    /// Chain of the lane that gets the reply.
    pub blockchain: Blockchain,
    /// Wallet of the lane that gets the reply.
    pub wallet_address: Address,
}

/// A record of `deposits.commands`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "DepositCommandWire")]
pub struct DepositCommand {
    /// The nil id where the command is about the lane.
    pub order_id: OrderId,
    pub slot: i32,
    pub blockchain: Blockchain,
    /// The zero address where the command is about the lane.
    pub wallet_address: Address,
    pub issued_at: UnixMicros,
    pub body: DepositCommandBody,
}

/// The kinds of [`DepositCommand`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DepositCommandBody {
    /// Reserves an amount, and waits for its payment.
    Open(OpenDeposit),
    /// Closes the deposit, and replies. The reason `expired` only queries its state: chain time alone lets
    /// it expire.
    Close { reason: CloseReason },
    /// Asks again whether a transfer may still pay the order. A lane ignores transfers of others.
    Candidate { transfer_id: TransferId },
    /// The transfer paid the order.
    Settled { transfer_id: TransferId },
    /// The transfer may not pay the order.
    Refused { transfer_id: TransferId, reason: UnknownReason },
    /// An operator attaches to the order a transfer that pays nothing.
    Attach(Box<AttachTransfer>),
    /// The transfer that an operator named paid the order.
    Attached { transfer_id: TransferId },
    /// The order is paid by another transfer, or was forgotten.
    AttachRefused { transfer_id: TransferId },
    /// No payment in this scope is settled, and no deposit opens.
    Stop(StopScope),
    /// Ends the stop of exactly this scope.
    Resume(StopScope),
}

impl DepositCommand {
    /// A command about all of a lane.
    #[must_use]
    pub fn to_lane(
        blockchain: Blockchain,
        issued_at: UnixMicros,
        body: DepositCommandBody,
    ) -> Self {
        let wallet_address = Address::new(blockchain.address_family(), [0; 20]);
        Self {
            order_id: OrderId(Uuid::nil()),
            slot: 0,
            blockchain,
            wallet_address,
            issued_at,
            body,
        }
    }
}

/// Transfer that an operator names, read from the tables like its order: the processor may have
/// forgotten either.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachTransfer {
    /// Correlates the command with its reply.
    pub command_id: CommandId,
    pub transfer: Transfer,
    pub order: EndedOrder,
}

/// Parameters of a new deposit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDeposit {
    #[serde(rename = "token")]
    pub stablecoin: Stablecoin,
    /// The contract that the customer is shown.
    pub contract: Address,
    /// Every contract whose transfers pay, the one that is shown among them.
    #[serde(default)]
    pub contracts: Vec<Address>,
    /// The order's amount.
    pub value: Amount,
    pub user_address: Option<Address>,
    /// Time when the customer chose it, by the clock of the api.
    pub started_at: UnixSeconds,
    /// Transfers in blocks up to this time count.
    pub expires_at: UnixSeconds,
    pub amounts: AmountRule,
    pub late_window_seconds: u32,
    /// `true` if a transfer after `expires_at` pays too, while the amount is kept for it.
    #[serde(default)]
    pub accepts_late: bool,
    pub head_age_max_seconds: u32,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct DepositAnswer {
    slot: i32,
    deposit_id: Option<DepositId>,
    value: Option<Amount>,
    wallet_address: Option<Address>,
    refusal_reason: Option<RefusalReason>,
    close_reason: Option<CloseReason>,
}

/// An [`OrderCommand`] as its schema has it: the bodies of all kinds side by side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename = "OrderCommand")]
struct OrderCommandWire {
    kind: OrderCommandKind,
    order_id: OrderId,
    command_id: Option<CommandId>,
    issued_at: UnixMicros,
    create: Option<CreateOrder>,
    payment: Option<PaymentRequest>,
    deposit: Option<DepositAnswer>,
    candidate_transfer_id: Option<TransferId>,
    settle: Option<Settle>,
    attach: Option<Attach>,
    order: EndedOrder,
}

impl Serialize for OrderCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use OrderCommandBody as Body;
        use OrderCommandKind as Kind;
        let none = DepositAnswer::default;
        let alone = |kind| OrderCommandWire {
            kind,
            order_id: self.order_id,
            command_id: self.command_id,
            issued_at: self.issued_at,
            create: None,
            payment: None,
            deposit: None,
            candidate_transfer_id: None,
            settle: None,
            attach: None,
            order: None,
        };
        let about = |kind, order: &EndedOrder| {
            let order = order.clone();
            OrderCommandWire { order, ..alone(kind) }
        };
        let answer = |kind, answer| OrderCommandWire { deposit: Some(answer), ..alone(kind) };
        let candidate =
            |kind, id| OrderCommandWire { candidate_transfer_id: Some(id), ..alone(kind) };
        let wire = match &self.body {
            Body::Create(create) => {
                OrderCommandWire { create: Some(create.clone()), ..alone(Kind::Create) }
            }
            Body::ChoosePayment(payment) => {
                OrderCommandWire { payment: Some(payment.clone()), ..alone(Kind::ChoosePayment) }
            }
            Body::Cancel => alone(Kind::Cancel),
            Body::MarkPaid(order) => about(Kind::MarkPaid, order),
            Body::ResendWebhook(order) => about(Kind::ResendWebhook, order),
            Body::DepositOpened { slot, deposit_id, value } => {
                let (deposit_id, value) = (Some(*deposit_id), Some(*value));
                let opened = DepositAnswer { slot: *slot, deposit_id, value, ..none() };
                answer(Kind::DepositOpened, opened)
            }
            Body::DepositRefused { slot, wallet_address, reason } => {
                let (wallet_address, refusal_reason) = (Some(*wallet_address), Some(*reason));
                let refused =
                    DepositAnswer { slot: *slot, wallet_address, refusal_reason, ..none() };
                answer(Kind::DepositRefused, refused)
            }
            Body::DepositClosed { slot, reason } => {
                let closed = DepositAnswer { slot: *slot, close_reason: Some(*reason), ..none() };
                answer(Kind::DepositClosed, closed)
            }
            Body::CandidateSeen { transfer_id } => candidate(Kind::CandidateSeen, *transfer_id),
            Body::CandidateGone { transfer_id } => candidate(Kind::CandidateGone, *transfer_id),
            Body::Settle(settle) => {
                OrderCommandWire { settle: Some(*settle), ..alone(Kind::Settle) }
            }
            Body::Attach(attach, order) => {
                OrderCommandWire { attach: Some(*attach), ..about(Kind::Attach, order) }
            }
            Body::AttachRefused(order) => about(Kind::AttachRefused, order),
            Body::Tick => alone(Kind::Tick),
        };
        wire.serialize(serializer)
    }
}

impl TryFrom<OrderCommandWire> for OrderCommand {
    type Error = &'static str;
    fn try_from(wire: OrderCommandWire) -> Result<Self, &'static str> {
        use OrderCommandBody as Body;
        use OrderCommandKind as Kind;
        let candidate = wire.candidate_transfer_id;
        let answer = wire.deposit;
        let body = match wire.kind {
            Kind::Create => wire.create.map(Body::Create),
            Kind::ChoosePayment => wire.payment.map(Body::ChoosePayment),
            Kind::Cancel => Some(Body::Cancel),
            Kind::MarkPaid => Some(Body::MarkPaid(wire.order)),
            Kind::ResendWebhook => Some(Body::ResendWebhook(wire.order)),
            Kind::DepositOpened => answer.and_then(|a| {
                let (deposit_id, value) = a.deposit_id.zip(a.value)?;
                Some(Body::DepositOpened { slot: a.slot, deposit_id, value })
            }),
            Kind::DepositRefused => answer.and_then(|a| {
                let (wallet_address, reason) = a.wallet_address.zip(a.refusal_reason)?;
                Some(Body::DepositRefused { slot: a.slot, wallet_address, reason })
            }),
            Kind::DepositClosed => answer
                .and_then(|a| Some(Body::DepositClosed { slot: a.slot, reason: a.close_reason? })),
            Kind::CandidateSeen => candidate.map(|transfer_id| Body::CandidateSeen { transfer_id }),
            Kind::CandidateGone => candidate.map(|transfer_id| Body::CandidateGone { transfer_id }),
            Kind::Settle => wire.settle.map(Body::Settle),
            Kind::Attach => wire.attach.map(|attach| Body::Attach(attach, wire.order)),
            Kind::AttachRefused => Some(Body::AttachRefused(wire.order)),
            Kind::Tick => Some(Body::Tick),
        };
        Ok(Self {
            order_id: wire.order_id,
            command_id: wire.command_id,
            issued_at: wire.issued_at,
            body: body.ok_or("the part that its kind needs is missing")?,
        })
    }
}

/// A [`DepositCommand`] as its schema has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename = "DepositCommand")]
struct DepositCommandWire {
    kind: DepositCommandKind,
    order_id: OrderId,
    slot: i32,
    blockchain: Blockchain,
    wallet_address: Address,
    issued_at: UnixMicros,
    open: Option<OpenDeposit>,
    close_reason: Option<CloseReason>,
    transfer_id: Option<TransferId>,
    refused_reason: Option<UnknownReason>,
    attach: Option<Box<AttachTransfer>>,
    stop: Option<StopScope>,
}

impl Serialize for DepositCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use DepositCommandBody as Body;
        use DepositCommandKind as Kind;
        let alone = |kind| DepositCommandWire {
            kind,
            order_id: self.order_id,
            slot: self.slot,
            blockchain: self.blockchain,
            wallet_address: self.wallet_address,
            issued_at: self.issued_at,
            open: None,
            close_reason: None,
            transfer_id: None,
            refused_reason: None,
            attach: None,
            stop: None,
        };
        let stop = |kind, scope| DepositCommandWire { stop: Some(scope), ..alone(kind) };
        let transfer = |kind, id| DepositCommandWire { transfer_id: Some(id), ..alone(kind) };
        let wire = match &self.body {
            Body::Open(open) => {
                DepositCommandWire { open: Some(open.clone()), ..alone(Kind::Open) }
            }
            Body::Close { reason } => {
                DepositCommandWire { close_reason: Some(*reason), ..alone(Kind::Close) }
            }
            Body::Candidate { transfer_id } => transfer(Kind::Candidate, *transfer_id),
            Body::Settled { transfer_id } => transfer(Kind::Settled, *transfer_id),
            Body::Refused { transfer_id, reason } => DepositCommandWire {
                refused_reason: Some(*reason),
                ..transfer(Kind::Refused, *transfer_id)
            },
            Body::Attach(attach) => {
                DepositCommandWire { attach: Some(attach.clone()), ..alone(Kind::Attach) }
            }
            Body::Attached { transfer_id } => transfer(Kind::Attached, *transfer_id),
            Body::AttachRefused { transfer_id } => transfer(Kind::AttachRefused, *transfer_id),
            Body::Stop(scope) => stop(Kind::Stop, *scope),
            Body::Resume(scope) => stop(Kind::Resume, *scope),
        };
        wire.serialize(serializer)
    }
}

impl TryFrom<DepositCommandWire> for DepositCommand {
    type Error = &'static str;
    fn try_from(wire: DepositCommandWire) -> Result<Self, &'static str> {
        use DepositCommandBody as Body;
        use DepositCommandKind as Kind;
        let body = match wire.kind {
            Kind::Open => wire.open.map(Body::Open),
            Kind::Close => wire.close_reason.map(|reason| Body::Close { reason }),
            Kind::Candidate => wire.transfer_id.map(|transfer_id| Body::Candidate { transfer_id }),
            Kind::Settled => wire.transfer_id.map(|transfer_id| Body::Settled { transfer_id }),
            Kind::Refused => wire
                .transfer_id
                .zip(wire.refused_reason)
                .map(|(transfer_id, reason)| Body::Refused { transfer_id, reason }),
            Kind::Attach => wire.attach.map(Body::Attach),
            Kind::Attached => wire.transfer_id.map(|transfer_id| Body::Attached { transfer_id }),
            Kind::AttachRefused => {
                wire.transfer_id.map(|transfer_id| Body::AttachRefused { transfer_id })
            }
            Kind::Stop => wire.stop.map(Body::Stop),
            Kind::Resume => wire.stop.map(Body::Resume),
        };
        if wire.wallet_address.family() != wire.blockchain.address_family() {
            return Err("the wallet is not of the chain");
        }
        Ok(Self {
            order_id: wire.order_id,
            slot: wire.slot,
            blockchain: wire.blockchain,
            wallet_address: wire.wallet_address,
            issued_at: wire.issued_at,
            body: body.ok_or("the part that its kind needs is missing")?,
        })
    }
}
