//! Closed sets of words, each declared once: states of the interface, reasons, kinds of records.

/// A word that is not in a closed vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{found}\" is not one of {allowed}")]
pub struct UnknownName {
    found: String,
    allowed: String,
}

impl UnknownName {
    pub(crate) fn new(found: &str, allowed: &[&str]) -> Self {
        Self { found: found.chars().take(40).collect(), allowed: allowed.join(", ") }
    }
}

/// Declares enums whose variants are words on the wire: text in JSON, Avro, SQL and metrics.
macro_rules! vocabulary {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The words of all values, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::vocabulary::UnknownName;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(crate::vocabulary::UnknownName::new(text, Self::WORDS)),
                }
            }
        }

        crate::scalar::text_scalar!($name, |word| word.as_str(), str::parse);
    )+};
}
pub(crate) use vocabulary;

vocabulary! {
    /// Status of an order (spec 3.1).
    OrderStatus {
        Pending = "pending",
        Paid = "paid",
        /// Its time ran out unpaid.
        Expired = "expired",
        /// The customer or an operator cancelled it before it was paid.
        Cancelled = "cancelled",
    }

    /// Status of a transfer (spec 3.2).
    TransferStatus {
        /// Detected on-chain; not yet confirmed.
        WaitingForConfirmation = "waiting_for_confirmation",
        /// Its block was orphaned and the transfer did not come back by finality.
        FailedToConfirm = "failed_to_confirm",
        /// Confirmed; not yet matched to a deposit.
        WaitingForMatch = "waiting_for_match",
        /// Confirmed; it pays no order.
        NoMatchedDeposit = "no_matched_deposit",
        /// Confirmed and paid an order.
        Matched = "matched",
    }

    UnknownReason {
        /// No open or recent deposit of this stablecoin is at this wallet.
        NoDeposit = "no_deposit",
        /// A deposit at this wallet waits or waited for this stablecoin, but for another amount.
        AmountMismatch = "amount_mismatch",
        /// The amount fits a deposit that only takes payments from another sender.
        SenderMismatch = "sender_mismatch",
        /// Its block, or its first sighting, is older than the deposit it would fit.
        BeforeDeposit = "before_deposit",
        /// The amount fits a deposit whose time had run out; or an order that was asked to settle gave no reply, or was
        /// forgotten.
        Late = "late",
        AlreadyPaid = "already_paid",
        OrderCancelled = "order_cancelled",
        /// The sender is a wallet of the merchant's own.
        OwnWallet = "own_wallet",
        /// Its contract of the coin does not pay the deposit that it was meant for.
        OtherContract = "other_contract",
        /// A stop by an operator covered it.
        Stopped = "stopped",
    }

    OrderCause {
        Created = "created",
        /// A chain and stablecoin were chosen; a deposit was requested.
        PaymentChosen = "payment_chosen",
        /// The same choice again: the reply is the open deposit.
        PaymentRepeated = "payment_repeated",
        /// No wallet had a free amount for the choice, the chain's time has passed the order's deadline, or the order
        /// has too many deposits, requested or open.
        PaymentRefused = "payment_refused",
        /// The chain's scan is behind or has a gap; or, at the last wallet tried, a contract is not watched or payments
        /// are stopped by an operator.
        PaymentUnavailable = "payment_unavailable",
        /// A choice, a cancel or an opened deposit came after the order had ended, or a choice after its deadline.
        NotPending = "not_pending",
        /// A deposit waits for the customer's transfer.
        DepositOpened = "deposit_opened",
        DepositClosed = "deposit_closed",
        /// A transfer that fits was seen, not yet confirmed.
        CandidateSeen = "candidate_seen",
        /// The candidate did not confirm, or does not pay this order.
        CandidateGone = "candidate_gone",
        /// Cancel came after a candidate transfer was seen.
        CancelRefused = "cancel_refused",
        Paid = "paid",
        /// Paid after it had expired or was cancelled, where the shop accepts late payments.
        PaidLate = "paid_late",
        /// Paid by a transfer that an operator attached, or by a candidate after it was marked paid.
        Attached = "attached",
        /// An operator's transfer may not pay it, or the order is paid by another one.
        AttachRefused = "attach_refused",
        MarkedPaid = "marked_paid",
        /// An operator marked a paid order paid: nothing changed.
        MarkPaidRepeated = "mark_paid_repeated",
        /// An operator sends the webhook of its status again.
        WebhookResent = "webhook_resent",
        /// A resend was requested of a pending order: it has no webhook to send.
        ResendRefused = "resend_refused",
        /// Its last deposit expired, or its own timer did.
        Expired = "expired",
        Cancelled = "cancelled",
    }

    CloseReason {
        Settled = "settled",
        /// The chain's time passed its deadline.
        Expired = "expired",
        /// Its order was paid in another way.
        OrderPaid = "order_paid",
        OrderCancelled = "order_cancelled",
        OrderExpired = "order_expired",
        /// The customer chose another chain or coin. A transfer in time still pays, if the order is pending.
        Replaced = "replaced",
    }

    RefusalReason {
        /// Every amount that the order may have is reserved at this wallet.
        AmountsTaken = "amounts_taken",
        /// The chain's time has passed the order's deadline.
        Expired = "expired",
        /// Not all contracts of the deposit are watched at this wallet: a payment would not be seen.
        NotWatched = "not_watched",
        /// The chain's last scanned block is too old, there is none, or blocks before it were never scanned.
        ChainBehind = "chain_behind",
        /// An operator has stopped the wallet, the coin, its contract or the chain.
        Stopped = "stopped",
    }

    DepositState {
        Requested = "requested",
        Open = "open",
        /// Its customer chose another way to pay since. A payment in time still counts.
        Replaced = "replaced",
        /// No longer waits for a payment.
        Closed = "closed",
        /// No wallet took it.
        Refused = "refused",
    }

    /// The kinds of record on `transfers.raw`: see [`ChainBody`](crate::record::ChainBody).
    ChainRecordKind {
        Transfer = "transfer",
        Retract = "retract",
        Head = "head",
        Watch = "watch",
    }

    /// The kinds of command on `orders.commands`: see [`OrderCommandBody`](crate::record::OrderCommandBody).
    OrderCommandKind {
        Create = "create",
        ChoosePayment = "choose_payment",
        Cancel = "cancel",
        MarkPaid = "mark_paid",
        ResendWebhook = "resend_webhook",
        DepositOpened = "deposit_opened",
        DepositRefused = "deposit_refused",
        DepositClosed = "deposit_closed",
        CandidateSeen = "candidate_seen",
        CandidateGone = "candidate_gone",
        Settle = "settle",
        Attach = "attach",
        AttachRefused = "attach_refused",
        Tick = "tick",
    }

    /// The kinds of command on `deposits.commands`: see [`DepositCommandBody`](crate::record::DepositCommandBody).
    DepositCommandKind {
        Open = "open",
        Close = "close",
        Candidate = "candidate",
        Settled = "settled",
        Refused = "refused",
        Attach = "attach",
        Attached = "attached",
        AttachRefused = "attach_refused",
        Stop = "stop",
        Resume = "resume",
    }

    /// Event that a webhook carries (spec 6.1, 6.2).
    DeliveryKind {
        OrderStatusChanged = "order_status_changed",
        UnknownTransfer = "unknown_transfer",
    }

    /// Outcome of one webhook attempt. Only `delivered` is success (spec 6.3.1).
    AttemptOutcome {
        /// HTTP 200.
        Delivered = "delivered",
        Status = "status",
        Timeout = "timeout",
        /// No connection: the receiver's name, TCP or TLS failed.
        Connect = "connect",
        /// The address is not one this service may call.
        Forbidden = "forbidden",
        /// The connection broke, or the response is not HTTP.
        Protocol = "protocol",
        /// A newer event of its order is delivered in its place.
        Superseded = "superseded",
        /// Its receiver has been failing, so it was skipped.
        CircuitOpen = "circuit_open",
        /// Something failed on this side: the resolver, a limit of the system, the network.
        Local = "local",
    }

    /// Condition or event that needs an operator.
    AlertKind {
        /// A confirmed transfer was orphaned by a deep reorganisation; or an order counts on a transfer that failed,
        /// became unknown, or is another order's.
        ConfirmedTransferRetracted = "confirmed_transfer_retracted",
        /// A transfer appeared in a block more than a day old, so that its lane may have forgotten it, or came back
        /// after it was forgotten: it is ignored.
        StaleTransfer = "stale_transfer",
        /// No amount was free for a deposit at a wallet.
        AmountsTaken = "amounts_taken",
        /// A head was below the last one of its epoch, or of an older epoch.
        HeadWentBack = "head_went_back",
        /// A head had a height, epoch or time that the chain cannot have reached yet.
        HeadTooFar = "head_too_far",
        /// A merchant's endpoint has not acknowledged a webhook for long.
        EndpointFailing = "endpoint_failing",
        /// A chain is halted until a person acts, or was not scanned or not confirmed for too long.
        ChainHalted = "chain_halted",
        /// Only a second check of a block found a transfer in it.
        LateFind = "late_find",
        /// A transfer was published, and no endpoint has it any more: it was taken back.
        ForgedTransfer = "forged_transfer",
        /// Endpoints disagree about a transfer: it pays nothing until they agree or an operator decides.
        DisputedTransfer = "disputed_transfer",
        /// No second endpoint answers: one confirms alone, amounts below a bound only.
        ConfirmingAlone = "confirming_alone",
        /// Blocks that were never scanned are gone from every endpoint.
        PrunedHistory = "pruned_history",
        /// An operator stopped payments.
        PaymentsStopped = "payments_stopped",
        /// The installation was restored from a backup, and lacks everything after it.
        Restored = "restored",
        /// A record could not be processed: see the topic `dead-letters`.
        DeadLetter = "dead_letter",
        /// A webhook was given up: see the topic `webhooks.dead`.
        DeadWebhook = "dead_webhook",
    }

    /// State of an alert: still to be acted on, or over.
    AlertState {
        Raised = "raised",
        Resolved = "resolved",
    }

    /// Request of an operator by the Admin API or the command line.
    AuditAction {
        CancelOrder = "cancel_order",
        MarkPaid = "mark_paid",
        /// The webhook of an order's status is sent again.
        ResendOrder = "resend_order",
        /// The webhook of a transfer that pays nothing is sent again.
        ResendTransfer = "resend_transfer",
        /// A transfer that pays nothing is attached to an order.
        AttachTransfer = "attach_transfer",
        /// A dead letter is returned to its topic.
        ReplayDeadLetter = "replay_dead_letter",
        /// A record that no version can read is moved to the dead letters.
        SkipRecord = "skip_record",
        /// Payments of a wallet, a coin, a contract or a chain stop.
        Stop = "stop",
        /// A stop ends.
        Resume = "resume",
        /// An alert is resolved.
        ResolveAlert = "resolve_alert",
    }
}

