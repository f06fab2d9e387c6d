//! Purpose of each topic, and the stages that write it and that read it.

use super::Topic;
use crate::vocabulary::vocabulary;

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

/// One row for each topic: its key in words, the stages that write it and those that read it, and what
/// its records are for.
macro_rules! guides {
    ($(
        $topic:ident$(($level:pat))?: $visibility:ident $key:expr,
        [$($writer:ident)*] -> [$($reader:ident)*], $summary:literal;
    )+) => {
        impl Topic {
            /// Returns the guide for readers of the topic.
            #[must_use]
            pub const fn guide(self) -> Guide {
                match self {
                    $(Self::$topic$(($level))? => Guide {
                        summary: $summary,
                        key: $key,
                        writers: &[$(Stage::$writer),*],
                        readers: &[$(Stage::$reader),*],
                        is_public: guides!($visibility),
                    },)+
                }
            }
        }
    };
    (public) => { true };
    (internal) => { false };
}

guides! {
    TransfersRaw: public "blockchain/block hash/transaction/payment; the blockchain for heads and watches",
        [Ingest] -> [Ingest Processor Api],
        "What the chains show: transfers to configured wallets, retracts of orphaned ones, \
         heads up to which a chain is scanned without a gap, and what is watched.";
    OrdersCommands: internal ORDER, [Api Processor] -> [Processor Api],
        "What is asked of orders, by merchants, customers, operators and matching.";
    DepositsCommands: internal WALLET, [Api Processor] -> [Processor Api],
        "What is asked of matching: by orders to open and close deposits, with answers about transfers, and by operators \
         to attach a transfer to an order, and to stop payments and end that.";
    Orders: public ORDER, [Processor] -> [Projector Webhooks Api],
        "The whole order after each change.";
    Deposits: public WALLET, [Processor] -> [Projector Api],
        "The whole deposit after each change: what a customer is expected to pay, where.";
    TransfersDetected: public WALLET, [Processor] -> [Projector Api],
        "A transfer was seen, or seen again in another block. It may still be orphaned.";
    TransfersConfirmed: public WALLET, [Processor] -> [Projector Api],
        "A transfer reached the confirmation policy of its chain.";
    TransfersMatched: public WALLET, [Processor] -> [Projector Api],
        "A confirmed transfer paid an order. Final.";
    TransfersUnknown: public WALLET, [Processor] -> [Projector Webhooks Api],
        "A confirmed transfer pays no order, with the reason. Final, unless an operator attaches it to one.";
    TransfersFailed: public WALLET, [Processor] -> [Projector Api],
        "A transfer was orphaned before it was confirmed, and did not come back in time.";
    MatchingChangelog: internal "lane, d/deposit_id, t/transfer_id or w/wallet", [Processor] -> [Processor],
        "The state of matching, to restore it from.";
    OrdersChangelog: internal ORDER, [Processor] -> [Processor],
        "The state of orders, to restore it from.";
    MatchingSteps: internal PARTITION, [Processor] -> [],
        "Which inputs each step of matching took, in their order: what `tidemark replay` repeats.";
    OrdersSteps: internal PARTITION, [Processor] -> [],
        "Which inputs each step of orders took, in their order: what `tidemark replay` repeats.";
    WebhooksDispatch: internal EVENT, [Webhooks Api] -> [Webhooks Api],
        "Webhooks to attempt now.";
    WebhooksRetry(_): internal EVENT, [Webhooks Api] -> [Webhooks Api],
        "Webhooks to attempt again after this delay.";
    WebhooksDefer(_): internal EVENT, [Webhooks Api] -> [Webhooks Api],
        "Webhooks put off by this delay because their receiver is busy: not an attempt.";
    WebhooksChangelog: internal ORDER, [Webhooks] -> [Webhooks],
        "The newest event of each order that had an earlier one: what is older is not sent after it.";
    WebhooksAttempts: public EVENT, [Webhooks] -> [Projector Api],
        "Every attempt to deliver a webhook, and how it ended; and those that are not made any more.";
    WebhooksDead: public EVENT, [Webhooks] -> [Api],
        "Webhooks that were given up: no attempt is left, the URL is refused, or its host was down for a day.";
    Chains: public "blockchain; blockchain/partition for lanes",
        [Ingest Processor] -> [Ingest Processor Projector],
        "How far each chain is scanned, confirmed and final, and what is watched on it; and how far the \
         processor is with each of its lanes.";
    Alerts: public "blockchain, the host of a receiver, or a topic",
        [Ingest Processor Webhooks Api] -> [Ingest Webhooks Api],
        "What needs an operator, and its end: the newest record of each `alert_id` counts.";
    Audit: public "name of the admin secret", [Api] -> [Api],
        "What operators asked for by the Admin API, each before it was done.";
    DeadLetters: public "topic/partition of the record", [Processor Projector Webhooks] -> [Webhooks Api],
        "Records that a stage could not process, with reason and origin.";
}

impl Topic {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
