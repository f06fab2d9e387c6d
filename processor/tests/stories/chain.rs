//! A small chain, and the commands to its lane. Block n has time 10 n and is confirmed by the head ten
//! blocks above it.

use schemas::record::{
    AmountRule, AttachTransfer, Block, ChainBody, ChainRecord, ConfirmedTier, DepositCommand,
    DepositCommandBody, Head, Held, Observation, OpenDeposit, StopScope, Transfer, Watch,
};
use schemas::{
    Address, Amount, Blockchain, CloseReason, CommandId, Epoch, Hash, OrderId, Stablecoin,
    TransferId, UnixMicros, UnixSeconds, UnknownReason,
};
use tidemark_processor::machine::matching::Input;
use uuid::Uuid;

use crate::name::{CONTRACT, amount, order, three_cents, wallet};

/// A day in blocks.
pub(crate) const DAY: i64 = 8_640;
/// First head at which a transfer of the first window of ids is forgotten: a day after the window's end.
pub(crate) const FORGETS: i64 = DAY + 820;

fn block(number: i64, fork: u8) -> Block {
    let mut hash = [fork; 32];
    hash.iter_mut().zip(number.to_be_bytes()).for_each(|(byte, digit)| *byte = digit);
    Block { number, hash: Hash(hash), timestamp: UnixSeconds(number * 10) }
}

fn record(epoch: i64, block: Block, body: ChainBody) -> ChainRecord {
    // Ingest sees a block two seconds after its time.
    let observed_at = block.timestamp.plus(2).micros();
    let (blockchain, epoch) = (Blockchain::Eth, Epoch(epoch));
    ChainRecord { blockchain, epoch, block, observed_at, body, confirmed: false }
}

/// A payment to be included: by default from sender 7 to wallet 1 in block 110.
#[derive(Clone, Copy)]
pub(crate) struct Pay {
    number: i64,
    fork: u8,
    epoch: i64,
    seen: Observation,
    confirmed: bool,
}

/// A payment of transaction `tx`.
pub(crate) fn pay(tx: u8, value: &str) -> Pay {
    let seen = Observation {
        stablecoin: Stablecoin::Usdt,
        contract: CONTRACT,
        from_address: wallet(7),
        to_address: wallet(1),
        tx_hash: Hash([tx; 32]),
        log_index: i32::from(tx),
        ordinal: 0,
        value: amount(value),
        from_own_wallet: false,
    };
    Pay { number: 110, fork: 0, epoch: 0, seen, confirmed: false }
}

impl Pay {
    pub(crate) fn at(self, number: i64) -> Self {
        Self { number, ..self }
    }
    /// In the block of another branch, observed after the rewind to it.
    pub(crate) fn fork(self, fork: u8) -> Self {
        Self { fork, epoch: i64::from(fork), ..self }
    }
    pub(crate) fn epoch(self, epoch: i64) -> Self {
        Self { epoch, ..self }
    }
    pub(crate) fn from(mut self, sender: u8) -> Self {
        self.seen.from_address = wallet(sender);
        self
    }
    /// From one of the merchant's own wallets.
    pub(crate) fn swept(mut self) -> Self {
        self.seen.from_address = wallet(2);
        self.seen.from_own_wallet = true;
        self
    }
    pub(crate) fn to(mut self, number: u8) -> Self {
        self.seen.to_address = wallet(number);
        self
    }
    pub(crate) fn stablecoin(mut self, stablecoin: Stablecoin) -> Self {
        self.seen.stablecoin = stablecoin;
        self
    }
    pub(crate) fn ordinal(mut self, ordinal: i32) -> Self {
        self.seen.ordinal = ordinal;
        self.seen.log_index += ordinal;
        self
    }
    /// In this contract of the coin.
    pub(crate) fn contract(mut self, contract: Address) -> Self {
        self.seen.contract = contract;
        self
    }
    /// At another position in its block.
    pub(crate) fn log(mut self, log_index: i32) -> Self {
        self.seen.log_index = log_index;
        self
    }
    /// Confirmed by the head of its own step.
    pub(crate) fn confirmed(self) -> Self {
        Self { confirmed: true, ..self }
    }
    pub(crate) fn record(self) -> ChainRecord {
        let body = ChainBody::Transfer(self.seen);
        let record = record(self.epoch, block(self.number, self.fork), body);
        ChainRecord { confirmed: self.confirmed, ..record }
    }
    fn held(&self) -> Held {
        Held { block: block(self.number, self.fork), transfer: self.seen }
    }
    /// The same event retracted by a rewind into `epoch`.
    pub(crate) fn retracted(self, epoch: i64) -> Input {
        let body = ChainBody::Retract(self.seen);
        Input::Chain(record(epoch, block(self.number, self.fork), body))
    }
}

