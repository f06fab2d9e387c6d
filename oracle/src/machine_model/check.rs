//! The invariants of `docs/internals/invariants.md`, checked on the records that the two machines wrote. Docs of the
//! checks name them by number.
//!
//! Nothing here reads the state of a machine: every check starts from the inputs as delivered, the records written, and
//! the true chain.

mod answer;
mod attach;
mod deposit;
mod end;
mod order;
mod stop;
mod transfer;

use std::collections::HashSet;

use processor::machine::matching::{self, TransferStage};
use schemas::record::{ChainBody, ChainProgress, ChainRecord, Transfer, Watch};
use schemas::{Address, AlertKind, PaymentKey, TransferStatus};

use answer::KNOWN_SECONDS;

use super::chain::{CONTRACT, Chain, OTHER_CONTRACT};
use super::delivered::Delivered;
use super::ledger::Ledger;
use super::violation::{Violation, holds};

impl<'a> Ledger<'a> {
    /// Checks every record as it was written.
    pub fn of(chains: &'a [Chain], delivered: &[Delivered]) -> Result<Self, Violation> {
        let mut ledger = Self::new(chains);
        for delivered in delivered {
            ledger.position += 1;
            match delivered {
                Delivered::Lane(input, effects) => {
                    let at_sight = match input {
                        matching::Input::Chain(record) => {
                            ledger.note_chain(record)?;
                            matches!(record.body, ChainBody::Transfer(_))
                        }
                        matching::Input::Command(command) => {
                            ledger.note_attach(command);
                            ledger.note_stop(command);
                            ledger.check_answer(command, effects)?;
                            ledger.check_candidate(command, effects)?;
                            ledger.check_open(command, effects)?;
                            false
                        }
                    };
                    for effect in effects {
                        ledger.check_effect(effect, at_sight)?;
                    }
                    ledger.check_gone(input)?;
                }
                Delivered::Orders(command, effects) => ledger.check_orders(command, effects)?,
            }
        }
        Ok(ledger)
    }

    fn note_chain(&mut self, record: &ChainRecord) -> Result<(), Violation> {
        let lane = self.lanes.get_mut(&record.blockchain).expect("a lane of one of the chains");
        match &record.body {
            ChainBody::Transfer(seen) => {
                self.included.insert(seen.payment(), Some(record.block));
            }
            ChainBody::Retract(seen) => {
                self.note_gone(seen.payment());
            }
            ChainBody::Watch(watch) => {
                lane.watched.insert(watch.wallet_address);
                lane.seen_after.entry(watch.wallet_address).or_insert(record.block.number);
            }
            ChainBody::Head(head) => {
                if record.epoch > lane.epoch {
                    lane.epoch = record.epoch;
                    self.note_rewind(record);
                }
                let lane = self.lanes.get_mut(&record.blockchain).expect("a lane");
                lane.head = Some(record.block);
                let held = head.held.iter();
                lane.held = held.map(|h| (h.block.hash, h.transfer.payment())).collect();
                lane.has_gap = head.has_gap;
                lane.policy = lane.chain.policy_of(record);
                lane.time_max = lane.time_max.max(record.block.timestamp);
                for transfer in std::mem::take(&mut lane.at_sight) {
                    self.check_depth(&transfer)?;
                }
            }
        }
        Ok(())
    }

    /// Marks the transfers above a rewind's head as gone, also those without a retract.
    fn note_rewind(&mut self, record: &ChainRecord) {
        let is_above = |(payment, transfer): (&PaymentKey, &Transfer)| {
            let block = self.included.get(payment).copied().flatten();
            let is_above = transfer.blockchain == record.blockchain
                && block.is_some_and(|block| block.number > record.block.number);
            is_above.then_some(*payment)
        };
        let above: Vec<_> = self.transfers.iter().filter_map(is_above).collect();
        above.into_iter().for_each(|payment| self.note_gone(payment));
        for (id, opening) in &mut self.openings {
            if self.deposits[id].blockchain == record.blockchain {
                opening.above = opening.above.min(record.block.number);
            }
        }
    }

