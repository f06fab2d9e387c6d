//! Every topic, in one table: name, key, partitions, retention, record type.

mod delay;
mod guide;

pub use delay::{DeferLevel, RetryLevel};
pub use guide::{Guide, Stage};

use crate::{Blockchain, Layout, Partition, SchemaName};

/// Retention of a week: longer than any expected outage.
const WEEK: Cleanup = Cleanup::Delete { hours: 7 * 24 };
/// Retention of a quarter, for records that matter for money.
const QUARTER: Cleanup = Cleanup::Delete { hours: 91 * 24 };

/// A topic of the log. [`Topic::guide`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    TransfersRaw,
    OrdersCommands,
    DepositsCommands,
    Orders,
    Deposits,
    TransfersDetected,
    TransfersConfirmed,
    TransfersMatched,
    TransfersUnknown,
    TransfersFailed,
    MatchingChangelog,
    OrdersChangelog,
    MatchingSteps,
    OrdersSteps,
    WebhooksDispatch,
    WebhooksRetry(RetryLevel),
    WebhooksDefer(DeferLevel),
    WebhooksChangelog,
    WebhooksAttempts,
    WebhooksDead,
    Chains,
    Alerts,
    Audit,
    DeadLetters,
}

/// Key of a topic's records, which decides their partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// The wallet's lane of its chain, given explicitly.
    Lane,
    /// The order's id, hashed.
    Order,
    /// The order's or transfer's id, hashed.
    Event,
    Chain,
    Single,
}

/// Cleanup policy of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    Delete {
        hours: u32,
    },
    /// Deletes all but the last record of each key; a tombstone removes the key.
    Compact,
}

/// One row of the topic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicSpec {
    pub name: &'static str,
    pub key: KeyKind,
    pub cleanup: Cleanup,
    /// The Avro record of its values; subject `<name>-value`.
    pub schema: SchemaName,
    pub event_type: &'static str,
    /// Seconds a record waits before it is due, counted from its append time; 0 for most.
    pub delay_seconds: u32,
}

impl TopicSpec {
    /// A row of the table: records are kept for a quarter, and due at once.
    const fn of(
        name: &'static str,
        key: KeyKind,
        schema: SchemaName,
        event_type: &'static str,
    ) -> Self {
        Self { name, key, cleanup: QUARTER, schema, event_type, delay_seconds: 0 }
    }

    /// A row for webhooks in flight, due after a delay.
    const fn delivery(name: &'static str, delay_seconds: u32) -> Self {
        let spec =
            Self::of(name, KeyKind::Event, SchemaName::Delivery, "tidemark.webhook.delivery");
        Self { delay_seconds, ..spec.kept(WEEK) }
    }

    /// A row for the inputs of a machine's steps.
    const fn steps(name: &'static str, key: KeyKind) -> Self {
        Self::of(name, key, SchemaName::ProcessorStep, "tidemark.processor.step")
    }

