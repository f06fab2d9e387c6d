//! A shop with one wallet and one price, simulated: what its amounts cost it. The matching machine, with what
//! the api asks for by default, beside the rule before decision 24, of which there is a small model here.
//!
//! Customers choose at random times of the day. Of ten, seven pay: within the deposit's half hour and exactly,
//! but for one in a hundred who rounds to the price and one in a hundred who pays up to a day too late.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use processor::machine::Machine;
use processor::machine::matching::{Effect, Input, State, TransferStage};
use schemas::record::{
    AmountRule, ChainBody, ChainRecord, DepositCommand, DepositCommandBody, OpenDeposit,
    OrderCommandBody,
};
use schemas::{
    Amount, Blockchain, DepositState, OrderId, Partition, Secret, Stablecoin, TransferId,
    UnknownReason, draw_digits,
};
use testkit::Dice;
use testkit::measure::{CONTRACT, TIME, head, open, order, transfer, watch};

const DAY: i64 = 24 * 3600;
/// Days that count; the wallet fills for [`WARM_DAYS`] before them.
const DAYS: i64 = 30;
const WARM_DAYS: i64 = 3;
/// Time that a customer has to pay, in seconds.
const TTL: i64 = 1800;
/// Time for which a closed deposit keeps its amount, in seconds.
const LATE_WINDOW: i64 = DAY;
const CENT: u128 = 10_u128.pow(16);
const PRICE: u128 = 1000 * CENT;

/// Kind of payer: exact, rounding to the price, or late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payer {
    Exact,
    Rounds,
    Late,
}

/// The order that a payment was credited to.
struct Credit {
    payment: usize,
    order: usize,
}

/// A rule for amounts. Times are seconds since the shop opened.
trait Rule {
    /// The amount that a new order gets; none if it is refused.
    fn choose(&mut self, order: usize, now: i64, credits: &mut Vec<Credit>) -> Option<u128>;
    /// An amount arrives in the block of this time.
    fn pay(&mut self, payment: usize, value: u128, now: i64, credits: &mut Vec<Credit>);
}

/// The matching machine under one confirmation.
struct Today {
    state: State,
    paid: BTreeSet<OrderId>,
    height: i64,
}

impl Today {
    fn new() -> Self {
        let mut today = Self {
            state: State::new(Blockchain::Eth, Partition(0)),
            paid: BTreeSet::new(),
            height: 0,
        };
        today.feed(vec![Input::Chain(watch(0)), Input::Chain(head(0))], &mut Vec::new());
        today
    }

    /// At most 1 % above the price, by digits that nobody can choose.
    fn rule(order: OrderId) -> AmountRule {
        let draws = draw_digits(&Secret::new("a shop"), order, Blockchain::Eth, Stablecoin::Usdt);
        let limit = Amount::from_parts(PRICE / 100).expect("small");
        AmountRule { exact_first: false, digits: 6, limit, draws }
    }

    /// A record in the next block, at this time.
    fn at(&mut self, mut record: ChainRecord, now: i64) -> Input {
        record.block.number = self.height;
        record.block.timestamp = TIME.plus(now);
        record.observed_at = TIME.plus(now).micros();
        if let ChainBody::Head(head) = &mut record.body {
            head.finalized = self.height;
            for tier in &mut head.confirmed {
                (tier.number, tier.timestamp) = (self.height, Some(TIME.plus(now)));
            }
        }
        Input::Chain(record)
    }

    /// A head of this time.
    fn beat(&mut self, now: i64, credits: &mut Vec<Credit>) {
        self.height += 1;
        let head = self.at(head(0), now);
        self.feed(vec![head], credits);
    }

