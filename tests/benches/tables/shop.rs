//! An endless stream of a shop's records, in the order of events. Only pending events are kept, and
//! one byte for each order and transfer, to check the tables by at the end.

use std::collections::VecDeque;
use std::sync::Arc;

use log::{Offset, Record, TopicPartition};
use runtime::clock::{Clock as _, SystemClock};
use schemas::{
    Headers, Layout, OrderStatus, Partition, Topic, TransferStatus, UnixMicros, UnixSeconds,
};
use testkit::Dice;

use crate::rows::{self, Paid, Placed};

pub(crate) const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };
/// Percentages of orders that are paid and that expire; the others are cancelled.
const PAID: usize = 70;
const EXPIRED: usize = 25;
/// Percentage of the transfers paying nothing that never confirm.
const FAILED: usize = 10;
/// Percentage of webhooks that are refused once.
const REFUSED: usize = 10;
/// Orders from one head of the chains to the next.
const HEAD_EVERY: u64 = 500;

/// Number of rows of each kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Volume {
    pub(crate) orders: usize,
    /// All of one wallet. Those beyond the ones that pay an order pay nothing.
    pub(crate) transfers: usize,
    /// Approximate number of orders pending at any moment.
    pub(crate) pending: usize,
}

impl Volume {
    /// Transfers that pay nothing.
    fn strays(self) -> usize {
        self.transfers.saturating_sub(self.orders * PAID / 100)
    }
}

/// Event still to come for an order or a transfer.
#[derive(Debug, Clone, Copy)]
enum Event {
    Seen(Placed),
    Confirmed(Placed, Paid),
    Settled(Placed, Paid),
    Ended(Placed, OrderStatus),
    /// The webhook again, after one that was refused.
    Repeated(Placed),
    StrayConfirmed(Paid),
    StrayEnded(Paid),
}

/// Expected rows of the tables once everything is applied.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// Statuses of orders by number, from the oldest on.
    pub(crate) orders: Vec<OrderStatus>,
    /// Statuses of transfers by ID.
    pub(crate) transfers: Vec<TransferStatus>,
}

/// Orders a second of a shop whose time is not that of the machine.
const PACE: usize = 1_000;

/// A shop at work. Time is counted in orders; each comes at the moment at which it is asked for.
#[derive(Debug)]
pub(crate) struct Shop {
    volume: Volume,
    dice: Dice,
    now: UnixMicros,
    /// Start time, if the shop does not follow the machine's clock.
    begun: Option<UnixMicros>,
    /// Events due with the next order, with the one after it, and so on.
    calendar: VecDeque<Vec<Event>>,
    strays: usize,
    offset: i64,
    pub(crate) truth: Truth,
}

impl Shop {
    pub(crate) fn new(volume: Volume) -> Self {
        Self {
            volume,
            dice: Dice(1),
            now: SystemClock.now(),
            begun: None,
            calendar: VecDeque::new(),
            strays: 0,
            offset: 0,
            truth: Truth::default(),
        }
    }

    /// One with [`PACE`] orders a second that is at work until now, however fast its records are made.
    pub(crate) fn in_the_past(volume: Volume) -> Self {
        let seconds = (volume.orders / PACE) as i64;
        let begun = UnixMicros(SystemClock.now().0 - seconds * 1_000_000);
        Self { now: begun, begun: Some(begun), ..Self::new(volume) }
    }

    /// Orders so far.
    pub(crate) fn orders(&self) -> usize {
        self.truth.orders.len()
    }

    /// One more order, and all else that happens by then.
    pub(crate) fn advance(&mut self, out: &mut Vec<Arc<Record>>) {
        let number = self.orders();
        for event in self.calendar.pop_front().unwrap_or_default() {
            self.happen(event, out);
        }
        self.place(number, out);
        let strays = self.volume.strays() * (number + 1) / self.volume.orders.max(1);
        while self.strays < strays {
            self.strays += 1;
            self.stray(out);
        }
        if (number as u64).is_multiple_of(HEAD_EVERY) {
            for lane in [None, Some(0)] {
                for chain in rows::CHAINS {
                    let at = self.tick();
                    let progress = rows::progress(chain, lane, number, at);
                    self.write(Topic::Chains, Partition(chain.index()), &progress, out);
                }
            }
        }
    }

    /// The version clock of the next record: the time, and later than that of any other.
    fn tick(&mut self) -> UnixMicros {
        let time = self.begun.map_or_else(
            || SystemClock.now().0,
            |begun| begun.0 + (self.orders() * 1_000_000 / PACE) as i64,
        );
        self.now = UnixMicros(time.max(self.now.0 + 1));
        self.now
    }

    fn after(&mut self, orders: usize, event: Event) {
        if self.calendar.len() <= orders {
            self.calendar.resize_with(orders + 1, Vec::new);
        }
        self.calendar[orders].push(event);
    }

    /// A new order with its deposit, and what becomes of it.
    fn place(&mut self, number: usize, out: &mut Vec<Arc<Record>>) {
        let at = self.tick();
        let mut placed = Placed { number, created_at: at.seconds(), version: 0 };
        self.truth.orders.push(OrderStatus::Pending);
        self.order(&mut placed, &rows::Step::Created, out);
        let opened = rows::deposit(placed, false, self.tick());
        self.deposit(&opened, out);
        self.order(&mut placed, &rows::Step::Opened, out);
        let pending = self.volume.pending.max(20);
        let (after, event) = match self.dice.below(100) {
            fate if fate < PAID => (pending / 5 + self.dice.below(pending), Event::Seen(placed)),
            fate if fate < PAID + EXPIRED => {
                (2 * pending, Event::Ended(placed, OrderStatus::Expired))
            }
            _ => (self.dice.below(pending), Event::Ended(placed, OrderStatus::Cancelled)),
        };
        self.after(after, event);
    }

