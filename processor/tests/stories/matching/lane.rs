//! The matching machine as the stories use it.

use std::fmt::Display;

use schemas::record::{
    ChainBody, ChainProgress, ChainRecord, Deposit, DepositCommandBody, MatchingEntry,
    OrderCommand, OrderCommandBody, Transfer,
};
use schemas::{
    AlertKind, AlertState, Blockchain, DepositState, Epoch, Partition, TransferStatus, UnixMicros,
};
use tidemark_processor::machine::Machine;
use tidemark_processor::machine::matching::{Effect, Input, State, TransferStage};

use crate::chain::{head, watch};
use crate::name::{CONTRACT, letter};
use crate::story::{Described, Id, Numbers, Story, decide};

/// A story of one lane of Ethereum.
pub(crate) type Lane = Story<State>;

impl Described for State {
    /// Wallets 1 to 3 are watched, and the chain is scanned up to block 100.
    fn fresh() -> Self {
        let mut lane = Self::new(Blockchain::Eth, Partition(0));
        for wallet in 1..=3 {
            decide(&mut lane, &watch(100, wallet, CONTRACT));
        }
        decide(&mut lane, &head(100).into());
        lane.commit();
        lane
    }

    fn number(effect: &Effect, numbers: &mut Numbers) {
        match effect {
            Effect::Transfer(_, transfer) => {
                numbers.give(Id::Transfer(transfer.transfer_id));
                transfer
                    .fulfillment_id
                    .into_iter()
                    .for_each(|id| numbers.give(Id::Fulfillment(id)));
            }
            Effect::Deposit(deposit) => numbers.give(Id::Deposit(deposit.deposit_id)),
            Effect::Command(_) | Effect::Alert(_) | Effect::Progress(_) => {}
        }
    }

    fn translated(mut input: Input, numbers: &Numbers) -> Input {
        if let Input::Command(command) = &mut input {
            use DepositCommandBody as Body;
            match &mut command.body {
                Body::Candidate { transfer_id }
                | Body::Settled { transfer_id }
                | Body::Refused { transfer_id, .. }
                | Body::Attached { transfer_id }
                | Body::AttachRefused { transfer_id } => {
                    *transfer_id = numbers.transfer(transfer_id.0);
                }
                _ => {}
            }
        }
        input
    }

    fn line(effect: &Effect, numbers: &Numbers) -> String {
        match effect {
            Effect::Transfer(stage, transfer) => transfer_words(*stage, transfer, numbers),
            Effect::Deposit(deposit) => deposit_words(deposit, numbers),
            Effect::Command(command) => command_words(command, numbers),
            Effect::Alert(alert) => {
                let number = |id| format!(" #{}", numbers.of(Id::Transfer(id)));
                let transfer = alert.transfer_id.map_or(String::new(), number);
                let order = alert.order_id.map_or(String::new(), |id| format!(" {}", letter(id)));
                let what = if alert.state == AlertState::Raised { "alert" } else { "resolved" };
                format!("{what} {}{transfer}{order}", alert.kind)
            }
            Effect::Progress(_) => String::new(),
        }
    }

    /// `true` for effects that a repeated input may have again: the reply to a command, and alerts about an ignored
    /// input, of which the state keeps nothing.
    fn may_repeat(duplicate: &Input, effect: &Effect) -> bool {
        match effect {
            Effect::Command(command) => {
                use OrderCommandBody as Body;
                let answers = matches!(
                    command.body,
                    Body::DepositRefused { .. }
                        | Body::DepositOpened { .. }
                        | Body::DepositClosed { .. }
                        | Body::CandidateSeen { .. }
                        | Body::CandidateGone { .. }
                        | Body::Attach(..)
                        | Body::AttachRefused(_)
                );
                use DepositCommandBody::{Attach, Candidate, Close, Open};
                answers
                    && matches!(duplicate, Input::Command(question)
                        if matches!(question.body, Open(_) | Close { .. } | Candidate { .. } | Attach(_)))
            }
            Effect::Alert(alert) => {
                use AlertKind as Kind;
                use DepositCommandBody::{Attached, Settled};
                // Two orders that count on one transfer are reported at each acceptance.
                let is_answer = matches!(duplicate, Input::Command(answer)
                    if matches!(answer.body, Attached { .. } | Settled { .. }));
                (is_answer && alert.kind == Kind::ConfirmedTransferRetracted)
                    || matches!(
                        alert.kind,
                        Kind::StaleTransfer
                            | Kind::AmountsTaken
                            | Kind::HeadWentBack
                            | Kind::HeadTooFar
                    )
            }
            Effect::Transfer(..) | Effect::Deposit(_) | Effect::Progress(_) => false,
        }
    }