    /// Returns the amount of the deposit that opened.
    fn feed(&mut self, mut inputs: Vec<Input>, credits: &mut Vec<Credit>) -> Option<u128> {
        let mut opened = None;
        while !inputs.is_empty() {
            let mut effects = Vec::new();
            for input in std::mem::take(&mut inputs) {
                self.state.decide(&input, &mut effects).expect("no invariant is broken");
            }
            self.state.commit();
            for effect in effects {
                match effect {
                    Effect::Deposit(deposit) if deposit.state == DepositState::Open => {
                        opened = Some(deposit.value.parts());
                    }
                    Effect::Transfer(TransferStage::Matched, paid) => {
                        let number = |bytes: &[u8]| {
                            usize::try_from(u64::from_be_bytes(bytes.try_into().expect("8 bytes")))
                        };
                        let payment = number(&paid.observation.tx_hash.0[..8]).expect("a payment");
                        let order = paid.order_id.expect("what is matched has an order");
                        let order = number(&order.0.as_bytes()[8..]).expect("an order") - 1;
                        credits.push(Credit { payment, order });
                    }
                    Effect::Command(command) => {
                        if let OrderCommandBody::Settle(settle) = &command.body {
                            inputs.push(Input::Command(DepositCommand {
                                order_id: command.order_id,
                                slot: settle.slot,
                                blockchain: settle.blockchain,
                                wallet_address: settle.wallet_address,
                                issued_at: command.issued_at,
                                body: self.answer(command.order_id, settle.transfer_id),
                            }));
                        }
                    }
                    _ => {}
                }
            }
        }
        opened
    }

    /// As the order does: the first transfer pays it.
    fn answer(&mut self, order: OrderId, transfer_id: TransferId) -> DepositCommandBody {
        if self.paid.insert(order) {
            DepositCommandBody::Settled { transfer_id }
        } else {
            DepositCommandBody::Refused { transfer_id, reason: UnknownReason::AlreadyPaid }
        }
    }
}

impl Rule for Today {
    fn choose(&mut self, number: usize, now: i64, credits: &mut Vec<Credit>) -> Option<u128> {
        self.beat(now, credits);
        let command = DepositCommand {
            issued_at: TIME.plus(now).micros(),
            body: DepositCommandBody::Open(OpenDeposit {
                stablecoin: Stablecoin::Usdt,
                contract: CONTRACT,
                contracts: vec![CONTRACT],
                value: Amount::from_parts(PRICE).expect("small"),
                user_address: None,
                started_at: TIME.plus(now),
                expires_at: TIME.plus(now + TTL),
                amounts: Self::rule(order(number)),
                late_window_seconds: u32::try_from(LATE_WINDOW).expect("a day"),
                accepts_late: false,
                head_age_max_seconds: 600,
            }),
            ..open(number)
        };
        self.feed(vec![Input::Command(command)], credits)
    }

    fn pay(&mut self, payment: usize, value: u128, now: i64, credits: &mut Vec<Credit>) {
        self.height += 1;
        let mut record = transfer(payment, 0);
        if let ChainBody::Transfer(seen) = &mut record.body {
            seen.value = Amount::from_parts(value).expect("small");
        }
        let seen = self.at(record, now);
        let head = self.at(head(0), now);
        self.feed(vec![seen, head], credits);
    }
}

/// A deposit of the rule of before, by its amount.
struct Held {
    order: usize,
    expires_at: i64,
    /// Release time of the amount; `None` while the deposit is open.
    released_at: Option<i64>,
}

/// The price, or up to 100 cents more, the first that nobody holds; everything closed is held for a day. A payment
/// that nobody awaits goes to the next order that gets its amount within two minutes.
#[derive(Default)]
struct Before {
    held: BTreeMap<u128, Held>,
    loose: HashMap<u128, (usize, i64)>,
}

impl Before {
    fn pass(&mut self, now: i64) {
        for held in self.held.values_mut() {
            if held.released_at.is_none() && held.expires_at < now {
                held.released_at = Some(held.expires_at + LATE_WINDOW);
            }
        }
        self.held.retain(|_, held| held.released_at.is_none_or(|at| now <= at));
    }
}

impl Rule for Before {
    fn choose(&mut self, order: usize, now: i64, credits: &mut Vec<Credit>) -> Option<u128> {
        self.pass(now);
        let mut amounts = (0..=100).map(|cents| PRICE + cents * CENT);
        let value = amounts.find(|value| !self.held.contains_key(value))?;
        let mut held = Held { order, expires_at: now + TTL, released_at: None };
        if let Some((payment, at)) = self.loose.remove(&value)
            && now <= at + 120
        {
            credits.push(Credit { payment, order });
            held.released_at = Some(now + LATE_WINDOW);
        }
        self.held.insert(value, held);
        Some(value)
    }

