//! Every topic, in one table: name, key, partitions, what is kept, which record it carries.

mod guide;

pub use guide::Guide;

use crate::{Layout, Partition, SchemaName};

/// Delays of the webhook retry topics in seconds: after failed attempt n, the n-th one (spec 6.3.3,
/// counted as `docs/decisions/0002` says).
pub const RETRY_DELAYS_SECONDS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const RETRY_NAMES: [&str; 11] = [
    "webhooks.retry.1s",
    "webhooks.retry.2s",
    "webhooks.retry.4s",
    "webhooks.retry.8s",
    "webhooks.retry.16s",
    "webhooks.retry.32s",
    "webhooks.retry.64s",
    "webhooks.retry.128s",
    "webhooks.retry.256s",
    "webhooks.retry.512s",
    "webhooks.retry.1024s",
];

/// Delays of the topics for webhooks whose receiver is busy, in seconds: the first time, and every
/// further time.
const DEFER_DELAYS_SECONDS: [u32; 2] = [5, 60];
const DEFER_NAMES: [&str; 2] = ["webhooks.defer.5s", "webhooks.defer.60s"];

/// A topic of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// What ingest saw: transfers, retracts, heads.
    TransfersRaw,
    /// Commands to the orders machine.
    OrdersCommands,
    /// Commands to the matching machine.
    DepositsCommands,
    /// An order after each change.
    Orders,
    /// A deposit after each change.
    Deposits,
    /// A transfer was seen, or seen again in another block.
    TransfersDetected,
    /// A transfer reached the confirmation policy.
    TransfersConfirmed,
    /// A transfer paid an order.
    TransfersMatched,
    /// A confirmed transfer pays nothing; the reason is in the record.
    TransfersUnknown,
    /// A transfer was orphaned and did not come back.
    TransfersFailed,
    /// State of the matching machine.
    MatchingChangelog,
    /// State of the orders machine.
    OrdersChangelog,
    /// Webhooks to attempt now.
    WebhooksDispatch,
    /// Webhooks to attempt after a failed attempt; the index into [`RETRY_DELAYS_SECONDS`].
    WebhooksRetry(u8),
    /// Webhooks put off because their receiver is busy, which is not an attempt: 0 for the first
    /// time (5 seconds), 1 for every further time (60 seconds).
    WebhooksDefer(u8),
    /// Every attempt that was made.
    WebhooksAttempts,
    /// Webhooks whose automatic attempts are used up.
    WebhooksDead,
    /// How far each chain is scanned.
    Chains,
    /// What an operator must look at.
    Alerts,
    /// Records that could not be processed, with reason and origin.
    DeadLetters,
}

/// What keys a topic's records, and so which partition they are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// The wallet's lane of its chain, given explicitly.
    Lane,
    /// The order's id, hashed.
    Order,
    /// The order's or transfer's id, hashed.
    Event,
    /// The chain, one partition each.
    Chain,
    /// One partition.
    Single,
}

/// What a topic forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    /// Records older than this many hours.
    Delete {
        /// Retention.
        hours: u32,
    },
    /// All but the last record of each key; an empty value removes the key.
    Compact,
}

/// One row of the topic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicSpec {
    /// Name on the broker.
    pub name: &'static str,
    /// Key.
    pub key: KeyKind,
    /// Cleanup.
    pub cleanup: Cleanup,
    /// The Avro record of its values; subject `<name>-value`.
    pub schema: SchemaName,
    /// CloudEvents type.
    pub event_type: &'static str,
    /// Seconds a record waits before it is due, counted from its append time; 0 for most.
    pub delay_seconds: u32,
}

const fn spec(
    name: &'static str,
    key: KeyKind,
    cleanup: Cleanup,
    schema: SchemaName,
    event_type: &'static str,
) -> TopicSpec {
    TopicSpec { name, key, cleanup, schema, event_type, delay_seconds: 0 }
}

const fn delayed(spec: TopicSpec, delay_seconds: u32) -> TopicSpec {
    TopicSpec { delay_seconds, ..spec }
}

