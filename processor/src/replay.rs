//! Filters for records that machines write: a replay compares these.

use log::Record;
use schemas::record::{Alert, Author, ChainProgress, DeadLetter, DepositCommand, OrderCommand};
use schemas::{AlertKind, AlertState, Topic};

use crate::machine::{matching, orders};
use crate::wire::Wire;

/// `true` if a machine writes such a record to a topic of its outputs. Others write there too: the API and due timers
/// command orders and lanes, ingest writes its progress, and others write alerts and dead letters of their own. An
/// unreadable record counts as a machine's, except on `orders.commands`.
#[must_use]
pub fn is_output(record: &Record) -> bool {
    match record.from.topic {
        Topic::Chains => decoded(record).is_none_or(|of: ChainProgress| of.lane.is_some()),
        Topic::DepositsCommands => decoded(record)
            .is_none_or(|command: DepositCommand| command.body.author() == Author::Machine),
        Topic::OrdersCommands => decoded(record)
            .is_some_and(|command: OrderCommand| command.body.author() == Author::Machine),
        Topic::Alerts => decoded(record).is_none_or(|alert: Alert| is_of_machine(alert.kind)),
        Topic::DeadLetters => decoded(record).is_none_or(|letter: DeadLetter| {
            [matching::State::GROUP, orders::State::GROUP].contains(&letter.group.as_str())
        }),
        Topic::Orders
        | Topic::Deposits
        | Topic::TransfersDetected
        | Topic::TransfersConfirmed
        | Topic::TransfersMatched
        | Topic::TransfersUnknown
        | Topic::TransfersFailed
        | Topic::MatchingChangelog
        | Topic::OrdersChangelog
        | Topic::MatchingSteps
        | Topic::OrdersSteps => true,
        Topic::TransfersRaw
        | Topic::WebhooksDispatch
        | Topic::WebhooksRetry(_)
        | Topic::WebhooksDefer(_)
        | Topic::WebhooksChangelog
        | Topic::WebhooksAttempts
        | Topic::WebhooksDead
        | Topic::Audit => false,
    }
}

/// `true` if not only machines write such a record: operators resolve alerts too.
#[must_use]
pub fn is_shared(record: &Record) -> bool {
    let is_end = |alert: Alert| alert.state == AlertState::Resolved;
    record.from.topic == Topic::Alerts && decoded(record).is_some_and(is_end)
}

fn is_of_machine(kind: AlertKind) -> bool {
    match kind {
        AlertKind::ConfirmedTransferRetracted
        | AlertKind::StaleTransfer
        | AlertKind::AmountsTaken
        | AlertKind::HeadWentBack
        | AlertKind::HeadTooFar
        | AlertKind::PaymentsStopped => true,
        AlertKind::EndpointFailing
        | AlertKind::ChainHalted
        | AlertKind::LateFind
        | AlertKind::ForgedTransfer
        | AlertKind::DisputedTransfer
        | AlertKind::ConfirmingAlone
        | AlertKind::PrunedHistory
        | AlertKind::Restored
        | AlertKind::DeadLetter
        | AlertKind::DeadWebhook => false,
    }
}

fn decoded<R: schemas::record::Record>(record: &Record) -> Option<R> {
    schemas::decode(record.value.as_deref()?).ok()
}
