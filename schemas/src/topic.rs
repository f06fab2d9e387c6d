//! Every topic, in one table: name, key, partitions, retention, record type; its purpose, and the stages that
//! write it and that read it.

mod delay;

pub use delay::{DeferLevel, RetryLevel};

use crate::vocabulary::vocabulary;
use crate::{Blockchain, Layout, Partition, SchemaName};

/// Retention of a week: longer than any expected outage.
const WEEK: Cleanup = Cleanup::Delete { hours: 7 * 24 };
/// Retention of a quarter, for records that matter for money.
const QUARTER: Cleanup = Cleanup::Delete { hours: 91 * 24 };

const ORDER: &str = "order_id";
const WALLET: &str = "wallet address";
const PARTITION: &str = "partition";
const EVENT: &str = "order_id or transfer_id";

vocabulary! {
    /// A part of the pipeline that can run as a process of its own.
    Stage {
        Ingest = "ingest",
        Processor = "processor",
        Projector = "projector",
        Api = "api",
        Webhooks = "webhooks",
    }
}

/// A topic as documents describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guide {
    pub summary: &'static str,
    /// The key in words.
    pub key: &'static str,
    pub writers: &'static [Stage],
    pub readers: &'static [Stage],
    /// `true` if the topic is meant for readers outside. Internal topics are readable too, but a later version may
    /// stop writing them.
    pub is_public: bool,
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
    /// Seconds from when a record is written until it is due, by the clock of its writer; 0 for most.
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

/// Declares the topics. Each has its row, then whether it is for readers outside, its key in words, the stages
/// that write it and those that read it, and what its records are for.
macro_rules! topics {
    ($(
        $topic:ident$(($level:ident: $levels:ident))?: $row:expr,
        $visibility:ident $key:expr, [$($writer:ident)*] -> [$($reader:ident)*], $summary:literal;
    )+) => {
        /// A topic of the log. [`Topic::guide`] describes each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Topic { $($topic$(($levels))?,)+ }

        impl Topic {
            /// Its row in the table of topics: name, key, schema, retention.
            #[must_use]
            pub const fn spec(self) -> TopicSpec {
                use KeyKind::{Chain, Event, Lane, Order, Single};
                use {Cleanup::Compact, SchemaName as S, TopicSpec as Row};
                match self { $(Self::$topic$(($level))? => $row,)+ }
            }

            /// Returns the guide for readers of the topic.
            #[must_use]
            pub const fn guide(self) -> Guide {
                match self {
                    $(Self::$topic { .. } => Guide {
                        summary: $summary,
                        key: $key,
                        writers: &[$(Stage::$writer),*],
                        readers: &[$(Stage::$reader),*],
                        is_public: topics!($visibility),
                    },)+
                }
            }
        }
    };
    (public) => { true };
    (internal) => { false };
}