    /// Invariant 3: an unconfirmed transfer that left the chain and is in no scanned block is published as orphaned.
    fn check_gone(&self, input: &matching::Input) -> Result<(), Violation> {
        let matching::Input::Chain(record) = input else { return Ok(()) };
        if !matches!(record.body, ChainBody::Head(_)) {
            return Ok(());
        }
        let is_gone = |(payment, transfer): &(&PaymentKey, &Transfer)| {
            transfer.blockchain == record.blockchain
                && transfer.status == TransferStatus::WaitingForConfirmation
                && transfer.block.number <= record.block.number
                && self.included.get(*payment) == Some(&None)
        };
        let mut gone = self.transfers.iter().filter(is_gone);
        let hidden = gone.find(|(_, transfer)| transfer.orphaned_at.is_none());
        holds!(3, hidden.is_none(), "not on the chain, and not shown so: {hidden:?}");
        Ok(())
    }

    /// Notes that the payment's block left the chain. If the transfer was confirmed, an alert must report that, unless
    /// the lane may have forgotten it.
    fn note_gone(&mut self, payment: PaymentKey) {
        self.included.insert(payment, None);
        let Some(transfer) = self.transfers.get(&payment) else { return };
        let known_to = transfer.block.timestamp.plus(KNOWN_SECONDS);
        let is_old = known_to < self.lane(transfer.blockchain).time_max;
        if is_old && has_ended(transfer) {
            self.left_alone.insert(payment);
        } else if transfer.blockchain_confirmed {
            self.alerts_due.insert(transfer.transfer_id);
        }
    }

    /// Checks an effect of a lane. `at_sight`: its input is a transfer, not a head.
    fn check_effect(&mut self, effect: &matching::Effect, at_sight: bool) -> Result<(), Violation> {
        match effect {
            matching::Effect::Transfer(stage, transfer) => {
                if *stage == TransferStage::Confirmed && at_sight {
                    let lane = self.lanes.get_mut(&transfer.blockchain).expect("a lane");
                    lane.at_sight.push(transfer.clone());
                } else if *stage == TransferStage::Confirmed {
                    let is_known = self.transfers.contains_key(&transfer.observation.payment());
                    holds!(1, is_known, "confirmed and never seen: {transfer:?}");
                    self.check_depth(transfer)?;
                }
                self.check_transfer(*stage, transfer)
            }
            matching::Effect::Deposit(deposit) => self.check_deposit(deposit),
            matching::Effect::Command(command) => {
                self.note_candidate(command);
                self.check_settle(command)?;
                self.check_attach(command)
            }
            matching::Effect::Progress(progress) => self.check_progress(progress),
            matching::Effect::Alert(alert) => {
                if alert.kind == AlertKind::ConfirmedTransferRetracted {
                    self.alerts.extend(alert.transfer_id);
                }
                Ok(())
            }
        }
    }

    /// Invariant 5: published progress has the last head. Invariant 11: it has the lane's watches, its stops and the
    /// time of its oldest unconfirmed transfer.
    fn check_progress(&mut self, progress: &ChainProgress) -> Result<(), Violation> {
        let blockchain = progress.blockchain;
        let lane = self.lane(blockchain);
        let hash = lane.head.map(|head| head.hash);
        holds!(5, hash == Some(progress.head.hash), "not the last head: {progress:?}");
        let of = |watch: &Watch| {
            (watch.contracts == [CONTRACT, OTHER_CONTRACT]).then_some(watch.wallet_address)
        };
        let watched: Option<HashSet<Address>> = progress.watched.iter().map(of).collect();
        let waits = |(payment, transfer): (&PaymentKey, &Transfer)| {
            let is_waiting = transfer.blockchain == blockchain
                && transfer.status == TransferStatus::WaitingForConfirmation;
            let block = is_waiting.then(|| self.included.get(payment).copied().flatten());
            block.flatten().map(|block| block.timestamp)
        };
        let oldest = self.transfers.iter().filter_map(waits).min();
        let is_so = watched.as_ref() == Some(&lane.watched)
            && oldest == progress.oldest_unconfirmed
            && lane.stopped == progress.stopped;
        if !is_so {
            let text = format!("{:?} are watched, {oldest:?} waits: {progress:?}", lane.watched);
            self.untrue.get_or_insert(text);
        }
        Ok(())
    }
}

fn has_ended(transfer: &Transfer) -> bool {
    matches!(transfer.status, TransferStatus::Matched | TransferStatus::NoMatchedDeposit)
}
