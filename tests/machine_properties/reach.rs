//! States that the cases reach.

use std::collections::{BTreeMap, HashMap, HashSet};

use oracle::machine_model::delivered::Delivered;
use processor::machine::matching::{self, TransferStage};
use processor::machine::orders;
use schemas::record::{
    ChainBody, DepositCommand, DepositCommandBody, Order, OrderCommand, OrderCommandBody, Transfer,
};
use schemas::{OrderId, PaymentKey, TransferId, TransferStatus, UnixSeconds};

use crate::world::DAY;

/// A transfer that is confirmed before its head.
pub(crate) const AT_SIGHT: &str = "confirmed at sight";
/// An order that had been forgotten.
pub(crate) const REMEMBERED: &str = "remembered";
/// An order without other candidates gets the reply that a payment may still come.
pub(crate) const ASKED_ABOUT: &str = "asked about";
/// A transfer held by heads, then released.
pub(crate) const HELD: [&str; 2] = ["held, then confirmed", "held, then gone"];
/// A payment that a lane has forgotten reappears.
pub(crate) const STALE: &str = "stale_transfer";
/// Transfers that are orphaned and return, and replies to those that failed meanwhile. "Counted on": failed before the
/// order's reply was read.
pub(crate) const RETURNS: [&str; 22] = [
    "gone waiting_for_confirmation",
    "gone waiting_for_confirmation, counted on",
    "gone waiting_for_match",
    "gone waiting_for_match, asks",
    "gone waiting_for_match, asks, counted on",
    "gone matched",
    "gone no_matched_deposit",
    "back waiting_for_confirmation",
    "back waiting_for_match, asks",
    "back matched",
    "back no_matched_deposit",
    "back failed_to_confirm",
    "back failed_to_confirm, counted on",
    "back matched, a day later",
    "back no_matched_deposit, a day later",
    "back failed_to_confirm, counted on, a day later",
    "settled failed_to_confirm, counted on",
    "settled waiting_for_confirmation, counted on",
    "settled waiting_for_match, counted on",
    "settled no_matched_deposit, counted on",
    "refused failed_to_confirm, counted on",
    "refused waiting_for_match, counted on",
];

/// Number of times each state was reached.
#[derive(Debug, Default)]
pub(crate) struct Reached(BTreeMap<String, usize>);

/// A transfer as the records of its lane show it.
struct Seen {
    id: TransferId,
    status: TransferStatus,
    /// Time since which it has this status.
    at: UnixSeconds,
    is_gone: bool,
    /// Order of its settle.
    asks: Option<OrderId>,
    /// Order whose reply was pending at its failure.
    counted_on: Option<OrderId>,
}

impl Seen {
    fn new(transfer: &Transfer) -> Self {
        let (id, at) = (transfer.transfer_id, transfer.updated_at.seconds());
        Self { id, status: transfer.status, at, is_gone: false, asks: None, counted_on: None }
    }

    fn what(&self, what: &str) -> String {
        let asks = if self.asks.is_some() { ", asks" } else { "" };
        let counted_on = if self.counted_on.is_some() { ", counted on" } else { "" };
        format!("{what} {}{asks}{counted_on}", self.status)
    }
}

impl Reached {
    pub(crate) fn has(&self, what: &str) -> bool {
        self.0.contains_key(what)
    }

