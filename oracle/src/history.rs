//! Random history of a shop, as changes of the tables.

use processor::machine::{matching, orders};
use schemas::record::{
    Attempt, ChainBody, ChainProgress, ChainRecord, Order, OrderCommandBody, PaymentRequest,
    Transfer, example,
};
use schemas::{
    Amount, AttemptOutcome, Blockchain, DeliveryKind, OrderId, OrderStatus, Stablecoin, UnixMicros,
    UnixSeconds,
};
use store::Change;
use testkit::Dice;
use uuid::Uuid;

use crate::machine_model::chain::{CONTRACT, Chain, Movement, Policy, WALLETS, account, cents};
use crate::machine_model::delivered::Delivered;
use crate::machine_model::driver::Sabotage;
use crate::machine_model::operator::attach_command;
use crate::machine_model::pipeline::{Pipeline, Tricks, create_order, exact_or_cents};

const START: UnixSeconds = UnixSeconds(1_790_000_000);
/// Number of events: enough for every kind of row, in each status.
const HAPPENINGS: usize = 250;
const TTL_SECONDS: i64 = 3_600;
const TOKENS: [Stablecoin; 2] = [Stablecoin::Usdt, Stablecoin::Usdc];
const POLICY: Policy =
    Policy { depth: 2, depth_large: 4, finality: 6, rewind_max: 6, match_window_seconds: 600 };

struct Shop {
    dice: Dice,
    chain: Chain,
    pipeline: Pipeline,
    orders: Vec<(OrderId, Amount)>,
    now: UnixMicros,
}

/// Changes of the tables that 250 random events publish, in commit order.
pub fn history(seed: u64) -> Vec<Change> {
    let tricks = Tricks { batches: true, ..Tricks::NONE };
    let mut shop = Shop {
        dice: Dice(seed),
        chain: Chain::new(Blockchain::Eth, POLICY, START, &WALLETS),
        pipeline: Pipeline::new(&[Blockchain::Eth], tricks, Sabotage::None),
        orders: Vec::new(),
        now: START.micros(),
    };
    for _ in 0..HAPPENINGS {
        shop.happen();
        shop.pipeline.write_raw(&shop.chain);
        for _ in 0..shop.dice.below(6) {
            shop.pipeline.disturb(&mut shop.dice).expect("the machines are right");
        }
    }
    // Leaves an open deposit at the end.
    let payment = shop.payment();
    shop.create(Some(payment));
    shop.pipeline.drain(&mut shop.dice).expect("the machines are right");
    shop.changes()
}

impl Shop {
    fn happen(&mut self) {
        self.now = UnixMicros(self.now.0 + 1);
        match self.dice.below(16) {
            0..=4 => {
                let payment = (self.dice.below(3) > 0).then(|| self.payment());
                self.create(payment);
            }
            5..=8 => self.pay(),
            9 if self.dice.below(4) == 0 => self.command(OrderCommandBody::ResendWebhook(None)),
            9 => self.command(OrderCommandBody::Cancel),
            10 if self.dice.below(3) == 0 => self.command(OrderCommandBody::MarkPaid(None)),
            10 | 11 => {
                let payment = self.payment();
                self.command(OrderCommandBody::ChoosePayment(payment));
            }
            12 => self.fork(),
            13 if self.dice.below(2) == 0 => self.attach(),
            _ => {
                // Sometimes hours pass, so that deadlines, windows and midnights are passed.
                let seconds = if self.dice.below(6) == 0 { 20_000 } else { 30 };
                self.mine(seconds);
            }
        }
    }

    fn create(&mut self, payment: Option<PaymentRequest>) {
        let number = self.orders.len() as u128 + 1;
        let id = OrderId(Uuid::from_u128(number));
        // Few prices, so that orders compete for amounts.
        let amount = cents([1_000, 1_001, 6_000][self.dice.below(3)]);
        self.orders.push((id, amount));
        let expires_at = self.now.seconds().plus(TTL_SECONDS);
        let body = create_order(format!("A-{}", number % 5), amount, None, expires_at, payment);
        self.pipeline.write_command(id, body, self.now);
    }

    fn payment(&mut self) -> PaymentRequest {
        PaymentRequest {
            blockchain: Blockchain::Eth,
            stablecoin: TOKENS[self.dice.below(2)],
            contract: CONTRACT,
            decimals: 6,
            contracts: vec![CONTRACT],
            wallets: WALLETS.to_vec(),
            amounts: exact_or_cents(5),
            late_window_seconds: 1_200,
            accepts_late: self.dice.below(2) == 0,
            head_age_max_seconds: u32::MAX,
        }
    }

    /// Writes a command for one of the newest orders.
    fn command(&mut self, body: OrderCommandBody) {
        let place = self.dice.below(6);
        if let Some((id, _)) = self.orders.iter().rev().nth(place).copied() {
            self.pipeline.write_command(id, body, self.now);
        }
    }

