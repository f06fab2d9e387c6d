//! Authors of commands, which determine the trust in a record.

use super::{DepositCommandBody, OrderCommandBody};

/// Part of the system, or person, that gives a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The shop or its customer. An operator's cancel counts as theirs.
    Client,
    Operator,
    /// The other machine of the processor.
    Machine,
    /// A timer of the machine itself.
    Timer,
}

impl OrderCommandBody {
    /// Author of a command of this kind.
    #[must_use]
    pub fn author(&self) -> Author {
        match self {
            Self::Create(_) | Self::ChoosePayment(_) | Self::Cancel => Author::Client,
            Self::MarkPaid(_) | Self::ResendWebhook(_) => Author::Operator,
            Self::DepositOpened { .. }
            | Self::DepositRefused { .. }
            | Self::DepositClosed { .. }
            | Self::CandidateSeen { .. }
            | Self::CandidateGone { .. }
            | Self::Settle(_)
            | Self::Attach(..)
            | Self::AttachRefused(_) => Author::Machine,
            Self::Tick => Author::Timer,
        }
    }
}

impl DepositCommandBody {
    /// Author of a command of this kind.
    #[must_use]
    pub fn author(&self) -> Author {
        match self {
            Self::Attach(_) | Self::Stop(_) | Self::Resume(_) => Author::Operator,
            Self::Open(_)
            | Self::Close { .. }
            | Self::Candidate { .. }
            | Self::Settled { .. }
            | Self::Refused { .. }
            | Self::Attached { .. }
            | Self::AttachRefused { .. } => Author::Machine,
        }
    }
}