    fn note(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    /// Adds the states of a play.
    pub(crate) fn add(&mut self, delivered: &[Delivered]) {
        for delivered in delivered {
            match delivered {
                Delivered::Lane(input, effects) => {
                    effects.iter().for_each(|effect| self.note_lane(input, effect));
                }
                Delivered::Orders(command, effects) => {
                    for effect in effects {
                        let orders::Effect::Order(order) = effect else { continue };
                        self.note(order.cause.as_str());
                        if is_remembered(command, order) {
                            self.note(REMEMBERED);
                        }
                    }
                }
            }
        }
        self.note_returns(delivered);
        self.note_holds(delivered);
    }

    fn note_lane(&mut self, input: &matching::Input, effect: &matching::Effect) {
        match effect {
            matching::Effect::Transfer(stage, transfer) => {
                let at_sight = *stage == TransferStage::Confirmed
                    && matches!(input, matching::Input::Chain(record) if record.confirmed);
                self.note(if at_sight { AT_SIGHT } else { transfer.status.as_str() });
                transfer.reason.into_iter().for_each(|reason| self.note(reason.as_str()));
            }
            matching::Effect::Deposit(deposit) => {
                self.note(deposit.close_reason.map_or("open", |reason| reason.as_str()));
            }
            matching::Effect::Alert(alert) => self.note(alert.kind.as_str()),
            matching::Effect::Progress(_) => {}
            matching::Effect::Command(command) => match command.body {
                OrderCommandBody::DepositRefused { reason, .. } => self.note(reason.as_str()),
                OrderCommandBody::CandidateSeen { .. } if is_candidate(input) => {
                    self.note(ASKED_ABOUT);
                }
                _ => {}
            },
        }
    }

    fn note_holds(&mut self, delivered: &[Delivered]) {
        let mut held: HashSet<PaymentKey> = HashSet::new();
        for delivered in delivered {
            let Delivered::Lane(input, effects) = delivered else { continue };
            if let matching::Input::Chain(record) = input {
                match &record.body {
                    ChainBody::Head(head) => {
                        held.extend(head.held.iter().map(|held| held.transfer.payment()));
                    }
                    ChainBody::Retract(seen) if held.remove(&seen.payment()) => self.note(HELD[1]),
                    ChainBody::Retract(_) | ChainBody::Transfer(_) | ChainBody::Watch(_) => {}
                }
            }
            for effect in effects {
                if let matching::Effect::Transfer(TransferStage::Confirmed, transfer) = effect
                    && held.remove(&transfer.observation.payment())
                {
                    self.note(HELD[0]);
                }
            }
        }
    }

    fn note_returns(&mut self, delivered: &[Delivered]) {
        let mut transfers: HashMap<PaymentKey, Seen> = HashMap::new();
        for delivered in delivered {
            let Delivered::Lane(input, effects) = delivered else { continue };
            match input {
                matching::Input::Chain(record) => match record.body {
                    ChainBody::Retract(seen) => {
                        self.note_move(&mut transfers, seen.payment(), None)
                    }
                    ChainBody::Transfer(seen) => {
                        self.note_move(
                            &mut transfers,
                            seen.payment(),
                            Some(record.block.timestamp),
                        );
                    }
                    ChainBody::Head(_) | ChainBody::Watch(_) => {}
                },
                matching::Input::Command(command) => self.note_answer(&mut transfers, command),
            }
            effects.iter().for_each(|effect| note_transfer(&mut transfers, effect));
        }
    }

    /// Notes that the block of a payment was orphaned (`None`), or that the payment is in a block of this time.
    fn note_move(
        &mut self,
        transfers: &mut HashMap<PaymentKey, Seen>,
        payment: PaymentKey,
        block: Option<UnixSeconds>,
    ) {
        let Some(seen) = transfers.get_mut(&payment) else { return };
        let is_gone = block.is_none();
        if seen.is_gone != is_gone {
            let what = seen.what(if is_gone { "gone" } else { "back" });
            self.note(&what);
            if block.is_some_and(|at| seen.at.plus(DAY) < at) {
                self.note(&format!("{what}, a day later"));
            }
        }
        seen.is_gone = is_gone;
    }

    fn note_answer(&mut self, transfers: &mut HashMap<PaymentKey, Seen>, command: &DepositCommand) {
        let (id, what) = match command.body {
            DepositCommandBody::Settled { transfer_id } => (transfer_id, "settled"),
            DepositCommandBody::Refused { transfer_id, .. } => (transfer_id, "refused"),
            _ => return,
        };
        for seen in transfers.values_mut().filter(|seen| seen.id == id) {
            if seen.counted_on == Some(command.order_id) {
                self.note(&seen.what(what));
            }
            (seen.asks, seen.counted_on) = (None, None);
        }
    }
}

fn note_transfer(transfers: &mut HashMap<PaymentKey, Seen>, effect: &matching::Effect) {
    match effect {
        matching::Effect::Transfer(_, transfer) => {
            let new = || Seen::new(transfer);
            let seen = transfers.entry(transfer.observation.payment()).or_insert_with(new);
            if seen.id != transfer.transfer_id {
                *seen = new();
            }
            if seen.status != transfer.status {
                (seen.status, seen.at) = (transfer.status, transfer.updated_at.seconds());
            }
            if seen.status == TransferStatus::FailedToConfirm {
                seen.counted_on = seen.asks.take().or(seen.counted_on);
            }
        }
        matching::Effect::Command(command) => {
            let OrderCommandBody::Settle(settle) = &command.body else { return };
            let asking = transfers.values_mut().filter(|seen| seen.id == settle.transfer_id);
            asking.for_each(|seen| seen.asks = Some(command.order_id));
        }
        _ => {}
    }
}

/// `true` if an order requests a payment's outcome.
fn is_candidate(input: &matching::Input) -> bool {
    use DepositCommandBody::Candidate;
    matches!(input, matching::Input::Command(question) if matches!(question.body, Candidate { .. }))
}

/// `true` if this command restored a forgotten order.
fn is_remembered(command: &OrderCommand, order: &Order) -> bool {
    use OrderCommandBody as Body;
    let (Body::MarkPaid(Some(row)) | Body::ResendWebhook(Some(row))) = &command.body else {
        return false;
    };
    let ended_at = row.updated_at.seconds();
    row.version + 1 == order.version && ended_at.plus(8 * DAY) < command.issued_at.seconds()
}