impl From<Pay> for Input {
    fn from(pay: Pay) -> Self {
        Self::Chain(pay.record())
    }
}

/// A head and its block.
#[derive(Clone)]
pub(crate) struct HeadAt {
    number: i64,
    epoch: i64,
    timestamp: UnixSeconds,
    /// Lead of its time over its observation, in seconds.
    ahead: i64,
    head: Head,
}

fn tier(below: Option<Amount>, number: i64) -> ConfirmedTier {
    ConfirmedTier { below, number, timestamp: Some(UnixSeconds(number * 10)) }
}

/// A head at this height: blocks at least ten below it are confirmed, those at least twenty below are final.
pub(crate) fn head(number: i64) -> HeadAt {
    let confirmed = vec![tier(None, number - 10)];
    HeadAt {
        number,
        epoch: 0,
        timestamp: UnixSeconds(number * 10),
        ahead: -2,
        head: Head {
            confirmed,
            finalized: number - 20,
            match_window_seconds: 200,
            held: Vec::new(),
            has_gap: false,
        },
    }
}

impl HeadAt {
    pub(crate) fn epoch(self, epoch: i64) -> Self {
        Self { epoch, ..self }
    }
    /// Confirmed heights of the amounts below these; `rest` is that of all others.
    pub(crate) fn tiers(mut self, tiers: &[(&str, i64)], rest: i64) -> Self {
        let of = |(below, number): &(&str, i64)| tier(Some(amount(below)), *number);
        self.head.confirmed = tiers.iter().map(of).collect();
        self.head.confirmed.push(tier(None, rest));
        self
    }
    pub(crate) fn finalized(mut self, number: i64) -> Self {
        self.head.finalized = number;
        self
    }
    /// Holds these transfers, about which endpoints disagree.
    pub(crate) fn holding(mut self, transfers: &[Pay]) -> Self {
        self.head.held = transfers.iter().map(Pay::held).collect();
        self
    }
    /// With a gap: unscanned blocks that no endpoint has any more.
    pub(crate) fn with_gap(mut self) -> Self {
        self.head.has_gap = true;
        self
    }
    /// With the block time of another height.
    pub(crate) fn at_time_of(self, number: i64) -> Self {
        Self { timestamp: UnixSeconds(number * 10), ..self }
    }
    /// With a block time this far ahead of the usual one of its height, and of its observation.
    pub(crate) fn ahead_by(self, seconds: i64) -> Self {
        let timestamp = UnixSeconds(self.number * 10 + seconds);
        Self { timestamp, ahead: seconds, ..self }
    }
    pub(crate) fn record(self) -> ChainRecord {
        let fork = u8::try_from(self.epoch).unwrap_or(u8::MAX);
        let block = Block { timestamp: self.timestamp, ..block(self.number, fork) };
        let observed_at = self.timestamp.plus(-self.ahead).micros();
        let record = record(self.epoch, block, ChainBody::Head(self.head));
        ChainRecord { observed_at, ..record }
    }
}

impl From<HeadAt> for Input {
    fn from(head: HeadAt) -> Self {
        Self::Chain(head.record())
    }
}

/// An operator stops the payments in this scope.
pub(crate) fn stop(scope: StopScope) -> Input {
    to_lane(DepositCommandBody::Stop(scope))
}

/// An operator ends the stop of this scope.
pub(crate) fn resume(scope: StopScope) -> Input {
    to_lane(DepositCommandBody::Resume(scope))
}

fn to_lane(body: DepositCommandBody) -> Input {
    Input::Command(DepositCommand::to_lane(Blockchain::Eth, UnixSeconds(1200).micros(), body))
}

/// Payments to the wallet in this contract are seen from this block on.
pub(crate) fn watch(number: i64, watched: u8, contract: Address) -> Input {
    let watch = Watch { wallet_address: wallet(watched), contracts: vec![contract] };
    Input::Chain(record(0, block(number, 0), ChainBody::Watch(watch)))
}

/// The command to open a deposit. By default: slot 0 at wallet 1, from block 100 to block 200, up to three cents above
/// the price, a late window of 500 s.
#[derive(Clone)]
pub(crate) struct Open {
    order: OrderId,
    slot: i32,
    wallet: u8,
    issued_at: UnixMicros,
    open: OpenDeposit,
}

