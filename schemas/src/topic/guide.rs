//! What each topic tells somebody who has never met us: who writes and reads it, and what it is for.

use super::Topic;

/// A topic in words, for documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guide {
    /// What its records tell, in a sentence.
    pub summary: &'static str,
    /// What the key is, in words.
    pub key: &'static str,
    /// Stages that write it.
    pub writers: &'static [&'static str],
    /// Stages that read it.
    pub readers: &'static [&'static str],
    /// Whether it is meant for readers outside. The others are the pipeline's own: readable by anyone
    /// under the same rules, but a later version may stop writing them.
    pub is_public: bool,
}

const ORDER: &str = "order_id";
const WALLET: &str = "wallet address";
const EVENT: &str = "order_id or transfer_id";

const fn public(
    summary: &'static str,
    key: &'static str,
    writers: &'static [&'static str],
    readers: &'static [&'static str],
) -> Guide {
    Guide { summary, key, writers, readers, is_public: true }
}

const fn internal(
    summary: &'static str,
    key: &'static str,
    writers: &'static [&'static str],
    readers: &'static [&'static str],
) -> Guide {
    Guide { summary, key, writers, readers, is_public: false }
}

/// A step in the life of a transfer.
const fn transfer(summary: &'static str, readers: &'static [&'static str]) -> Guide {
    public(summary, WALLET, &["processor"], readers)
}

/// A webhook on its way.
const fn delivery(summary: &'static str, writers: &'static [&'static str]) -> Guide {
    internal(summary, EVENT, writers, &["webhooks"])
}

impl Topic {
    /// What this topic is for.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table, one row for each topic")]
    pub const fn guide(self) -> Guide {
        match self {
            Self::TransfersRaw => public(
                "What the chains show: transfers to configured wallets, retracts of orphaned ones, and \
                 heads up to which a chain is scanned without a gap.",
                "blockchain/block hash/log index; the blockchain for heads",
                &["ingest"],
                &["ingest", "processor"],
            ),
            Self::OrdersCommands => internal(
                "What is asked of orders, by merchants, customers, operators and matching.",
                ORDER,
                &["api", "processor"],
                &["processor"],
            ),
            Self::DepositsCommands => internal(
                "What orders ask of matching: open and close deposits, answers about transfers.",
                WALLET,
                &["processor"],
                &["processor"],
            ),
            Self::Orders => public(
                "The whole order after each change.",
                ORDER,
                &["processor"],
                &["projector", "webhooks", "api"],
            ),
            Self::Deposits => public(
                "The whole deposit after each change: what a customer is expected to pay, where.",
                WALLET,
                &["processor"],
                &["projector"],
            ),
            Self::TransfersDetected => transfer(
                "A transfer was seen, or seen again in another block. It may still be orphaned.",
                &["projector"],
            ),
            Self::TransfersConfirmed => {
                transfer("A transfer reached the confirmation policy of its chain.", &["projector"])
            }
            Self::TransfersMatched => {
                transfer("A confirmed transfer paid an order. Final.", &["projector"])
            }
            Self::TransfersUnknown => transfer(
                "A confirmed transfer pays no order, with the reason. Final.",
                &["projector", "webhooks"],
            ),
            Self::TransfersFailed => transfer(
                "A transfer was orphaned before it was confirmed, and did not come back in time.",
                &["projector"],
            ),
            Self::MatchingChangelog => internal(
                "The state of matching, to restore it from.",
                "lane, d/deposit_id or t/transfer_id",
                &["processor"],
                &["processor"],
            ),
            Self::OrdersChangelog => internal(
                "The state of orders, to restore it from.",
                ORDER,
                &["processor"],
                &["processor"],
            ),
            Self::WebhooksDispatch => delivery("Webhooks to attempt now.", &["webhooks", "api"]),
            Self::WebhooksRetry(_) => {
                delivery("Webhooks to attempt again after this delay.", &["webhooks"])
            }
            Self::WebhooksDefer(_) => delivery(
                "Webhooks put off by this delay because their receiver is busy: not an attempt.",
                &["webhooks"],
            ),
            Self::WebhooksAttempts => public(
                "Every attempt to deliver a webhook, and how it ended.",
                EVENT,
                &["webhooks"],
                &["projector"],
            ),
            Self::WebhooksDead => {
                public("Webhooks whose automatic attempts are used up.", EVENT, &["webhooks"], &[])
            }
            Self::Chains => public(
                "How far each chain is scanned, confirmed and final.",
                "blockchain",
                &["ingest"],
                &["ingest", "projector"],
            ),
            Self::Alerts => {
                public("What an operator must look at.", "blockchain", &["processor"], &[])
            }
            Self::DeadLetters => public(
                "Records that a stage could not process, with reason and origin.",
                "topic/partition of the record",
                &["processor", "projector", "webhooks"],
                &[],
            ),
        }
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
