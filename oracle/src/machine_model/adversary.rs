//! The adversary of a pipeline. It chooses the interleaving, batches, aborts, crashes, repetitions and losses.

use processor::machine::{Machine, matching};
use schemas::Hash;
use schemas::record::{
    ChainBody, ChainRecord, Deposit, DepositCommandBody, Observation, OrderCommandBody,
};
use testkit::Dice;

use super::chain::{CONTRACT, account};
use super::driver::Fate;
use super::pipeline::{Lane, Pipeline};
use super::violation::{Violation, holds};

/// Maximum age of repeated records: younger ones are not forgotten by a machine.
const REPEAT_SECONDS: i64 = 12 * 3600;

impl Pipeline {
    /// Runs random steps until everything is read.
    pub fn drain(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        let is_read = |lane: &Lane| lane.raw.is_read() && lane.commands.is_read();
        while !(self.lanes.iter().all(is_read) && self.order_commands.is_read()) {
            self.disturb(dice)?;
        }
        Ok(())
    }

    /// Runs one random step.
    pub fn disturb(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        let fate = match dice.below(8) {
            0 if self.tricks.losses => Fate::Abort,
            1 if self.tricks.losses => Fate::Crash,
            _ => Fate::Commit,
        };
        let count = if self.tricks.batches { 1 + dice.below(6) } else { 1 };
        match dice.below(10) {
            0 if self.tricks.repeats => self.repeat(dice),
            0..5 => {
                let lane = dice.below(self.lanes.len());
                self.step_lane(lane, count, fate, dice)
            }
            _ => self.step_orders(count, fate),
        }
    }

    /// Repeats the last few records of a topic, or gives a lane a wrong head.
    fn repeat(&mut self, dice: &mut Dice) -> Result<(), Violation> {
        let lane = dice.below(self.lanes.len());
        match dice.below(4) {
            0 => {
                let raw = &self.lanes[lane].raw;
                let read = &raw.records[..raw.next];
                let count = (1 + dice.below(12)).min(read.len());
                let newest = read.iter().map(|(record, _)| record.block.timestamp).max();
                let last_head =
                    read.iter().rev().find(|(r, _)| matches!(r.body, ChainBody::Head(_)));
                // The last head is not repeated: that would be a new report of the same height, not a duplicate.
                let is_old = |record: &ChainRecord| {
                    newest.is_none_or(|at| record.block.timestamp > at.plus(-REPEAT_SECONDS))
                        && !(matches!(record.body, ChainBody::Head(_))
                            && last_head.is_some_and(|(head, _)| head.block == record.block))
                };
                let records: Vec<_> = read[read.len() - count..]
                    .iter()
                    .map(|(record, _)| record.clone())
                    .filter(is_old)
                    .map(matching::Input::Chain)
                    .collect();
                self.lane_again(lane, &records)
            }
            1 => {
                let Lane { commands: queue, commands_since_head, .. } = &self.lanes[lane];
                let count = (1 + dice.below(6)).min(*commands_since_head).min(queue.next);
                let records = &queue.records[queue.next - count..queue.next];
                // Commands before the last stop or its end are not repeated: their replies may change.
                let begins = records.iter().rposition(|(input, _)| is_stop(input));
                let records = &records[begins.map_or(0, |at| at + 1)..];
                // A repeated attach is not idempotent: it may succeed the second time.
                let is_attach = |input: &matching::Input| {
                    matches!(input, matching::Input::Command(command)
                        if matches!(command.body, DepositCommandBody::Attach(_)))
                };
                // A refused open is not idempotent: its amount may be free by now.
                let is_refused = |input: &matching::Input| match input {
                    matching::Input::Command(command) => {
                        let is_its = |of: &Deposit| {
                            (of.order_id, of.slot) == (command.order_id, command.slot)
                        };
                        let is_open = matches!(command.body, DepositCommandBody::Open(_));
                        is_open && !self.opened().any(is_its)
                    }
                    matching::Input::Chain(_) => false,
                };
                let records = records.iter().map(|(input, _)| input.clone());
                let records: Vec<_> =
                    records.filter(|input| !is_attach(input) && !is_refused(input)).collect();
                self.lane_again(lane, &records)
            }
            2 => self.wrong_head(lane, dice),
            _ => {
                let last = self.order_commands.next.checked_sub(1);
                let Some(last) = last else { return Ok(()) };
                let command = self.order_commands.records[last].0.clone();
                self.orders_again(command)
            }
        }
    }

    /// Gives a lane a head of another ingestor: below the last one, or of an impossible height, epoch or time.
    fn wrong_head(&mut self, lane: usize, dice: &mut Dice) -> Result<(), Violation> {
        let Lane { blockchain, raw, driver, .. } = &self.lanes[lane];
        let read = raw.records[..raw.next].iter().rev().map(|(record, _)| record);
        let Some(last) = read.into_iter().find(|r| matches!(r.body, ChainBody::Head(_))) else {
            return Ok(());
        };
        let mut wrong = last.clone();
        match dice.below(4) {
            0 => wrong.block.number -= 1,
            1 => wrong.block.number += 100_000,
            2 => wrong.epoch.0 += 1_000_000,
            _ => wrong.block.timestamp = wrong.block.timestamp.plus(30 * 24 * 3600),
        }
        if let Some(deposit) = self.opened().find(|deposit| deposit.blockchain == *blockchain) {
            pays_nothing(driver.machine.clone(), payment_in(&wrong, deposit))?;
        }
        self.lane_again(lane, &[matching::Input::Chain(wrong)])
    }
}

fn is_stop(input: &matching::Input) -> bool {
    matches!(input, matching::Input::Command(command)
        if matches!(command.body, DepositCommandBody::Stop(_) | DepositCommandBody::Resume(_)))
}

/// A payment for a deposit in the block of a wrong head, marked as confirmed by it.
fn payment_in(wrong: &ChainRecord, deposit: &Deposit) -> ChainRecord {
    let seen = Observation {
        stablecoin: deposit.stablecoin,
        contract: CONTRACT,
        from_address: deposit.user_address.unwrap_or(account(0x66)),
        to_address: deposit.wallet_address,
        tx_hash: Hash([0x77; 32]),
        log_index: 0,
        ordinal: 0,
        value: deposit.value,
        from_own_wallet: false,
    };
    ChainRecord { body: ChainBody::Transfer(seen), confirmed: true, ..wrong.clone() }
}

/// Invariant 3: the head is ignored, so it confirms nothing. The machine is a copy, as a later valid head might confirm
/// the payment.
fn pays_nothing(mut machine: matching::State, payment: ChainRecord) -> Result<(), Violation> {
    let mut effects = Vec::new();
    machine.decide(&matching::Input::Chain(payment), &mut effects)?;
    let is_seen = |effect: &matching::Effect| match effect {
        matching::Effect::Transfer(stage, _) => *stage == matching::TransferStage::Detected,
        matching::Effect::Command(command) => !matches!(command.body, OrderCommandBody::Settle(_)),
        _ => true,
    };
    let pays_nothing = effects.iter().all(is_seen);
    holds!(3, pays_nothing, "a payment in the block of a wrong head led to {effects:?}");
    Ok(())
}