pub(crate) fn open(order_letter: char, value: &str) -> Open {
    let open = OpenDeposit {
        stablecoin: Stablecoin::Usdt,
        contract: CONTRACT,
        contracts: vec![CONTRACT],
        value: amount(value),
        user_address: None,
        started_at: UnixSeconds(1000),
        expires_at: UnixSeconds(2000),
        amounts: three_cents(),
        late_window_seconds: 500,
        accepts_late: false,
        head_age_max_seconds: u32::MAX,
    };
    let issued_at = UnixSeconds(1000).micros();
    Open { order: order(order_letter), slot: 0, wallet: 1, issued_at, open }
}

impl Open {
    pub(crate) fn slot(self, slot: i32) -> Self {
        Self { slot, ..self }
    }
    pub(crate) fn wallet(self, wallet: u8) -> Self {
        Self { wallet, ..self }
    }
    pub(crate) fn stablecoin(mut self, stablecoin: Stablecoin) -> Self {
        self.open.stablecoin = stablecoin;
        self
    }
    /// Accepts only this sender.
    pub(crate) fn only_from(mut self, sender: u8) -> Self {
        self.open.user_address = Some(wallet(sender));
        self
    }
    /// Valid from the time of one block to that of another.
    pub(crate) fn between(mut self, first: i64, last: i64) -> Self {
        self.open.started_at = UnixSeconds(first * 10);
        self.open.expires_at = UnixSeconds(last * 10);
        self.issued_at = self.open.started_at.micros();
        self
    }
    pub(crate) fn amounts(mut self, amounts: AmountRule) -> Self {
        self.open.amounts = amounts;
        self
    }
    /// Accepts this contract alone.
    pub(crate) fn contract(mut self, contract: Address) -> Self {
        self.open.contract = contract;
        self.open.contracts = vec![contract];
        self
    }
    /// Accepts these contracts.
    pub(crate) fn paid_in(mut self, contracts: &[Address]) -> Self {
        self.open.contracts = contracts.to_vec();
        self
    }
    /// Maximum age of the head at the time of the command, in seconds.
    pub(crate) fn head_age(mut self, seconds: u32) -> Self {
        self.open.head_age_max_seconds = seconds;
        self
    }
    pub(crate) fn late_window(mut self, seconds: u32) -> Self {
        self.open.late_window_seconds = seconds;
        self
    }
    pub(crate) fn accepts_late(mut self) -> Self {
        self.open.accepts_late = true;
        self
    }
    pub(crate) fn command(self) -> DepositCommand {
        DepositCommand {
            order_id: self.order,
            slot: self.slot,
            blockchain: Blockchain::Eth,
            wallet_address: wallet(self.wallet),
            issued_at: self.issued_at,
            body: DepositCommandBody::Open(self.open),
        }
    }
}

impl From<Open> for Input {
    fn from(open: Open) -> Self {
        Self::Command(open.command())
    }
}

fn command(order_letter: char, body: DepositCommandBody) -> Input {
    let command = open(order_letter, "1").command();
    Input::Command(DepositCommand { body, ..command })
}

/// The order closes its deposit in slot 0.
pub(crate) fn close(order_letter: char, reason: CloseReason) -> Input {
    command(order_letter, DepositCommandBody::Close { reason })
}

/// The order is paid by this transfer.
pub(crate) fn settled(order_letter: char, transfer: i64) -> Input {
    let transfer_id = TransferId(transfer);
    command(order_letter, DepositCommandBody::Settled { transfer_id })
}

/// The order refuses this transfer.
pub(crate) fn refused(order_letter: char, transfer: i64, reason: UnknownReason) -> Input {
    let transfer_id = TransferId(transfer);
    command(order_letter, DepositCommandBody::Refused { transfer_id, reason })
}

/// An operator attaches a transfer to the order, by a command of this number.
pub(crate) fn attach(order_letter: char, id: u128, transfer: &Transfer) -> Input {
    let attach = AttachTransfer {
        command_id: CommandId(Uuid::from_u128(id)),
        transfer: transfer.clone(),
        order: None,
    };
    command(order_letter, DepositCommandBody::Attach(attach.into()))
}

/// The order accepts the attached transfer.
pub(crate) fn attached(order_letter: char, transfer_id: TransferId) -> Input {
    command(order_letter, DepositCommandBody::Attached { transfer_id })
}

/// The order refuses the attached transfer.
pub(crate) fn attach_refused(order_letter: char, transfer_id: TransferId) -> Input {
    command(order_letter, DepositCommandBody::AttachRefused { transfer_id })
}

/// The order requests the outcome of this candidate.
pub(crate) fn candidate_of(order_letter: char, transfer_id: TransferId) -> Input {
    command(order_letter, DepositCommandBody::Candidate { transfer_id })
}