topics! {
    TransfersRaw: Row::of("transfers.raw", Lane, S::ChainRecord, "tidemark.chain_record"),
        public "blockchain/block hash/transaction/payment; the blockchain for heads and watches",
        [Ingest] -> [Ingest Processor Api],
        "What the chains show: transfers to configured wallets, retracts of orphaned ones, \
         heads up to which a chain is scanned without a gap, and what is watched.";
    OrdersCommands: Row::of("orders.commands", Order, S::OrderCommand, "tidemark.order_command"),
        internal ORDER, [Api Processor] -> [Processor Api],
        "What is asked of orders, by merchants, customers, operators and matching.";
    DepositsCommands:
        Row::of("deposits.commands", Lane, S::DepositCommand, "tidemark.deposit_command"),
        internal WALLET, [Api Processor] -> [Processor Api],
        "What is asked of matching: by orders to open and close deposits, with answers about transfers, and by operators \
         to attach a transfer to an order, and to stop payments and end that.";
    Orders: Row::of("orders", Order, S::Order, "tidemark.order"),
        public ORDER, [Processor] -> [Projector Webhooks Api],
        "The whole order after each change.";
    Deposits: Row::of("deposits", Lane, S::Deposit, "tidemark.deposit"),
        public WALLET, [Processor] -> [Projector Api],
        "The whole deposit after each change: what a customer is expected to pay, where.";
    TransfersDetected:
        Row::of("transfers.detected", Lane, S::Transfer, "tidemark.transfer.detected"),
        public WALLET, [Processor] -> [Projector Api],
        "A transfer was seen, or seen again in another block. It may still be orphaned.";
    TransfersConfirmed:
        Row::of("transfers.confirmed", Lane, S::Transfer, "tidemark.transfer.confirmed"),
        public WALLET, [Processor] -> [Projector Api],
        "A transfer reached the confirmation policy of its chain.";
    TransfersMatched: Row::of("transfers.matched", Lane, S::Transfer, "tidemark.transfer.matched"),
        public WALLET, [Processor] -> [Projector Api],
        "A confirmed transfer paid an order. Final.";
    TransfersUnknown: Row::of("transfers.unknown", Lane, S::Transfer, "tidemark.transfer.unknown"),
        public WALLET, [Processor] -> [Projector Webhooks Api],
        "A confirmed transfer pays no order, with the reason. Final, unless an operator attaches it to one.";
    TransfersFailed: Row::of("transfers.failed", Lane, S::Transfer, "tidemark.transfer.failed"),
        public WALLET, [Processor] -> [Projector Api],
        "A transfer was orphaned before it was confirmed, and did not come back in time.";
    MatchingChangelog:
        Row::of(
            "processor.matching.changelog", Lane, S::MatchingEntry, "tidemark.processor.matching",
        ).kept(Compact),
        internal "lane, d/deposit_id, t/transfer_id or w/wallet", [Processor] -> [Processor],
        "The state of matching, to restore it from.";
    OrdersChangelog:
        Row::of("processor.orders.changelog", Order, S::OrdersEntry, "tidemark.processor.orders")
            .kept(Compact),
        internal ORDER, [Processor] -> [Processor],
        "The state of orders, to restore it from.";
    MatchingSteps: Row::steps("processor.matching.steps", Lane),
        internal PARTITION, [Processor] -> [],
        "Which inputs each step of matching took, in their order: what `tidemark replay` repeats.";
    OrdersSteps: Row::steps("processor.orders.steps", Order),
        internal PARTITION, [Processor] -> [],
        "Which inputs each step of orders took, in their order: what `tidemark replay` repeats.";
    WebhooksDispatch: Row::delivery("webhooks.dispatch", 0),
        internal EVENT, [Webhooks Api] -> [Webhooks Api],
        "Webhooks to attempt now.";
    WebhooksRetry(level: RetryLevel): Row::delivery(level.as_str(), level.delay_seconds()),
        internal EVENT, [Webhooks Api] -> [Webhooks Api],
        "Webhooks to attempt again after this delay.";
    WebhooksDefer(level: DeferLevel): Row::delivery(level.as_str(), level.delay_seconds()),
        internal EVENT, [Webhooks Api] -> [Webhooks Api],
        "Webhooks put off by this delay because their receiver is busy: not an attempt.";
    WebhooksChangelog:
        Row::of("webhooks.changelog", Event, S::WebhookEntry, "tidemark.webhook.entry")
            .kept(Compact),
        internal ORDER, [Webhooks] -> [Webhooks],
        "The newest event of each order that had an earlier one: what is older is not sent after it.";
    WebhooksAttempts: Row::of("webhooks.attempts", Event, S::Attempt, "tidemark.webhook.attempt"),
        public EVENT, [Webhooks] -> [Projector Api],
        "Every attempt to deliver a webhook, and how it ended; and those that are not made any more.";
    WebhooksDead: Row::of("webhooks.dead", Event, S::Delivery, "tidemark.webhook.delivery"),
        public EVENT, [Webhooks] -> [Api],
        "Webhooks that were given up: no attempt is left, the URL is refused, or its host was down for a day.";
    Chains: Row::of("chains", Chain, S::ChainProgress, "tidemark.chain_progress").kept(Compact),
        public "blockchain; blockchain/partition for lanes",
        [Ingest Processor] -> [Ingest Processor Projector],
        "How far each chain is scanned, confirmed and final, and what is watched on it; and how far the \
         processor is with each of its lanes.";
    Alerts: Row::of("alerts", Single, S::Alert, "tidemark.alert"),
        public "blockchain, the host of a receiver, or a topic",
        [Ingest Processor Webhooks Api] -> [Ingest Webhooks Api],
        "What needs an operator, and its end: the newest record of each `alert_id` counts.";
    Audit: Row::of("audit", Single, S::AuditEntry, "tidemark.audit_entry"),
        public "name of the admin secret", [Api] -> [Api],
        "What operators asked for by the Admin API, each before it was done.";
    DeadLetters: Row::of("dead-letters", Single, S::DeadLetter, "tidemark.dead_letter"),
        public "topic/partition of the record", [Processor Projector Webhooks] -> [Webhooks Api],
        "Records that a stage could not process, with reason and origin.";
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

    /// Its name without the prefix of an installation.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The topics that a stage reads, in the order of [`Topic::ALL`].
    pub fn read_by(stage: Stage) -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(move |topic| topic.guide().readers.contains(&stage))
    }

    /// The topics that a stage writes, in the order of [`Topic::ALL`].
    pub fn written_by(stage: Stage) -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(move |topic| topic.guide().writers.contains(&stage))
    }

    /// The topic of this name, without the prefix of an installation.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// The subject of its values in a schema registry (TopicNameStrategy), in an installation whose
    /// topics have this prefix.
    #[must_use]
    pub fn subject(self, prefix: &str) -> String {
        format!("{prefix}{}-value", self.name())
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
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_legal_for_kafka() {
        let names: HashSet<_> = Topic::ALL.iter().map(|t| t.name()).collect();
        assert_eq!(names.len(), Topic::ALL.len());
        for name in names {
            let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            assert!(name.bytes().all(is_legal), "{name}");
        }
    }

    #[test]
    fn inputs_of_matching_are_co_partitioned() {
        let layout = Layout { lanes: 3, orders: 5, webhooks: 2 };
        for topic in [Topic::DepositsCommands, Topic::Deposits, Topic::MatchingChangelog] {
            assert_eq!(topic.partitions(&layout), Topic::TransfersRaw.partitions(&layout));
        }
    }

    #[test]
    fn names_lead_to_their_topics() {
        for topic in Topic::ALL {
            assert_eq!(Topic::named(topic.name()), Some(topic));
            assert_eq!(topic.subject("shop."), format!("shop.{topic}-value"));
            assert!(topic.guide().summary.ends_with('.'), "{topic}");
        }
        assert_eq!(Topic::named("order"), None);
    }
}