    fn pay(&mut self, payment: usize, value: u128, now: i64, credits: &mut Vec<Credit>) {
        self.pass(now);
        match self.held.get_mut(&value) {
            Some(held) if held.released_at.is_none() => {
                held.released_at = Some(now + LATE_WINDOW);
                credits.push(Credit { payment, order: held.order });
            }
            Some(_) => {}
            None => {
                self.loose.insert(value, (payment, now));
            }
        }
    }
}

/// Totals of the days that count.
#[derive(Default)]
struct Outcome {
    chosen: usize,
    refused: usize,
    surcharge: u128,
    rounded: usize,
    late: usize,
    wrong_by_rounding: usize,
    wrong_by_lateness: usize,
}

fn simulate(a_day: usize, mut rule: impl Rule) -> Outcome {
    let mut dice = Dice(a_day as u64);
    let seconds =
        |dice: &mut Dice, below: i64| i64::try_from(dice.below(below as usize)).expect("small");
    // By time: who chooses, and who pays which amount.
    let mut events: BTreeMap<(i64, usize), Option<u128>> = BTreeMap::new();
    for number in 0..a_day * usize::try_from(WARM_DAYS + DAYS).expect("days") {
        events.insert((seconds(&mut dice, (WARM_DAYS + DAYS) * DAY), number), None);
    }
    let mut outcome = Outcome::default();
    let mut payers: HashMap<usize, Payer> = HashMap::new();
    let mut credits = Vec::new();
    while let Some(((now, number), event)) = events.pop_first() {
        let counts = now >= WARM_DAYS * DAY;
        if let Some(value) = event {
            rule.pay(number, value, now, &mut credits);
        } else {
            let value = rule.choose(number, now, &mut credits);
            outcome.chosen += usize::from(counts);
            outcome.refused += usize::from(counts && value.is_none());
            if let Some(value) = value {
                outcome.surcharge += if counts { value - PRICE } else { 0 };
                let roll = dice.below(1000);
                let (payer, after) = match roll {
                    0..7 => (Payer::Rounds, 60 + seconds(&mut dice, TTL - 120)),
                    7..14 => (Payer::Late, TTL + 60 + seconds(&mut dice, DAY)),
                    _ => (Payer::Exact, 60 + seconds(&mut dice, TTL - 120)),
                };
                if roll < 700 {
                    let sent = if payer == Payer::Rounds { PRICE } else { value };
                    payers.insert(number, payer);
                    events.insert((now + after, number), Some(sent));
                    outcome.rounded += usize::from(counts && payer == Payer::Rounds);
                    outcome.late += usize::from(counts && payer == Payer::Late);
                }
            }
        }
        for credit in credits.drain(..) {
            let wrong = counts && credit.payment != credit.order;
            let by = |payer| usize::from(wrong && payers.get(&credit.payment) == Some(&payer));
            outcome.wrong_by_rounding += by(Payer::Rounds);
            outcome.wrong_by_lateness += by(Payer::Late);
        }
    }
    outcome
}

fn print(name: &str, a_day: usize, outcome: &Outcome) {
    let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
    let given = outcome.chosen - outcome.refused;
    let surcharge = outcome.surcharge as f64 / CENT as f64 / 100.0 / given.max(1) as f64;
    println!(
        "  {a_day:>5} a day, {name:<7} refused {:>5.1} %, mean surcharge {surcharge:.4}, wrong credits: {} of {} who rounded, {} of {} who came late",
        percent(outcome.refused, outcome.chosen),
        outcome.wrong_by_rounding,
        outcome.rounded,
        outcome.wrong_by_lateness,
        outcome.late,
    );
}

fn main() {
    println!(
        "amounts: one wallet, one price of 10.00, {DAYS} days; 1 % of payers round, 1 % are late"
    );
    for a_day in [50, 500, 5_000] {
        print("before", a_day, &simulate(a_day, Before::default()));
        print("now", a_day, &simulate(a_day, Today::new()));
    }
}
