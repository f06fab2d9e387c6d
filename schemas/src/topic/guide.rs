//! What each topic is for, which stages write it and which read it.

use super::Topic;
use crate::vocabulary::vocabulary;

const ORDER: &str = "order_id";
const WALLET: &str = "wallet address";
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
    /// What the key is, in words.
    pub key: &'static str,
    pub writers: &'static [Stage],
    pub readers: &'static [Stage],
    /// Whether it is meant for readers outside. The others are the pipeline's own: readable by anyone
    /// under the same rules, but a later version may stop writing them.
    pub is_public: bool,
}

const fn public(
    summary: &'static str,
    key: &'static str,
    writers: &'static [Stage],
    readers: &'static [Stage],
) -> Guide {
    Guide { summary, key, writers, readers, is_public: true }
}

const fn internal(
    summary: &'static str,
    key: &'static str,
    writers: &'static [Stage],
    readers: &'static [Stage],
) -> Guide {
    Guide { summary, key, writers, readers, is_public: false }
}

/// A step in the life of a transfer.
const fn transfer(summary: &'static str, readers: &'static [Stage]) -> Guide {
    public(summary, WALLET, &[Stage::Processor], readers)
}

/// A webhook on its way.
const fn delivery(summary: &'static str, writers: &'static [Stage]) -> Guide {
    internal(summary, EVENT, writers, &[Stage::Webhooks])
}

impl Topic {
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table, one row for each topic")]
    pub const fn guide(self) -> Guide {
        use Stage::{Api, Ingest, Processor, Projector, Webhooks};
        match self {
            Self::TransfersRaw => public(
                "What the chains show: transfers to configured wallets, retracts of orphaned ones, and \
                 heads up to which a chain is scanned without a gap.",
                "blockchain/block hash/log index; the blockchain for heads",
                &[Ingest],
                &[Ingest, Processor],
            ),
            Self::OrdersCommands => internal(
                "What is asked of orders, by merchants, customers, operators and matching.",
                ORDER,
                &[Api, Processor],
                &[Processor],
            ),
            Self::DepositsCommands => internal(
                "What orders ask of matching: open and close deposits, answers about transfers.",
                WALLET,
                &[Processor],
                &[Processor],
            ),
            Self::Orders => public(
                "The whole order after each change.",
                ORDER,
                &[Processor],
                &[Projector, Webhooks, Api],
            ),
            Self::Deposits => public(
                "The whole deposit after each change: what a customer is expected to pay, where.",
                WALLET,
                &[Processor],
                &[Projector],
            ),
            Self::TransfersDetected => transfer(
                "A transfer was seen, or seen again in another block. It may still be orphaned.",
                &[Projector],
            ),
            Self::TransfersConfirmed => {
                transfer("A transfer reached the confirmation policy of its chain.", &[Projector])
            }
            Self::TransfersMatched => {
                transfer("A confirmed transfer paid an order. Final.", &[Projector])
            }
            Self::TransfersUnknown => transfer(
                "A confirmed transfer pays no order, with the reason. Final.",
                &[Projector, Webhooks],
            ),
            Self::TransfersFailed => transfer(
                "A transfer was orphaned before it was confirmed, and did not come back in time.",
                &[Projector],
            ),
            Self::MatchingChangelog => internal(
                "The state of matching, to restore it from.",
                "lane, d/deposit_id or t/transfer_id",
                &[Processor],
                &[Processor],
            ),
            Self::OrdersChangelog => internal(
                "The state of orders, to restore it from.",
                ORDER,
                &[Processor],
                &[Processor],
            ),
            Self::WebhooksDispatch => delivery("Webhooks to attempt now.", &[Webhooks, Api]),
            Self::WebhooksRetry(_) => {
                delivery("Webhooks to attempt again after this delay.", &[Webhooks])
            }
            Self::WebhooksDefer(_) => delivery(
                "Webhooks put off by this delay because their receiver is busy: not an attempt.",
                &[Webhooks],
            ),
            Self::WebhooksAttempts => public(
                "Every attempt to deliver a webhook, and how it ended.",
                EVENT,
                &[Webhooks],
                &[Projector],
            ),
            Self::WebhooksDead => {
                public("Webhooks whose automatic attempts are used up.", EVENT, &[Webhooks], &[])
            }
            Self::Chains => public(
                "How far each chain is scanned, confirmed and final.",
                "blockchain",
                &[Ingest],
                &[Ingest, Projector],
            ),
            Self::Alerts => {
                public("What an operator must look at.", "blockchain", &[Processor], &[])
            }
            Self::DeadLetters => public(
                "Records that a stage could not process, with reason and origin.",
                "topic/partition of the record",
                &[Processor, Projector, Webhooks],
                &[],
            ),
        }
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
    #[must_use]
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