    /// Attaches the last unknown transfer to one of the newest orders.
    fn attach(&mut self) {
        let place = self.dice.below(6);
        let Some((id, _)) = self.orders.iter().rev().nth(place).copied() else { return };
        let unknown = self.pipeline.unknown().next().map(|transfer| transfer.transfer_id);
        let row = unknown.and_then(|id| self.pipeline.transfer_row(id, 0, self.now));
        let Some(transfer) = row else { return };
        let order = self.pipeline.row_of(id, 0, self.now);
        let ended = order.filter(|order| order.status != OrderStatus::Pending).map(Box::new);
        let number = self.now.0.unsigned_abs().into();
        self.pipeline.write_lane_command(attach_command((id, ended), transfer, number, self.now));
    }

    fn pay(&mut self) {
        let place = self.dice.below(6);
        let Some((id, amount)) = self.orders.iter().rev().nth(place).copied() else { return };
        let deposit = self.pipeline.opened().find(|deposit| deposit.order_id == id);
        let (stablecoin, to, value) = deposit
            .map_or((TOKENS[0], WALLETS[0], amount), |d| (d.stablecoin, d.wallet_address, d.value));
        // Sometimes the amount is another one, which fits no deposit.
        let value = if self.dice.below(5) == 0 { cents(777) } else { value };
        let movement = Movement { stablecoin, contract: CONTRACT, from: account(0x21), to, value };
        self.chain.send(movement, false, 1);
    }

    fn mine(&mut self, seconds: i64) {
        let transactions = std::mem::take(&mut self.chain.mempool);
        self.chain.mine(transactions, self.chain.time().plus(seconds));
        self.chain.scan();
        self.now = self.now.max(self.chain.time().micros());
        self.pipeline.write_ticks(self.now);
    }

    /// Replaces the last blocks. Some of their transactions are included again, some never.
    fn fork(&mut self) {
        let depth = 1 + self.dice.below(3);
        for transaction in self.chain.fork(depth, 0).into_iter().flatten() {
            if self.dice.below(2) == 0 {
                self.chain.mempool.push(transaction);
            }
        }
        self.mine(13);
    }

    fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for delivered in &self.pipeline.delivered {
            for effect in delivered.of_lane() {
                match effect {
                    matching::Effect::Transfer(_, transfer) => {
                        changes.extend(attempts_about_transfer(transfer));
                        changes.push(Change::Transfer(transfer.clone()));
                    }
                    matching::Effect::Deposit(deposit) => {
                        changes.push(Change::Deposit(deposit.clone()));
                    }
                    matching::Effect::Progress(progress) => {
                        changes.push(Change::Chain(progress.clone()));
                    }
                    matching::Effect::Command(_) | matching::Effect::Alert(_) => {}
                }
            }
            if let Delivered::Lane(matching::Input::Chain(record), _) = delivered {
                changes.extend(progress(record));
            }
            for effect in delivered.of_orders() {
                if let orders::Effect::Order(order) = effect {
                    changes.extend(attempts_about_order(order));
                    changes.push(Change::Order(order.clone()));
                }
            }
        }
        // As in ingest: chain time may go back, the version clock does not.
        let mut clock = UnixMicros(0);
        for change in &mut changes {
            if let Change::Chain(chain @ ChainProgress { lane: None, .. }) = change {
                clock = clock.next(chain.updated_at);
                chain.updated_at = clock;
            }
        }
        changes
    }
}

fn progress(record: &ChainRecord) -> Option<Change> {
    let ChainBody::Head(head) = &record.body else { return None };
    Some(Change::Chain(ChainProgress {
        blockchain: record.blockchain,
        epoch: record.epoch,
        head: record.block,
        confirmed: head.confirmed.first().map_or(-1, |tier| tier.number),
        finalized: head.finalized,
        watched: Vec::new(),
        updated_at: record.observed_at,
        lane: None,
        oldest_unconfirmed: None,
        stopped: Vec::new(),
    }))
}

/// Delivery attempts of an order's webhook after a change of status: up to three fail before one
/// succeeds. After three failures, an operator also has it sent again.
fn attempts_about_order(order: &Order) -> Vec<Change> {
    let failures = i32::try_from(order.created_at.0 % 4).unwrap_or(0);
    let attempt = |number: i32, manual| {
        Change::Attempt(Attempt {
            event_id: format!("{}.{}", order.order_id, order.version),
            order_id: Some(order.order_id),
            attempt: number,
            manual,
            attempted_at: UnixMicros(order.updated_at.0 + (1_000_000 << number)),
            outcome: outcome(number > failures || manual),
            ..example::attempt()
        })
    };
    let mut attempts = Vec::new();
    if order.status_changed {
        attempts.extend((1..=failures + 1).map(|number| attempt(number, false)));
        attempts.extend((failures == 3).then(|| attempt(1, true)));
    }
    attempts
}

fn attempts_about_transfer(transfer: &Transfer) -> Option<Change> {
    transfer.reason.map(|_| {
        Change::Attempt(Attempt {
            event_id: format!("{}.unknown.{}", transfer.transfer_id, transfer.updated_at.0),
            kind: DeliveryKind::UnknownTransfer,
            order_id: None,
            transfer_id: Some(transfer.transfer_id),
            attempted_at: transfer.updated_at,
            outcome: outcome(true),
            ..example::attempt()
        })
    })
}

const fn outcome(delivered: bool) -> AttemptOutcome {
    if delivered { AttemptOutcome::Delivered } else { AttemptOutcome::Timeout }
}

#[cfg(test)]
mod tests;