    /// Inputs that ingest may write again: all but the last head, which would confirm transfers that came after it.
    fn repeatable(inputs: &[Input]) -> Vec<Input> {
        let place = |record: &ChainRecord| (record.epoch, record.block.number);
        let mut last = (Epoch(-1), -1);
        for input in inputs {
            if let Input::Chain(record) = input
                && matches!(record.body, ChainBody::Head(_))
            {
                last = last.max(place(record));
            }
        }
        let is_old = |input: &&Input| match input {
            Input::Chain(record) => match record.body {
                ChainBody::Head(_) => place(record) < last,
                ChainBody::Transfer(_) | ChainBody::Retract(_) | ChainBody::Watch(_) => true,
            },
            Input::Command(_) => false,
        };
        inputs.iter().filter(is_old).cloned().collect()
    }

    /// State without the times of the last ignored heads, which a repeated old head changes.
    fn essence(&self) -> Vec<(String, MatchingEntry)> {
        let mut entries = self.snapshot();
        for (_, entry) in &mut entries {
            if let MatchingEntry::Lane(lane) = entry {
                (lane.went_back_at, lane.too_far_at) = (None, None);
            }
        }
        entries
    }

    fn version(effect: &Effect) -> Option<(String, UnixMicros)> {
        match effect {
            Effect::Transfer(_, transfer) => {
                Some((format!("transfer {}", transfer.transfer_id), transfer.updated_at))
            }
            Effect::Deposit(deposit) => {
                Some((format!("deposit {}", deposit.deposit_id), deposit.updated_at))
            }
            Effect::Progress(progress) => Some(("progress".to_owned(), progress.updated_at)),
            Effect::Command(_) | Effect::Alert(_) => None,
        }
    }
}

/// Progress record that the lane publishes at this input.
pub(crate) fn progress(state: &mut State, input: impl Into<Input>) -> Option<ChainProgress> {
    let effects = decide(state, &input.into());
    state.commit();
    effects.into_iter().find_map(|effect| match effect {
        Effect::Progress(progress) => Some(progress),
        Effect::Transfer(..) | Effect::Deposit(_) | Effect::Command(_) | Effect::Alert(_) => None,
    })
}

/// A transfer as the tables show it.
pub(crate) fn transfer_row(lane: &Lane, number: i64) -> Transfer {
    let id = lane.numbers().transfer(number);
    let of = |effect: &Effect| match effect {
        Effect::Transfer(_, transfer) => (transfer.transfer_id == id).then(|| transfer.clone()),
        Effect::Deposit(_) | Effect::Command(_) | Effect::Alert(_) | Effect::Progress(_) => None,
    };
    lane.published().iter().rev().find_map(of).unwrap()
}

/// Effects of a deposit `id` that the order gets in slot 0, with this amount.
pub(super) fn gets(order_letter: char, id: i64, value: &str) -> String {
    format!(
        "deposit #{id} open {value} for {order_letter}/0; to {order_letter}: opened /0 #{id} {value}"
    )
}

/// Effects of the close of the order's deposit `id` in slot 0.
pub(super) fn ends(order_letter: char, id: i64, reason: impl Display) -> String {
    format!("deposit #{id} {reason} for {order_letter}/0; to {order_letter}: closed /0 {reason}")
}

/// Status that a transfer has where a stage usually publishes it. Stories show the status only if it is another one.
fn usual_status(stage: TransferStage) -> TransferStatus {
    match stage {
        TransferStage::Detected => TransferStatus::WaitingForConfirmation,
        TransferStage::Confirmed => TransferStatus::WaitingForMatch,
        TransferStage::Matched => TransferStatus::Matched,
        TransferStage::Unknown => TransferStatus::NoMatchedDeposit,
        TransferStage::Failed => TransferStatus::FailedToConfirm,
    }
}

