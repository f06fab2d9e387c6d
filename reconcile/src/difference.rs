//! Differences, and the commands that mend them.

use schemas::Blockchain;

/// Cure of a difference that is a defect of the pipeline.
pub(crate) const DEFECT: &str =
    "no command mends it: keep log and tables as they are, and report it as a defect";

/// Two places that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Join {
    /// Transfer events of the chain, and `transfers.raw` without retracted transfers.
    Chain,
    /// `transfers.raw` without retracted transfers, and the verdicts of the processor.
    Verdicts,
    /// Matched transfers, and the orders that they pay.
    Orders,
    /// Newest versions on the topics, and rows.
    Tables,
    /// Events to be announced, and their webhooks.
    Webhooks,
    /// Orders, and the shop's own books.
    Books,
    /// Transfer events, and the balances of the wallets.
    Balances,
}

impl Join {
    /// Short names of both places.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chain => "chain = raw",
            Self::Verdicts => "raw = verdicts",
            Self::Orders => "verdicts = orders",
            Self::Tables => "topics = tables",
            Self::Webhooks => "events = webhooks",
            Self::Books => "orders = books",
            Self::Balances => "transfers = balances",
        }
    }
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The chain has a transfer that the log lacks.
    NotInLog,
    /// The log has a transfer that no endpoint shows.
    NotOnChain,
    /// Endpoints disagree about a transfer, and a person has to decide.
    Held,
    /// A transfer has no verdict, though it is past its confirmation and its match window.
    NoVerdict,
    /// A payment has verdicts under two ids.
    TwoVerdicts,
    /// A transfer has a verdict and is no longer on the chain.
    LeftTheChain,
    /// A transfer has a verdict, and `transfers.raw` no longer has its records.
    NoLongerInLog,
    /// A matched transfer did not pay its order, or an order's payer is not matched to it.
    NotPaidByIt,
    /// An order has another value than its transfer.
    OtherValue,
    /// Two transfers pay one order.
    PaidTwice,
    /// A record has no row.
    RowMissing,
    /// A row differs from its newest record.
    RowDiffers,
    /// No webhook was made of an event.
    NotAnnounced,
    /// All attempts of a webhook failed, and none are left.
    Dead,
    /// The books have an order that the period lacks.
    NotAnOrder,
    /// A paid order is not in the books.
    NotInBooks,
    BooksStatus,
    BooksAmount,
    BooksTransaction,
    /// A balance is not the one before it plus the received and minus the sent amounts.
    Balance,
}

impl Kind {
    /// Name for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotInLog => "not_in_log",
            Self::NotOnChain => "not_on_chain",
            Self::Held => "held",
            Self::NoVerdict => "no_verdict",
            Self::TwoVerdicts => "two_verdicts",
            Self::LeftTheChain => "left_the_chain",
            Self::NoLongerInLog => "no_longer_in_log",
            Self::NotPaidByIt => "not_paid_by_it",
            Self::OtherValue => "other_value",
            Self::PaidTwice => "paid_twice",
            Self::RowMissing => "row_missing",
            Self::RowDiffers => "row_differs",
            Self::NotAnnounced => "not_announced",
            Self::Dead => "dead",
            Self::NotAnOrder => "not_an_order",
            Self::NotInBooks => "not_in_books",
            Self::BooksStatus => "books_status",
            Self::BooksAmount => "books_amount",
            Self::BooksTransaction => "books_transaction",
            Self::Balance => "balance",
        }
    }
}

/// A disagreement between two places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub join: Join,
    pub kind: Kind,
    pub blockchain: Option<Blockchain>,
    /// The places, and the missing part. May contain untrusted text.
    pub what: String,
    /// The command that mends it, or what a person has to do.
    pub cure: String,
}