    const fn kept(self, cleanup: Cleanup) -> Self {
        Self { cleanup, ..self }
    }
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 36] = [
        Self::TransfersRaw,
        Self::OrdersCommands,
        Self::DepositsCommands,
        Self::Orders,
        Self::Deposits,
        Self::TransfersDetected,
        Self::TransfersConfirmed,
        Self::TransfersMatched,
        Self::TransfersUnknown,
        Self::TransfersFailed,
        Self::MatchingChangelog,
        Self::OrdersChangelog,
        Self::MatchingSteps,
        Self::OrdersSteps,
        Self::WebhooksDispatch,
        Self::WebhooksRetry(RetryLevel::ALL[0]),
        Self::WebhooksRetry(RetryLevel::ALL[1]),
        Self::WebhooksRetry(RetryLevel::ALL[2]),
        Self::WebhooksRetry(RetryLevel::ALL[3]),
        Self::WebhooksRetry(RetryLevel::ALL[4]),
        Self::WebhooksRetry(RetryLevel::ALL[5]),
        Self::WebhooksRetry(RetryLevel::ALL[6]),
        Self::WebhooksRetry(RetryLevel::ALL[7]),
        Self::WebhooksRetry(RetryLevel::ALL[8]),
        Self::WebhooksRetry(RetryLevel::ALL[9]),
        Self::WebhooksRetry(RetryLevel::ALL[10]),
        Self::WebhooksDefer(DeferLevel::First),
        Self::WebhooksDefer(DeferLevel::Second),
        Self::WebhooksDefer(DeferLevel::Further),
        Self::WebhooksChangelog,
        Self::WebhooksAttempts,
        Self::WebhooksDead,
        Self::Chains,
        Self::Alerts,
        Self::Audit,
        Self::DeadLetters,
    ];

    /// Its row in the table of topics: name, key, schema, retention.
    #[must_use]
    pub const fn spec(self) -> TopicSpec {
        use KeyKind::{Chain, Event, Lane, Order, Single};
        use {Cleanup::Compact, SchemaName as S, TopicSpec as Row};
        match self {
            Self::TransfersRaw => {
                Row::of("transfers.raw", Lane, S::ChainRecord, "tidemark.chain_record")
            }
            Self::OrdersCommands => {
                Row::of("orders.commands", Order, S::OrderCommand, "tidemark.order_command")
            }
            Self::DepositsCommands => {
                Row::of("deposits.commands", Lane, S::DepositCommand, "tidemark.deposit_command")
            }
            Self::Orders => Row::of("orders", Order, S::Order, "tidemark.order"),
            Self::Deposits => Row::of("deposits", Lane, S::Deposit, "tidemark.deposit"),
            Self::TransfersDetected => {
                Row::of("transfers.detected", Lane, S::Transfer, "tidemark.transfer.detected")
            }
            Self::TransfersConfirmed => {
                Row::of("transfers.confirmed", Lane, S::Transfer, "tidemark.transfer.confirmed")
            }
            Self::TransfersMatched => {
                Row::of("transfers.matched", Lane, S::Transfer, "tidemark.transfer.matched")
            }
            Self::TransfersUnknown => {
                Row::of("transfers.unknown", Lane, S::Transfer, "tidemark.transfer.unknown")
            }
            Self::TransfersFailed => {
                Row::of("transfers.failed", Lane, S::Transfer, "tidemark.transfer.failed")
            }
            Self::MatchingChangelog => Row::of(
                "processor.matching.changelog",
                Lane,
                S::MatchingEntry,
                "tidemark.processor.matching",
            )
            .kept(Compact),
            Self::OrdersChangelog => Row::of(
                "processor.orders.changelog",
                Order,
                S::OrdersEntry,
                "tidemark.processor.orders",
            )
            .kept(Compact),
            Self::MatchingSteps => Row::steps("processor.matching.steps", Lane),
            Self::OrdersSteps => Row::steps("processor.orders.steps", Order),
            Self::WebhooksDispatch => Row::delivery("webhooks.dispatch", 0),
            Self::WebhooksRetry(level) => Row::delivery(level.as_str(), level.delay_seconds()),
            Self::WebhooksDefer(level) => Row::delivery(level.as_str(), level.delay_seconds()),
            Self::WebhooksChangelog => {
                Row::of("webhooks.changelog", Event, S::WebhookEntry, "tidemark.webhook.entry")
                    .kept(Compact)
            }
            Self::WebhooksAttempts => {
                Row::of("webhooks.attempts", Event, S::Attempt, "tidemark.webhook.attempt")
            }
            Self::WebhooksDead => {
                Row::of("webhooks.dead", Event, S::Delivery, "tidemark.webhook.delivery")
            }
            Self::Chains => {
                Row::of("chains", Chain, S::ChainProgress, "tidemark.chain_progress").kept(Compact)
            }
            Self::Alerts => Row::of("alerts", Single, S::Alert, "tidemark.alert"),
            Self::Audit => Row::of("audit", Single, S::AuditEntry, "tidemark.audit_entry"),
            Self::DeadLetters => {
                Row::of("dead-letters", Single, S::DeadLetter, "tidemark.dead_letter")
            }
        }
    }

    /// Its name without the prefix of an installation.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Number of partitions of the topic in an installation. It grows only when chains are added,
    /// whose partitions come last.
    #[must_use]
    pub fn partitions(self, layout: &Layout) -> u32 {
        self.partitions_for(Blockchain::COUNT, layout)
    }

    /// Number of partitions of the topic if this many chains are known.
    #[must_use]
    pub fn partitions_for(self, chains: u32, layout: &Layout) -> u32 {
        match self.spec().key {
            KeyKind::Lane => chains * layout.lanes,
            KeyKind::Order => layout.orders,
            KeyKind::Event => layout.webhooks,
            KeyKind::Chain => chains,
            KeyKind::Single => 1,
        }
    }

    /// Its partitions in an installation with this layout.
    pub fn all_partitions(self, layout: &Layout) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions(layout)).map(Partition)
    }
}

impl std::fmt::Display for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_legal_for_kafka() {
        let names: HashSet<_> = Topic::ALL.iter().map(|t| t.name()).collect();
        assert_eq!(names.len(), Topic::ALL.len());
        for name in names {
            assert!(
                name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)),
                "{name}"
            );
        }
    }

    #[test]
    fn inputs_of_matching_are_co_partitioned() {
        let layout = Layout { lanes: 3, orders: 5, webhooks: 2 };
        for topic in [Topic::DepositsCommands, Topic::Deposits, Topic::MatchingChangelog] {
            assert_eq!(topic.partitions(&layout), Topic::TransfersRaw.partitions(&layout));
        }
    }
}