impl AlertKind {
    /// `true` for a condition, which ends by itself: its owner writes the end. Any other kind is an
    /// event, which a person resolves.
    #[must_use]
    pub const fn is_condition(self) -> bool {
        match self {
            Self::HeadWentBack
            | Self::HeadTooFar
            | Self::EndpointFailing
            | Self::ChainHalted
            | Self::DisputedTransfer
            | Self::ConfirmingAlone
            | Self::PrunedHistory
            | Self::PaymentsStopped => true,
            Self::ConfirmedTransferRetracted
            | Self::StaleTransfer
            | Self::AmountsTaken
            | Self::LateFind
            | Self::ForgedTransfer
            | Self::Restored
            | Self::DeadLetter
            | Self::DeadWebhook => false,
        }
    }
}

impl AttemptOutcome {
    /// `true` if a POST was made, or at least a connection for it attempted: spec 2.3 counts these.
    #[must_use]
    pub const fn is_request(self) -> bool {
        match self {
            Self::Delivered | Self::Status | Self::Timeout | Self::Connect | Self::Protocol => true,
            Self::Forbidden | Self::Superseded | Self::CircuitOpen | Self::Local => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_are_counted_spec_2_3() {
        let counted = AttemptOutcome::ALL.iter().filter(|outcome| outcome.is_request());
        let words: Vec<_> = counted.map(|outcome| outcome.as_str()).collect();
        assert_eq!(words, ["delivered", "status", "timeout", "connect", "protocol"]);
    }
}