/// A week: longer than any outage that is not a catastrophe.
const WEEK: Cleanup = Cleanup::Delete { hours: 7 * 24 };
/// Facts about money stay for a quarter.
const QUARTER: Cleanup = Cleanup::Delete { hours: 91 * 24 };

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 31] = [
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
        Self::WebhooksDispatch,
        Self::WebhooksRetry(0),
        Self::WebhooksRetry(1),
        Self::WebhooksRetry(2),
        Self::WebhooksRetry(3),
        Self::WebhooksRetry(4),
        Self::WebhooksRetry(5),
        Self::WebhooksRetry(6),
        Self::WebhooksRetry(7),
        Self::WebhooksRetry(8),
        Self::WebhooksRetry(9),
        Self::WebhooksRetry(10),
        Self::WebhooksDefer(0),
        Self::WebhooksDefer(1),
        Self::WebhooksAttempts,
        Self::WebhooksDead,
        Self::Chains,
        Self::Alerts,
        Self::DeadLetters,
    ];

    /// The row of this topic.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table, one row for each topic")]
    pub const fn spec(self) -> TopicSpec {
        use KeyKind::{Chain, Event, Lane, Order, Single};
        use SchemaName as S;
        match self {
            Self::TransfersRaw => {
                spec("transfers.raw", Lane, QUARTER, S::ChainRecord, "tidemark.chain_record")
            }
            Self::OrdersCommands => {
                spec("orders.commands", Order, QUARTER, S::OrderCommand, "tidemark.order_command")
            }
            Self::DepositsCommands => spec(
                "deposits.commands",
                Lane,
                QUARTER,
                S::DepositCommand,
                "tidemark.deposit_command",
            ),
            Self::Orders => spec("orders", Order, QUARTER, S::Order, "tidemark.order"),
            Self::Deposits => spec("deposits", Lane, QUARTER, S::Deposit, "tidemark.deposit"),
            Self::TransfersDetected => {
                spec("transfers.detected", Lane, QUARTER, S::Transfer, "tidemark.transfer.detected")
            }
            Self::TransfersConfirmed => spec(
                "transfers.confirmed",
                Lane,
                QUARTER,
                S::Transfer,
                "tidemark.transfer.confirmed",
            ),
            Self::TransfersMatched => {
                spec("transfers.matched", Lane, QUARTER, S::Transfer, "tidemark.transfer.matched")
            }
            Self::TransfersUnknown => {
                spec("transfers.unknown", Lane, QUARTER, S::Transfer, "tidemark.transfer.unknown")
            }
            Self::TransfersFailed => {
                spec("transfers.failed", Lane, QUARTER, S::Transfer, "tidemark.transfer.failed")
            }
            Self::MatchingChangelog => spec(
                "processor.matching.changelog",
                Lane,
                Cleanup::Compact,
                S::MatchingEntry,
                "tidemark.processor.matching",
            ),
            Self::OrdersChangelog => spec(
                "processor.orders.changelog",
                Order,
                Cleanup::Compact,
                S::OrdersEntry,
                "tidemark.processor.orders",
            ),
            Self::WebhooksDispatch => {
                spec("webhooks.dispatch", Event, WEEK, S::Delivery, "tidemark.webhook.delivery")
            }
            Self::WebhooksRetry(level) => {
                let level = if level < 11 { level as usize } else { 10 };
                let row =
                    spec(RETRY_NAMES[level], Event, WEEK, S::Delivery, "tidemark.webhook.delivery");
                delayed(row, RETRY_DELAYS_SECONDS[level])
            }
            Self::WebhooksDefer(level) => {
                let level = if level < 2 { level as usize } else { 1 };
                let name = DEFER_NAMES[level];
                let row = spec(name, Event, WEEK, S::Delivery, "tidemark.webhook.delivery");
                delayed(row, DEFER_DELAYS_SECONDS[level])
            }
            Self::WebhooksAttempts => {
                spec("webhooks.attempts", Event, QUARTER, S::Attempt, "tidemark.webhook.attempt")
            }
            Self::WebhooksDead => {
                spec("webhooks.dead", Event, QUARTER, S::Delivery, "tidemark.webhook.delivery")
            }
            Self::Chains => {
                spec("chains", Chain, Cleanup::Compact, S::ChainProgress, "tidemark.chain_progress")
            }
            Self::Alerts => spec("alerts", Single, QUARTER, S::Alert, "tidemark.alert"),
            Self::DeadLetters => {
                spec("dead-letters", Single, QUARTER, S::DeadLetter, "tidemark.dead_letter")
            }
        }
    }

    /// Name on the broker.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// How many partitions the topic has in an installation. Never changed in place.
    #[must_use]
    pub fn partitions(self, layout: &Layout) -> u32 {
        let chains = u32::try_from(crate::Blockchain::ALL.len()).unwrap_or(u32::MAX);
        match self.spec().key {
            KeyKind::Lane => chains * layout.lanes,
            KeyKind::Order => layout.orders,
            KeyKind::Event => layout.webhooks,
            KeyKind::Chain => chains,
            KeyKind::Single => 1,
        }
    }

    /// All partitions of the topic in an installation.
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
    fn the_inputs_of_matching_and_its_changelog_are_co_partitioned() {
        let layout = Layout { lanes: 3, orders: 5, webhooks: 2 };
        for topic in [Topic::DepositsCommands, Topic::Deposits, Topic::MatchingChangelog] {
            assert_eq!(topic.partitions(&layout), Topic::TransfersRaw.partitions(&layout));
        }
    }

    #[test]
    fn retry_topics_double_from_one_second() {
        for (level, delay) in RETRY_DELAYS_SECONDS.iter().enumerate() {
            let spec = Topic::WebhooksRetry(u8::try_from(level).unwrap()).spec();
            assert_eq!(spec.delay_seconds, *delay);
            assert_eq!(*delay, 1 << level);
            assert_eq!(spec.name, format!("webhooks.retry.{delay}s"));
        }
    }

    #[test]
    fn defer_topics_wait_five_seconds_then_a_minute_and_keep_two_days() {
        for (level, delay) in [(0, 5), (1, 60)] {
            let topic = Topic::WebhooksDefer(level);
            let spec = topic.spec();
            assert!(Topic::ALL.contains(&topic));
            assert_eq!(spec.delay_seconds, delay);
            assert_eq!(spec.name, format!("webhooks.defer.{delay}s"));
            assert_eq!(spec.cleanup, Cleanup::Delete { hours: 7 * 24 });
        }
    }
}