fn transfer_words(stage: TransferStage, transfer: &Transfer, numbers: &Numbers) -> String {
    let confirmed = !matches!(
        transfer.status,
        TransferStatus::WaitingForConfirmation | TransferStatus::FailedToConfirm
    );
    assert_eq!(transfer.blockchain_confirmed, confirmed, "confirmed or not, in both fields");
    assert_eq!(transfer.value_text, transfer.observation.value.to_string());
    assert_eq!(transfer.blockchain, Blockchain::Eth);
    let number = numbers.of(Id::Transfer(transfer.transfer_id));
    let mut words = format!("{stage:?} #{number}").to_lowercase();
    if transfer.status != usual_status(stage) {
        words.push_str(&format!(" {}", transfer.status));
    }
    words.push_str(&format!(" @{}", transfer.block.number));
    if let Some(deposit) = transfer.deposit_id {
        words.push_str(&format!(" for #{}", numbers.of(Id::Deposit(deposit))));
    }
    if let Some(order) = transfer.order_id {
        words.push_str(&format!(" paid {}", letter(order)));
    }
    if let Some(fulfillment) = transfer.fulfillment_id {
        words.push_str(&format!(" by #{}", numbers.of(Id::Fulfillment(fulfillment))));
    }
    if let Some(reason) = transfer.reason {
        words.push_str(&format!(" {reason}"));
    }
    if let Some(order) = transfer.candidate_order_id {
        words.push_str(&format!(" maybe {}", letter(order)));
    }
    if transfer.orphaned_at.is_some() {
        words.push_str(" orphaned");
    }
    words
}

fn deposit_words(deposit: &Deposit, numbers: &Numbers) -> String {
    assert_eq!(deposit.value_text, deposit.value.to_string());
    let is_closed = deposit.close_reason.is_some();
    let usual_state = if is_closed { DepositState::Closed } else { DepositState::Open };
    assert_eq!(deposit.state, usual_state);
    let opened = format!("open {}", deposit.value_text);
    let what = deposit.close_reason.map_or(opened, |why| why.to_string());
    let id = numbers.of(Id::Deposit(deposit.deposit_id));
    format!("deposit #{id} {what} for {}/{}", letter(deposit.order_id), deposit.slot)
}

fn command_words(command: &OrderCommand, numbers: &Numbers) -> String {
    use OrderCommandBody as Body;
    let transfer = |id| numbers.of(Id::Transfer(id));
    let deposit = |id| numbers.of(Id::Deposit(id));
    let is_operators = matches!(command.body, Body::Attach(..) | Body::AttachRefused(_));
    assert!(command.command_id.is_none() || is_operators, "only `attach` has a command id");
    let what = match &command.body {
        Body::DepositOpened { slot, deposit_id, value } => {
            format!("opened /{slot} #{} {value}", deposit(*deposit_id))
        }
        Body::DepositRefused { slot, reason, .. } => format!("refused /{slot} {reason}"),
        Body::DepositClosed { slot, reason } => format!("closed /{slot} {reason}"),
        Body::CandidateSeen { transfer_id } => format!("seen #{}", transfer(*transfer_id)),
        Body::CandidateGone { transfer_id } => format!("gone #{}", transfer(*transfer_id)),
        Body::Settle(settle) => {
            let late = if settle.accepts_late { " late too" } else { "" };
            let (transfer, deposit) = (transfer(settle.transfer_id), deposit(settle.deposit_id));
            format!("settle #{transfer} /{} #{deposit}{late}", settle.slot)
        }
        Body::Attach(attach, None) => {
            let by =
                command.command_id.map_or(String::new(), |id| format!(" by {}", id.0.as_u128()));
            format!("attach #{} {}{by}", transfer(attach.transfer_id), attach.value)
        }
        Body::AttachRefused(None) => "attach refused".to_owned(),
        other => format!("{other:?}"),
    };
    format!("to {}: {what}", letter(command.order_id))
}