    /// A transfer that pays nothing.
    fn stray(&mut self, out: &mut Vec<Arc<Record>>) {
        let transfer = self.seen(None, out);
        let pending = self.volume.pending.max(20);
        if self.dice.below(100) < FAILED {
            self.after(pending / 4, Event::StrayEnded(Paid { fails: true, ..transfer }));
        } else {
            self.after(pending / 20, Event::StrayConfirmed(transfer));
        }
    }

    fn happen(&mut self, event: Event, out: &mut Vec<Arc<Record>>) {
        let pending = self.volume.pending.max(20);
        match event {
            Event::Seen(mut placed) => {
                let transfer = self.seen(Some(placed.number), out);
                self.order(&mut placed, &rows::Step::Candidate(transfer), out);
                self.after(pending / 20, Event::Confirmed(placed, transfer));
            }
            Event::Confirmed(placed, transfer) => {
                let status = TransferStatus::WaitingForMatch;
                self.transfer(transfer, status, Topic::TransfersConfirmed, out);
                self.after(0, Event::Settled(placed, transfer));
            }
            Event::Settled(mut placed, transfer) => {
                self.order(&mut placed, &rows::Step::Paid(transfer), out);
                let status = TransferStatus::Matched;
                self.transfer(transfer, status, Topic::TransfersMatched, out);
                self.closed(placed, OrderStatus::Paid, out);
            }
            Event::Ended(mut placed, status) => {
                self.order(&mut placed, &rows::Step::Ended(status), out);
                self.closed(placed, status, out);
            }
            Event::Repeated(placed) => self.deliver(placed, 2, out),
            Event::StrayConfirmed(transfer) => {
                let status = TransferStatus::WaitingForMatch;
                self.transfer(transfer, status, Topic::TransfersConfirmed, out);
                self.after(pending / 2, Event::StrayEnded(transfer));
            }
            Event::StrayEnded(transfer) if transfer.fails => {
                let status = TransferStatus::FailedToConfirm;
                self.transfer(transfer, status, Topic::TransfersFailed, out);
            }
            Event::StrayEnded(transfer) => {
                let status = TransferStatus::NoMatchedDeposit;
                self.transfer(transfer, status, Topic::TransfersUnknown, out);
                let attempt = rows::attempt_of_transfer(transfer, self.tick());
                self.write(Topic::WebhooksAttempts, Partition(0), &attempt, out);
            }
        }
    }

    fn seen(&mut self, order: Option<usize>, out: &mut Vec<Arc<Record>>) -> Paid {
        let created_at: UnixSeconds = self.tick().seconds();
        let id = self.truth.transfers.len();
        self.truth.transfers.push(TransferStatus::WaitingForConfirmation);
        let transfer = Paid { id, created_at, order, fails: false };
        let status = TransferStatus::WaitingForConfirmation;
        self.transfer(transfer, status, Topic::TransfersDetected, out);
        transfer
    }

    /// The order has ended.
    fn closed(&mut self, placed: Placed, status: OrderStatus, out: &mut Vec<Arc<Record>>) {
        self.truth.orders[placed.number] = status;
        let closed = rows::deposit(placed, true, self.tick());
        self.deposit(&closed, out);
        self.deliver(placed, 1, out);
    }

    fn deliver(&mut self, placed: Placed, attempt: i32, out: &mut Vec<Arc<Record>>) {
        let is_refused = attempt == 1 && self.dice.below(100) < REFUSED;
        let attempt = rows::attempt_of_order(placed, attempt, is_refused, self.tick());
        let partition = LAYOUT.webhook(&attempt.event_id);
        self.write(Topic::WebhooksAttempts, partition, &attempt, out);
        if is_refused {
            self.after(self.volume.pending / 50 + 1, Event::Repeated(placed));
        }
    }

    fn order(&mut self, placed: &mut Placed, step: &rows::Step, out: &mut Vec<Arc<Record>>) {
        placed.version += 1;
        let order = rows::order(*placed, step, self.tick());
        let partition = LAYOUT.order(&order.order_id.to_string());
        self.write(Topic::Orders, partition, &order, out);
    }

    fn deposit(&mut self, deposit: &schemas::record::Deposit, out: &mut Vec<Arc<Record>>) {
        let lane = LAYOUT.lane(deposit.blockchain, &deposit.wallet_address);
        self.write(Topic::Deposits, lane, deposit, out);
    }

    fn transfer(
        &mut self,
        transfer: Paid,
        status: TransferStatus,
        topic: Topic,
        out: &mut Vec<Arc<Record>>,
    ) {
        self.truth.transfers[transfer.id] = status;
        let record = rows::transfer(transfer, status, self.tick());
        let lane = LAYOUT.lane(record.blockchain, &record.observation.to_address);
        self.write(topic, lane, &record, out);
    }

    fn write<R: schemas::record::Record>(
        &mut self,
        topic: Topic,
        partition: Partition,
        record: &R,
        out: &mut Vec<Arc<Record>>,
    ) {
        self.offset += 1;
        out.push(Arc::new(Record {
            from: TopicPartition { topic, partition },
            offset: Offset(self.offset),
            appended_at: self.now,
            key: Vec::new(),
            value: Some(schemas::encode(record).expect("encodable")),
            headers: Headers::default(),
        }));
    }
}
